"""A handle on the database: its two threads, transactions, and what closes it."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from ragmem.errors import StoreDamaged, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.records import utc_now
from ragmem.store.sqlite import archive, backups, files, owners, schema, vectors
from ragmem.store.sqlite.lane import Lane

T = TypeVar("T")

_ALONE_S = 1.0
"""For others to let go of a database that can't be shared with them."""


class Handle:
    """Writes and reads have a thread and a connection each, and do not wait for one another."""

    def __init__(
        self,
        database: Path,
        *,
        locks_dir: Path,
        timeout_s: float = 5.0,
        clock: Callable[[], datetime] = utc_now,
        owner: str = "",
        everyone: bool = False,
    ) -> None:
        self._database = database
        self._clock = clock
        self._timeout_s = timeout_s
        self._owner = owner
        self._sees = "" if everyone else owner
        """Whose profile and memories about a person are shown; everybody's where it is empty."""
        self._locks = owners.OwnerLocks(locks_dir)
        self._damage: StoreDamaged | None = None
        self._inode = 0
        self._resident = vectors.Resident()
        self.notice = ""
        """What the person should be told of how it was opened."""
        self._writer = Lane(
            database,
            partial(
                schema.open_for_writing,
                database,
                locks_dir,
                timeout_s=timeout_s,
                clock=clock,
                owner=owner,
            ),
            timeout_s=timeout_s,
        )
        self._reader = Lane(
            database,
            partial(schema.open_for_reading, database, timeout_s=timeout_s),
            timeout_s=timeout_s,
        )

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""
        await self._reader.aclose()
        await self._writer.aclose(self._before_closing)
        self._locks.release_all()

    def _before_closing(self, connection: apsw.Connection) -> None:
        if self._damage is not None:
            schema.leave_untouched(connection)

    async def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        def job(connection: apsw.Connection) -> T:
            connection.execute("BEGIN")
            try:
                failpoint("sqlite.read")
                return query(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        try:
            return await self._reader.run(job)
        except StoreDamaged as damage:
            self._damage = damage
            raise
        except (files.Full, files.ReadOnly) as error:
            try:
                return await self._read_alone(job)
            except StoreUnavailable:
                # Somebody has it open: what keeps us from sharing it with them is the reason.
                raise error from None

    async def _read_alone(self, job: Callable[[apsw.Connection], T]) -> T:
        """On a disk that takes nothing of what readers share."""
        await self._reader.let_go()
        limit_s = min(self._timeout_s, _ALONE_S)
        connect = partial(schema.open_alone, self._database, timeout_s=limit_s)
        lane = Lane(self._database, connect, timeout_s=limit_s)
        try:
            return await lane.run(job)
        finally:
            await lane.aclose()

    async def _write(self, job: Callable[[apsw.Connection], T]) -> T:
        if self._damage is not None:
            raise self._damage.with_traceback(None)
        try:
            return await self._writer.run(job)
        except StoreDamaged as damage:
            self._damage = damage
            raise

    async def _erase(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        then: Callable[[apsw.Connection], None] = lambda _: None,
    ) -> tuple[T, bool]:
        """A transaction that removes something, and whether nothing of it is left in the file."""

        def job(connection: apsw.Connection) -> tuple[T, bool]:
            connection.pragma("secure_delete", True)
            try:
                went = self._transaction(connection, lambda: work(connection))
                then(connection)
                backups.drop(self._database)
                return went, archive.rewrite(connection)
            finally:
                connection.pragma("secure_delete", False)

        return await self._write(job)

    def _transaction(self, connection: apsw.Connection, work: Callable[[], T]) -> T:
        """All of the work or none, durable when it returns."""
        self._still_there()
        connection.execute("BEGIN IMMEDIATE")
        try:
            failpoint("sqlite.begun")
            result = work()
            failpoint("sqlite.commit")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        failpoint("sqlite.committed")
        return result

    def _still_there(self) -> None:
        """SQLite would go on writing, and acknowledging, into a file that was deleted."""
        try:
            inode = self._database.stat().st_ino
        except FileNotFoundError:
            raise files.lost(self._database, "was moved or deleted while in use") from None
        if inode != self._inode:
            raise files.lost(self._database, "was replaced while in use")
