"""Cuts streamed Markdown into blocks that are ready to be rendered, as they close."""

import re

_FENCE = re.compile(
    r"(?P<indent>\s*)(?P<list>(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<mark>`{3,}|~{3,})"
)
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_MOST_PIECES = 256
_HEADING = re.compile(r"#{1,6}(?:\s|$)")


class MarkdownStream:
    """Takes text in any pieces; gives whole blocks back.

    Blocks and `tail` together are always exactly what was fed. A block closes
    at a blank line that a line without indentation follows, after a heading,
    and around a code fence; never inside of a fence.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial: list[str] = []
        self._fence = ""
        self._nested = False
        self._gap = False

    @property
    def tail(self) -> str:
        """What belongs to no closed block yet."""
        return "".join(self._lines) + "".join(self._partial)

    def feed(self, text: str) -> list[str]:
        """Take more text; the blocks that it closes."""
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
            if self._gap and not self._partial[0][0].isspace():
                self._close(blocks)
        return blocks

    def finish(self) -> str:
        """The rest, when nothing more will come."""
        rest = self.tail
        self._lines, self._partial = [], []
        self._fence, self._nested, self._gap = "", False, False
        return rest

    def _take(self, line: str, blocks: list[str]) -> None:
        if self._fence:
            self._lines.append(line)
            if self._ends_fence(line):
                self._fence = ""
                if not self._nested:
                    self._close(blocks)
            return
        if not line.strip():
            self._lines.append(line)
            # Blank lines before a block's first line are part of it.
            self._gap = any(kept.strip() for kept in self._lines)
            return
        if self._gap and not line[0].isspace():
            self._close(blocks)
        self._gap = False
        if _HEADING.match(line):
            self._close(blocks)
            self._lines.append(line)
            self._close(blocks)
            return
        if opened := self._fence_of(line):
            self._fence = opened["mark"]
            self._nested = bool(opened["indent"] or opened["list"])
            if not self._nested:
                self._close(blocks)
        self._lines.append(line)

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
            self._lines = []
        self._gap = False
