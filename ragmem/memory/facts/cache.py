"""The facts that are known, held in memory with their vectors, ready to be searched."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import is_
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import StoreUnavailable
from ragmem.records import MEMORY_LEVEL, MemoryQuery, MemoryRecord, PutMemory, Write
from ragmem.store.base import Store

if TYPE_CHECKING:
    from ragmem.memory.facts.ranking import Book, IndexedFact

FRESH_S = 1.0
"""So long what was read stands: one turn asks several times. Then others may have written."""


class CachedFacts(msgspec.Struct, frozen=True):
    """What was read of a project and of the person; a value, renewed by reading again."""

    book: "Book"
    rows: dict[str, bytes]
    """Vectors by memory."""
    revision: int
    """Of the store's memories: what is here is no older."""
    read_at: float
    """On the monotonic clock."""

    @property
    def memories(self) -> list[MemoryRecord]:
        """All of them, newest first."""
        return [entry.memory for entry in self.book.entries]


class FactCache:
    """See the module's text. `model_id`: of the embedder whose vectors are held; empty: none."""

    def __init__(self, model_id: str, clock: Callable[[], datetime]) -> None:
        self._model_id = model_id
        self._clock = clock
        self._held: dict[str | None, CachedFacts] = {}

    async def of(
        self, store: Store, project_id: str | None, *, surely: bool = False
    ) -> CachedFacts:
        """What is known in a project and of the person; `surely`: as it is at this moment."""
        held = self._held.get(project_id)
        now = time.monotonic()
        if held is not None and not surely and now - held.read_at < FRESH_S:
            return held
        # Asked for first: what is read then is no older.
        revision = await store.memories_revision()
        held = self._held.get(project_id)
        if held is not None and held.revision == revision:
            renewed = msgspec.structs.replace(held, read_at=now)
        else:
            scope = (project_id,) if project_id else ()
            found = await store.memories(MemoryQuery(project_ids=scope, alive_at=self._clock()))
            renewed = await self._ready(store, held, found, revision, now)
        if self._held.get(project_id) is held:
            self._held[project_id] = renewed
        return renewed

    async def write(self, store: Store, writes: Sequence[Write]) -> None:
        """Apply them, and put in place what they change; what others wrote meanwhile is read."""
        before: int | None = None
        with suppress(StoreUnavailable):
            before = await store.memories_revision() if self._held else None
        await store.apply(writes)
        self.aged()
        puts = [write for write in writes if isinstance(write, PutMemory)]
        ids = {each for put in puts for each in (put.memory.memory_id, *put.supersedes)}
        standing = {name: one for name, one in self._held.items() if one.revision == before}
        if before is None or not ids or not standing:
            return
        with suppress(StoreUnavailable):
            # As the store holds them.
            found = await store.get(MemoryRecord, list(ids))
            if await store.memories_revision() != before + 1:
                return
            for project_id, held in standing.items():
                await self._put_in_place(store, project_id, held, ids, found)

    async def _put_in_place(
        self,
        store: Store,
        project_id: str | None,
        held: CachedFacts,
        ids: set[str],
        found: Sequence[MemoryRecord],
    ) -> None:
        if project_id and any(m.project_id not in (None, project_id) for m in found):
            # Of a project that was joined, maybe: the store knows.
            return
        now = self._clock()
        known = [memory for memory in held.memories if memory.memory_id not in ids]
        known += [m for m in found if m.is_current(now) and m.project_id in (None, project_id)]
        known.sort(key=lambda memory: (memory.created_at, memory.memory_id), reverse=True)
        renewed = await self._ready(store, held, known, held.revision + 1, time.monotonic())
        if self._held.get(project_id) is held:
            self._held[project_id] = renewed

    def aged(self) -> None:
        """Something was written: before the next answer the store is asked if it changed."""
        self._held = {
            name: msgspec.structs.replace(held, read_at=float("-inf"))
            for name, held in self._held.items()
        }

    async def _ready(
        self,
        store: Store,
        held: CachedFacts | None,
        found: Sequence[MemoryRecord],
        revision: int,
        read_at: float,
    ) -> CachedFacts:
        """These made ready to be searched; of what has not changed, what is held is taken over."""
        before = {e.memory.memory_id: e for e in held.book.entries} if held else {}
        # Thousands of new ones take a moment: whoever types comes first.
        entries = await asyncio.to_thread(_entries, found, before)
        rows = {
            memory.memory_id: held.rows[memory.memory_id]
            for memory in found
            if held
            and memory.memory_id in held.rows
            and before[memory.memory_id].memory.content == memory.content
        }
        missing = [memory.memory_id for memory in found if memory.memory_id not in rows]
        if missing and self._model_id:
            rows |= await store.small_vectors(missing, MEMORY_LEVEL, self._model_id)
        if held and len(entries) == len(before) and all(map(is_, entries, held.book.entries)):
            book = held.book
        else:
            from ragmem.memory.facts.ranking import book_of

            book = await asyncio.to_thread(book_of, entries)
        # In one order, however they came: so the last digit of a cosine is always the same.
        rows = {m.memory_id: rows[m.memory_id] for m in found if m.memory_id in rows}
        return CachedFacts(book, rows, revision, read_at)


def _entries(
    found: Sequence[MemoryRecord], before: "Mapping[str, IndexedFact]"
) -> "list[IndexedFact]":
    from ragmem.memory.facts.ranking import entry_of

    known = [before.get(memory.memory_id) for memory in found]
    return [
        old if old and old.memory == memory else entry_of(memory)
        for memory, old in zip(found, known, strict=True)
    ]
