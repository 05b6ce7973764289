"""Code that bears on the prompt, as a section: lines as they are on the disk."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from ragmem.memory.context import CodePassage, Part
from ragmem.memory.context.sections import Entries
from ragmem.memory.window import Window, result_text
from ragmem.messages import TextPart, ToolAnswer
from ragmem.records import ToolCall
from ragmem.text import line_range, one_line, visible

CODE_HEADING = "## Relevant Code"
MOST_PASSAGES = 8
MOST_BRIEF = 2
"""For a model without tool calls: it takes each word for a part of the question."""
OUTSIDE = "outside the working directory: reading it asks"
_LEAST_CHARS = 160
"""A passage that would get less room than this says nothing."""
_FIRST_SHARE = 0.6
"""The best may take so much of the room, each other one a third of it."""
_LINE_CHARS = 300


class SeenRows(msgspec.Struct, frozen=True):
    """Numbered lines of files that the request shows already: none is shown twice."""

    paths: frozenset[str] = frozenset()
    """As tools name them."""
    rows: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    """Files of which passages are chosen elsewhere."""

    def holds(self, path: str, row: str) -> bool:
        """Whether a read of the file shows exactly this line under this number."""
        return path in self.paths and row in self.rows


def seen_rows(window: Window, mentions: Iterable[ToolCall], *, brief: bool = False) -> SeenRows:
    """What reads in the window and the files named in the prompt show."""
    mentions = list(mentions)
    read = [call for turn in window.turns for call in turn.tool_calls]
    texts = [
        part.text
        for message in window.messages
        for part in message.parts
        if isinstance(part, TextPart | ToolAnswer)
    ]
    texts += [result_text(call) for call in mentions]
    named = frozenset(filter(None, map(_path_of, mentions)))
    return SeenRows(
        paths=named.union(filter(None, map(_path_of, read))),
        rows=frozenset(row for text in texts for row in text.split("\n") if "\t" in row),
        whole=named if brief else frozenset(),
    )


def code_part(
    passages: Sequence[CodePassage],
    seen: SeenRows,
    *,
    budget: int,
    show: Callable[[str], str],
    brief: bool = False,
) -> Part:
    """The best of them with their lines, none shown twice; long ones clipped in the middle."""
    shown = Entries(budget, CODE_HEADING)
    told: dict[str, set[int]] = {}
    most, dropped = MOST_BRIEF if brief else MOST_PASSAGES, 0
    for passage in passages:
        path = show(passage.path)
        lines = told.setdefault(passage.path, set())
        rows = [row for row in _rows(passage) if row.number not in lines]
        rows = [row for row in rows if not seen.holds(path, row.text)]
        if path in seen.whole or not any(row.text.split("\t", 1)[1].strip() for row in rows):
            continue
        room = shown.room
        share = max(room // 3, _LEAST_CHARS) if shown.texts else int(room * _FIRST_SHARE)
        entry, kept = _entry(passage, path, rows, min(room, share) - 2, brief=brief)
        fits = kept and len(shown.texts) < most
        if fits and shown.add(
            entry,
            _label(passage, path),
            joint=2,
            score=passage.score,
            why=passage.why,
            record_id=passage.scope_id,
        ):
            lines.update(kept)
        else:
            dropped += 1
    text = f"{CODE_HEADING}\n" + "\n\n".join(shown.texts)
    return shown.part("Relevant Code", text, dropped=dropped)


class _Row(NamedTuple):
    number: int
    text: str


def _rows(passage: CodePassage) -> list[_Row]:
    """Its lines in the form in which read_file shows them."""
    lines = passage.text.split("\n")
    return [
        _Row(number, f"{number:>6}\t{visible(line.removesuffix(chr(13)))}")
        for number, line in enumerate(lines, passage.start_line)
    ]


def _entry(
    passage: CodePassage, path: str, rows: Sequence[_Row], limit: int, *, brief: bool
) -> tuple[str, list[int]]:
    """Heading and lines within `limit` characters, and the numbers of those; none: no room."""
    about = f"[{_label(passage, path)}]"
    if not brief:
        about += f" {passage.why}" if passage.why else ""
        about += f" ({OUTSIDE})" if is_outside(path) else ""
    kept = _clipped(rows, limit - len(about) - 1)
    if not kept:
        return "", []
    out, before = [about], passage.start_line - 1
    for row in kept:
        if row.number != before + 1:
            out.append("     …")
        out.append(_short(row.text))
        before = row.number
    if before < passage.end_line:
        out.append("     …")
    return "\n".join(out), [row.number for row in kept]


def _clipped(rows: Sequence[_Row], limit: int) -> list[_Row]:
    """Whole lines: twice as much from the start as from the end."""
    sizes = [len(_short(row.text)) + 1 for row in rows]
    if sum(sizes) + 14 <= limit:
        return list(rows)
    if limit < _LEAST_CHARS // 2:
        return []
    room, head, tail = limit - 21, 0, 0
    while head + tail < len(rows):
        from_start = head <= 2 * tail
        size = sizes[head] if from_start else sizes[len(rows) - 1 - tail]
        if size > room:
            break
        room -= size
        head, tail = (head + 1, tail) if from_start else (head, tail + 1)
    return [*rows[:head], *rows[len(rows) - tail :]] if head else []


def _short(row: str) -> str:
    return row if len(row) <= _LINE_CHARS else row[: _LINE_CHARS - 1] + "…"


def _label(passage: CodePassage, path: str) -> str:
    lines = line_range(passage.start_line, passage.end_line)
    return one_line(f"{path}:{lines} {passage.name}".rstrip(), 200)


def is_outside(path: str) -> bool:
    """Whether a path, as the agent writes it, lies outside of its working directory."""
    return path.startswith("/")


class _Told(msgspec.Struct, frozen=True):
    path: str = ""


def _path_of(call: ToolCall) -> str:
    """Which file a finished read_file call showed; empty for any other call."""
    if call.tool_name != "read_file" or not call.success:
        return ""
    try:
        return msgspec.json.decode(call.result, type=_Told).path
    except msgspec.DecodeError:
        return ""
