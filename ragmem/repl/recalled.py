"""What memory gives, as it is shown: the row before an answer, the list behind it, the window as a
picture, and a session that one comes back to.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from ragmem.events import Recalled
from ragmem.ids import short_id
from ragmem.memory.context.builder import Context
from ragmem.memory.context.sections import ContextSection
from ragmem.memory.last_time import unfinished
from ragmem.memory.memories import Line, chain_of, facts_of, minute, told
from ragmem.memory.recall import sessions_by_id
from ragmem.memory.turns import result_text, subject_of
from ragmem.records import DEFAULT_TITLE, Session, Summary, ToolCall, Turn
from ragmem.repl.early import expand_key, prompt, sign
from ragmem.repl.output import Gutter, clipped, to_person
from ragmem.text import (
    ago,
    bar,
    clip_middle,
    counted,
    display_width,
    estimate_tokens,
    in_short,
    one_line,
    visible,
    without_markdown,
)

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.last_time import SessionRecap

_KINDS = {
    "Pinned": ("memory", "memories"),
    "Preferences": ("memory", "memories"),
    "Remembered Facts": ("memory", "memories"),
    "Relevant Turns": ("earlier turn", "earlier turns"),
    "Relevant Summaries": ("summary", "summaries"),
    "Level 1 Summaries": ("summary", "summaries"),
    "Relevant Code": ("place in code", "places in code"),
    "Last Time": ("earlier session", "earlier sessions"),
}
"""What an item of each section is called, one and several; in the order in which they count."""
_IN_LONG = re.compile(r"earlier | in code")
"""What a narrow row leaves out of these."""
_MARK = "◆ recalled "
_STEP = 2
_QUOTED_CHARS = 2_000


class MemoryLine:
    """The row that says how much of what memory put into a request; wider terminals see more."""

    def __init__(self, recalled: Sequence[Recalled]) -> None:
        counts = Counter(_kind(each) for each in recalled)
        self._said = " · ".join(f"{count} {kind[count > 1]}" for kind, count in counts.items())
        tokens = estimate_tokens(sum(each.chars for each in recalled))
        self._tokens = f"    {in_short(tokens)} token{'s' * (tokens != 1)}"

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Take the longest form that fits on a row."""
        said, room = f"{_MARK}{self._said}", options.max_width
        if display_width(said) > room:
            said = _IN_LONG.sub("", said)
        fits = display_width(said + self._tokens) <= room
        yield clipped((said, "cyan"), (self._tokens if fits else "", "dim"))


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
    told_of = " · ".join(about(item, now))
    head: list[Line] = [(0, one_line(item.label, 400)), (_STEP, told_of)]
    match _kind(item)[0]:
        case "memory":
            facts = facts_of(app.memory)
            chain = await chain_of(await facts.find(item.id), facts, await app.store())
            return [*told(chain, now), (0, ""), (0, f"In this request: {told_of}")]
        case "earlier turn":
            return head + await _turns(app, [item.id])
        case "summary":
            return head + await _summary(app, item.id)
        case "earlier session":
            recap = await app.memory.recap(await app.memory.find_session(item.id))
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
        lines += _quote("You", turn.asked) + _quote("Answer", turn.said)
        if turn.tool_calls:
            names = Counter(call.tool_name for call in turn.tool_calls)
            calls = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in names.items())
            lines.append((_STEP, f"Tools: {one_line(calls, 400)}"))
    return lines or [(0, ""), (0, "That turn is no longer stored.")]


def _quote(who: str, text: str) -> list[Line]:
    said = [line for line in clip_middle(text, _QUOTED_CHARS).split("\n") if line.strip()]
    if not said:
        return []
    return [(_STEP, f"{who}: {said[0]}"), *((2 * _STEP, line) for line in said[1:])]


async def _summary(app: "App", summary_id: str) -> list[Line]:
    found = await (await app.store()).get(Summary, [summary_id])
    if not found:
        return [(0, ""), (0, "That summary is no longer stored.")]
    (summary,) = found
    of = (
        f"Summary of {counted(summary.turn_count, 'turn')} of session "
        f"{short_id(summary.session_id)}"
    )
    lines: list[Line] = [(0, ""), *_quote("Summary", summary.text), (_STEP, of)]
    return lines + (await _turns(app, summary.covers) if summary.level == 1 else [])


def _kind(item: Recalled) -> tuple[str, str]:
    return _KINDS.get(item.section, ("part", "parts"))


# --- the window as a picture -------------------------------------------------

_NAMES = {
    "System": "how to work",
    "Skills": "skills",
    "Instructions": "project instructions",
    "Pinned": "pinned",
    "User Profile": "about you",
    "Preferences": "your preferences",
    "Remembered Facts": "memories",
    "Last Time": "earlier sessions",
    "Thread Summary": "session so far",
    "Recent Conversation": "conversation",
    "Recent Conversation (Raw)": "conversation",
    "Conversation History": "conversation",
    "Last User Queries": "earlier questions",
    "Relevant Code": "places in code",
    "Relevant Turns": "earlier turns",
    "Relevant Summaries": "summaries",
    "Level 1 Summaries": "newest summaries",
    "Recently Accessed Files": "recent files",
    "Changed Files": "changed files",
    "Mentioned Files": "named files",
    "Prompt": "prompt",
}
"""What people call the sections."""
_FRAME = "headings"
_ROOM = "the maximum (memory.context.max_chars), without tools"
_BAR, _WHOLE_BAR = 16, 40
_NARROW = 60
_LEAST_BAR = 8
_NOT_ITEMS = {"Instructions"}
"""Of which characters are left out, not things."""


def picture(context: Context, *, width: int, window: int | None, items: bool) -> RenderableType:
    """Show the whole request first, then its parts, then what was left out.

    `window` is what the model can take in, in tokens; with `items` each part lists what is in it.
    """
    room = estimate_tokens(context.max_chars)
    said = f"{in_short(context.tokens)} of {in_short(room)} tokens"
    cells = max(_LEAST_BAR, min(_WHOLE_BAR, width - display_width(said) - 3))
    rows = [clipped((f"{said}  ", "bold"), (bar(context.tokens, room, cells), "cyan"))]
    dim = [_ROOM]
    if window:
        share = f"{context.tokens / window * 100:.0f}%"
        dim.append(f"{share} of the model's {in_short(window)} tokens")
    rows += [
        *(clipped((each, "dim")) for each in dim),
        Text(),
        *_parts(context, width, items=items),
    ]
    left_out = ", ".join(
        f"{each.dropped:,}{' characters' * (each.name in _NOT_ITEMS)} of {_name(each)}"
        for each in context.sections
        if each.dropped
    )
    if left_out:
        rows.append(clipped((f"left out: {left_out}", "dim")))
    if context.fallback:
        rows.append(Text("The store was unavailable: pruned history.", style="yellow"))
    if context.without_code:
        rows.append(Text(context.without_code, style="yellow"))
    if not items:
        rows.append(clipped(("/context all lists the items of each section", "dim")))
    return Group(*rows)


def _parts(context: Context, width: int, *, items: bool) -> Iterator[Text]:
    shown = [section for section in context.sections if section.chars]
    frame = context.chars - sum(section.chars for section in shown)
    column = max(map(display_width, [*map(_name, shown), _FRAME]))
    cells = _BAR if width >= _NARROW else _LEAST_BAR
    for section in shown:
        filled = bar(section.chars, section.budget, cells) if section.budget else " " * cells
        name = _name(section)
        yield clipped(
            (name + " " * (column - display_width(name)), "bold"),
            (f"  {_tokens(section.chars):>5}  ", ""),
            (filled, "cyan"),
            (f"  {_told(section)}".rstrip(), "dim"),
        )
        for said, chars in _items(section) if items else ():
            yield clipped((f"{'':{column}}  {_tokens(chars):>5}  ", "dim"), (_line(said), ""))
    if frame > 0:
        yield clipped((f"{_FRAME:<{column}}  {_tokens(frame):>5}", "dim"))


def _items(section: ContextSection) -> Iterator[tuple[str, int]]:
    """Each with its characters, and what stands around them: together they are the part's."""
    for item in section.items:
        yield item.label + (f" ({item.why})" if item.why else ""), item.chars
    around = section.chars - sum(item.chars for item in section.items)
    if section.items and around > 0:
        yield _FRAME, around


def _told(section: ContextSection) -> str:
    """How many things there are, and which comes first."""
    if not section.items:
        return ""
    if section.name.startswith("Recent Conversation"):
        return counted(len(section.items), "turn")
    first = _line(section.items[0].label)
    more = f" and {len(section.items) - 1} more" if len(section.items) > 1 else ""
    return f"{first}{more}" if not more or len(first) < _BAR else f"{len(section.items)}: {first} …"


def _name(section: ContextSection) -> str:
    return _NAMES.get(section.name, visible(section.name.lower()))


def _tokens(chars: int) -> str:
    return in_short(estimate_tokens(chars))


def _line(text: str) -> str:
    return one_line(text, 400)


# --- a session that one comes back to ----------------------------------------

_TITLE_CHARS = 80
_FACT_CHARS = 400
_PROMPT_LINES, _PROMPT_CHARS = 6, 1_000
_CUT_CALLS = 5
_OUTPUT_LINES = 5
_CUT_OFF = {"interrupted": "was stopped", "failed": "ended with an error"}
"""How a turn stopped that did not come to its end, by its status."""


def card(
    session: Session, recap: "SessionRecap | None", last: Turn | None, now: datetime
) -> RenderableType:
    """Return a session's name, turns and age, and below what was done, cut off and left open."""
    named = "" if session.called == DEFAULT_TITLE else one_line(session.called, _TITLE_CHARS)
    turns = counted(session.turn_count, "turn")
    when = f"last used {ago(session.last_activity_at, now)}"
    head = " · ".join(filter(None, (named, turns, when)))
    told = {"cut off": cut_off(last)}
    if recap:
        # That the last turn was cut off is told in more words.
        is_open = [each for each in recap.open if not (last and each == unfinished(last))]
        told = {
            "decided": "; ".join(recap.decided),
            "changed": ", ".join(recap.changed),
            "failed": "; ".join(map(without_verdict, recap.failed)),
            **told,
            "open": "; ".join(is_open),
        }
    facts = (one_line(f"{of}: {said}", _FACT_CHARS) for of, said in told.items() if said)
    return Group(
        Gutter(head, mark=f"{sign('↩', '<')} ", style="bold", words=True),
        *(Gutter(fact, mark="    ", words=True) for fact in facts),
    )


def without_verdict(failure: str) -> str:
    """Return what failed, and why, for a line that says already that it did."""
    return failure.replace("` failed: ", "`: ", 1)


def cut_off(turn: Turn | None) -> str:
    """Return where a turn that did not come to its end stopped; empty for one that did."""
    if turn is None or turn.status not in _CUT_OFF:
        return ""
    ended = f"turn {turn.turn_index} {_CUT_OFF[turn.status]}"
    finished = [one_line(call.tool_name, 60) for call in turn.tool_calls if call.result]
    if (more := len(finished) - _CUT_CALLS) > 0:
        finished = [f"{more} more", *finished[more:]]
    after = f" after {', '.join(finished)}" if finished else ""
    unknown = (f"`{one_line(subject_of(c), 80)}`" for c in turn.tool_calls if c.is_unknown)
    if running := ", ".join(unknown):
        return f"{ended}{after}; running then: {running}"
    if turn.assistant_message:
        return f"{ended} in the middle of its answer{f',{after}' if after else ''}"
    return f"{ended}{after or ' before it had said or done anything'}; no command was running"


def short_turns(turns: Sequence[Turn], *, before: int) -> list[RenderableType]:
    """Return what was asked in each turn and how its answer begins, a row each.

    Above them it is said how many turns came before, and what shows all of them.
    """
    more = f"… {counted(before, 'earlier turn')} · " if before else ""
    rows: list[RenderableType] = [clipped((f"  {more}{expand_key()} shows all", "dim"))]
    for turn in turns:
        rows.append(clipped((f"  {prompt()}{one_line(turn.asked, _FACT_CHARS)}", "")))
        rows.append(clipped((f"    {_came_to(turn)}", "dim")))
    return rows


def _came_to(turn: Turn) -> str:
    """How a turn's answer begins, or the end of what one's own command printed."""
    if turn.is_own_command:
        return one_line(result_text(turn.tool_calls[-1]).rstrip().rpartition("\n")[2], _FACT_CHARS)
    said = one_line(without_markdown(turn.assistant_message[:_QUOTED_CHARS]), _FACT_CHARS)
    stopped = _CUT_OFF.get(turn.status, "")
    return f"{said} ({stopped})" if said and stopped else said or stopped


def folded_prompt(text: str) -> str:
    """Return the beginning of a long prompt, and how much there is more."""
    lines = clip_middle(text, _PROMPT_CHARS).split("\n")
    count = text.count("\n") + 1
    if count <= _PROMPT_LINES:
        return "\n".join(lines)
    shown = lines[: _PROMPT_LINES - 1]
    return "\n".join([*shown, f"[{counted(count - len(shown), 'more line')}]"])


def call_rows(turn: Turn) -> list[RenderableType]:
    """Return the calls of a turn that was cut off, each below what the agent had said before it,
    or what a person's own command printed.
    """
    if turn.is_own_command:
        return [_printed(call) for call in turn.tool_calls]
    if turn.status not in _CUT_OFF:
        return []
    rows: list[RenderableType] = []
    if (more := len(turn.tool_calls) - _CUT_CALLS) > 0:
        rows.append(clipped((f"  … {counted(more, 'earlier call')}", "dim")))
    for call in turn.tool_calls[-_CUT_CALLS:]:
        if said := one_line(without_markdown(call.preamble[:_QUOTED_CHARS]), _FACT_CHARS):
            rows.append(clipped((f"  {said}", "")))
        rows.append(_row(call))
    return rows


def _row(call: ToolCall) -> Text:
    mark = f"{sign('●', '*')} " if call.success else f"{sign('✗', 'x')} "
    ended = result_text(call) if call.result else (call.error or "not finished").strip("[]")
    first = ended.strip().split("\n", 1)[0]
    return clipped(
        (mark, "green" if call.success and call.result else "red"),
        (one_line(subject_of(call), 120), ""),
        (f"  {one_line(to_person(first), 200)}", "dim"),
    )


def _printed(call: ToolCall) -> RenderableType:
    lines = result_text(call).strip().split("\n")
    more = len(lines) - _OUTPUT_LINES
    kept = [f"… {counted(more, 'earlier line')}", *lines[more:]] if more > 0 else lines
    text = "\n".join(one_line(line, _FACT_CHARS) for line in kept)
    return Gutter(text, mark="  ", style="dim" if call.success else "red")


def rule(width: int) -> Text:
    """Return the line between what was and what is."""
    return Text(f"  {sign('─', '-') * max(1, width - 4)}", style="dim")
