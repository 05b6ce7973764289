"""The shelves of a process: each scope's memories, read again only when something changed.

A store counts the transactions that change memories. While that number stays, what was read
holds; and who wrote, and finds it gone up by one, knows that nobody else did.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import StoreUnavailable
from ragmem.records import MEMORY_LEVEL, PutMemory, Write
from ragmem.store.base import Store
from ragmem.store.memories import MemoryQuery

if TYPE_CHECKING:
    from ragmem.memory.facts.shelf import Shelf


class Shelves:
    """See the module's text. `model_id`: of the embedder whose vectors are held; empty: none."""

    def __init__(self, model_id: str, clock: Callable[[], datetime]) -> None:
        self._model_id = model_id
        self._clock = clock
        self._held: dict[str | None, Shelf] = {}

    async def of(self, store: Store, project_id: str | None, *, surely: bool = False) -> "Shelf":
        """What is known in a project and of the person; `surely`: as it is at this moment."""
        from ragmem.memory.facts.shelf import Shelf

        held = self._held.get(project_id)
        now = time.monotonic()
        if held is not None and not surely and held.is_fresh(now):
            return held
        # Asked for first: what is read then is no older.
        revision = await store.memories_revision()
        held = self._held.get(project_id)
        if held is not None and held.revision == revision:
            held = self._held[project_id] = msgspec.structs.replace(held, read_at=now)
            return held
        query = MemoryQuery(project_ids=(project_id,) if project_id else (), alive_at=self._clock())
        shelf = await (held or Shelf.empty()).renewed(
            store, query, self._model_id, revision=revision, read_at=now
        )
        if self._held.get(project_id) is held:
            self._held[project_id] = shelf
        return shelf

    async def before_writing(self, store: Store) -> int | None:
        """For `wrote`; None where nothing is held."""
        return await store.memories_revision() if self._held else None

    async def wrote(self, store: Store, writes: Sequence[Write], before: int | None) -> None:
        """These were just written, by this process; the memories' revision was `before` then."""
        self.aged()
        puts = [write for write in writes if isinstance(write, PutMemory)]
        ids = list({each for put in puts for each in (put.memory.memory_id, *put.supersedes)})
        standing = {name: one for name, one in self._held.items() if one.revision == before}
        if not ids or before is None or not standing:
            return
        try:
            # As the store holds them.
            found = await store.memories_by_id(ids)
            rows = {}
            if self._model_id:
                rows = await store.small_vectors(ids, MEMORY_LEVEL, self._model_id)
            if await store.memories_revision() != before + 1:
                return
        except StoreUnavailable:
            return
        now = self._clock()
        for project_id, shelf in standing.items():
            if project_id and any(m.project_id not in (None, project_id) for m in found):
                # Of a project that was joined, maybe: the store knows.
                continue
            current = [m for m in found if m.is_current(now) and m.project_id in (None, project_id)]
            known = {memory.memory_id for memory in current}
            renewed = await shelf.changed(
                ids,
                current,
                {name: row for name, row in rows.items() if name in known},
                revision=before + 1,
                read_at=time.monotonic(),
            )
            if self._held.get(project_id) is shelf:
                self._held[project_id] = renewed

    def aged(self) -> None:
        """Something was written: before the next answer the store is asked if it changed."""
        self._held = {name: shelf.aged() for name, shelf in self._held.items()}
