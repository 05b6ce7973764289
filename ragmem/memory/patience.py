"""How long a turn waits for the store; then it goes on with what this process remembers."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ragmem.errors import StoreUnavailable

T = TypeVar("T")

_PATIENCE_S = 2.0


async def in_time(work: Awaitable[T], *, beside_s: float = 0.0) -> T:
    """What the store answers to a turn that waits for it; StoreUnavailable when that takes long.

    `beside_s` is what the work may spend on something else.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S + beside_s):
            return await work
    except TimeoutError:
        raise StoreUnavailable(
            f"The memory did not answer within {_PATIENCE_S:g} s.", hint="Try again."
        ) from None
