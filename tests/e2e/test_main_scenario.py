"""The main job, end to end: real processes, a real server that plays the model, both stores."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import Ragmem, until
from tests.fakes.llm_server import Answer, Call, LLMServer, Received
from tests.fakes.neo4j import store_env


class Terminal(Ragmem):
    """A project in which a person works."""

    def killed_once(self, marker: Path, *arguments: str) -> None:
        """Kill -9 when the command that it runs has made this."""
        process = self.start(*arguments)
        until(marker.exists)
        process.kill()
        process.communicate(timeout=60)


@pytest.fixture(params=["sqlite", "neo4j"])
def terminal(request: pytest.FixtureRequest, server: LLMServer, tmp_path: Path) -> Terminal:
    made = Terminal(tmp_path, server.env | store_env(request, request.param))
    (made.project / "auth.py").write_text(
        "def check_password(user, password):\n    return user.password == password\n"
    )
    (made.project / "views.py").write_text("from auth import check_password\n")
    return made


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


def test_three_turns_a_crash_and_a_day_later(terminal: Terminal, server: LLMServer) -> None:
    """The main scenario."""
    marker = terminal.project / "migrated"
    server.extend(
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
    )
    first = terminal.asked("Find authentication functions")
    assert first["result"] == "check_password in auth.py."
    session = first["session_id"]
    terminal.ok("ask", "-c", "Which one handles password validation?")
    terminal.ok("ask", "-r", session[-8:], "Show me who uses it")

    # The later prompts carried the earlier turns, with what the tools had found.
    assert "Find authentication functions" in text_of(server.requests[2])
    assert "auth.py" in text_of(server.requests[2])
    assert "return user.password == password" in text_of(server.requests[4])

    bypass = ("--permission-mode", "bypassPermissions")
    terminal.killed_once(marker, "ask", "-c", *bypass, "Migrate")

    # A process that died this moment may hold its lease for 30 s on Neo4j: it is waited out
    # by nobody, the question is answered at once either way.
    answer = terminal.ok("ask", "-c", "Did we fix that bug?").out
    assert answer == "Not yet: the command was interrupted.\n"
    request = server.requests[7]
    assert_answers_follow_calls(request.body["messages"])
    assert "It compares plain text: that is the bug." in text_of(request)
    if "RAGMEM_STORE" not in terminal.env:
        # Once its owner is known to be gone: on Neo4j its lease has to end first.
        assert "effects are unknown" in text_of(request)

    assert "authentication functions" in terminal.ok("ask", "-c", "What did I ask first?").out
    assert "Find authentication functions" in text_of(server.requests[8])

    shown = terminal.shown(session)
    assert [turn["turn_index"] for turn in shown["turns"]] == [1, 2, 3, 4, 5, 6]
    assert [turn["status"] for turn in shown["turns"]][:3] == ["completed"] * 3
    crashed = shown["turns"][3]
    assert crashed["user_message"] == "Migrate"
    assert crashed["status"] in ("interrupted", "running")
    assert [call["tool_name"] for call in crashed["tool_calls"]] == ["run_command"]
    assert [call["tool_name"] for call in shown["turns"][2]["tool_calls"]] == [
        "list_directory", "read_file",
    ]  # fmt: skip
    listed = terminal.read("sessions", "list")
    assert [(s["session_id"], s["turn_count"]) for s in listed] == [(session, 6)]
    assert "auth.py" in terminal.ok("files", "-r", session).out
