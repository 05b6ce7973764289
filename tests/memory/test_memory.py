"""Memory, the interface of everything above, on each real store."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ragmem.errors import SessionNotFound, StoreError, StoreUnavailable
from ragmem.ids import new_id
from ragmem.memory.leases import Presence
from ragmem.memory.memory import Memory
from ragmem.memory.projects import read_remote
from ragmem.records import Project, Session, SessionQuery, ToolCall, Turn, utc_now
from ragmem.store import Store
from tests.store.conftest import OpenStore

from . import builders
from .working import a_memory, context


@pytest.fixture
async def memory(store: Store) -> AsyncIterator[Memory]:
    async with a_memory(store) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


async def begin(memory: Memory, folder: Path) -> Session:
    """A new session of the folder; nothing is written yet."""
    return memory.new_session(folder, (await memory.project_of(folder)).project)


def its_project(session: Session) -> Project:
    """The project that the session was made for."""
    path = Path(session.project_path or session.cwd)
    return Project(
        project_id=session.project_id,
        path=str(path),
        remote=read_remote(path),
        created_at=session.started_at,
    )


def a_call(name: str, arguments: object, result: object = None, **more: object) -> ToolCall:
    told = json.dumps(result or {"text": "ok"})
    fields = {"tool_call_id": new_id(), "started_at": utc_now(), "result": told} | more
    return builders.a_call(tool_name=name, arguments=json.dumps(arguments), **fields)


async def a_turn(
    memory: Memory, session: Session, prompt: str, *calls: ToolCall, answer: str = "An answer."
) -> Turn:
    """A whole turn, recorded as the agent records it."""
    recording = await memory.begin_turn(session, its_project(session), prompt, model="openai/x")
    for order, call in enumerate(calls):
        fields = {f: getattr(call, f) for f in call.__struct_fields__}
        of_turn = {"turn_id": recording.turn.turn_id, "order": order}
        await recording.call(ToolCall(**(fields | of_turn)))
    await recording.finish("completed", answer)
    memory.finished(session, recording.turn)
    assert recording.recorded
    return recording.turn


async def test_a_session_is_loaded_as_it_went(memory: Memory, folder: Path) -> None:
    """Id, CWD, project; turns in order with their tool results."""
    session = await begin(memory, folder)
    told = {"text": "No such file."}
    failed = a_call("read_file", {"path": "no"}, told, success=False, error="!")
    await a_turn(memory, session, "one", a_call("read_file", {"path": "a"}, {"text": "x"}), failed)
    await a_turn(memory, session, "two", answer="The second.")
    loaded = await memory.load_session(session.session_id)
    assert loaded.session.session_id == session.session_id
    assert (loaded.session.cwd, loaded.session.project_path) == (str(folder), str(folder))
    first, second = loaded.turns
    assert (first.turn_index, second.turn_index) == (1, 2)
    assert (second.user_message, second.assistant_message) == ("two", "The second.")
    assert [(c.tool_name, c.success, c.error) for c in first.tool_calls] == [
        ("read_file", True, None),
        ("read_file", False, "!"),
    ]
    assert json.loads(first.tool_calls[1].result) == told


async def test_an_unknown_session_is_not_found(memory: Memory) -> None:
    """By id or by name, the error names it and says what to do."""
    with pytest.raises(SessionNotFound, match="nowhere") as caught:
        await memory.load_session("nowhere")
    assert "ragmem sessions list" in caught.value.hint
    with pytest.raises(SessionNotFound, match="nowhere"):
        await memory.find_session("nowhere")


async def test_sessions_of_a_folder_are_kept_side_by_side(memory: Memory, tmp_path: Path) -> None:
    """Two of one folder, newest activity first; not those of another."""
    folder, other = tmp_path / "real", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(folder)
    older, newer = await begin(memory, folder), await begin(memory, tmp_path / "link")
    elsewhere = await begin(memory, other)
    for session in (newer, elsewhere, older):
        await a_turn(memory, session, f"asked in {session.session_id}")
    await a_turn(memory, newer, "asked last")
    found = await memory.sessions(SessionQuery(cwd=str(folder)))
    assert [s.session_id for s in found] == [newer.session_id, older.session_id]
    assert [(s.turn_count, s.last_message) for s in found] == [
        (2, "asked last"),
        (1, f"asked in {older.session_id}"),
    ]


async def test_an_empty_session_is_not_written(memory: Memory, folder: Path) -> None:
    """A session exists from its first prompt on, and not before."""
    session = await begin(memory, folder)
    assert await memory.sessions(SessionQuery()) == []
    await a_turn(memory, session, "Hello")
    assert [s.session_id for s in await memory.sessions(SessionQuery())] == [session.session_id]


async def test_a_turn_lasts_from_its_first_moment(open_store: OpenStore, folder: Path) -> None:
    """Running is seen by others, who are told; both append and nothing mixes."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(a_memory(await open_store()))
        second = await stack.enter_async_context(a_memory(await open_store()))
        session = await begin(first, folder)
        project = its_project(session)
        mine = await first.begin_turn(session, project, "from the first", model="m")
        (running,) = (await second.load_session(session.session_id)).turns
        assert (running.status, running.user_message) == ("running", "from the first")

        resumed = await second.find_session(session.session_id)
        assert await second.attach(resumed) == 1
        theirs = await second.begin_turn(resumed, project, "from the second", model="m")
        assert (mine.turn.turn_index, theirs.turn.turn_index) == (1, 2)
        await theirs.finish("completed", "to the second")
        await mine.call(
            a_call("read_file", {"path": "a"}, tool_call_id="c", turn_id=mine.turn.turn_id)
        )
        await mine.finish("completed", "to the first")
        turns = (await second.load_session(session.session_id)).turns
        assert [(t.user_message, t.assistant_message, len(t.tool_calls)) for t in turns] == [
            ("from the first", "to the first", 1),
            ("from the second", "to the second", 0),
        ]


async def test_two_processes_in_a_new_folder_share_its_project(
    open_store: OpenStore, folder: Path
) -> None:
    """Both look at the folder before either has written; its memory is not split."""
    async with a_memory(await open_store()) as one, a_memory(await open_store()) as other:
        sessions = [await begin(one, folder), await begin(other, folder)]
        for memory, session in zip((one, other), sessions, strict=True):
            await memory.begin_turn(session, its_project(session), "hello", model="m")
        (project,) = await (await open_store()).projects()
        stored = [await one.find_session(session.session_id) for session in sessions]
        assert {session.project_id for session in stored} == {project.project_id}


async def test_the_turn_in_flight_is_no_history(memory: Memory, folder: Path) -> None:
    """The question is said once; turns without tools are turns."""
    session = await begin(memory, folder)
    await a_turn(memory, session, "The earlier question", answer="The earlier answer")
    project = its_project(session)
    recording = await memory.begin_turn(session, project, "The question now", model="m")
    built = await context(memory, session, "The question now", turn=recording.turn)
    assert not built.fallback
    text = built.text()
    assert text.count("The question now") == 1
    assert text.count("The earlier question") == text.count("The earlier answer") == 1
    await recording.finish("completed", "done")


async def test_another_process_builds_the_same_context(open_store: OpenStore, folder: Path) -> None:
    """What was recorded is all that a request is made of, to the byte."""
    async with a_memory(await open_store()) as first:
        session = await begin(first, folder)
        read = a_call("read_file", {"path": "a.py"}, {"text": "print(1)", "path": "a.py"})
        await a_turn(first, session, "What is in a.py?", read)
        here = await context(first, session, "And now?")
    async with a_memory(await open_store()) as second:
        there = await context(second, await second.find_session(session.session_id), "And now?")
    assert here.messages[:-1] == there.messages[:-1]
    assert here.sizes == there.sizes
    assert "print(1)" in there.text()


async def test_files_of_a_session(memory: Memory, folder: Path) -> None:
    """Of every tool, beyond three turns."""
    session = await begin(memory, folder)
    await a_turn(
        memory,
        session,
        "many tools",
        a_call("read_file", {"path": "./src/../read.py"}),
        a_call("edit_file", {"path": str(folder / "changed.py")}),
        a_call("grep_files", {"pattern": "x"}, {"text": "", "files": [{"path": "found.py"}]}),
        a_call("glob_files", {"pattern": "*", "path": "src"}),
        a_call("read_file", {"path": "missing.py"}, success=False, error="no such file"),
        a_call("run_command", {"command": "cat x.py"}),
    )
    for number in range(5):
        await a_turn(memory, session, "one more", a_call("read_file", {"path": f"{number}.py"}))
    await a_turn(
        memory,
        session,
        "again",
        a_call("read_file", {"path": "changed.py"}),
        a_call("read_file", {"path": "read.py"}),
    )
    files = await memory.recently_accessed_files(session.session_id)
    assert [(f.path, f.access_type, f.turn_index) for f in files] == [
        ("read.py", "read", 7),
        *((f"{number}.py", "read", number + 2) for number in (4, 3, 2, 1, 0)),
        ("src", "list", 1),
        ("found.py", "search", 1),
        ("changed.py", "write", 1),
    ]
    built = await context(memory, session, "?")
    text = built.messages[-1].text
    assert "**Modified:**\n- changed.py (via edit_file, Turn 1)" in text
    assert "- read.py (via read_file, Turn 7)" in text
    assert built.sizes["Recently Accessed Files"] <= 5_000


async def test_files_looked_back_for(memory: Memory, folder: Path) -> None:
    """Turns of 50,000 characters, the newest; what lies before is forgotten here."""
    session = await begin(memory, folder)
    await a_turn(memory, session, "x", a_call("read_file", {"path": "long-ago.py"}))
    await a_turn(memory, session, "x" * 30_000, a_call("read_file", {"path": "reached.py"}))
    await a_turn(memory, session, "x" * 15_000)
    await a_turn(memory, session, "x" * 4_960, a_call("read_file", {"path": "new.py"}))
    files = await memory.recently_accessed_files(session.session_id)
    assert [f.path for f in files] == ["new.py", "reached.py"]


async def test_a_project_is_known_again(memory: Memory, folder: Path) -> None:
    """From below, and after it has moved, if its remote says so; it is then told."""
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text('[remote "origin"]\n\turl = https://me:pw@h/x.git\n')
    session = await begin(memory, folder)
    await a_turn(memory, session, "Hello")
    below = folder / "src"
    below.mkdir()
    assert (await memory.project_of(below)).project.project_id == session.project_id
    moved = folder.with_name("moved")
    os.rename(folder, moved)
    located = await memory.project_of(moved)
    assert (located.project.project_id, located.moved_from) == (session.project_id, str(folder))
    assert "pw" not in (located.project.remote or "")
    await a_turn(memory, await begin(memory, moved), "Here now")
    again = await memory.project_of(moved / "src")
    assert (again.project.project_id, again.moved_from) == (session.project_id, None)


async def test_a_store_that_was_away_at_first_is_looked_at_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmem.memory.leases._HEARTBEAT_S", 0.01)
    looked = asyncio.Event()
    away = [True]

    async def open_store() -> Store:
        if away:
            away.clear()
            raise StoreUnavailable("It is away.")
        looked.set()
        return store

    presence = Presence(open_store, "me")
    with pytest.raises(StoreError):
        await presence.attach("s")
    async with asyncio.timeout(60):
        await looked.wait()
    await presence.aclose()
