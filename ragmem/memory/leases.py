"""What a process holds of a store while it works: leases on keys, and the open store itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from ragmem.errors import StoreError
from ragmem.records import Leases
from ragmem.store import Store


@asynccontextmanager
async def leased(
    store: Leases, keys: Sequence[str], owner_id: str, *, seconds: float
) -> AsyncIterator[frozenset[str]]:
    """Lease those keys that no other process holds, and release them when the block ends.

    Yields the keys it got. They are renewed every third of `seconds`; failed renewals are ignored.
    """
    renewal: asyncio.Task[None] | None = None
    try:
        mine = await store.claim(keys, owner_id, seconds=seconds)
        if mine:
            renewal = asyncio.create_task(_renew(store, mine, owner_id, seconds))
        yield frozenset(mine)
    finally:
        if renewal:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
        # If this fails, the leases expire by themselves.
        with suppress(StoreError):
            await store.release(keys, owner_id)


async def _renew(store: Leases, keys: Sequence[str], owner_id: str, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds / 3)
        with suppress(StoreError):
            await store.claim(keys, owner_id, seconds=seconds)


class HeldStore:
    """A store that is opened on demand and closed after `held_s` seconds without use."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        *,
        held_s: float,
        on_close: Callable[[], Awaitable[None]],
    ) -> None:
        """Open nothing yet; `on_close` is called, and waited for, before the store closes."""
        self._open_store = open_store
        self._held_s = held_s
        self._on_close = on_close
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._users = 0
        self._closing: asyncio.Task[None] | None = None

    async def opened(self) -> Store:
        """Return the store, opening it if needed; call it only within `used`. Raises StoreError."""
        async with self._opening:
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Keep the store from closing for the length of the block."""
        async with self._opening:
            self._users += 1
        if self._closing:
            self._closing.cancel()
        held_s = self._held_s
        try:
            yield
        except Exception:
            # The database may have been replaced, for example: the next use opens it again.
            held_s = 0.0
            raise
        finally:
            self._users -= 1
            if not self._users:
                self._closing = asyncio.create_task(self._close_later(held_s))

    async def _close_later(self, held_s: float) -> None:
        await asyncio.sleep(held_s)
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        async with self._opening:
            if self._users:
                return
            store, self._store = self._store, None
            await self._on_close()
            if store is not None:
                await store.aclose()

    async def aclose(self) -> None:
        """Close the store, even while it is in use."""
        if self._closing:
            self._closing.cancel()
            await asyncio.gather(self._closing, return_exceptions=True)
        self._users = 0
        await self._close()
