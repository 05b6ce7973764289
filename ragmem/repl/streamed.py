"""Streamed answers: Markdown cut into blocks as they close, and the display of the open block."""

import re
from functools import lru_cache

from ragmem.repl.output import answer, live_rows
from ragmem.repl.terminal import Line

_FENCE = re.compile(
    r"(?P<indent>\s*)(?P<list>(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<mark>`{3,}|~{3,})"
)
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_ITEM = re.compile(r"(?:(?P<bullet>[-*+])|(?P<number>\d{1,9})(?P<end>[.)]))[ \t]+\S")
"""The beginning of an item of a top-level list."""
_RULE = re.compile(r"(?:[-*][ \t]*){3,}(?:\n|$)")
"""A thematic break that looks like a list item: `- - -`."""
_MAX_MARK_PIECES = 8
"""Pieces of a line that are looked at for the beginning of an item."""
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_DIVIDER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\n?")
"""The line below the header row of a table."""
_PARTIAL_MARK = re.compile(r"\s*(?:(?:`{3,}|~{3,})[^\n`]*|[`~]{1,2}|\|[ |:\t-]*)")
"""A possible beginning of a fence or a table's divider, not shown until it is complete."""
_MAX_MARK_CHARS, _MAX_DIVIDER_CHARS = 200, 2_000


class MarkdownStream:
    """Cuts streamed text, fed in pieces of any size, into blocks of Markdown as they close.

    The blocks and `tail` together are always exactly the text that was fed. A block closes at a
    blank line that is followed by a line without indentation, after a heading, before and after a
    code fence, and before an item of a top-level list; never inside a fence. `rows` shows the
    block that is still open.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial: list[str] = []
        self._fence, self._nested, self._after_blank = "", False, False
        self._head = 0
        """Number of lines up to the first row of the code or table that is open; 0 for none."""

    def rows(self, columns: int, room: int) -> list[Line]:
        """Return the last rows of the open block, as they will look once it is complete."""
        partial = "".join(self._partial)
        is_row = self._head and not self._fence
        if is_row or (len(partial) < _MAX_MARK_CHARS and _PARTIAL_MARK.fullmatch(partial)):
            partial = ""
        # Render no more characters than the rows can hold, however long the block is.
        most = columns * room
        end = [partial[-most:]]
        for line in reversed(self._lines[self._head :]):
            if most <= 0:
                break
            most -= columns if self._head else len(line)
            end.append(line[-columns * room :])
        text = "".join([*self._lines[: self._head], *reversed(end)])
        return _rendered(text, columns)[-room:]

    @property
    def tail(self) -> str:
        """Return the text that belongs to no closed block yet."""
        return "".join(self._lines) + "".join(self._partial)

    def feed(self, text: str) -> list[str]:
        """Take more text and return the blocks that it closes."""
        blocks: list[str] = []
        *lines, rest = text.split("\n")
        for line in lines:
            self._take_line("".join([*self._partial, line, "\n"]), blocks)
            self._partial.clear()
        if rest:
            self._partial.append(rest)
            begun = "".join(self._partial[:_MAX_MARK_PIECES])
            if (self._after_blank and not begun[0].isspace()) or self._begins_item(begun):
                self._close(blocks)
        return blocks

    def finish(self) -> str:
        """Return the rest of the text at the end of the stream, and reset the state."""
        rest = self.tail
        self._lines, self._partial, self._head = [], [], 0
        self._fence, self._nested, self._after_blank = "", False, False
        return rest

    def _take_line(self, line: str, blocks: list[str]) -> None:
        if self._fence:
            self._lines.append(line)
            if self._ends_fence(line):
                self._fence, self._head = "", 0
                if not self._nested:
                    self._close(blocks)
            return
        if not line.strip():
            self._lines.append(line)
            # Blank lines before a block's first line are part of it.
            self._after_blank = any(kept.strip() for kept in self._lines)
            return
        if (self._after_blank and not line[0].isspace()) or self._begins_item(line):
            self._close(blocks)
        self._after_blank = False
        if _HEADING.match(line):
            self._close(blocks)
            self._lines.append(line)
            self._close(blocks)
        elif opened := self._match_fence(line):
            self._fence = opened["mark"]
            self._nested = bool(opened["indent"] or opened["list"])
            if not self._nested:
                self._close(blocks)
            self._lines.append(line)
            self._head = len(self._lines)
        else:
            names = self._lines[-1] if self._lines else ""
            divides = "|" in names and len(line) < _MAX_DIVIDER_CHARS and _DIVIDER.fullmatch(line)
            self._lines.append(line)
            if divides and not self._head:
                self._head = len(self._lines)

    def _begins_item(self, line: str) -> bool:
        """Return whether this line begins a list item, and so closes the block before it."""
        found = None if self._fence else _ITEM.match(line)
        # Only item 1 of an ordered list can interrupt a paragraph: "In the year\n1984. That was".
        return found is not None and (
            found["number"] in (None, "1") or _ITEM.match(self._first_line()) is not None
        )

    def _match_fence(self, line: str) -> re.Match[str] | None:
        found = _FENCE.match(line)
        if not found or (found["mark"][0] == "`" and "`" in line[found.end() :]):
            return None
        in_list = found["list"] or (self._lines and _LIST_ITEM.match(self._first_line()))
        # Outside a list, four spaces make an indented code block, not a fence.
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
            self._lines, self._head = [], 0
        self._after_blank = False


@lru_cache(maxsize=1)
def _rendered(markdown: str, columns: int) -> list[Line]:
    return live_rows(answer(markdown), columns)


def goes_on(before: str, block: str) -> bool:
    """Return whether a block is the next item of the list that the previous block belongs to."""
    before = before.lstrip("\n")
    one, two = _ITEM.match(before), _ITEM.match(block)
    ends_list = not before.rpartition("\n")[0].rpartition("\n")[2].strip()
    if not (one and two) or ends_list or _RULE.match(before) or _RULE.match(block):
        return False
    return (one["bullet"], one["end"]) == (two["bullet"], two["end"])
