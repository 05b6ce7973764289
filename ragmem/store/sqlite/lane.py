"""One thread that owns one connection, awaited from the event loop."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from ragmem.errors import StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.store.sqlite import files

T = TypeVar("T")


class Lane:
    """Jobs on a connection, one after the other; the connection opens with the first.

    `timeout_s` counts from when a job is handed in: those that wait for others
    of this process have less left to wait for other processes.
    """

    def __init__(
        self, database: Path, connect: Callable[[], apsw.Connection], *, timeout_s: float
    ) -> None:
        self._database = database
        self._connect = connect
        self._timeout_s = timeout_s
        self._connection: apsw.Connection | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ragmem-store")

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """The job's result; errors of SQLite and of files in plain words."""
        if self._closed:
            raise StoreUnavailable("The memory is closed.", hint="Open it again.")
        deadline = time.monotonic() + self._timeout_s
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._do, job, deadline
        )

    async def aclose(self, last: Callable[[apsw.Connection], object] | None = None) -> None:
        """Wait for what was handed in, run a last job if a connection is open, and close it."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close, last)
        finally:
            self._thread.shutdown(wait=False)

    async def let_go(self) -> None:
        """Close the connection, and with it its locks; the next job opens another."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close, None)

    def _do(self, job: Callable[[apsw.Connection], T], deadline: float) -> T:
        try:
            if self._connection is None:
                failpoint("sqlite.open")
                self._connection = self._connect()
            left_s = max(0.001, deadline - time.monotonic())
            self._connection.set_busy_timeout(round(left_s * 1000))
            return job(self._connection)
        except apsw.Error as error:
            number = self._connection.system_errno if self._connection else 0
            plain = files.translated(error, self._database, self._timeout_s, number)
            if plain is None:
                raise
            raise plain from error
        except OSError as error:
            raise files.refused(self._database, error) from error

    def _close(self, last: Callable[[apsw.Connection], object] | None) -> None:
        if self._connection is not None:
            if last is not None:
                last(self._connection)
            self._connection.close()
            self._connection = None
