"""The facts that are known, held in memory with their vectors, which this module also makes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

import msgspec

from ragmem.embedder.base import Embedder, embedding_hash
from ragmem.embedder.numbers import load_numpy
from ragmem.errors import RagmemError, StoreUnavailable
from ragmem.memory.facts.ranking import Book, IndexedFact, book_of, entry_of
from ragmem.metrics import Metrics
from ragmem.records import (
    MEMORY_LEVEL,
    EmbedderMark,
    MemoryQuery,
    MemoryRecord,
    PutMemory,
    PutVectors,
    Write,
)
from ragmem.store.base import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]


_log = logging.getLogger("ragmem")

_PATIENCE_S = 5.0


class FactVectors:
    """Texts to rows that may be compared with the store's; without an embedder there are none."""

    def __init__(self, embedder: Embedder | None, metrics: Metrics) -> None:
        self._embedder = embedder
        self._metrics = metrics

    @property
    def model_id(self) -> str:
        """Of the embedder; empty without one."""
        return self._embedder.info.model_id if self._embedder else ""

    async def rows(
        self,
        store: Store,
        texts: Sequence[str],
        *,
        query: bool = False,
        patience_s: float | None = _PATIENCE_S,
    ) -> tuple[list[bytes], str]:
        """One for each text, and the model's id; none while those stored are another's."""
        embedder = self._embedder
        if embedder is None or not texts:
            return [], ""
        info = embedder.info
        try:
            mark = await store.embedder()
            if mark is None and info.dimension and not query:
                await store.use_embedder(mark := EmbedderMark(info.model_id, info.dimension))
            if mark is None or mark.model_id != info.model_id:
                return [], ""
            async with asyncio.timeout(patience_s):
                found = await embedder.embed(list(texts), "query" if query else "passage")
        except StoreUnavailable:
            return [], ""
        except Exception as error:
            # Whatever it is: words are compared all the same, and the worker embeds it later.
            known = isinstance(error, RagmemError | TimeoutError)
            _log.warning("A memory could not be embedded: %s", error, exc_info=not known)
            self._metrics.count("embedder.failures")
            return [], ""
        return [row.astype("<f4").tobytes() for row in found], info.model_id

    async def of(self, store: Store, memory: MemoryRecord) -> list[PutVectors]:
        """The write of its vector, in a list; an empty one where it has none for now."""
        rows, model_id = await self.rows(store, [memory.content])
        return self.puts({memory.memory_id: (memory.content, rows[0])}, model_id) if rows else []

    @staticmethod
    def puts(vectors: Mapping[str, tuple[str, bytes]], model_id: str) -> list[PutVectors]:
        """The writes of rows, by memory with the text that was embedded."""
        return [
            PutVectors(
                record_id=memory_id,
                level=MEMORY_LEVEL,
                embedder=model_id,
                text_hash=embedding_hash(model_id, "passage", text),
                vectors=(row,),
            )
            for memory_id, (text, row) in vectors.items()
            if row
        ]


FRESH_S = 1.0
"""So long what was read stands: one turn asks several times. Then others may have written."""


class About(msgspec.Struct, frozen=True):
    """What is known already of something."""

    memories: tuple[MemoryRecord, ...]
    counts: dict[str, int]
    """How many memories there are of each subject."""


class CachedFacts(msgspec.Struct, frozen=True):
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
    ) -> CachedFacts:
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
    ) -> CachedFacts:
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


def _filled(
    shelf: CachedFacts, entries: Sequence[IndexedFact], rows: dict[str, bytes]
) -> CachedFacts:
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


def _same(entries: Sequence[IndexedFact], others: Sequence[IndexedFact]) -> bool:
    return len(entries) == len(others) and all(
        one is other for one, other in zip(entries, others, strict=True)
    )


def _age(entry: IndexedFact) -> tuple[object, str]:
    return entry.memory.created_at, entry.memory.memory_id


def _matrix(rows: list[bytes]) -> Matrix:
    load_numpy()
    import numpy as np

    width = len(rows[0]) // 4
    # A row of another length is damaged: it is like nothing.
    whole = [row if len(row) == 4 * width else bytes(4 * width) for row in rows]
    return np.frombuffer(b"".join(whole), dtype="<f4").reshape(len(rows), width)


def _entries(found: Sequence[MemoryRecord], before: Mapping[str, IndexedFact]) -> list[IndexedFact]:
    return [_entry(memory, before.get(memory.memory_id)) for memory in found]


def _entry(memory: MemoryRecord, before: IndexedFact | None) -> IndexedFact:
    return before if before is not None and before.memory == memory else entry_of(memory)


def _is_kept(entry: IndexedFact, before: Mapping[str, IndexedFact]) -> bool:
    old = before.get(entry.memory.memory_id)
    return old is not None and old.memory.content == entry.memory.content


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
        if held is not None and not surely and held.is_fresh(now):
            return held
        # Asked for first: what is read then is no older.
        revision = await store.memories_revision()
        held = self._held.get(project_id)
        if held is not None and held.revision == revision:
            held = self._held[project_id] = msgspec.structs.replace(held, read_at=now)
            return held
        query = MemoryQuery(project_ids=(project_id,) if project_id else (), alive_at=self._clock())
        shelf = await (held or CachedFacts.empty()).renewed(
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
