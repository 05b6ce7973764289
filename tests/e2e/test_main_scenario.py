"""The main job, end to end: real processes, a real server that plays the model, both stores."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.llm_server import Answer, Call, LLMServer, Received
from tests.fakes.neo4j import in_thread, open_empty_neo4j_store

ROOT = Path(__file__).parents[2]


class Terminal:
    """Runs ragmem as a person's shell would, in a project folder with a home of its own."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.environ = environ
        folder.mkdir()
        (folder / "auth.py").write_text(
            "def check_password(user, password):\n    return user.password == password\n"
        )
        (folder / "views.py").write_text("from auth import check_password\n")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "ragmem", *arguments]

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(params=["sqlite", "neo4j"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Terminal:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "nobody"),
        "PYTHONPATH": str(ROOT),
        "RAGMEM_HOME": str(tmp_path / "home"),
        "RAGMEM_STORE": request.param,
    }
    if request.param == "neo4j":
        server = request.getfixturevalue("neo4j_server")
        in_thread(_empty(server))
        environ |= {
            "NEO4J_URI": server.url,
            "NEO4J_USERNAME": server.username,
            "NEO4J_PASSWORD": server.password,
        }
    return Terminal(tmp_path / "project", environ)


async def _empty(server: Any) -> None:
    store = await open_empty_neo4j_store(server)
    await store.aclose()


def text_of(request: Received) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def assert_answers_follow_calls(messages: Sequence[dict[str, Any]]) -> None:
    """What makes a provider refuse a request for ever, when it is not so."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls") or []]
    assert not waiting


def test_three_turns_a_crash_and_a_day_later(terminal: Terminal, tmp_path: Path) -> None:
    """The main scenario."""
    marker = terminal.folder / "migrated"
    script = [
        Answer(tools=[Call("grep_files", {"pattern": "def .*password"})]),
        Answer("check_password in auth.py."),
        Answer(tools=[Call("read_file", {"path": "auth.py"})]),
        Answer("It compares plain text: that is the bug."),
        Answer(
            tools=[Call("list_directory", {"path": "."}), Call("read_file", {"path": "views.py"})]
        ),
        Answer("views.py calls it."),
        Answer(tools=[Call("run_command", {"command": f"touch {marker}; sleep 30"})]),
        Answer("Not yet: the command was interrupted."),
        Answer("From the beginning of this conversation: authentication functions."),
    ]
    with LLMServer(script) as server:
        terminal.environ |= server.env
        first = json.loads(
            terminal.run("ask", "--output-format", "json", "Find authentication functions")
        )
        assert first["result"] == "check_password in auth.py."
        session = first["session_id"]
        terminal.run("ask", "-c", "Which one handles password validation?")
        terminal.run("ask", "-r", session[-8:], "Show me who uses it")

        # The later prompts carried the earlier turns, with what the tools had found.
        assert "Find authentication functions" in text_of(server.requests[2])
        assert "auth.py" in text_of(server.requests[2])
        assert "return user.password == password" in text_of(server.requests[4])

        process = terminal.start("ask", "-c", "--permission-mode", "bypassPermissions", "Migrate")
        deadline = time.monotonic() + 30
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)

        # A process that died this moment may hold its lease for 30 s on Neo4j: it is waited out
        # by nobody, the question is answered at once either way.
        answer = terminal.run("ask", "-c", "Did we fix that bug?")
        assert answer.strip() == "Not yet: the command was interrupted."
        request = server.requests[7]
        assert_answers_follow_calls(request.body["messages"])
        assert "It compares plain text: that is the bug." in text_of(request)

        last = terminal.run("ask", "-c", "What did I ask first?")
        assert "authentication functions" in last
        assert "Find authentication functions" in text_of(server.requests[8])

    shown = json.loads(terminal.run("sessions", "show", session, "--format", "json"))
    assert [turn["turn_index"] for turn in shown["turns"]] == [1, 2, 3, 4, 5, 6]
    assert [turn["status"] for turn in shown["turns"]][:3] == ["completed"] * 3
    crashed = shown["turns"][3]
    assert crashed["user_message"] == "Migrate"
    assert crashed["status"] in ("interrupted", "running")
    assert [call["tool_name"] for call in crashed["tool_calls"]] == ["run_command"]
    assert [call["tool_name"] for call in shown["turns"][2]["tool_calls"]] == [
        "list_directory", "read_file",
    ]  # fmt: skip
    listed = json.loads(terminal.run("sessions", "list", "--format", "json"))
    assert [(s["session_id"], s["turn_count"]) for s in listed] == [(session, 6)]
    assert "auth.py" in terminal.run("files", "-r", session)


def test_crashed_turn_is_told_as_interrupted(terminal: Terminal) -> None:
    """Once its owner is known to be gone, its effects are unknown."""
    if terminal.environ["RAGMEM_STORE"] == "neo4j":
        # Leases end after 30 s on the server's clock; the store's own tests cover that.
        return
    marker = terminal.folder / "made"
    with LLMServer(
        [
            Answer(tools=[Call("run_command", {"command": f"touch {marker}; sleep 30"})]),
            Answer("It may have happened."),
        ]
    ) as server:
        terminal.environ |= server.env
        process = terminal.start("ask", "--yolo", "Make it")
        deadline = time.monotonic() + 30
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=30)
        terminal.run("ask", "-c", "Was it made?")
        request = server.requests[1]
        assert "effects are unknown" in text_of(request)
        assert_answers_follow_calls(request.body["messages"])


def test_edit_needs_a_read_also_after_a_resume(terminal: Terminal) -> None:
    """What was read in one process may be edited in the next, while it is unchanged."""
    edit = {"path": "auth.py", "old": "==", "new": "is"}
    with LLMServer(
        [
            Answer(tools=[Call("edit_file", edit)]),
            Answer("It was refused."),
            Answer(tools=[Call("read_file", {"path": "auth.py"})]),
            Answer("Read."),
            Answer(tools=[Call("edit_file", edit)]),
            Answer("Edited."),
        ]
    ) as server:
        terminal.environ |= server.env
        terminal.run("ask", "--permission-mode", "acceptEdits", "Edit it")
        assert "==" in (terminal.folder / "auth.py").read_text()
        terminal.run("ask", "-c", "Read it")
        terminal.run("ask", "-c", "--permission-mode", "acceptEdits", "Now edit it")
        assert "user.password is password" in (terminal.folder / "auth.py").read_text()
    assert "write" in terminal.run("files")


def test_projects_and_folders(terminal: Terminal, tmp_path: Path) -> None:
    """Two sessions of a folder, a link to it, another folder."""
    with LLMServer([Answer("one"), Answer("two"), Answer("three")]) as server:
        terminal.environ |= server.env
        terminal.run("ask", "first")
        terminal.run("ask", "second")
        (tmp_path / "link").symlink_to(terminal.folder)
        home, terminal.folder = terminal.folder, tmp_path / "link"
        listed = json.loads(terminal.run("sessions", "list", "--format", "json"))
        assert [s["last_message"] for s in listed] == ["second", "first"]
        terminal.folder = tmp_path / "other"
        terminal.folder.mkdir()
        assert json.loads(terminal.run("sessions", "list", "--format", "json")) == []
        assert len(json.loads(terminal.run("sessions", "list", "--all", "--format", "json"))) == 2
        terminal.folder = home / "sub"
        terminal.folder.mkdir()
        (home / ".git").mkdir()
        assert json.loads(terminal.run("sessions", "list", "--format", "json")) == []
        inside = json.loads(terminal.run("sessions", "list", "--project", "--format", "json"))
        assert {s["cwd"] for s in inside} == {str(home)}
