"""A request as a picture: how full it is, its parts side by side, and what found no room."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ragmem.memory.context import Context, ContextSection
from ragmem.repl.output import clipped
from ragmem.text import (
    bar,
    counted,
    display_width,
    estimate_tokens,
    in_short,
    one_line,
    visible,
)

_NAMES = {
    "System": "how to work",
    "Skills": "skills",
    "Instructions": "project instructions",
    "Pinned": "pinned",
    "User Profile": "about you",
    "Preferences": "your preferences",
    "Remembered Facts": "memories",
    "Last Time": "last sessions",
    "Thread Summary": "session so far",
    "Recent Conversation": "conversation",
    "Recent Conversation (Raw)": "conversation",
    "Conversation History": "conversation",
    "Last User Queries": "earlier questions",
    "Relevant Code": "code",
    "Relevant Turns": "earlier turns",
    "Relevant Summaries": "summaries",
    "Level 1 Summaries": "newest summaries",
    "Recently Accessed Files": "files of late",
    "Changed Files": "changed files",
    "Mentioned Files": "named files",
    "Prompt": "prompt",
}
"""What people call the sections."""
_FRAME = "around them"
_BAR, _WHOLE_BAR = 16, 40
_NARROW = 60
_LEAST_BAR = 8
_NOT_ITEMS = {"Instructions"}
"""Of which characters are left out, not things."""


def picture(context: Context, *, width: int, window: int | None, items: bool) -> RenderableType:
    """Show the whole request first, then its parts, then what was left out.

    `window` is what the model can take in, in tokens; with `items` each part lists what is in it.
    """
    room = estimate_tokens(context.max_chars)
    said = f"{in_short(context.tokens)} of {in_short(room)} tokens"
    cells = max(_LEAST_BAR, min(_WHOLE_BAR, width - display_width(said) - 3))
    rows: list[Text] = [clipped((f"{said}  ", "bold"), (bar(context.tokens, room, cells), "cyan"))]
    if window:
        share = f"{context.tokens / window * 100:.0f}%"
        told = f"{share} of the {in_short(window)} tokens that the model takes in"
        rows.append(clipped((told, "dim")))
    rows.append(Text())
    rows += _parts(context, width, items=items)
    if left_out := _left_out(context):
        rows.append(clipped((f"left out: {left_out}", "dim")))
    if context.fallback:
        rows.append(Text("The store could not answer: pruned history.", style="yellow"))
    if not items:
        rows.append(clipped(("/context all lists what is in each", "dim")))
    return Group(*rows)


def _parts(context: Context, width: int, *, items: bool) -> Iterator[Text]:
    shown = [section for section in context.sections if section.chars]
    names = [_name(section) for section in shown]
    frame = context.chars - sum(section.chars for section in shown)
    column = max(map(display_width, [*names, _FRAME]), default=0)
    cells = _BAR if width >= _NARROW else _LEAST_BAR
    for name, section in zip(names, shown, strict=True):
        filled = bar(section.chars, section.budget, cells) if section.budget else " " * cells
        pad = " " * (column - display_width(name))
        yield clipped(
            (f"{name}{pad}", "bold"),
            (f"  {_tokens(section.chars):>5}  ", ""),
            (filled, "cyan"),
            (f"  {_told(section)}".rstrip(), "dim"),
        )
        for item in section.items if items else ():
            said = item.label + (f" ({item.why})" if item.why else "")
            yield clipped((f"{'':{column}}  {_tokens(item.chars):>5}  ", "dim"), (_line(said), ""))
    if frame > 0:
        yield clipped((f"{_FRAME:<{column}}  {_tokens(frame):>5}", "dim"))


def _told(section: ContextSection) -> str:
    """How many things there are, and which comes first."""
    if not section.items:
        return ""
    if section.name.startswith("Recent Conversation"):
        return counted(len(section.items), "turn")
    first = _line(section.items[0].label)
    more = f" and {len(section.items) - 1} more" if len(section.items) > 1 else ""
    return f"{first}{more}" if not more or len(first) < _BAR else f"{len(section.items)}: {first} …"


def _left_out(context: Context) -> str:
    """What found no room, by part."""
    said = []
    for section in context.sections:
        if section.dropped:
            of = " characters" if section.name in _NOT_ITEMS else ""
            said.append(f"{section.dropped:,}{of} of {_name(section)}")
    return ", ".join(said)


def _name(section: ContextSection) -> str:
    return _NAMES.get(section.name, visible(section.name.lower()))


def _tokens(chars: int) -> str:
    return in_short(estimate_tokens(chars))


def _line(text: str) -> str:
    return one_line(text, 400)
