"""Counts attempts that came to nothing, each with its item, so that no process begins anew."""

import apsw

from ragmem.store.sqlite.rows import value

_TABLE = """
    CREATE TABLE IF NOT EXISTS attempts (
        item TEXT PRIMARY KEY, session_id TEXT NOT NULL, model TEXT NOT NULL, count INTEGER NOT NULL
    ) WITHOUT ROWID
"""
"""It is made with the first attempt: a database without it has none."""
_IS_THERE = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'attempts'"


def count(connection: apsw.Connection, item: str, model: str) -> int:
    """Answers of this model about an item that could not be used."""
    if not connection.execute(_IS_THERE).get:
        return 0
    query = "SELECT count FROM attempts WHERE item = ? AND model = ?"
    return int(connection.execute(query, (value(item), value(model))).get or 0)


def add(connection: apsw.Connection, item: str, session_id: str, model: str) -> None:
    """One more; those of another model are forgotten."""
    connection.execute(_TABLE)
    connection.execute(
        "INSERT INTO attempts (item, session_id, model, count) VALUES (?, ?, ?, 1)"
        " ON CONFLICT (item) DO UPDATE SET model = excluded.model,"
        " count = CASE WHEN model = excluded.model THEN count + 1 ELSE 1 END",
        (value(item), value(session_id), value(model)),
    )


def forget(connection: apsw.Connection, session_id: str) -> None:
    """Those of a session: a person asks anew, or it is deleted."""
    if connection.execute(_IS_THERE).get:
        connection.execute("DELETE FROM attempts WHERE session_id = ?", (value(session_id),))
