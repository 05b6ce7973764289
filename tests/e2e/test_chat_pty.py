"""`ragmem chat` as a person meets it: the real command on a pty, real store, HTTP over loopback."""

import re
import signal

from tests.e2e.house import House, loaded
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import LOADED

ESC, CTRL_C, CTRL_D = "\x1b", "\x03", "\x04"
AGO = r"(?:just now|\d minutes? ago)"
"""Of what was done a few steps before."""
READ = Answer(tools=[Call("read_file", {"path": "a.py"})])
EDIT = Answer(tools=[Call("edit_file", {"path": "a.py", "old": "hello", "new": "goodbye"})])


def test_who_comes_for_the_first_time_is_told_in_a_sentence_what_this_is(house: House) -> None:
    """Not once there is a session, nor where nothing is remembered."""
    house.server.extend(Answer("Hello."))
    sessions = house.project.parent / ".codex" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "rollout-1.jsonl").write_text("{}\n")
    told = r"^· Everything here is remembered, on this machine\."
    with house.chat("chat", "--ephemeral", ready=LOADED) as chat:
        assert not re.search(told, chat.text, re.MULTILINE)
    with house.chat("chat") as chat:
        chat.wait_for(told)
        chat.wait_for(
            r"Sessions of Codex are on this machine too: `ragmem\s+import` imports\s+them\."
        )
        loaded(chat)
        chat.send("hello\r", ends=r"^Hello\.")
        chat.leave()
    with house.chat("chat") as chat:
        chat.wait_for(r"^· The last session here")
        loaded(chat)
        assert not re.search(told, chat.text, re.MULTILINE)


def test_three_turns_a_kill_and_the_next_day(house: House) -> None:
    """Read, edit, run, killed in a turn, resumed in another process."""
    house.server.extend(
        READ,
        Answer("It prints **hello**."),
        EDIT,
        Answer("Now it says goodbye."),
        Answer(tools=[Call("run_command", {"command": "python3 a.py"})]),
        Answer("It ran."),
        Answer("Never heard to the end, " * 50, chunk_delay_s=0.3, chunk_chars=1),
    )
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("what does a.py do?\r")
        chat.wait_for(r"^● read_file a\.py\n  ⎿ 1 line.*\n\nIt prints hello\.\n  .*2 model calls")
        chat.send("say goodbye\r", shows=r"^Allow this change\?")
        assert '│ 1 - print("hello")\n│ 1 + print("goodbye")' in chat.text
        chat.send("y", prints=r"^Now it says goodbye\.")
        assert (house.project / "a.py").read_text() == 'print("goodbye")\n'
        chat.send("run it\r", shows=r"^Allow this command\?")
        assert "│ python3 a.py" in chat.text
        chat.send("y", prints=r"^✓ python3 a\.py  [\d.]+ m?s\n  ⎿ goodbye\n\nIt ran\.")
        chat.send("and now?\r", shows=r"Never hear")
        chat.process.kill(signal.SIGKILL)
        assert chat.exit_code() == -9
    house.server.extend(Answer("You asked what a.py does."))
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^    cut off: turn 4 was stopped in the middle of its answer")
        chat.wait_for(r"^› and now\?")
        chat.wait_for(r"^  interrupted$")
        loaded(chat)
        chat.send("what did I ask first?\r", prints=r"^You asked what a\.py does\.")
        assert "what does a.py do?" in house.last_prompt()
        assert "print(" in house.last_prompt()
        chat.leave()
        tail = re.search(r"ragmem chat -r ([0-9a-f]{8})", chat.text)
        assert tail
    (session,) = house.sessions()
    assert session["session_id"].endswith(tail[1])
    assert [turn["status"] for turn in session["turns"]] == [
        *["completed"] * 3,
        "interrupted",
        "completed",
    ]
    calls = [call["tool_name"] for turn in session["turns"] for call in turn["tool_calls"]]
    assert calls == ["read_file", "edit_file", "run_command"]


def test_bare_ragmem_is_a_chat_that_can_be_typed_at_once(house: House) -> None:
    """The prompt comes before the imports; the first question can be sent, or stands behind the
    command; a clear screen loses no session."""
    house.server.extend(Answer("Here."), Answer("Of course."))
    with house.chat() as chat:
        chat.send("are you there?\r", prints=r"^› are you there\?\n\nHere\.")
        chat.send("/clear\r", shows=r"^The previous session is kept: /resume [0-9a-f]+$")
        assert "Here." not in chat.screen
        chat.send(CTRL_D)
        assert chat.exit_code() == 0
        assert chat.is_restored()
    with house.chat("chat") as chat:
        chat.wait_for(rf"^· The last session here, {AGO}: “are you there\?”\. `ragmem chat -c` or")
    with house.chat("are you sure?", "-c") as chat:
        chat.wait_for_turn(r"^Here\.[\s\S]*^› are you sure\?[\s\S]*^Of course\.$")
        chat.send("exit\r")
        assert chat.exit_code() == 0


def test_mistakes_are_said_on_a_clean_line(house: House) -> None:
    """What is wrong and what to do; no prompt is left, what was typed is gone."""
    for arguments, environment, said in (
        (["chat", "-r", "nowhere"], {}, "nowhere not found"),
        (["chat", "--nonsense"], {}, "--nonsense"),
        (["chat"], {"RAGMEM_STORE": "paper"}, "paper"),
        (["chat", "-m", "openai/x"], {"RAGMEM_API_BASE": ""}, "OPENAI_API_KEY"),
    ):
        with house.chat(*arguments, env=environment) as chat:
            chat.send("typed too early")
            assert chat.exit_code() == 2
            assert said in chat.screen
            assert "Traceback" not in chat.screen
            assert not re.search(r"^› ", chat.screen, re.MULTILINE)
            assert chat.is_restored()


def test_the_statistics_include_a_chat_that_goes_on(house: House) -> None:
    house.server.extend(Answer("Answer 1."), Answer("Answer 2."))
    with house.chat("chat", ready=LOADED) as chat:
        for number in (1, 2):
            chat.send("what?\r", ends=rf"^Answer {number}\.")
            found = house.read("stats")
            assert (found["counts"]["turns"], found["tokens"]["output"]) == (number, 20 * number)
        chat.leave()
    assert house.read("stats")["tokens"]["output"] == 40


def test_ephemeral_leaves_no_trace_on_the_disk(house: House) -> None:
    """Neither of the prompt, nor of a command's output, nor of a file before its edit."""
    (house.project / "a.txt").write_text("the old text\n")
    edit = Call("write_file", {"path": "a.txt", "content": "new\n"})
    house.server.extend(
        Answer(tools=[Call("read_file", {"path": "a.txt"})]),
        Answer(tools=[edit, Call("run_command", {"command": "seq 20000; echo private output"})]),
        Answer("done"),
    )
    with house.chat("chat", "--ephemeral", "--yolo", ready=LOADED) as chat:
        chat.send("a private question\r", ends=r"^done")
        for command in ("/undo", "/diff"):
            chat.send(
                f"{command}\r", prints=rf"^› {command}\n+\W*This session is not stored, so its"
            )
        chat.send("/fork\r", prints=r"^✗ This session is not stored, so it can't be copied\.")
        chat.leave()
    held = {file: file.read_bytes() for file in house.home.rglob("*") if file.is_file()}
    for words in (b"private question", b"the old text", b"private output"):
        assert [file for file, data in held.items() if words in data] == []


def test_ephemeral_leaves_nothing_to_resume(house: House) -> None:
    """Neither session nor memory is written; in the chat the past is known, whatever its name."""
    house.server.extend(Answer("Answer 1."), Answer("Answer 2."))
    with house.chat("chat", "--ephemeral", ready=LOADED) as chat:
        chat.send("one\r", prints=r"^Answer 1\.")
        chat.send("/rename The garden\r/tag beds\r", prints=r"^· Tags: beds\.")
        chat.send("/why\r", prints=r"^Memory added nothing to the last request\.")
        chat.send("two\r", ends=r"^Answer 2\.")
        assert "Answer 1." in house.last_prompt()
        chat.send("/cost\r/files\r/context\r", prints=r"of 25k tokens")
        chat.leave()
        assert "Resume with" not in chat.text
    assert house.sessions() == []
