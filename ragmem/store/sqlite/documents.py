"""The words and the vectors that records are found by, updated together with them.

Terms are those of `ragmem.terms`, each with the project's number appended, so that in one project
they are as fast to find, and as rare, as if it were alone. A document's number consists of a
sequence number, three bits of its level (7 for 7 and up) and eight bits of its length: what a
search reads of the index is all that it needs to compute BM25.

The vectors of turns and summaries are packed, each at a place in the range of its project. The
small vectors of memories and of sessions' summaries, one for each, are stored as given.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ragmem.records import (
    MEMORY_LEVEL,
    SESSION_LEVEL,
    TURN_LEVEL,
    EmbedderMark,
    PutVectors,
    Summary,
    Turn,
)
from ragmem.similarity import (
    LENGTH_BITS,
    MOST_OF_A_TERM,
    Similarities,
    VectorCache,
    Version,
    capped,
    packed,
    unpacked,
    with_length,
)
from ragmem.store import batches
from ragmem.store.sqlite.connection import Database, Row, columns, value
from ragmem.store.sqlite.read import AMONG_IDS, summaries_by_id, turns_by_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    D = TypeVar("D", int, NDArray[np.int64])

TERMS = 4
"""Equal to `TERMS_VERSION`, by a test: importing that takes a quarter of a database's opening."""
_LEVEL_BITS = 3
HIGHEST = (1 << _LEVEL_BITS) - 1
"""The highest level in a document's number, which stands for those above too."""
_BATCH = 100
"""Records held in memory at a time, with their texts."""
_PURGED_PAGES = 500
TO_SUMMARIZE = """
    NOT EXISTS (
        SELECT 1 FROM summarized_turns AS l JOIN summaries AS s USING (summary_id)
        WHERE l.covered_id = documents.record_id AND NOT s.extractive
    )
"""
TO_ROLL_UP = """
    NOT EXISTS (
        SELECT 1 FROM summarized_summaries AS l JOIN summaries AS s USING (summary_id)
        WHERE l.covered_id = documents.record_id AND s.session_id = documents.session_id
    )
"""


# --- words and numbers --------------------------------------------------------------------


class Words(NamedTuple):
    """Index terms of a record, joined with spaces; `length` counts them all."""

    text: str
    length: int

    @property
    def digest(self) -> int:
        """A 63-bit hash that identifies the words."""
        hashed = hashlib.blake2b(self.text.encode(), digest_size=8).digest()
        return int.from_bytes(hashed, "big") >> 1


def words_of(found: Turn | Summary) -> Words:
    """Return the words that a turn or a summary is found by."""
    from ragmem.terms import summary_terms, turn_terms

    terms = turn_terms(found) if isinstance(found, Turn) else summary_terms(found)
    is_capped = max(Counter(terms).values(), default=0) > MOST_OF_A_TERM
    return Words(" ".join(capped(terms) if is_capped else terms), len(terms))


def level_of(document: "D") -> "D":
    """Return the record's level, at most `HIGHEST`; takes an array too."""
    return document >> LENGTH_BITS & HIGHEST


def document_number(sequence: int, level: int, length: int) -> int:
    """Return the document number of these parts."""
    return with_length(sequence << _LEVEL_BITS | min(level, HIGHEST), length)


def sequence_of(document: int) -> int:
    """Return the document's sequence number, which grows with each new document."""
    return document >> _LEVEL_BITS + LENGTH_BITS


# --- updates with the records ---------------------------------------------------------------


def turn_changed(
    db: Database, turn_id: str, words: Words | None = None, *, keep_vectors: bool = False
) -> None:
    """Update the turn's document, in the transaction that changed the turn."""
    row = next(
        db.rows(
            "SELECT turn_id AS record_id, session_id, 0 AS level, turn_index, started_at AS at,"
            " status = 'completed' AS complete FROM turns"
            " WHERE turn_id = :id AND status <> 'running'",
            id=turn_id,
        ),
        None,
    )
    if row is None:
        return
    if words is None:
        [turn] = turns_by_id(db, [turn_id])
        words = words_of(turn)
    _put(db, row, words, keep_vectors=keep_vectors)


def summary_changed(db: Database, summary: Summary, *, keep_vectors: bool = False) -> None:
    """Update the summary's document, in the transaction that changed the summary."""
    row = columns(summary)
    document = {name: row[name] for name in ("session_id", "level")} | {
        "record_id": row["summary_id"]
    }
    document |= {"turn_index": 0, "at": row["created_at"], "complete": True}
    _put(db, document, words_of(summary), keep_vectors=keep_vectors)
    if summary.level != 1 or not summary.extractive:
        flag, links = (
            ("to_summarize", "turns") if summary.level == 1 else ("to_roll_up", "summaries")
        )
        db.execute(
            f"""
            UPDATE documents SET {flag} = 0
            WHERE {flag} AND (level = 0 OR session_id = :session_id) AND record_id IN (
                SELECT covered_id FROM summarized_{links} WHERE summary_id = :summary_id
            )
            """,
            row,
        )


def _put(db: Database, row: Row, words: Words, *, keep_vectors: bool) -> None:
    """Write or update a record's document; its vectors are dropped when its words changed."""
    known = db.get(
        "SELECT document, digest, number FROM documents WHERE record_id = :id", id=row["record_id"]
    )
    last = known[0] if known else db.get("SELECT max(document) FROM documents") or 0
    sequence = sequence_of(last) + (0 if known else 1)
    row |= {"document": document_number(sequence, row["level"], words.length)}
    row |= {"term_count": words.length, "digest": words.digest}
    if known is None:
        row["number"] = _project_number(db, row["session_id"])
        flags = {"to_embed": 0, "to_summarize": 0, "to_roll_up": 0}
        held = {name: each for name, each in row.items() if name != "complete"}
        db.put("documents", held | flags, "record_id")
    elif known[1] == words.digest:
        row["document"] = known[0]
    else:
        row |= {"old": known[0], "number": known[2]}
        if not keep_vectors:
            _remove_vectors(db, known[:1])
        _unindex(db, known[:1])
        db.execute(
            "UPDATE documents SET document = :document, term_count = :term_count, digest = :digest"
            " WHERE document = :old",
            row,
        )
        db.execute("UPDATE vectors SET document = :document WHERE document = :old", row)
    if known is None or known[1] != words.digest:
        _index(db, row["number"], [(row["document"], words)])
    db.execute(
        f"""
        UPDATE documents SET
            at = :at,
            to_embed = :complete AND document NOT IN (SELECT document FROM vectors),
            to_summarize = level = 0 AND :complete AND {TO_SUMMARIZE},
            to_roll_up = level > 0 AND {TO_ROLL_UP}
        WHERE document = :document
        """,
        row,
    )


def _index(db: Database, number: int, documents: Sequence[tuple[int, Words]]) -> None:
    for document, words in documents:
        marked = f"{words.text} ".replace(" ", f"|{number} ") if words.text else ""
        db.execute("INSERT INTO texts (rowid, terms) VALUES (?, ?)", (document, marked))
    _add_counts(db, number, len(documents), sum(words.length for _, words in documents))


def _unindex(db: Database, documents: Sequence[int]) -> None:
    db.query(f"DELETE FROM texts WHERE rowid {AMONG_IDS}", ids=documents)
    held = (
        "SELECT number, count(*), sum(term_count) FROM documents"
        f" WHERE document {AMONG_IDS} GROUP BY number"
    )
    for number, count, term_count in db.tuples(held, ids=documents):
        _add_counts(db, number, -count, -term_count)


def _add_counts(db: Database, number: int, documents: int, terms: int) -> None:
    db.query(
        "UPDATE project_numbers SET document_count = document_count + :documents,"
        " term_count = term_count + :terms WHERE number = :number",
        documents=documents,
        terms=terms,
        number=number,
    )


def _project_number(db: Database, session_id: str) -> int:
    known = (
        "SELECT number FROM project_numbers JOIN sessions USING (project_id) WHERE session_id = :id"
    )
    number: int | None = db.get(known, id=session_id)
    if number is None:
        db.query(
            "INSERT INTO project_numbers (project_id)"
            " SELECT project_id FROM sessions WHERE session_id = :id",
            id=session_id,
        )
        return db.last_insert_rowid()
    return number


def move_session(db: Database, session_id: str) -> None:
    """Move a session's documents, with their vectors, to the number of its current project."""
    number = _project_number(db, session_id)
    ids = f"SELECT record_id FROM documents WHERE session_id = :id AND number <> {number}"
    for part in batches(db.column(ids, id=session_id), _BATCH):
        held = f"SELECT record_id, document FROM documents WHERE record_id {AMONG_IDS}"
        documents = dict(db.tuples(held, ids=part))
        found: list[Turn | Summary] = [*turns_by_id(db, part), *summaries_by_id(db, part)]
        words = [(documents[each.uuid], words_of(each)) for each in found]
        moved = list(documents.values())
        _move_vectors(db, moved, number)
        _unindex(db, moved)
        db.query(
            f"UPDATE documents SET number = :number WHERE document {AMONG_IDS}",
            number=number,
            ids=moved,
        )
        _index(db, number, words)


def remove_session(db: Database, session_id: str) -> None:
    """Remove a session's documents from the index, with their vectors."""
    documents = db.column("SELECT document FROM documents WHERE session_id = :id", id=session_id)
    _remove_vectors(db, documents)
    _unindex(db, documents)
    db.query(f"DELETE FROM documents WHERE document {AMONG_IDS}", ids=documents)


def purge(db: Database) -> None:
    """Rewrite the index without what was removed: until then the words stay in the file.

    Done in steps, each a short transaction of its own.
    """
    merge = "INSERT INTO texts (texts, rank) VALUES ('merge', :pages)"
    db.query(merge, pages=-_PURGED_PAGES)
    while True:
        before = db.total_changes()
        db.query(merge, pages=_PURGED_PAGES)
        # By SQLite's documentation this means that there is nothing left to merge.
        if db.total_changes() - before < 2:
            return


# --- the whole index ------------------------------------------------------------------------


def is_old(db: Database) -> bool:
    """Whether the index was built with the terms of an earlier version."""
    return (db.get("SELECT terms_version FROM recall_state") or 0) < TERMS


def build(db: Database) -> None:
    """Index all records with the terms of this version, if they are not; vectors are kept."""
    if not is_old(db):
        return
    # This index was added to 0003_recall.sql later.
    db.execute(
        "CREATE INDEX IF NOT EXISTS documents_by_time ON documents (number, at) WHERE level = 0"
    )
    from ragmem.terms import WITHOUT_PREAMBLES

    of_all = db.get("SELECT terms_version FROM recall_state") != WITHOUT_PREAMBLES
    turns = """
        SELECT turn_id FROM turns WHERE status <> 'running' AND (:of_all OR EXISTS (
            SELECT 1 FROM tool_calls AS c WHERE c.turn_id = turns.turn_id AND preamble <> ''
        ))
        ORDER BY rowid
    """
    summaries = "SELECT summary_id FROM summaries WHERE :of_all ORDER BY level, rowid"
    for query in (turns, summaries):
        for ids in batches(db.column(query, of_all=of_all), _BATCH):
            _index_records(db, ids)
    # Caches of other processes have vectors by document numbers, which may have changed.
    db.execute("UPDATE project_numbers SET epoch = epoch + 1")
    db.query(
        "INSERT INTO recall_state (only, terms_version) VALUES (1, :version)"
        " ON CONFLICT DO UPDATE SET terms_version = :version",
        version=TERMS,
    )


def catch_up(db: Database) -> None:
    """Index the latest records that are not in the index.

    A chat of a version without this index writes such, if it is open while a newer version runs.
    """
    lacking = f"""
        SELECT record_id FROM (
            SELECT * FROM (
                SELECT turn_id AS record_id FROM turns WHERE status <> 'running'
                ORDER BY rowid DESC LIMIT {_BATCH}
            ) UNION ALL SELECT * FROM (
                SELECT summary_id FROM summaries ORDER BY rowid DESC LIMIT {_BATCH}
            )
        ) WHERE record_id NOT IN (SELECT record_id FROM documents)
    """
    _index_records(db, db.column(lacking))


def _index_records(db: Database, ids: Sequence[str]) -> None:
    for turn in turns_by_id(db, ids):
        turn_changed(db, turn.turn_id, words_of(turn), keep_vectors=True)
    for summary in summaries_by_id(db, ids):
        summary_changed(db, summary, keep_vectors=True)


# --- vectors ----------------------------------------------------------------------------

_PLACE_BITS = 40
"""Bits of a vector's place below the project's number."""
_VECTORS_AT_ONCE = 4096
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


def put_vectors(db: Database, write: PutVectors) -> None:
    """Write a record's vectors, unless they are of another embedder, or there is no such record."""
    mark = embedder(db)
    sizes = {len(vector) for vector in write.vectors}
    if mark is None or mark.model_id != write.embedder or sizes - {4 * mark.dimension}:
        return
    if write.level < TURN_LEVEL:
        _put_small_vector(db, write)
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
    _remove_vectors(db, [document])
    _add_vectors(db, number, [(document, write.text_hash, pack)])
    db.query("UPDATE documents SET to_embed = 0 WHERE document = :id", id=document)


def _add_vectors(db: Database, number: int, held: Sequence[tuple[int, str, bytes]]) -> None:
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


def _move_vectors(db: Database, documents: Sequence[int], number: int) -> None:
    """Move the vectors of documents to another project's places."""
    held = "SELECT document, text_hash, packed FROM vectors"
    found = db.tuples(f"{held} WHERE document {AMONG_IDS} ORDER BY place", ids=documents)
    _remove_vectors(db, documents)
    _add_vectors(db, number, found)


def _remove_vectors(db: Database, documents: Sequence[int]) -> None:
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


# --- vectors of memories and sessions ------------------------------------------------------------


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


def _put_small_vector(db: Database, write: PutVectors) -> None:
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


def remove_small_vector(db: Database, level: int, record_id: str) -> None:
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
        remove_small_vector(db, SESSION_LEVEL, session_id)
    db.query(
        f"UPDATE sessions SET to_embed = {SESSION_TO_EMBED} WHERE session_id = :id"
        f" AND to_embed <> {SESSION_TO_EMBED}",
        id=session_id,
    )


# --- comparing vectors ----------------------------------------------------------------------------


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
        while rows := list(islice(cursor, _VECTORS_AT_ONCE)):
            places, documents, packs = zip(*rows, strict=True)
            yield list(documents), list(packs), places[-1]

    version = Version(mark.model_id, mark.dimension, epoch)
    return cache.similarities(number, version, vector, read, start=first - 1)
