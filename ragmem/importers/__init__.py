"""Sessions of other agents, read from their files into the store.

session_parser.py  a session from such records, turn by turn, whichever agent has written them
claude_code.py     records of Claude Code
codex.py           records of Codex
messages.py        messages of mistral-vibe and Gemini CLI, the database of opencode
kimi.py            events of kimi-cli and of Kimi Code
importer.py        the files, and turns into the store: only those that it does not have

Here: reading what another program wrote, of which every field may be missing or something else.
"""

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from ragmem.libraries import install_command
from ragmem.text import clean

Fields = Mapping[str, object]
_NOTHING: Fields = {}
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)
"""Before these agents were: a time that is earlier is none."""
_AHEAD = timedelta(days=1)
_MOST_TOKENS = 1 << 40
TEXT_LIMIT = 200_000
"""Characters of a tool's result, or of the thoughts of a turn, that are kept; the middle goes."""


def fields(value: object, *path: str) -> Fields:
    """The object at the path; an empty one where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else _NOTHING


def text(record: Fields, name: str) -> str:
    """A text, fit to be stored; empty where there is none."""
    value = record.get(name)
    return clean(value) if isinstance(value, str) else ""


def items(record: Fields, name: str) -> Sequence[object]:
    """A list; empty where there is none."""
    value = record.get(name)
    return value if isinstance(value, list) else ()


def count(record: Fields, name: str) -> int | None:
    """A number of tokens; None where there is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TOKENS:
        return None
    return value


def moment(value: object, now: datetime) -> datetime | None:
    """A time that can be true: ISO 8601, or seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return found if _EARLIEST <= found <= now + _AHEAD else None


AgentName = Literal[
    "claude-code", "codex", "opencode", "gemini-cli", "kimi-cli", "kimi-code", "mistral-vibe"
]
State = Literal["new", "grown", "unchanged", "other_folder", "empty", "refused"]
"""What a session file was found to be; `other_folder`: the person asked for those of one."""


class Tally:
    """What was not taken over, by its kind; of one file, or of all."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        """Known, and no part of the conversation, in words."""
        self.unknown: Counter[str] = Counter()
        """Records of kinds that a newer version of the agent may have, by their names."""
        self.broken: Counter[str] = Counter()
        """Lines that can't be read, by the reason."""

    def add(self, other: "Tally") -> None:
        """Count up another one's."""
        self.left_out += other.left_out
        self.unknown += other.unknown
        self.broken += other.broken


class FileFacts(msgspec.Struct, kw_only=True):
    """What is known of a session so far; it grows while its file is read."""

    foreign_id: str
    """The agent's own id of it."""
    cwd: str = ""
    title: str = ""
    first_prompt: str = ""
    started_at: datetime | None = None
    last_at: datetime
    """Of the newest record; before the first one, of the file."""
    forked_from: str = ""
    """The id here of the session whose turns this one begins with."""
    subagent: bool = False
    """It was held by an agent that another one had sent, not by a person."""


class FoundFile(msgspec.Struct, frozen=True):
    """A file that may hold a session."""

    file: Path
    size: int
    changed_at: datetime
    session: str = ""
    """Which one, of a file that holds several."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file."""

    state: State
    session_id: str = ""
    title: str = ""
    cwd: str = ""
    turns_added: int = 0
    turns_changed: int = 0
    """That were not complete the last time."""
    turns_known: int = 0
    tool_calls_added: int = 0
    reason: str = ""
    """Why it was refused: by the store, or by the disk that it is read from."""


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
_DOCUMENT_LIMIT = 256 * 1024 * 1024
"""Bytes of a file that is one JSON document."""
_decoder = msgspec.json.Decoder()


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """A regular file for reading, unpacked: no link is followed, no pipe waited for. OSError."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as source:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a regular file", str(file))
        if file.suffix != ".zst":
            yield source
            return
        zstd = _zstd(file)
        try:
            with BufferedReader(zstd.ZstdFile(source)) as unpacked:
                yield unpacked
        except (zstd.ZstdError, EOFError):
            raise OSError(0, "it is incomplete, or not compressed by zstd", str(file)) from None


def _zstd(file: Path) -> Any:
    """The library that unpacks; OSError that says what to install where there is none."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    why = f"it is compressed; to read it, install zstd: `{install_command('zstd')}`"
    raise OSError(0, why, str(file))


def document(file: Path) -> Fields:
    """The JSON object that a file consists of; an empty one where there is none."""
    try:
        with opened(file) as source:
            return fields(decoded_line(source.read(_DOCUMENT_LIMIT)))
    except OSError:
        return _NOTHING


def records_of(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    """The records of a session's file, in order; of one JSON document its `messages`. OSError."""
    with opened(found.file) as source:
        if found.file.suffix != ".json":
            yield from records(source, tally)
        elif whole := fields(decoded_line(source.read(_DOCUMENT_LIMIT))):
            yield {name: value for name, value in whole.items() if name != "messages"}
            yield from filter(None, map(fields, items(whole, "messages")))
        else:
            tally.broken[_NOT_JSON] += 1


def records(source: BinaryIO, tally: Tally) -> Iterator[Fields]:
    """Every record that can be read, in order."""
    while line := source.readline(LINE_LIMIT + 1):
        if len(line) > LINE_LIMIT:
            tally.broken[_TOO_LONG] += 1
            while line and not line.endswith(b"\n"):
                line = source.readline(1 << 20)
            continue
        line = line.strip(b" \t\r\n\0\xef\xbb\xbf")
        if not line:
            continue
        found = decoded_line(line)
        if isinstance(found, dict):
            yield found
        elif found is not None:
            tally.broken[_NO_OBJECT] += 1
        elif (rest := _behind_a_cut(line)) is not None:
            tally.broken[_TORN] += 1
            yield rest
        else:
            tally.broken[_NOT_JSON] += 1


def decoded_line(line: bytes) -> object | None:
    """What stands in a line as JSON; None where that is nothing."""
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
        found = decoded_line(line[match.start() :])
        if isinstance(found, dict):
            return found
    return None
