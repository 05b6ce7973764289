"""The file of the index: opened, made anew where it is not what it should be, used from a thread.

All of it follows from the project's files, so it is written without waiting for the disk, and a
damaged one is thrown away.
"""

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import apsw

from ragmem.errors import RagmemError, StoreError, StoreRefused, StoreUnavailable
from ragmem.logs import LOGGER
from ragmem.store.locks import lock

SCHEMA_VERSION = 4
"""The version of the tables."""
CUT_VERSION = 2
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

    parts = (SCHEMA_VERSION, CUT_VERSION, WORDS_VERSION, TERMS_VERSION)
    number = 0
    for part in parts:
        number = number * 1000 + part
    return number


def open_for_writing(database: Path) -> apsw.Connection:
    """Open an index of this version, if need be an empty one."""
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
    """Open an index of this version without writing anything; None where there is none."""
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
    """Keep everybody else from opening or removing it meanwhile.

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
    """Open it for reading; None for what is no index of this version."""
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
    """Open it as it lies there; with its log, if it left one, by way of a copy."""
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
    """Write all of the block or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def close(connection: apsw.Connection) -> None:
    """Move what its log holds into the file, if nobody reads just then; an empty log stays."""
    if not connection.pragma("query_only"):
        connection.set_busy_timeout(0)
        with suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


def leave_log(connection: apsw.Connection) -> None:
    """Keep the log at closing: one is removed by name, also that of another file in its place."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


T = TypeVar("T")

_OPENED_AT_MOST = 3
"""How often it is opened anew, if somebody puts another one in its place just then."""
_NO_HARM = "Nothing is lost: the index follows from the files, and your memory is elsewhere."


def database_of(data_dir: Path, project_id: str) -> Path:
    """Return where the index of a project's folder is."""
    return data_dir / "code" / f"{project_id}.sqlite"


class IndexThread:
    """One thread with a connection of its own, awaited from the event loop.

    Where the file was replaced, the connection is opened anew; where it is damaged, it is thrown
    away by who may do that, and is as good as none to others.
    """

    def __init__(
        self,
        database: Path,
        connect: Callable[[Path], apsw.Connection | None],
        *,
        throws_away: Callable[[], bool] = lambda: True,
    ) -> None:
        self._database = database
        self._connect = connect
        self._throws_away = throws_away
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
        self,
        job: Callable[[apsw.Connection], T],
        *,
        otherwise: T,
        anew: bool = False,
        at_end: Callable[[], object] = lambda: None,
    ) -> "Future[T]":
        """Start a job as `run` does; `at_end` is called whatever comes of it."""
        if self._closed:
            at_end()
            raise StoreUnavailable("The code index is closed.", hint="Open it again.")

        def whole() -> T:
            try:
                return self._do(job, otherwise, anew)
            finally:
                at_end()

        return self._thread.submit(whole)

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
                self._throw_away()
            try:
                connection = self._current()
                return otherwise if connection is None else job(connection)
            except (apsw.CorruptError, apsw.NotADBError):
                # What is read of it is as good as none; who writes makes it anew, once.
                if not self._throws_away():
                    self._leave_damaged()
                    return otherwise
                self._throw_away()
                connection = self._current()
                return otherwise if connection is None else job(connection)
        except apsw.Error as error:
            raise _translated(error, self._database) from error
        except OSError as error:
            raise refused(self._database, error) from error

    def _leave_damaged(self) -> None:
        logging.getLogger(LOGGER).warning("The code index %s is damaged.", self._database)
        self._close()

    def _throw_away(self) -> None:
        self._close()
        throw_away(self._database)

    def _current(self) -> apsw.Connection | None:
        if self._connection is not None and self._inode != _inode_of(self._database):
            self._close()
        if self._connection is None:
            for _ in range(_OPENED_AT_MOST):
                self._close()
                before = _inode_of(self._database)
                self._connection = self._connect(self._database)
                self._inode = _inode_of(self._database)
                if self._connection is None or before == self._inode:
                    break
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            close(self._connection)
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
    handle = _lock_file(file, os.O_RDWR | os.O_CREAT)
    try:
        if handle is not None:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_followed(file: Path) -> bool:
    """Return whether a process follows them now."""
    handle = _lock_file(file, os.O_RDONLY)
    if handle is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def _lock_file(file: Path, flags: int) -> int | None:
    try:
        return os.open(file, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
