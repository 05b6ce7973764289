"""A process says that it is there, and sees the store go while it is idle."""

import asyncio

import pytest

from ragmem.errors import StoreError, StoreUnavailable
from ragmem.memory.leases import Presence
from ragmem.store.base import Store


async def test_a_store_that_was_away_at_first_is_looked_at_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmem.memory.leases._HEARTBEAT_S", 0.01)
    looked = asyncio.Event()
    away = [True]

    async def open_store() -> Store:
        if away:
            away.clear()
            raise StoreUnavailable("It is away.")
        looked.set()
        return store

    presence = Presence(open_store, "me")
    with pytest.raises(StoreError):
        await presence.attach("s")
    async with asyncio.timeout(60):
        await looked.wait()
    await presence.aclose()
