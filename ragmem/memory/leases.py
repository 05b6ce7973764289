"""What a process has in a store for as long as it is at it: leases, sessions, its patience."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from ragmem.errors import StoreError, StoreUnavailable
from ragmem.records import Leases
from ragmem.store import Store


@asynccontextmanager
async def leased(
    store: Leases, keys: Sequence[str], owner_id: str, *, seconds: float
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


async def _renew(store: Leases, keys: Sequence[str], owner_id: str, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds / 3)
        with suppress(StoreError):
            await store.claim(keys, owner_id, seconds=seconds)


T = TypeVar("T")


class StoreTooSlow(StoreUnavailable):
    """It may well answer, but not in the time that a turn waits for it."""


_PATIENCE_S = 2.0
_HASTY_S = 0.2
"""What is left of it once the person has interrupted the turn."""


class _Haste:
    """Ends what waits within one piece of work soon, once somebody wants it to end."""

    def __init__(self) -> None:
        self._hurried = False
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """A time limit for the block: TimeoutError."""
        async with asyncio.timeout(_HASTY_S if self._hurried else seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def hurry(self) -> None:
        """Let go of what waits, and of what will."""
        self._hurried = True
        soon = asyncio.get_running_loop().time() + _HASTY_S
        for limit in self._limits:
            limit.reschedule(min(soon, limit.when() or soon))


_haste = ContextVar("haste", default=_Haste())  # noqa: B039


async def settled(work: Awaitable[None]) -> bool:
    """Wait for work that must not be left half done; true if cancellation was asked meanwhile.

    What it then waits for with `in_time` is given up soon.
    """
    haste = _Haste()
    token = _haste.set(haste)
    task = asyncio.ensure_future(work)
    _haste.reset(token)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
            haste.hurry()
    task.result()
    return cancelled


async def in_time(work: Awaitable[T], *, beside_s: float = 0.0) -> T:
    """What the store answers to a turn that waits for it; StoreTooSlow when that takes long.

    `beside_s` is what the work may spend on something else.
    """
    try:
        async with _haste.get().within(_PATIENCE_S + beside_s):
            return await work
    except TimeoutError:
        raise StoreTooSlow(
            f"The memory did not answer within {_PATIENCE_S:g} s.", hint="Try again."
        ) from None


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


class HeldStore:
    """A store that a question opens, and that closes when none has come for a while."""

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
        """The store, to be asked within `used`. StoreError."""
        async with self._opening:
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """While this lasts the store does not close."""
        async with self._opening:
            self._users += 1
        if self._closing:
            self._closing.cancel()
        held_s = self._held_s
        try:
            yield
        except Exception:
            # A database that was replaced, say: the next question opens it anew.
            held_s = 0.0
            raise
        finally:
            self._users -= 1
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
        """Close the store, whoever uses it."""
        if self._closing:
            self._closing.cancel()
            await asyncio.gather(self._closing, return_exceptions=True)
        self._users = 0
        await self._close()
