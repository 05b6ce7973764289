"""What can be kept nowhere, because the spool's own disk is full too, is said to be lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import StoreUnavailable
from ragmem.memory.memory import Memory
from ragmem.records import Project, ToolCall
from ragmem.store import Store
from ragmem.store.spool import SpooledStore, Waiting
from tests.store.samples import START, begun, created, finished, whole_turn
from tests.store.test_spool import Home, settled


def fill(patched: pytest.MonkeyPatch) -> None:
    """No file of the spool takes anything any more."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    patched.setattr("ragmem.store.spool.files._write", full)


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
    with pytest.raises(StoreUnavailable, match="Not all of this is kept"):
        await store.aclose()


async def test_what_can_be_kept_nowhere_is_said_to_be_lost(
    home: Home, store: SpooledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a turn, never in silence; what came before stays, and is stored when it can be."""
    await store.apply([created("s"), *whole_turn("s", "t1")])
    assert [text.split(":")[0] for text in store.take_notices()] == ["Memory is away"]
    with monkeypatch.context() as patched:
        fill(patched)
        assert await store.apply([begun("s", "t2")]) == Waiting(kept=False)
        assert [text.replace(str(home.database.parent), "…") for text in store.take_notices()] == [
            "This turn is not kept: the memory is away, and …/spool/sqlite can't be written: "
            "No space left on device. What came before is still kept."
        ]
        assert await store.apply([finished("s", "t2")]) == Waiting(kept=False)
        assert store.take_notices() == []
        assert await store.apply([begun("s", "t3")]) == Waiting(kept=False)
        assert len(store.take_notices()) == 1
    assert await store.apply(whole_turn("s", "t4")) == Waiting()
    await come_back(home, store)
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1", "t4"]


async def test_a_folder_that_can_not_be_made(home: Home, store: SpooledStore) -> None:
    home.spool.parent.write_text("in the way")
    assert await store.apply([created("s")]) == Waiting(kept=False)
    lost, *more = store.take_notices()
    assert lost.startswith("This turn is not kept")
    assert [text.split(":")[0] for text in more] == ["Memory is away"]
    home.spool.parent.unlink()
    assert await store.apply([created("s")]) == Waiting()


async def test_a_turn_that_lost_a_part_is_never_whole(
    home: Home, store: SpooledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, though its end would have had room again; the next is recorded.

    And no turn is without its session: one that could not be kept is written with the next turn.
    """

    async def opened() -> Store:
        return store

    memory = Memory(opened, MemoryConfig(), clock=lambda: START)
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
