"""Code that was found, and its past, as a terminal shows them."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ragmem.ids import short_id
from ragmem.index.lookup import FoundCode
from ragmem.index.values import CodeHit
from ragmem.memory.code_past import CodePast, CodeSession
from ragmem.memory.files import shown_path
from ragmem.memory.memories import said_by
from ragmem.memory.projects import real_folder
from ragmem.records import MemoryRecord
from ragmem.text import ago, clip_to_width, counted, flowing, hanging, line_range, one_line

SHOWN = 5
"""How much of a list a text shows; JSON has all that was asked for."""
_NARROWEST = 30
_QUOTED_CHARS = 500
_CONTENT_CHARS = 300
_TITLE_CHARS = 120


def code_text(
    found: Sequence[FoundCode], now: datetime, *, cwd: Path, project: str, width: int
) -> str:
    """Show where each stands, how it begins, why it was found, what was done with it.

    `project` is the folder that paths are relative to.
    """
    width = max(_NARROWEST, width)
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


def _facts(found: FoundCode, place: str, now: datetime) -> list[str]:
    hit = found.hit
    lines = line_range(hit.start_line, hit.end_line)
    where = one_line(f"{place}:{lines}" if found.defined else f"was in {place}", 400)
    alike = "" if hit.similarity is None else f"{hit.similarity * 100:.0f}% alike"
    why = one_line(hit.reasons, 200)
    past = "" if found.named else in_sessions(found.past, now)
    name = one_line(hit.qualified_name, 200)
    return [each for each in (name, hit.kind, where, alike, why, past) if each]


def _quotes(hit: CodeHit) -> list[str]:
    """Return how it begins."""
    first = hit.signature or next((row for row in hit.text.splitlines() if row.strip()), "")
    about = next((row for row in hit.docstring.splitlines() if row.strip()), "")
    told = [one_line(row, _QUOTED_CHARS) for row in (first, about)]
    return [row for i, row in enumerate(told) if row and not (i and row in told[0])]


def in_sessions(past: CodePast, now: datetime) -> str:
    """Say `in 3 sessions, last 2 days ago`; empty where there is none."""
    if not past.session_count or past.last_at is None:
        return ""
    last = ago(past.last_at, now)
    where = counted(past.session_count, "session")
    return f"in {where}, {'last ' if past.session_count > 1 else ''}{last}"


def past_lines(past: CodePast, now: datetime, *, indent: int, width: int) -> list[str]:
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
    sessions: Sequence[CodeSession], count: int, indent: int, width: int, now: datetime
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
    head = f"{memory.kind} · {said_by(memory, people)} · {ago(memory.created_at, now)}"
    return f"{one_line(memory.content, _CONTENT_CHARS)} ({head})"
