"""Outages and secrets as a person meets them: real processes, a real store that is not there."""

import json
import os
import signal
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragmem.store.neo4j import Connection
from ragmem.store.spool import count_waiting
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.fakes.neo4j import in_thread, open_empty_neo4j_store

CANARY = "canary-Zx9-1234567890"
TOKEN = "ghp" + "_" + "Zx9" * 12


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer([Answer("The answer.")], repeat=True) as running:
        yield running


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    return Ragmem(tmp_path, {**server.env, "RAGMEM_API_KEY": CANARY})


@contextmanager
def locked(ragmem: Ragmem) -> Iterator[None]:
    """Another program keeps the database to itself."""
    database = ragmem.home / "data" / "memory.db"
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def spool(ragmem: Ragmem, kind: str = "sqlite") -> Path:
    return ragmem.home / "data" / "spool" / kind


def test_an_answer_during_an_outage_is_remembered(ragmem: Ragmem) -> None:
    """A96, X26, P1: answered at once, kept on the disk, there when the lock is gone."""
    first = ragmem.run("ask", "First?", "--output-format", "json").json["session_id"]
    with locked(ragmem):
        # The lock is kept until the answer is there: nothing waits for it.
        done = ragmem.run("ask", "During the outage?", "--output-format", "json")
        assert (done.code, done.json["result"]) == (0, "The answer.")
        assert count_waiting(spool(ragmem)) >= 3
        (file,) = spool(ragmem).iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (session,) = [s for s in ragmem.sessions() if s["session_id"] != first]
    assert session["session_id"] == done.json["session_id"]
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert (turn["turn_index"], turn["status"]) == (1, "completed")
    assert list(spool(ragmem).iterdir()) == []


def test_the_person_is_told_once(tmp_path: Path, neo4j_server: Connection) -> None:
    """Reliability 21: a graph that is down at the start costs one line, and no answer."""
    in_thread(_emptied(neo4j_server))
    with LLMServer([Answer("The answer.")], repeat=True) as server:
        ragmem = Ragmem(
            tmp_path,
            {
                **server.env,
                "RAGMEM_API_KEY": CANARY,
                "RAGMEM_STORE": "neo4j",
                "NEO4J_PASSWORD": neo4j_server.password,
            },
        )
        down = {"NEO4J_URI": "bolt://127.0.0.1:9"}
        done = ragmem.run("ask", "What is this?", env=down)
        assert (done.code, done.out) == (0, "The answer.\n")
        assert done.err.count("Memory is away") == 1
        told = ragmem.run("store", "info", env=down)
        assert told.code == 75
        assert "writes wait on this disk" in told.err
        up = {"NEO4J_URI": neo4j_server.url}
        done = ragmem.run("ask", "And this?", "-c", env=up)
        assert done.code == 0, done.err
        assert done.err.count("an earlier process had to leave are stored") == 1
        listed = ragmem.run("sessions", "list", "--all", "--format", "json", env=up).json
        assert [session["turn_count"] for session in listed] == [2]
        assert "waiting" not in ragmem.run("store", "info", env=up).out
        checked = ragmem.run("doctor", env=up).out
        assert "wait in" not in checked


async def _emptied(server: Connection) -> None:
    await (await open_empty_neo4j_store(server)).aclose()


def test_info_and_doctor_count_what_waits(ragmem: Ragmem) -> None:
    """A newer version's writes wait for that version; both commands say how many there are."""
    assert ragmem.run("ask", "First?").code == 0
    spool(ragmem).mkdir(mode=0o700, parents=True, exist_ok=True)
    (spool(ragmem) / "0190-left.jsonl").write_text('{"write":"hologram"}\n' * 3)
    assert ragmem.run("store", "info", "--format", "json").json["counts"]["waiting_writes"] == 3
    assert "waiting writes 3" in ragmem.run("store", "info").out
    assert "3 writes wait in" in ragmem.run("doctor").out


def test_a_process_killed_in_an_outage_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """P1, P2, P3: kill -9 in the middle of a turn; the next process finds it, interrupted."""
    with LLMServer(
        [Answer("Fine."), Answer("I run it.", tools=[Call("run_command", {"command": "sleep 60"})])]
    ) as server:
        ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_API_KEY": CANARY})
        assert ragmem.run("ask", "First?").code == 0
        with locked(ragmem):
            process = ragmem.start("ask", "Run it", "--allow", "run_command")
            deadline = time.monotonic() + 60
            while b"sleep 60" not in _spooled(ragmem) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert b"sleep 60" in _spooled(ragmem)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        (session,) = [s for s in ragmem.sessions() if s["last_message"] == "Run it"]
        (turn,) = ragmem.shown(session["session_id"])["turns"]
        assert turn["status"] in ("running", "interrupted")
        (call,) = turn["tool_calls"]
        assert (call["tool_name"], call["success"]) == ("run_command", False)


def _spooled(ragmem: Ragmem) -> bytes:
    folder = spool(ragmem)
    return b"".join(file.read_bytes() for file in folder.iterdir()) if folder.exists() else b""


# --- secrets ---------------------------------------------------------------------------


def files_with(folder: Path, *secrets: str) -> list[str]:
    """Files that hold one of these, by their bytes."""
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and any(secret.encode() in file.read_bytes() for secret in secrets)
    ]


def test_no_secret_is_in_any_file(tmp_path: Path) -> None:
    """P10, §1.6: in prompts, answers, reasoning, arguments, results, errors, titles, outputs."""
    secrets = f"{CANARY} {TOKEN}"
    printing = f"for i in $(seq 40000); do echo '{secrets}'; done"
    answers: list[Any] = [
        Answer(
            f"I say {secrets}",
            reasoning=f"I think {secrets}",
            tools=[Call("read_file", {"path": ".env"}), Call("grep_files", {"pattern": TOKEN})],
        ),
        Answer("", tools=[Call("read_file", {"path": f"{TOKEN}.txt"})]),
        Answer("", tools=[Call("run_command", {"command": printing})]),
        Answer("", tools=[Call("create_file", {"path": "new.txt", "content": secrets})]),
        Answer("", tools=[Call("edit_file", {"path": "new.txt", "old": CANARY, "new": "x"})]),
        Answer(f"Done with {secrets}"),
    ]
    with LLMServer(answers) as server:
        ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_API_KEY": CANARY})
        (ragmem.project / ".env").write_text(f"API_KEY={CANARY}\nTOKEN={TOKEN}\n")
        done = ragmem.run("ask", f"My key is {secrets}. @.env", "--yolo", "--output-format", "json")
        assert done.code == 0, done.err
        # The model sees what the turn is about; what lasts does not hold it.
        assert f"TOKEN={TOKEN}" in json.dumps([r.body["messages"] for r in server.requests])
        session_id = done.json["session_id"]
        assert CANARY in done.json["result"]
        assert ragmem.run("sessions", "rename", session_id, f"About {secrets}").code == 0
        (turn,) = ragmem.shown(session_id)["turns"]
        assert turn["user_message"] == (
            "My key is [redacted: RAGMEM_API_KEY] [redacted: GitHub token]. @.env"
        )
        assert files_with(ragmem.home, CANARY, TOKEN) == []
        (output,) = (ragmem.home / "data" / "outputs").iterdir()
        line = "[redacted: RAGMEM_API_KEY] [redacted: GitHub token]\n"
        assert output.read_text() == line * 40000
        assert (ragmem.project / "new.txt").read_text() == f"x {TOKEN}"


@pytest.mark.parametrize("mode", ["401", "429", "500", "html", "badjson", "cut_rst"])
def test_no_secret_is_kept_of_an_error(tmp_path: Path, mode: Any) -> None:
    """P10: providers repeat the key that they refuse."""
    answer = Answer(f"I say {CANARY}", mode=mode, message=f"Incorrect key {CANARY}")
    with LLMServer([answer], repeat=True) as server:
        ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_API_KEY": CANARY})
        assert ragmem.run("ask", f"With {CANARY}").code != 0
        assert files_with(ragmem.home, CANARY) == []


def test_no_secret_is_in_the_spool(ragmem: Ragmem) -> None:
    """P10: what waits is as clean as what is stored."""
    assert ragmem.run("ask", "First?").code == 0
    with locked(ragmem):
        assert ragmem.run("ask", f"With {CANARY} and {TOKEN}").code == 0
        assert "[redacted: GitHub token]" in _spooled(ragmem).decode()
        assert files_with(ragmem.home, CANARY, TOKEN) == []
    assert len(ragmem.sessions()) == 2
    assert files_with(ragmem.home, CANARY, TOKEN) == []
    assert os.listdir(spool(ragmem)) == []
