"""The records of a file, one a line: streamed, and none lost for the sake of its neighbours."""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from ragmem.store.transfer.foreign.fields import Fields
from ragmem.store.transfer.foreign.values import Tally

LINE_LIMIT = 32 * 1024 * 1024
"""Bytes of a line; a longer one, an image of a scan perhaps, is passed over."""
_NOT_JSON = "no JSON"
_NO_OBJECT = "no JSON object"
_TOO_LONG = f"longer than {LINE_LIMIT >> 20} MB"
_TORN = "cut off, with another one behind it"
# How records of these agents begin: where one was cut off, the next may stand on the same line.
_BEGINNING = re.compile(
    rb'\{"(?:type|timestamp|parentUuid|uuid|sessionId|isSidechain|record_type)":'
)
_TRIES = 64
_decoder = msgspec.json.Decoder()


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """A regular file for reading: no link is followed, and no pipe is waited for. OSError."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as source:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a regular file", str(file))
        yield source


def records(source: BinaryIO, tally: Tally) -> Iterator[Fields]:
    """Every record that can be read, in order."""
    while line := source.readline(LINE_LIMIT + 1):
        if len(line) > LINE_LIMIT:
            tally.broken[_TOO_LONG] += 1
            _pass_over(source, line)
            continue
        line = line.strip(b" \t\r\n\0\xef\xbb\xbf")
        if not line:
            continue
        found = _decoded(line)
        if isinstance(found, dict):
            yield found
        elif found is not None:
            tally.broken[_NO_OBJECT] += 1
        elif (rest := _behind_a_cut(line)) is not None:
            tally.broken[_TORN] += 1
            yield rest
        else:
            tally.broken[_NOT_JSON] += 1


def _pass_over(source: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = source.readline(1 << 20)


def _decoded(line: bytes) -> object | None:
    try:
        found: object = _decoder.decode(line)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # Halves of emoji, bytes that are no UTF-8 and huge numbers are not worth a record.
        found = json.loads(line.decode("utf-8", "replace"))
        return found
    except (ValueError, RecursionError):
        return None


def _behind_a_cut(line: bytes) -> Fields | None:
    """The whole record that ends the line, behind one that was cut off."""
    for tries, match in enumerate(_BEGINNING.finditer(line, 1)):
        if tries == _TRIES:
            break
        found = _decoded(line[match.start() :])
        if isinstance(found, dict):
            return found
    return None
