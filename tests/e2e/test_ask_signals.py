"""`ragmem ask` when it is stopped, or when nobody reads any more."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import Ragmem, Started, until
from tests.fakes.llm_server import Answer, LLMServer

SLOW = Answer("word " * 400, chunk_chars=5, chunk_delay_s=0.05)
STREAM = ("--output-format", "stream-json", "--include-partial-messages")


@pytest.fixture
def slow(ragmem: Ragmem, server: LLMServer) -> Ragmem:
    server.extend(SLOW)
    return ragmem


def read_words(child: Started, count: int) -> str:
    """The session's id, once so many pieces of the answer have come."""
    while count:
        line = json.loads(child.stdout.readline())
        count -= line["type"] == "stream_event"
    session_id: str = line["session_id"]
    return session_id


def only_turn(ragmem: Ragmem, session_id: str) -> Any:
    (turn,) = ragmem.shown(session_id)["turns"]
    return turn


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_turn_recorded_with_what_came(
    slow: Ragmem, number: signal.Signals, code: int
) -> None:
    """The turn is interrupted, never half; the exit codes of signals."""
    child = slow.start("ask", "Tell me", *STREAM)
    session_id = read_words(child, 3)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (code, b"")
    result = json.loads(out.splitlines()[-1])
    assert (result["type"], result["subtype"], result["error"]) == (
        "result",
        "error_during_execution",
        "interrupted",
    )
    turn = only_turn(slow, session_id)
    assert (turn["user_message"], turn["status"]) == ("Tell me", "interrupted")
    assert turn["assistant_message"].startswith("word word")


@pytest.mark.parametrize("module", ["typer", "msgspec", "ragmem.cli.sessions"])
def test_ctrl_c_while_it_starts_is_quiet(tmp_path: Path, module: str) -> None:
    ragmem, path = Ragmem(tmp_path, {}), tmp_path / "path"
    path.mkdir()
    (path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    ragmem.env["PYTHONPATH"] = str(path)
    child = ragmem.start_fresh("sessions", "list")
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, b"", b"")


def test_a_turn_whose_process_was_killed_is_shown_as_interrupted(slow: Ragmem) -> None:
    child = slow.start("ask", "Tell me", *STREAM)
    session_id = read_words(child, 3)
    assert only_turn(slow, session_id)["status"] == "running"
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    assert only_turn(slow, session_id)["status"] == "interrupted"
    assert "── 1 (interrupted)" in slow.ok("sessions", "show", session_id).out


def test_a_signal_while_stdin_is_read_leaves_nothing(slow: Ragmem) -> None:
    child = slow.start("ask", stdin=subprocess.PIPE)
    assert child.stderr.readline().startswith(b"waiting for standard input")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, b"", b"")
    assert slow.sessions() == []


def test_when_the_reader_leaves_the_turn_is_recorded_and_all_is_quiet(slow: Ragmem) -> None:
    """No traceback, no spin; what came is kept."""
    child = slow.start("ask", "Tell me", *STREAM)
    session_id = read_words(child, 3)
    child.stdout.close()
    assert child.wait(timeout=60) == 141
    assert child.stderr.read() == b""
    child.stderr.close()
    assert only_turn(slow, session_id)["status"] == "interrupted"


def test_a_full_disk_behind_stdout_is_exit_1_and_the_turn_is_recorded(ragmem: Ragmem) -> None:
    with open("/dev/full", "w") as full:
        child = ragmem.start("ask", "Hello", stdout=full)
        _, err = child.communicate()
    assert child.returncode == 1
    assert err == b"error: Can't write the output: No space left on device.\n"
    (session,) = ragmem.sessions()
    assert only_turn(ragmem, session["session_id"])["status"] == "completed"


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_the_model_is_silent_ends_it_at_once(
    ragmem: Ragmem, server: LLMServer, times: int
) -> None:
    server.extend(Answer("x", mode="silent"))
    child = ragmem.start("ask", "Tell me")
    until(lambda: server.requests)
    for _ in range(times):
        child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    if times == 1:
        assert (child.returncode, out, err) == (130, b"", b"interrupted\n")
    # One that comes when all is done, and Python on its way out, ends it: 130 to a shell too.
    assert child.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in err
