"""The memories of a scope as a process holds them between two questions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import msgspec

from ragmem.embedder.numbers import load_numpy
from ragmem.memory.facts.ranking import Book, Entry, book_of, entry_of
from ragmem.records import MEMORY_LEVEL, MemoryRecord
from ragmem.store.base import Store
from ragmem.store.memories import MemoryQuery

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

FRESH_S = 1.0
"""So long what was read stands: one turn asks several times. Then others may have written."""


class About(msgspec.Struct, frozen=True):
    """What is known already of something."""

    memories: tuple[MemoryRecord, ...]
    counts: dict[str, int]
    """How many memories there are of each subject."""


class Shelf(msgspec.Struct, frozen=True):
    """What was read, made ready to be searched; a value, renewed by reading again."""

    book: Book
    rows: dict[str, bytes]
    """Vectors by memory."""
    matrix: Matrix | None
    """All of them under one another."""
    places: tuple[int, ...]
    """Of each row: where its memory stands in the book."""
    model_id: str
    revision: int
    """Of the store's memories: what is here is no older."""
    read_at: float
    """On the monotonic clock."""

    @classmethod
    def empty(cls) -> Self:
        """Before anything was read."""
        return cls(book_of(()), {}, None, (), "", -1, float("-inf"))

    @property
    def has_vectors(self) -> bool:
        """Whether anything can be compared by its meaning."""
        return bool(self.places)

    @property
    def memories(self) -> list[MemoryRecord]:
        """All of them, newest first."""
        return [entry.memory for entry in self.book.entries]

    def is_fresh(self, now: float) -> bool:
        """Whether nobody need be asked yet if it still holds."""
        return now - self.read_at < FRESH_S

    def aged(self) -> Self:
        """To be looked at again before the next question."""
        return msgspec.structs.replace(self, read_at=float("-inf"))

    async def renewed(
        self, store: Store, query: MemoryQuery, model_id: str, *, revision: int, read_at: float
    ) -> Shelf:
        """Read again; what has not changed since is not made ready a second time."""
        found = await store.memories(query)
        before = {entry.memory.memory_id: entry for entry in self.book.entries}
        # Thousands of new ones take a moment: whoever types comes first.
        entries = await asyncio.to_thread(_entries, found, before)
        rows = dict(self.rows) if model_id == self.model_id else {}
        kept = {entry.memory.memory_id for entry in entries if _is_kept(entry, before)}
        rows = {memory_id: row for memory_id, row in rows.items() if memory_id in kept}
        missing = [m.memory_id for m in found if m.memory_id not in rows] if model_id else []
        new = await store.small_vectors(missing, MEMORY_LEVEL, model_id) if missing else {}
        if not new and model_id == self.model_id and _same(entries, self.book.entries):
            return msgspec.structs.replace(self, revision=revision, read_at=read_at)
        shelf = msgspec.structs.replace(self, model_id=model_id, revision=revision, read_at=read_at)
        return await asyncio.to_thread(_filled, shelf, entries, rows | new)

    async def changed(
        self,
        gone: Sequence[str],
        found: Sequence[MemoryRecord],
        new: Mapping[str, bytes],
        *,
        revision: int,
        read_at: float,
    ) -> Shelf:
        """Without the memories `gone`, and with these, which have these vectors."""
        out = {*gone, *(memory.memory_id for memory in found)}
        kept = [entry for entry in self.book.entries if entry.memory.memory_id not in out]
        entries = sorted(kept + [entry_of(memory) for memory in found], key=_age, reverse=True)
        rows = {memory_id: row for memory_id, row in self.rows.items() if memory_id not in out}
        shelf = msgspec.structs.replace(self, revision=revision, read_at=read_at)
        return await asyncio.to_thread(_filled, shelf, entries, rows | dict(new))

    def counts(self) -> dict[str, int]:
        """How many memories there are of each subject."""
        return Counter(s for entry in self.book.entries for s in entry.memory.subjects)

    def cosines(self, row: bytes) -> dict[int, float]:
        """Of a unit vector with each that is there, by place in the book."""
        if self.matrix is None or len(row) != 4 * self.matrix.shape[1]:
            return {}
        import numpy as np

        found = self.matrix @ np.frombuffer(row, dtype="<f4")
        return dict(zip(self.places, map(float, np.nan_to_num(found, nan=-1.0)), strict=True))


def _filled(shelf: Shelf, entries: Sequence[Entry], rows: dict[str, bytes]) -> Shelf:
    places = tuple(i for i, e in enumerate(entries) if e.memory.memory_id in rows)
    matrix = _matrix([rows[entries[i].memory.memory_id] for i in places]) if places else None
    same = _same(entries, shelf.book.entries)
    return msgspec.structs.replace(
        shelf,
        book=shelf.book if same else book_of(entries),
        rows=rows,
        matrix=matrix,
        places=places,
    )


def _same(entries: Sequence[Entry], others: Sequence[Entry]) -> bool:
    return len(entries) == len(others) and all(
        one is other for one, other in zip(entries, others, strict=True)
    )


def _age(entry: Entry) -> tuple[object, str]:
    return entry.memory.created_at, entry.memory.memory_id


def _matrix(rows: list[bytes]) -> Matrix:
    load_numpy()
    import numpy as np

    width = len(rows[0]) // 4
    # A row of another length is damaged: it is like nothing.
    whole = [row if len(row) == 4 * width else bytes(4 * width) for row in rows]
    return np.frombuffer(b"".join(whole), dtype="<f4").reshape(len(rows), width)


def _entries(found: Sequence[MemoryRecord], before: Mapping[str, Entry]) -> list[Entry]:
    return [_entry(memory, before.get(memory.memory_id)) for memory in found]


def _entry(memory: MemoryRecord, before: Entry | None) -> Entry:
    return before if before is not None and before.memory == memory else entry_of(memory)


def _is_kept(entry: Entry, before: Mapping[str, Entry]) -> bool:
    old = before.get(entry.memory.memory_id)
    return old is not None and old.memory.content == entry.memory.content
