"""Vectors as they are stored, the embedder that they are of, and what is still to be done."""

from collections.abc import Sequence
from functools import partial
from typing import get_args

from ragmem.records import MEMORY_LEVEL, Attempts, EmbedderMark, Pending, PutVectors, Work
from ragmem.store.neo4j import vectors
from ragmem.store.neo4j.entries import STATEMENTS, lock_vectors
from ragmem.store.neo4j.gateway import Gateway, Transaction, from_text, to_text
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean
from ragmem.vectors import packed, unpacked

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


async def vectors_of(tx: Transaction, record_ids: Sequence[str]) -> list[PutVectors]:
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
            STATEMENTS["vectors_of"], ids=record_ids
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
    await vectors.keep_indexes(gateway)
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


async def pending(
    tx: Transaction, work: Work, *, limit: int, session_id: str | None = None
) -> list[Pending]:
    """Work that nobody has leased, that of the latest activity first."""
    condition = "" if session_id is None else "AND e.sessionId = $sessionId"
    if work == "memories" and tx.sees:
        # What one person said is compared with what is known of them: by their own processes.
        condition += """
            AND EXISTS {
              MATCH (s:ConversationSession {sessionId: e.sessionId})
              WHERE coalesce(s.owner, $owner) = $owner
            }
            """
    statement = STATEMENTS[f"pending_{work}"].replace("/* session */", condition)
    if work == "references" and session_id is not None:
        statement = STATEMENTS["pending_references_of_session"]
    found = await tx.found(statement, limit=limit, sessionId=session_id, owner=tx.sees)
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
    return [
        Attempts(
            item=str(row["item"]),
            session_id=str(row["sessionId"]),
            model=str(row["model"]),
            count=int(row["count"]),
            not_before=from_text(str(row["notBefore"])),
            problem=str(row["problem"]),
        )
        for row in await tx.run(STATEMENTS["attempts"], item=clean(item), least=least)
    ]


async def keep_attempts(tx: Transaction, attempts: Attempts) -> None:
    """Keep these in place of what was known of their item."""
    await tx.run(
        STATEMENTS["keep_attempts"],
        item=clean(attempts.item),
        sessionId=attempts.session_id,
        model=clean(attempts.model),
        count=attempts.count,
        notBefore=to_text(attempts.not_before),
        problem=clean(attempts.problem),
    )


async def forget_attempts(tx: Transaction, session_id: str, item: str = "") -> None:
    """Let one item of a session be tried again, or all of them."""
    await tx.run(STATEMENTS["forget_attempts"], sessionId=session_id, item=clean(item))
