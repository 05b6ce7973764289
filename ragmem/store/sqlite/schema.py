"""Connections with the schema that this version knows.

Migrations are the numbered `*.sql` files beside this module: only ever added
to, each applied in one transaction with its record.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from ragmem.errors import StoreRefused
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.store.base import AHEAD
from ragmem.store.locks import lock
from ragmem.store.sqlite import documents, files, journal
from ragmem.store.sqlite.rows import iso

VERSION = 8
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
        _identify(connection)
        failpoint("sqlite.mark")
        if not was_set_up:
            files.mark_set_up(database)
        _tell_horizon(connection, clock)
        connection.pragma("synchronous", "FULL")
        connection.pragma("foreign_keys", True)
    except BaseException as error:
        number = connection.system_errno
        leave_untouched(connection)
        connection.close()
        if isinstance(error, apsw.Error) and (
            plain := files.translated(error, database, timeout_s, number)
        ):
            raise plain from error
        raise
    return connection


def store_id(connection: apsw.Connection) -> str:
    """The database's own; empty while it has none."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'identity'").fetchall():
        return ""
    return str(connection.execute("SELECT store_id FROM identity").get or "")


def identify(connection: apsw.Connection, its_id: str) -> None:
    """Give the database this id in place of any that it has; no schema's version knows of it."""
    connection.execute("CREATE TABLE IF NOT EXISTS identity (store_id TEXT NOT NULL) STRICT")
    connection.execute("DELETE FROM identity")
    connection.execute("INSERT INTO identity VALUES (?)", (its_id,))


def _identify(connection: apsw.Connection) -> None:
    """Give it an id if it has none; where another process writes just then, another time."""

    def once() -> None:
        if not store_id(connection):
            identify(connection, new_id())

    if store_id(connection):
        return
    with suppress(apsw.BusyError):
        _in_transaction(connection, once)


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


def open_alone(database: Path, *, timeout_s: float) -> apsw.Connection:
    """A connection that reads where nothing can be shared with others: they wait for its end.

    StoreRefused, or the reason that there is no room, where this version can't read it as it is.
    """
    if files.never_changes(database):
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"{database.absolute().as_uri()}?immutable=1", flags=flags)
    else:
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(round(timeout_s * 1000))
    connection.pragma("locking_mode", "exclusive")
    connection.pragma("query_only", True)
    leave_untouched(connection)
    if _version(connection, database) < VERSION:
        connection.close()
        raise files.unwritable(database, "it has to be brought up to date first")
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
                    take(connection, owner)
                connection.execute(
                    "INSERT INTO migrations (version, name, applied_at) VALUES (?, ?, ?)",
                    (number, name, iso(clock())),
                )
                connection.pragma("user_version", number)
            failpoint("sqlite.migrated")

        _in_transaction(connection, step)


def take(connection: apsw.Connection, owner: str) -> None:
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
