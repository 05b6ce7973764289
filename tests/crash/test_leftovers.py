"""What a dead process had to leave in the spool, where the store is slow to open or to take it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from ragmem.errors import StoreUnavailable
from ragmem.failpoints import POINTS, arm
from ragmem.memory.recording import kept
from ragmem.records import Applied, SessionQuery, Write
from ragmem.store import Store
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.spool.files import count_waiting
from ragmem.store.sqlite import SQLiteStore
from tests.store.samples import created, whole_turn
from tests.store.test_spool import CALM, Home

_SLOW_S = 0.5
_PATIENCE = Patience(read_s=0.1, left_s=0.1)


async def _left(folder: Path) -> Home:
    """The home of a process that found the store away, and ended."""
    home = Home(folder)
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    await store.apply([created("left")])
    await store.aclose()
    home.error = None
    return home


async def test_a_store_that_opens_slowly_is_asked_after_what_was_left(tmp_path: Path) -> None:
    """`-c` must not take an older session for the last one, nor say that there is none."""
    home = await _left(tmp_path)

    async def slow() -> Store:
        await asyncio.sleep(_SLOW_S)
        # It is the opening that takes longer than there is patience; what follows need not.
        store._patience = Patience()
        return await SQLiteStore.open(home.database, locks_dir=home.locks)

    store = SpooledStore(slow, home.spool, patience=_PATIENCE)
    found = await store.sessions(SessionQuery())
    await store.aclose()
    assert [session.session_id for session in found] == ["left"]


class _Slow(SQLiteStore):
    async def apply(self, writes: Sequence[Write]) -> Applied:
        await asyncio.sleep(_SLOW_S)
        return await super().apply(writes)


async def test_what_was_left_is_waited_for_or_said_to_be_missing(tmp_path: Path) -> None:
    """A list without it would be a lie; the next question is answered whole."""
    home = await _left(tmp_path)

    async def slow() -> Store:
        return await _Slow.open(home.database, locks_dir=home.locks)

    store = SpooledStore(slow, home.spool, patience=_PATIENCE)
    with pytest.raises(StoreUnavailable, match="left by an earlier process") as caught:
        await store.sessions(SessionQuery())
    assert caught.value.hint
    async with asyncio.timeout(60):
        while True:
            try:
                found = await store.sessions(SessionQuery())
                break
            except StoreUnavailable:
                await asyncio.sleep(0.05)
    await store.aclose()
    assert [session.session_id for session in found] == ["left"]


class _Brief(SQLiteStore):
    async def apply(self, writes: Sequence[Write]) -> Applied:
        if await self.sessions(SessionQuery()):
            raise StoreUnavailable("It is away again.")
        return await super().apply(writes)


async def test_what_was_stored_of_what_was_left_is_not_stored_again(tmp_path: Path) -> None:
    """Else processes shorter than a slow store takes for all of it would never be done."""
    home = Home(tmp_path)
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    await store.apply([created("s"), *(w for n in range(50) for w in whole_turn("s", f"t{n}"))])
    await store.aclose()
    assert count_waiting(home.spool) == 101

    async def brief() -> Store:
        return await _Brief.open(home.database, locks_dir=home.locks)

    store = SpooledStore(brief, home.spool, patience=CALM)
    with pytest.raises(StoreUnavailable, match="away again"):
        await store.turns("s")
    await store.aclose()
    assert count_waiting(home.spool) == 101 - 64
    home.error = None
    store = home.open()
    assert [turn.turn_id for turn in await store.turns("s")] == [f"t{n}" for n in range(50)]
    await store.aclose()


async def _found_in_the_end(store: SpooledStore) -> set[str]:
    """A file of another process that can't be opened is looked at again with a heartbeat."""
    found: set[str] = set()
    deadline = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < deadline:
        with suppress(StoreUnavailable):
            found = {session.session_id for session in await store.sessions(SessionQuery())}
            await store.heartbeat("nobody")
        await asyncio.sleep(0.05)
    return found


@pytest.mark.parametrize("point", [p for p in POINTS if p.startswith("spool.")])
async def test_one_failure_of_the_disk_is_got_over(tmp_path: Path, point: str) -> None:
    """In the same process; what could be kept is stored, and memory answers again."""
    home = await _left(tmp_path)
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    arm(f"{point}:eio@1")
    try:
        writes = [created("s"), *whole_turn("s", "1")]
        is_lost = not kept(await store.apply(writes))
        if is_lost:
            assert "This turn was not stored" in store.take_notices()[0]
            assert await store.apply(writes) == Waiting()
        home.error = None
        assert await _found_in_the_end(store) == {"left", "s"}
        await store.apply(whole_turn("s", "2"))
        assert [turn.turn_id for turn in await store.turns("s")] == ["1", "2"]
        with pytest.raises(StoreUnavailable, match="Not all") if is_lost else nullcontext():
            await store.aclose()
    finally:
        arm("")
    assert count_waiting(home.spool) == 0
