"""The file of the index: opened, made anew where it is not what it should be, used from a thread.

All of it follows from the project's files, so it is written without waiting for the disk, and a
damaged one is thrown away.
"""

import asyncio
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from ragmem.errors import RagmemError, StoreError, StoreRefused, StoreUnavailable
from ragmem.files import lock

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
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def open_for_reading(database: Path) -> apsw.Connection | None:
    """Open an index of this version without writing anything; None where there is none."""
    if not database.exists():
        return None
    try:
        return _opened(database)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # Its log takes a file beside it, which can't be made: a copy is read instead.
        with tempfile.TemporaryDirectory(prefix="ragmem-code-") as folder:
            for file in (database, database.with_name(f"{database.name}-wal")):
                if file.exists():
                    shutil.copyfile(file, Path(folder, file.name))
            # Once its files are open they need no names.
            return _opened(Path(folder, database.name))


def make_anew(database: Path) -> None:
    """Empty it in its place; who has it open sees that at the next look."""
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


def _opened(database: Path) -> apsw.Connection | None:
    """Open it for reading; None for what is no index of this version."""
    connection = _connected(database)
    is_ours = False
    try:
        connection.pragma("query_only", True)
        is_ours = _is_ours(connection)
    finally:
        if not is_ours:
            connection.close()
    return connection if is_ours else None


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

_NO_HARM = "Nothing is lost: the index follows from the files, and your memory is elsewhere."


def database_of(data_dir: Path, project_id: str) -> Path:
    """Return where the index of a project's folder is."""
    return data_dir / "code" / f"{project_id}.sqlite"


class IndexThread:
    """One thread with a connection of its own, awaited from the event loop.

    Where the file is damaged it is made anew.
    """

    def __init__(self, database: Path, connect: Callable[[Path], apsw.Connection | None]) -> None:
        self._database = database
        self._connect = connect
        self._connection: apsw.Connection | None = None
        self._inode = 0
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ragmem-code")

    async def run(
        self, job: Callable[[apsw.Connection], T], *, otherwise: T, anew: bool = False
    ) -> T:
        """Return the job's result; `otherwise` where there is no index. Errors are in plain words.

        `anew`: on a file that is made anew for it.
        """
        return await asyncio.wrap_future(self.submit(job, otherwise=otherwise, anew=anew))

    def submit(
        self, job: Callable[[apsw.Connection], T], *, otherwise: T, anew: bool = False
    ) -> "Future[T]":
        """Start a job as `run` does."""
        if self._closed:
            raise StoreUnavailable("The code index is closed.", hint="Open it again.")
        return self._thread.submit(self._do, job, otherwise, anew)

    async def aclose(self) -> None:
        """Wait for what was handed in; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        finally:
            self._thread.shutdown(wait=False)

    def _do(self, job: Callable[[apsw.Connection], T], otherwise: T, anew: bool) -> T:
        try:
            if anew:
                make_anew(self._database)
            try:
                return self._done(job, otherwise)
            except (apsw.CorruptError, apsw.NotADBError):
                self._close()
                make_anew(self._database)
            except apsw.SQLError:
                # Is it empty, because another process makes it anew just now?
                if self._connection is None or _is_ours(self._connection):
                    raise
                self._close()
            return self._done(job, otherwise)
        except apsw.Error as error:
            raise _translated(error, self._database) from error
        except OSError as error:
            raise refused(self._database, error) from error

    def _done(self, job: Callable[[apsw.Connection], T], otherwise: T) -> T:
        inode = _inode_of(self._database)
        if self._connection is not None and self._inode != inode:
            # Somebody has removed the file, or put another one in its place.
            self._close()
        if self._connection is None:
            self._connection = self._connect(self._database)
            self._inode = _inode_of(self._database)
        return otherwise if self._connection is None else job(self._connection)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _inode_of(database: Path) -> int:
    try:
        return database.stat().st_ino
    except OSError:
        return 0


def reading(connection: apsw.Connection, query: Callable[[apsw.Connection], T]) -> T:
    """Run a query that sees the index as it is at one moment."""
    connection.execute("BEGIN")
    try:
        return query(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


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


def _translated(error: apsw.Error, database: Path) -> RagmemError:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(
                f"The code index {database} is in use by another process for too long.",
                hint="Try again.",
            )
        case apsw.FullError():
            return _full(database)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return _unwritable(database, str(error))
        case _:
            return StoreError(
                f"The code index {database} could not be read or written: {error}. {_NO_HARM}",
                hint="`ragmem index --rebuild` makes it anew.",
            )


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
