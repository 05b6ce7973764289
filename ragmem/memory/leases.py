"""Work that is ours for as long as we are at it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from ragmem.errors import StoreError
from ragmem.store.base import Store


@asynccontextmanager
async def leased(
    store: Store, keys: Sequence[str], owner_id: str, *, seconds: float
) -> AsyncIterator[frozenset[str]]:
    """Those of the keys that are the owner's until the end of the block, however it ends."""
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
        # They end by themselves where this fails.
        with suppress(StoreError):
            await store.release(keys, owner_id)


async def _renew(store: Store, keys: Sequence[str], owner_id: str, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds / 3)
        with suppress(StoreError):
            await store.claim(keys, owner_id, seconds=seconds)
