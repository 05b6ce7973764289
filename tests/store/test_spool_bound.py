"""What can be kept nowhere, because the spool's own disk is full too, is said to be lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import StoreUnavailable
from ragmem.memory.facts import Draft
from ragmem.memory.memory import Memory
from ragmem.memory.recording import kept
from ragmem.records import MemoryQuery, Project, ToolCall
from ragmem.store import Store
from ragmem.store.spool import SpooledStore, Waiting
from ragmem.store.sqlite import SQLiteStore
from tests.store.samples import START, begun, created, finished, whole_turn
from tests.store.test_spool import Home, settled


def fill(patched: pytest.MonkeyPatch) -> None:
    """No file of the spool takes anything any more."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    patched.setattr("ragmem.store.spool.files._write", full)


async def room_for(store: SpooledStore, pages: int) -> None:
    """The database may grow by so many pages, and no further: then its disk is full."""
    inner = await store.inner()
    assert isinstance(inner, SQLiteStore)
    held = await inner._writer.run(lambda db: db.pragma("page_count"))
    await inner._writer.run(lambda db: db.pragma("max_page_count", held + pages))


async def come_back(home: Home, store: SpooledStore) -> None:
    """Let it open, and wait until what waited is there."""
    home.error = None
    await settled(store, home.spool)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A store that is away, and its spool."""
    home = Home(tmp_path / "home")
    home.database.parent.mkdir()
    home.error = StoreUnavailable("The file system is full.")
    return home


@pytest.fixture
async def store(home: Home) -> AsyncIterator[SpooledStore]:
    store = home.open()
    yield store
    # In each of these something is lost: its end is no success.
    with pytest.raises(StoreUnavailable, match="Not all of this was stored"):
        await store.aclose()


@pytest.fixture
async def memory(store: SpooledStore) -> AsyncIterator[Memory]:
    """A memory that is kept in it."""

    async def opened() -> Store:
        return store

    memory = Memory(opened, MemoryConfig(), clock=lambda: START)
    yield memory
    await memory.aclose()


async def test_what_can_be_kept_nowhere_is_said_to_be_lost(
    home: Home, store: SpooledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a turn, never in silence; what came before stays, and is stored when it can be."""
    await store.apply([created("s"), *whole_turn("s", "t1")])
    assert [text.split(":")[0] for text in store.take_notices()] == ["Memory is unavailable"]
    with monkeypatch.context() as patched:
        fill(patched)
        assert not kept(await store.apply([begun("s", "t2")]))
        assert [text.replace(str(home.database.parent), "…") for text in store.take_notices()] == [
            "This turn was not stored: the memory is unavailable, and …/spool/sqlite can't be "
            "written: "
            "No space left on device. Everything before it is still kept."
        ]
        assert not kept(await store.apply([finished("s", "t2")]))
        assert store.take_notices() == []
        assert not kept(await store.apply([begun("s", "t3")]))
        assert len(store.take_notices()) == 1
        # A session is written with its first turn.
        for write in (created("r"), begun("r", "t5")):
            assert not kept(await store.apply([write]))
        assert len(store.take_notices()) == 1
    assert await store.apply(whole_turn("s", "t4")) == Waiting()
    await come_back(home, store)
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1", "t4"]


async def test_a_folder_that_can_not_be_made(home: Home, store: SpooledStore) -> None:
    home.spool.parent.write_text("in the way")
    assert not kept(await store.apply([created("s")]))
    lost, *more = store.take_notices()
    assert lost.startswith("This turn was not stored")
    assert [text.split(":")[0] for text in more] == ["Memory is unavailable"]
    home.spool.parent.unlink()
    assert await store.apply([created("s")]) == Waiting()


async def test_a_turn_that_lost_a_part_is_never_whole(
    home: Home, store: SpooledStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, though its end would have had room again; the next is recorded.

    And no turn is without its session: one that could not be kept is written with the next turn.
    """
    folder = home.database.parent
    project = Project(project_id="p", path=str(folder), created_at=START)
    session, lost = (memory.new_session(folder, project) for _ in range(2))
    turn = await memory.begin_turn(session, project, "First?", model="fake/one")
    call = ToolCall(
        tool_call_id="c", turn_id=turn.turn.turn_id, order=0, tool_name="read_file",
        started_at=START, result="x",
    )  # fmt: skip
    with monkeypatch.context() as patched:
        fill(patched)
        await turn.call(call)
        unrecorded = await memory.begin_turn(lost, project, "Not kept?", model="fake/one")
        await unrecorded.finish("completed", "No.")
        assert not unrecorded.recorded
    await turn.finish("completed", "The end.")
    assert not turn.recorded
    memory.finished(session, turn.turn)
    await come_back(home, store)
    for each in (session, lost):
        after = await memory.begin_turn(each, project, "Second?", model="fake/one")
        await after.finish("completed", "Fine.")
    await memory.aclose()
    stored = [
        [(turn.user_message, turn.status) for turn in await store.turns(each.session_id)]
        for each in (session, lost)
    ]
    assert stored == [
        [("First?", "interrupted"), ("Second?", "completed")], [("Second?", "completed")],
    ]  # fmt: skip


async def test_what_is_no_turn_is_not_called_one(
    home: Home, store: SpooledStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is lost after it is told of all the same."""
    one, other = (
        Project(project_id=name, path=f"/garden/{name}", created_at=START)
        for name in ("one", "other")
    )
    with monkeypatch.context() as patched:
        fill(patched)
        with pytest.raises(StoreUnavailable, match="This was not stored"):
            await memory.join(one, other, chosen=True)
        assert [text.split(":")[0] for text in store.take_notices()] == [
            "This was not stored", "Memory is unavailable",
        ]  # fmt: skip
        assert not kept(await store.apply([created("s"), begun("s", "t1")]))
        assert [text.split(":")[0] for text in store.take_notices()] == ["This turn was not stored"]


async def test_a_full_disk_that_can_be_read_is_not_called_back_before_it_takes_something(
    home: Home, store: SpooledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.error = None
    await store.apply([created("s")])
    await room_for(store, 0)
    long = "x" * 500_000
    with monkeypatch.context() as patched:
        fill(patched)
        for turn_id in ("t1", "t2"):
            assert not kept(await store.apply(whole_turn("s", turn_id, user=long)))
            told = [text.split(":")[0] for text in store.take_notices()]
            assert (
                told
                == ["This turn was not stored", "Memory is unavailable"][
                    : 2 if turn_id == "t1" else 1
                ]
            )
            # Longer than it waits before it looks again.
            await asyncio.sleep(0.2)
            assert await store.turns("s") == []
            assert store.take_notices() == []
    await room_for(store, 1_000)
    applied = await store.apply(whole_turn("s", "t3", user=long))
    assert applied.turn_indexes == {"t3": 1}
    assert store.take_notices() == ["Memory is back."]
    assert [turn.turn_id for turn in await store.turns("s")] == ["t3"]


async def test_what_is_told_and_can_be_kept_nowhere_is_not_said_to_be_remembered(
    home: Home, store: SpooledStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory.facts is not None
    with monkeypatch.context() as patched:
        fill(patched)
        with pytest.raises(StoreUnavailable, match="not stored"):
            await memory.facts.remember(Draft(content="The deploy is on Thursdays."), "p")
    await come_back(home, store)
    assert await store.memories(MemoryQuery(project_ids=("p",))) == []


async def test_a_name_that_can_be_kept_nowhere_is_not_said_to_be_given(
    home: Home, store: SpooledStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a fork that could not be kept is written with its first turn, as any session is."""
    home.error = None
    project = Project(project_id="p", path=str(home.database.parent), created_at=START)
    session = memory.new_session(home.database.parent, project)
    first = await memory.begin_turn(session, project, "First?", model="fake/one")
    await first.finish("completed", "Yes.")
    await room_for(store, 0)
    with monkeypatch.context() as patched:
        fill(patched)
        # What fills the last page is none of this.
        with pytest.raises(StoreUnavailable, match="not stored"):
            await memory.rename(session.session_id, "x" * 500_000)
        assert (await store.session(session.session_id)).title == session.title
        begun = await memory.load_session(session.session_id)
        fork = await memory.fork(begun.session, title="y" * 500_000)
    await room_for(store, 1_000)
    second = await memory.begin_turn(fork, project, "Second?", model="fake/one")
    await second.finish("completed", "Fine.")
    assert second.recorded
    await settled(store, home.spool)
    assert [turn.user_message for turn in await store.turns(fork.session_id)] == [
        "First?", "Second?",
    ]  # fmt: skip
