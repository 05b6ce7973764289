"""What can be kept nowhere, because the spool's own disk is full too, is said to be lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import StoreUnavailable
from ragmem.memory.memory import Memory
from ragmem.records import Project, SessionQuery, ToolCall
from ragmem.store import Store
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.sqlite import SQLiteStore
from tests.store.samples import START, begun, created, finished, whole_turn

QUICK = Patience(stall_s=20, read_s=20, retry_s=0.05, longest_retry_s=0.05)
"""To try again: a busy machine must not make a write wait that could be stored."""


class Away:
    """A store that is away, and its spool."""

    def __init__(self, folder: Path) -> None:
        self.away = True
        self.folder = folder
        folder.mkdir()
        self.store = SpooledStore(self.open, folder / "spool" / "sqlite", patience=QUICK)

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

    def fill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No file of the spool takes anything any more."""

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("ragmem.store.spool.files._write", full)


@pytest.fixture
async def away(tmp_path: Path) -> AsyncIterator[Away]:
    away = Away(tmp_path / "home")
    yield away
    # In each of these something is lost: its end is no success.
    with pytest.raises(StoreUnavailable, match="Not all of this is kept"):
        await away.store.aclose()


async def test_what_can_be_kept_nowhere_is_said_to_be_lost(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a turn, never in silence; what came before stays, and is stored when it can be."""
    store = away.store
    await store.apply([created("s"), *whole_turn("s", "t1")])
    assert [text.split(":")[0] for text in store.take_notices()] == ["Memory is away"]
    with monkeypatch.context() as patched:
        away.fill(patched)
        assert await store.apply([begun("s", "t2")]) == Waiting(kept=False)
        assert [text.replace(str(away.folder), "…") for text in store.take_notices()] == [
            "This turn is not kept: the memory is away, and …/spool/sqlite can't be written: "
            "No space left on device. What came before is still kept."
        ]
        assert await store.apply([finished("s", "t2")]) == Waiting(kept=False)
        assert store.take_notices() == []
        assert await store.apply([begun("s", "t3")]) == Waiting(kept=False)
        assert len(store.take_notices()) == 1
    assert await store.apply(whole_turn("s", "t4")) == Waiting()
    await away.come_back()
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1", "t4"]


async def test_a_folder_that_can_not_be_made(away: Away) -> None:
    (away.folder / "spool").write_text("in the way")
    assert await away.store.apply([created("s")]) == Waiting(kept=False)
    lost, *more = away.store.take_notices()
    assert lost.startswith("This turn is not kept")
    assert [text.split(":")[0] for text in more] == ["Memory is away"]
    (away.folder / "spool").unlink()
    assert await away.store.apply([created("s")]) == Waiting()


async def test_a_turn_that_lost_a_part_is_never_whole(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, though its end would have had room again; the next is recorded.

    And no turn is without its session: one that could not be kept is written with the next turn.
    """

    async def opened() -> Store:
        return away.store

    memory = Memory(opened, MemoryConfig(), clock=lambda: START)
    project = Project(project_id="p", path=str(away.folder), created_at=START)
    session, lost = (memory.new_session(away.folder, project) for _ in range(2))
    turn = await memory.begin_turn(session, project, "First?", model="fake/one")
    call = ToolCall(
        tool_call_id="c", turn_id=turn.turn.turn_id, order=0, tool_name="read_file",
        started_at=START, result="x",
    )  # fmt: skip
    with monkeypatch.context() as patched:
        away.fill(patched)
        await turn.call(call)
        unrecorded = await memory.begin_turn(lost, project, "Not kept?", model="fake/one")
        await unrecorded.finish("completed", "No.")
        assert not unrecorded.recorded
    await turn.finish("completed", "The end.")
    assert not turn.recorded
    memory.finished(session, turn.turn)
    await away.come_back()
    for each in (session, lost):
        after = await memory.begin_turn(each, project, "Second?", model="fake/one")
        await after.finish("completed", "Fine.")
    await memory.aclose()
    stored = [
        [(turn.user_message, turn.status) for turn in await away.store.turns(each.session_id)]
        for each in (session, lost)
    ]
    assert stored == [
        [("First?", "interrupted"), ("Second?", "completed")], [("Second?", "completed")],
    ]  # fmt: skip
