"""What a chat tells who comes back: what was cut off, what was pasted, what one ran oneself."""

import signal

from tests.e2e.house import House, loaded
from tests.e2e.test_chat_pty import CTRL_D, ESC, READ
from tests.fakes.llm_server import Answer, Call


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
        chat.child.kill(signal.SIGKILL)
        assert chat.exit_code() == -9
    (house.project / "go").touch()
    with house.chat("chat", "-c", columns=42, rows=20) as chat:
        loaded(chat)
        told = " ".join(chat.text.split())
        assert "cut off: turn 1 stopped after read_file, list_directory; running then:" in told
        chat.wait_for(r"^● read_file a\.py +\S+.*\n● list_directory \.")
        chat.wait_for(r"^✗ touch began; while .*\n  interrupted\n\n  ─+$")


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
        assert "line 0" not in chat.text
