"""`ragmem import`: real processes, real files."""

import os
import shutil
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.cli.agents import report_text
from tests.cli.process import Ragmem, finish
from tests.fakes.llm_server import LLMServer
from tests.importers.reading import CLAUDE_CODE, CODEX, EVENTS, SPRING
from tests.importers.test_more_agents import opencode_database, vibe_session


@pytest.fixture
def ragmem(ragmem: Ragmem, tmp_path: Path) -> Ragmem:
    """With sessions of both agents where these keep them."""
    shutil.copytree(CLAUDE_CODE, tmp_path / ".claude" / "projects" / "-home-ana-garden")
    shutil.copytree(CODEX, tmp_path / ".codex" / "sessions" / "2025" / "12" / "28")
    for file in tmp_path.rglob("*.jsonl"):
        os.utime(file, (1_790_000_000, 1_790_000_000))
    return ragmem


def test_sessions_come_are_listed_shown_and_found(ragmem: Ragmem) -> None:
    """And seen to without a chat; by the id that its own agent gave it one is found too, which
    `claude --resume` and `codex resume` print."""
    ragmem.env["RAGMEM_MEMORY__WORKER"] = "inline"
    tried = ragmem.ok("import", "claude-code", "--dry-run").out
    assert tried.endswith("Dry run: nothing was stored.\n")
    assert "3 new sessions" in tried
    assert not list(ragmem.home.rglob("memory.db"))
    done = ragmem.ok("import", "claude-code", env={"COLUMNS": "100"})
    assert done.err.startswith("note: imported sessions are summarized in the background")
    assert _without_ids(done.out) == snapshot("""\
ID        STATE  TURNS  FOLDER            TITLE
  new    +2     /home/ana/garden  Which ferns like shade
  new    +2     /home/ana/garden  Mondays
  new    +2     /home/ana/garden  What is wrong with this bed? [image]
Claude Code: 3 new sessions, 0 continued, 0 unchanged; 6 new turns with 6 tool calls.
Left out:
       6  context that the agent added
       4  the agent's bookkeeping
       2  subagent messages
       2  system notices
       1  unreadable reasoning
       1  file snapshots
       1  agent commands
       1  agent notices in place of an answer
Left out, unknown record types:
       1  garden-gnome\
""")
    assert ragmem.read("stats")["pending"]["vectors"] == 0
    ragmem.ok("import", "codex")
    sessions = ragmem.sessions()
    assert len(sessions) == 6
    assert {session["cwd"] for session in sessions} == {"/home/ana/garden"}
    shown = ragmem.ok("sessions", "show", sessions[-1]["session_id"]).out
    assert "● Read" in shown
    assert "The lady fern does." in shown
    found = ragmem.read("search", "copper ring", "--scope", "all")
    assert any("copper" in hit["text"] for hit in found)
    assert len(ragmem.listed("--all", "--tag", "codex")) == 3
    for agent, foreign in (("claude-code", SPRING.stem), ("codex", _id_of(CODEX))):
        for reference in (foreign, foreign[-8:]):
            assert ragmem.shown(reference)["tags"] == [agent]
    assert "not found" in ragmem.refused("sessions", "show", "11111111-2222-3333-4444-555555555555")


def test_nothing_is_imported_into_a_memory_that_is_turned_off(
    ragmem: Ragmem, tmp_path: Path
) -> None:
    """Claude Code's hook imports each session that ends: it must not do so either."""
    ragmem.ok("import", "codex")
    first = ragmem.sessions()[0]["session_id"]
    file = tmp_path / "one.json"
    ragmem.ok("sessions", "export", first, "-o", str(file))
    ragmem.ok("sessions", "delete", first, "--yes")
    left = ragmem.sessions()
    off = {"RAGMEM_MEMORY__ENABLED": "false"}
    for command in (("import", "claude-code"), ("import", "--yes"), ("sessions", "import", file)):
        told = ragmem.refused(*map(str, command), code=1, env=off)
        assert told.startswith("error: Memory is turned off.\nSet memory.enabled = true")
    assert "3 new sessions" in ragmem.ok("import", "claude-code", "--dry-run", env=off).out
    assert ragmem.sessions() == left


def _id_of(folder: Path) -> str:
    """The id of the newest of Codex: it stands at the end of its file's name."""
    return max(folder.glob("rollout-*.jsonl")).stem[-36:]


def test_the_report_as_json(ragmem: Ragmem) -> None:
    report = ragmem.read("import", "codex")
    assert sorted(report) == snapshot(
        [
            "agent",
            "broken_lines",
            "dry_run",
            "file_count",
            "left_out",
            "older_count",
            "path",
            "sessions",
            "sessions_by_state",
            "skipped",
            "tool_calls_added",
            "turns_added",
            "turns_changed",
            "unknown",
        ]
    )
    assert (report["unknown"], report["dry_run"]) == ({"response_item gnome_call": 1}, False)
    assert " ".join(sorted(report["sessions"][0])) == (
        "cwd file session_id state title tool_calls_added turns_added turns_changed turns_known"
    )


def test_what_files_hold_can_do_nothing_to_the_terminal() -> None:
    """Their names, their titles, their keys."""
    evil = "\x1b]0;owned\x07\u202e"
    session = {"session_id": "s", "state": "new", "turns_added": 1, "turns_changed": 0}
    counts = ("turns_added", "turns_changed", "tool_calls_added", "older_count")
    told = report_text(
        {
            "agent": "codex",
            "sessions": [session | {"cwd": evil, "title": evil}],
            "sessions_by_state": {"new": 1},
            **dict.fromkeys(counts, 1),
            **{key: {evil: 1} for key in ("left_out", "unknown", "broken_lines")},
            "skipped": [{"path": evil, "reason": evil}],
            "dry_run": False,
        }
    )
    assert not {"\x1b", "\x07", "\u202e"} & set(told)
    assert told.count("\\e]0;owned") == 7


def test_another_place_one_folder_one_file(ragmem: Ragmem, tmp_path: Path) -> None:
    """PATH is a folder or a file; --cwd takes the sessions of one folder."""
    other = ragmem.read("import", "claude-code", "--cwd", "/home/ana")
    assert (other["sessions"], other["sessions_by_state"]) == ([], {"other_folder": 3})
    one = ragmem.ok("import", "claude-code", str(SPRING), "--cwd", "/home/ana/garden")
    assert "1 new session" in one.out
    off = {"RAGMEM_MEMORY__SUMMARIES__ENABLED": "false"}
    assert ragmem.ok("import", "claude-code", env=off).err == ""
    shutil.move(tmp_path / ".codex", tmp_path / "elsewhere")
    moved = {"CODEX_HOME": str(tmp_path / "elsewhere")}
    assert "3 new sessions" in ragmem.ok("import", "codex", env=moved).out
    assert ragmem.refused("import", "codex", str(tmp_path / "nowhere")) == (
        f"error: Can't read sessions of Codex at {tmp_path / 'nowhere'}: "
        "no such file or directory.\n"
        "To read them from another place: `ragmem import codex PATH`\n"
    )


def test_an_imported_session_is_resumed(ragmem: Ragmem, server: LLMServer) -> None:
    """The model is told what was said and done there, and what is said now follows it."""
    ragmem.ok("import", "codex")
    imported = next(s for s in ragmem.sessions() if s["last_message"] == "And the fern?")
    ragmem.env |= server.env
    done = ragmem.ok("ask", "-r", imported["session_id"], "Is it well?")
    [request] = server.requests
    assert done.out == "The answer.\n"
    told = str(request.body["messages"])
    assert "Keep the slugs off the hosta." in told
    assert "apply_patch" in told
    resumed = ragmem.shown(imported["session_id"])
    assert [turn["turn_index"] for turn in resumed["turns"]] == [1, 2, 3]


def test_alone_it_tells_what_is_here_and_asks(ragmem: Ragmem, tmp_path: Path) -> None:
    """Of every agent; where nobody can be asked, nothing comes without --yes."""
    opencode_database(tmp_path / ".local" / "share" / "opencode")
    vibe_session(tmp_path / ".vibe" / "logs" / "session")
    asked = ragmem.run("import", env={"COLUMNS": "200"})
    assert (asked.code, asked.out) == (2, "")
    listed = [" ".join(row.split()) for row in asked.err.splitlines()[1:5]]
    for row, begins in zip(
        listed, ("Claude Code 3 ", "Codex 3 ", "opencode 2 ", "mistral-vibe 1 "), strict=True
    ):
        assert row.startswith(begins)
    assert listed[0].endswith("/.claude/projects")
    assert asked.err.endswith(
        "error: Confirmation is needed, but this is not an interactive terminal.\n"
        "Add --yes to confirm.\n"
    )
    assert ragmem.sessions() == []
    child = ragmem.on_terminal("import")
    child.expect("note: imported sessions are summarized [^?]*enabled false`\\.\r\nImport them\\? ")
    child.sendline("n")
    child.expect_exact("error: Nothing was imported.")
    finish(child)
    report = ragmem.read("import", "--yes")
    agents = [each["agent"] for each in report["agents"]]
    assert agents == ["claude-code", "codex", "opencode", "mistral-vibe"]
    assert len(ragmem.sessions()) == 8


def test_where_there_are_none_it_says_where_it_looked(tmp_path: Path) -> None:
    done = Ragmem(tmp_path).ok("import")
    assert done.err.startswith("No sessions of other agents found. Looked in:\n")
    assert f"  {tmp_path}/.gemini/tmp\n" in done.err


def test_a_database_that_can_not_be_read_is_told_of_where_all_agents_are_looked_for(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".local" / "share" / "opencode" / "opencode.db"
    file.parent.mkdir(parents=True)
    file.write_text("no database")
    done = Ragmem(tmp_path).ok("import")
    assert done.err.startswith(
        f"note: opencode: skipped {file}: file is not a database\nNo sessions"
    )


def test_only_what_was_written_to_since(ragmem: Ragmem, tmp_path: Path) -> None:
    """By the times of the files."""
    [file] = (tmp_path / ".codex").rglob(EVENTS.name)
    os.utime(file)
    report = ragmem.read("import", "codex", "--since", "2d")
    assert (report["sessions_by_state"], report["older_count"]) == ({"new": 1}, 2)
    assert "2 sessions older than --since." in ragmem.ok("import", "codex", "--since", "2d").out


def _without_ids(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(
        line[8:] if len(line) > 8 and line[8] == " " and line[:8].isalnum() else line
        for line in lines
    )
