"""The file of the index, used from threads; what goes wrong with it in plain words."""

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from ragmem.codeindex.opening import close, throw_away
from ragmem.codeindex.opening import open_for_reading as open_for_reading
from ragmem.codeindex.opening import open_for_writing as open_for_writing
from ragmem.codeindex.opening import transaction as transaction
from ragmem.codeindex.opening import version as version
from ragmem.errors import RagmemError, StoreError, StoreRefused, StoreUnavailable
from ragmem.logs import LOGGER

T = TypeVar("T")

_OPENED_AT_MOST = 3
"""Times, where somebody puts another one in its place just then."""
_NO_HARM = "Nothing is lost: the index follows from the files, and your memory is elsewhere."


def database_of(data_dir: Path, project_id: str) -> Path:
    """Where the index of a project's folder is."""
    return data_dir / "code" / f"{project_id}.sqlite"


class Lane:
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
        """The job's result; `otherwise` where there is no index. Errors in plain words.

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
        """As `run`, for who waits in another way; `at_end` is called whatever comes of it."""
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
    """All that a query reads at one moment."""
    connection.execute("BEGIN")
    try:
        return query(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def raise_epoch(connection: apsw.Connection) -> int:
    """What is held in memory is no longer all; the new one. In the caller's transaction."""
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
    """The error for a file or folder of the index that can't be used."""
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
