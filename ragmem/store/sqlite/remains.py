"""A copy of a damaged database, and the rows of it that can still be read."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from ragmem.errors import StoreDamaged
from ragmem.store.sqlite import first_page
from ragmem.store.sqlite.rows import R, Row, record, rows

_LAST_ROW = 1 << 40
_TABLES = ("projects", "sessions", "turns", "tool_calls", "summaries")
_MISSING: Row = {"covers": "[]"}


class Remains:
    """Rows on damaged pages are stepped over; `lost` counts those places."""

    def __init__(self, database: Path, folder: Path) -> None:
        """Copies the database, with its log, into the folder; the original is only read."""
        self._copy = folder / "damaged.db"
        for suffix in ("", "-wal"):
            source = database.with_name(database.name + suffix)
            if source.exists():
                shutil.copyfile(source, self._copy.with_name(self._copy.name + suffix))
        self.lost = 0
        self._connection = self._opened(folder)

    def close(self) -> None:
        """Let go of the copy."""
        self._connection.close()

    def _opened(self, folder: Path) -> apsw.Connection:
        connection = _connected(self._copy)
        if connection is None and first_page.renew(self._copy, folder):
            connection = _connected(self._copy)
        if connection is None:
            raise StoreDamaged(
                "Nothing of the memory's database can be read. It was left as it is.",
                hint="Put a backup in its place.",
            )
        return connection

    def _has(self, table: str) -> bool:
        try:
            self._connection.execute(f"SELECT * FROM {table} LIMIT 0").fetchall()
        except apsw.Error:
            return False
        return True

    def _records(self, table: str, kind: type[R]) -> Iterator[tuple[int, R]]:
        """Rows that are records still, each with its number."""
        for row in self._rows(table):
            number = int(row.pop("row_number") or 0)
            try:
                yield number, record(kind, row | _MISSING)
            except (msgspec.MsgspecError, ValueError):
                self.lost += 1

    def _rows(self, table: str) -> Iterator[Row]:
        last = 0
        while True:
            try:
                for row in self._after(table, last):
                    last = int(row["row_number"] or 0)
                    yield row
                return
            except (apsw.Error, UnicodeDecodeError):
                self.lost += 1
            step = self._readable_from(table, last)
            if step is None:
                return
            last += step

    def _after(self, table: str, last: int, limit: int = -1) -> Iterator[Row]:
        for row in rows(
            self._connection,
            f"SELECT rowid AS row_number, * FROM {table} NOT INDEXED"
            " WHERE rowid > :last ORDER BY rowid LIMIT :limit",
            {"last": last, "limit": limit},
        ):
            # On damaged pages numbers need not rise, and reading would never end.
            if int(row["row_number"] or 0) <= last:
                raise apsw.CorruptError("row out of order")
            last = int(row["row_number"] or 0)
            yield row

    def _readable_from(self, table: str, last: int) -> int | None:
        """How far to step so that the next row can be read; None past the last."""

        def readable(step: int) -> bool:
            try:
                list(self._after(table, last + step, 1))
            except (apsw.Error, UnicodeDecodeError):
                return False
            return True

        step = 1
        while not readable(step):
            step *= 2
            if last + step > _LAST_ROW:
                return None
        unreadable = step // 2
        while step - unreadable > 1:
            middle = (step + unreadable) // 2
            if readable(middle):
                step = middle
            else:
                unreadable = middle
        return step

    def _either_way(self, table: str, order: str) -> list[Row]:
        """Rows of a table without numbers: from its start, then from its end."""
        found: dict[str, Row] = {}
        for direction in ("", " DESC"):
            by = ", ".join(column + direction for column in order.split(", "))
            try:
                for row in rows(self._connection, f"SELECT * FROM {table} ORDER BY {by}"):
                    found[repr([row[column] for column in order.split(", ")])] = row
            except (apsw.Error, UnicodeDecodeError):
                self.lost += not direction
                continue
            break
        return list(found.values())

    def _by_row(self, table: str, kind: type[R], number: int) -> R:
        sql = f"SELECT * FROM {table} NOT INDEXED WHERE rowid = :number"
        [row] = rows(self._connection, sql, {"number": number})
        return record(kind, row | _MISSING)


def _connected(database: Path) -> apsw.Connection | None:
    """A connection that finds its tables, whatever is in them."""
    connection = apsw.Connection(str(database))
    try:
        connection.execute("PRAGMA writable_schema = ON")
        for table in _TABLES:
            connection.execute(f"SELECT * FROM {table} LIMIT 0").fetchall()
    except apsw.Error:
        connection.close()
        return None
    return connection
