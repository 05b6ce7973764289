"""Clocks that jump: what counts is the order in which things were said."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ragmem.records import SessionQuery, utc_now
from ragmem.store.sqlite import SQLiteStore
from tests.store.samples import begun, created, finished


class Clock:
    def __init__(self) -> None:
        self.offset = timedelta(0)

    def __call__(self) -> datetime:
        return utc_now() + self.offset


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SQLiteStore]:
    opened = await SQLiteStore.open(tmp_path / "m.db", locks_dir=tmp_path / "locks", clock=clock)
    yield opened
    await opened.aclose()


async def test_a_clock_that_was_ahead_does_not_stay_in_front(
    store: SQLiteStore, clock: Clock
) -> None:
    """`-c` and the list take what was said last, not what was said in 2036."""

    async def say(session_id: str, turn_id: str) -> None:
        now = clock()
        await store.apply(
            [
                created(session_id, started_at=now, updated_at=now, last_activity_at=now),
                begun(session_id, turn_id, started_at=now),
                finished(session_id, turn_id, finished_at=now),
            ]
        )

    async def order() -> list[str]:
        listed = [s.session_id for s in await store.sessions(SessionQuery())]
        for limit in range(1, len(listed)):
            first = await store.sessions(SessionQuery(limit=limit))
            assert [s.session_id for s in first] == listed[:limit]
        return listed

    await say("before", "t1")
    clock.offset = timedelta(days=3653)
    await say("ahead", "t2")
    assert await order() == ["ahead", "before"]
    clock.offset = timedelta(minutes=1)
    await say("after", "t3")
    assert await order() == ["after", "before", "ahead"]
    clock.offset = timedelta(minutes=2)
    await say("ahead", "t4")
    assert await order() == ["ahead", "after", "before"]
    # A machine whose battery is empty: all that is known is ahead of it.
    clock.offset = timedelta(days=-366 * 56)
    await say("in 1970", "t5")
    assert await order() == ["in 1970", "ahead", "after", "before"]
    await say("before", "t6")
    clock.offset += timedelta(seconds=1)
    await say("before", "t7")
    assert (await order())[:2] == ["before", "in 1970"]
