"""One after the other: whoever compares memories and writes them, over all processes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ragmem.errors import StoreUnavailable
from ragmem.memory.leases import leased
from ragmem.store.base import Store

LEASE = "memories"
_LEASE_S = 10.0
_PATIENCE_S = 3.0
_PAUSE_S = 0.03


class Turnstile:
    """Lets one through at a time."""

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self._own = asyncio.Lock()

    @asynccontextmanager
    async def alone(self, store: Store) -> AsyncIterator[None]:
        """Nobody else compares or writes meanwhile, in this process or in another.

        Who can't have that soon goes on all the same: a duplicate costs less than what is lost,
        and the next that is like both takes the place of both.
        """
        deadline = time.monotonic() + _PATIENCE_S
        async with self._own, AsyncExitStack() as stack:
            while True:
                lease = leased(store, [LEASE], self._owner_id, seconds=_LEASE_S)
                try:
                    mine = await stack.enter_async_context(lease)
                except StoreUnavailable:
                    # What is written while the store is away waits in the spool.
                    break
                if mine or time.monotonic() > deadline:
                    break
                await stack.aclose()
                await asyncio.sleep(_PAUSE_S)
            yield
