"""The index kept current while files change."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import Protocol

from ragmem.codeindex.followers import following
from ragmem.codeindex.listing import says_what_is_ignored
from ragmem.codeindex.values import Refreshed
from ragmem.codeindex.watching import EVERYTHING, changed_paths
from ragmem.errors import RagmemError
from ragmem.logs import LOGGER

_LONGEST_PAUSE_S = 10.0
_AGAIN_S = 0.5
"""Where another process is at it, or it failed; each time that it fails twice as long."""
_LONGEST_AGAIN_S = 60.0
_MANY = 500
"""Changes at once: then the project is looked at as a whole."""


class _Index(Protocol):
    async def refresh(self, *, paths: Collection[str] | None = None) -> Refreshed: ...


async def keep_current(
    index: _Index,
    root: Path,
    known_of: Callable[[Collection[str]], Awaitable[set[str]]],
    *,
    followers: Path,
) -> AsyncGenerator[Refreshed, None]:
    """A refresh after each change that concerns the index.

    Whether a new path does takes a listing of the project: where those that came were ignored ones
    (a build writes its outputs), the next are looked at less and less often. Others see by the
    file `followers` that it is done.
    """
    changes: asyncio.Queue[frozenset[str] | None] = asyncio.Queue()
    pump = asyncio.create_task(_pump(root, changes))
    held = ExitStack()
    held.enter_context(following(followers))
    try:
        due, again_s = _Due(), _AGAIN_S
        while True:
            try:
                async with asyncio.timeout(due.wait_s()):
                    paths = await changes.get()
                if paths is None:
                    return
                due.add(paths, await known_of(paths))
            except TimeoutError:
                pass
            except RagmemError:
                # It could not be asked what it knows: then it is looked at as a whole.
                due.add(EVERYTHING, set())
            if not due.is_now():
                continue
            refreshed = await _refreshed(index, due.taken())
            if refreshed is None or refreshed.elsewhere:
                due.add(EVERYTHING, set())
                due.later(again_s)
                again_s = _AGAIN_S if refreshed else min(2 * again_s, _LONGEST_AGAIN_S)
                continue
            again_s = _AGAIN_S
            due.judge(refreshed)
            if refreshed.changed or refreshed.removed:
                yield refreshed
    finally:
        held.close()
        pump.cancel()
        with suppress(asyncio.CancelledError):
            await pump


async def _pump(root: Path, changes: "asyncio.Queue[frozenset[str] | None]") -> None:
    try:
        async with aclosing(changed_paths(root)) as paths:
            async for changed in paths:
                changes.put_nowait(changed)
    finally:
        changes.put_nowait(None)


async def _refreshed(index: _Index, paths: frozenset[str] | None) -> Refreshed | None:
    """None where it failed."""
    try:
        return await index.refresh(paths=paths)
    except RagmemError as error:
        logging.getLogger(LOGGER).warning("The code index was not brought up to date: %s", error)
        return None


class _Due:
    """Paths that are to be looked at, and when."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._unknown: set[str] = set()
        self._asked: set[str] = set()
        """Unknown ones that were looked at last."""
        self._not_before = 0.0
        self._pause_s = 0.0

    def add(self, paths: frozenset[str], known: set[str]) -> None:
        """More paths, and which of them the index has."""
        told = {path for path in paths if path in known or says_what_is_ignored(path)}
        self._known |= told
        self._unknown |= paths - told

    def wait_s(self) -> float | None:
        """How long to wait for more; None: until there is something."""
        if not self._unknown:
            return None
        return max(0.0, self._not_before - time.monotonic())

    def is_now(self) -> bool:
        """Whether there is something to do."""
        return bool(self._known) or bool(self._unknown and not self.wait_s())

    def taken(self) -> frozenset[str] | None:
        """What is to be looked at now; None for all."""
        self._asked = set(self._unknown) if not self.wait_s() else set()
        taken = frozenset(self._known | self._asked)
        self._known.clear()
        self._unknown -= self._asked
        return None if len(taken) > _MANY or EVERYTHING & taken else taken

    def judge(self, refreshed: Refreshed) -> None:
        """Pause longer where new paths were of no concern."""
        if not self._asked or EVERYTHING & self._asked:
            return
        if refreshed.changed or refreshed.removed:
            self._pause_s = 0.0
        else:
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2 or _AGAIN_S)
        self._not_before = time.monotonic() + self._pause_s

    def later(self, seconds: float) -> None:
        """Not before so long."""
        self._not_before = time.monotonic() + seconds
