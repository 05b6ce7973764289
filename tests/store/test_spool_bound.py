"""What a process keeps for a disk that is full too has an end, and the person is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import StoreUnavailable
from ragmem.memory.memory import Memory
from ragmem.records import Project, ToolCall
from ragmem.store.base import SessionQuery, Store
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.spool.files import MOST_IN_MEMORY
from ragmem.store.sqlite import SQLiteStore
from tests.store.samples import START, begun, created, finished

QUICK = Patience(stall_s=20, read_s=20, retry_s=0.05, longest_retry_s=0.05)
"""To try again: a busy machine must not make a write wait that could be stored."""
ROOM = 20_000


class Full:
    """A store that is away, beside a spool whose folder can't be made."""

    def __init__(self, folder: Path) -> None:
        self.away = True
        self.folder = folder
        self.in_the_way = folder / "spool"
        folder.mkdir()
        self.in_the_way.write_text("in the way")
        self.store = SpooledStore(
            self.open, self.in_the_way / "sqlite", patience=QUICK, most_in_memory=ROOM
        )

    async def open(self) -> Store:
        """The store, unless it is away."""
        if self.away:
            raise StoreUnavailable("The file system is full.")
        return await SQLiteStore.open(self.folder / "memory.db", locks_dir=self.folder / "locks")

    async def come_back(self) -> None:
        """Let it open, and wait until what waited is there."""
        self.away = False
        async with asyncio.timeout(60):
            while True:
                with suppress(StoreUnavailable):
                    await self.store.sessions(SessionQuery())
                    return
                await asyncio.sleep(0.02)


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[Full]:
    full = Full(tmp_path / "home")
    yield full
    # In each of these something is lost: its end is no success.
    with pytest.raises(StoreUnavailable, match="Not all of this is kept"):
        await full.store.aclose()


def test_the_bound_is_that_of_a_process() -> None:
    assert MOST_IN_MEMORY == 64 << 20


async def test_what_has_no_room_is_said_to_be_lost(full: Full) -> None:
    """Never in silence; what came before stays, and is stored when that is possible."""
    store = full.store
    await store.apply([created("s"), begun("s", "t1"), finished("s", "t1")])
    assert len(store.take_notices()) == 2
    large = begun("s", "t2", "x" * ROOM)
    assert await store.apply([large]) == Waiting(durable=False, kept=False)
    assert [text.replace(str(full.folder), "…") for text in store.take_notices()] == [
        "This turn is not kept: the memory is away, …/spool/sqlite can't be written, and the "
        "20,000 bytes that this process keeps for them are full. What came before is still kept."
    ]
    end = finished("s", "t2", "y" * ROOM)
    assert await store.apply([end]) == Waiting(durable=False, kept=False)
    assert store.take_notices() == []
    assert await store.apply([large]) == Waiting(durable=False, kept=False)
    assert len(store.take_notices()) == 1
    await full.come_back()
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1"]
    assert await store.apply([begun("s", "t3")]) != Waiting(durable=False, kept=False)


async def test_a_turn_that_lost_a_part_is_never_whole(full: Full) -> None:
    """Interrupted, though its end would have had room again; the next is recorded."""

    async def opened() -> Store:
        return full.store

    memory = Memory(opened, MemoryConfig(), clock=lambda: START)
    project = Project(project_id="p", path=str(full.folder), created_at=START)
    session = memory.new_session(full.folder, project)
    turn = await memory.begin_turn(session, project, "First?", model="fake/one")
    call = ToolCall(
        tool_call_id="c", turn_id=turn.turn.turn_id, order=0, tool_name="read_file",
        started_at=START, result="x" * ROOM,
    )  # fmt: skip
    await turn.call(call)
    await turn.finish("completed", "The end.")
    assert not turn.recorded
    memory.finished(session, turn.turn)
    full.in_the_way.unlink()
    await full.come_back()
    after = await memory.begin_turn(session, project, "Second?", model="fake/one")
    await after.finish("completed", "Fine.")
    await memory.aclose()
    stored = await full.store.turns(session.session_id)
    assert [(t.user_message, t.status) for t in stored] == [
        ("First?", "interrupted"), ("Second?", "completed"),
    ]  # fmt: skip


async def test_a_session_that_had_no_room_is_written_with_the_next_turn(full: Full) -> None:
    """No turn without its session."""

    async def opened() -> Store:
        return full.store

    memory = Memory(opened, MemoryConfig(), clock=lambda: START)
    project = Project(project_id="p", path=str(full.folder), created_at=START)
    other, session = (memory.new_session(full.folder, project) for _ in range(2))
    await (await memory.begin_turn(other, project, "x" * (ROOM - 2500), model="m")).finish(
        "completed", "Kept."
    )
    lost = await memory.begin_turn(session, project, "y" * 5000, model="m")
    await lost.finish("completed", "Lost.")
    await full.come_back()
    turn = await memory.begin_turn(session, project, "Now?", model="m")
    await turn.finish("completed", "Kept.")
    await memory.aclose()
    assert [t.user_message for t in await full.store.turns(session.session_id)] == ["Now?"]
    assert [t.status for t in await full.store.turns(other.session_id)] == ["completed"]
