"""The chat's output with rich: the parts of a turn, a model's Markdown, and their spacing.

All text from tools, files, stores and models passes through `visible`, so that it
can't control the terminal. In Markdown, links become text and address, images their
address, and HTML stays text: the only escape sequences are our own colours, and
nothing is dropped silently.
"""

import re
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cache
from io import StringIO
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown, TableElement
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from ragmem.events import Notice, ToolFinished, TurnFinished
from ragmem.records import Usage
from ragmem.repl import early
from ragmem.repl.terminal import Line, Terminal
from ragmem.text import clusters, counted, display_width, duration, one_line, visible
from ragmem.themes import ColorMode, Colors, ThemeName

_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        **{f"markdown.h{level}": "bold" for level in range(2, 7)},
        "markdown.code": "cyan",
        "markdown.code_block": "default",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
    }
)
_TRAILING_BLANKS = re.compile(r"[ ]++((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_RULE_CELLS = 40
LEAST_COLUMN = 14
"""Least average width, in cells, of the columns of a table whose texts must be wrapped."""
_UNBOUND = 10_000
_BOX = re.compile(r"\[([ xX])\] ")
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}
_RESULT_LINES = 6
_PASSED_LINES, _FAILED_LINES = 3, 12
"""Rows shown of the end of a command's output; a failure is explained there."""
_RESULT_MARK = "  ⎿ "
_FIRST, _LAST = 60, 140
"""Rows shown of a user's own command; the model gets more, and a file has them all."""

Level = Literal["info", "warning", "error"]
Kind = Literal["prompt", "recall", "text", "item", "tool", "notice", "closing", "note"]
"""Parts of different kinds are separated by a blank line; an `item` continues a list."""
_TOGETHER = {"tool", "notice"}
_MAX_STYLED_CHARS = 50_000
"""Characters above which a block of an answer is printed as plain text: as code or a table of
100,000, a thousand rows and more, it would take seconds in which no key is answered.
"""
SAMPLE = (
    ("● added", "green"), ("✗ removed", "red"), ("! warning", "yellow"), ("name", "cyan"),
    ("plan", "blue"), ("quiet", "dim"),
)  # fmt: skip
"""Sample texts with their styles, which preview a theme."""


class ChatOutput:
    """Prints permanent output above the prompt."""

    def __init__(
        self, terminal: Terminal, *, mode: ColorMode, colors: Colors | None = None
    ) -> None:
        self.terminal = terminal
        self._mode = mode
        self.colors = colors or Colors()
        self._last: Kind | None = None

    @property
    def width(self) -> int:
        """Return the terminal's width, in cells."""
        return self.terminal.columns

    def show(self, what: RenderableType, kind: Kind = "note") -> None:
        """Print one part, separated from the previous one according to their kinds."""
        self.show_all([(kind, what)])

    def show_all(self, parts: Iterable[tuple[Kind, RenderableType]]) -> None:
        """Print parts in one go: the rows below them are redrawn once, not for each part."""
        if painted := "".join(self._painted(kind, what) for kind, what in parts):
            self.terminal.write(painted)

    def _painted(self, kind: Kind, what: RenderableType) -> str:
        follows = kind in _TOGETHER and kind == self._last
        follows |= kind == "item" and self._last in ("text", "item")
        closes = kind == "closing" and self._last != "prompt"
        closes |= kind == "recall" and self._last == "prompt"
        gap = "" if follows or closes or self._last is None else "\n"
        self._last = kind
        painted = paint(what, width=self.width, mode=self._mode)
        return gap + self.colors.theme.recolor(painted)

    def choose_theme(self, name: ThemeName) -> bool:
        """Switch to another theme; return whether it is visible before the next start."""
        if self._mode != "color" or name == "plain":
            return False
        self.colors.choose(name)
        self.terminal.recolor()
        return True

    def say(self, text: str, level: Level = "info") -> None:
        """Print a notice."""
        self.show(notice(Notice(level=level, text=text)), "notice")

    def note(self, text: str) -> None:
        """Print a dim line that answers a command."""
        self.show(Text(text, style="dim"))

    def warn(self, text: str) -> None:
        """Print how a turn ended that did not end well."""
        self.show(Text(f"  {text}", style="yellow"), "closing")

    def answer(self, markdown: str) -> None:
        """Print a block of the model's answer."""
        self.show(answer(markdown), "text")

    def prompt(self, shown: str) -> None:
        """Print a prompt that the user has sent."""
        self.show(prompt_row(shown), "prompt")

    def copyable(self, text: str) -> None:
        """Print a row that the terminal itself wraps, so that it can be copied in one piece."""
        self._last = "notice"
        self.terminal.write(f"{visible(text)}\n")

    def clear(self) -> None:
        """Clear the screen and continue at its top."""
        self.terminal.clear()
        self._last = None


def prompt_row(shown: str) -> RenderableType:
    """Return a sent prompt as it is shown above its answer."""
    return Gutter(visible(shown), mark=early.prompt(), style="bold", words=True)


def paint(*what: RenderableType, width: int, mode: ColorMode = "color") -> str:
    """Render to text with escape sequences, each renderable on lines of its own.

    Lines have no trailing blanks, which would wrap if the terminal shrinks.
    """
    console = _console(width, mode)
    with console.capture() as capture:
        # In a group, because print would join separate texts, and wrap those to be clipped.
        console.print(Group(*what))
    return _TRAILING_BLANKS.sub(r"\1", capture.get()).strip("\n") + "\n"


def _console(width: int, mode: ColorMode) -> Console:
    return Console(
        file=StringIO(),
        width=max(1, width),
        force_terminal=mode != "none",
        color_system=None if mode == "none" else "auto",
        no_color=mode != "color",
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        theme=_THEME,
    )


def live_rows(what: RenderableType, width: int) -> list[Line]:
    """Render to the rows of a live view, without blank rows at both ends."""
    rows: list[Line] = []
    for segments in _console(width, "color").render_lines(what, pad=False):
        row = [(_names(segment.style), segment.text) for segment in segments]
        while row and not row[-1][1].strip():
            row.pop()
        if row or rows:
            rows.append((*row[:-1], (row[-1][0], row[-1][1].rstrip())) if row else ())
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _names(style: Style | None) -> str:
    """Return the name of a style in `ragmem.repl.drawing`."""
    if style is None:
        return ""
    color = style.color.name if style.color and not style.color.is_default else ""
    shown = [name for name in ("bold", "italic", "underline", "dim") if getattr(style, name)]
    return " ".join(filter(None, (color, *shown)))


def fold(text: str, width: int) -> list[str]:
    """Split text into rows of at most `width` cells, keeping every character, blanks included."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        rows += _chop(line, max(1, width))
    return rows


def _chop(line: str, width: int) -> list[str]:
    if line.isascii():
        return [line[at : at + width] for at in range(0, len(line), width)] or [""]
    rows, row, taken = [], "", 0
    for cluster in clusters(line):
        cells = display_width(cluster)
        if row and taken + cells > width:
            rows.append(row)
            row, taken = "", 0
        row, taken = row + cluster, taken + cells
    return [*rows, row]


def wrap(text: str, width: int) -> list[str]:
    """Split text into rows of at most `width` cells, between words if possible."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        row = ""
        for word in re.findall(r"\S+\s*|\s+", line):
            if row and display_width(row + word.rstrip()) > width:
                rows.append(row.rstrip())
                row = ""
            *whole, row = fold(row + word, width) if display_width(word) > width else [row + word]
            rows += whole
        rows.append(row.rstrip())
    return rows


class Gutter:
    """Text with a margin that it can't imitate, split to the width at which it is printed.

    `mark` precedes the first row, `rest` the others. Every character is kept, except that rows
    split between `words` lose their trailing blanks.
    """

    def __init__(
        self, text: str, *, mark: str, rest: str = "", style: str = "", words: bool = False
    ) -> None:
        self._text, self._mark, self._style = text, mark, style
        self._rest = rest or " " * display_width(mark)
        self._cut = wrap if words else fold

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._cut(self._text, max(1, options.max_width - display_width(self._mark)))
        for i, row in enumerate(rows):
            yield Text((self._rest if i else self._mark) + row, self._style)


def clipped(*parts: tuple[str, str]) -> Text:
    """Return (text, style) parts as a row that is clipped with an ellipsis."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def columns(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and their values as two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(Text(left), Text(right))
    return table


def listing(text: str) -> RenderableType:
    """Style a list made by `ragmem.listings`: rows that start with a blank are dim."""
    rows = text.rstrip("\n").split("\n")
    return Group(*(clipped((row, "dim" if row[:1] == " " else "cyan")) for row in rows))


# --- the parts of a turn -----------------------------------------------------


def tool_title(title: str, *, success: bool = True) -> Text:
    """Return a row such as `● read_file ragmem/app.py`; failures have another sign."""
    mark = ("● ", "green") if success else ("✗ ", "red")
    return clipped(mark, (one_line(title, 1_000), "bold"))


def tool_result(event: ToolFinished) -> RenderableType:
    """Return a tool's result, such as `  ⎿ 120 lines (12 ms)`."""
    said = visible(event.display).rstrip("\n").split("\n")
    time = "" if event.duration_ms < 1 else f" ({duration(event.duration_ms)})"
    # The row with the ellipsis could show a single omitted line instead.
    if (more := len(said) - _RESULT_LINES) > 1:
        said = [*said[:_RESULT_LINES], f"… {more} more lines · {early.expand_key()}"]
    text = "\n".join([said[0] + time, *said[1:]])
    style = "red" if event.failed else "dim"
    return Gutter(text, mark=_RESULT_MARK, style=style, words=True)


def command_block(title: str, event: ToolFinished) -> RenderableType:
    """Return a finished command with its exit status, duration, and the end of its output."""
    # A stopped command's output is only in `text`.
    mark, said, lines = _ended(event, event.display if event.success else event.text)
    passed = not event.failed
    row = Table.grid(padding=(0, 2), expand=False)
    row.add_column()  # only this column shrinks if both don't fit
    row.add_column(no_wrap=True, style="dim" if passed else "red")
    row.add_row(
        Text.assemble(mark, (one_line(title, 1_000), "bold"), no_wrap=True, overflow="ellipsis"),
        said,
    )
    most = _PASSED_LINES if passed else _FAILED_LINES
    parts: list[RenderableType] = [row]
    if (more := len(lines) - most) > 1:
        before = f"… {more:,} lines before · {early.expand_key()}"
        parts.append(Text(f"{_RESULT_MARK}{before}", style="dim"))
        lines = lines[-most:]
    elif lines:
        first, *lines = lines
        parts.append(Gutter(first, mark=_RESULT_MARK, style="dim" if passed else "", words=True))
    if lines:
        text = "\n".join(lines)
        parts.append(Gutter(text, mark="    ", style="dim" if passed else "", words=True))
    return Group(*parts)


def to_person(said: str) -> str:
    """Rephrase the agent's message about a stopped command for the user who stopped it."""
    who = "Stopped by the user"
    return f"Stopped by you{said.removeprefix(who)}" if said.startswith(who) else said


def _ended(event: ToolFinished, printed: str) -> tuple[tuple[str, str], str, list[str]]:
    """Return a mark with its style, a command's exit status with its duration, and its output."""
    first, *lines = visible(printed).rstrip("\n").split("\n")
    code = event.exit_code
    if code is None:
        # The rest of the line is for the agent.
        said = [to_person(first.partition(". ")[0].rstrip("."))]
    else:
        how = f"exit {code}" if code > 0 else f"killed by signal {-code}" if code else ""
        left = first.partition(" (")[2].removesuffix(")")  # processes that were still running
        said = [each for each in (how, left) if each]
    mark = ("✗ ", "bold red") if event.failed else ("✓ ", "green")
    return mark, " · ".join([*said, duration(event.duration_ms)]), lines


def command_result(event: ToolFinished) -> RenderableType:
    """Return the output and exit status of a user's own command.

    A margin keeps the output from passing for something else; long output loses its middle.
    """
    mark, said, lines = _ended(event, event.text)
    if (more := len(lines) - _FIRST - _LAST) > 1:
        left_out = f"… {more:,} more lines · {early.expand_key()} …"
        lines = [*lines[:_FIRST], left_out, *lines[-_LAST:]]
    printed = [Gutter("\n".join(lines), mark="  ")] if lines else []
    return Group(*printed, Text.assemble("  ", mark, (said, "red" if event.failed else "dim")))


def notice(event: Notice) -> RenderableType:
    """Return a notice, which is not part of the answer."""
    return Gutter(visible(event.text), mark="· ", style=_LEVELS[event.level], words=True)


def thoughts_row(lasted_ms: int) -> Text:
    """Return a row with the duration of the model's reasoning and how to read it."""
    return Text(f"· thought for {duration(lasted_ms)} · {early.expand_key()}", style="dim")


def memory_row(text: str) -> Text:
    """Return a row about a memory, such as `· remembered fact 1a2b3c4d: …`."""
    return clipped((one_line(f"· {text}", 400), "dim"))


_HERE = {
    "(-m)": "(/model)",
    "(-c)": '(type "continue")',
    "(--max-turns)": "(/config tools.max_iterations)",
    "`ragmem config show` lists": "/config lists",
}
"""Replacements for the flags and commands in hints: what does the same in a chat."""


def failure(message: str, hint: str) -> RenderableType:
    """Return an error with its hint, adapted to the chat."""
    for flag, way in _HERE.items():
        hint = hint.replace(flag, way)
    lines = [Gutter(visible(message), mark="✗ ", style="red", words=True)]
    if hint:
        lines.append(Gutter(visible(hint), mark="  ", words=True))
    return Group(*lines)


def closing(event: TurnFinished) -> RenderableType:
    """Return the last line of a turn: how it ended, and its usage."""
    sums = Gutter(spent(event.usage, event.duration_ms), mark="  ", style="dim", words=True)
    match event.subtype:
        case "success":
            return sums
        case "interrupted":
            return Group(Text("  interrupted", style="yellow"), sums)
        case "error_max_turns":
            text = "The limit of model calls per turn was reached."
        case "error_max_budget_usd":
            text = "The budget was reached."
        case _:
            text = "The turn failed."
    return Group(failure(event.error or text, event.hint), sums)


def spent(usage: Usage, duration_ms: int | None = None) -> str:
    """Return `2.3 s · 3 model calls · 12,300 tokens in, 240 out · $0.0123`, as far as known.

    For a turn (with a duration) without model calls, their number is omitted.
    """
    parts = [] if duration_ms is None else [duration(duration_ms)]
    if usage.model_calls or duration_ms is None:
        parts.append(counted(usage.model_calls, "model call"))
    if usage.input_tokens is not None:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens or 0:,} out")
    if usage.cost_usd is not None:
        parts.append(f"${usage.cost_usd:.4f}")
    return " · ".join(parts)


# --- a model's Markdown -----------------------------------------------------


def answer(markdown: str) -> RenderableType:
    """Return a block of the model's answer, rendered as Markdown unless it is huge."""
    text = visible(markdown)
    return Text(text.strip("\n")) if len(text) > _MAX_STYLED_CHARS else _empty().with_text(text)


class _Heading(Heading):
    def __rich_console__(self, _: Console, __: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _CodeBlock(CodeBlock):
    """Code in the terminal's own colours and background."""

    def __rich_console__(self, _: Console, __: ConsoleOptions) -> RenderResult:
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            background_color="default",
            padding=(0, 2),
        )


class _Table(TableElement):
    """A table without the empty rows around it, since blocks are separated anyway.

    If its columns don't fit, each row becomes a list of its cells, labelled by column.
    """

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        width = options.max_width
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            table.show_edge = False
            needs = Measurement.get(console, options.update(width=_UNBOUND), table)
            squeezed = needs.maximum > width and width < LEAST_COLUMN * len(table.columns)
            yield Group(*self._records()) if squeezed or needs.minimum > width else table

    def _records(self) -> Iterator[RenderableType]:
        header = self.header.row if self.header else None
        names = [cell.content for cell in header.cells] if header else []
        for row in self.body.rows if self.body else ():
            for place, (name, cell) in enumerate(zip(names, row.cells, strict=False)):
                if cell.content or not place:
                    named = Text.assemble((name.plain, "dim"), (": " if name else "", "dim"))
                    said = Text.assemble(cell.content, style="" if place else "bold")
                    yield Padding(named + said, (0, 0, 0, 2 if place else 0))


class _Rule(HorizontalRule):
    """A horizontal rule, drawn with the same sign as other rules."""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(early.sign("─", "-") * min(_RULE_CELLS, options.max_width), "dim")


class _Answer(Markdown):
    """rich's Markdown with tokens that are safe to print."""

    elements = {  # noqa: RUF012 - as its base declares it
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "table_open": _Table,
        "hr": _Rule,
    }

    def __init__(self) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        # Keep HTML as text: rich would drop it.
        parser = MarkdownIt("commonmark", {"html": False})
        self._parser = parser.enable(["strikethrough", "table"])

    def with_text(self, markup: str) -> "_Answer":
        """Return a copy with this text; to create one takes longer than to parse a short text."""
        made = copy(self)
        parsed = made.parsed = [_safe(token) for token in self._parser.parse(markup)]
        for item, first, text in zip(parsed, parsed[1:], parsed[2:], strict=False):
            if (item.type, first.type, text.type) == ("list_item_open", "paragraph_open", "inline"):
                _draw_box(text)
        return made


@cache
def _empty() -> _Answer:
    return _Answer()


def _safe(token: Token) -> Token:
    # The parser decodes entities (`&#x202e;`) only after the source was made visible.
    token.content = visible(token.content)
    if token.children:
        token.children = [_safe_inline(child) for child in token.children]
        _spell_links(token.children)
    return token


def _draw_box(text: Token) -> None:
    """Replace `[ ]` and `[x]` at the start of a list item by a box."""
    first = (text.children or [text])[0]
    if found := _BOX.match(first.content):
        box = early.sign("☐" if found[1] == " " else "☑", found[0].strip())
        first.content = f"{box} {first.content[found.end() :]}"


def _safe_inline(token: Token) -> Token:
    if token.type == "image":
        address = visible(str(token.attrs.get("src", "")))
        return Token("text", "", 0, content=f"[image: {address}]")
    token.content = visible(token.content)
    return token


def _spell_links(children: list[Token]) -> None:
    """Replace each link by its text and, if it differs, its address."""
    opened: list[tuple[str, int]] = []
    for at, token in enumerate(children):
        if token.type == "link_open":
            opened.append((visible(str(token.attrs.get("href", ""))), at))
            children[at] = Token("text", "", 0)
        elif token.type == "link_close" and opened:
            address, start = opened.pop()
            said = "".join(child.content for child in children[start:at])
            same = said in (address, address.removeprefix("mailto:"))
            children[at] = Token("text", "", 0, content="" if same else f" ({address})")
