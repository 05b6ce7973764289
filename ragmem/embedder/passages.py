"""A turn as texts to embed: passages that the embedder reads whole, of which the best counts.

An embedder that reads 256 tokens sees a third of a usual long turn, and none of its
end. What recalls better, and the numbers, stand in docs/embeddings.md.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from ragmem.embedder.base import EmbedderInfo
from ragmem.records import ToolCall, Turn
from ragmem.text import clip_middle, one_line

Count = Callable[[str], int]
"""Tokens of a text, as the embedder reads it."""

MOST_CHARS = 40_000
"""Of a turn; what is left out of the middle of a longer one is found by its words only."""
_MARKS = 2
_MOST_TOOL_LINES = 40
_LINE_CHARS = 120
_HEADER_SHARE = 4
"""A header takes at most one part in so many of a passage."""

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_HEADING = re.compile(r"^#{1,6}\s+\S")
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n")


class _Block(msgspec.Struct, frozen=True):
    """A paragraph or a fenced block, under the heading that it stands below."""

    text: str
    heading: str = ""


def turn_passages(turn: Turn, count: Count, info: EmbedderInfo) -> list[str]:
    """The texts to embed for a turn: what was asked, what was done, what was answered.

    First the turn as a whole, as far as the embedder reads at once (or in several),
    then the short passages: a question is about one of the things that a turn says,
    and in a vector of the whole they drown each other.
    """
    text = clip_middle(turn_text(turn), MOST_CHARS)
    cut = [
        passages(text, count, max_tokens=size, title=turn.user_message)
        for size in (info.max_tokens, info.passage_tokens)
    ]
    return list(dict.fromkeys(passage for found in cut for passage in found))


def turn_text(turn: Turn) -> str:
    """User message, a line for each tool call, and the answer, as one text."""
    said = (turn.user_message, tool_lines(turn.tool_calls), turn.assistant_message)
    return "\n\n".join(part.strip() for part in said if part.strip())


def tool_lines(calls: Sequence[ToolCall]) -> str:
    """A line for each call: its name, argument, size, and the first line of its result."""
    lines = list(dict.fromkeys(_tool_line(call) for call in calls))
    if len(lines) > _MOST_TOOL_LINES:
        half = _MOST_TOOL_LINES // 2
        lines = [*lines[:half], f"({len(lines) - 2 * half} more)", *lines[-half:]]
    return "\n".join(lines)


def passages(text: str, count: Count, *, max_tokens: int, title: str = "") -> list[str]:
    """Cut a text where its paragraphs, fences, lines or sentences end; at least one passage.

    Each but the first carries the title's first line and the heading that it stands
    under. Nothing is repeated from one passage in the next (docs/embeddings.md).
    """
    room = max(8, max_tokens - _MARKS)
    text = text.strip()
    if not text or _fits(text, room, count):
        return [text]
    title = _clipped(one_line(title.strip().split("\n")[0], _LINE_CHARS), room, count)
    found: list[str] = []
    header, body = "", ""
    for block in _blocks(text):
        own = "\n".join(filter(None, (title, _clipped(block.heading, room, count))))
        for piece in _pieces(block.text, room - count(own), count):
            joined = f"{body}\n\n{piece}" if body else piece
            if body and not _fits(_passage(header, joined), room, count):
                found.append(_passage(header, body))
                body, joined = "", piece
            if not body and found:
                header = title if piece.startswith(block.heading) else own
            body = joined
    return [*found, _passage(header, body)]


def _passage(header: str, body: str) -> str:
    return f"{header}\n{body}" if header else body


def _fits(text: str, room: int, count: Count) -> bool:
    # A token is a character at least; a text of fewer characters need not be counted.
    return len(text) <= room or (len(text) <= room * 64 and count(text) <= room)


def _clipped(line: str, room: int, count: Count) -> str:
    """A header that leaves three quarters of the passage to its text."""
    words = line.split()
    while words and count(" ".join(words)) > room // _HEADER_SHARE:
        words.pop()
    return " ".join(words)


def _blocks(text: str) -> Iterator[_Block]:
    """Paragraphs; a fenced block is one, blank lines and all."""
    lines: list[str] = []
    fence = heading = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            if mark and mark[1].startswith(fence):
                fence = ""
            continue
        if mark:
            fence = mark[1]
        elif not line.strip() or _HEADING.match(line):
            if lines:
                yield _Block("\n".join(lines), heading)
                lines = []
            if line.strip():
                heading = line.strip()
        if line.strip():
            lines.append(line)
    if lines:
        yield _Block("\n".join(lines), heading)


def _pieces(text: str, room: int, count: Count) -> Iterator[str]:
    """A block that is too long, by lines or sentences, then words, then characters."""
    if _fits(text, room, count):
        yield text
        return
    for splitter in (_SENTENCE, re.compile(r"\s+")):
        parts = [part for part in splitter.split(text) if part]
        if len(parts) > 1:
            yield from _packed(parts, "\n" if splitter is _SENTENCE else " ", room, count)
            return
    middle = len(text) // 2
    yield from _pieces(text[:middle], room, count)
    yield from _pieces(text[middle:], room, count)


def _packed(parts: Sequence[str], glue: str, room: int, count: Count) -> Iterator[str]:
    """As many parts together as fit; a part's tokens are counted once."""
    taken: list[str] = []
    used = 0
    for part in parts:
        size = count(part) if len(part) <= room * 64 else room + 1
        if taken and used + size > room:
            yield glue.join(taken)
            taken, used = [], 0
        if size > room:
            yield from _pieces(part, room, count)
        else:
            taken.append(part)
            used += size
    if taken:
        yield glue.join(taken)


class _Result(msgspec.Struct, frozen=True):
    text: str = ""


def _tool_line(call: ToolCall) -> str:
    """`read_file src/a.py (12 KB): import os`; what failed says so."""
    try:
        text = msgspec.json.decode(call.result or "{}", type=_Result).text
    except msgspec.MsgspecError:
        text = call.result
    first = next((line for line in text.split("\n") if line.strip()), "")
    size = f"({max(1, round(len(text) / 1000))} KB)" if len(text) >= 1000 else ""
    name = " ".join(filter(None, (call.tool_name, _argument(call.arguments), size)))
    said = call.error or first
    mark = "" if call.success else " failed"
    return f"{name}{mark}: {one_line(said, _LINE_CHARS)}" if said else f"{name}{mark}"


def _argument(arguments: str) -> str:
    """The call's telling argument: its first text, a long path by its last three parts."""
    try:
        values = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return ""
    texts = [v for v in values.values() if isinstance(v, str)] if isinstance(values, dict) else []
    if not texts:
        return ""
    first = one_line(texts[0], _LINE_CHARS)
    parts = PurePosixPath(first).parts if "/" in first and " " not in first else ()
    return "/".join(parts[-3:]) if len(parts) > 3 else first
