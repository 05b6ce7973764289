"""`ragmem files PATH`, `--related`, `--since`: what is known of files."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from ragmem.cli.files import Related, related_text
from ragmem.memory.files import CodePast, CodeSession
from ragmem.records import ChangedTogether, Evidence, MemoryRecord, Session
from tests.cli.coding import EVIL, garden, on_a_terminal, without_times
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MORNING = "We decided to let Tank.drain run in the morning only."
CALLS = [
    Call("read_file", {"path": "water.py"}),
    Call("edit_file", {"path": "water.py", "old": "-= litres", "new": "-= 0.9 * litres"}),
    Call("read_file", {"path": "plan.py"}),
    Call("edit_file", {"path": "plan.py", "old": "(4, 7)", "new": "(5, 7)"}),
]


def answer(request: Received) -> Answer:
    if request.path.endswith("/embeddings"):
        return Answer()
    if request.body["model"] == "small":
        return Answer("{}")
    last = request.body["messages"][-1]
    asked = str(last["content"]).rpartition("</memory")[2]
    if last["role"] == "user" and "decided" in asked:
        return Answer(tools=CALLS)
    if last["role"] == "user" and "README" in asked:
        return Answer(tools=[Call("read_file", {"path": "README.md"})])
    return Answer("Done.")


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer([answer], repeat=True) as server:
        yield server


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """A session that changed two files and decided something, and one that read a third."""
    made = Ragmem(tmp_path)
    made.env |= {
        **server.env,
        "RAGMEM_MODEL__SUMMARY": "openai/small",
        "RAGMEM_MEMORY__WORKER": "inline",
    }
    garden(made)
    assert made.run("index").code == 0  # `ask` would not wait for it on a busy machine
    assert made.run("ask", "--yolo", MORNING).code == 0
    assert made.run("ask", "What does the README say?").code == 0
    for session, name in zip(made.sessions(), ("Reading", "Mornings"), strict=True):
        made.run("sessions", "rename", session["session_id"], name)
    return made


def of(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    done = ragmem.ok("files", *arguments, "--format", "json", **options)
    found: list[dict[str, Any]] = done.json
    return found


def test_what_is_known_of_a_file(ragmem: Ragmem) -> None:
    [water] = of(ragmem, "water.py")
    assert set(water) == {"path", "changed_with", "imports", "imported_by", "sessions", "memories"}
    assert (water["path"], water["imports"], water["imported_by"]) == ("water.py", [], ["plan.py"])
    [other] = water["changed_with"]
    assert (other["path"], other["turn_count"], other["session_count"]) == ("plan.py", 1, 1)
    [session] = water["sessions"]
    assert (session["title"], session["turn_count"]) == ("Mornings", 1)
    assert {"edited", "changed", "read"} <= set(session["how"])
    assert [memory["kind"] for memory in water["memories"]] == ["decision"]
    [plan] = of(ragmem, "plan.py", "--related")
    assert (plan["imports"], plan["imported_by"]) == (["water.py"], [])
    [readme] = of(ragmem, "README.md")
    assert ([s["title"] for s in readme["sessions"]], readme["memories"]) == (["Reading"], [])


def test_as_a_person_sees_it() -> None:
    """Wide, and at 40 columns; of many what matters most, and how many more there are."""
    session = Session(
        session_id="01900000-0000-7000-8000-0000000000aa",
        cwd="/home/ana",
        project_id="p",
        title=f"Mornings {EVIL}",
        started_at=NOW,
        updated_at=NOW,
        last_activity_at=NOW,
    )
    spoke = CodeSession(session=session, hows=("edited", "changed"), turn_count=2, last_at=NOW)
    decided = MemoryRecord(
        memory_id="01900000-0000-7000-8000-0000000000bb",
        kind="decision",
        content="Tank.drain runs in the morning only.",
        created_at=NOW,
        updated_at=NOW,
        evidence=(Evidence(session_id=session.session_id, at=NOW),),
    )
    together = ChangedTogether(path="plan.py", turn_count=3, session_count=2, last_at=NOW)
    found = Related(
        path=f"src/{EVIL}.py",
        changed_with=(together,),
        imports=tuple(f"beds/bed_{number}.py" for number in range(7)),
        imported_by=("plan.py",),
        past=CodePast(session_count=8, last_at=NOW, sessions=(spoke,), memories=(decided,)),
    )
    later = NOW + timedelta(days=2)
    assert related_text([found], later, width=100) == snapshot("""\
src/\\e]0;owned\\x07\\e[31m.py
  changes with  plan.py (3 turns, 2 days ago)
  imports       beds/bed_0.py, beds/bed_1.py, beds/bed_2.py, beds/bed_3.py, beds/bed_4.py and 2 more
  imported by   plan.py
  sessions
    000000aa  Mornings \\e]0;owned\\x07\\e[31m · edited · 2 days ago
    and 7 more
  decided there
    000000bb  Tank.drain runs in the morning only. (decision · told by you · 2 days ago)
""")
    narrow = related_text([found], later, width=40)
    assert narrow.split() == related_text([found], later, width=100).split()
    assert max(map(len, narrow.splitlines())) <= 40
    assert related_text([found], later, width=60, brief=True) == snapshot("""\
src/\\e]0;owned\\x07\\e[31m.py
  changes with  plan.py (3 turns, 2 days ago)
  imports       beds/bed_0.py, beds/bed_1.py, beds/bed_2.py,
                beds/bed_3.py, beds/bed_4.py and 2 more
  imported by   plan.py
  touched in 8 sessions, last 2 days ago
  1 decision there; `ragmem files PATH` tells
""")


def test_of_the_session(ragmem: Ragmem) -> None:
    assert [each["path"] for each in of(ragmem, "--related")] == ["README.md"]
    older = ragmem.sessions()[1]["session_id"]
    assert {each["path"] for each in of(ragmem, "--related", "-r", older)} == {
        "water.py",
        "plan.py",
    }


def test_paths_are_those_from_the_folder(ragmem: Ragmem) -> None:
    """As one types them: from a folder inside, absolute, with dots, of a file that is gone."""
    inside = ragmem.project / "beds"
    inside.mkdir()
    (ragmem.project / ".git").mkdir()
    for typed in ("../water.py", str(ragmem.project / "water.py"), "./../beds/../water.py"):
        [found] = of(ragmem, typed, cwd=inside)
        assert found["path"] == "water.py"
        assert found["sessions"]
    (ragmem.project / "water.py").unlink()
    [found] = of(ragmem, "water.py")
    assert [session["title"] for session in found["sessions"]] == ["Mornings"]


def test_of_a_file_that_nothing_is_known_of(ragmem: Ragmem) -> None:
    (ragmem.project / "lone.txt").write_text("\n")
    done = ragmem.run("files", "lone.txt")
    said = "No session has touched lone.txt, and no file that is indexed imports it.\n"
    assert (done.code, done.out, done.err) == (0, "", said)
    done = ragmem.run("files", f"{EVIL}.py")
    assert done.err == (
        "There is no file \\e]0;owned\\x07\\e[31m.py; paths are those from this folder.\n"
    )
    assert of(ragmem, "none.py") == [
        {
            "path": "none.py",
            "changed_with": [],
            "imports": [],
            "imported_by": [],
            "sessions": [],
            "memories": [],
        }
    ]


def test_what_the_agent_has_changed_since(ragmem: Ragmem) -> None:
    """What changed since an age, a date, the end of a session; reads are no changes."""
    newer, older = (session["session_id"] for session in ragmem.sessions())
    for since in ("1h", "7d", "2w", "2026-01-01", "2026-01-01T10:00"):
        found = of(ragmem, "--since", since)
        assert {(f["path"], f["turn_count"], *f["session_ids"]) for f in found} == {
            ("water.py", 1, older),
            ("plan.py", 1, older),
        }
    assert set(found[0]) == {"path", "turn_count", "session_ids", "timestamp"}
    assert of(ragmem, "--since", newer) == []
    assert of(ragmem, "--since", "2999-01-01") == []
    done = ragmem.run("files", "--since", "Mornings")
    assert (done.code, done.out) == (0, "")
    assert done.err == "The agent has changed no file here since then.\n"
    shown = ragmem.run("files", "--since", "1h").out.replace(older[-8:], "SESSION_")
    rows = [row.split() for row in without_times(shown).splitlines()]
    assert rows[0] == ["CHANGED", "TURNS", "SESSION", "PATH"]
    assert sorted(rows[1:]) == [
        ["AGO", "1", "SESSION_", "plan.py"],
        ["AGO", "1", "SESSION_", "water.py"],
    ]


def test_without_the_index_the_memory_answers(ragmem: Ragmem) -> None:
    [water] = of(ragmem, "water.py", env={"RAGMEM_CODE__ENABLED": "false"})
    assert (water["imports"], water["imported_by"]) == ([], [])
    assert [session["title"] for session in water["sessions"]] == ["Mornings"]
    assert [other["path"] for other in water["changed_with"]] == ["plan.py"]


def test_on_a_terminal_of_40_columns(ragmem: Ragmem) -> None:
    for arguments in (("water.py",), ("--related",)):
        raw, rows = on_a_terminal(ragmem, "files", *arguments, columns=40)
        assert rows
        assert b"\x1b]" not in raw
        assert all(len(row) <= 40 for row in rows)
