"""Vectors of memories and of sessions' summaries: one each, kept as it was given."""

from collections.abc import Sequence

import apsw

from ragmem.records import MEMORY_LEVEL, SESSION_LEVEL, PutVectors
from ragmem.store.sqlite.rows import value

_MEMORY = "FROM memories WHERE memory_id = ?"
_SESSION = "FROM sessions WHERE session_id = ? AND summary <> ''"
HELD: dict[int, str] = {MEMORY_LEVEL: _MEMORY, SESSION_LEVEL: _SESSION}
"""What has one, by level."""
_WITHOUT = "NOT EXISTS (SELECT 1 FROM small_vectors WHERE level = {level} AND record_id = {key})"
MEMORY_TO_EMBED = f"(superseded_by IS NULL AND {_WITHOUT.format(level=-1, key='memory_id')})"
"""Whether a memory waits for one."""
SESSION_TO_EMBED = (
    f"(coalesce(summary, '') <> '' AND {_WITHOUT.format(level=-2, key='session_id')})"
)
"""Whether a session does."""


def memories_changed(connection: apsw.Connection) -> None:
    """Tell those who hold memories: once in a transaction that changes some."""
    connection.execute("UPDATE recall_state SET memories_revision = memories_revision + 1")


def put(connection: apsw.Connection, write: PutVectors) -> None:
    """Write it, in the place of another; left out where nothing can have it."""
    record_id = value(write.record_id)
    if write.level not in HELD or len(write.vectors) > 1:
        return
    if connection.execute(f"SELECT 1 {HELD[write.level]}", (record_id,)).get is None:
        return
    connection.execute(
        """
        INSERT INTO small_vectors (level, record_id, text_hash, vector) VALUES (?, ?, ?, ?)
        ON CONFLICT (level, record_id) DO UPDATE SET
            text_hash = excluded.text_hash, vector = excluded.vector
        """,
        (write.level, record_id, value(write.text_hash), b"".join(write.vectors)),
    )
    for table, key, level in (
        ("memories", "memory_id", MEMORY_LEVEL),
        ("sessions", "session_id", SESSION_LEVEL),
    ):
        if level == write.level:
            connection.execute(f"UPDATE {table} SET to_embed = 0 WHERE {key} = ?", (record_id,))


def drop_all(connection: apsw.Connection) -> None:
    """They are another embedder's: all wait again."""
    connection.execute("DELETE FROM small_vectors")
    memories_changed(connection)
    connection.execute(
        "UPDATE memories SET to_embed = 1 WHERE NOT to_embed AND superseded_by IS NULL"
    )
    connection.execute("UPDATE sessions SET to_embed = 1 WHERE NOT to_embed AND summary <> ''")


def remove(connection: apsw.Connection, level: int, record_id: str) -> None:
    """Of what goes, or says something else."""
    connection.execute(
        "DELETE FROM small_vectors WHERE level = ? AND record_id = ?", (level, record_id)
    )


def mark_memory(connection: apsw.Connection, memory_id: str) -> None:
    """Bring in step whether it waits."""
    connection.execute(
        f"UPDATE memories SET to_embed = {MEMORY_TO_EMBED} WHERE memory_id = ?", (memory_id,)
    )


def mark_session(connection: apsw.Connection, session_id: object) -> None:
    """The same for a session."""
    connection.execute(
        f"UPDATE sessions SET to_embed = {SESSION_TO_EMBED} WHERE session_id = ?"
        f" AND to_embed <> {SESSION_TO_EMBED}",
        (session_id,),
    )


def summary_of(connection: apsw.Connection, session_id: object) -> object:
    """To be compared once the session was written: see `summary_written`."""
    return connection.execute(
        "SELECT summary FROM sessions WHERE session_id = ?", (session_id,)
    ).get


def summary_written(connection: apsw.Connection, session_id: object, before: object) -> None:
    """A session's vector goes where its summary is another one, and it waits for a new one."""
    if summary_of(connection, session_id) != before:
        remove(connection, SESSION_LEVEL, str(session_id))
    mark_session(connection, session_id)


def of(connection: apsw.Connection, record_ids: Sequence[str], level: int) -> dict[str, bytes]:
    """By id, of those that have one."""
    found = connection.execute(
        "SELECT record_id, vector FROM small_vectors WHERE level = ? AND vector <> x''"
        " AND record_id IN (SELECT value FROM json_each(?))",
        (level, value(tuple(record_ids))),
    )
    return {str(record_id): bytes(vector) for record_id, vector in found}
