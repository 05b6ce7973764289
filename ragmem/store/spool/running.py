"""Work that goes on to its end, whoever waits for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class HeldTasks:
    """Tasks that are held until they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._interrupted: set[asyncio.Task[Any]] = set()
        """Nobody waits for them any more."""

    def keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A task of its own; its error is for those who wait."""

        def ended(task: "asyncio.Task[T]") -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task

    async def finish(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result; interrupted, it goes on, and what is begun next comes after it."""
        before = frozenset(self._interrupted)

        async def in_order() -> T:
            if before:
                await asyncio.wait(before)
            return await work()

        task = self.keep(in_order())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._interrupted.add(task)
                task.add_done_callback(self._interrupted.discard)
            raise

    async def wait(self, limit_s: float) -> None:
        """Until all have ended, or for so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
