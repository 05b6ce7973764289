"""What the interface hands out that is no record, and background work that can be waited for."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ragmem.config import Config, Paths
from ragmem.embedder.base import Embedder
from ragmem.memory.recall import ScopeName
from ragmem.memory.worker import Worker
from ragmem.records import Scope, Session, Turn
from ragmem.usage import Metrics, UsageLog

if TYPE_CHECKING:
    from ragmem.memory.memory import Memory, OpenStore


class TakeIn(Protocol):
    """Stores a session that was exported."""

    async def __call__(self, data: bytes, *, as_new: bool) -> Session: ...


Folder = str | os.PathLike[str]
Where = ScopeName | Scope | Path
"""Where to search: around the session (by name), a scope, or the project of a folder."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What an open memory works with; put together by `ragmem.app`."""

    memory: "Memory"
    open_store: "OpenStore"
    export: Callable[[str], Awaitable[dict[str, Any]]]
    """A session as a value that JSON can hold."""
    take_in: "TakeIn"
    config: Config
    paths: Paths
    embedder: Embedder | None
    metrics: Metrics
    usage: UsageLog
    notices: Callable[[], Sequence[str]]
    foreign_vectors: Callable[[], Awaitable[str]]
    """What to say when the store's vectors are another embedder's; else empty."""


class LoadedSession(msgspec.Struct, frozen=True):
    """A session with all of its turns, in order."""

    session: Session
    turns: tuple[Turn, ...]

    @property
    def session_id(self) -> str:
        """Its id."""
        return self.session.session_id

    @property
    def cwd(self) -> str:
        """The folder that it was started in."""
        return self.session.cwd

    @property
    def project_path(self) -> str | None:
        """The top folder of its project."""
        return self.session.project_path


class Work:
    """One worker; while `drain` waits for it, nothing else runs it."""

    def __init__(self, worker: Worker, *, runs: bool) -> None:
        self._worker = worker
        self._runs = runs
        self._drain = asyncio.Lock()
        self._started = False

    def wake(self) -> None:
        """There is something to do; it begins in the background, where that is wanted."""
        self._started = self._runs
        if self._runs and not self._drain.locked():
            self._worker.start()
            self._worker.wake()

    def begin(self) -> None:
        """What others left may be done meanwhile."""
        if not self._started:
            self.wake()

    async def drain(self, limit_s: float | None) -> bool:
        """Do all that is pending, for at most so long; whether nothing is left. StoreError."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                await self._drain.acquire()
        except TimeoutError:
            return False
        try:
            await self._worker.aclose()
            left_s = None if limit_s is None else limit_s - (time.monotonic() - started)
            return await self._worker.drain(left_s)
        finally:
            self._drain.release()
            if self._started:
                self._worker.start()

    async def aclose(self) -> None:
        """Stop; what is left is done by the next who opens the memory."""
        self._runs = self._started = False
        await self._worker.aclose()
