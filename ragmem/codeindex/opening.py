"""The file of the index opened, made anew where it is not what it should be, and removed.

All of it follows from the project's files, so it is written without waiting for the disk, and a
damaged one is thrown away.
"""

import os
import shutil
import stat
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from ragmem.codeindex import versions
from ragmem.store.locks import lock

_APPLICATION_ID = 0x72616763
_BUSY_MS = 10_000
_ALONE_WITHIN_S = 20.0
_CACHE_KIB = 16_384
_SCHEMA = Path(__file__).with_name("schema.sql")


def version() -> int:
    """Of all that the rows depend on; an index of another one is made anew."""
    from ragmem.terms import TERMS_VERSION

    parts = (versions.SCHEMA, versions.CUTTING, versions.WORDING, TERMS_VERSION)
    number = 0
    for part in parts:
        number = number * 1000 + part
    return number


def open_for_writing(database: Path) -> apsw.Connection:
    """A connection to an index of this version, if need be to an empty one."""
    _make_folder(database.parent)
    with _alone(database):
        _prepare(database)
        try:
            return _opened_or_made(database)
        except (apsw.NotADBError, apsw.CorruptError, _Foreign):
            _remove(database)
            _prepare(database)
            return _opened_or_made(database)


def open_for_reading(database: Path) -> apsw.Connection | None:
    """None where there is no index of this version. Nothing is written, nor has to be."""
    if not database.exists():
        return None
    if os.access(database.parent, os.W_OK):
        with _alone(database):
            return _opened(lambda: _connected(database)) if database.exists() else None
    try:
        return _opened(lambda: _connected(database))
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # Its log takes a file beside it, which can't be made.
        return _opened(lambda: _connected_where_nothing_is_written(database))


def throw_away(database: Path) -> None:
    """Remove it with its log; who has it open goes on with what it was."""
    if database.parent.is_dir():
        with _alone(database):
            _remove(database)


def _remove(database: Path) -> None:
    # In this order: killed in between, it leaves a log without a database, which is removed before
    # one is made anew; never a database without the log that belongs to it.
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    """Nobody else opens or removes it meanwhile.

    A log is found by its name: who removes one must not hit that of a database which another
    process has just put in its place, nor may one be opened beside the other's.
    """
    handle = lock(database.with_suffix(".open.lock"), timeout_s=_ALONE_WITHIN_S)
    try:
        yield
    finally:
        os.close(handle)


class _Foreign(Exception):
    """Another version's file, or another program's."""


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)


def _prepare(database: Path) -> None:
    # One that is there is not opened: closing it would free this process' locks on it.
    if not database.exists():
        _remove(database)
        # SQLite gives its log the same mode.
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _opened(connect: Callable[[], apsw.Connection]) -> apsw.Connection | None:
    """For reading; None for what is no index of this version."""
    connection = connect()
    try:
        leave_log(connection)
        connection.set_busy_timeout(_BUSY_MS)
        connection.pragma("query_only", True)
        if _is_ours(connection):
            return connection
    except (apsw.NotADBError, apsw.CorruptError):
        pass
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _connected(database: Path) -> apsw.Connection:
    return apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)


def _connected_where_nothing_is_written(database: Path) -> apsw.Connection:
    """As it lies there; with its log, if it left one, by way of a copy."""
    log = database.with_name(f"{database.name}-wal")
    if not log.exists() or not log.stat().st_size:
        name = f"file:{urllib.parse.quote(str(database))}?immutable=1"
        return apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    with tempfile.TemporaryDirectory(prefix="ragmem-code-") as folder:
        for file in (database, log):
            shutil.copyfile(file, Path(folder, file.name))
        connection = _connected(Path(folder, database.name))
        try:
            # From here on its files are open: they need no names.
            connection.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018
        except BaseException:
            connection.close()
            raise
        return connection


def _opened_or_made(database: Path) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        leave_log(connection)
        connection.set_busy_timeout(_BUSY_MS)
        if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
            _make(connection)
        elif not _is_ours(connection):
            raise _Foreign
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("cache_size", -_CACHE_KIB)
        # Pages of the log before it is moved into the file: a first run makes many.
        connection.pragma("wal_autocheckpoint", 8_000)
        connection.pragma("journal_size_limit", 0)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ours(connection: apsw.Connection) -> bool:
    if connection.pragma("application_id") != _APPLICATION_ID:
        return False
    return bool(connection.execute("SELECT version FROM state").get == version())


def _make(connection: apsw.Connection) -> None:
    with transaction(connection):
        # Two processes may have come to it at once.
        if connection.execute("SELECT count(*) FROM sqlite_schema").get:
            return
        connection.execute(_SCHEMA.read_text("utf-8"))
        connection.execute(
            "INSERT INTO state (only, version, epoch, sequence, refreshed_at, left_out, seeded,"
            " model_id, dimension, document_count, term_count)"
            " VALUES (1, ?, 1, 0, '', '{}', 0, '', 0, 0, 0)",
            (version(),),
        )
        connection.pragma("application_id", _APPLICATION_ID)


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """All of the block or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def close(connection: apsw.Connection) -> None:
    """What its log holds is moved into the file, if nobody reads just then; an empty log stays."""
    if not connection.pragma("query_only"):
        connection.set_busy_timeout(0)
        with suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


def leave_log(connection: apsw.Connection) -> None:
    """Who closes a database last removes its log by name, also that of another in its place."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
