"""Plain tables for terminals and pipes."""

import unicodedata
from collections.abc import Sequence

from ragmem.text import one_line

_GAP = "  "


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Aligned columns, one line a row; with a `width` the last column is clipped to fit.

    Cells are made one line and harmless. Widths are those of a terminal: wide
    characters count two, combining ones none.
    """
    cells = [list(header), *([one_line(cell, 400) for cell in row] for row in rows)]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        line = _GAP.join(_pad(cell, widths[i]) for i, cell in enumerate(row[:-1]))
        start = sum(widths[:-1]) + len(_GAP) * (len(header) - 1)
        last = row[-1] if width is None else clip_to_width(row[-1], max(8, width - start))
        lines.append((line + (_GAP if line else "") + last).rstrip())
    return "\n".join(lines) + "\n"


def hanging(head: str, text: str, width: int | None = None) -> list[str]:
    """A text behind its head, cut between words, the further rows below the first."""
    row, rows = head, []
    margin = " " * display_width(head)
    for word in text.split():
        longer = row + word if row in (head, margin) else f"{row} {word}"
        if width is not None and row not in (head, margin) and display_width(longer) > width:
            rows.append(row)
            longer = margin + word
        row = longer
    return [*rows, row.rstrip()]


def display_width(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def clip_to_width(text: str, width: int) -> str:
    """At most `width` columns, with an ellipsis where something is left out."""
    if display_width(text) <= width:
        return text
    kept, room = [], width - 1
    for char in text:
        room -= _char_width(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - display_width(cell))


def _char_width(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
