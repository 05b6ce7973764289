"""A connection as the queries use it, and the thread that owns one.

A column has its field's name. Text is stored cleaned, a time as ISO 8601 in UTC, so that text order
is time order, an integer in 64 bits, a tuple or a struct as JSON. Records within a record have a
table of their own.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import apsw
import msgspec

from ragmem.errors import RagmemError, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.files import OwnerLocks
from ragmem.records import utc_now
from ragmem.store import stored

Value = str | int | float | None
Row = dict[str, Any]
R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")

# --- records and rows -------------------------------------------------------------------


def iso(at: datetime) -> str:
    """Format a time as it is stored."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def value(field: object) -> Value:
    """Convert a field to the value of its column."""
    match stored(field):
        case None | int() | float() | str() as plain:
            return plain
        case datetime() as at:
            return iso(at)
        case held:
            return msgspec.json.encode(held).decode()


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def stored_fields(kind: type[msgspec.Struct]) -> dict[str, Callable[[Any], object] | None]:
    """Return the fields that are columns, each with its decoder, or None if it needs none."""
    found: dict[str, Callable[[Any], object] | None] = {}
    types = get_type_hints(kind)
    for name in kind.__struct_fields__:
        held = types[name]
        is_tuple = get_origin(held) is tuple
        if is_tuple and any(map(_is_struct, get_args(held))):
            continue  # records within a record
        is_json = is_tuple or _is_struct(held)
        found[name] = bool if held is bool else msgspec.json.decode if is_json else None
    return found


def columns(record: msgspec.Struct) -> Row:
    """Return a record's fields as column values."""
    return {name: value(getattr(record, name)) for name in stored_fields(type(record))}


def record(kind: type[R], row: Mapping[str, Any]) -> R:
    """Return the record in a row; columns that are not among its fields are ignored."""
    readers = stored_fields(kind)
    read = {
        name: held if held is None or (reader := readers.get(name)) is None else reader(held)
        for name, held in row.items()
    }
    return msgspec.convert(read, kind)


# --- connections ------------------------------------------------------------------------


class Access(NamedTuple):
    """The owner a database is opened for, its clock, and the locks that show living processes."""

    locks: OwnerLocks
    owner: str = ""
    """The owner of what is written."""
    sees: str = ""
    """Whose profile and memories about a person are shown; everybody's if it is empty."""
    clock: Callable[[], datetime] = utc_now


@cache
def _upsert(
    table: str, columns: tuple[str, ...], key: str, keep: tuple[str, ...], where: str
) -> str:
    names = [f'"{name}"' for name in columns]
    kept = {f'"{name}"' for name in (*key.split(", "), *keep)}
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in kept)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{n}' for n in columns)})"
        f" ON CONFLICT ({key}) DO " + (f"UPDATE SET {changed} {where}" if changed else "NOTHING")
    )


class Database(apsw.Connection):
    """A connection whose queries take field values by name, and can return records."""

    def __init__(self, file: str, flags: int, access: Access) -> None:
        super().__init__(file, flags)
        self.access = access

    @property
    def now(self) -> datetime:
        """The time, by the clock that the database was opened with."""
        return self.access.clock()

    def query(self, sql: str, /, **given: object) -> apsw.Cursor:
        """Execute a statement."""
        return self.execute(sql, {name: value(each) for name, each in given.items()})

    def get(self, sql: str, /, **given: object) -> Any:
        """Return the first row of a query, or its value if it has one column; None without rows."""
        return self.query(sql, **given).get

    def tuples(self, sql: str, /, **given: object) -> list[tuple[Any, ...]]:
        """Return all rows, by position."""
        return self.query(sql, **given).fetchall()

    def column(self, sql: str, /, **given: object) -> list[Any]:
        """Return the first value of every row."""
        return [row[0] for row in self.tuples(sql, **given)]

    def rows(self, sql: str, /, **given: object) -> Iterator[Row]:
        """Yield the rows of a query as they are fetched."""
        cursor = self.query(sql, **given)
        names: list[str] = []
        for held in cursor:
            names = names or [column[0] for column in cursor.get_description()]
            yield dict(zip(names, held, strict=True))

    def records(self, kind: type[R], sql: str, /, **given: object) -> list[R]:
        """Return the records in the rows of a query."""
        return [record(kind, row) for row in self.rows(sql, **given)]

    def put(
        self, table: str, row: Row, key: str, *, keep: tuple[str, ...] = (), where: str = ""
    ) -> None:
        """Insert a row, or replace the one with its key except for the columns to `keep`.

        `where` restricts which rows are replaced; `excluded` is the new row.
        """
        self.execute(_upsert(table, tuple(row), key, keep, where), row)


class ConnectionThread:
    """One thread that owns one connection, and runs jobs on it one at a time.

    The connection is opened by the first job. `timeout_s` counts from when a job is submitted: one
    that has waited for other jobs of this process has less left to wait for other processes.
    `translate` returns the error in plain words, or None.
    """

    def __init__(
        self,
        connect: Callable[[], Database],
        translate: Callable[[Exception, Database | None], RagmemError | None],
        *,
        timeout_s: float,
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._timeout_s = timeout_s
        self._connection: Database | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ragmem-store")

    async def run(self, job: Callable[[Database], T]) -> T:
        """Run the job on the thread and return its result."""
        if self._closed:
            raise StoreUnavailable("The memory is closed.", hint="Open it again.")
        deadline = time.monotonic() + self._timeout_s
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._do, job, deadline
        )

    async def aclose(self, last: Callable[[Database], object] | None = None) -> None:
        """Wait for submitted jobs, run a last one if a connection is open, and close it."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close, last)
        finally:
            self._thread.shutdown(wait=False)

    async def close_connection(self) -> None:
        """Close the connection, which frees its locks; the next job opens another."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close, None)

    def _do(self, job: Callable[[Database], T], deadline: float) -> T:
        try:
            if self._connection is None:
                failpoint("sqlite.open")
                self._connection = self._connect()
            left_s = max(0.001, deadline - time.monotonic())
            self._connection.set_busy_timeout(round(left_s * 1000))
            return job(self._connection)
        except (apsw.Error, OSError) as error:
            if plain := self._translate(error, self._connection):
                raise plain from error
            raise

    def _close(self, last: Callable[[Database], object] | None) -> None:
        if self._connection is not None:
            if last is not None:
                last(self._connection)
            self._connection.close()
            self._connection = None
