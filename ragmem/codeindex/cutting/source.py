"""A file's bytes as text, lines and what a parser is given."""

import codecs
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """Some characters of a row."""

    row: int
    first: int
    last: int
    """Not included."""


NOWHERE = Span(-1, 0, 0)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Source:
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
        """The text of a range of bytes."""
        if self._ascii:
            return self.text[start:end]
        return self.data[start:end].decode("utf-8", "replace")

    def row_starts(self) -> list[int]:
        """The byte that each row begins at."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + (len(line) if self._ascii else len(line.encode())) + 1)
        return starts

    def is_blank(self, row: int) -> bool:
        """Whether nothing but white space stands there."""
        line = self.lines[row]
        return not line or line.isspace()


def indent_of(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def windows(source: Source, start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Rows `start` to `end` (not included) in pieces of about that size, cut at blank lines.

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


def trimmed(source: Source, start: int, end: int) -> tuple[int, int] | None:
    """The rows without the blank ones around them; `end` is not included. None: all are blank."""
    while start < end and source.is_blank(start):
        start += 1
    while end > start and source.is_blank(end - 1):
        end -= 1
    return (start, end) if start < end else None
