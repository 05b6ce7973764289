"""Turns linked with the code that they edited, read, found and named."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ragmem.errors import RagmemError, SessionNotFound, StoreError
from ragmem.logs import LOGGER
from ragmem.memory.files import locator
from ragmem.memory.leases import leased
from ragmem.metrics import Metrics
from ragmem.records import Project, PutReferences, Session, Turn
from ragmem.store.base import Store
from ragmem.store.recall import Pending

if TYPE_CHECKING:
    from ragmem.codeindex.index import CodeIndex

_LEASE_S = 60.0
_READY_WITHIN_S = 5.0
"""So long a look at a project's files is waited for; what is too early is linked after it."""


class TurnLinks:
    """Those of a process; of what it has no index the turns are left to others."""

    def __init__(
        self,
        index_of: Callable[[Project], "CodeIndex | None"],
        looking: Callable[[str], "asyncio.Task[object] | None"],
        *,
        writes: bool,
        metrics: Metrics,
    ) -> None:
        """`looking`: by a project's id the look at its files that is under way."""
        self._index_of = index_of
        self._looking = looking
        self._writes = writes
        self._metrics = metrics
        self._without: set[str] = set()
        """Sessions whose project has no index here: they cost nothing any more."""
        self._early: dict[str, dict[str, None]] = {}
        """By project the turns that came before the store knew of the code."""

    async def look_through(
        self, store: Store, items: Sequence[Pending], owner_id: str
    ) -> frozenset[str]:
        """Keys of those that are seen to, or are not to be tried again here. StoreError."""
        others = {item.key for item in items if item.session_id in self._without}
        todo = [item for item in items if item.key not in others]
        if not todo:
            return frozenset(others)
        async with leased(store, [i.key for i in todo], owner_id, seconds=_LEASE_S) as mine:
            await self._see_to_these(store, [i.record_id for i in todo if i.key in mine])
            return mine | others

    async def after(self, project_id: str, open_store: Callable[[], Awaitable[Store]]) -> None:
        """The store knows of a project's code: link the turns that came too early. StoreError."""
        early = self._early.pop(project_id, {})
        try:
            if early:
                await self._see_to_these(await open_store(), list(early))
        except StoreError:
            self._early[project_id] = early | self._early.get(project_id, {})
            raise

    async def _see_to_these(self, store: Store, turn_ids: Sequence[str]) -> None:
        for turn in await store.turns_by_id(turn_ids):
            with suppress(SessionNotFound):
                await self._see_to(store, turn, await store.session(turn.session_id))

    async def _see_to(self, store: Store, turn: Turn, session: Session) -> None:
        project = await _project_of(store, session)
        index = self._index_of(project) if project else None
        if project is None or index is None:
            self._without.add(session.session_id)
            return
        is_early = await self._is_looked_at(project.project_id)
        if not is_early and not await index.exists():
            self._without.add(session.session_id)
        elif is_early or not await self._link(store, turn, session, index):
            self._early.setdefault(project.project_id, {})[turn.turn_id] = None

    async def _is_looked_at(self, project_id: str) -> bool:
        """Whether the files are being looked at just now, and will be for some seconds more."""
        running = self._looking(project_id)
        if running is None or running.done():
            return False
        await asyncio.wait({running}, timeout=_READY_WITHIN_S)
        return not running.done()

    def _looks(self, index: "CodeIndex") -> bool:
        """Of a folder that is gone what the index knew last counts.

        So its turns are not tried again and again, and are right where the folder comes back.
        """
        return self._writes and os.path.isdir(index.project.path)

    async def _link(self, store: Store, turn: Turn, session: Session, index: "CodeIndex") -> bool:
        """False where the store does not know of the code yet, or the index can't be written."""
        from ragmem.codeindex.linking import edited_paths, references_of

        locate = locator(session)
        with self._metrics.time("code.link"):
            edited = [path for path in map(locate, edited_paths(turn)) if not os.path.isabs(path)]
            if edited and self._looks(index):
                try:
                    await index.refresh(paths=edited)
                except RagmemError as error:
                    # A full disk, say: it must not keep all other work waiting.
                    logging.getLogger(LOGGER).warning("Turns wait to be linked: %s", error)
                    self._metrics.count("code.failures")
                    return False
            if not await index.mirror():
                return False
            found = await references_of(turn, index, locate)
            await store.apply([PutReferences(turn_id=turn.turn_id, references=found)])
        return True


async def _project_of(store: Store, session: Session) -> Project | None:
    """The folder that a session worked in, as a project of its own."""
    known = await store.projects()
    own = [p for p in known if p.path == session.project_path and p.root_id == session.project_id]
    return next(iter([*own, *(p for p in known if p.project_id == session.project_id)]), None)
