"""Vectors of a project, a session or all, held in memory: Neo4j takes 18 ms for 1,000 cosines.

They are read once, the newest first, and from then on what is new (`sequence`). What is
beyond the first page comes while other things are done. What has not come, and of a very large
project never does, is found by the server's own index of vectors, approximately.
"""

import asyncio
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, get_args

from ragmem.errors import StoreError
from ragmem.records import MEMORY_LEVEL, Attempts, EmbedderMark, Pending, PutVectors, Work
from ragmem.similarity import Matrix, packed, unpacked
from ragmem.store.neo4j import shapes
from ragmem.store.neo4j.entries import STATEMENTS, lock_vectors
from ragmem.store.neo4j.gateway import Gateway, Transaction
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Numbers = NDArray[np.int64]

PAGE = 20_000
"""Entries that are read at a time."""
_RECORD_BYTES = 100
"""About what a record takes in memory beside its vectors."""
_END = 2**62


class Key(NamedTuple):
    """Of what the vectors are."""

    kind: str
    """`project`, `session` or `all`."""
    id: str = ""


class GraphVersion(NamedTuple):
    """While it stays the same, vectors come and are replaced, but none goes."""

    embedder: str
    dimension: int
    epoch: int


class Near(NamedTuple):
    """The best by vector."""

    number: int
    similarity: float


class _Page(NamedTuple):
    numbers: list[int]
    sequences: list[int]
    levels: list[int]
    indexes: list[int]
    packs: list[bytes]


class Space:
    """One area's vectors."""

    def __init__(self, key: Key, version: GraphVersion) -> None:
        self.key = key
        self.version = version
        self.complete = False
        """Whether the oldest have been read too."""
        self.lock = asyncio.Lock()
        """Held while it is changed, and while another thread reads it."""
        self._matrix = Matrix(version.dimension)
        self._rows: dict[int, int] = {}
        """By number the row that is up to date."""
        self._numbers = array("q")
        self._levels = array("q")
        self._indexes = array("q")
        self._alive = bytearray()
        self._newest = 0
        self._oldest = _END

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return self._matrix.size_bytes + _RECORD_BYTES * len(self._numbers)

    async def refresh(self, tx: Transaction) -> None:
        """Read what is new; the first time the newest page. To be called with the lock."""
        if self._newest == 0:
            page = await self._read(tx, after=0, before=_END, limit=PAGE)
            self._add(page, newer=True)
            self.complete = len(page.numbers) < PAGE
            return
        # All at once, however much: a gap in between would never be looked at again.
        self._add(await self._read(tx, after=self._newest, before=_END, limit=_END), newer=True)

    async def read_older(self, tx: Transaction) -> None:
        """One more page of what was there before."""
        page = await self._read(tx, after=0, before=self._oldest, limit=PAGE)
        async with self.lock:
            self._add(page, newer=False)
        self.complete = len(page.numbers) < PAGE

    async def _read(self, tx: Transaction, *, after: int, before: int, limit: int) -> _Page:
        [values] = await tx.values(
            STATEMENTS[f"vectors_of_{self.key.kind}"],
            id=self.key.id,
            embedder=self.version.embedder,
            dimension=self.version.dimension,
            after=after,
            before=before,
            limit=limit,
            none=b"",
        )
        return _Page(*values)

    def _add(self, page: _Page, *, newer: bool) -> None:
        """`newer` ones replace what is known of a record; older ones are left out if it is."""
        import numpy as np

        if not page.numbers:
            return
        given = np.array(page.numbers)
        fresh = np.array(page.sequences) > self._newest
        known = np.array(self._numbers)
        if newer:
            for row in np.flatnonzero(np.isin(known, given[fresh])):
                self._alive[row] = 0
            taken = np.flatnonzero(fresh)
            self._newest = max(self._newest, *page.sequences)
        else:
            taken = np.flatnonzero(~np.isin(given, known))
        self._oldest = min(self._oldest, *page.sequences)
        first = len(self._numbers)
        for values, column in (
            (self._numbers, page.numbers),
            (self._levels, page.levels),
            (self._indexes, page.indexes),
        ):
            values.extend(column[i] for i in taken)
        self._alive.extend(b"\1" * len(taken))
        self._matrix.add(range(first, len(self._numbers)), [page.packs[i] for i in taken])
        for place, i in enumerate(taken.tolist(), first):
            self._rows[page.numbers[i]] = place

    def row(self, number: int) -> int | None:
        """Of a record, if it is here."""
        return self._rows.get(number)

    async def compared(self, vector: bytes) -> "Compared":
        """All of them, with their cosines; in another thread: 100,000 take 10 ms."""

        async def alone() -> Compared:
            async with self.lock:
                return await asyncio.to_thread(self._compared, vector)

        # A thread can't be stopped: the lock is held to its end, also where nobody waits any more.
        return await asyncio.shield(asyncio.create_task(alone()))

    def _compared(self, vector: bytes) -> "Compared":
        import numpy as np

        compared = self._matrix.similarities(vector)
        alive = np.frombuffer(bytes(self._alive), np.uint8)[compared.records].astype(bool)
        rows, best, first, counts = compared.those(alive)
        by_row = np.full((len(self._numbers), 3), np.nan, np.float32)
        by_row[rows] = np.stack([best, first, counts], axis=1)
        return Compared(
            self,
            np.array(self._numbers)[rows],
            np.array(self._levels)[rows],
            np.array(self._indexes)[rows],
            best,
            by_row,
        )


class Compared(NamedTuple):
    """A space's records and their cosines with a question, side by side."""

    space: Space
    numbers: "Numbers"
    levels: "Numbers"
    indexes: "Numbers"
    """Of turns; -1 for summaries."""
    similarities: "NDArray[np.float32]"
    by_row: "NDArray[np.float32]"
    """By the rows of the space: `Standing`s as numbers; nan for one that has no vector now."""

    def best(self, allowed: "Mask", limit: int) -> list[Near]:
        """The nearest of those that are allowed."""
        import numpy as np

        rows = np.flatnonzero(allowed)
        if len(rows) > limit:
            rows = rows[np.argpartition(-self.similarities[rows], limit)[:limit]]
        return [Near(int(self.numbers[row]), float(self.similarities[row])) for row in rows]

    def of(self, numbers: Iterable[int]) -> "Mapping[int, Standing]":
        """How these records stand to the question, as far as they are here."""
        found = {}
        for number in numbers:
            row = self.space.row(number)
            # One that came after the comparison is not in it.
            if row is not None and row < len(self.by_row):
                best, first, count = self.by_row[row].tolist()
                if best == best:
                    found[number] = Standing(best, first, int(count))
        return found


class Standing(NamedTuple):
    """How a record's vectors stand to a question's."""

    best: float
    first: float
    passages: int


def standing(vector: bytes, pack: bytes, dimension: int) -> Standing | None:
    """Of one record that no space holds yet."""
    matrix = Matrix(dimension)
    matrix.add([0], [pack])
    _, best, first, counts = matrix.similarities(vector)
    return Standing(float(best[0]), float(first[0]), int(counts[0])) if len(best) else None


def allowed_rows(
    compared: Compared, *, turns: bool, levels: Sequence[int], last: int | None
) -> "tuple[Mask, Mask]":
    """Which rows are turns, and which summaries, that are looked for.

    `levels` empty: summaries of any; `last`: turns up to that index, and no summaries.
    """
    import numpy as np

    is_turn = compared.levels == 0
    wanted_turns = is_turn & turns
    wanted = ~is_turn
    if levels:
        wanted &= np.isin(compared.levels, np.array(levels, np.int64))
    if last is not None:
        wanted_turns &= compared.indexes <= last
    return wanted_turns, wanted


EMBEDDED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "turn_embedding": ("ConversationTurn", "embedding"),
        "summary_embedding": ("ConversationSummary", "embedding"),
        "memory_embedding": ("Memory", "embedding"),
        "session_embedding": ("ConversationSession", "summaryEmbedding"),
    }
)
"""By an index's name the label and the property that it is on."""
_LARGEST = 4096
"""Numbers of a vector that a server takes into an index."""
_FOUND = """
SHOW VECTOR INDEXES YIELD name, state, options
WHERE state <> 'FAILED'
RETURN name, options.indexConfig['vector.dimensions'] AS dimension
"""
_DIMENSION = "MATCH (v:RagmemSchema {name: 'ragmem'}) RETURN v.dimension AS dimension"


def lacks_indexes(dimension: int, found: Mapping[str, int]) -> bool:
    """Whether one is missing or of another dimension than the store's vectors are."""
    return 0 < dimension <= _LARGEST and any(found.get(name) != dimension for name in EMBEDDED)


async def keep_indexes(gateway: Gateway) -> None:
    """Have those of the dimension that the store's vectors are of; what fails is left so."""
    with suppress(StoreError):
        dimension, found = await gateway.read(_look, patient=False)
        if not lacks_indexes(dimension, found):
            return
        for name, (label, key) in EMBEDDED.items():
            if found.get(name) != dimension:
                await _make(gateway, name, label, key, dimension)


async def _look(tx: Transaction) -> tuple[int, dict[str, int]]:
    row = await tx.first_row(_DIMENSION)
    dimension = row["dimension"] if row else None
    if not isinstance(dimension, int):
        return 0, {}
    return dimension, {row["name"]: row["dimension"] for row in await tx.run(_FOUND)}


async def _make(gateway: Gateway, name: str, label: str, key: str, dimension: int) -> None:
    made = (
        f"CREATE VECTOR INDEX {name} IF NOT EXISTS FOR (n:{label}) ON (n.{key}) "
        f"OPTIONS {{indexConfig: {{`vector.dimensions`: {dimension}, "
        "`vector.similarity_function`: 'cosine'}}"
    )
    await gateway.write(lambda tx: tx.run(f"DROP INDEX {name} IF EXISTS"))
    await gateway.write(lambda tx: tx.run(made))


# --- as they are stored, and what is still to be done -----------------------------------


_MOST = 1000
_DROPPED_AT_ONCE = 500
_FLOAT_BYTES = 4


async def put_vectors(tx: Transaction, writes: Sequence[PutVectors]) -> None:
    """Those that are of the store's embedder, of records that there are."""
    embedder, dimension, sequence = await lock_vectors(tx)
    size = dimension * _FLOAT_BYTES
    fitting = [
        write
        for write in {(clean(write.record_id), write.level < 0): write for write in writes}.values()
        if write.embedder == embedder and all(len(each) == size for each in write.vectors)
    ]
    if not fitting:
        return
    of: Properties = {"embedder": embedder, "dimension": dimension}
    if rows := [_row(write) for write in fitting if write.level >= 0]:
        await tx.run(STATEMENTS["put_vectors"], rows=rows, sequence=sequence, **of)
        await tx.run(STATEMENTS["count_vectors"], sequence=sequence + len(rows))
    small = [write for write in fitting if write.level < 0]
    if rows := [_small_row(write) for write in small if write.level == MEMORY_LEVEL]:
        await tx.run(MEMORIES["put_memory_vectors"], rows=rows, **of)
    if rows := [_small_row(write) for write in small if write.level != MEMORY_LEVEL]:
        await tx.run(MEMORIES["put_summary_vectors"], rows=rows, **of)


def _row(write: PutVectors) -> Properties:
    return {
        "recordId": write.record_id,
        "textHash": write.text_hash,
        "vectors": packed(write.vectors),
        "embedding": _middle(write.vectors),
    }


def _small_row(write: PutVectors) -> Properties:
    """Of a memory or a session: the one vector, exactly; empty where there was nothing to embed."""
    return {
        "recordId": write.record_id,
        "textHash": write.text_hash,
        "vector": write.vectors[0] if write.vectors else b"",
        "embedding": _middle(write.vectors[:1]),
    }


def _middle(vectors: Sequence[bytes]) -> list[float] | None:
    """One for the whole text, for whoever else reads the graph."""
    import numpy as np

    if not vectors:
        return None
    mean = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1).mean(axis=0)
    length = float(np.linalg.norm(mean))
    found: list[float] = (mean / length if np.isfinite(length) and length > 0 else mean).tolist()
    return found


async def vectors_of(tx: Transaction, ids: Sequence[str]) -> list[PutVectors]:
    """Those that these records have, in this order, as they are written."""
    mark = await embedder(tx)
    if mark is None:
        return []
    return [
        PutVectors(
            record_id=record_id,
            level=level,
            embedder=model,
            text_hash=text_hash,
            vectors=unpacked(packs, mark.dimension) if level >= 0 else _small_vectors(packs),
        )
        for record_id, level, model, text_hash, packs in await tx.found(
            STATEMENTS["vectors_of"], ids=ids
        )
        if model == mark.model_id
    ]


def _small_vectors(held: bytes) -> tuple[bytes, ...]:
    return (bytes(held),) if held else ()


async def embedder(tx: Transaction) -> EmbedderMark | None:
    """Of which the store's vectors are."""
    row = await tx.first_row(STATEMENTS["embedder"])
    return EmbedderMark(row["embedder"], row["dimension"]) if row else None


async def use_embedder(gateway: Gateway, mark: EmbedderMark) -> None:
    """Drop the vectors of another one, a part at a time: a crash in between is made good later."""

    async def begin(tx: Transaction) -> None:
        embedder, dimension, _ = await lock_vectors(tx)
        if (embedder, dimension) != (mark.model_id, mark.dimension):
            await tx.run(
                STATEMENTS["use_embedder"], embedder=mark.model_id, dimension=mark.dimension
            )

    await gateway.write(begin)
    await keep_indexes(gateway)
    await finish_dropping(gateway)


async def finish_dropping(gateway: Gateway) -> None:
    """Nothing is left that could not be compared with what is to come."""
    row = await gateway.read(lambda tx: tx.first_row(STATEMENTS["embedder"]))
    if row is None or not row["dropping"]:
        return
    for statement in (
        STATEMENTS["drop_foreign_vectors"],
        MEMORIES["drop_foreign_memory_vectors"],
        MEMORIES["drop_foreign_summary_vectors"],
    ):
        drop = partial(Transaction.found, statement=statement, limit=_DROPPED_AT_ONCE)
        while await gateway.write(drop):
            pass
    await gateway.write(lambda tx: tx.run(STATEMENTS["all_dropped"]))


async def pending(tx: Transaction, work: Work, *, limit: int) -> list[Pending]:
    """Work that nobody has leased, that of the latest activity first."""
    found = await tx.found(STATEMENTS[f"pending_{work}"], limit=limit, owner=tx.sees)
    return [
        Pending(work=work, session_id=session, record_id=record, level=level)
        for session, record, level in found
    ]


async def count_pending(tx: Transaction) -> dict[Work, int]:
    """How much of each."""
    [row] = await tx.run(STATEMENTS["count_pending"], most=_MOST, owner=tx.sees)
    return {work: row[work] for work in get_args(Work)}


async def claim(
    tx: Transaction, keys: Sequence[str], owner_id: str, *, seconds: float
) -> list[str]:
    """The keys that are now this owner's."""
    if not keys:
        return []
    # In order: two who claim the same wait for each other, and not forever.
    wanted = sorted({clean(key) for key in keys})
    await tx.run(STATEMENTS["make_leases"], keys=wanted)
    ms = round(seconds * 1000)
    found = set(await tx.found(STATEMENTS["claim"], keys=wanted, ownerId=owner_id, ms=ms))
    await tx.run(STATEMENTS["forget_old_leases"])
    return [key for key in keys if clean(key) in found]


async def release(tx: Transaction, keys: Sequence[str], owner_id: str) -> None:
    """Give back what was claimed."""
    await tx.run(STATEMENTS["release"], keys=sorted(set(keys)), ownerId=owner_id)


async def attempts(tx: Transaction, item: str = "", *, least: int = 1) -> list[Attempts]:
    """Those about an item, or about any; the latest last."""
    found = await tx.found(STATEMENTS["attempts"], item=item, least=least)
    return tx.read.records(partial(shapes.to_record, Attempts), found)


async def keep_attempts(tx: Transaction, attempts: Attempts) -> None:
    """Keep these in place of what was known of their item."""
    kept = shapes.properties(attempts)
    await tx.run(STATEMENTS["keep_attempts"], item=attempts.item, properties=kept)


async def forget_attempts(tx: Transaction, session_id: str, item: str = "") -> None:
    """Let one item of a session be tried again, or all of them."""
    await tx.run(STATEMENTS["forget_attempts"], sessionId=session_id, item=clean(item))
