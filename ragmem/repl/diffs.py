"""A change of a file as a person reads it: one header, line numbers, what changed in each line.

Every character of the change is there: what hides is shown as an escape, long lines wrap
behind a margin that they can't imitate, and what a fold leaves out is counted. Colours bring
their own background, so that they can be read on a dark terminal and on a light one.
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
"""Rows of a change, on the screen, above which its middle is folded."""

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MARGIN = "│ "
_NO_FILE = "/dev/null"
_MOST_LEXED = 60_000
"""Characters of a change that are coloured as code; a larger one stays plain, and quick."""
_MOST_LEXED_LINE = 1_000
_MOST_WORDS = 300
_MOST_PAIRS = 300
_ALIKE = 0.4
"""Share of two lines that is the same, below which one replaces the other as a whole."""

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
"""Of the fixed part of the 256 colours; each can be read on both of `TINTS`."""
_FEW_COLORS = {"+": "green", "-": "red"}


class DiffRow(msgspec.Struct, frozen=True):
    """One line of a change."""

    sign: Sign
    """`⋮` is what lies between two places; an empty one is text of no known meaning."""
    number: int | None
    """Of the line before the change where it goes, else after it."""
    text: str
    """What is shown: nothing in it hides, and tabs are blanks."""


class Change(msgspec.Struct, frozen=True):
    """A unified diff of one file, read; no character of it is lost."""

    path: str
    """Empty where the text was no diff: all its lines are rows without a sign."""
    creates: bool
    rows: tuple[DiffRow, ...]

    @property
    def tally(self) -> str:
        """Return how many lines come and go, as `+3 −1`, or as `+12` of a new file."""
        added, removed = (sum(row.sign == sign for row in self.rows) for sign in "+-")
        return f"+{added}" if self.creates and not removed else f"+{added} −{removed}"


def read_change(diff: str) -> Change:
    """Read a unified diff; the lines that belong to none stay as they are."""
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


# --- what is printed ----------------------------------------------------------


class ChangeBlock:
    """A change under its header, cut for the width that it is printed at."""

    def __init__(
        self, change: Change, *, title: str = "", folds: bool = True, hint: str = ""
    ) -> None:
        self._change, self._folds, self._hint = change, folds, hint
        said = reveal(title)
        # A title that tells more, or of another file, is not replaced by ours.
        self._named = bool(change.path) and (not title or said.endswith(f" {change.path}"))
        verb = "Create" if change.creates else "Edit"
        self._title = f"{verb} {change.path}" if self._named else said
        self._digits = max((len(str(row.number or "")) for row in change.rows), default=1)

    def is_folded(self, width: int) -> bool:
        """Return whether rows are left out at that width, in cells."""
        return self._folds and self._count(width) > FOLD_ROWS

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        few = console.color_system in (None, "standard", "windows")
        colors: Literal["none", "few", "many"] = "few" if few else "many"
        if console.no_color or console.color_system is None:
            colors = "none"
        tally = f"  {self._change.tally}" if self._change.path else ""
        yield Gutter(f"{self._title}{tally}", mark="● ", style="bold")
        if not self._named and self._change.path:
            yield Gutter(self._change.path, mark=_MARGIN, rest=_MARGIN)
        styles = _styles(self._change, colors)

        def lines(at: int) -> list[Text]:
            return self._lines(at, width, colors, styles.get(at, []))

        every = range(len(self._change.rows))
        rows = chain.from_iterable(map(lines, every))
        if not self.is_folded(width):
            yield from rows
            return
        # What is left out is not drawn: to draw a large change takes seconds.
        yield from islice(rows, FOLD_ROWS // 2)
        hint = f" ({self._hint})" if self._hint else ""
        more = self._count(width) - FOLD_ROWS + 1
        yield Text(f"  … {counted(more, 'more row')}{hint}", "bold")
        upwards = (line for at in reversed(every) for line in reversed(lines(at)))
        yield from reversed(list(islice(upwards, (FOLD_ROWS - 1) // 2)))

    def _count(self, width: int) -> int:
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
    """Return what came of an edit: a row where the person was shown it before, else all of it.

    None where the tool told of no change.
    """
    change = read_change(event.display)
    if event.name not in EDITING_TOOLS or not change.path or not event.success:
        return None
    if not asked:
        return ChangeBlock(change)
    done = "created" if change.creates else "edited"
    return Gutter(f"{done} {change.path}  {change.tally}", mark="  ✓ ", style="green")


# --- colours within a line ----------------------------------------------------


def _styles(change: Change, colors: str) -> dict[int, list[_Span]]:
    """Return the styles within each row; the later of two is seen."""
    if colors == "none":
        return {}
    styles = _code_styles(change) if colors == "many" else {}
    for at, spans in _changed_words(change.rows).items():
        sign = change.rows[at].sign
        word = "bold " + WORD_TINTS[sign] if colors == "many" else "bold"
        styles.setdefault(at, []).extend((start, end, word) for start, end in spans)
    return styles


def _changed_words(rows: tuple[DiffRow, ...]) -> dict[int, list[tuple[int, int]]]:
    """Return where the words stand that differ between a line that goes and the one that comes."""
    found: dict[int, list[tuple[int, int]]] = {}
    for pair in _pairs(rows):
        words: list[list[str]] = [_WORDS.findall(rows[at].text) for at in pair]
        if max(map(len, words)) > _MOST_WORDS:
            continue
        matcher = SequenceMatcher(None, words[0], words[1], autojunk=False)
        if matcher.ratio() < _ALIKE:
            continue
        ends = [list(accumulate(map(len, each), initial=0)) for each in words]
        for tag, *places in matcher.get_opcodes():
            for at, end, first, stop in zip(pair, ends, places[::2], places[1::2], strict=True):
                if tag != "equal" and first < stop:
                    found.setdefault(at, []).append((end[first], end[stop]))
    return found


def _pairs(rows: tuple[DiffRow, ...]) -> list[tuple[int, int]]:
    """Return which lines stand for each other: the first that goes for the first that comes."""
    signed = [(row.sign, at) for at, row in enumerate(rows) if row.sign != "\\"]
    runs = [(sign, [at for _, at in run]) for sign, run in groupby(signed, key=itemgetter(0))]
    pairs: list[tuple[int, int]] = []
    for (before, gone), (after, came) in pairwise(runs):
        if (before, after) == ("-", "+"):
            pairs += zip(gone, came, strict=False)
    return pairs[:_MOST_PAIRS]


def _code_styles(change: Change) -> dict[int, list[_Span]]:
    """Return the colours of code, by the file's name; each side is read as one text."""
    texts = [row.text for row in change.rows]
    if sum(map(len, texts)) > _MOST_LEXED or max(map(len, texts), default=0) > _MOST_LEXED_LINE:
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
