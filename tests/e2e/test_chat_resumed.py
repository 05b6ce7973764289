"""What a chat tells who comes back: what was cut off, what was pasted, what one ran oneself."""

import signal

from tests.e2e.house import House, loaded
from tests.e2e.test_chat_pty import READ
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import LOADED


def test_a_turn_that_was_killed_in_a_command_is_told(house: House) -> None:
    """Its finished calls, and that of the command nothing is known."""
    command = "touch began; while [ ! -e go ]; do sleep 0.05; done"
    house.server.extend(
        READ,
        Answer(tools=[Call("list_directory", {"path": "."})]),
        Answer(tools=[Call("run_command", {"command": command})]),
    )
    with house.chat("chat", "--yolo", ready=LOADED) as chat:
        chat.send("look around\r", until=lambda: (house.project / "began").exists())
        chat.process.kill(signal.SIGKILL)
        assert chat.exit_code() == -9
    (house.project / "go").touch()
    with house.chat("chat", "-c", columns=42, rows=20, ready=LOADED) as chat:
        told = " ".join(chat.text.split())
        assert "cut off: turn 1 was stopped after read_file, list_directory; running then:" in told
        chat.wait_for(r"^● read_file a\.py +\S+.*\n● list_directory \.")
        chat.wait_for(r"^✗ touch began; while .*\n  interrupted\n\n  ─+$")


def test_the_last_chat_is_gone_on_with_not_a_question_that_was_asked_since(house: House) -> None:
    """A question is a chat once somebody chats in it; without any chat it is gone on with."""
    house.server.extend(Answer("Once."), Answer("Yes."), Answer("Weekly."), Answer("Four."))
    house.ask("how often?")
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^› how often\?\n\nOnce\.")
        loaded(chat)
        chat.send("sure?\r", ends=r"^Yes\.")
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
