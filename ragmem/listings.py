"""Lists of sessions, files, memories, finds and code as text, for the command line and a chat.

All of it is harmless to a terminal. A row that begins with a blank belongs to what stands above.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ragmem.ids import short_id
from ragmem.records import FileAccess, MemoryRecord, Session, Work
from ragmem.text import (
    ago,
    clip_to_width,
    counted,
    display_width,
    flowing,
    hanging,
    line_range,
    one_line,
    visible,
)

if TYPE_CHECKING:
    from ragmem.index.links import FoundCode
    from ragmem.index.values import CodeHit
    from ragmem.memory.code_past import CodePast, CodeSession
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit
    from ragmem.memory.memories import Line

_NARROWEST = 20

# --- tables ---------------------------------------------------------------------

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
        line = _GAP.join(
            cell + " " * (widths[i] - display_width(cell)) for i, cell in enumerate(row[:-1])
        )
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


# --- what is listed -------------------------------------------------------------


def session_name(session: Session) -> str:
    """Its title, or the newest prompt of one that was never named."""
    return one_line(session.called, 120)


def session_marks(session: Session) -> str:
    """Its tags, and whether it is archived."""
    tags = "".join(f" #{tag}" for tag in session.tags)
    return tags + (" (archived)" if session.status == "archived" else "")


def sessions_table(
    sessions: Sequence[Session],
    now: datetime,
    *,
    width: int,
    folders: bool = False,
    whole_ids: bool = False,
    current: str | None = None,
) -> str:
    """One line a session; across `folders` with the folder it was held in.

    They are numbered where one is to be chosen: `current` is the id of that which is open, or
    empty.
    """
    columns = {
        "": [
            f"{number} {'●' * (each.session_id == current)}"
            for number, each in enumerate(sessions, 1)
        ],
        "ID": [each.session_id if whole_ids else short_id(each.session_id) for each in sessions],
        "LAST ACTIVITY": [ago(each.last_activity_at, now) for each in sessions],
        "TURNS": [str(each.turn_count) for each in sessions],
        "FOLDER": [each.cwd for each in sessions],
        "TITLE": [session_name(each) + session_marks(each) for each in sessions],
    }
    left_out = {"" if current is None else None, None if folders else "FOLDER"}
    shown = [name for name in columns if name not in left_out]
    rows = zip(*(columns[name] for name in shown), strict=True)
    return table(shown, list(rows), width=width)


def files_table(found: Sequence[FileAccess], now: datetime, *, width: int) -> str:
    """One line a file: what was done with it, and when."""
    rows = [
        (each.access_type, str(each.turn_index), ago(each.accessed_at, now), each.path)
        for each in found
    ]
    return table(("ACCESS", "TURN", "WHEN", "PATH"), rows, width=width)


FURTHER = "Further from it:"
"""Stands between what is close to a question and the rest."""


def hits_text(hits: "Sequence[Hit | FactHit]", now: datetime, *, width: int, close: int = 0) -> str:
    """Where each stands, why it was found, and below it what it says; the first few are close."""
    from ragmem.memory.hits import Hit
    from ragmem.memory.memories import memory_facts, memory_rows

    width = max(_NARROWEST, width)
    lines: list[str] = []
    for place, hit in enumerate(hits):
        lines += [FURTHER, ""] if 0 < place == close else []
        if isinstance(hit, Hit):
            lines += flowing(hit.facts(now), width)
            lines += [f"  {clip_to_width(visible(said), width - 2)}" for said in hit.quotes()]
        else:
            lines += [*flowing(memory_facts(hit, now), width), *memory_rows(hit, width)]
        lines.append("")
    return "\n".join(lines)


def page(lines: "Sequence[Line]", width: int) -> str:
    """Lines between words, each row behind its line's margin."""
    rows = [row for indent, text in lines for row in folded(" " * indent, text, width)]
    return "\n".join(rows) + "\n"


# --- code -----------------------------------------------------------------------

SHOWN = 5
"""How much of a list a text shows; JSON has all that was asked for."""
_LEAST_OF_CODE = 30
_QUOTED_CHARS = 500
_CONTENT_CHARS = 300
_TITLE_CHARS = 120


def code_text(
    found: "Sequence[FoundCode]", now: datetime, *, cwd: Path, project: str, width: int
) -> str:
    """Show where each stands, how it begins, why it was found, what was done with it.

    `project` is the folder that paths are relative to.
    """
    from ragmem.memory.files import shown_path
    from ragmem.memory.projects import real_folder

    width = max(_LEAST_OF_CODE, width)
    top = real_folder(project, cwd)
    lines: list[str] = []
    for each in found:
        place = shown_path(each.hit.path, cwd=cwd, project=top)
        lines += flowing(_facts(each, place, now), width)
        lines += [f"  {clip_to_width(row, width - 2)}" for row in _quotes(each.hit)]
        if each.named:
            lines += past_lines(each.past, now, indent=2, width=width)
        lines.append("")
    return "\n".join(lines)


def _facts(found: "FoundCode", place: str, now: datetime) -> list[str]:
    hit = found.hit
    lines = line_range(hit.start_line, hit.end_line)
    where = one_line(f"{place}:{lines}" if found.defined else f"was in {place}", 400)
    alike = "" if hit.similarity is None else f"{hit.similarity * 100:.0f}% alike"
    why = one_line(hit.reasons, 200)
    past = "" if found.named else in_sessions(found.past, now)
    name = one_line(hit.qualified_name, 200)
    return [each for each in (name, hit.kind, where, alike, why, past) if each]


def _quotes(hit: "CodeHit") -> list[str]:
    """Return how it begins."""
    first = hit.signature or next((row for row in hit.text.splitlines() if row.strip()), "")
    about = next((row for row in hit.docstring.splitlines() if row.strip()), "")
    told = [one_line(row, _QUOTED_CHARS) for row in (first, about)]
    return [row for i, row in enumerate(told) if row and not (i and row in told[0])]


def in_sessions(past: "CodePast", now: datetime) -> str:
    """Say `in 3 sessions, last 2 days ago`; empty where there is none."""
    if not past.session_count or past.last_at is None:
        return ""
    last = ago(past.last_at, now)
    where = counted(past.session_count, "session")
    return f"in {where}, {'last ' if past.session_count > 1 else ''}{last}"


def past_lines(past: "CodePast", now: datetime, *, indent: int, width: int) -> list[str]:
    """Return the sessions and what was decided in them, under headings of their own."""
    margin = " " * indent
    lines = []
    if past.sessions:
        lines.append(f"{margin}sessions")
        lines += _each(past.sessions, past.session_count, indent, width, now)
    if past.memories:
        lines.append(f"{margin}decided there")
        for memory in past.memories[:SHOWN]:
            lines += hanging(
                f"{margin}  {short_id(memory.memory_id)}  ",
                _decided(memory, now, past.people),
                width,
            )
        lines += _rest(len(past.memories) - SHOWN, indent)
    return lines


def _each(
    sessions: "Sequence[CodeSession]", count: int, indent: int, width: int, now: datetime
) -> list[str]:
    lines = []
    for each in sessions[:SHOWN]:
        name = one_line(each.session.called, _TITLE_CHARS)
        said = " · ".join([name, ", ".join(each.hows), ago(each.last_at, now)])
        lines += hanging(f"{' ' * indent}  {short_id(each.session.session_id)}  ", said, width)
    return lines + _rest(count - len(sessions[:SHOWN]), indent)


def _rest(more: int, indent: int) -> list[str]:
    return [f"{' ' * indent}  and {more:,} more"] if more > 0 else []


def _decided(memory: MemoryRecord, now: datetime, people: dict[str, str]) -> str:
    from ragmem.memory.memories import said_by

    head = f"{memory.kind} · {said_by(memory, people)} · {ago(memory.created_at, now)}"
    return f"{one_line(memory.content, _CONTENT_CHARS)} ({head})"


_WAITING = {"vectors": "without vectors", "level1": "not summed up by a model"}
"""What is due for certain; of roll-ups and sessions only some are."""


def waiting_text(pending: Mapping[Work, int]) -> str:
    """What is due, in words; empty where nothing is."""
    return ", ".join(
        f"{count:,}{'+' * (count >= 1000)} {_WAITING[work]}"
        for work, count in pending.items()
        if count and work in _WAITING
    )
