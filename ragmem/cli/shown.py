"""Terminal output of memories and sessions grouped by day, and of conversations."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from ragmem.cli.output import MIN_COLUMNS, UNPAINTED, Paint, Part, joined
from ragmem.ids import short_id
from ragmem.listings import folded, session_marks, session_name
from ragmem.memory.memories import marks
from ragmem.memory.recall import NOBODY
from ragmem.memory.turns import Said, blocks_of, has_failed, result_text, subject_of
from ragmem.records import Claims, MemoryRecord, Session, ToolCall, Turn
from ragmem.repl.early import sign
from ragmem.text import (
    clip_middle,
    clip_to_width,
    counted,
    display_width,
    flowing,
    one_line,
    visible,
)

_NARROW = 60
"""On a narrower terminal, the day is above its entries and the details are below their text."""
_MAX_ROWS = 3
"""Maximum number of rows for an entry's text."""
_CONTENT_CHARS = 1_000
_GAP = 2
_QUOTED_CHARS = 2_000
_WEEK = 7
_SIGNS = {
    "rule": ("★", "*", "yellow"),
    "failure": ("✗", "x", "red"),
    "decision": ("◆", "+", "cyan"),
    "deadline": ("!", "!", "yellow"),
}
_OTHER_SIGN = ("·", "-", "dim")
_SOURCES = {"person": "you", "model": "model", "tool": "tool"}


class DayEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a list that is grouped by day."""

    at: datetime
    mark: Part | None = None
    words: str
    """The main text, which gets the available width."""
    style: str = ""
    facts: tuple[str, ...]
    """Further details, shown dim; the id comes last."""


def day_name(at: datetime, now: datetime) -> str:
    """Return the day in the local time zone: `today`, `3 days ago`, `12 Nov`."""
    day, today = at.astimezone().date(), now.astimezone().date()
    back = max(0, (today - day).days)
    if back < _WEEK:
        return {0: "today", 1: "yesterday"}.get(back, f"{back} days ago")
    return short_date(at, now)


def short_date(at: datetime, now: datetime) -> str:
    """Return a date in the local time zone, with the year unless it is the current one."""
    day, today = at.astimezone(), now.astimezone()
    return f"{day.day} {day:%b}" + (f" {day.year}" if day.year != today.year else "")


def day_list(entries: Sequence[DayEntry], now: datetime, *, width: int, paint: Paint) -> str:
    """Format entries in their given order, naming each day once."""
    width = max(MIN_COLUMNS, width)
    names = [day_name(each.at, now) for each in entries]
    narrow = width < _NARROW
    margin = 0 if narrow else max(map(display_width, names), default=0) + _GAP
    rows: list[str] = []
    for name, group in groupby(zip(names, entries, strict=True), key=lambda each: each[0]):
        own = [row for _, each in group for row in _entry(each, margin, width, paint)]
        if narrow:
            rows += ["", paint((name, "cyan"))] if rows else [paint((name, "cyan"))]
        else:
            own[0] = paint((name, "cyan")) + own[0][display_width(name) :]
        rows += own
    return joined(rows)


def _entry(entry: DayEntry, margin: int, width: int, paint: Paint) -> list[str]:
    """Return an entry's rows: its text, and its details to the right of the last if they fit."""
    blank = " " * margin
    mark, style = entry.mark or ("", "")
    hang = display_width(mark) + 1 if mark else 2 * (not margin)
    words = _clipped(folded("", entry.words, width - margin - hang), width)
    rows = []
    for place, row in enumerate(words):
        first = paint((mark, style)) + " " if mark and not place else " " * hang
        rows.append(blank + first + paint((row, entry.style)))
    facts = " · ".join(map(visible, entry.facts))
    taken = margin + hang + display_width(words[-1])
    room = width - taken - display_width(facts)
    if margin and room >= _GAP:
        rows[-1] += " " * room + paint((facts, "dim"))
        return rows
    indent = margin + hang
    if margin and display_width(facts) <= width - indent:
        return [*rows, " " * (width - display_width(facts)) + paint((facts, "dim"))]
    below = flowing(entry.facts, width - indent)
    return [*rows, *(" " * indent + paint((row.strip(), "dim")) for row in below)]


def _clipped(rows: list[str], width: int) -> list[str]:
    if len(rows) <= _MAX_ROWS:
        return rows
    room = max(map(display_width, rows))
    return [*rows[: _MAX_ROWS - 1], clip_to_width(f"{rows[_MAX_ROWS - 1]} …", min(room, width))]


# --- memories -------------------------------------------------------------------


def memories_by_day(
    memories: Iterable[MemoryRecord],
    now: datetime,
    *,
    width: int,
    paint: Paint,
    people: Mapping[str, str] = NOBODY,
    projects: Mapping[str, str] | None = None,
    since: Container[str] = (),
) -> str:
    """Format memories as a timeline: the content, then kind, source, scope, marks and id.

    `people` maps owner ids to names, `projects` project ids to names.
    """
    entries = [
        DayEntry(
            at=each.created_at,
            mark=_mark(each),
            words=one_line(each.content, _CONTENT_CHARS),
            style="dim" if each.superseded_by else "",
            facts=(
                each.kind,
                _source(each, people),
                _scope(each, projects),
                *marks(each, now, dated=lambda at: short_date(at, now), since=since),
                short_id(each.memory_id),
            ),
        )
        for each in memories
    ]
    return day_list(entries, now, width=width, paint=paint)


def _mark(memory: MemoryRecord) -> Part:
    wanted, plain, style = _SIGNS.get("rule" if memory.pinned else memory.kind, _OTHER_SIGN)
    return sign(wanted, plain), style


def _source(memory: MemoryRecord, people: Mapping[str, str]) -> str:
    """Return the source of a memory: `you`, another person's name, `model`, `tool`."""
    other = clip_to_width(one_line(people.get(memory.owner, ""), 40), 16)
    return other if other and memory.trust == "person" else _SOURCES[memory.trust]


def _scope(memory: MemoryRecord, projects: Mapping[str, str] | None) -> str:
    if memory.project_id is None or projects is None:
        return memory.scope
    return clip_to_width(one_line(projects.get(memory.project_id, "?"), 40), 16)


def claims_text(claims: Claims) -> str:
    """Format what a file's memories claim, one per row; empty if there are no claims."""
    own = [_claim(memory) for memory in claims.own]
    own += [
        f"  profile  {one_line(f'{key}={value}', _CONTENT_CHARS)}\n"
        for key, value in sorted(claims.profile.items())
    ]
    others = [_claim(memory) for memory in claims.others]
    text = ""
    if claims.is_copy:
        own, others = own + others, []
    if own:
        whose = (
            "In their original form, whoever said them" if claims.is_copy else "As your own words"
        )
        text += f"{whose}, to apply beyond a single question or project:\n" + "".join(own)
    if others:
        text += (
            "From someone else (by the owner id in the file), to be kept as unverified memories "
            "of this project:\n"
            + "".join(others)
            + "If they are from another home of yours, first take over its owner: run "
            "`ragmem memory owner` there, then `ragmem memory owner --take ID` here.\n"
        )
    if claims.replaced:
        text += "Replacing memories that are here:\n" + "".join(map(_claim, claims.replaced))
    return text


def _claim(memory: MemoryRecord) -> str:
    about = [
        memory.kind,
        *(["pinned"] if memory.pinned else []),
        *(["every project"] if memory.project_id is None else []),
        *(["superseded"] if memory.superseded_by else []),
    ]
    return f"  {', '.join(about)}  {one_line(memory.content, len(memory.content))}\n"


# --- sessions -------------------------------------------------------------------


def sessions_by_day(
    sessions: Iterable[Session], now: datetime, *, width: int, paint: Paint, folders: bool = False
) -> str:
    """Format sessions by the day of their last activity."""
    entries = [
        DayEntry(
            at=each.last_activity_at,
            words=session_name(each) + visible(session_marks(each)),
            style="bold",
            facts=(
                counted(each.turn_count, "turn"),
                f"{each.last_activity_at.astimezone():%H:%M}",
                *((each.cwd,) if folders else ()),
                short_id(each.session_id),
            ),
        )
        for each in sessions
    ]
    return day_list(entries, now, width=width, paint=paint)


# --- a conversation -------------------------------------------------------------


def heading_text(session: Session, paint: Paint = UNPAINTED) -> str:
    """Format a session's heading, which is shown above its turns."""
    heading = session_name(session) + visible(session_marks(session))
    started = f"{session.started_at.astimezone():%Y-%m-%d %H:%M}"
    details = f"{session.session_id} · {visible(session.cwd)} · started {started}"
    return joined([paint((heading, "bold")), paint((details, "dim"))])


def turn_text(
    turn: Turn,
    *,
    width: int | None = None,
    paint: Paint = UNPAINTED,
    reasoning: bool = False,
    results: bool = False,
) -> str:
    """Format a turn for reading; long parts are clipped (`--format json` has them whole).

    With a `width`, answers are rendered as Markdown; other long lines are left to the terminal
    to wrap.
    """

    def dim(rows: list[str]) -> list[str]:
        return [paint((row, "dim")) for row in rows]

    rows = list[str]()
    for block in blocks_of([turn]):
        match block:
            case Turn():
                rows += ["", *dim([_turn_heading(block)])]
            case Said("person", text):
                first, *others = visible(text).split("\n")
                rows.append(paint(("› ", "dim"), (first, "bold")))
                rows += [paint(("  ", ""), (row, "bold")) for row in others]
            case Said("agent", text):
                rows += ["", _answer(text, width, paint)]
            case Said(_, text) if reasoning:
                rows += ["", *dim(_quoted(text, "~ "))]
            case ToolCall():
                rows.append(paint(*_call_parts(block)))
                rows += dim(_quoted(result_text(block), "  ⎿ ")) if results else []
    return joined(rows)


def _answer(text: str, width: int | None, paint: Paint) -> str:
    if width is None:
        return visible(text)
    from ragmem.repl import output

    return output.paint(output.answer(text), width=width, mode=paint.mode).rstrip("\n")


def _turn_heading(turn: Turn) -> str:
    mark = "" if turn.status == "completed" else f" ({turn.status})"
    return f"── {turn.turn_index}{mark}"


def _quoted(text: str, mark: str) -> list[str]:
    """Prefix each line with a mark, so that it can't pass for something else."""
    clipped = clip_middle(text.strip(), _QUOTED_CHARS)
    return [f"{mark}{visible(line)}".rstrip() for line in clipped.splitlines()]


def _call_parts(call: ToolCall) -> list[Part]:
    mark = ("✗", "red") if has_failed(call) else ("●", "green")
    reason = (f" — {one_line(call.error, 200)}" if call.error else "", "red")
    if not call.result:
        mark, reason = ("?", "yellow"), (f" — {result_text(call).strip('[]')}", "dim")
    return [mark, (" ", ""), (one_line(subject_of(call), 160), "bold"), reason]
