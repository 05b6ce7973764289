"""An answer that is still coming: cut into blocks as they close, and how the open one looks."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ragmem.repl import early
from ragmem.repl.output import LEAST_COLUMN, wrap
from ragmem.repl.terminal import Line
from ragmem.text import INLINE, display_width, visible

if TYPE_CHECKING:
    from pygments.lexer import Lexer

Pieces = list[tuple[str, int, int]]
"""Style, begin and end of what is shown of a text; what lies between them is not."""

_FENCE = re.compile(
    r"(?P<indent>\s*)(?P<list>(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<mark>`{3,}|~{3,})"
)
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_ITEM = re.compile(r"(?:(?P<bullet>[-*+])|(?P<number>\d{1,9})(?P<end>[.)]))[ \t]+\S")
"""How an item begins of a list that is in nothing else."""
_RULE = re.compile(r"(?:[-*][ \t]*){3,}(?:\n|$)")
"""A line across, which looks like an item: `- - -`."""
_INLINE_STYLES = ("code", "strong", "emphasis")
_LINK = re.compile(
    r"`[^`\n]{1,400}`"
    r"|(?<!\\)(?P<image>!?)\[(?P<words>[^\[\]\n]{0,400})\]"
    r"\((?P<address>(?!(?i:javascript|vbscript|file|data):)"
    r"(?:[^()\s]|\([^()\s]{0,80}\)){0,500})"
    r"(?:\s+\"[^\"\n]{0,200}\"?)?(?:\)|$)"
    r"|<(?P<bare>(?:https?://|mailto:)[^\s<>]{1,500})>"
)
"""A link or an image, its end too where that is still to come; code is none, whatever is in it."""
_MOST_PIECES, _MARK_PIECES = 256, 8
_CELL_CHARS = 4_000
"""Of a table's cell that are looked at while it comes: no screen shows more of it."""
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_DIVIDER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\n?")
"""The line below the names of a table's columns."""
_BEGUN_MARK = re.compile(r"\s*(?:`{3,}|~{3,})[^\n`]*|[ |:\t]*\|[ |:\t-]*|[ \t]*[`~]{1,2}")
"""What may be the beginning of a fence or of a divider: not worth showing before it is one."""
_LONGEST_MARK, _LONGEST_DIVIDER = 200, 2_000
_CELL_END = re.compile(r"(?<!\\)\|")
_SEEN = 200
"""Rows of code, and of a table, that are kept to be shown."""
_UNSURE_LINES = 60
"""So many lines of code are painted together at most, where a string or comment is still open."""
_BEHIND_LINES = 400
"""Code that comes faster than it is shown is painted from its last lines on."""
_CODE_INDENT, _GAP = "  ", "  "


class MarkdownStream:
    """Cuts streamed text, in any pieces, into blocks of Markdown as they close.

    Blocks and `tail` together are always exactly what was fed. A block closes
    at a blank line that a line without indentation follows, after a heading,
    around a code fence, and before an item of a list that is in nothing else;
    never inside of a fence. `rows` shows what is open by then.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial: list[str] = []
        self._fence, self._nested, self._gap = "", False, False
        self._parts: list[_Words | _Code | _Table] = []
        """What the lines are, as far as that is known by now."""

    def rows(self, columns: int, room: int) -> list[Line]:
        """Return the last rows of what is open: code and tables as they will look."""
        partial = "".join(self._partial)
        may_be_mark = len(partial) < _LONGEST_MARK and _BEGUN_MARK.fullmatch(partial)
        if may_be_mark and (self._parts or partial.strip()[:1] in "`~"):
            partial = ""
        shown: list[Line] = []
        for part in reversed(self._parts or [_Words()]):
            shown = part.rows(partial, columns, room - len(shown)) + shown
            partial = ""
            if len(shown) >= room:
                break
        return shown

    @property
    def tail(self) -> str:
        """Return what belongs to no closed block yet."""
        return "".join(self._lines) + "".join(self._partial)

    def feed(self, text: str) -> list[str]:
        """Take more text and return the blocks that it closes."""
        blocks: list[str] = []
        *lines, rest = text.split("\n")
        for line in lines:
            self._partial.append(line)
            whole = "".join(self._partial) + "\n"
            self._partial.clear()
            self._take(whole, blocks)
        if rest:
            self._partial.append(rest)
            if len(self._partial) > _MOST_PIECES:
                self._partial = ["".join(self._partial)]
            follows = self._gap and not self._partial[0][0].isspace()
            is_short = len(self._partial) <= _MARK_PIECES
            if follows or (is_short and self._begins_item("".join(self._partial))):
                self._close(blocks)
        return blocks

    def finish(self) -> str:
        """Return the rest, when nothing more will come."""
        rest = self.tail
        self._lines, self._partial, self._parts = [], [], []
        self._fence, self._nested, self._gap = "", False, False
        return rest

    def _take(self, line: str, blocks: list[str]) -> None:
        if self._fence:
            self._lines.append(line)
            if self._ends_fence(line):
                self._fence = ""
                self._parts.append(_Words())
                if not self._nested:
                    self._close(blocks)
            elif isinstance(code := self._parts[-1], _Code):
                code.add(line)
            return
        if not line.strip():
            self._keep(line)
            # Blank lines before a block's first line are part of it.
            self._gap = any(kept.strip() for kept in self._lines)
            return
        if self._gap and not line[0].isspace():
            self._close(blocks)
        self._gap = False
        if self._begins_item(line):
            self._close(blocks)
        if _HEADING.match(line):
            self._close(blocks)
            self._keep(line)
            self._close(blocks)
            return
        if opened := self._fence_of(line):
            self._fence = opened["mark"]
            self._nested = bool(opened["indent"] or opened["list"])
            if not self._nested:
                self._close(blocks)
            self._lines.append(line)
            indent = len((opened["indent"] + opened["list"]).expandtabs(4))
            self._parts.append(_Code(line[opened.end() :], indent))
            return
        self._keep(line)

    def _keep(self, line: str) -> None:
        """Take a line that is in no fence into the open block."""
        self._lines.append(line)
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Table) and line.strip():
            last.add(line)
            return
        if not isinstance(last, _Words):
            last = _Words()
            self._parts.append(last)
        header = last.lines[-1] if last.lines else ""
        may_divide = "|" in header and len(line) < _LONGEST_DIVIDER and _DIVIDER.fullmatch(line)
        if may_divide and len(_cells(header)) == len(_cells(line)):
            last.lines.pop()
            self._parts.append(_Table(header, line))
        else:
            last.lines.append(line)

    def _begins_item(self, line: str) -> bool:
        """Return whether an item begins with this line, which ends all that came before it."""
        found = None if self._fence else _ITEM.match(line)
        # A paragraph is ended by a list's first item alone: "In the year\n1984. That was".
        return found is not None and (
            found["number"] in (None, "1") or _ITEM.match(self._first_line()) is not None
        )

    def _fence_of(self, line: str) -> re.Match[str] | None:
        found = _FENCE.match(line)
        if not found or (found["mark"][0] == "`" and "`" in line[found.end() :]):
            return None
        in_list = found["list"] or (self._lines and _LIST_ITEM.match(self._first_line()))
        # Four spaces outside of a list are code already, not a fence.
        return found if in_list or len(found["indent"].expandtabs(4)) < 4 else None

    def _first_line(self) -> str:
        return next((line for line in self._lines if line.strip()), "")

    def _ends_fence(self, line: str) -> bool:
        mark = line.strip()
        if set(mark) != {self._fence[0]} or len(mark) < len(self._fence):
            return False
        indent = line[: len(line) - len(line.lstrip())].expandtabs(4)
        return self._nested or len(indent) < 4

    def _close(self, blocks: list[str]) -> None:
        if any(line.strip() for line in self._lines):
            blocks.append("".join(self._lines))
            self._lines, self._parts = [], []
        self._gap = False


def goes_on(before: str, block: str) -> bool:
    """Return whether a block is the next item of the list that the one before it was of."""
    before = before.lstrip("\n")
    one, two = _ITEM.match(before), _ITEM.match(block)
    ends_list = not before.rpartition("\n")[0].rpartition("\n")[2].strip()
    if not (one and two) or ends_list or _RULE.match(before) or _RULE.match(block):
        return False
    return (one["bullet"], one["end"]) == (two["bullet"], two["end"])


# --- how it looks -------------------------------------------------------------


class _Words:
    """Lines of an open block that are neither code nor a table."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def rows(self, partial: str, columns: int, room: int) -> list[Line]:
        """Return the last rows: what is longer than all of them is not wrapped."""
        wanted, end = columns * room, [partial]
        for line in reversed(self.lines):
            if wanted <= 0:
                break
            wanted -= len(line)
            end.append(line)
        said = "".join(reversed(end)).strip("\n")[-columns * room :]
        text = with_links_spelled(visible(said)).expandtabs(4)
        return _wrapped(text, _inline(text), columns)[-room:] if text else []


class _Code:
    """The code of an open fence, painted line by line as it comes."""

    def __init__(self, info: str, indent: int) -> None:
        self._lexer = _lexer(info.strip().partition(" ")[0])
        self._indent = indent
        self._unsure: list[str] = []
        """Lines that the next may change the colours of."""
        self._waiting: list[str] = []
        self._painted: deque[tuple[str, Pieces]] = deque(maxlen=_SEEN)

    def add(self, line: str) -> None:
        """Take a whole line."""
        self._waiting.append(self._shown(line))

    def rows(self, partial: str, columns: int, room: int) -> list[Line]:
        """Return the last rows, as they will look when the block is whole."""
        lines = [*self._unsure, *self._waiting[-_BEHIND_LINES:]]
        self._waiting = []
        painted, is_sure = _painted(lines, self._lexer)
        if is_sure or len(lines) > _UNSURE_LINES:
            self._painted.extend(painted)
            lines, painted = [], []
        self._unsure = lines
        if partial:
            painted += _painted([self._shown(partial)], self._lexer)[0]
        return _last(self._rows([*self._painted, *painted], columns), room)

    def _shown(self, line: str) -> str:
        line = visible(line.rstrip("\n")).expandtabs(4)
        return line[min(self._indent, len(line) - len(line.lstrip())) :]

    def _rows(self, lines: Sequence[tuple[str, Pieces]], columns: int) -> Iterator[list[Line]]:
        before = ("", _CODE_INDENT + " " * self._indent)
        room = max(1, columns - 2 * len(_CODE_INDENT) - self._indent)
        for text, pieces in reversed(lines):
            yield [(before, *row) for row in _wrapped(text, pieces, room)]


def _last(groups: Iterable[list[Line]], room: int) -> list[Line]:
    """Return the last rows of groups that come last first, and look at no more than it takes."""
    rows: list[Line] = []
    for group in groups:
        rows = group + rows
        if len(rows) >= room:
            break
    return rows[-room:]


@cache
def _lexer(name: str) -> "Lexer | None":
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(name, stripnl=False)
    except ClassNotFound:
        return None


def _painted(lines: Sequence[str], lexer: "Lexer | None") -> tuple[list[tuple[str, Pieces]], bool]:
    """Return each line with its pieces, and whether what follows can change none of them.

    It can where a string or a comment is open: one of `/*` is painted as if it ended here.
    """
    if lexer is None or not lines:
        return [(line, [("", 0, len(line))]) for line in lines], True
    text = "\n".join(lines) + "\n"
    tokens = list(lexer.get_tokens_unprocessed(text))
    is_open = bool(tokens) and _can_go_on(tokens[-1][1])
    if text.rfind("/*") > text.rfind("*/"):
        closed = list(lexer.get_tokens_unprocessed(f"{text}*/"))
        if closed and _can_go_on(closed[-1][1]):
            tokens, is_open = closed, True
    painted: list[tuple[str, Pieces]] = [(line, []) for line in lines]
    at = begins = 0
    for begin, kind, said in tokens:
        for piece in said.splitlines(keepends=True):
            if at == len(lines):
                break
            end = begin + len(piece.rstrip("\n"))
            painted[at][1].append((_style(kind), begin - begins, end - begins))
            begin += len(piece)
            if piece.endswith("\n"):
                begins, at = begin, at + 1
    return painted, not is_open


@cache
def _can_go_on(kind: Any) -> bool:
    from pygments.token import Comment, String

    return kind in String or kind in Comment.Multiline


@cache
def _style(kind: Any) -> str:
    """Return how a kind of token is painted: as rich paints it when the block is whole."""
    from rich.syntax import ANSI_DARK, ANSISyntaxTheme

    style = ANSISyntaxTheme(ANSI_DARK).get_style_for_token(kind)
    said = [style.color.name] if style.color and style.color.name != "default" else []
    said += [name for name in ("bold", "underline", "dim") if getattr(style, name)]
    return " ".join(said)


class _Table:
    """A table whose names of columns are there, and whose rows are coming."""

    def __init__(self, header: str, divider: str) -> None:
        marks = _cells(divider)
        self._aligned = [
            "^" if m.startswith(":") and m.endswith(":") else ">" if m.endswith(":") else "<"
            for m in marks
        ]
        self._widths = [0] * len(marks)
        self._names = self._measured(header)
        self._rows: deque[list[str]] = deque(maxlen=_SEEN)

    def add(self, line: str) -> None:
        """Take a whole line."""
        self._rows.append(self._measured(line))

    def _measured(self, line: str) -> list[str]:
        shown = (with_links_spelled(visible(cell[:_CELL_CHARS])) for cell in _cells(line))
        cells = [cell.expandtabs(4) for cell in shown][: len(self._widths)]
        cells += [""] * (len(self._widths) - len(cells))
        self._widths = [
            max(width, display_width(_without_marks(cell)[0]))
            for width, cell in zip(self._widths, cells, strict=True)
        ]
        return cells

    def rows(self, _: str, columns: int, room: int) -> list[Line]:
        """Return the names and the last rows; a row that is not whole yet is left out."""
        gaps = len(_GAP) * (len(self._widths) - 1)
        if sum(self._widths) + gaps > columns and columns < LEAST_COLUMN * len(self._widths):
            return _last(map(self._record, reversed(self._rows), [columns] * len(self._rows)), room)
        widths = _fitted(self._widths, columns - gaps)
        head = [
            *self._row(self._names, widths, "tool bold"),
            (("tool", _line(sum(widths) + gaps)),),
        ]
        below = room - len(head)
        if below < 1:
            return head[-room:]
        return head + _last((self._row(row, widths) for row in reversed(self._rows)), below)

    def _row(self, cells: Sequence[str], widths: Sequence[int], style: str = "") -> list[Line]:
        wrapped = [
            _wrapped(*_without_marks(cell), width)
            for cell, width in zip(cells, widths, strict=True)
        ]
        rows: list[Line] = []
        for parts in zip_longest(*wrapped, fillvalue=()):
            row: list[tuple[str, str]] = []
            for part, width, align in zip(parts, widths, self._aligned, strict=True):
                left = width - sum(display_width(text) for _, text in part)
                before = {"<": 0, ">": left, "^": left // 2}[align]
                told = [(f"{style} {own}".strip(), text) for own, text in part]
                row += [("", " " * before), *told, ("", " " * (left - before) + _GAP)]
            rows.append(tuple(row[:-1]))
        return rows

    def _record(self, cells: Sequence[str], columns: int) -> list[Line]:
        """Return a row as the list of its cells, each behind the name of its column."""
        rows: list[Line] = []
        for place, (name, cell) in enumerate(zip(self._names, cells, strict=True)):
            if cell or not place:
                label = f"{_without_marks(name)[0]}: " if name else ""
                text, own = _without_marks(cell)
                pieces: Pieces = [("dim", 0, len(label))]
                for style, begin, end in own:
                    style = style or ("" if place else "strong")
                    pieces.append((style, begin + len(label), end + len(label)))
                indent = "  " if place else ""
                wrapped = _wrapped(label + text, pieces, max(1, columns - len(indent)))
                rows += [(("", indent), *row) for row in wrapped]
        return rows


def _cells(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    cells = _CELL_END.split(line)
    if len(cells) > 1 and not cells[-1].strip():
        cells.pop()
    return [cell.strip().replace("\\|", "|") for cell in cells]


def _without_marks(text: str) -> tuple[str, Pieces]:
    """Return a cell's text as it is shown, and its pieces."""
    shown, pieces = "", list[tuple[str, int, int]]()
    for style, begin, end in _inline(text):
        pieces.append((style, len(shown), len(shown) + end - begin))
        shown += text[begin:end]
    return shown, pieces


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Return widths that fit, of which the widest give way first."""
    fitted = list(widths)
    while sum(fitted) > max(room, len(fitted)):
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _line(width: int) -> str:
    return early.sign("─", "-") * width


def with_links_spelled(text: str) -> str:
    """Return text with each link as it looks in the end: its words and, where it differs, where
    it leads.
    """
    return _LINK.sub(_spelled, text) if "[" in text or "<" in text else text


def _spelled(found: re.Match[str]) -> str:
    words, address = found["words"], found["address"]
    if found["bare"]:
        return found["bare"]
    if words is None:
        return found[0]
    if found["image"]:
        return f"[image: {address}]"
    return words if words in (address, address.removeprefix("mailto:")) else f"{words} ({address})"


def _inline(text: str) -> Pieces:
    """Return what is code, strong or emphasized by now, and what is not."""
    pieces: Pieces = []
    end = 0
    for found in INLINE.finditer(text):
        for group, style in enumerate(_INLINE_STYLES, 1):
            if found[group]:
                pieces += [("", end, found.start()), (style, *found.span(group))]
                end = found.end()
    pieces.append(("", end, len(text)))
    return pieces


def _wrapped(text: str, pieces: Pieces, columns: int) -> list[Line]:
    """Cut text without tabs into rows, each with what is shown of it.

    The rows are those of the text as it came, so that nothing above moves as a mark closes.
    """
    rows: list[Line] = []
    first, at = 0, 0
    for row in wrap(text, columns):
        at = text.index(row, at)  # blanks at the ends of rows are left out
        to = at + len(row)
        while first < len(pieces) and pieces[first][2] < at:
            first += 1
        line: list[tuple[str, str]] = []
        for style, begins, ends in pieces[first:]:
            if begins >= to:
                break
            if shown := text[max(begins, at) : min(ends, to)]:
                line.append((style, shown))
        rows.append(tuple(line))
        at = to
    return rows
