"""The index's SQLite database: opened for each operation, and rebuilt if it is damaged.

All its contents are derived from the project's files, so commits don't wait for the disk
(`synchronous = NORMAL`), and a damaged database is discarded.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from ragmem.errors import RagmemError, StoreError, StoreRefused, StoreUnavailable
from ragmem.files import lock, make_private

SCHEMA_VERSION = 5
"""The version of the tables."""
CUT_VERSION = 3
"""To be raised when a file is cut differently, or scopes get different names."""
WORDS_VERSION = 1
"""To be raised when a scope gets different terms or a different text to embed."""


_APPLICATION_ID = 0x72616763
_BUSY_MS = 10_000
_RESET_LOCK_TIMEOUT_S = 20.0
_CACHE_KIB = 16_384
_KEPT_S = 30 * 24 * 3600
_SCHEMA = Path(__file__).with_name("schema.sql")


def version() -> int:
    """Return one number for all versions that rows depend on; other indexes are rebuilt."""
    from ragmem.terms import TERMS_VERSION

    return int(f"{SCHEMA_VERSION}{CUT_VERSION:03}{WORDS_VERSION:03}{TERMS_VERSION:03}")


def open_for_writing(database: Path, *, anew: bool = False) -> apsw.Connection:
    """Open an index of this version, emptying and rebuilding any other file.

    Raises RagmemError for that of a newer version, which is emptied only with `anew`: an open chat
    and a newer background process would else rebuild it in turns.
    """
    make_private(database.parent)
    if stat.S_IMODE(database.parent.stat().st_mode) & 0o077:
        database.parent.chmod(0o700)
    # An existing file is not opened here: closing it would release this process's POSIX locks.
    with suppress(FileExistsError):
        # SQLite creates the write-ahead log with the same mode.
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = _connected(database)
    try:
        if not anew and _version_of(connection) > version():
            raise RagmemError(
                f"The code index {database} was made by a newer ragmem, and this one leaves it.",
                hint="Restart this ragmem if it was updated; else run `ragmem index --rebuild`.",
            )
        if not _is_ours(connection):
            with _reset_lock(database):
                if not _is_ours(connection):
                    _reset(connection)
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "NORMAL")
        # Deleted content is overwritten if its page is written anyway.
        connection.pragma("secure_delete", "FAST")
        connection.pragma("cache_size", -_CACHE_KIB)
        # In pages; more than the default of 1,000, since a first run writes many.
        connection.pragma("wal_autocheckpoint", 8_000)
        connection.pragma("journal_size_limit", 0)
    except BaseException:
        connection.close()
        raise
    return connection


def reset(database: Path) -> None:
    """Empty the database in place, once no other process is emptying it."""
    connection = open_for_writing(database, anew=True)
    try:
        with _reset_lock(database):
            _reset(connection)
    finally:
        connection.close()


@contextmanager
def _reset_lock(database: Path) -> Iterator[None]:
    """Hold the lock for emptying the database, for the duration of the block."""
    handle = lock(database.with_suffix(".open.lock"), timeout_s=_RESET_LOCK_TIMEOUT_S)
    try:
        yield
    finally:
        os.close(handle)


def _connected(database: Path) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_MS)
    return connection


def _is_ours(connection: apsw.Connection) -> bool:
    """Return whether it is an index of this version, not a damaged, other or foreign file."""
    return _version_of(connection) == version()


def _version_of(connection: apsw.Connection) -> int:
    """Return the version of an index; 0 for a damaged or foreign file."""
    try:
        if connection.pragma("application_id") != _APPLICATION_ID:
            return 0
        return int(connection.execute("SELECT version FROM state").get or 0)
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
        return 0


def _reset(connection: apsw.Connection) -> None:
    """Empty the file, however damaged it is, and create the tables."""
    connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
    try:
        connection.execute("VACUUM")
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
    born = time.time_ns()
    with transaction(connection):
        connection.execute(_SCHEMA.read_text("utf-8"))
        connection.execute(
            "INSERT INTO state (only, version, born, epoch, sequence, refreshed_at, left_out,"
            " seeded, model_id, dimension, document_count, term_count)"
            " VALUES (1, ?, ?, ?, 0, '', '{}', 0, '', 0, 0, 0)",
            (version(), born, born),
        )
        connection.pragma("application_id", _APPLICATION_ID)


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run the block in a transaction: all its writes are committed, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


T = TypeVar("T")

_NO_HARM = "Nothing is lost: the index is made from the files, and your memory is elsewhere."


def database_of(data_dir: Path, project_id: str) -> Path:
    """Return the path of a project's index."""
    return data_dir / "code" / f"{project_id}.sqlite"


def remove_unused(database: Path) -> None:
    """Delete the index of a folder that is gone, unless it has changed within a month."""
    with suppress(OSError):
        if time.time() - database.stat().st_mtime > _KEPT_S:
            for file in database.parent.iterdir():
                if file.name.startswith(f"{database.stem}."):
                    file.unlink(missing_ok=True)


def read(database: Path, query: Callable[[apsw.Connection], T], otherwise: T) -> T:
    """Run a query in one read transaction; return `otherwise` if there is no index.

    SQLite's errors are raised as RagmemErrors. A damaged index is emptied.
    """
    with _as_ragmem_errors(database):
        if not database.exists():
            return otherwise
        try:
            return _run_query(database, query, otherwise)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            # In WAL mode reading needs a -shm file in the same folder, which can't be created
            # there: read a copy instead.
            with tempfile.TemporaryDirectory(prefix="ragmem-code-") as folder:
                for file in (database, database.with_name(f"{database.name}-wal")):
                    if file.exists():
                        shutil.copyfile(file, Path(folder, file.name))
                return _run_query(Path(folder, database.name), query, otherwise)
        except (apsw.CorruptError, apsw.NotADBError):
            reset(database)
            return otherwise


def write(database: Path, job: Callable[[apsw.Connection], T], *, anew: bool = False) -> T:
    """Run a job on the index, which is created if missing, and emptied first with `anew`.

    SQLite's errors are raised as RagmemErrors. A damaged index is emptied, and the job run again.
    """
    with _as_ragmem_errors(database):
        if anew:
            reset(database)
        try:
            return _run_job(database, job)
        except (apsw.CorruptError, apsw.NotADBError):
            reset(database)
            return _run_job(database, job)


def _run_query(database: Path, query: Callable[[apsw.Connection], T], otherwise: T) -> T:
    with closing(_connected(database)) as connection:
        connection.pragma("query_only", True)
        connection.execute("BEGIN")
        return query(connection) if _is_ours(connection) else otherwise


def _run_job(database: Path, job: Callable[[apsw.Connection], T]) -> T:
    with closing(open_for_writing(database)) as connection:
        return job(connection)


def raise_epoch(connection: apsw.Connection) -> int:
    """Invalidate processes' caches, in the caller's transaction; return the new epoch."""
    connection.execute("UPDATE state SET epoch = epoch + 1")
    return int(connection.execute("SELECT epoch FROM state").get)


def rows(
    connection: apsw.Connection, query: str, *bound: object, **named: object
) -> list[tuple[Any, ...]]:
    """Return a query's rows."""
    return connection.execute(query, named or bound).fetchall()


def column(connection: apsw.Connection, query: str, *bound: object, **named: object) -> list[Any]:
    """Return the first column of a query's rows."""
    return [row[0] for row in rows(connection, query, *bound, **named)]


def listed(values: Iterable[int | str]) -> str:
    """Return values as a JSON array, to bind many as one parameter with `json_each`."""
    return msgspec.json.encode(list(values)).decode()


@contextmanager
def _as_ragmem_errors(database: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.BusyError, apsw.LockedError):
        raise StoreUnavailable(
            f"The code index {database} has been in use by another process for too long.",
            hint="Try again.",
        ) from None
    except apsw.FullError:
        raise _full(database) from None
    except (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError) as error:
        raise _unwritable(database, str(error)) from None
    except apsw.Error as error:
        raise StoreError(
            f"The code index {database} could not be read or written: {error}. {_NO_HARM}",
            hint="`ragmem index --rebuild` rebuilds it.",
        ) from error
    except OSError as error:
        raise refused(database, error) from error


def refused(database: Path, error: OSError) -> RagmemError:
    """Return the error to raise for an index file or folder that can't be used."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(database)
    return _unwritable(database, error.strerror or str(error))


def _full(database: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The file system of {database.parent} is full: the code index could not be written. "
        f"{_NO_HARM}",
        hint="Free some space, then run `ragmem index`.",
    )


def _unwritable(database: Path, why: str) -> StoreRefused:
    return StoreRefused(
        f"The code index {database} can't be used: {why}. {_NO_HARM}",
        hint="Make the file and its folder writable, or set RAGMEM_HOME to another folder.",
    )


# --- which process watches the project's files -----------------------------------------------


@contextmanager
def watching(file: Path) -> Iterator[None]:
    """Hold a shared lock, if possible, that tells other processes that this one is watching."""
    handle = -1
    with suppress(OSError):
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def is_locked(file: Path) -> bool:
    """Return whether a process holds this lock: it is watching the project's files, say."""
    with suppress(OSError):  # No such file, or a file system without locks.
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False
