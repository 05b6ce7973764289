"""Trying again, only while nothing of the answer has reached anybody."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable

from ragmem.errors import ProviderUnavailable, StreamCut
from ragmem.llm.base import Chunk
from ragmem.llm.faults import Passing

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


def wait_s(attempt: int, asked_s: float | None) -> float:
    """Seconds until the next try: what the server asked for, else doubling, jittered."""
    if asked_s is not None:
        return min(asked_s, LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), 8.0) * random.uniform(0.75, 1.25)


async def retried(
    attempt: Callable[[], AsyncGenerator[Chunk, None]], retries: int
) -> AsyncGenerator[Chunk, None]:
    """The chunks of the first attempt that yields any.

    `Passing` errors are retried up to `retries` times, unless the server asks for
    more patience than a minute. An error after the first chunk is a StreamCut.
    Errors are raised outside of `except`, so that no SDK's exception, which may
    hold a key, hangs on as their context.
    """
    for number in range(1, retries + 2):
        begun = False
        chunks = attempt()
        passing: Passing | None = None
        try:
            async for chunk in chunks:
                begun = True
                yield chunk
            return
        except Passing as error:
            passing = error.with_traceback(None)
        finally:
            await chunks.aclose()
        if begun:
            raise StreamCut(f"The answer broke off. {passing}", hint="Ask again.")
        asked = passing.retry_after_s
        if number > retries or (asked or 0) > LONGEST_WAIT_S:
            tried = f" (tried {number} times)" if number > 1 else ""
            raise ProviderUnavailable(f"{passing}{tried}", hint=passing.hint, retry_after_s=asked)
        await asyncio.sleep(wait_s(number, asked))
