"""Vectors in the database.

Those of turns and summaries are packed, each at a place in the range of its project. The small
vectors of memories and of sessions' summaries, one for each, are stored as given.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from ragmem.records import MEMORY_LEVEL, SESSION_LEVEL, TURN_LEVEL, EmbedderMark, PutVectors
from ragmem.similarity import Similarities, VectorCache, Version, packed, unpacked
from ragmem.store.sqlite.connection import Database, value
from ragmem.store.sqlite.read import AMONG_IDS

_PLACE_BITS = 40
"""Bits of a vector's place below the project's number."""
_BATCH = 4096
_WITHOUT = "NOT EXISTS (SELECT 1 FROM small_vectors WHERE level = {level} AND record_id = {key})"
MEMORY_TO_EMBED = f"(superseded_by IS NULL AND {_WITHOUT.format(level=-1, key='memory_id')})"
"""Whether a memory is pending for a vector."""
SESSION_TO_EMBED = (
    f"(coalesce(summary, '') <> '' AND {_WITHOUT.format(level=-2, key='session_id')})"
)
"""Whether a session is pending for a vector."""
_HOLDERS = {
    MEMORY_LEVEL: ("memories", "memory_id", "TRUE"),
    SESSION_LEVEL: ("sessions", "session_id", "summary <> ''"),
}
"""The records with a small vector, by level: table, key, and condition on its rows."""


def embedder(db: Database) -> EmbedderMark | None:
    """Return the embedder of the stored vectors; None before there are any."""
    model_id, dimension = db.get("SELECT model_id, dimension FROM recall_state") or (None, 0)
    return None if model_id is None else EmbedderMark(model_id, dimension)


def use_embedder(db: Database, mark: EmbedderMark) -> None:
    """Drop the vectors of another embedder, so that all are pending."""
    if embedder(db) == mark:
        return
    db.execute(
        """
        DELETE FROM vectors;
        DELETE FROM small_vectors;
        UPDATE project_numbers SET epoch = epoch + 1;
        UPDATE documents SET to_embed = 1 WHERE NOT to_embed AND (
            level > 0 OR record_id IN (SELECT turn_id FROM turns WHERE status = 'completed')
        );
        UPDATE memories SET to_embed = 1 WHERE NOT to_embed AND superseded_by IS NULL;
        UPDATE sessions SET to_embed = 1 WHERE NOT to_embed AND summary <> ''
        """
    )
    memories_changed(db)
    db.query(
        "UPDATE recall_state SET model_id = :model_id, dimension = :dimension",
        model_id=mark.model_id,
        dimension=mark.dimension,
    )


def put(db: Database, write: PutVectors) -> None:
    """Write a record's vectors, unless they are of another embedder, or there is no such record."""
    mark = embedder(db)
    sizes = {len(vector) for vector in write.vectors}
    if mark is None or mark.model_id != write.embedder or sizes - {4 * mark.dimension}:
        return
    if write.level < TURN_LEVEL:
        _put_small(db, write)
        return
    held = db.get(
        """
        SELECT document, number FROM documents AS d WHERE record_id = :id AND (
            level > 0 OR EXISTS (
                SELECT 1 FROM turns WHERE turn_id = :id AND status = 'completed'
            )
        )
        """,
        id=write.record_id,
    )
    if held is None:
        return
    document, number = held
    before = db.get("SELECT text_hash, packed FROM vectors WHERE document = :id", id=document)
    pack = packed(write.vectors)
    if before == (write.text_hash, pack):
        return
    remove(db, [document])
    _add(db, number, [(document, write.text_hash, pack)])
    db.query("UPDATE documents SET to_embed = 0 WHERE document = :id", id=document)


def _add(db: Database, number: int, held: Sequence[tuple[int, str, bytes]]) -> None:
    """Append packed vectors of documents, with the hashes of their texts, to a project's places."""
    first, last = _places(number)
    newest = db.get(
        "SELECT max(place) FROM vectors WHERE place BETWEEN :first AND :last",
        first=first,
        last=last,
    )
    for place, each in enumerate(held, first if newest is None else newest + 1):
        db.execute(
            "INSERT INTO vectors (place, document, text_hash, packed) VALUES (?, ?, ?, ?)",
            (place, *each),
        )


def move(db: Database, documents: Sequence[int], number: int) -> None:
    """Move the vectors of documents to another project's places."""
    held = "SELECT document, text_hash, packed FROM vectors"
    found = db.tuples(f"{held} WHERE document {AMONG_IDS} ORDER BY place", ids=documents)
    remove(db, documents)
    _add(db, number, found)


def remove(db: Database, documents: Sequence[int]) -> None:
    """Remove the vectors of documents; caches of their projects become invalid."""
    removed = f"DELETE FROM vectors WHERE document {AMONG_IDS} RETURNING place"
    for number in {place >> _PLACE_BITS for place in db.column(removed, ids=documents)}:
        db.query("UPDATE project_numbers SET epoch = epoch + 1 WHERE number = :id", id=number)


def vectors_of(db: Database, ids: Sequence[str]) -> list[PutVectors]:
    """Return the vectors of those records that have some, in this order."""
    mark = embedder(db)
    if mark is None:
        return []
    found = db.tuples(
        """
        SELECT chosen.key AS place, d.record_id, d.level, v.text_hash, v.packed
        FROM json_each(:ids) AS chosen
        JOIN documents AS d ON d.record_id = chosen.value
        JOIN vectors AS v ON v.document = d.document
        UNION ALL
        SELECT chosen.key, v.record_id, v.level, v.text_hash, v.vector
        FROM json_each(:ids) AS chosen JOIN small_vectors AS v ON v.record_id = chosen.value
        WHERE v.level IN (-1, -2)
        ORDER BY place
        """,
        ids=ids,
    )
    return [
        PutVectors(
            record_id=record_id,
            level=level,
            embedder=mark.model_id,
            text_hash=text_hash,
            vectors=unpacked(held, mark.dimension) if level >= 0 else tuple(filter(None, [held])),
        )
        for _, record_id, level, text_hash, held in found
    ]


# --- of memories and sessions ------------------------------------------------------------


def small_vectors(
    db: Database, record_ids: Sequence[str], level: int, embedder: str
) -> dict[str, bytes]:
    """Return vectors of memories or sessions, by id, of those that have one of this embedder."""
    found = db.tuples(
        "SELECT record_id, vector FROM small_vectors WHERE level = :level AND vector <> x''"
        f" AND record_id {AMONG_IDS} AND :embedder = (SELECT model_id FROM recall_state)",
        ids=record_ids,
        level=level,
        embedder=embedder,
    )
    return dict(found)


def memories_changed(db: Database) -> None:
    """Count up the revision of memories, once per transaction, to invalidate what was read."""
    db.execute("UPDATE recall_state SET memories_revision = memories_revision + 1")


def _put_small(db: Database, write: PutVectors) -> None:
    if write.level not in _HOLDERS or len(write.vectors) > 1:
        return
    table, key, condition = _HOLDERS[write.level]
    db.query(
        f"UPDATE {table} SET to_embed = 0 WHERE {key} = :id AND {condition}", id=write.record_id
    )
    if db.changes():
        row = {
            "level": write.level,
            "record_id": value(write.record_id),
            "text_hash": write.text_hash,
        }
        db.put("small_vectors", row | {"vector": b"".join(write.vectors)}, "level, record_id")


def remove_small(db: Database, level: int, record_id: str) -> None:
    """Remove the vector of a memory or session that is deleted, or whose text changed."""
    held = "DELETE FROM small_vectors WHERE level = :level AND record_id = :id"
    db.query(held, level=level, id=record_id)


def mark_memory(db: Database, memory_id: str) -> None:
    """Update whether a memory is pending for a vector."""
    of = "WHERE memory_id = :id"
    db.query(f"UPDATE memories SET to_embed = {MEMORY_TO_EMBED} {of}", id=memory_id)


def summary_of(db: Database, session_id: str) -> str | None:
    """Return a session's summary, to pass to `summary_written` once it was written."""
    summary: str | None = db.get(
        "SELECT summary FROM sessions WHERE session_id = :id", id=session_id
    )
    return summary


def summary_written(db: Database, session_id: str, before: str | None = None) -> None:
    """Drop a session's vector if its summary is no longer `before`; a new one is pending then."""
    if summary_of(db, session_id) != before:
        remove_small(db, SESSION_LEVEL, session_id)
    db.query(
        f"UPDATE sessions SET to_embed = {SESSION_TO_EMBED} WHERE session_id = :id"
        f" AND to_embed <> {SESSION_TO_EMBED}",
        id=session_id,
    )


# --- searching ----------------------------------------------------------------------------


def _places(number: int) -> tuple[int, int]:
    """Return the first and the last place of a project."""
    return number << _PLACE_BITS, (number + 1 << _PLACE_BITS) - 1


def similarities(
    db: Database, cache: VectorCache, number: int, vector: bytes, mark: EmbedderMark
) -> Iterator[Similarities]:
    """Yield the cosines of a project's documents with a vector, in parts."""
    epoch = db.get("SELECT epoch FROM project_numbers WHERE number = :number", number=number)
    first, last = _places(number)

    def read(place: int) -> Iterator[tuple[list[int], list[bytes], int]]:
        cursor = db.query(
            "SELECT place, document, packed FROM vectors WHERE place > :place AND place <= :last"
            " ORDER BY place",
            place=place,
            last=last,
        )
        while rows := list(islice(cursor, _BATCH)):
            places, documents, packs = zip(*rows, strict=True)
            yield list(documents), list(packs), places[-1]

    version = Version(mark.model_id, mark.dimension, epoch)
    return cache.similarities(number, version, vector, read, start=first - 1)
