"""What memory put into a request: the row before an answer, the list behind it, one thing whole."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ragmem.events import Recalled
from ragmem.ids import short_id
from ragmem.memory.hits import sessions_by_id
from ragmem.memory.memories import Line, chain_of, facts_of, minute, told
from ragmem.records import Summary, Turn
from ragmem.text import (
    ago,
    clip_middle,
    counted,
    display_width,
    estimate_tokens,
    in_short,
    one_line,
)

if TYPE_CHECKING:
    from ragmem.app import App

_KINDS = {
    "Pinned": ("memory", "memories"),
    "Preferences": ("memory", "memories"),
    "Remembered Facts": ("memory", "memories"),
    "Relevant Turns": ("turn", "turns"),
    "Relevant Summaries": ("summary", "summaries"),
    "Level 1 Summaries": ("summary", "summaries"),
    "Relevant Code": ("place in code", "places in code"),
    "Last Time": ("last session", "last sessions"),
}
"""What an item of each section is called, one and several; in the order in which they count."""
_SHORT = {"place in code": "place", "places in code": "places"}
_MARK = "◆ "
_GAP = "    "
_STEP = 2
_QUOTED_CHARS = 2_000


class MemoryLine:
    """The row that says how much of what memory put into a request; wider terminals see more."""

    def __init__(self, recalled: Sequence[Recalled]) -> None:
        counts = Counter(_kind(each) for each in recalled)
        self._parts = [(count, kind[count > 1]) for kind, count in counts.items()]
        tokens = estimate_tokens(sum(each.chars for each in recalled))
        self._tokens = f"{in_short(tokens)} token{'s' * (tokens != 1)}"

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Take the longest form that fits on a row."""
        said = [f"{count} {name}" for count, name in self._parts]
        brief = [f"{count} {_SHORT.get(name, name)}" for count, name in self._parts]
        row = Text(f"{_MARK}{' · '.join(said)}", "cyan", no_wrap=True, overflow="ellipsis")
        whole = f"{row.plain}{_GAP}{self._tokens}"
        if display_width(whole) <= options.max_width:
            row.append(f"{_GAP}{self._tokens}", "dim")
        elif display_width(row.plain) > options.max_width:
            row.plain = f"{_MARK}{' · '.join(brief)}"
        yield row


def memory_line(recalled: Sequence[Recalled]) -> MemoryLine | None:
    """Return the row; None where memory put in no more than what is pinned, as in each request."""
    known = [each for each in recalled if each.section in _KINDS and each.section != "Pinned"]
    return MemoryLine(known) if known else None


def items_text(recalled: Sequence[Recalled], now: datetime) -> str:
    """Number the items; below each who said it, when, and how near it is to the prompt."""
    rows = []
    margin = len(str(len(recalled)))
    for number, each in enumerate(recalled, 1):
        rows.append(f"{number:<{margin}}  {one_line(each.label, 400)}")
        rows.append(f"{'':{margin}}  {' · '.join(about(each, now))}")
    return "\n".join(rows)


def about(item: Recalled, now: datetime) -> list[str]:
    """Say what it is, whose word it is, how old it is, and why it is there."""
    when = ago(item.at, now) if item.at else ""
    near = "" if item.similarity is None else f"{item.similarity * 100:.0f}% alike"
    found = f"found by {item.why}" if item.similarity is not None or item.score else item.why
    found = found if item.why and item.section != "Relevant Code" else item.why
    said = (_kind(item)[0], one_line(item.source, 100), when, near, one_line(found, 120))
    return [each for each in said if each]


async def whole(item: Recalled, app: "App", now: datetime) -> list[Line]:
    """Return an item as it is kept, down to the turn that it comes from."""
    head: list[Line] = [(0, one_line(item.label, 400)), (_STEP, " · ".join(about(item, now)))]
    match _kind(item)[0]:
        case "memory":
            facts = facts_of(app.memory)
            chain = await chain_of(await facts.find(item.id), facts, await app.store())
            return [*told(chain, now), (0, ""), (0, f"In this request: {head[1][1]}")]
        case "turn":
            return [*head, *await _turns(app, [item.id])]
        case "summary":
            return [*head, *await _summary(app, item.id)]
        case "last session":
            session = await app.memory.find_session(item.id)
            recap = await app.memory.recap(session)
            lines = [(_STEP, one_line(each, _QUOTED_CHARS)) for each in recap.lines()]
            return [*head, (0, ""), (0, one_line(recap.head(now), 400)), *lines]
    return head


async def _turns(app: "App", turn_ids: Sequence[str]) -> list[Line]:
    store = await app.store()
    turns = await store.get(Turn, turn_ids)
    sessions = await sessions_by_id(store, dict.fromkeys(turn.session_id for turn in turns))
    lines: list[Line] = []
    for turn in turns:
        session = sessions.get(turn.session_id)
        of = f" “{one_line(session.called, 60)}”" if session else ""
        where = f"turn {turn.turn_index} of session {short_id(turn.session_id)}{of}"
        lines += [(0, ""), (0, f"{minute(turn.started_at)} · {where}")]
        asked, answered = turn.user_message, turn.assistant_message
        lines += _quote("You", asked) + _quote("Answer", answered)
        if turn.tool_calls:
            names = Counter(call.tool_name for call in turn.tool_calls)
            calls = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in names.items())
            lines.append((_STEP, f"Tools: {one_line(calls, 400)}"))
    return lines or [(0, ""), (0, "That turn is not kept any more.")]


def _quote(who: str, text: str) -> list[Line]:
    said = [line for line in clip_middle(text, _QUOTED_CHARS).split("\n") if line.strip()]
    if not said:
        return []
    return [(_STEP, f"{who}: {said[0]}"), *((2 * _STEP, line) for line in said[1:])]


async def _summary(app: "App", summary_id: str) -> list[Line]:
    found = await (await app.store()).get(Summary, [summary_id])
    if not found:
        return [(0, ""), (0, "That summary is not kept any more.")]
    (summary,) = found
    of = f"Sums up {counted(summary.turn_count, 'turn')} of session {short_id(summary.session_id)}"
    lines: list[Line] = [(0, ""), *_quote("Summary", summary.text), (_STEP, of)]
    return lines + (await _turns(app, summary.covers) if summary.level == 1 else [])


def _kind(item: Recalled) -> tuple[str, str]:
    return _KINDS.get(item.section, ("part", "parts"))
