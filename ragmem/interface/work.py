"""Background work that can be waited for: a worker, started when there is something to do."""

import asyncio
import time

from ragmem.memory.worker import Worker


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
