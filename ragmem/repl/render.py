"""From values to what is printed, with rich.

Everything that a tool, a file or a store says passes `visible` here, so no
character of it can steer the terminal; for a model's answer see `markdown`.
"""

import re
from io import StringIO
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text
from rich.theme import Theme

from ragmem.events import MemoryWritten, Notice, ToolFinished, TurnFinished
from ragmem.records import Usage
from ragmem.text import duration, one_line, visible

_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.code": "cyan",
        "markdown.code_block": "default",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
    }
)
_TRAILING_BLANKS = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}
_RESULT_LINES = 6
_DIFF_LINES = 60


Ink = Literal["color", "mono", "none"]
"""Colours; bold and dim alone (NO_COLOR); no escape sequence at all (TERM=dumb, a pipe)."""


def paint(*what: RenderableType, width: int, ink: Ink = "color") -> str:
    """The text to print, each renderable on lines of its own.

    Lines carry no trailing blanks, so that a terminal which is made narrower
    does not wrap them.
    """
    console = Console(
        file=StringIO(),
        width=max(1, width),
        force_terminal=ink != "none",
        color_system=None if ink == "none" else "auto",
        no_color=ink != "color",
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        theme=_THEME,
    )
    with console.capture() as capture:
        for renderable in what:
            console.print(renderable)
    return _TRAILING_BLANKS.sub(r"\1", capture.get()).strip("\n") + "\n"


def fold(text: str, width: int) -> list[str]:
    """Rows of at most `width` cells that hold every character, blanks too."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        rows += _chop(line, max(1, width))
    return rows


def _chop(line: str, width: int) -> list[str]:
    if line.isascii():
        return [line[at : at + width] for at in range(0, len(line), width)] or [""]
    rows, row, taken = [], "", 0
    for char in line:
        cells = cell_len(char)
        if row and taken + cells > width:
            rows.append(row)
            row, taken = "", 0
        row, taken = row + char, taken + cells
    return [*rows, row]


def wrap(text: str, width: int) -> list[str]:
    """Rows of at most `width` cells, cut between words where that can be."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        row = ""
        for word in re.findall(r"\S+\s*|\s+", line):
            if row and cell_len(row + word.rstrip()) > width:
                rows.append(row.rstrip())
                row = ""
            *whole, row = fold(row + word, width) if cell_len(word) > width else [row + word]
            rows += whole
        rows.append(row.rstrip())
    return rows


def gutter(
    text: str, width: int, *, mark: str, rest: str = "", style: str = "", words: bool = False
) -> Text:
    """Rows behind a margin that the text itself can't imitate: `mark` first, then `rest`."""
    margin = cell_len(mark)
    rest = rest or " " * margin
    rows = (wrap if words else fold)(text, max(1, width - margin))
    return Text("\n").join(Text((rest if i else mark) + row, style) for i, row in enumerate(rows))


# --- the parts of a turn -----------------------------------------------------


def prompt_echo(shown: str, mark: str, width: int) -> RenderableType:
    """The person's prompt, as it stays on the screen."""
    return gutter(visible(shown), width, mark=mark, style="bold", words=True)


def tool_title(title: str, width: int, *, success: bool = True) -> Text:
    """`● read_file ragmem/app.py`"""
    bullet = Text("● ", style="green" if success else "red")
    return bullet + Text(one_line(title, max(8, width - 2)), style="bold")


def tool_result(event: ToolFinished, width: int, *, brief: bool = False) -> Text:
    """`  ⎿ 120 lines (12 ms)`, or a diff in colour; `brief` where the person has seen it."""
    lines = visible(event.display).rstrip("\n").split("\n")
    first = next((i for i, line in enumerate(lines) if _starts_diff(lines, i)), len(lines))
    said, shown_diff = lines[:first], lines[first:]
    time = "" if event.duration_ms < 1 else f" ({duration(event.duration_ms)})"
    style = "red" if event.failed else "dim"
    more = len(said) - _RESULT_LINES
    said = said[:_RESULT_LINES] + ([f"… {more} more lines"] if more > 0 else [])
    head = said[0] if said else _changes(shown_diff)
    text = "\n".join([head + time, *said[1:]])
    result = gutter(text, width, mark="  ⎿ ", style=style, words=True)
    if shown_diff and not brief:
        result += Text("\n") + diff(shown_diff[:_DIFF_LINES], width, mark="    ")
        if len(shown_diff) > _DIFF_LINES:
            result += Text(f"\n    … {len(shown_diff) - _DIFF_LINES} more lines", style="dim")
    return result


def _changes(lines: list[str]) -> str:
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return f"+{added} −{removed}"


def _starts_diff(lines: list[str], at: int) -> bool:
    pair = lines[at : at + 2]
    return lines[at].startswith("@@ ") or (
        len(pair) == 2 and pair[0].startswith("--- ") and pair[1].startswith("+++ ")
    )


def diff(lines: list[str], width: int, *, mark: str) -> Text:
    """A unified diff in colour, every character of it."""
    return Text("\n").join(
        gutter(line, width, mark=mark, rest=mark, style=_diff_style(line)) for line in lines
    )


def _diff_style(line: str) -> str:
    if line.startswith(("--- ", "+++ ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def notice(event: Notice, width: int) -> Text:
    """Something beside the answer."""
    return gutter(visible(event.text), width, mark="· ", style=_LEVELS[event.level], words=True)


def memory_written(event: MemoryWritten, width: int) -> Text:
    """`· remembered fact 1a2b3c4d: …`, on one line."""
    line = Text(one_line(f"· {event.line}", 400), style="dim")
    line.truncate(max(8, width), overflow="ellipsis")
    return line


def failure(message: str, hint: str, width: int) -> RenderableType:
    """What went wrong, and what to do."""
    lines = [gutter(visible(message), width, mark="✗ ", style="red", words=True)]
    if hint:
        lines.append(gutter(visible(hint), width, mark="  ", words=True))
    return Group(*lines)


def closing(event: TurnFinished, width: int) -> RenderableType:
    """The last line of a turn: how it ended, and what it cost."""
    said = spent(event.usage, event.duration_ms)
    sums = gutter(said, width, mark="  ", style="dim", words=True)
    match event.subtype:
        case "success":
            return sums
        case "interrupted":
            return Group(Text("  interrupted", style="yellow"), sums)
        case "error_max_turns":
            text = "The limit of model calls for one turn was reached."
        case "error_max_budget_usd":
            text = "The budget was reached."
        case _:
            text = "The turn failed."
    # Here a model is chosen by a command, not by a flag.
    hint = event.hint.replace("(-m)", "(/model)")
    return Group(failure(event.error or text, hint, width), sums)


def spent(usage: Usage, duration_ms: int | None = None) -> str:
    """`2.3 s · 3 calls · 12,300 tokens in, 240 out · $0.0123`; what is unknown is left out."""
    parts = [] if duration_ms is None else [duration(duration_ms)]
    parts.append(f"{usage.model_calls} model call{'s' * (usage.model_calls != 1)}")
    if usage.input_tokens is not None:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens or 0:,} out")
    if usage.cost_usd is not None:
        parts.append(f"${usage.cost_usd:.4f}")
    return " · ".join(parts)
