"""`ragmem sessions`, `files` and `context`: what was recorded, found again."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ragmem]:
    """One turn in which a file was read: the tests read it."""
    answers = [
        Answer("I read it.", tools=[Call("read_file", {"path": "hello.py"})]),
        Answer("It prints \x1b[31mhello."),
    ]
    with LLMServer(answers) as server:
        ragmem = Ragmem(tmp_path_factory.mktemp("reading"), server.env)
        (ragmem.project / "hello.py").write_text("print('hello')\n")
        ragmem.ok("ask", "What does \x1b[31mhello.py\ndo?")
        yield ragmem


def test_list_goes_by_folder_project_or_all(ragmem: Ragmem, tmp_path: Path) -> None:
    """By the normalized CWD; --project and --all widen."""
    (ragmem.project / ".git").mkdir()
    below, elsewhere, link = ragmem.project / "src", tmp_path / "elsewhere", tmp_path / "link"
    below.mkdir()
    elsewhere.mkdir()
    link.symlink_to(ragmem.project)
    here = [ragmem.session_of("One"), ragmem.session_of("Two")][::-1]
    deep = ragmem.session_of("Three", cwd=below)
    other = ragmem.session_of("Four", cwd=elsewhere)
    for words, cwd, expected in (
        ("", None, here),
        ("", below, [deep]),
        ("", link, here),
        ("--project", None, [deep, *here]),
        ("--project", below, [deep, *here]),
        ("--all", None, [other, deep, *here]),
        ("--all --limit 2", None, [other, deep]),
        (f"--cwd {elsewhere}", None, [other]),
        (f"--cwd {link}/src/..//", None, here),
        ("--status archived", None, []),
        ("--tag none", None, []),
    ):
        assert ragmem.listed(*words.split(), cwd=cwd) == expected, words
    for most, told in ((1, "Showing the newest 1; use --limit for more.\n"), (2, "")):
        assert ragmem.ok("sessions", "list", "--limit", str(most)).err == told


def test_a_session_as_json_and_in_a_table(reading: Ragmem) -> None:
    (session,) = reading.sessions()
    assert session.pop("cwd") == os.path.realpath(reading.project)
    tail = session.pop("session_id")[-8:]
    for name in ("project_id", "started_at", "last_activity_at"):
        assert session.pop(name)
    assert session == {
        "title": "New Conversation",
        "status": "active",
        "tags": ["ask"],
        "turn_count": 1,
        "last_message": "What does \x1b[31mhello.py\ndo?",
    }
    header, row = reading.ok("sessions", "list").out.splitlines()
    assert header == "ID        LAST ACTIVITY  TURNS  TITLE"
    assert re.fullmatch(
        rf"{tail}  (just now|\d minutes? ago) +1      What does \\e\[31mhello.py do\? #ask", row
    )


def test_that_there_is_nothing_is_said_on_stderr(ragmem: Ragmem) -> None:
    done = ragmem.ok("sessions", "list")
    assert done.out == ""
    assert done.err.startswith("No sessions in ")
    tagged = ragmem.ok("sessions", "list", "--tag", "nosuch").err
    assert " with the tag nosuch.\nLeave out --tag and --status to list all.\n" in tagged
    found = ragmem.ok("search", "ferns")
    assert (found.out, found.err) == ("", "No results.\n")
    insights = ragmem.ok("sessions", "insights")
    assert (insights.out, insights.err) == ("", "No sessions to review yet.\n")


def test_show_as_json_has_turns_and_tool_calls(reading: Ragmem) -> None:
    """The history with its tool calls and results."""
    (session,) = reading.sessions()
    shown = reading.shown(session["session_id"][-8:])
    assert shown["session_id"] == session["session_id"]
    (turn,) = shown["turns"]
    for name in ("uuid", "timestamp"):
        assert turn.pop(name)
    (call,) = turn["tool_calls"]
    assert call.pop("duration_ms") >= 0
    assert "print('hello')" in call.pop("result")["text"]
    read = {"tool_name": "read_file", "arguments": {"path": "hello.py"}, "success": True}
    assert turn == {
        "turn_index": 1,
        "user_message": "What does \x1b[31mhello.py\ndo?",
        "assistant_message": "It prints \x1b[31mhello.",
        "status": "completed",
        "tool_calls": [read | {"preamble": "I read it."}],
    }


def test_files_are_those_that_tools_touched(reading: Ragmem) -> None:
    """One entry a path."""
    (file,) = reading.read("files")
    assert file.pop("timestamp")
    assert file == {
        "path": "hello.py", "access_type": "read", "tool_name": "read_file", "turn_index": 1
    }  # fmt: skip
    header, row = reading.ok("files").out.splitlines()
    assert header.split() == ["ACCESS", "TURN", "WHEN", "PATH"]
    assert row.split()[:2] == ["read", "1"]
    assert row.endswith(" hello.py")


def test_context_shows_what_would_be_sent_and_sends_nothing(reading: Ragmem) -> None:
    """The same messages that the next request would carry."""
    document = reading.read("context", "And now?", "-c")
    assert " ".join(document) == (
        "session_id max_chars tokens fallback without_code sections messages"
    )
    assert [section["name"] for section in document["sections"]] == [
        "System", "Recent Conversation", "Recently Accessed Files", "Prompt"
    ]  # fmt: skip
    _, asked, calls, result, answer, prompt = document["messages"]
    roles = [message["role"] for message in (asked, calls, result, answer, prompt)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert calls["content"][1]["type"] == "tool_use"
    assert result["content"][0]["type"] == "tool_result"
    assert prompt["content"][0]["text"].endswith("And now?")
    text = reading.ok("context", "And now?", "-c")
    assert "print('hello')" in text.out
    assert text.err.startswith("SECTION")
    assert "\x1b" not in text.out
    (session,) = reading.sessions()
    assert session["turn_count"] == 1
