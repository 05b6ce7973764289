"""Text and data without a grammar: cut by lines, data at its top-level keys."""

import re

from ragmem.codeindex.cutting.blocks import first_words
from ragmem.codeindex.cutting.mentions import mentions
from ragmem.codeindex.cutting.pieces import Piece
from ragmem.codeindex.cutting.source import Source, trimmed, windows

_PROSE = frozenset(("text", "markdown", "rst", "asciidoc"))
_WINDOW = 60
_MOST = 40
_LONGEST_KEY = 200
_JSON_KEY = re.compile(r'([ \t]*)"((?:[^"\\]|\\.)*)"[ \t]*:')
_KEYS = {
    "yaml": re.compile(r"""(?![#\-\s])["']?([^"':#{}\[\]]+?)["']?[ \t]*:(?:[ \t]|$)"""),
    "toml": re.compile(r"\[\[?[ \t]*([^\[\]]+?)[ \t]*\]"),
    "ini": re.compile(r"\[[ \t]*([^\[\]]+?)[ \t]*\]"),
}


def text_pieces(source: Source, language: str) -> list[Piece]:
    """At most 40 of them."""
    count = len(source.lines)
    size = max(_WINDOW, -(-count * 3 // (2 * _MOST)))
    keys = _keys(source, language)
    rows = _by_keys(source, sorted(keys), size) if keys else windows(source, 0, count, size)
    if len(rows) > _MOST:
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


def _by_keys(source: Source, edges: list[int], size: int) -> list[tuple[int, int]]:
    """Whole keys together until they are as long as a window; one that is longer is cut."""
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


def _keys(source: Source, language: str) -> dict[int, str]:
    """The rows where a top-level key begins, with its name."""
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


def _json_keys(source: Source) -> dict[int, str]:
    # Pretty-printed ones only: those of the smallest indentation are at the top.
    found: dict[int, tuple[int, str]] = {}
    for row, line in enumerate(source.lines):
        if '"' in line[:_LONGEST_KEY] and (key := _JSON_KEY.match(line[:_LONGEST_KEY])):
            found[row] = (len(key[1]), key[2])
    least = min((indent for indent, _ in found.values()), default=0)
    return {row: name for row, (indent, name) in found.items() if indent == least}
