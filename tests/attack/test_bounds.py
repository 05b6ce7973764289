"""A model that runs wild, a line that drips, a store that is given too much: each has an end."""

import json
import re
import select
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.attack.torrent import HEAD, Torrent, event
from tests.cli.process import Done, Ragmem
from tests.fakes.llm_server import Answer, LLMServer
from tests.store.conftest import mostly

MOST_RESIDENT = 300 << 20
MOST_STORED = 8 << 20

_WORDS = "I have to think about this once more, from the start. " * 40
_CALL = {"index": 0, "function": {"arguments": _WORDS}}
_NAMED = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "create_file"}}]}
TORRENTS = {
    "reasoning": event({"reasoning_content": _WORDS}),
    "words": event({"content": _WORDS}),
    "arguments": event({"tool_calls": [_CALL]}),
    "calls": event({"tool_calls": [{"function": {"name": "read_file", "arguments": "{}"}}]}),
    "comments": b": keep-alive" + b"." * 1000 + b"\n",
    "half a line": b'data: {"choices": [{"delta": {"content": "' + b"x" * 4000,
}


def measured(child: "subprocess.Popen[bytes]") -> tuple[Done, int]:
    """A process that has ended, and how many bytes of memory it took at most."""
    # What the kernel counts for a child that has ended begins with what its parent had.
    status, most, ended = Path(f"/proc/{child.pid}/status"), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            if found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text()):
                most[0] = int(found[1]) << 10

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        assert child.stdout
        assert child.stderr
        with child.stdout, child.stderr:
            out, err = child.stdout.read(), child.stderr.read()
    finally:
        ended.set()
        watching.join()
    assert most[0]
    return Done(child.wait(60), out.decode(), err.decode()), most[0]


def stored_bytes(turn: Any) -> int:
    texts = [turn.get(name) or "" for name in ("user_message", "assistant_message", "reasoning")]
    return sum(len(text.encode()) for text in (*texts, *map(str, turn["tool_calls"])))


@pytest.mark.parametrize("kind", mostly(["reasoning", "words", "half a line"], list(TORRENTS)))
def test_an_answer_without_an_end_is_left_and_the_memory_goes_on(tmp_path: Path, kind: str) -> None:
    block = TORRENTS[kind]
    head = HEAD + (event(_NAMED) if kind == "arguments" else b"")
    with Torrent(block * max(1, (64 << 10) // len(block)), head=head) as server:
        ragmem = Ragmem(tmp_path, server.env)
        done, resident = measured(ragmem.start_fresh("ask", "Think", "--yolo"))
        assert server.requests == 1
    assert done.code == 75, done.err
    assert "MB" in done.err
    assert resident < MOST_RESIDENT
    with LLMServer([Answer("Fine.")] * 2) as server:
        ragmem.env.update(server.env)
        child = ragmem.start_fresh("ask", "And now?", "-c")
        done, resident = measured(child)
        assert (done.code, done.out) == (0, "Fine.\n"), done.err
        # So much may be written after the process, by the next one, where the disk is busy.
        assert not done.err or "left by an earlier process" in done.err
        assert resident < MOST_RESIDENT
    (session,) = ragmem.sessions()
    shown = ragmem.run("sessions", "show", session["session_id"], "--format", "json", "--reasoning")
    first, second = shown.json["turns"]
    assert (first["status"], second["status"]) == ("failed", "completed")
    assert stored_bytes(first) <= MOST_STORED
    if kind in ("reasoning", "words"):
        assert stored_bytes(first) > MOST_STORED // 2
        assert "left out" in first["reasoning" if kind == "reasoning" else "assistant_message"]
    assert not list((ragmem.home / "data" / "spool").rglob("*.jsonl"))


def test_a_huge_turn_of_an_older_version_is_cut_when_it_is_read(tmp_path: Path) -> None:
    """The session goes on, in little memory; and what is exported and imported has the bound."""
    with LLMServer([Answer("Fine.")] * 3) as server:
        ragmem = Ragmem(tmp_path, server.env)
        session_id = ragmem.session_of("Hello")
        with closing(sqlite3.connect(ragmem.home / "data" / "memory.db")) as held:
            held.execute("UPDATE turns SET reasoning = ?", (_WORDS * (150_000_000 // len(_WORDS)),))
            held.commit()
        for arguments in (("ask", "And now?", "-c"), ("store", "check"), ("store", "backup")):
            done, resident = measured(ragmem.start_fresh(*arguments))
            assert done.code == 0, done.err
            assert resident < MOST_RESIDENT, arguments
    ragmem.ok("sessions", "export", session_id, "-o", "talk.json")
    other = Ragmem(tmp_path / "other")
    other.ok("sessions", "import", str(ragmem.project / "talk.json"))
    first = other.read("sessions", "show", session_id, "--reasoning")["turns"][0]
    assert MOST_STORED // 4 < stored_bytes(first) <= MOST_STORED
    assert "left out" in first["reasoning"]


def test_a_huge_turn_of_another_agent_is_cut_when_it_is_imported(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path)
    record = {"sessionId": "s", "cwd": str(ragmem.project), "timestamp": "2026-01-02T03:04:05Z"}
    said = {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Hello"}}
    parts = [{"type": "text", "text": _WORDS * (20_000_000 // len(_WORDS))}]
    answer = {"type": "assistant", "uuid": "2", "parentUuid": "1"}
    answer["message"] = {"role": "assistant", "id": "m", "content": parts}
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(record | each) + "\n" for each in (said, answer))
    (folder / "s.jsonl").write_text(lines)
    done, resident = measured(ragmem.start_fresh("import", "claude-code"))
    assert done.code == 0, done.err
    assert resident < MOST_RESIDENT
    (session,) = ragmem.sessions()
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert MOST_STORED // 4 < stored_bytes(turn) <= MOST_STORED
    assert "left out" in turn["assistant_message"]


def test_ctrl_c_is_heard_while_nobody_takes_the_answer(tmp_path: Path) -> None:
    """The pipe is full, and its reader waits: the turn is kept, and the command ends."""
    with LLMServer([Answer("word " * 30_000)]) as server:
        ragmem = Ragmem(tmp_path, server.env)
        with ragmem.start("ask", "Go on") as child:
            full = select.poll()
            full.register(child.stdout, select.POLLIN)
            assert full.poll(60_000)
            child.send_signal(signal.SIGINT)
            assert child.wait(20) == 130
    (session,) = ragmem.sessions()
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert turn["status"] == "completed"
