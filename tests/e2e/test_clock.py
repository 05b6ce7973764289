"""Clocks that jump: what counts is the order in which things were said, and no age is negative."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.memory.memory import Memory
from ragmem.records import Project, SessionQuery, utc_now
from ragmem.store.sqlite import SQLiteStore
from ragmem.text import ago
from tests.memory.working import opening
from tests.store.samples import begun, created, finished

JUMPS = [
    timedelta(days=-1), timedelta(days=3653), timedelta(0), timedelta(days=-366 * 56),
    timedelta(hours=-1), timedelta(days=1),
]  # fmt: skip


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


async def test_turns_are_in_the_order_in_which_they_were_said(
    tmp_path: Path, store: SQLiteStore, clock: Clock
) -> None:
    project = Project(project_id="p", path=str(tmp_path), created_at=clock())
    memory = Memory(opening(store), MemoryConfig(), clock=clock)
    session = memory.new_session(tmp_path, project)
    for number, jump in enumerate(JUMPS):
        clock.offset = jump
        turn = await memory.begin_turn(session, project, f"question {number}", model="m")
        clock.offset = jump - timedelta(days=1)
        await turn.finish("completed", "Fine.")
    assert await store.attach(session.session_id, "another") == [memory.owner_id]
    await memory.aclose()
    stored = await store.turns(session.session_id)
    assert [turn.user_message for turn in stored] == [f"question {n}" for n in range(len(JUMPS))]
    assert [turn.turn_index for turn in stored] == [1, 2, 3, 4, 5, 6]
    assert {turn.status for turn in stored} == {"completed"}
    assert (await store.session(session.session_id)).last_message == "question 5"


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


@pytest.mark.parametrize(
    "jump", [*JUMPS, timedelta(seconds=1), timedelta(seconds=59), timedelta(days=40)]
)
def test_no_age_is_negative(jump: timedelta) -> None:
    now = datetime(2026, 3, 29, 3, 0, tzinfo=UTC)
    text = ago(now + jump, now)
    assert not re.search(r"-\d+ ", text), text
    if jump >= timedelta(0):
        assert text == "just now"
