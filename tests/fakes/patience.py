"""How long is waited where waiting is not what is tested."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest

from ragmem import failpoints
from ragmem.memory import recording
from ragmem.memory.summaries import summarizer
from ragmem.tools import shell

PAUSES = summarizer.PAUSES
"""Between answers that can't be used, as they are where nothing is tested."""


def be_patient() -> None:
    """A busy machine is no store that is away; where little patience is tested, it is set there."""
    recording._PATIENCE_S = shell._PATIENCE_S = 60.0
    # Nobody waits between answers of a model that can't be used.
    summarizer.PAUSES = (0, 0, 0)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until it holds; what it returns may have to be awaited."""
    async with asyncio.timeout(60):
        while True:
            found = condition()
            if (await found) if isawaitable(found) else found:
                return
            await asyncio.sleep(0.02)


@contextmanager
def held_at(point: str) -> Iterator[threading.Event]:
    """Hold each thread that comes by this failpoint until it is told to go on, or this ends."""
    goes_on = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "time", SimpleNamespace(sleep=goes_on.wait))
        failpoints.arm(f"{point}:sleep=60")
        try:
            yield goes_on
        finally:
            failpoints.arm("")
            goes_on.set()
