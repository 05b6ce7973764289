"""Scopes that went and came lately: what is moved with two edits, or over a crash, is one move.

An agent takes a function out of one file and puts it into another with two edits, and the files are
looked at in between. All in the caller's transaction.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import apsw

from ragmem.codeindex.identity import Known, read_known

_FOLLOWED_FOR = timedelta(hours=1)
"""Longer, and it is a copy."""
_MOST = 2_000


def note_went(connection: apsw.Connection, went: Iterable[tuple[str, Known]], at: datetime) -> None:
    """Scopes that a file has no more, by their ids."""
    connection.executemany(
        "INSERT OR REPLACE INTO went (scope_id, kind, name, qualified_name, hash, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [
            (scope_id, known.kind, known.name, known.qualified_name, known.hash, at.isoformat())
            for scope_id, known in went
            if known.is_telling
        ],
    )


def note_came(connection: apsw.Connection, came: Iterable[tuple[int, Known]], at: datetime) -> None:
    """Scopes that are new, by their rows; those that were away have a past of their own."""
    connection.executemany(
        "INSERT OR REPLACE INTO came (scope_id, at) SELECT scope_id, ? FROM scopes WHERE scope = ?"
        " AND scope_id NOT IN (SELECT scope_id FROM went)",
        [(at.isoformat(), scope) for scope, known in came if known.is_telling],
    )


def went_by_another_name(connection: apsw.Connection, scope_id: str, known: Known) -> bool:
    """Whether that id's scope went, and was called otherwise."""
    found = connection.execute(
        "SELECT 1 FROM went WHERE scope_id = ? AND (kind, qualified_name) != (?, ?)",
        (scope_id, known.kind, known.qualified_name),
    )
    return found.get is not None


def forget(connection: apsw.Connection, now: datetime) -> None:
    """What is there again or is no more, what was long ago, and what is too much."""
    connection.execute("DELETE FROM went WHERE scope_id IN (SELECT scope_id FROM scopes)")
    connection.execute("DELETE FROM came WHERE scope_id NOT IN (SELECT scope_id FROM scopes)")
    for table in ("went", "came"):
        connection.execute(
            f"DELETE FROM {table} WHERE at <= ? OR scope_id NOT IN"
            f" (SELECT scope_id FROM {table} ORDER BY at DESC LIMIT ?)",
            ((now - _FOLLOWED_FOR).isoformat(), _MOST),
        )


def lately(
    connection: apsw.Connection,
) -> tuple[list[tuple[str, Known]], list[tuple[int, Known]]]:
    """What went, and what came and is there, the last first; after `forget`."""
    went = connection.execute(
        "SELECT scope_id, kind, name, qualified_name, hash FROM went ORDER BY at DESC, scope_id"
    )
    came = connection.execute(
        "SELECT s.scope, s.kind, s.name, s.qualified_name, s.hash FROM came"
        " JOIN scopes AS s USING (scope_id) ORDER BY came.at DESC, s.scope"
    )
    return (
        [(str(scope_id), read_known(known)) for scope_id, *known in went],
        [(int(str(scope)), read_known(known)) for scope, *known in came],
    )
