"""Which sessions this process works in, said to the store again and again while it lives."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ragmem.errors import StoreError
from ragmem.memory.patience import in_time
from ragmem.store.base import Store

_HEARTBEAT_S = 10.0


class Presence:
    """Of one process, which the store knows by `owner_id`."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]], owner_id: str) -> None:
        self._open_store = open_store
        self._owner_id = owner_id
        self._attached: set[str] = set()
        self._heartbeat: asyncio.Task[None] | None = None

    def is_in(self, session_id: str) -> bool:
        """Whether that was said of this session."""
        return session_id in self._attached

    async def attach(self, session_id: str) -> int:
        """Say it; how many other processes work there. StoreError."""
        if self._heartbeat is None:
            # Where the store is away for now too: it is also how an idle process sees it go.
            self._heartbeat = asyncio.create_task(self._beat())
        store = await self._open_store()
        others = await in_time(store.attach(session_id, self._owner_id))
        self._attached.add(session_id)
        return len(others)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            with suppress(StoreError):
                await (await self._open_store()).heartbeat(self._owner_id)

    async def aclose(self) -> None:
        """Leave the sessions."""
        if self._heartbeat:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
            self._heartbeat = None
        if self._attached:
            with suppress(StoreError):
                await (await self._open_store()).detach(self._owner_id)
            self._attached.clear()
