"""What a turn waits for: it is given up soon once the person has interrupted it."""

import asyncio
from typing import Any

import pytest

from ragmem.errors import StoreUnavailable
from ragmem.memory.leases import HeldStore
from ragmem.memory.recording import in_time, settled

NEVER_S = 600.0


async def test_what_an_interrupted_piece_of_work_waits_for_is_given_up() -> None:
    """The work itself goes on to its end, and each thing that it waits for later is short too."""
    gave_up: list[str] = []
    waits = asyncio.Event()

    async def piece() -> None:
        for name in ("first", "second"):
            waits.set()
            with pytest.raises(StoreUnavailable):
                await in_time(asyncio.Event().wait(), beside_s=NEVER_S)
            gave_up.append(name)

    work = asyncio.create_task(settled(piece()))
    await waits.wait()
    await asyncio.sleep(0)
    work.cancel()
    async with asyncio.timeout(NEVER_S / 10):
        assert await work is True
    assert gave_up == ["first", "second"]


async def test_work_that_nobody_interrupts_gets_its_time() -> None:
    answers: list[str] = []

    async def piece() -> None:
        answers.append(await in_time(asyncio.sleep(0.3, "late, and still an answer")))

    assert await settled(piece()) is False
    assert answers == ["late, and still an answer"]


async def test_a_second_interruption_may_come_while_what_is_given_up_still_ends() -> None:
    """As Ctrl-C pressed twice, while the store is slow even to stop."""
    waits, ends, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    gave_up: list[str] = []

    async def slow_to_stop() -> None:
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.set()
            await may_end.wait()

    async def piece() -> None:
        with pytest.raises(StoreUnavailable):
            await in_time(slow_to_stop(), beside_s=NEVER_S)
        gave_up.append("the store")

    work = asyncio.create_task(settled(piece()))
    await waits.wait()
    work.cancel()
    await ends.wait()
    work.cancel()
    await asyncio.sleep(0)
    may_end.set()
    async with asyncio.timeout(NEVER_S / 10):
        assert await work is True
    assert gave_up == ["the store"]


async def test_of_questions_that_overlap_only_the_last_begins_to_close_the_store() -> None:
    """It stays for its time after the last one, however the others ended."""

    async def nothing() -> Any:
        return None

    held = HeldStore(nothing, held_s=NEVER_S, on_close=nothing)
    before = asyncio.all_tasks()
    async with held.used():
        for _ in range(3):
            async with held.used():
                pass
        assert asyncio.all_tasks() == before
    assert len(asyncio.all_tasks() - before) == 1
    await held.aclose()
    assert asyncio.all_tasks() == before
