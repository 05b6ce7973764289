"""Texts cut at their headings; texts and data without a grammar cut by lines and top-level keys."""

import re
from typing import NamedTuple

from ragmem.index.cut.source import (
    NOWHERE,
    NameSpan,
    Piece,
    SourceText,
    first_words,
    trimmed,
    windows,
)

_QUOTED = re.compile(r"(`+)~?([^`\n]{1,120}?)\1(?!`)")
_PARTS = re.compile(r"::|[.#]")
_NAME = re.compile(r"[^\W\d]\w{2,99}\Z")
_MOST_MENTIONS = 200


def mentions(source: SourceText, start: int, end: int) -> dict[str, None]:
    """Return last names, each once: `validate` of `AuthService.validate(…)` in backticks."""
    found: dict[str, None] = {}
    text = "\n".join(source.lines[start:end])
    if "`" not in text:
        return found
    for quoted in _QUOTED.finditer(text):
        name = _PARTS.split(quoted[2].partition("(")[0].strip())[-1]
        if _NAME.match(name):
            found[name] = None
            if len(found) == _MOST_MENTIONS:
                break
    return found


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


def section_pieces(source: SourceText, language: str) -> list[Piece]:
    """Cut at each heading up to the next one; what stands before the first is a text."""
    start = _front_matter(source) if language == "markdown" else 0
    pieces = []
    if start and (rows := trimmed(source, 0, start)):
        pieces.append(_section(source, "block", *rows))
    headings = _fewer(_FINDERS[language](source, start))
    edge = headings[0].row if headings else len(source.lines)
    if rows := trimmed(source, start, edge):
        pieces.append(_section(source, "text", *rows))
    path: list[_Heading] = []
    for place, heading in enumerate(headings):
        behind = headings[place + 1].row if place + 1 < len(headings) else len(source.lines)
        rows = trimmed(source, heading.row, behind)
        if rows is None:
            continue
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        piece = _section(source, "section", *rows)
        piece.name = heading.name
        piece.named = _heading_span(source, piece)
        piece.qualified = ".".join(one.name for one in path if one.name)
        if not any(char.isalnum() for char in piece.signature):
            piece.signature = heading.name  # it has a line above it
        pieces.append(piece)
    return pieces


def _section(source: SourceText, kind: str, start: int, end: int) -> Piece:
    piece = Piece("section" if kind == "section" else "block", start, end - 1)
    if kind == "text":
        piece.kind = "text"
    piece.signature = first_words(source, start, end)
    piece.calls = mentions(source, start, end)
    return piece


def _heading_span(source: SourceText, piece: Piece) -> NameSpan:
    """Find where its heading stands: below a line, if there is one above it too."""
    for row in range(piece.first, min(piece.first + 2, piece.last + 1)):
        line = source.lines[row]
        first = next((n for n, char in enumerate(line) if char.isalnum()), -1)
        if first >= 0:
            return NameSpan(row, first, len(line))
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


def _front_matter(source: SourceText) -> int:
    """Return the row behind it; 0 if there is none."""
    lines = source.lines
    if not lines or lines[0].rstrip() not in ("---", "+++"):
        return 0
    for row in range(1, min(len(lines), 300)):
        if lines[row].rstrip() == lines[0].rstrip():
            return row + 1
    return 0


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


def _rst(source: SourceText, start: int) -> list[_Heading]:
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


def _asciidoc(source: SourceText, start: int) -> list[_Heading]:
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


_PROSE = frozenset(("text", "markdown", "rst", "asciidoc"))
_WINDOW = 60
_MOST_WINDOWS = 40
_LONGEST_KEY = 200
_JSON_KEY = re.compile(r'([ \t]*)"((?:[^"\\]|\\.)*)"[ \t]*:')
_KEYS = {
    "yaml": re.compile(r"""(?![#\-\s])["']?([^"':#{}\[\]]+?)["']?[ \t]*:(?:[ \t]|$)"""),
    "toml": re.compile(r"\[\[?[ \t]*([^\[\]]+?)[ \t]*\]"),
    "ini": re.compile(r"\[[ \t]*([^\[\]]+?)[ \t]*\]"),
}


def text_pieces(source: SourceText, language: str) -> list[Piece]:
    """Cut a text by its keys or its lines, into at most 40 pieces."""
    count = len(source.lines)
    size = max(_WINDOW, -(-count * 3 // (2 * _MOST_WINDOWS)))
    keys = _keys(source, language)
    rows = _by_keys(source, sorted(keys), size) if keys else windows(source, 0, count, size)
    if len(rows) > _MOST_WINDOWS:
        rows = windows(source, 0, count, size)
    pieces = []
    for start, end in rows:
        piece = Piece("text", start, end - 1)
        piece.name = piece.qualified = next(
            (keys[row] for row in range(start, end) if row in keys), ""
        )
        piece.signature = first_words(source, start, end)
        if language in _PROSE:
            piece.calls = mentions(source, start, end)
        pieces.append(piece)
    return pieces


def _by_keys(source: SourceText, edges: list[int], size: int) -> list[tuple[int, int]]:
    """Put whole keys together until they are as long as a window; cut one that is longer."""
    count = len(source.lines)
    pieces: list[tuple[int, int]] = []
    start = 0
    for edge, behind in zip(edges, [*edges[1:], count], strict=True):
        if behind - start > size and edge > start:
            pieces.append((start, edge))
            start = edge
        if behind - start > 2 * size:
            pieces += windows(source, start, behind, size)
            start = behind
    if start < count:
        pieces.append((start, count))
    return [rows for a, b in pieces if (rows := trimmed(source, a, b)) is not None]


def _keys(source: SourceText, language: str) -> dict[int, str]:
    """Return the rows where a top-level key begins, with its name."""
    if language == "json":
        return _json_keys(source)
    pattern = _KEYS.get(language)
    if pattern is None:
        return {}
    found = {}
    for row, line in enumerate(source.lines):
        if line and not line[0].isspace() and (key := pattern.match(line[:_LONGEST_KEY])):
            found[row] = key[1].strip()
    return found


def _json_keys(source: SourceText) -> dict[int, str]:
    # Pretty-printed ones only: those of the smallest indentation are at the top.
    found: dict[int, tuple[int, str]] = {}
    for row, line in enumerate(source.lines):
        if '"' in line[:_LONGEST_KEY] and (key := _JSON_KEY.match(line[:_LONGEST_KEY])):
            found[row] = (len(key[1]), key[2])
    least = min((indent for indent, _ in found.values()), default=0)
    return {row: name for row, (indent, name) in found.items() if indent == least}
