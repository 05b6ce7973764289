"""The sections of a request that come from this session, each within its own budget."""

from collections.abc import Callable, Sequence

from ragmem.memory.context.values import ContextItem, Material, Part
from ragmem.memory.files import format_accessed_files
from ragmem.memory.history import build_history_context, digests_of
from ragmem.memory.window import recent_text
from ragmem.records import FileAccess, Turn
from ragmem.text import clip_middle, one_line

_QUERY_CHARS = 500
"""A past query is shown with at most so many characters."""


def turn_item(turn: Turn) -> ContextItem:
    """A turn of the window."""
    label = f"Turn {turn.turn_index}: {one_line(turn.user_message, 60)}"
    return ContextItem(label=label, chars=turn.char_count, why="among the latest turns")


def history_part(material: Material, *, budget: int) -> Part:
    """What this process remembers, where the store can't be asked."""
    heading = "## Conversation History\n\n"
    summaries = {s.covers[0]: s.text for s in material.level1 if s.level == 1 and s.covers}
    text = build_history_context(
        material.history or (),
        so_far=material.thread_summary,
        digests=digests_of(material.turns, summaries),
        max_chars=max(0, budget - len(heading)),
    )
    return Part(
        name="Conversation History", text=heading + text if material.history else "", budget=budget
    )


def recent_part(turns: Sequence[Turn], *, most: int, budget: int) -> Part:
    """The latest turns as text, for a model without tool calls."""
    text, count = recent_text(turns, limit=most, max_chars=budget)
    shown = turns[len(turns) - count :]
    return Part(
        name="Recent Conversation (Raw)",
        text=text,
        budget=budget,
        items=tuple(turn_item(turn) for turn in shown),
        dropped=shown[0].turn_index - 1 if shown else 0,
    )


def queries_part(older: Sequence[Turn], *, older_count: int, budget: int) -> Part:
    """What was asked in the turns just before the window."""
    lines = ["## Last User Queries"]
    items: list[ContextItem] = []
    room = budget - len(lines[0])
    for turn in reversed(older):
        line = f"[Turn {turn.turn_index}] {one_line(turn.user_message, _QUERY_CHARS)}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.insert(1, line)
        items.insert(
            0, ContextItem(label=line[:80], chars=len(line), why="asked before the window")
        )
    return Part(
        name="Last User Queries",
        text="\n".join(lines) if items else "",
        budget=budget,
        items=tuple(items),
        dropped=older_count - len(items),
    )


def last_query_part(turns: Sequence[Turn], *, budget: int) -> Part:
    """Said a second time, as a sentence: without it a small model can't tell who asked what."""
    before, after = 'You were asked before: "', '"'
    room = budget - len(before) - len(after)
    asked = one_line(turns[-1].user_message, room) if turns and room > 0 else ""
    return Part(
        name="Last User Queries",
        text=f"{before}{asked}{after}" if asked else "",
        budget=budget,
        items=(ContextItem(label=asked[:80], chars=len(asked), why="asked last"),),
    )


def thread_part(summary: str, *, budget: int) -> Part:
    """The digest of the session so far."""
    heading = "[Thread Summary]\n"
    text = clip_middle(summary, max(0, budget - len(heading)))
    return Part(name="Thread Summary", text=heading + text if text else "", budget=budget)


def files_part(accesses: Sequence[FileAccess], *, budget: int, show: Callable[[str], str]) -> Part:
    """The files that tools touched of late."""
    text, dropped = format_accessed_files(accesses, max_chars=budget, show=show)
    return Part(
        name="Recently Accessed Files",
        text=text,
        budget=budget,
        items=tuple(
            ContextItem(
                label=show(a.path),
                chars=len(a.path),
                why=f"{a.access_type} by {a.tool_name} in turn {a.turn_index}",
            )
            for a in accesses
        ),
        dropped=dropped,
    )
