"""Writes as lines of JSON, and back."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ragmem.records import PutVectors, Write
from ragmem.text import clean

_INT64 = 2**63 - 1


class _Named(msgspec.Struct):
    write: str


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Write] = msgspec.json.Decoder(Write)


def to_lines(writes: Sequence[Write]) -> list[bytes]:
    """One line each, without its end; none for vectors, which are made anew from what is stored."""
    return [_to_line(write) for write in writes if not isinstance(write, PutVectors)]


def from_line(line: bytes) -> Write | None:
    """None for what is no write of this version: torn, damaged, or of a newer one."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def is_damaged(line: bytes) -> bool:
    """Whether it is no write of any version: a newer one finds its own again."""
    try:
        msgspec.json.decode(line, type=_Named)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return True
    return False


def _to_line(write: Write) -> bytes:
    try:
        return _encoder.encode(write)
    except (UnicodeEncodeError, OverflowError):
        return _encoder.encode(_storable(msgspec.to_builtins(write)))


def _storable(value: Any) -> Any:
    """What the stores would make of it: clean text, 64-bit integers."""
    match value:
        case str():
            return clean(value)
        case bool():
            return value
        case int():
            return max(-_INT64 - 1, min(_INT64, value))
        case dict():
            return {key: _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            return value
