"""How the answers of slash commands look, found code and its past among them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ragmem.ids import short_id
from ragmem.index.lookup import FoundCode
from ragmem.index.values import CodeHit
from ragmem.memory.code_past import CodePast, CodeSession
from ragmem.memory.context import Context
from ragmem.memory.facts.values import FactHit, Remembered
from ragmem.memory.files import shown_path
from ragmem.memory.hits import Hit
from ragmem.memory.memories import Line, memory_facts, memory_rows, said_by, summed_up
from ragmem.memory.projects import real_folder
from ragmem.records import AccessType, FileAccess, MemoryRecord, Session
from ragmem.repl.output import clipped, memory_row, wrap
from ragmem.repl.session import about
from ragmem.text import (
    ago,
    bar,
    clip_to_width,
    counted,
    flowing,
    hanging,
    line_range,
    one_line,
    visible,
)

_GROUPS: tuple[tuple[AccessType, str], ...] = (
    ("write", "Modified"),
    ("read", "Read"),
    ("search", "Searched"),
    ("list", "Listed"),
)
_BAR = 10
_MOST_ROWS = 3
"""Of what a memory says: `/why` and `ragmem memory show` have it whole."""


def columns(rows: Iterable[tuple[str, str]]) -> Table:
    """Set names, and what each is, side by side."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for left, right in rows:
        table.add_row(Text(left), Text(right))
    return table


def session_list(found: Sequence[Session], *, current: str = "") -> RenderableType:
    """Number sessions, two rows each: what it was about, and when."""
    rows: list[Text] = []
    now = datetime.now(UTC)
    for number, session in enumerate(found, 1):
        mark = "●" if session.session_id == current else " "
        named = one_line(about(session) or session.title, 1_000)
        rows.append(clipped((f"{number:>3} {mark} ", "cyan"), (named, "bold")))
        marks = "".join(f" #{one_line(tag, 40)}" for tag in session.tags)
        marks += " (archived)" if session.status == "archived" else ""
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        rows.append(Text(f"      {short_id(session.session_id)} · {when}{marks}", style="dim"))
    return Group(*rows)


def file_list(found: Sequence[FileAccess]) -> RenderableType:
    """Group files by what was done with them."""
    rows: list[tuple[str, str]] = []
    for access, title in _GROUPS:
        files = [file for file in found if file.access_type == access]
        said = [f"{one_line(file.path, 500)} (turn {file.turn_index})" for file in files]
        rows += [("" if i else title, each) for i, each in enumerate(said)]
    return columns(rows)


def hit_list(found: Sequence[Hit | FactHit], width: int) -> RenderableType:
    """Say where each stands and why it was found, and below it what it says."""
    rows: list[Text] = []
    now = datetime.now(UTC)
    for hit in found:
        if isinstance(hit, Hit):
            head, said = hit.facts(now), [f"  {quote}" for quote in hit.quotes()]
        else:
            head, said = memory_facts(hit, now), memory_rows(hit, width)
        rows.append(Text(" · ".join(map(visible, head)), style="cyan"))
        rows += [clipped((row, "dim")) for row in said]
    return Group(*rows)


def code_list(found: Sequence[FoundCode], *, cwd: Path, project: str, width: int) -> RenderableType:
    """Show code as `ragmem search --code` does."""
    text = code_text(found, datetime.now(UTC), cwd=cwd, project=project, width=width)
    rows = text.rstrip().split("\n")
    return Group(*(clipped((row, "dim" if row.startswith(" ") else "cyan")) for row in rows))


def context_list(context: Context) -> RenderableType:
    """Show what would be sent: sections with their budgets, their items and what was left out."""
    rows: list[Text] = []
    for section in context.sections:
        of = f" of {section.budget:,}" if section.budget else ""
        out = f", {section.dropped} left out" if section.dropped else ""
        size = f"  {section.chars:,}{of} characters{out}"
        if section.budget:
            size += f"  {bar(section.chars, section.budget, _BAR)}"
        rows.append(Text(one_line(section.name, 60), style="bold") + Text(size))
        for item in section.items:
            said = item.label + (f" ({item.why})" if item.why else "")
            rows.append(clipped((f"{item.chars:>9,}  {one_line(said, 1_000)}", "dim")))
    total = f"{counted(len(context.messages), 'message')}, about {context.tokens:,} tokens"
    rows.append(Text(f"{total}; room for {context.max_chars:,} characters", style="dim"))
    if context.fallback:
        rows.append(Text("The store could not answer: pruned history.", style="yellow"))
    return Group(*rows)


def turn_list(turns: Iterable[tuple[int, str]]) -> RenderableType:
    """Show the numbers of turns, and what was asked in each."""
    return Group(
        *(
            clipped((f"{number:>4}  ", "cyan"), (one_line(said, 1_000), ""))
            for number, said in turns
        )
    )


# --- what is remembered -------------------------------------------------------


def memory_list(found: Sequence[MemoryRecord], width: int) -> RenderableType:
    """Say what each memory is, and below it, in a few rows, what it says."""
    now = datetime.now(UTC)
    parts: list[Text] = []
    for memory in found:
        head = wrap(summed_up(memory, now), max(20, width))
        rows = wrap(one_line(memory.content, 4_000), max(20, width - 2))
        if len(rows) > _MOST_ROWS:
            rows = [*rows[: _MOST_ROWS - 1], f"{rows[_MOST_ROWS - 1][: max(19, width - 3)]}…"]
        parts += [Text(row, style="cyan") for row in head]
        parts += [clipped((f"  {row}", "dim")) for row in rows]
    return Group(*parts)


def chain_text(lines: Sequence[Line], width: int) -> RenderableType:
    """Show a chain's rows, each behind its line's margin."""
    return Group(
        *(
            Text(" " * indent + row, style="" if indent else "bold")
            for indent, text in lines
            for row in wrap(text, max(20, width - indent))
        )
    )


def remembered_text(remembered: Remembered) -> RenderableType:
    """Say in one row what became of what was to be remembered."""
    memory = remembered.memory
    if memory is None:
        return memory_row(remembered.note)
    pinned = ", pinned" if memory.pinned else ""
    head = f"remembered {memory.kind}{pinned} {short_id(memory.memory_id)}"
    if remembered.action == "known":
        head = f"known already {short_id(memory.memory_id)}"
    elif remembered.action == "updated":
        head += " anew"
    note = f" ({remembered.note})" if remembered.note else ""
    return memory_row(f"{head}: {memory.content}{note}")


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
