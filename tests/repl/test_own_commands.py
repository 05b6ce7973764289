"""`!command`: the person's own commands in a chat, real processes on a pty, real store."""

import re
from pathlib import Path

from ragmem.repl.commands import needs_terminal
from tests.e2e.house import House
from tests.e2e.test_chat_pty import CTRL_C
from tests.fakes.llm_server import Answer
from tests.repl.pty_chat import LOADED, PtyChat

KEY = "sk-ant-api03-" + "a1B2c3D4e5" * 9 + "AA"


def left(chat: PtyChat) -> None:
    chat.leave()
    assert chat.is_restored()


def test_a_command_is_run_shown_recorded_and_known_to_the_agent(house: House) -> None:
    """`!command` shows its output to the agent, of this chat and of the one after a restart."""
    typed = "!python3 a.py; ls /nowhere; exit 3"
    told = r"<output-[0-9a-f]{10}>\\nExit code 3\\nhello\\nls: "
    with house.chat("chat", ready=LOADED) as chat:
        chat.send(f"{typed}\r", prints=r"^  hello\n  ls: .*/nowhere.*\n  ✗ exit 3 · .*$")
        assert not house.server.requests  # it is the person's, not the model's
        left(chat)
        assert "Resume with: ragmem chat -r" in chat.text
    house.server.extend(Answer("It says hello."))
    with house.chat("chat", "-c", ready=LOADED) as chat:
        chat.wait_for(r"^› !python3 a\.py")
        chat.send("what did it say?\r", prints=r"^It says hello\.")
        assert re.search(told, house.last_prompt())
        assert typed in house.last_prompt()
        left(chat)
    (session,) = house.sessions()
    own, asked = session["turns"]
    assert (own["user_message"], own["status"]) == (typed, "completed")
    (call,) = own["tool_calls"]
    assert call["tool_name"] == "run_command"
    assert "hello" in str(call["result"])
    assert (asked["user_message"], asked["tool_calls"]) == ("what did it say?", [])


def test_what_is_printed_is_stored_and_sent_without_secrets(house: House) -> None:
    """A key in the output is the person's to see; stored and sent it is not."""
    (house.project / "key.txt").write_text(f"key {KEY}\n")
    house.server.extend(Answer("I see none."))
    with house.chat("chat", columns=160, ready=LOADED) as chat:
        chat.send("!cat key.txt\r", prints=r"^  key sk-ant-api03")
        chat.send("which key?\r", prints=r"^I see none\.")
        left(chat)
    assert KEY not in house.last_prompt()
    assert "[redacted" in house.last_prompt()
    assert KEY not in str(house.sessions())


def test_ctrl_c_ends_it_and_keeps_what_it_printed(house: House) -> None:
    """Ctrl-C interrupts; the process is gone, its output known, the chat goes on."""
    house.server.extend(Answer("You stopped it."))
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("!echo begun; touch printed; sleep 3600; touch never\r")
        chat.wait_for_screen(r"^● echo begun.* · 1 line\n  │ begun\nworking · .* · Esc stops")
        chat.until((house.project / "printed").exists, "the command to be at work")
        chat.send(CTRL_C, prints=r"^  begun\n  ✗ Stopped by you · ")
        chat.send("and?\r", prints=r"^You stopped it\.")
        assert "Stopped by the user.\\nbegun" in house.last_prompt()
        left(chat)
    first, _ = house.sessions()[0]["turns"]
    assert first["status"] == "interrupted"
    assert not (house.project / "never").exists()


def test_what_is_no_command(house: House) -> None:
    """Nothing runs that was not meant to; the hint says what to type."""
    house.server.extend(Answer("A picture."), Answer("As you say."))
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("!\r", prints=r"^✗ No command given\.\n  Usage: !COMMAND")
        chat.send("\x1b[200~!touch one\ntouch two\x1b[201~\r")
        chat.wait_for(r"^✗ A command must be a single line; nothing was run\.")
        chat.send("![alt](a.png)\r", prints=r"^A picture\.")
        chat.send(" !touch three\r", prints=r"^As you say\.")
        left(chat)
    assert sorted(path.name for path in house.project.iterdir()) == ["a.py"]
    assert len(house.sessions()[0]["turns"]) == 2


def test_nobody_is_asked_and_plan_mode_stops_only_the_agent(house: House) -> None:
    """They bind the agent; the person has typed it."""
    with house.chat("chat", "--permission-mode", "plan", ready=LOADED) as chat:
        chat.send("!touch mine\r", prints=r"^  \(no output\)\n  ✓ ")
        left(chat)
    assert (house.project / "mine").exists()


def test_a_program_that_needs_the_terminal_has_it_and_the_chat_comes_back(
    house: House, tmp_path: Path
) -> None:
    """With its keys, but no secrets; then the chat is as it was, and takes prompts."""
    edit = tmp_path / "edit"
    edit.write_text(
        "#!/bin/bash\ntest -t 1 || exit 9\n"
        "env | grep -E '_KEY=|TERM=dumb' && exit 8\necho full screen\n"
        "read -rsn1 key </dev/tty\n[ $key = q ] && exit 3\n"
    )
    edit.chmod(0o755)
    house.server.extend(Answer("All here."))
    with house.chat("chat", ready=LOADED) as chat:
        chat.send(f"!!{edit} a.py\r", shows=r"^full screen$")
        chat.send("q", shows=r"^  ✗ exit 3 · ")
        chat.send("and now?\r", ends=r"^All here\.")
        assert len(house.server.requests) == 1
        left(chat)


def test_what_the_terminal_is_needed_for() -> None:
    needing = (
        "!less x", "!git log | less", "!cat a.py | vim -", "!sudo ls", "!python3", "!ssh host",
        "!FOO=1 vim", "!!make x",
    )  # fmt: skip
    for typed in needing:
        assert needs_terminal(typed), typed
    for typed in ("!which vim", "!echo vim", "!python3 a.py", "!ssh host ls", "!git log", "!make"):
        assert not needs_terminal(typed), typed
