"""Connections with the schema that this version knows.

Migrations are the numbered `*.sql` files beside this module: only ever added
to, each applied in one transaction with its record.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from ragmem.errors import StoreRefused
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.locks import lock
from ragmem.store.base import AHEAD
from ragmem.store.sqlite import files, text_index
from ragmem.store.sqlite.connection import Access, Database, iso

VERSION = 8
APPLICATION_ID = 0x7261676D
_FIRST_WITH_DOCUMENTS = 3
_FIRST_WITH_OWNERS = 7


def open_for_writing(
    database: Path, access: Access, *, locks_dir: Path, timeout_s: float
) -> Database:
    """The connection that may write, on files that are private, whole and up to date."""
    was_set_up = files.prepare(database, locks_dir)
    db = Database(str(database), apsw.SQLITE_OPEN_READWRITE, access)
    try:
        db.set_busy_timeout(round(timeout_s * 1000))
        if db.readonly("main"):
            raise files.unwritable(database, "it may only be read")
        whole = files.can_read_log(db, database)
        if not whole or _version(db, database) < VERSION or text_index.is_old(db):
            # One process at a time: switching to another journal waits for no busy timeout.
            alone = lock(locks_dir / "schema.lock", timeout_s=timeout_s)
            try:
                if not whole and not files.can_read_log(db, database):
                    files.roll_in(database)
                _migrate(db, database)
                with transaction(db):
                    text_index.build(db)
            finally:
                os.close(alone)
        if not store_id(db):
            # Where another process writes just then, another time.
            with suppress(apsw.BusyError), transaction(db):
                if not store_id(db):
                    identify(db, new_id())
        failpoint("sqlite.mark")
        if not was_set_up:
            files.mark_set_up(database)
        # In SQL the latest time that is no wrong clock's.
        db.create_scalar_function("horizon", lambda *_: iso(db.now + AHEAD), 0)
        db.pragma("synchronous", "FULL")
        db.pragma("foreign_keys", True)
    except BaseException as error:
        number = db.system_errno
        leave_untouched(db)
        db.close()
        if isinstance(error, apsw.Error) and (
            plain := files.translated(error, database, timeout_s, number)
        ):
            raise plain from error
        raise
    return db


@contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """All that is done inside of it or none, durable at its end."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def store_id(db: Database) -> str:
    """The database's own id; empty while it has none."""
    if db.get("SELECT 1 FROM sqlite_schema WHERE name = 'identity'") is None:
        return ""
    return str(db.get("SELECT store_id FROM identity") or "")


def identify(db: Database, its_id: str) -> None:
    """Give the database this id in place of any that it has; no schema's version knows of it."""
    db.execute("CREATE TABLE IF NOT EXISTS identity (store_id TEXT NOT NULL) STRICT")
    db.execute("DELETE FROM identity")
    db.query("INSERT INTO identity VALUES (:id)", id=its_id)


def open_for_reading(database: Path, access: Access, *, timeout_s: float) -> Database:
    """A connection that reads while another writes."""
    # What another process' crash left of a rollback journal, a reader has to undo.
    only = files.has_log(database)
    flags = apsw.SQLITE_OPEN_READONLY if only else apsw.SQLITE_OPEN_READWRITE
    db = Database(str(database), flags, access)
    db.set_busy_timeout(round(timeout_s * 1000))
    db.pragma("query_only", True)
    return db


def open_alone(database: Path, access: Access, *, timeout_s: float) -> Database:
    """A connection that reads where nothing can be shared with others: they wait for its end.

    StoreRefused, or the reason that there is no room, where this version can't read it as it is.
    """
    name, flags = str(database), apsw.SQLITE_OPEN_READWRITE
    if files.never_changes(database):
        name = f"{database.absolute().as_uri()}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = Database(name, flags, access)
    db.set_busy_timeout(round(timeout_s * 1000))
    db.pragma("locking_mode", "exclusive")
    db.pragma("query_only", True)
    leave_untouched(db)
    if _version(db, database) < VERSION:
        db.close()
        raise files.unwritable(database, "it has to be brought up to date first")
    return db


def leave_untouched(connection: apsw.Connection) -> None:
    """Closing the last connection moves the log into the database: not into a damaged one."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def _version(db: Database, database: Path) -> int:
    """The schema's version, 0 for a new file; StoreRefused for what is not ours to use."""
    # At one moment: another process may be making it just then.
    application, version, tables = db.get(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    )
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
    return int(version)


def _migrate(db: Database, database: Path) -> None:
    if _version(db, database) == 0:
        files.choose_journal(db)
    for number, name, sql in migrations():
        with transaction(db):
            failpoint("sqlite.migrate")
            # Another process may have come first.
            if _version(db, database) < number:
                db.execute(sql)
                if number == _FIRST_WITH_DOCUMENTS:
                    text_index.build(db)
                if number == _FIRST_WITH_OWNERS:
                    take(db, db.access.owner)
                row = {"version": number, "name": name, "applied_at": iso(db.now)}
                db.put("migrations", row, "version")
                db.pragma("user_version", number)
            failpoint("sqlite.migrated")


def take(db: Database, owner: str) -> None:
    """What was kept before there were owners is whose home opens it first."""
    for table in ("sessions", "memories", "profile", "profile_state"):
        db.query(f"UPDATE {table} SET owner = :owner WHERE owner = ''", owner=owner)


def migrations() -> Iterator[tuple[int, str, str]]:
    """Number, name and statements of each, in order."""
    for script in sorted(Path(__file__).parent.glob("*.sql")):
        number, name = script.stem.split("_", 1)
        yield int(number), name, script.read_text("utf-8")
