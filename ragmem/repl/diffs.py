"""Display of a file's diff: a header, line numbers, and highlighted changes within lines.

No character of the change is lost: invisible ones are shown as escapes, long lines wrap behind a
margin that they can't imitate, and the rows that a fold leaves out are counted. Colours set their
own background, so that they are legible on dark and on light terminals.
"""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import accumulate, chain, groupby, islice, pairwise
from operator import itemgetter
from typing import Literal

import msgspec
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import string_to_tokentype
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text

from ragmem.events import ToolFinished
from ragmem.own_tools import EDITING_TOOLS
from ragmem.repl.output import Gutter, fold
from ragmem.text import counted, display_width, reveal

FOLD_ROWS = 40
"""Number of screen rows above which the middle of a change is folded."""

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MARGIN = "│ "
_NO_FILE = "/dev/null"
_MAX_LEXED_CHARS = 60_000
"""Characters above which a change gets no syntax highlighting, which would be slow."""
_MAX_LEXED_LINE = 1_000
_MAX_WORDS = 300
_MAX_PAIRS = 300
_MIN_RATIO = 0.4
"""Similarity of two lines below which words that differ are not highlighted."""

Sign = Literal["+", "-", " ", "\\", "⋮", ""]
_Span = tuple[int, int, str]

TINTS: dict[str, str] = {"+": "color(231) on color(22)", "-": "color(231) on color(52)"}
WORD_TINTS: dict[str, str] = {"+": "color(231) on color(28)", "-": "color(231) on color(88)"}
CODE_COLORS: dict[str, str] = {
    "Comment": "color(252)",
    "Keyword": "color(225)",
    "Literal.String": "color(229)",
    "Literal.Number": "color(195)",
    "Name.Function": "color(159)",
    "Name.Class": "color(159)",
    "Name.Decorator": "color(225)",
    "Name.Builtin": "color(195)",
    "Name.Tag": "color(225)",
}
"""Colours from the fixed part of the 256-colour palette, each legible on both of `TINTS`."""
_FEW_COLORS = {"+": "green", "-": "red"}


class DiffRow(msgspec.Struct, frozen=True):
    """One line of a change."""

    sign: Sign
    """`⋮` for the gap between two hunks; empty for text that is not part of a hunk."""
    number: int | None
    """Line number: in the old file for a removed line, else in the new file."""
    text: str
    """The text to show, with invisible characters escaped and tabs expanded."""


class Change(msgspec.Struct, frozen=True):
    """A parsed unified diff of one file; no character of it is lost."""

    path: str
    """Path of the file; empty if the text was not a diff, so that all rows have no sign."""
    creates: bool
    rows: tuple[DiffRow, ...]

    @property
    def tally(self) -> str:
        """Return the numbers of added and removed lines: `+3 −1`, or `+12` for a new file."""
        added, removed = (sum(row.sign == sign for row in self.rows) for sign in "+-")
        return f"+{added}" if self.creates and not removed else f"+{added} −{removed}"


def read_change(diff: str) -> Change:
    """Parse a unified diff; lines that are not part of it become rows without a sign."""
    lines = diff.split("\n")
    path, creates, rows = "", False, list[DiffRow]()
    if len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ "):
        old, path = lines[0][4:], lines[1][4:]
        creates = old == _NO_FILE
        if creates or old == path:
            lines = lines[2:]
    rows += _rows(lines)
    return Change(reveal(path), creates, tuple(rows))


def _rows(lines: list[str]) -> Iterator[DiffRow]:
    old, new, old_left, new_left = 0, 0, 0, 0
    begun = False
    for line in lines:
        sign, text = line[:1], _shown(line[1:])
        if sign == "+" and new_left:
            yield DiffRow("+", new, text)
            new, new_left = new + 1, new_left - 1
        elif sign == "-" and old_left:
            yield DiffRow("-", old, text)
            old, old_left = old + 1, old_left - 1
        elif sign == " " and old_left and new_left:
            yield DiffRow(" ", new, text)
            old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
        elif sign == "\\" and begun:
            yield DiffRow("\\", None, text)
        elif not (old_left or new_left) and (found := _HUNK.match(line)):
            old, new = int(found[1]), int(found[3])
            old_left, new_left = int(found[2] or 1), int(found[4] or 1)
            rest = _shown(line[found.end() :])
            if begun or rest:
                yield DiffRow("⋮", None, rest.strip())
            begun = True
        else:
            yield DiffRow("", None, _shown(line))


def _shown(line: str) -> str:
    return reveal(line).expandtabs(4)


# --- the printed block --------------------------------------------------------


class ChangeBlock:
    """A change with its header, wrapped to the width at which it is printed."""

    def __init__(
        self, change: Change, *, title: str = "", folds: bool = True, hint: str = ""
    ) -> None:
        self._change, self._folds, self._hint = change, folds, hint
        shown = reveal(title)
        # Keep a title that says more, or names another file.
        self._plain_title = bool(change.path) and (not title or shown.endswith(f" {change.path}"))
        verb = "Create" if change.creates else "Edit"
        self._title = f"{verb} {change.path}" if self._plain_title else shown
        self._digits = max((len(str(row.number or "")) for row in change.rows), default=1)

    def is_folded(self, width: int) -> bool:
        """Return whether rows are left out at a width in cells."""
        return self._folds and self._row_count(width) > FOLD_ROWS

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        few = console.color_system in (None, "standard", "windows")
        colors: Literal["none", "few", "many"] = "few" if few else "many"
        if console.no_color or console.color_system is None:
            colors = "none"
        tally = f"  {self._change.tally}" if self._change.path else ""
        yield Gutter(f"{self._title}{tally}", mark="● ", style="bold")
        if not self._plain_title and self._change.path:
            yield Gutter(self._change.path, mark=_MARGIN, rest=_MARGIN)
        styles = _styles(self._change, colors)

        def lines(at: int) -> list[Text]:
            return self._lines(at, width, colors, styles.get(at, []))

        every = range(len(self._change.rows))
        rows = chain.from_iterable(map(lines, every))
        if not self.is_folded(width):
            yield from rows
            return
        # The rows left out are not rendered: for a large change, that takes seconds.
        yield from islice(rows, FOLD_ROWS // 2)
        hint = f" ({self._hint})" if self._hint else ""
        more = self._row_count(width) - FOLD_ROWS + 1
        yield Text(f"  … {counted(more, 'more row')}{hint}", "bold")
        upwards = (line for at in reversed(every) for line in reversed(lines(at)))
        yield from reversed(list(islice(upwards, (FOLD_ROWS - 1) // 2)))

    def _row_count(self, width: int) -> int:
        return sum(len(fold(row.text, self._room(width))) for row in self._change.rows)

    def _room(self, width: int) -> int:
        return max(1, width - display_width(_MARGIN) - self._digits - 3)

    def _lines(self, at: int, width: int, colors: str, spans: list[_Span]) -> list[Text]:
        row = self._change.rows[at]
        base = ""
        if colors != "none":
            base = (TINTS if colors == "many" else _FEW_COLORS).get(row.sign, "")
        text = Text(row.text, base)
        for start, end, style in spans:
            text.stylize(style, start, end)
        cuts = accumulate(map(len, fold(row.text, self._room(width))[:-1]))
        lines = []
        for i, part in enumerate(text.divide(list(cuts))):
            number = str(row.number or "") if not i else ""
            lead = Text(f"{number:>{self._digits}} {row.sign or ' '} ", base)
            lines.append(Text.assemble(_MARGIN, lead, part))
        return lines


def edit_result(event: ToolFinished, *, asked: bool) -> RenderableType | None:
    """Return the result of an edit: one row if the user was asked about it, else the whole change.

    None if the call is not a successful edit, or has no diff.
    """
    change = read_change(event.display)
    if event.name not in EDITING_TOOLS or not change.path or not event.success:
        return None
    if not asked:
        return ChangeBlock(change)
    done = "created" if change.creates else "edited"
    return Gutter(f"{done} {change.path}  {change.tally}", mark="  ✓ ", style="green")


# --- styles within a line -----------------------------------------------------


def _styles(change: Change, colors: str) -> dict[int, list[_Span]]:
    """Return the styled spans of each row, by its index; later spans override earlier ones."""
    if colors == "none":
        return {}
    styles = _code_styles(change) if colors == "many" else {}
    for at, spans in _changed_words(change.rows).items():
        sign = change.rows[at].sign
        word = "bold " + WORD_TINTS[sign] if colors == "many" else "bold"
        styles.setdefault(at, []).extend((start, end, word) for start, end in spans)
    return styles


def _changed_words(rows: tuple[DiffRow, ...]) -> dict[int, list[tuple[int, int]]]:
    """Return the spans of the words that differ between a removed line and its replacement."""
    found: dict[int, list[tuple[int, int]]] = {}
    for pair in _pairs(rows):
        words: list[list[str]] = [_WORDS.findall(rows[at].text) for at in pair]
        if max(map(len, words)) > _MAX_WORDS:
            continue
        matcher = SequenceMatcher(None, words[0], words[1], autojunk=False)
        if matcher.ratio() < _MIN_RATIO:
            continue
        ends = [list(accumulate(map(len, each), initial=0)) for each in words]
        for tag, *places in matcher.get_opcodes():
            for at, end, first, stop in zip(pair, ends, places[::2], places[1::2], strict=True):
                if tag != "equal" and first < stop:
                    found.setdefault(at, []).append((end[first], end[stop]))
    return found


def _pairs(rows: tuple[DiffRow, ...]) -> list[tuple[int, int]]:
    """Pair each removed line with the added line that replaces it: first with first, and so on."""
    signed = [(row.sign, at) for at, row in enumerate(rows) if row.sign != "\\"]
    runs = [(sign, [at for _, at in run]) for sign, run in groupby(signed, key=itemgetter(0))]
    pairs: list[tuple[int, int]] = []
    for (before, gone), (after, came) in pairwise(runs):
        if (before, after) == ("-", "+"):
            pairs += zip(gone, came, strict=False)
    return pairs[:_MAX_PAIRS]


def _code_styles(change: Change) -> dict[int, list[_Span]]:
    """Return syntax colours by row, chosen by the file's name; each side is lexed as one text."""
    texts = [row.text for row in change.rows]
    if sum(map(len, texts)) > _MAX_LEXED_CHARS or max(map(len, texts), default=0) > _MAX_LEXED_LINE:
        return {}
    lexer = find_lexer_class_for_filename(change.path.strip('"'))
    if lexer is None:
        return {}
    colors = {string_to_tokentype(of): Style.parse(color) for of, color in CODE_COLORS.items()}
    code = Syntax("", lexer(stripnl=False), theme=ANSISyntaxTheme(colors))
    styles: dict[int, list[_Span]] = {}
    for sign in ("-", "+"):
        side = [at for at, row in enumerate(change.rows) if row.sign in (sign, " ")]
        painted = code.highlight("\n".join(texts[at] for at in side)).split("\n")
        for at, line in zip(side, painted, strict=False):
            if change.rows[at].sign == sign:
                styles[at] = [(span.start, span.end, str(span.style)) for span in line.spans]
    return styles
