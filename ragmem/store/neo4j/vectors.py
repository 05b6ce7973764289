"""Vectors of a project, a session or everything, compared in memory, not by the server.

Neo4j takes 18 ms for 1,000 cosines. The newest vectors are read first, from then on new ones (by
`sequence`), and older ones in the background of searches. Until these are read, they are found by
the server's own vector index, approximately.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ragmem.errors import StoreError
from ragmem.records import MEMORY_LEVEL, WORK, Attempts, EmbedderMark, Pending, PutVectors, Work
from ragmem.similarity import Version, packed, unpacked
from ragmem.store.neo4j import shapes
from ragmem.store.neo4j.entries import STATEMENTS, lock_vectors
from ragmem.store.neo4j.gateway import Gateway, Transaction
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

PAGE = 20_000
"""Maximum number of vectors read at once."""
_END = 2**62
_INDEX_BITS, _LEVEL_BITS = 24, 8
"""A record is identified here by one integer of its entry's number, its level and its index."""


Area = tuple[str, str]
"""`project` or `session` with an id, or `all` with an empty one."""


def number_of(records: "Numbers") -> "Numbers":
    """Return the numbers of the entries."""
    return records >> _LEVEL_BITS + _INDEX_BITS


def level_of(records: "Numbers") -> "Numbers":
    """Return the levels: 0 for a turn, 1 and up for a summary."""
    return records >> _INDEX_BITS & (1 << _LEVEL_BITS) - 1


def index_of(records: "Numbers") -> "Numbers":
    """Return the indexes of turns; -1 for a summary."""
    return (records & (1 << _INDEX_BITS) - 1) - 1


class Page(NamedTuple):
    """Some of an area's vectors, as parallel lists."""

    records: list[int]
    packs: list[bytes]
    oldest: int
    """The sequence number of the oldest of them; 0 if there are no older ones."""
    newest: int


async def page_of(
    tx: Transaction, area: Area, version: Version, *, after: int = 0, before: int = _END
) -> Page:
    """Return an area's newest vectors between two sequence numbers, or all after one."""
    limit = _END if after else PAGE
    [values] = await tx.values(
        STATEMENTS[f"vectors_of_{area[0]}"],
        id=area[1],
        embedder=version.model_id,
        dimension=version.dimension,
        after=after,
        before=before,
        limit=limit,
    )
    numbers, sequences, levels, indexes, packs = values
    records = [
        (number << _LEVEL_BITS | level) << _INDEX_BITS | index + 1
        for number, level, index in zip(numbers, levels, indexes, strict=True)
    ]
    oldest = min(sequences) if len(records) >= limit else 0
    return Page(records, packs, oldest, max(sequences, default=after))


EMBEDDED = {
    "turn_embedding": ("ConversationTurn", "embedding"),
    "summary_embedding": ("ConversationSummary", "embedding"),
    "memory_embedding": ("Memory", "embedding"),
    "session_embedding": ("ConversationSession", "summaryEmbedding"),
}
"""Label and property of each vector index, by its name."""
_LARGEST = 4096
"""The largest dimension that a server can index."""
_SHOW_INDEXES = """
SHOW VECTOR INDEXES YIELD name, state, options
WHERE state <> 'FAILED'
RETURN name, options.indexConfig['vector.dimensions'] AS dimension
"""
_DIMENSION = "MATCH (v:RagmemSchema {name: 'ragmem'}) RETURN v.dimension AS dimension"


def lacks_indexes(dimension: int, found: Mapping[str, int]) -> bool:
    """Whether an index is missing, or has another dimension than the store's vectors."""
    return 0 < dimension <= _LARGEST and any(found.get(name) != dimension for name in EMBEDDED)


async def keep_indexes(gateway: Gateway) -> None:
    """Create or replace indexes to have the dimension of the store's vectors; ignores failures."""
    with suppress(StoreError):
        dimension, found = await gateway.read(_look, patient=False)
        if not lacks_indexes(dimension, found):
            return
        for name, (label, key) in EMBEDDED.items():
            if found.get(name) != dimension:
                await _create_index(gateway, name, label, key, dimension)


async def _look(tx: Transaction) -> tuple[int, dict[str, int]]:
    row = await tx.first_row(_DIMENSION)
    dimension = row["dimension"] if row else None
    if not isinstance(dimension, int):
        return 0, {}
    return dimension, {row["name"]: row["dimension"] for row in await tx.run(_SHOW_INDEXES)}


async def _create_index(gateway: Gateway, name: str, label: str, key: str, dimension: int) -> None:
    made = (
        f"CREATE VECTOR INDEX {name} IF NOT EXISTS FOR (n:{label}) ON (n.{key}) "
        f"OPTIONS {{indexConfig: {{`vector.dimensions`: {dimension}, "
        "`vector.similarity_function`: 'cosine'}}"
    )
    await gateway.run(f"DROP INDEX {name} IF EXISTS")
    await gateway.run(made)


# --- stored vectors, and pending work ---------------------------------------------------


_COUNT_LIMIT = 1000
_DROPPED_AT_ONCE = 500
_FLOAT_BYTES = 4


async def put_vectors(tx: Transaction, writes: Sequence[PutVectors]) -> None:
    """Put the vectors that are of the store's embedder and of existing records."""
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
        [put] = await tx.run(STATEMENTS["put_vectors"], rows=rows, sequence=sequence, **of)
        if put["replaced"]:
            await tx.run(STATEMENTS["count_epoch"])
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
        "embedding": _mean(write.vectors),
    }


def _small_row(write: PutVectors) -> Properties:
    """Return the row of a memory or a session: its one vector, or empty if there was no text."""
    return {
        "recordId": write.record_id,
        "textHash": write.text_hash,
        "vector": write.vectors[0] if write.vectors else b"",
        "embedding": _mean(write.vectors[:1]),
    }


def _mean(vectors: Sequence[bytes]) -> list[float] | None:
    """Return one unit vector for the whole text, for other readers of the graph."""
    import numpy as np

    if not vectors:
        return None
    mean = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1).mean(axis=0)
    length = float(np.linalg.norm(mean))
    found: list[float] = (mean / length if np.isfinite(length) and length > 0 else mean).tolist()
    return found


async def vectors_of(tx: Transaction, ids: Sequence[str]) -> list[PutVectors]:
    """Return the vectors of those of these records that have some, in this order."""
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
    """Return the embedder of the store's vectors."""
    row = await tx.first_row(STATEMENTS["embedder"])
    return EmbedderMark(row["embedder"], row["dimension"]) if row else None


async def use_embedder(gateway: Gateway, mark: EmbedderMark) -> None:
    """Drop the vectors of another embedder, in batches; opening the store resumes after a crash."""

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
    """Drop what is left of vectors that can't be compared with those to come."""
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
    await gateway.run(STATEMENTS["all_dropped"])


async def pending(tx: Transaction, work: Work, *, limit: int) -> list[Pending]:
    """Return work that is not leased, latest activity first."""
    found = await tx.found(STATEMENTS[f"pending_{work}"], limit=limit, owner=tx.sees)
    return [
        Pending(work=work, session_id=session, record_id=record, level=level)
        for session, record, level in found
    ]


async def count_pending(tx: Transaction) -> dict[Work, int]:
    """Count the pending work of each kind, up to a thousand."""
    return {work: len(await pending(tx, work, limit=_COUNT_LIMIT)) for work in WORK}


async def claim(
    tx: Transaction, keys: Sequence[str], owner_id: str, *, seconds: float
) -> list[str]:
    """Lease the keys that are free or this owner's; return those it holds now."""
    if not keys:
        return []
    # Sorted, so that two processes that claim the same keys can't deadlock.
    wanted = sorted({clean(key) for key in keys})
    await tx.run(STATEMENTS["make_leases"], keys=wanted)
    ms = round(seconds * 1000)
    found = set(await tx.found(STATEMENTS["claim"], keys=wanted, ownerId=owner_id, ms=ms))
    await tx.run(STATEMENTS["forget_old_leases"])
    return [key for key in keys if clean(key) in found]


async def release(tx: Transaction, keys: Sequence[str], owner_id: str) -> None:
    """Release what was claimed."""
    await tx.run(STATEMENTS["release"], keys=sorted(set(keys)), ownerId=owner_id)


async def attempts(tx: Transaction, item: str = "", *, least: int = 1) -> list[Attempts]:
    """Return the attempts at an item, or at all; the latest last."""
    found = await tx.found(STATEMENTS["attempts"], item=item, least=least)
    return shapes.records(tx, Attempts, found)


async def keep_attempts(tx: Transaction, attempts: Attempts) -> None:
    """Store these attempts, in place of earlier ones at their item."""
    kept = shapes.properties(attempts)
    await tx.run(STATEMENTS["keep_attempts"], item=attempts.item, properties=kept)


async def forget_attempts(tx: Transaction, session_id: str, item: str = "") -> None:
    """Let one item of a session be tried again, or all of them."""
    await tx.run(STATEMENTS["forget_attempts"], sessionId=session_id, item=clean(item))
