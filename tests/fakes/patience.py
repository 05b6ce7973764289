"""How long is waited where waiting is not what is tested."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

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
