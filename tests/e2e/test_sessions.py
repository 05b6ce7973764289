"""`ragmem sessions`, `files` and `context`: what was recorded, found again."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Ragmem]:
    """One turn in which a file was read."""
    answers = [
        Answer("I read it.", tools=[Call("read_file", {"path": "hello.py"})]),
        Answer("It prints \x1b[31mhello."),
    ]
    with LLMServer(answers) as server:
        ragmem = Ragmem(tmp_path, server.env)
        (ragmem.project / "hello.py").write_text("print('hello')\n")
        assert ragmem.run("ask", "What does hello.py do?").code == 0
        yield ragmem


def test_list_goes_by_folder_project_or_all(ragmem: Ragmem, tmp_path: Path) -> None:
    """By the normalized CWD; --project and --all widen."""
    (ragmem.project / ".git").mkdir()
    below = ragmem.project / "src"
    elsewhere = tmp_path / "elsewhere"
    below.mkdir()
    elsewhere.mkdir()
    here = [ragmem.session_of("One"), ragmem.session_of("Two")]
    deep = ragmem.session_of("Three", cwd=below)
    other = ragmem.session_of("Four", cwd=elsewhere)

    assert ragmem.listed() == here[::-1]
    assert ragmem.listed(cwd=below) == [deep]
    assert ragmem.listed("--project") == [deep, *here[::-1]]
    assert ragmem.listed("--project", cwd=below) == [deep, *here[::-1]]
    assert ragmem.listed("--all") == [other, deep, *here[::-1]]
    assert ragmem.listed("--all", "--limit", "2") == [other, deep]
    assert ragmem.listed("--cwd", str(elsewhere)) == [other]
    assert ragmem.listed("--status", "archived") == []
    assert ragmem.listed("--tag", "none") == []

    link = tmp_path / "link"
    link.symlink_to(ragmem.project)
    assert ragmem.listed(cwd=link) == here[::-1]
    assert ragmem.listed("--cwd", f"{link}/src/..//") == here[::-1]


def test_a_session_as_json(ragmem: Ragmem) -> None:
    session_id = ragmem.session_of("What is this?")
    (session,) = ragmem.sessions()
    assert session.pop("session_id") == session_id
    assert session.pop("cwd") == os.path.realpath(ragmem.project)
    for name in ("project_id", "started_at", "last_activity_at"):
        assert session.pop(name)
    assert session == snapshot(
        {
            "title": "New Conversation",
            "status": "active",
            "tags": ["ask"],
            "turn_count": 1,
            "last_message": "What is this?",
        }
    )


def test_list_as_a_table(ragmem: Ragmem) -> None:
    session_id = ragmem.session_of("What is \x1b[31mthis?\nAnd that?")
    done = ragmem.run("sessions", "list")
    assert done.out == (
        "ID        LAST ACTIVITY  TURNS  TITLE\n"
        f"{session_id[-8:]}  just now       1      What is \\e[31mthis? And that? #ask\n"
    )


def test_an_empty_list_is_said_on_stderr(ragmem: Ragmem) -> None:
    done = ragmem.run("sessions", "list")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("No sessions of ")
    tagged = ragmem.run("sessions", "list", "--tag", "nosuch").err
    assert " tagged nosuch.\nWithout --tag and --status all are listed.\n" in tagged
    assert ragmem.run("sessions", "list", "--format", "json").json == []


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
    result = call.pop("result")
    assert "print('hello')" in result["text"]
    assert turn == snapshot(
        {
            "turn_index": 1,
            "user_message": "What does hello.py do?",
            "assistant_message": "It prints \x1b[31mhello.",
            "status": "completed",
            "tool_calls": [
                {
                    "tool_name": "read_file",
                    "arguments": {"path": "hello.py"},
                    "success": True,
                    "preamble": "I read it.",
                }
            ],
        }
    )


def test_show_as_text(reading: Ragmem) -> None:
    (session,) = reading.sessions()
    done = reading.run("sessions", "show", session["session_id"])
    head, _, body = done.out.partition("\n\n")
    assert head.splitlines()[0] == "What does hello.py do? #ask"
    assert session["session_id"] in head
    assert body == snapshot("""\
── 1
› What does hello.py do?

I read it.
● read_file hello.py

It prints \\e[31mhello.
""")


def test_rename_gives_a_name_that_finds_it(ragmem: Ragmem) -> None:
    """A title that the person gives."""
    session_id = ragmem.session_of("What is this?")
    done = ragmem.run("sessions", "rename", session_id[-8:], "The  login bug")
    assert done.out == f"{session_id[-8:]}  The login bug\n"
    assert ragmem.shown("the login bug")["session_id"] == session_id
    assert ragmem.run("sessions", "rename", session_id, "  ").code == 2


def test_files_are_those_that_tools_touched(reading: Ragmem) -> None:
    """One entry a path."""
    (file,) = reading.run("files", "--format", "json").json
    assert file.pop("timestamp")
    assert file == snapshot(
        {"path": "hello.py", "access_type": "read", "tool_name": "read_file", "turn_index": 1}
    )
    assert reading.run("files").out == snapshot("""\
ACCESS  TURN  WHEN      PATH
read    1     just now  hello.py
""")


def test_context_shows_what_would_be_sent_and_sends_nothing(reading: Ragmem) -> None:
    """The same messages that the next request would carry."""
    done = reading.ok("context", "And now?", "-c", "--format", "json")
    document: Any = done.json
    assert [section["name"] for section in document["sections"]] == snapshot(
        ["System", "Recent Conversation", "Recently Accessed Files", "Prompt"]
    )
    assert [message["role"] for message in document["messages"]] == snapshot(
        ["system", "user", "assistant", "tool", "assistant", "user"]
    )
    assert document["messages"][2]["content"][1]["type"] == "tool_use"
    assert document["messages"][3]["content"][0]["type"] == "tool_result"
    assert document["messages"][-1]["content"][0]["text"].endswith("And now?")
    assert set(document) == {
        "session_id",
        "max_chars",
        "tokens",
        "fallback",
        "without_code",
        "sections",
        "messages",
    }
    text = reading.run("context", "And now?", "-c")
    assert "print('hello')" in text.out
    assert text.err.startswith("SECTION")
    assert "\x1b" not in text.out
    (session,) = reading.sessions()
    assert session["turn_count"] == 1
