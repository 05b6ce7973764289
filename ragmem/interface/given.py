"""What a program hands over, as records: texts, times, tool calls."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ragmem.errors import UsageError
from ragmem.ids import new_id
from ragmem.llm.base import parse_arguments
from ragmem.records import ToolCall
from ragmem.text import clean

GivenCall = ToolCall | Mapping[str, Any]
"""A call as it happened: a `ToolCall`, or its fields by name (see docs/python.md)."""

_OTHER_NAMES = {
    "name": "tool_name",
    "args": "arguments",
    "tool_args": "arguments",
    "tool_result": "result",
    "timestamp": "started_at",
    "uuid": "tool_call_id",
}
_FIELDS = {
    "tool_call_id",
    "tool_name",
    "arguments",
    "result",
    "success",
    "error",
    "duration_ms",
    "started_at",
    "iteration",
    "preamble",
}


def text(value: object, name: str) -> str:
    """A text that can be stored; UsageError for what is none."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is a {type(value).__name__}, not a text.")
    return clean(value)


def moment(at: datetime | None, now: datetime) -> datetime:
    """Now, if no time is given; one without a time zone is this machine's local time."""
    if at is None:
        return now
    if not isinstance(at, datetime):
        raise UsageError(f"A time is a datetime, not a {type(at).__name__}.")
    try:
        return at.astimezone(now.tzinfo)
    except (OverflowError, ValueError, OSError):
        raise UsageError(f"The time {at} can't be stored.") from None


def calls(given: Iterable[GivenCall], *, turn_id: str, at: datetime) -> tuple[ToolCall, ...]:
    """The calls of a turn, in order; they happened at `at` where nothing else is said."""
    made = [_call(one, turn_id=turn_id, order=order, at=at) for order, one in enumerate(given)]
    if len({call.tool_call_id for call in made}) < len(made):
        raise UsageError("Two tool calls of one turn have the same id.")
    return tuple(made)


def _call(one: GivenCall, *, turn_id: str, order: int, at: datetime) -> ToolCall:
    if isinstance(one, ToolCall):
        fields = msgspec.structs.asdict(one)
    elif isinstance(one, Mapping):
        fields = _named(one)
    else:
        raise UsageError(f"A tool call is a ToolCall or a mapping, not a {type(one).__name__}.")
    started = fields.get("started_at")
    error = fields.get("error")
    success = fields.get("success")
    whole = {
        "success": error is None if success is None else success,
        "tool_call_id": fields.get("tool_call_id") or new_id(),
        "started_at": moment(started, at),
        "turn_id": turn_id,
        "order": order,
        "tool_name": text(fields["tool_name"], "tool_name"),
        "arguments": _arguments(fields.get("arguments")),
        "result": _result(fields.get("result", "")),
    }
    try:
        return msgspec.convert(fields | whole, ToolCall)
    except msgspec.ValidationError as wrong:
        raise UsageError(
            f"The tool call {whole['tool_name']!r} can't be stored: {wrong}."
        ) from None


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    fields = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
    if unknown := sorted(set(fields) - _FIELDS):
        raise UsageError(
            f"A tool call has no {unknown[0]!r}.", hint=f"It has {', '.join(sorted(_FIELDS))}."
        )
    if not fields.get("tool_name"):
        raise UsageError("A tool call without a tool_name can't be stored.")
    return fields


def _arguments(value: object) -> str:
    """A JSON object, whatever arrived."""
    encoded = value if isinstance(value, str) else _json({} if value is None else value)
    try:
        parse_arguments(encoded or "{}")
    except ValueError:
        return _json({"value": value})
    return clean(encoded or "{}")


def _result(value: object) -> str:
    """A JSON object with at least `text`, what the model was shown."""
    if isinstance(value, str):
        known = _decoded(value)
        if isinstance(known, dict) and isinstance(known.get("text"), str):
            return clean(value)
        return _json({"text": clean(value)})
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return _json(dict(value))
    shown = {"text": _json(value)}
    return _json(shown | dict(value) if isinstance(value, Mapping) else shown)


def _decoded(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _json(value: object) -> str:
    try:
        return clean(msgspec.json.encode(value).decode())
    except (TypeError, ValueError, RecursionError) as wrong:
        raise UsageError(
            f"Arguments and results of a tool call are JSON: {wrong}.",
            hint="Give a text, a number, a list or a dict of such.",
        ) from None
