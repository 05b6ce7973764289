"""How long a turn waits for the store; then it goes on with what this process remembers."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ragmem.errors import StoreUnavailable

T = TypeVar("T")

_PATIENCE_S = 2.0


async def in_time(work: Awaitable[T]) -> T:
    """What the store answers to a turn that waits for it; StoreUnavailable when that takes long."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await work
    except TimeoutError:
        raise StoreUnavailable(
            f"The memory did not answer within {_PATIENCE_S:g} s.", hint="Try again."
        ) from None
