"""A file's text and lines, and its pieces made scopes: a text, a hash and a name for each."""

import codecs
import re
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ragmem.index.values import CutScope
from ragmem.records import ScopeKind


class NameSpan(NamedTuple):
    """Some characters of a row."""

    row: int
    first: int
    last: int
    """The first character behind it."""


NOWHERE = NameSpan(-1, 0, 0)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class SourceText:
    """A file, decoded. Rows count from 0 and end at line feeds, as a parser counts them."""

    __slots__ = ("_ascii", "data", "lines", "text")

    def __init__(self, data: bytes) -> None:
        if data.startswith(_UTF16):
            text = data.decode("utf-16", "replace")
        else:
            text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        # No store takes a NUL, and parsers take one for the end.
        text = text.replace("\r\n", "\n").replace("\0", " ")
        self.text = text
        self.data = text.encode()
        self._ascii = len(self.data) == len(text)
        self.lines = text.split("\n")
        if not self.lines[-1]:
            self.lines.pop()

    def between(self, start: int, end: int) -> str:
        """Return the text of a range of bytes."""
        if self._ascii:
            return self.text[start:end]
        return self.data[start:end].decode("utf-8", "replace")

    def row_starts(self) -> list[int]:
        """Return the byte that each row begins at."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + (len(line) if self._ascii else len(line.encode())) + 1)
        return starts

    def is_blank(self, row: int) -> bool:
        """Return whether nothing but white space stands there."""
        line = self.lines[row]
        return not line or line.isspace()


def indent_of(line: str) -> str:
    """Return the white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def windows(source: SourceText, start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Cut rows `start` to `end` (not included) at blank lines, in pieces of about that size.

    Pieces begin and end with lines that are not blank; a piece without one is none.
    """
    cuts, row = [start], start
    while end - row > size * 3 // 2:
        # The blank line nearest to the size that is wanted, from a half to one and a half of it.
        row = next(
            (
                place
                for away in range(size // 2)
                for place in (row + size + away, row + size - away)
                if place < end and source.is_blank(place)
            ),
            row + size,
        )
        cuts.append(row)
    return [rows for a, b in pairwise([*cuts, end]) if (rows := trimmed(source, a, b)) is not None]


def trimmed(source: SourceText, start: int, end: int) -> tuple[int, int] | None:
    """Strip blank rows at both ends; `end` is not included. None if all are blank."""
    while start < end and source.is_blank(start):
        start += 1
    while end > start and source.is_blank(end - 1):
        end -= 1
    return (start, end) if start < end else None


_NAME = "\0"
"""What stands in the place of a name; no source has it."""
_WORD = r"(?<![\w$]){name}(?![\w$])"
# A function's name means the function itself where it is called, not as that of another thing, or
# decorates.
_CALLED = (
    r"(?<![\w$])(?:(?<!\.)(?<!->)(?<!::)|(?<=self\.)|(?<=cls\.)|(?<=this\.)|(?<=this->)"
    r"|(?<=[Ss]elf::)|(?<=static::)){name}(?=\()|(?<=@){name}(?=\.)"
)
_RULE = re.compile(r"\s*([^\w\s])\1{2,}\s*$")
_SAID = re.compile(r"\s*//+[ \t]*([\w.]+)")
"""Matches what is said above in Go: it begins with the name, and may be left when that changes."""
_LONGEST_NAME = 120
_LONGEST_QUALIFIED = 300
LONGEST_SIGNATURE = 300
LONGEST_DOCSTRING = 500


class Piece(msgspec.Struct, eq=False):
    """A scope in the making. Rows count from 0, both included."""

    kind: ScopeKind
    first: int
    last: int
    name: str = ""
    named: NameSpan = NOWHERE
    """Where its name stands."""
    qualified: str = ""
    """The name with those around it; the name itself where nothing else is given."""
    signature: str = ""
    docstring: str = ""
    calls: dict[str, None] = {}
    parts: list["Piece"] = []
    """The scopes directly inside of it, in their order."""

    def __post_init__(self) -> None:
        self.qualified = self.qualified or self.name


def scopes_of(source: SourceText, pieces: list[Piece]) -> tuple[CutScope, ...]:
    """Return the scopes, in the order of their first lines, outer ones first."""
    pieces.sort(key=lambda piece: (piece.first, -piece.last))
    names = _Names()
    scopes = []
    for piece in pieces:
        text = _text(source, piece)
        scopes.append(
            CutScope(
                kind=piece.kind,
                name=clipped(piece.name, _LONGEST_NAME),
                qualified_name=names.take(piece.kind, clipped(piece.qualified, _LONGEST_QUALIFIED)),
                signature=piece.signature,
                docstring=clipped(piece.docstring, LONGEST_DOCSTRING),
                start_line=piece.first + 1,
                end_line=piece.last + 1,
                text=text,
                calls=tuple(piece.calls),
                hash=hash_of(_nameless(source, piece, text)),
            )
        )
    return tuple(scopes)


def clipped(text: str, limit: int) -> str:
    """Return at most `limit` characters of it."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Names:
    """The names of a file's scopes, each once within its kind."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()
        self._count: dict[tuple[str, str], int] = {}

    def take(self, kind: str, name: str) -> str:
        """Return this name; if it is taken, with the first number that is free behind it."""
        own, key = name, (kind, name)
        while (kind, own) in self._taken:
            self._count[key] = number = self._count.get(key, 1) + 1
            own = f"{name}#{number}"
        self._taken.add((kind, own))
        return own


def _text(source: SourceText, piece: Piece) -> str:
    if not piece.parts:
        return "\n".join(source.lines[piece.first : piece.last + 1])
    lines: list[str] = []
    row = piece.first
    for part in piece.parts:
        # What shares a line with what it is in can't be told apart by lines.
        if part.first <= piece.first or part.first < row:
            continue
        lines += source.lines[row : part.first]
        indent = indent_of(source.lines[part.first])
        lines.append(indent + (part.signature or source.lines[part.first].strip()))
        row = part.last + 1
    lines += source.lines[row : piece.last + 1]
    return "\n".join(lines)


def _nameless(source: SourceText, piece: Piece, text: str) -> str:
    """Return its text as it would be under any name: what is renamed is known again by it."""
    row, first, last = piece.named
    if not piece.first <= row <= piece.last:
        return text
    if piece.kind == "section":
        return _headless(text, row - piece.first, first)
    if any(piece.first < part.first <= row for part in piece.parts):
        return text
    start = sum(len(line) + 1 for line in source.lines[piece.first : row])
    text = text[: start + first] + _NAME + text[start + last :]
    if row > piece.first and (said := _SAID.match(text)):
        text = text[: said.start(1)] + _NAME + text[said.end(1) :]
    if piece.name in text and piece.name.isidentifier():
        called = _WORD if piece.kind in ("class", "type") else _CALLED
        text = re.sub(called.format(name=piece.name), _NAME, text)
    return text


def _headless(text: str, row: int, first: int) -> str:
    """Strip its heading, and the lines as long as that around it."""
    lines = text.split("\n")
    lines[row] = lines[row][:first] + _NAME
    for near in (row - 1, row + 1):
        if 0 <= near < len(lines) and _RULE.match(lines[near]):
            lines[near] = _NAME
    return "\n".join(lines)


def hash_of(text: str) -> str:
    """Hash a text; the same where only its indentation or the space at line ends is another."""
    lines = [line.rstrip() for line in text.split("\n")]
    # What the first and the last line in order have in common, all lines have.
    least, most = min(filled := [line for line in lines if line] or [""]), max(filled)
    margin = 0
    while margin < len(least) and least[margin] == most[margin] and least[margin].isspace():
        margin += 1
    bare = "\n".join([line[margin:] for line in lines]) if margin else "\n".join(lines)
    return blake2b(bare.encode("utf-8", "replace"), digest_size=16).hexdigest()


def first_words(source: SourceText, start: int, end: int) -> str:
    """Return the first line there that isn't blank."""
    for row in range(start, end):
        if not source.is_blank(row):
            words = " ".join(source.lines[row][: 4 * LONGEST_SIGNATURE].split())
            return clipped(words, LONGEST_SIGNATURE)
    return ""
