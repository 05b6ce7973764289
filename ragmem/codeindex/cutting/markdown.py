"""Texts with headings, cut at them: Markdown, reStructuredText, AsciiDoc."""

import re
from typing import NamedTuple

from ragmem.codeindex.cutting.blocks import first_words
from ragmem.codeindex.cutting.mentions import mentions
from ragmem.codeindex.cutting.pieces import Piece
from ragmem.codeindex.cutting.source import NOWHERE, Source, Span, trimmed

_MOST_SECTIONS = 300
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*(?:[#>|*+]|-\s|\d+[.)]\s|</?\w|`{3}|~{3}|={3}|-{3}|$)")
_ADOC = re.compile(r"(={1,6})[ \t]+(\S.*?)[ \t]*$")
_ADOC_FENCE = re.compile(r"(-{4,}|={4,}|\.{4,}|\+{4,}|_{4,}|/{4,}|`{3,})[ \t]*$")
_RST_LINE = re.compile(r"([=\-`:'\"~^_*+#<>.])\1{2,}[ \t]*$")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])?")
_MARKUP = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)|</?\w[^<>]*>|\{#[^{}]*\}\s*$")


class _Heading(NamedTuple):
    row: int
    level: int
    name: str


def section_pieces(source: Source, language: str) -> list[Piece]:
    """A section for each heading up to the next one; what stands before the first is a text."""
    start = _front_matter(source) if language == "markdown" else 0
    pieces = []
    if start and (rows := trimmed(source, 0, start)):
        pieces.append(_piece(source, "block", *rows))
    headings = _fewer(_FINDERS[language](source, start))
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
        piece.named = _named(source, piece)
        piece.qualified = ".".join(one.name for one in path if one.name)
        if not any(char.isalnum() for char in piece.signature):
            piece.signature = heading.name  # it has a line above it
        pieces.append(piece)
    return pieces


def _piece(source: Source, kind: str, start: int, end: int) -> Piece:
    piece = Piece("section" if kind == "section" else "block", start, end - 1)
    if kind == "text":
        piece.kind = "text"
    piece.signature = first_words(source, start, end)
    piece.calls = mentions(source, start, end)
    return piece


def _named(source: Source, piece: Piece) -> Span:
    """Where its heading stands: below a line, where there is one above it too."""
    for row in range(piece.first, min(piece.first + 2, piece.last + 1)):
        line = source.lines[row]
        first = next((n for n, char in enumerate(line) if char.isalnum()), -1)
        if first >= 0:
            return Span(row, first, len(line))
    return NOWHERE


def _fewer(headings: list[_Heading]) -> list[_Heading]:
    # A book of thousands is cut at its higher headings only.
    for level in (5, 4, 3, 2, 1):
        if len(headings) <= _MOST_SECTIONS:
            break
        fewer = [one for one in headings if one.level <= level]
        headings = fewer or headings
    return headings


def _plain(heading: str) -> str:
    return " ".join(_MARKUP.sub("", _LINK.sub(r"\1", heading[:1000])).split())


def _front_matter(source: Source) -> int:
    """The row behind it; 0: there is none."""
    lines = source.lines
    if not lines or lines[0].rstrip() not in ("---", "+++"):
        return 0
    for row in range(1, min(len(lines), 300)):
        if lines[row].rstrip() == lines[0].rstrip():
            return row + 1
    return 0


def _markdown(source: Source, start: int) -> list[_Heading]:
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
            # Only one line above it counts: a longer paragraph over a rule is not a heading here.
            above = lines[row - 1]
            if not _NO_PARAGRAPH.match(above) and (
                row - 1 == start or source.is_blank(row - 2) or _ends_heading(headings, row - 2)
            ):
                level = 1 if under[1][0] == "=" else 2
                headings.append(_Heading(row - 1, level, _plain(above)))
    return headings


def _ends_heading(headings: list[_Heading], row: int) -> bool:
    return bool(headings) and headings[-1].row in (row, row - 1)


def _rst(source: Source, start: int) -> list[_Heading]:
    headings: list[_Heading] = []
    levels: dict[str, int] = {}
    lines = source.lines
    for row in range(start + 1, len(lines)):
        under, title = _RST_LINE.match(lines[row]), lines[row - 1].rstrip()
        if not under or not title.strip() or len(lines[row].rstrip()) < len(title.strip()):
            continue
        over = row > 1 and lines[row - 2].rstrip() == lines[row].rstrip()
        # Only a title with a line above it too may be indented, or stand right below other text.
        is_title = not title[0].isspace() and (row == 1 or source.is_blank(row - 2))
        if _RST_LINE.match(title) or not (over or is_title):
            continue
        first = row - 2 if over else row - 1
        if headings and first <= headings[-1].row + 1:
            continue
        level = levels.setdefault(("=" if over else "") + lines[row][0], len(levels) + 1)
        headings.append(_Heading(first, level, " ".join(title.split())))
    return headings


def _asciidoc(source: Source, start: int) -> list[_Heading]:
    headings = []
    fence = ""
    for row in range(start, len(source.lines)):
        line = source.lines[row]
        if mark := _ADOC_FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1] == fence:
                fence = ""
        elif not fence and (heading := _ADOC.match(line)):
            headings.append(_Heading(row, len(heading[1]), _plain(heading[2])))
    return headings


_FINDERS = {"markdown": _markdown, "rst": _rst, "asciidoc": _asciidoc}
HEADED = frozenset(_FINDERS)
