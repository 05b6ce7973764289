"""Stores that go away, lose answers, and die with the process that uses them."""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ragmem import failpoints
from ragmem.errors import StoreUnavailable
from ragmem.records import Applied, Write
from ragmem.store import Archive

Mode = Literal["fine", "refusing", "losing_answers", "silent"]


class Killed(BaseException):
    """The process ended here, as by kill -9."""


class Line:
    """What lies between a process and its store."""

    def __init__(self) -> None:
        self.mode: Mode = "fine"
        self.next: list[Mode] = []
        """For the next writes, one each."""
        self._open = asyncio.Event()
        self._open.set()

    def set(self, mode: Mode) -> None:
        self.mode = mode
        if mode == "silent":
            self._open.clear()
        else:
            self._open.set()

    async def wait(self) -> None:
        await self._open.wait()


def away() -> StoreUnavailable:
    """What a store says that can't be reached, or whose answer did not come."""
    return StoreUnavailable("The store is away.", hint="Try again.")


class FrailStore:
    """An Archive at the end of a line."""

    def __init__(self, inner: Archive, line: Line) -> None:
        self._inner = inner
        self._line = line
        self.dead = False
        """Its process was killed: nothing more goes through."""

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """All of the writes; whether that is heard of is another matter."""
        mode = self._line.next.pop(0) if self._line.next else self._line.mode
        if mode == "refusing":
            raise away()
        await self._pass()
        applied = await self._inner.apply(writes)
        if mode == "losing_answers":
            raise away()
        return applied

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def through(*given: Any, **more: Any) -> Any:
            if self._line.mode in ("refusing", "losing_answers"):
                raise away()
            await self._pass()
            return await method(*given, **more)

        return through

    async def _pass(self) -> None:
        await self._line.wait()
        if self.dead:
            raise away()


@contextmanager
def killed_at(point: str, die: Callable[[], None]) -> Iterator[None]:
    """At that failpoint `die` is called, once, in the thread that comes there; then it ends.

    What `die` copies of the disk is what kill -9 leaves: all that was handed to the kernel.
    """
    was = failpoints._fail

    def end(name: str, _: object) -> None:
        die()
        raise Killed(name)

    failpoints._fail = end
    failpoints.arm(f"{point}:kill9@1")
    try:
        yield
    finally:
        failpoints.arm("")
        failpoints._fail = was


def copy_home(home: Path, other: Path) -> None:
    """Everything in a folder that others write to at this moment."""

    def taken(source: str, target: str) -> str:
        try:
            return shutil.copyfile(source, target)
        except FileNotFoundError:
            return target

    if home.exists():
        shutil.copytree(home, other, copy_function=taken)
