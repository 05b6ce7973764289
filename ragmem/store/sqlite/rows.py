"""Between records and rows: a column bears its field's name."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

import apsw
import msgspec

from ragmem.text import clean

Value = str | int | float | None
Row = dict[str, Value]
R = TypeVar("R", bound=msgspec.Struct)

_JSON = frozenset(
    (
        "tags",
        "usage",
        "files_mentioned",
        "key_findings",
        "tools_used",
        "topics",
        "covers",
        "subjects",
        "action_items",
        "imports",
    )
)
_INT64 = 2**63 - 1
_BOOL = frozenset(("success", "extractive", "pinned"))


def iso(at: datetime) -> str:
    """A time as it is stored: text order is time order."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def value(field: object) -> Value:
    """A field as SQLite holds it: text cleaned, times in UTC, 64-bit integers, others as JSON."""
    match field:
        case None | float():
            return field
        case int():
            return max(-_INT64 - 1, min(_INT64, int(field)))
        case str():
            return clean(field)
        case datetime():
            return iso(field)
        case tuple():
            return msgspec.json.encode([clean(item) for item in field]).decode()
        case _:
            held = {name: value(each) for name, each in msgspec.to_builtins(field).items()}
            return msgspec.json.encode(held).decode()


def columns(record: msgspec.Struct) -> Row:
    """A record's fields by column."""
    return {name: value(getattr(record, name)) for name in record.__struct_fields__}


def record(kind: type[R], row: Mapping[str, Value]) -> R:
    """The record that a row holds; columns that are no fields of it are left out."""
    return msgspec.convert({name: _field(name, held) for name, held in row.items()}, kind)


def _field(name: str, held: Value) -> object:
    if name in _JSON and isinstance(held, str):
        return msgspec.json.decode(held)
    return bool(held) if name in _BOOL else held


def rows(
    connection: apsw.Connection, sql: str, bindings: Mapping[str, object] | None = None
) -> Iterator[Row]:
    """The rows of a query, read as they are asked for."""
    bound = {name: value(given) for name, given in (bindings or {}).items()}
    cursor = connection.execute(sql, bound)
    names: list[str] = []
    for held in cursor:
        names = names or [column[0] for column in cursor.get_description()]
        yield dict(zip(names, held, strict=True))
