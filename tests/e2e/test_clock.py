"""Clocks that jump: what counts is the order in which things were said, and no age is negative."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.memory.memory import Memory
from ragmem.records import Project, utc_now
from ragmem.store import Store
from ragmem.store.sqlite import SQLiteStore
from ragmem.text import ago

JUMPS = [
    timedelta(days=-1), timedelta(days=3653), timedelta(0), timedelta(days=-366 * 56),
    timedelta(hours=-1), timedelta(days=1),
]  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.offset = timedelta(0)

    def __call__(self) -> datetime:
        return utc_now() + self.offset


async def test_turns_are_in_the_order_in_which_they_were_said(tmp_path: Path) -> None:
    clock = Clock()
    store = await SQLiteStore.open(tmp_path / "m.db", locks_dir=tmp_path / "locks", clock=clock)

    async def the_store() -> Store:
        return store

    project = Project(project_id="p", path=str(tmp_path), created_at=clock())
    memory = Memory(the_store, MemoryConfig(), clock=clock)
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
    await store.aclose()


@pytest.mark.parametrize(
    "jump", [*JUMPS, timedelta(seconds=1), timedelta(seconds=59), timedelta(days=40)]
)
def test_no_age_is_negative(jump: timedelta) -> None:
    now = datetime(2026, 3, 29, 3, 0, tzinfo=UTC)
    text = ago(now + jump, now)
    assert not re.search(r"-\d+ ", text), text
    if jump >= timedelta(0):
        assert text == "just now"
