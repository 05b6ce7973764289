"""Connections with the schema that this version knows.

Migrations are the numbered `*.sql` files beside this module: only ever added
to, each applied in one transaction with its record.
"""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import apsw

from ragmem.errors import StoreRefused
from ragmem.failpoints import failpoint
from ragmem.store.base import AHEAD
from ragmem.store.locks import lock
from ragmem.store.sqlite import documents, files, journal
from ragmem.store.sqlite.rows import iso

VERSION = 7
APPLICATION_ID = 0x7261676D
_FIRST_WITH_DOCUMENTS = 3
_FIRST_WITH_OWNERS = 7


def open_for_writing(
    database: Path,
    locks_dir: Path,
    *,
    timeout_s: float,
    clock: Callable[[], datetime],
    owner: str = "",
) -> apsw.Connection:
    """The connection that may write, on files that are private, whole and up to date."""
    was_set_up = files.prepare(database, locks_dir)
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(round(timeout_s * 1000))
        if connection.readonly("main"):
            raise files.unwritable(database, "it may only be read")
        whole = journal.can_be_read(connection, database)
        if not whole or _version(connection, database) < VERSION:
            # One process at a time: switching to another journal waits for no busy timeout.
            alone = lock(locks_dir / "schema.lock", timeout_s=timeout_s)
            try:
                if not whole and not journal.can_be_read(connection, database):
                    journal.roll_in(database)
                _migrate(connection, database, clock, owner)
            finally:
                os.close(alone)
        if documents.are_old(connection):
            alone = lock(locks_dir / "schema.lock", timeout_s=timeout_s)
            try:
                _in_transaction(connection, lambda: documents.build(connection))
            finally:
                os.close(alone)
        failpoint("sqlite.mark")
        if not was_set_up:
            files.mark_set_up(database)
        _tell_horizon(connection, clock)
        connection.pragma("synchronous", "FULL")
        connection.pragma("foreign_keys", True)
    except BaseException:
        leave_untouched(connection)
        connection.close()
        raise
    return connection


def _tell_horizon(connection: apsw.Connection, clock: Callable[[], datetime]) -> None:
    """`horizon()` in SQL: the latest time that is no wrong clock's."""

    def horizon(*_: object) -> str:
        return iso(clock() + AHEAD)

    connection.create_scalar_function("horizon", horizon, 0)


def open_for_reading(database: Path, *, timeout_s: float) -> apsw.Connection:
    """A connection that reads while another writes."""
    # What another process' crash left of a rollback journal, a reader has to undo.
    only = journal.has_log(database)
    flags = apsw.SQLITE_OPEN_READONLY if only else apsw.SQLITE_OPEN_READWRITE
    connection = apsw.Connection(str(database), flags=flags)
    connection.set_busy_timeout(round(timeout_s * 1000))
    connection.pragma("query_only", True)
    return connection


def leave_untouched(connection: apsw.Connection) -> None:
    """Closing the last connection moves the log into the database: not into a damaged one."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def _at_one_moment(connection: apsw.Connection) -> tuple[int, int, int]:
    """Whose it is, which version, how many tables: another process may be making it just then."""
    is_inside = connection.in_transaction
    if not is_inside:
        connection.execute("BEGIN")
    try:
        pragmas = (connection.pragma(name) for name in ("application_id", "user_version"))
        application, version = (int(str(value)) for value in pragmas)
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        return application, version, int(str(tables))
    finally:
        if not is_inside and connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: apsw.Connection, database: Path) -> int:
    """The schema's version, 0 for a new file; StoreRefused for what is not ours to use."""
    application, version, tables = _at_one_moment(connection)
    is_new = not (application or version or tables)
    if application != APPLICATION_ID and not is_new:
        raise StoreRefused(
            f"{database} is another program's database.",
            hint="Move it away, or set RAGMEM_HOME to another folder.",
        )
    if version > VERSION:
        raise StoreRefused(
            f"The memory's database {database} was written by a newer ragmem "
            f"(schema {version}, this one knows up to {VERSION}).",
            hint="Update ragmem; nothing was changed.",
        )
    return version


def _migrate(
    connection: apsw.Connection, database: Path, clock: Callable[[], datetime], owner: str
) -> None:
    if _version(connection, database) == 0:
        journal.choose(connection)
    for number, name, sql in migrations():

        def step(number: int = number, name: str = name, sql: str = sql) -> None:
            failpoint("sqlite.migrate")
            # Another process may have come first.
            if _version(connection, database) < number:
                connection.execute(sql)
                if number == _FIRST_WITH_DOCUMENTS:
                    documents.build(connection)
                if number == _FIRST_WITH_OWNERS:
                    _take(connection, owner)
                connection.execute(
                    "INSERT INTO migrations (version, name, applied_at) VALUES (?, ?, ?)",
                    (number, name, iso(clock())),
                )
                connection.pragma("user_version", number)
            failpoint("sqlite.migrated")

        _in_transaction(connection, step)


def _take(connection: apsw.Connection, owner: str) -> None:
    """What was kept before there were owners is whose home opens it first."""
    for table in ("sessions", "memories", "profile", "profile_state"):
        connection.execute(f"UPDATE {table} SET owner = ? WHERE owner = ''", (owner,))


def _in_transaction(connection: apsw.Connection, work: Callable[[], None]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        work()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrations() -> Iterator[tuple[int, str, str]]:
    """Number, name and statements of each, in order."""
    for script in sorted(Path(__file__).parent.glob("*.sql")):
        number, name = script.stem.split("_", 1)
        yield int(number), name, script.read_text("utf-8")
