"""Keeps answers that could not be used, each with its item, so that no process begins anew."""

import apsw

from ragmem.store.recall import Attempts
from ragmem.store.sqlite.rows import columns, record, rows, value

_TABLE = """
    CREATE TABLE IF NOT EXISTS refused (
        item TEXT PRIMARY KEY, session_id TEXT NOT NULL, model TEXT NOT NULL,
        count INTEGER NOT NULL, not_before TEXT NOT NULL, problem TEXT NOT NULL
    ) WITHOUT ROWID
"""
"""It is made with the first attempt: a database without it has none."""
_IS_THERE = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'refused'"


def read(connection: apsw.Connection, item: str, least: int) -> list[Attempts]:
    """Those about an item, or about any; the latest last."""
    if not connection.execute(_IS_THERE).get:
        return []
    query = (
        "SELECT * FROM refused WHERE count >= :least AND (:item = '' OR item = :item)"
        " ORDER BY not_before, item"
    )
    found = rows(connection, query, {"item": value(item), "least": least})
    return [record(Attempts, row) for row in found]


def keep(connection: apsw.Connection, attempts: Attempts) -> None:
    """In place of what was known of the item."""
    connection.execute(_TABLE)
    connection.execute(
        "INSERT OR REPLACE INTO refused (item, session_id, model, count, not_before, problem)"
        " VALUES (:item, :session_id, :model, :count, :not_before, :problem)",
        columns(attempts),
    )


def forget(connection: apsw.Connection, session_id: str, item: str = "") -> None:
    """Those of a session, or one of these: it is asked anew, is done, or is deleted."""
    if connection.execute(_IS_THERE).get:
        connection.execute(
            "DELETE FROM refused WHERE session_id = :session AND (:item = '' OR item = :item)",
            {"session": value(session_id), "item": value(item)},
        )
