"""What a chat tells who comes back: what was cut off, what was pasted, what one ran oneself."""

import signal

from tests.e2e.house import House, loaded
from tests.e2e.test_chat_pty import CTRL_D, ESC, READ
from tests.fakes.llm_server import Answer, Call
from tests.repl.test_expand import CTRL_O


def test_a_turn_that_was_killed_in_a_command_is_told(house: House) -> None:
    """Its finished calls, and that of the command nothing is known."""
    command = "touch began; while [ ! -e go ]; do sleep 0.05; done"
    house.server.extend(
        READ,
        Answer(tools=[Call("list_directory", {"path": "."})]),
        Answer(tools=[Call("run_command", {"command": command})]),
    )
    with house.chat("chat", "--yolo") as chat:
        loaded(chat)
        chat.send("look around\r")
        chat.until(lambda: (house.project / "began").exists())
        chat.process.kill(signal.SIGKILL)
        assert chat.exit_code() == -9
    (house.project / "go").touch()
    with house.chat("chat", "-c", columns=42, rows=20) as chat:
        loaded(chat)
        told = " ".join(chat.text.split())
        assert "cut off: turn 1 was stopped after read_file, list_directory; running then:" in told
        chat.wait_for(r"^● read_file a\.py +\S+.*\n● list_directory \.")
        chat.wait_for(r"^✗ touch began; while .*\n  interrupted\n\n  ─+$")


def test_what_was_on_the_screen_of_an_answer_outlives_the_process(house: House) -> None:
    """It is shown to who comes back, and the next request says that it was cut off."""
    words = " ".join(f"word{i}" for i in range(400))
    house.server.extend(Answer(text=f"Water runs downhill.\n\n{words}", chunk_delay_s=0.05))
    with house.chat("chat") as chat:
        loaded(chat)
        chat.send("where does water run?\r")
        chat.wait_for_screen("word60")
        chat.process.kill(signal.SIGKILL)
        assert chat.exit_code() == -9
    house.server.extend(Answer("As I said."))
    with house.chat("chat", "-c", rows=40) as chat:
        loaded(chat)
        chat.wait_for(r"^    cut off: turn 1 was stopped in the middle of its answer\n")
        chat.wait_for(r"^Water runs downhill\.\n\nword0 word1 [\s\S]*\n  interrupted\n\n  ─+$")
        chat.send("go on\r")
        chat.wait_for(r"^As I said\.")
    sent = house.server.requests[-1].body["messages"]
    (before,) = [each["content"] for each in sent if each["role"] == "assistant"]
    assert before.startswith("Water runs downhill.\n\nword0 word1 ")
    assert before.endswith("\n\n[This turn was interrupted before it was finished.]")


def test_the_last_turns_are_told_in_short_and_all_of_them_open_with_a_key(house: House) -> None:
    """Bounded by the screen, so that the card stays in sight."""
    for n in range(1, 7):
        drips = "drip " * 999 if n > 5 else ""
        house.server.extend(Answer(f"Bed {n} is dry. It needs water.\n\n{drips}"))
        house.ask(*(["-c"] if n > 1 else []), f"is bed {n} dry?")
    with house.chat("chat", "-c", columns=80, rows=24) as chat:
        loaded(chat)
        chat.wait_for(
            r"^↩ .*6 turns · .*\n[\s\S]*"
            r"^  … 2 earlier turns · Ctrl-O shows all\n  › is bed 3 dry\?\n"
            r"    Bed 3 is dry\. It needs water\.\n  › is bed 4 dry\?\n    Bed 4 .*\n"
            r"  › is bed 5 dry\?\n    Bed 5 .*\n\n› is bed 6 dry\?\n\nBed 6 is dry\."
        )
        assert "characters left out" in chat.text
        chat.send(CTRL_O)
        chat.wait_for_screen(r"▸ All of this session +6 turns")
        chat.send("\r")
        chat.wait_for_screen(r"> is bed 1 dry\?")


def test_a_long_paste_is_shown_by_its_beginning_and_an_own_command_with_its_output(
    house: House,
) -> None:
    house.server.extend(Answer("So many lines."))
    lines = "\n".join(f"line {i}" for i in range(300))
    with house.chat("chat", rows=40) as chat:
        loaded(chat)
        chat.send(f"count these: {ESC}[200~{lines}{ESC}[201~")
        chat.wait_for_screen(r"\[pasted 300 lines\]$")
        chat.send("\r")
        chat.wait_for(r"^So many lines\.")
        chat.send(CTRL_D)
        assert chat.exit_code() == 0
    (session,) = house.sessions()
    with house.chat("sessions", "resume", session["session_id"], rows=40) as chat:
        loaded(chat)
        chat.wait_for(
            r"^› count these: line 0\n  line 1\n  line 2\n  line 3\n  line 4\n"
            r"  \[295 more lines\]\n\nSo many lines\.\n\n  ─+$"
        )
        chat.send("!echo out of it\r")
        chat.wait_for(r"^  out of it\n")
        chat.send(CTRL_D)
        assert chat.exit_code() == 0
    with house.chat("chat", "-c", rows=40) as chat:
        loaded(chat)
        chat.wait_for(r"^› !echo out of it\n\n[\s\S]*^  out of it\n")
        assert "line 99" not in chat.text


def test_the_last_chat_is_gone_on_with_not_a_question_that_was_asked_since(house: House) -> None:
    """A question is a chat once somebody chats in it; without any chat it is gone on with."""
    house.server.extend(Answer("Once."), Answer("Yes."), Answer("Weekly."), Answer("Four."))
    house.ask("how often?")
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^› how often\?\n\nOnce\.")
        loaded(chat)
        chat.send("sure?\r")
        chat.wait_for_turn(r"^Yes\.")
        chat.leave()
    house.ask("and the ferns?")
    assert [session["tags"] for session in house.sessions()] == [["ask"], []]
    with house.chat("chat") as chat:
        chat.wait_for(r"The last session here, .*: “how often\?”\.")
        chat.leave()
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^› sure\?\n\nYes\.")
        chat.leave()
    house.ask("-c", "how many?")
    newest = house.sessions()[0]
    assert [turn["user_message"] for turn in newest["turns"]] == ["and the ferns?", "how many?"]
    assert newest["tags"] == ["ask"]
