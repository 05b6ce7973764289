"""Plain tables for terminals and pipes."""

import re
from collections.abc import Sequence

from ragmem.text import clip_to_width, display_width, hanging, one_line

_GAP = "  "
_NARROW = 100
"""Wider terminals, and pipes, which are taken for such, get a line a row whatever is in it."""
_SMALL = 60
_LEAST = 16
"""Columns that the last cell needs to say anything."""
_ROWS = 3
"""Of the last cell of a paragraph."""
_BARE = re.compile(r"[\d.,%+-]+")
"""A cell that tells nothing without its column's name."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Aligned columns, one line a row; with a `width` the last column is clipped to fit.

    On a narrow terminal where that leaves it no room each row is a paragraph, of which nothing
    is cut but what the last column has too much of. Cells are made one line and harmless. Widths
    are those of a terminal: wide characters count two, combining ones none.
    """
    cells = [list(header), *([one_line(cell, 400) for cell in row] for row in rows)]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(header))]
    start = sum(widths[:-1]) + len(_GAP) * (len(header) - 1)
    if width is not None and _is_too_narrow(cells, start, width):
        return "".join(_paragraph(header, row, max(_LEAST, width)) for row in cells[1:])
    lines = []
    for row in cells:
        line = _GAP.join(_pad(cell, widths[i]) for i, cell in enumerate(row[:-1]))
        last = row[-1] if width is None else clip_to_width(row[-1], max(8, width - start))
        lines.append((line + (_GAP if line else "") + last).rstrip())
    return "\n".join(lines) + "\n"


def _is_too_narrow(cells: Sequence[Sequence[str]], start: int, width: int) -> bool:
    """Whether the last column would have no room, or on a small one a path would lose its end."""
    last = [(display_width(row[-1]), " " in row[-1]) for row in cells]
    return (width < _NARROW and width - start < min(max(last)[0], _LEAST)) or (
        width < _SMALL and any(wide > width - start and not words for wide, words in last[1:])
    )


def _paragraph(header: Sequence[str], row: Sequence[str], width: int) -> str:
    """A row on lines of its own; a number says what it is of."""
    named = [
        f"{name.lower() if name.isalpha() else name} {cell}" if _BARE.fullmatch(cell) else cell
        for name, cell in zip(header[:-1], row[:-1], strict=True)
    ]
    lines: list[str] = []
    for cell in filter(None, (" ".join(each.split()) for each in named)):
        if lines and display_width(longer := f"{lines[-1]}{_GAP}{cell}") <= width:
            lines[-1] = longer
        else:
            lines += folded(_GAP if lines else "", cell, width)
    return "\n".join([*lines, *_last_cell(row[-1], width)]) + "\n"


def _last_cell(text: str, width: int) -> list[str]:
    """A few rows of a text; a path, which may be typed again, whole."""
    rows = folded(_GAP, text, width) if text else []
    if len(rows) <= _ROWS or " " not in text:
        return rows
    return [*rows[: _ROWS - 1], clip_to_width(f"{rows[_ROWS - 1]} …", width)]


def folded(head: str, text: str, width: int) -> list[str]:
    """`hanging`, with what has no blanks to be cut at cut where the row ends: nothing is lost."""
    width = max(display_width(head) + 8, width)
    margin = " " * display_width(head)
    rows: list[str] = []
    for row in hanging(head, text, width):
        while display_width(row) > width:
            fits = next(n for n in range(len(row), 0, -1) if display_width(row[:n]) <= width)
            rows.append(row[:fits])
            row = margin + row[fits:]
        rows.append(row)
    return rows


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - display_width(cell))
