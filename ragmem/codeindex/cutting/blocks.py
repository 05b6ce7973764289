"""What no definition covers: runs of statements at the top of a file."""

import re
from bisect import bisect_right

from ragmem.codeindex.cutting.pieces import LONGEST_SIGNATURE, Piece, clipped
from ragmem.codeindex.cutting.source import Source, trimmed, windows

_LONGEST = 120
_WINDOW = 80
_MOST = 40
IMPORTS = "imports"
# Lines that only close what is open, and that guard imports.
_CLOSING = re.compile(r"\s*(?:[\W_]*|\}.*|#\s*(?:endif|else)\b.*|end\b.*|fi|done|esac|\?>)\s*$")
_GUARD = re.compile(
    r"\s*(?:try:|except (?:ImportError|ModuleNotFoundError).*:|if (?:\w+\.)?TYPE_CHECKING:|else:"
    r"|pass|#\s*(?:pragma|ifndef|ifdef|if|else|elif|endif)\b.*|#\s*define\s+\w+"
    r"|(?:inline )?namespace [\w:]*\s*\{?|extern \"C\" \{)\s*$"
)


def add_blocks(
    source: Source,
    top: list[Piece],
    aside: list[tuple[int, int]],
    calls: list[tuple[int, str]],
    comment: str,
) -> list[Piece]:
    """The blocks between the outermost scopes; lines that only close something go to those."""
    skipped = bytearray(len(source.lines))
    for first, last in aside:
        skipped[first : last + 1] = b"\1" * (min(last + 1, len(skipped)) - first)
    size = max(_WINDOW, len(source.lines) // _MOST)
    blocks: list[Piece] = []
    for start, end, before in _gaps(source, top):
        if before is not None and _belongs_above(source, start, end, comment):
            before.last = end - 1
            continue
        long = end - start > max(_LONGEST, size * 3 // 2)
        for first, behind in windows(source, start, end, size) if long else [(start, end)]:
            block = Piece("block", first, behind - 1)
            if _is_imports(source, skipped, first, behind, comment):
                block.name = block.qualified = IMPORTS
            block.signature = first_words(source, first, behind)
            blocks.append(block)
    _give_calls(source, blocks, calls)
    return blocks


def first_words(source: Source, start: int, end: int) -> str:
    """The first line there that isn't blank."""
    for row in range(start, end):
        if not source.is_blank(row):
            words = " ".join(source.lines[row][: 4 * LONGEST_SIGNATURE].split())
            return clipped(words, LONGEST_SIGNATURE)
    return ""


def _gaps(source: Source, top: list[Piece]) -> list[tuple[int, int, Piece | None]]:
    """Rows that no scope covers, without blank ones around them, and the scope before them."""
    gaps: list[tuple[int, int, Piece | None]] = []
    row, before = 0, None
    for piece in sorted(top, key=lambda one: (one.first, -one.last)):
        if rows := trimmed(source, row, piece.first):
            gaps.append((*rows, before))
        if piece.last >= row:
            row, before = piece.last + 1, piece
    if rows := trimmed(source, row, len(source.lines)):
        gaps.append((*rows, before))
    return gaps


def _belongs_above(source: Source, start: int, end: int, comment: str) -> bool:
    lines = [line for line in source.lines[start:end] if line and not line.isspace()]
    if comment == "#" and all(line[0] in " \t" for line in lines):
        return True  # a comment at the end of a body
    return len(lines) <= 10 and all(_CLOSING.match(line) for line in lines)


def _is_imports(source: Source, skipped: bytearray, start: int, end: int, comment: str) -> bool:
    any_skipped, is_open = False, False
    for row in range(start, end):
        line = source.lines[row].strip()
        if skipped[row]:
            any_skipped = True
        elif is_open or (comment == "//" and line.startswith("/*")):
            is_open = "*/" not in line
        elif line and not line.startswith(comment) and not _GUARD.match(line):
            return False
    return any_skipped


def _give_calls(source: Source, blocks: list[Piece], calls: list[tuple[int, str]]) -> None:
    if not calls or not blocks:
        return
    starts = source.row_starts()
    firsts = [block.first for block in blocks]
    for start, name in calls:
        row = bisect_right(starts, start) - 1
        place = bisect_right(firsts, row) - 1
        if place >= 0 and row <= blocks[place].last:
            blocks[place].calls[name] = None
