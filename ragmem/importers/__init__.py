"""Sessions of other agents, imported from their files into the store.

session_parser.py  assembles a session from records, turn by turn, for any agent
claude_code.py     records of Claude Code
codex.py           records of Codex
messages.py        messages of mistral-vibe and Gemini CLI, the database of opencode
kimi.py            events of kimi-cli and of Kimi Code
importer.py        finds the files, and stores the turns that the store does not have

This module reads files of other programs, in which any field may be missing or of another type.
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
"""Before these agents existed: an earlier time is invalid."""
_AHEAD = timedelta(days=1)
_MOST_TOKENS = 1 << 40
TEXT_LIMIT = 200_000
"""Maximum characters kept of a tool's result, or of a turn's reasoning; the middle is cut."""


def fields(value: object, *path: str) -> Fields:
    """Return the object at the path; an empty one if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else _NOTHING


def text(record: Fields, name: str) -> str:
    """Return a text, clean enough to be stored; empty if there is none."""
    value = record.get(name)
    return clean(value) if isinstance(value, str) else ""


def items(record: Fields, name: str) -> Sequence[object]:
    """Return a list; empty if there is none."""
    value = record.get(name)
    return value if isinstance(value, list) else ()


def count(record: Fields, name: str) -> int | None:
    """Return a number of tokens; None if there is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TOKENS:
        return None
    return value


def moment(value: object, now: datetime) -> datetime | None:
    """Parse a plausible time: ISO 8601, or seconds or milliseconds since 1970."""
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
"""The state of a session file; `other_folder`: the user asked for sessions of another one."""


class Tally:
    """Counts of what was not imported, by kind; for one file or for all."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        """What is known and no part of the conversation, in words."""
        self.unknown: Counter[str] = Counter()
        """Records of unknown kinds, perhaps of a newer version of the agent, by kind."""
        self.broken: Counter[str] = Counter()
        """Lines that can't be read, by reason."""

    def add(self, other: "Tally") -> None:
        """Add another tally's counts."""
        self.left_out += other.left_out
        self.unknown += other.unknown
        self.broken += other.broken


class FileFacts(msgspec.Struct, kw_only=True):
    """What is known of a session so far; updated while its file is read."""

    foreign_id: str
    """The agent's own id of the session."""
    cwd: str = ""
    title: str = ""
    first_prompt: str = ""
    started_at: datetime | None = None
    last_at: datetime
    """Time of the newest record; before the first one, of the file."""
    forked_from: str = ""
    """Our id of the session whose turns this one begins with."""
    subagent: bool = False
    """Whether it belongs to a subagent, not to the user."""


class FoundFile(msgspec.Struct, frozen=True):
    """A file that may contain a session."""

    file: Path
    size: int
    changed_at: datetime
    session: str = ""
    """Which session, for a file that contains several."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of importing one file."""

    state: State
    session_id: str = ""
    title: str = ""
    cwd: str = ""
    turns_added: int = 0
    turns_changed: int = 0
    """Turns that were not complete the last time."""
    turns_known: int = 0
    tool_calls_added: int = 0
    reason: str = ""
    """Why it was refused: by the store, or because the file can't be read."""


LINE_LIMIT = 32 * 1024 * 1024
"""Maximum bytes of a line; a longer one, perhaps with a scanned image, is skipped."""
_NOT_JSON = "no JSON"
_NO_OBJECT = "no JSON object"
_TOO_LONG = f"longer than {LINE_LIMIT >> 20} MB"
_TORN = "cut off, with another one behind it"
# How records of these agents begin: after one that was cut off, the next may be on the same line.
_BEGINNING = re.compile(
    rb'\{"(?:type|timestamp|parentUuid|uuid|sessionId|isSidechain|record_type)":'
)
_TRIES = 64
_DOCUMENT_LIMIT = 256 * 1024 * 1024
"""Maximum bytes read of a file that is one JSON document."""
_decoder = msgspec.json.Decoder()


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Open a regular file, decompressed; OSError. It follows no link, and blocks on no pipe."""
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
    """Return the decompression module; OSError that says what to install if there is none."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    why = f"it is compressed; to read it, install zstd: `{install_command('zstd')}`"
    raise OSError(0, why, str(file))


def document(file: Path) -> Fields:
    """Return the JSON object that a file consists of; an empty one if there is none."""
    try:
        with opened(file) as source:
            return fields(decoded_line(source.read(_DOCUMENT_LIMIT)))
    except OSError:
        return _NOTHING


def records_of(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    """Yield a file's records in order; for one JSON document its `messages`. Raises OSError."""
    with opened(found.file) as source:
        if found.file.suffix != ".json":
            yield from records(source, tally)
        elif whole := fields(decoded_line(source.read(_DOCUMENT_LIMIT))):
            yield {name: value for name, value in whole.items() if name != "messages"}
            yield from filter(None, map(fields, items(whole, "messages")))
        else:
            tally.broken[_NOT_JSON] += 1


def records(source: BinaryIO, tally: Tally) -> Iterator[Fields]:
    """Yield every record that can be read, in order."""
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
    """Decode a line of JSON; None if that is impossible."""
    try:
        found: object = _decoder.decode(line)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # A lone surrogate, invalid UTF-8 or a huge number must not cost the whole record.
        found = json.loads(line.decode("utf-8", "replace"))
        return found
    except (ValueError, RecursionError):
        return None


def _behind_a_cut(line: bytes) -> Fields | None:
    """Return the whole record at the end of the line, after one that was cut off."""
    for tries, match in enumerate(_BEGINNING.finditer(line, 1)):
        if tries == _TRIES:
            break
        found = decoded_line(line[match.start() :])
        if isinstance(found, dict):
            return found
    return None
