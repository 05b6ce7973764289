"""How the answers of slash commands look."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ragmem.ids import short_id
from ragmem.index.lookup import FoundCode
from ragmem.memory.context import Context
from ragmem.memory.facts.values import FactHit
from ragmem.memory.found import memory_facts, memory_rows
from ragmem.memory.hits import Hit
from ragmem.records import DEFAULT_TITLE, AccessType, FileAccess, Session
from ragmem.repl.code_listings import code_text
from ragmem.text import ago, bar, one_line, visible

_GROUPS: tuple[tuple[AccessType, str], ...] = (
    ("write", "Modified"),
    ("read", "Read"),
    ("search", "Searched"),
    ("list", "Listed"),
)
_BAR = 10


def columns(rows: Iterable[tuple[str, str]]) -> Table:
    """Names, and what each is, side by side."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for left, right in rows:
        table.add_row(Text(left), Text(right))
    return table


def session_list(found: Sequence[Session], width: int, *, current: str = "") -> RenderableType:
    """Numbered, two lines each: what it was about, and when."""
    lines: list[Text] = []
    now = datetime.now(UTC)
    for number, session in enumerate(found, 1):
        mark = "●" if session.session_id == current else " "
        about = session.title
        if about == DEFAULT_TITLE and session.last_message:
            about = session.last_message
        head = f"{number:>3} {mark} "
        lines.append(
            Text(head, style="cyan") + Text(one_line(about, max(8, width - len(head))), "bold")
        )
        turns = f"{session.turn_count} turn{'s' * (session.turn_count != 1)}"
        when = ago(session.last_activity_at, now)
        marks = "".join(f" #{one_line(tag, 40)}" for tag in session.tags)
        marks += " (archived)" if session.status == "archived" else ""
        line = f"      {short_id(session.session_id)} · {turns} · {when}{marks}"
        lines.append(Text(line, style="dim"))
    return Text("\n").join(lines)


def file_list(found: Sequence[FileAccess]) -> RenderableType:
    """Grouped by what was done with them."""
    rows = [
        (title if first else "", f"{one_line(file.path, 500)} (turn {file.turn_index})")
        for access, title in _GROUPS
        for first, file in _firsts([f for f in found if f.access_type == access])
    ]
    return columns(rows)


def _firsts(files: list[FileAccess]) -> list[tuple[bool, FileAccess]]:
    return [(i == 0, file) for i, file in enumerate(files)]


def hit_list(found: Sequence[Hit | FactHit], width: int) -> RenderableType:
    """Where each stands and why it was found, and below it what it says, clipped to the line."""
    lines: list[Text] = []
    now = datetime.now(UTC)
    for hit in found:
        if isinstance(hit, Hit):
            about, said = hit.facts(now), [f"  {quote}" for quote in hit.quotes()]
        else:
            about, said = memory_facts(hit, now), memory_rows(hit, width)
        lines.append(Text(" · ".join(map(visible, about)), style="cyan"))
        lines += [Text(row, style="dim", no_wrap=True, overflow="ellipsis") for row in said]
    return Group(*lines)


def code_list(found: Sequence[FoundCode], *, cwd: Path, project: str, width: int) -> RenderableType:
    """As `ragmem search --code` shows it."""
    text = code_text(found, datetime.now(UTC), cwd=cwd, project=project, width=width)
    rows = text.rstrip().split("\n")
    return Group(
        *(
            Text(row, "dim" if row.startswith(" ") else "cyan", no_wrap=True, overflow="ellipsis")
            for row in rows
        )
    )


def context_list(context: Context, width: int) -> RenderableType:
    """What would be sent: sections with their budgets, what is in them and what was left out."""
    lines = []
    for section in context.sections:
        of = f" of {section.budget:,}" if section.budget else ""
        out = f", {section.dropped} left out" if section.dropped else ""
        name = one_line(section.name, 60)
        size = f"  {section.chars:,}{of} characters{out}"
        if section.budget:
            size += f"  {bar(section.chars, section.budget, _BAR)}"
        lines.append(Text(name, style="bold") + Text(size))
        for item in section.items:
            said = item.label + (f" ({item.why})" if item.why else "")
            said = one_line(said, max(20, width - 11))
            lines.append(Text(f"{item.chars:>9,}  {said}", style="dim"))
    count = len(context.messages)
    total = f"{count} message{'s' * (count != 1)}, about {context.tokens:,} tokens"
    lines.append(Text(f"{total}; room for {context.max_chars:,} characters", style="dim"))
    if context.fallback:
        lines.append(Text("The store could not answer: pruned history.", style="yellow"))
    return Group(*lines)
