"""Stores that a test opens and that are closed when it ends, and SQL that goes past them."""

from pathlib import Path
from typing import Any

import apsw

from ragmem.store import Archive
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.neo4j import PATIENCE_S

_opened: list[Archive] = []


async def sqlite(home: Path, **given: Any) -> SQLiteStore:
    """The store in that folder, once more."""
    patient = {"timeout_s": 30.0, **given}
    store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks", **patient)
    _opened.append(store)
    return store


async def neo4j(server: Connection, **given: Any) -> Neo4jStore:
    """The store on that server, once more."""
    store = await Neo4jStore.open(server, **{"timeout_s": PATIENCE_S, **given})
    _opened.append(store)
    return store


async def close_all() -> None:
    """Close what was opened; what is closed already stays so."""
    while _opened:
        await _opened.pop().aclose()


def by_hand(where: Path, *statements: str, **given: object) -> list[Any]:
    """What the last of these statements tells of a database, or of that in a home."""
    connection = apsw.Connection(str(where / "memory.db" if where.is_dir() else where))
    try:
        return [list(connection.execute(each, given or None)) for each in statements][-1]
    finally:
        connection.close()
