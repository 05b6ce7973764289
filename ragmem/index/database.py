"""The file of the index: opened for each piece of work, and made anew where it is not sound.

All of it follows from the project's files, so it is written without waiting for the disk, and a
damaged one is thrown away.
"""

import atexit
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
from threading import Lock
from typing import Any, TypeVar

import apsw
import msgspec

from ragmem.errors import RagmemError, StoreError, StoreRefused, StoreUnavailable
from ragmem.files import lock, make_private

SCHEMA_VERSION = 5
"""The version of the tables."""
CUT_VERSION = 3
"""Goes up if the same file would be cut otherwise, or scopes would get other names."""
WORDS_VERSION = 1
"""Goes up if the same scope gets other terms or another text to embed."""


_APPLICATION_ID = 0x72616763
_BUSY_MS = 10_000
_ALONE_WITHIN_S = 20.0
_CACHE_KIB = 16_384
_SCHEMA = Path(__file__).with_name("schema.sql")


def version() -> int:
    """Return the version of all that the rows depend on; an index of another one is made anew."""
    from ragmem.terms import TERMS_VERSION

    return int(f"{SCHEMA_VERSION}{CUT_VERSION:03}{WORDS_VERSION:03}{TERMS_VERSION:03}")


def open_for_writing(database: Path) -> apsw.Connection:
    """Open an index of this version; what is none of it is emptied, and made anew."""
    make_private(database.parent)
    if stat.S_IMODE(database.parent.stat().st_mode) & 0o077:
        database.parent.chmod(0o700)
    # One that is there is not opened here: closing it would free this process' locks on it.
    with suppress(FileExistsError):
        # SQLite gives its log the same mode.
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = _connected(database)
    try:
        if not _is_ours(connection):
            with _alone(database):
                if not _is_ours(connection):
                    _make_anew(connection)
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "NORMAL")
        # What is deleted is overwritten where its page is written anyway.
        connection.pragma("secure_delete", "FAST")
        connection.pragma("cache_size", -_CACHE_KIB)
        # Pages of the log before it is moved into the file: a first run makes many.
        connection.pragma("wal_autocheckpoint", 8_000)
        connection.pragma("journal_size_limit", 0)
    except BaseException:
        connection.close()
        raise
    return connection


def make_anew(database: Path) -> None:
    """Empty the file in its place, once nobody else is at it."""
    connection = open_for_writing(database)
    try:
        with _alone(database):
            _make_anew(connection)
    finally:
        connection.close()


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    """Keep other processes from emptying it meanwhile."""
    handle = lock(database.with_suffix(".open.lock"), timeout_s=_ALONE_WITHIN_S)
    try:
        yield
    finally:
        os.close(handle)


def _connected(database: Path) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_MS)
    return connection


def _is_ours(connection: apsw.Connection) -> bool:
    """Whether it is an index of this version: not a damaged, an older or a foreign file."""
    try:
        if connection.pragma("application_id") != _APPLICATION_ID:
            return False
        return bool(connection.execute("SELECT version FROM state").get == version())
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
        return False


def _make_anew(connection: apsw.Connection) -> None:
    """Empty whatever the file holds, however damaged, and make the tables."""
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
    """Write all of the block or nothing of it."""
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
    """Return where the index of a project's folder is."""
    return data_dir / "code" / f"{project_id}.sqlite"


def read(database: Path, query: Callable[[apsw.Connection], T], otherwise: T) -> T:
    """Run a query that sees the index as it is at one moment; `otherwise` where there is none.

    Errors are in plain words. A damaged index is made anew.
    """
    with _in_plain_words(database):
        if not database.exists():
            return otherwise
        try:
            return _asked(database, query, otherwise)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            # Its log takes a file beside it, which can't be made: a copy is read instead.
            with _copying:
                return _asked(_copy_of(database), query, otherwise)
        except (apsw.CorruptError, apsw.NotADBError):
            make_anew(database)
            return otherwise


def write(database: Path, job: Callable[[apsw.Connection], T], *, anew: bool = False) -> T:
    """Run a job on the index, which is made where there is none; `anew`: made anew for it.

    Errors are in plain words. A damaged index is made anew.
    """
    with _in_plain_words(database):
        if anew:
            make_anew(database)
        try:
            return _done(database, job)
        except (apsw.CorruptError, apsw.NotADBError):
            make_anew(database)
            return _done(database, job)


_copying = Lock()
_copies: dict[Path, tuple[list[tuple[int, int, int]], Path]] = {}
"""Of a database how its files were when they were copied, none until all are, and where to."""


def _copy_of(database: Path) -> Path:
    """Return a copy of it as it is, which stays for as long as this process and it do."""
    log = database.with_name(f"{database.name}-wal")
    files = [file for file in (database, log) if file.exists()]
    seen = [(s.st_ino, s.st_size, s.st_mtime_ns) for s in map(Path.stat, files)]
    if database not in _copies:
        _copies[database] = [], Path(tempfile.mkdtemp(prefix="ragmem-code-"))
        atexit.register(shutil.rmtree, _copies[database][1], ignore_errors=True)
    copied, folder = _copies[database]
    if copied != seen:
        _copies[database] = [], folder
        for old in folder.iterdir():
            old.unlink()
        for file in files:
            shutil.copyfile(file, folder / file.name)
        _copies[database] = seen, folder
    return folder / database.name


def _asked(database: Path, query: Callable[[apsw.Connection], T], otherwise: T) -> T:
    with closing(_connected(database)) as connection:
        connection.pragma("query_only", True)
        connection.execute("BEGIN")
        return query(connection) if _is_ours(connection) else otherwise


def _done(database: Path, job: Callable[[apsw.Connection], T]) -> T:
    with closing(open_for_writing(database)) as connection:
        return job(connection)


def raise_epoch(connection: apsw.Connection) -> int:
    """Mark what is held in memory as old; return the new epoch. In the caller's transaction."""
    connection.execute("UPDATE state SET epoch = epoch + 1")
    return int(str(connection.execute("SELECT epoch FROM state").get))


def column(connection: apsw.Connection, query: str, *bound: object) -> list[Any]:
    """Return the first column of what a query finds."""
    return [row[0] for row in connection.execute(query, bound)]


def listed(values: Iterable[int | str]) -> str:
    """Return values as a query binds many at once, for `json_each`."""
    return msgspec.json.encode(list(values)).decode()


@contextmanager
def _in_plain_words(database: Path) -> Iterator[None]:
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
    """Return the error for a file or folder of the index that can't be used."""
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


# --- who follows the project's files ---------------------------------------------------------


@contextmanager
def following(file: Path) -> Iterator[None]:
    """Note that this process follows them inside of this; where that fails, nobody is told."""
    handle = -1
    with suppress(OSError):
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def is_followed(file: Path) -> bool:
    """Return whether a process follows them now."""
    with suppress(OSError):  # No such file, or a file system without locks.
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False
