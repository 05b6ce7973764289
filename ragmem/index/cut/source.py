"""A file's decoded text, its pieces turned into scopes, and cutting prose by headings or lines."""

import codecs
import re
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ragmem.index import CutScope
from ragmem.records import ScopeKind

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class SourceText:
    """A decoded file. Rows are numbered from 0 and end at line feeds, as in tree-sitter."""

    __slots__ = ("_ascii", "data", "lines", "text")

    def __init__(self, data: bytes) -> None:
        if data.startswith(_UTF16):
            text = data.decode("utf-16", "replace")
        else:
            text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        # Stores refuse a NUL, and parsers take it for the end of the file.
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
        """Return the byte offsets at which rows begin."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + (len(line) if self._ascii else len(line.encode())) + 1)
        return starts

    def is_blank(self, row: int) -> bool:
        """Return whether a row is empty or only white space."""
        line = self.lines[row]
        return not line or line.isspace()


def indent_of(line: str) -> str:
    """Return the white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def windows(source: SourceText, start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Cut rows `start` to `end` (exclusive) into pieces of about `size` rows, at blank lines.

    Blank lines at both ends of a piece are stripped, and empty pieces dropped.
    """
    cuts, row = [start], start
    while end - row > size * 3 // 2:
        # The blank line nearest to the wanted size, between half and one and a half times of it.
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
    """Strip blank rows at both ends of a range (`end` is exclusive); None if all are blank."""
    while start < end and source.is_blank(start):
        start += 1
    while end > start and source.is_blank(end - 1):
        end -= 1
    return (start, end) if start < end else None


_LONGEST_NAME = 120
_LONGEST_QUALIFIED = 300
LONGEST_SIGNATURE = 300
LONGEST_DOCSTRING = 500


class Piece(msgspec.Struct, eq=False):
    """A scope under construction. Rows are numbered from 0, and inclusive."""

    kind: ScopeKind
    first: int
    last: int
    name: str = ""
    qualified: str = ""
    """The qualified name; the name itself if none is given."""
    signature: str = ""
    docstring: str = ""
    calls: dict[str, None] = {}
    parts: list["Piece"] = []
    """The scopes directly inside it, in order."""

    def __post_init__(self) -> None:
        self.qualified = self.qualified or self.name


def scopes_of(source: SourceText, pieces: list[Piece]) -> tuple[CutScope, ...]:
    """Return pieces as scopes, in the order of their first lines, outer ones first."""
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
                hash=blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest(),
            )
        )
    return tuple(scopes)


def clipped(text: str, limit: int) -> str:
    """Return a text, shortened to `limit` characters with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Names:
    """The qualified names of a file's scopes, unique within a kind."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()
        self._count: dict[tuple[str, str], int] = {}

    def take(self, kind: str, name: str) -> str:
        """Return a name, with the first free number appended if it is taken."""
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
        # A part that begins on its container's first line can't be separated by lines.
        if part.first <= piece.first or part.first < row:
            continue
        lines += source.lines[row : part.first]
        indent = indent_of(source.lines[part.first])
        lines.append(indent + (part.signature or source.lines[part.first].strip()))
        row = part.last + 1
    lines += source.lines[row : piece.last + 1]
    return "\n".join(lines)


def first_words(source: SourceText, start: int, end: int) -> str:
    """Return the first line of a range that isn't blank, with white space collapsed."""
    for row in range(start, end):
        if not source.is_blank(row):
            words = " ".join(source.lines[row][: 4 * LONGEST_SIGNATURE].split())
            return clipped(words, LONGEST_SIGNATURE)
    return ""


_QUOTED = re.compile(r"(?<!`)(`{1,9})(?!`)~?([^`\n]{1,120}?)\1(?!`)")
_PARTS = re.compile(r"::|[.#]")
_MENTIONED_NAME = re.compile(r"[^\W\d]\w{2,99}\Z")
_MOST_MENTIONS = 200


def mentions(source: SourceText, start: int, end: int) -> dict[str, None]:
    """Return unqualified names in backticks, once: `validate` for `AuthService.validate(…)`."""
    found: dict[str, None] = {}
    text = "\n".join(source.lines[start:end])
    if "`" not in text:
        return found
    for quoted in _QUOTED.finditer(text):
        name = _PARTS.split(quoted[2].partition("(")[0].strip())[-1]
        if _MENTIONED_NAME.match(name):
            found[name] = None
            if len(found) == _MOST_MENTIONS:
                break
    return found


_MOST_SECTIONS = 300
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*(?:[#>|*+]|-\s|\d+[.)]\s|</?\w|`{3}|~{3}|={3}|-{3}|$)")
_RST_LINE = re.compile(r"([=\-`:'\"~^_*+#<>.])\1{2,}[ \t]*$")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])?")
_MARKUP = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)|</?\w[^<>]*>|\{#[^{}]*\}\s*$")


class _Heading(NamedTuple):
    row: int
    level: int
    name: str


def section_pieces(source: SourceText, language: str) -> list[Piece]:
    """Cut prose into sections, from each heading to the next; the text before them is a `text`."""
    start = _front_matter(source) if language == "markdown" else 0
    pieces = []
    if start and (rows := trimmed(source, 0, start)):
        pieces.append(_piece(source, "block", *rows))
    headings = _higher_headings(_FINDERS[language](source, start))
    edge = headings[0].row if headings else len(source.lines)
    if rows := trimmed(source, start, edge):
        pieces.append(_piece(source, "text", *rows))
    path: list[_Heading] = []
    for place, heading in enumerate(headings):
        behind = headings[place + 1].row if place + 1 < len(headings) else len(source.lines)
        rows = trimmed(source, heading.row, behind)
        if rows is None:
            continue
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        piece = _piece(source, "section", *rows)
        piece.name = heading.name
        piece.qualified = ".".join(one.name for one in path if one.name)
        if not any(char.isalnum() for char in piece.signature):
            piece.signature = heading.name  # the first line is an overline
        pieces.append(piece)
    return pieces


def _piece(
    source: SourceText, kind: ScopeKind, start: int, end: int, *, is_prose: bool = True
) -> Piece:
    piece = Piece(kind, start, end - 1, signature=first_words(source, start, end))
    if is_prose:
        piece.calls = mentions(source, start, end)
    return piece


def _higher_headings(headings: list[_Heading]) -> list[_Heading]:
    # A book with thousands of headings is cut at the higher levels only.
    for level in (5, 4, 3, 2, 1):
        if len(headings) <= _MOST_SECTIONS:
            break
        fewer = [one for one in headings if one.level <= level]
        headings = fewer or headings
    return headings


def _plain(heading: str) -> str:
    return " ".join(_MARKUP.sub("", _LINK.sub(r"\1", heading[:1000])).split())


def _front_matter(source: SourceText) -> int:
    """Return the row after the front matter; 0 if there is none."""
    lines = source.lines
    if not lines or lines[0].rstrip() not in ("---", "+++"):
        return 0
    ends = [line.rstrip() for line in lines[1:300]]
    return ends.index(lines[0].rstrip()) + 2 if lines[0].rstrip() in ends else 0


def _markdown(source: SourceText, start: int) -> list[_Heading]:
    headings = []
    fence = ""
    lines = source.lines
    for row in range(start, len(lines)):
        line = lines[row]
        if fence:
            closing = _FENCE.match(line)
            if closing and closing[1].startswith(fence) and not line[closing.end() :].strip():
                fence = ""
        elif opening := _FENCE.match(line):
            fence = opening[1]
        elif heading := _ATX.match(line) if line.lstrip(" ")[:1] == "#" else None:
            headings.append(_Heading(row, len(heading[1]), _plain(heading[2] or "")))
        elif (under := _SETEXT.match(line)) and row > start:
            # Only a single line counts: a longer paragraph above a rule is no heading here.
            above = lines[row - 1]
            before = [heading.row for heading in headings[-1:]]
            is_first = row - 1 == start or source.is_blank(row - 2)
            if not _NO_PARAGRAPH.match(above) and (is_first or before in ([row - 2], [row - 3])):
                level = 1 if under[1][0] == "=" else 2
                headings.append(_Heading(row - 1, level, _plain(above)))
    return headings


def _rst(source: SourceText, start: int) -> list[_Heading]:
    headings: list[_Heading] = []
    levels: dict[str, int] = {}
    lines = source.lines
    for row in range(start + 1, len(lines)):
        under, title = _RST_LINE.match(lines[row]), lines[row - 1].rstrip()
        if not under or not title.strip() or len(lines[row].rstrip()) < len(title.strip()):
            continue
        over = row > 1 and lines[row - 2].rstrip() == lines[row].rstrip()
        # Only a title with an overline too may be indented, or directly follow other text.
        is_title = not title[0].isspace() and (row == 1 or source.is_blank(row - 2))
        if _RST_LINE.match(title) or not (over or is_title):
            continue
        first = row - 2 if over else row - 1
        if headings and first <= headings[-1].row + 1:
            continue
        level = levels.setdefault(("=" if over else "") + lines[row][0], len(levels) + 1)
        headings.append(_Heading(first, level, " ".join(title.split())))
    return headings


_FINDERS = {"markdown": _markdown, "rst": _rst}
HEADED = frozenset(_FINDERS)


_PROSE = HEADED | {"text"}
_WINDOW = 60
_MOST_WINDOWS = 40


def text_pieces(source: SourceText, language: str) -> list[Piece]:
    """Cut a file by its lines, into at most 40 pieces."""
    count = len(source.lines)
    size = max(_WINDOW, -(-count * 3 // (2 * _MOST_WINDOWS)))
    return [
        _piece(source, "text", start, end, is_prose=language in _PROSE)
        for start, end in windows(source, 0, count, size)
    ]
