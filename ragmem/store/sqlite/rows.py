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
_OF_A_TURN = (
    "turn_id session_id turn_index status char_count owner_id started_at finished_at model usage"
)
_OF_A_CALL = (
    "tool_call_id turn_id order iteration tool_name success origin started_at duration_ms"
    " result_size_bytes"
)
_INT64 = 2**63 - 1
_BOOL = frozenset(("success", "extractive", "pinned"))


MOST_BYTES = 16 << 20
"""Of one text that is read: a store of an older version may hold turns without a bound."""


def bounded(column: str, most: int = MOST_BYTES) -> str:
    """A column of text as it is read: what is too long is left out by SQLite, with a mark."""
    length = f"octet_length({column})"
    return (
        f"iif({length} <= {most}, {column}, substr({column}, 1, {most // 4})"
        f" || printf(char(10) || '… [%,d bytes: the rest is left out]', {length}))"
    )


def _selected(table: str, plain: str, texts: str, most: int) -> str:
    whole = [f'{table}."{name}"' for name in plain.split()]
    cut = [f"{bounded(f'{table}.{name}', most)} AS {name}" for name in texts.split()]
    return ", ".join((*whole, *cut))


def turn_fields(table: str = "turns") -> str:
    """What is selected for a `Turn`."""
    return _selected(table, _OF_A_TURN, "user_message assistant_message reasoning", MOST_BYTES)


def call_fields(table: str = "tool_calls") -> str:
    """What is selected for a `ToolCall`."""
    return _selected(table, _OF_A_CALL, "error preamble arguments result", MOST_BYTES)


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
