"""Rows of the text index, kept in step with what is stored.

Terms are those of `ragmem.terms`, each with the project's number: one project's are as
fast to find, and as rare, as if it were alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw
import msgspec

from ragmem.records import FinishTurn, PutTurn, RecordToolCall, Summary, Write
from ragmem.store.sqlite import words
from ragmem.store.sqlite.rows import Row, record
from ragmem.store.sqlite.words import Words
from ragmem.text import clean

TERMS = 2
"""`TERMS_VERSION`, which a test compares: to import it takes a quarter of a database's opening."""
PLACE_BITS = 40
"""Of a vector's place, below the project's number."""
_PURGED_PAGES = 500
_BY_TIME = "CREATE INDEX IF NOT EXISTS documents_by_time ON documents (number, at) WHERE level = 0"
"""Of 0003_recall.sql, which had none at first."""


class Prepared(NamedTuple):
    """A turn's words, computed before the transaction: valid while nothing else has changed."""

    words: Words
    data_version: int


# --- turns and summaries ---------------------------------------------------------------


def prepare(
    connection: apsw.Connection, write: FinishTurn, others: Sequence[Write]
) -> Prepared | None:
    """The words of a turn that is to end, while no lock is held; None when others change it too."""
    if any(other is not write and _turn_of(other) == write.turn_id for other in others):
        return None
    version = _data_version(connection)
    for turn in words.turns(connection, [write.turn_id]):
        ended = msgspec.structs.replace(turn, assistant_message=clean(write.assistant_message))
        return Prepared(words.words_of_turn(ended), version)
    return None


def _turn_of(write: Write) -> str | None:
    match write:
        case RecordToolCall(call=call):
            return call.turn_id
        case PutTurn(turn=turn):
            return turn.turn_id
    return getattr(write, "turn_id", None)


def turn_changed(
    connection: apsw.Connection,
    turn_id: str,
    prepared: Prepared | Words | None = None,
    *,
    keep_vectors: bool = False,
) -> None:
    """Bring the turn's document in step, in the transaction that changed it."""
    held = connection.execute(
        "SELECT status, session_id, turn_index, started_at FROM turns WHERE turn_id = ?",
        (turn_id,),
    ).fetchone()
    if held is None or held[0] == "running":
        return
    status, session_id, turn_index, at = held
    if isinstance(prepared, Prepared):
        valid = prepared.data_version == _data_version(connection)
        prepared = prepared.words if valid else None
    if prepared is None:
        [turn] = words.turns(connection, [turn_id])
        prepared = words.words_of_turn(turn)
    _put(
        connection,
        {
            "record_id": turn_id,
            "session_id": session_id,
            "level": 0,
            "turn_index": turn_index,
            "at": at,
            "complete": status == "completed",
        },
        prepared,
        keep_vectors=keep_vectors,
    )


def summary_changed(
    connection: apsw.Connection, row: Row, found_by: Words, *, keep_vectors: bool = False
) -> None:
    """The same for a summary, of which the row is given."""
    _put(
        connection,
        {name: row[name] for name in ("session_id", "level")}
        | {"record_id": row["summary_id"], "turn_index": 0, "at": row["created_at"]}
        | {"complete": True},
        found_by,
        keep_vectors=keep_vectors,
    )
    covers = "covered_id FROM summarized_turns WHERE summary_id = :summary_id"
    if row["level"] != 1:
        covers = "covered_id FROM summarized_summaries WHERE summary_id = :summary_id"
        connection.execute(
            "UPDATE documents SET to_roll_up = 0"
            f" WHERE to_roll_up AND session_id = :session_id AND record_id IN (SELECT {covers})",
            row,
        )
    elif not row["extractive"]:
        connection.execute(
            "UPDATE documents SET to_summarize = 0"
            f" WHERE to_summarize AND record_id IN (SELECT {covers})",
            row,
        )


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


def _put(
    connection: apsw.Connection, row: Row, found_by: Words, *, keep_vectors: bool = False
) -> None:
    """Write a record's document, or bring it in step; vectors are of what it said before."""
    known = connection.execute(
        "SELECT document, digest FROM documents WHERE record_id = :record_id", row
    ).fetchone()
    row |= {"term_count": found_by.length, "digest": found_by.digest}
    if known is None:
        last: int | None = connection.execute("SELECT max(document) FROM documents").get
        sequence = words.sequence_of(last or 0) + 1
        row["document"] = words.numbered(sequence, int(row["level"] or 0), found_by.length)
        row["number"] = _number(connection, str(row["session_id"]))
        connection.execute(
            """
            INSERT INTO documents (
                document, record_id, session_id, number, level, turn_index, at, term_count, digest,
                to_embed, to_summarize, to_roll_up
            )
            VALUES (
                :document, :record_id, :session_id, :number, :level, :turn_index, :at, :term_count,
                :digest, 0, 0, 0
            )
            """,
            row,
        )
        _count(connection, row, 1)
        _index(connection, row, found_by)
    elif known[1] == found_by.digest:
        row["document"] = known[0]
    else:
        row["old"] = known[0]
        if not keep_vectors:
            remove_vectors(connection, known[0])
        _unindex(connection, known[0])
        row["document"] = words.numbered(
            words.sequence_of(known[0]), int(row["level"] or 0), found_by.length
        )
        row["number"] = connection.execute(
            """
            UPDATE documents SET document = :document, term_count = :term_count, digest = :digest
            WHERE document = :old RETURNING number
            """,
            row,
        ).get
        connection.execute("UPDATE vectors SET document = :document WHERE document = :old", row)
        _count(connection, row, 1)
        _index(connection, row, found_by)
    connection.execute(
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


def _index(connection: apsw.Connection, row: Row, found_by: Words) -> None:
    marked = f"{found_by.text} ".replace(" ", f"|{row['number']} ") if found_by.text else ""
    connection.execute("INSERT INTO texts (rowid, terms) VALUES (?, ?)", (row["document"], marked))


def _unindex(connection: apsw.Connection, document: int) -> None:
    connection.execute("DELETE FROM texts WHERE rowid = ?", (document,))
    held = "SELECT number, term_count FROM documents WHERE document = ?"
    number, term_count = connection.execute(held, (document,)).fetchall()[0]
    _count(connection, {"number": number, "term_count": term_count}, -1)


def _count(connection: apsw.Connection, row: Row, more: int) -> None:
    connection.execute(
        """
        UPDATE project_numbers SET
            document_count = document_count + :more,
            term_count = term_count + :more * :term_count
        WHERE number = :number
        """,
        {"more": more, "number": row["number"], "term_count": row["term_count"]},
    )


def _number(connection: apsw.Connection, session_id: str) -> int:
    """Of the session's project."""
    known = """
        SELECT number FROM project_numbers JOIN sessions USING (project_id) WHERE session_id = ?
    """
    number: int | None = connection.execute(known, (session_id,)).get
    if number is None:
        connection.execute(
            "INSERT INTO project_numbers (project_id)"
            " SELECT project_id FROM sessions WHERE session_id = ?",
            (session_id,),
        )
        number = connection.last_insert_rowid()
    return number


def remove_session(connection: apsw.Connection, session_id: str) -> None:
    """Take a session's documents out of the index, with their vectors."""
    found = connection.execute("SELECT document FROM documents WHERE session_id = ?", (session_id,))
    for document in [int(str(each)) for (each,) in found]:
        remove_vectors(connection, document)
        _unindex(connection, document)
        connection.execute("DELETE FROM documents WHERE document = ?", (document,))


def purge(connection: apsw.Connection) -> None:
    """Rewrite the index without what was removed: until then its words stay in the file.

    In steps, each a short transaction of its own.
    """
    connection.execute("INSERT INTO texts (texts, rank) VALUES ('merge', ?)", (-_PURGED_PAGES,))
    while True:
        before = connection.total_changes()
        connection.execute("INSERT INTO texts (texts, rank) VALUES ('merge', ?)", (_PURGED_PAGES,))
        # So SQLite's documentation tells that there is nothing left to merge.
        if connection.total_changes() - before < 2:
            return


def remove_vectors(connection: apsw.Connection, document: int) -> None:
    """Take a document's vectors away, if it has any; whoever holds them in memory reads anew."""
    place: int | None = connection.execute(
        "DELETE FROM vectors WHERE document = ? RETURNING place", (document,)
    ).get
    if place is not None:
        connection.execute(
            "UPDATE project_numbers SET epoch = epoch + 1 WHERE number = ?", (place >> PLACE_BITS,)
        )


# --- reading ---------------------------------------------------------------------------


def _data_version(connection: apsw.Connection) -> int:
    return int(str(connection.pragma("data_version")))


# --- all of it -------------------------------------------------------------------------


def are_old(connection: apsw.Connection) -> bool:
    """Whether the index has terms as an earlier version made them."""
    known = connection.execute("SELECT terms_version FROM recall_state").get
    return known is None or int(known) < TERMS


def build(connection: apsw.Connection) -> None:
    """Make all that is there findable, in the terms of this version; vectors are kept."""
    if not are_old(connection):
        return
    connection.execute(_BY_TIME)
    ended = "SELECT turn_id FROM turns WHERE status <> 'running' ORDER BY rowid"
    for turn_ids in words.batches([str(each) for (each,) in connection.execute(ended)]):
        for turn in words.turns(connection, turn_ids):
            turn_changed(connection, turn.turn_id, words.words_of_turn(turn), keep_vectors=True)
    lower_first = "SELECT summary_id FROM summaries ORDER BY level, rowid"
    ids = [str(each) for (each,) in connection.execute(lower_first)]
    for row in words.summary_rows(connection, ids):
        found_by = words.words_of_summary(record(Summary, row))
        summary_changed(connection, row, found_by, keep_vectors=True)
    # Other processes hold vectors by documents that may bear another number now.
    connection.execute("UPDATE project_numbers SET epoch = epoch + 1")
    connection.execute(
        "INSERT INTO recall_state (only, terms_version) VALUES (1, :version)"
        " ON CONFLICT DO UPDATE SET terms_version = :version",
        {"version": TERMS},
    )
