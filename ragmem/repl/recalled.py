"""Display of what memory contributes: the row above an answer, the list behind that row, the
picture of the context window, and the summary of a resumed session.
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
    hanging,
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
"""What an item of each section is called, singular and plural."""
_OMITTED_IF_NARROW = re.compile(r"earlier | in code")
"""Parts of these names that a narrow row leaves out."""
_MARK = "◆ recalled "
_INDENT = 2
_QUOTED_CHARS = 2_000


class MemoryLine:
    """The row that counts the items memory added to a request; wider terminals show more of it."""

    def __init__(self, recalled: Sequence[Recalled]) -> None:
        counts = Counter(_kind(each) for each in recalled)
        self._counts = " · ".join(f"{count} {kind[count > 1]}" for kind, count in counts.items())
        tokens = estimate_tokens(sum(each.chars for each in recalled))
        self._tokens = f"    {in_short(tokens)} token{'s' * (tokens != 1)}"

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the longest form that fits on a row."""
        text, room = f"{_MARK}{self._counts}", options.max_width
        if display_width(text) > room:
            text = _OMITTED_IF_NARROW.sub("", text)
        fits = display_width(text + self._tokens) <= room
        yield clipped((text, "cyan"), (self._tokens if fits else "", "dim"))


def memory_line(recalled: Sequence[Recalled]) -> MemoryLine | None:
    """Return the row, or None if memory added only the pinned items, which every request has."""
    known = [each for each in recalled if each.section in _KINDS and each.section != "Pinned"]
    return MemoryLine(known) if known else None


def items_text(recalled: Sequence[Recalled], now: datetime, width: int | None = None) -> str:
    """Return a numbered list of the items, with the details of `about` below each, wrapped."""
    rows = []
    margin = len(str(len(recalled)))
    for number, each in enumerate(recalled, 1):
        rows.append(f"{number:<{margin}}  {one_line(each.label, 400)}")
        rows += hanging(f"{'':{margin}}  ", " · ".join(about(each, now)), width)
    return "\n".join(rows)


def about(item: Recalled, now: datetime) -> list[str]:
    """Return an item's details: kind, source, age, similarity to the prompt, how it was found."""
    when = ago(item.at, now) if item.at else ""
    near = "" if item.similarity is None else f"{item.similarity * 100:.0f}% alike"
    found = f"found by {item.why}" if item.similarity is not None or item.score else item.why
    found = found if item.why and item.section != "Relevant Code" else item.why
    details = (_kind(item)[0], one_line(item.source, 100), when, near, one_line(found, 120))
    return [each for each in details if each]


async def whole(item: Recalled, app: "App", now: datetime) -> list[Line]:
    """Return an item as it is stored, with the turns, chain or recap that it comes from."""
    details = " · ".join(about(item, now))
    head: list[Line] = [(0, one_line(item.label, 400)), (_INDENT, details)]
    match _kind(item)[0]:
        case "memory":
            facts = facts_of(app.memory)
            chain = await chain_of(await facts.find(item.id), facts, await app.store())
            return [*told(chain, now), (0, ""), (0, f"In this request: {details}")]
        case "earlier turn":
            return head + await _turns(app, [item.id])
        case "summary":
            return head + await _summary(app, item.id)
        case "earlier session":
            recap = await app.memory.recap(await app.memory.find_session(item.id))
            lines = [(_INDENT, one_line(each, _QUOTED_CHARS)) for each in recap.lines()]
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
            lines.append((_INDENT, f"Tools: {one_line(calls, 400)}"))
    return lines or [(0, ""), (0, "That turn is no longer stored.")]


def _quote(who: str, text: str) -> list[Line]:
    lines = [line for line in clip_middle(text, _QUOTED_CHARS).split("\n") if line.strip()]
    if not lines:
        return []
    return [(_INDENT, f"{who}: {lines[0]}"), *((2 * _INDENT, line) for line in lines[1:])]


async def _summary(app: "App", summary_id: str) -> list[Line]:
    found = await (await app.store()).get(Summary, [summary_id])
    if not found:
        return [(0, ""), (0, "That summary is no longer stored.")]
    (summary,) = found
    of = (
        f"Summary of {counted(summary.turn_count, 'turn')} of session "
        f"{short_id(summary.session_id)}"
    )
    lines: list[Line] = [(0, ""), *_quote("Summary", summary.text), (_INDENT, of)]
    return lines + (await _turns(app, summary.covers) if summary.level == 1 else [])


def _kind(item: Recalled) -> tuple[str, str]:
    return _KINDS.get(item.section, ("part", "parts"))


# --- the picture of the context window ---------------------------------------

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
"""Names of the sections as shown to the user."""
_HEADINGS = "headings"
_LIMIT_NOTE = "the maximum (memory.context.max_chars), without tools"
_BAR, _WHOLE_BAR = 16, 40
_NARROW_WIDTH = 60
_LEAST_BAR = 8
_COUNTED_IN_CHARS = {"Instructions"}
"""Sections whose omissions are counted in characters, not in items."""


def picture(context: Context, *, width: int, window: int | None, items: bool) -> RenderableType:
    """Return the picture of a request: its total size, its sections, and what was left out.

    `window` is the model's context window, in tokens; with `items`, each section lists its items.
    """
    room = estimate_tokens(context.max_chars)
    total = f"{in_short(context.tokens)} of {in_short(room)} tokens"
    cells = max(_LEAST_BAR, min(_WHOLE_BAR, width - display_width(total) - 3))
    rows = [clipped((f"{total}  ", "bold"), (bar(context.tokens, room, cells), "cyan"))]
    dim = [_LIMIT_NOTE]
    if window:
        share = f"{context.tokens / window * 100:.0f}%"
        dim.append(f"{share} of the model's {in_short(window)} tokens")
    rows += [
        *(clipped((each, "dim")) for each in dim),
        Text(),
        *_parts(context, width, items=items),
    ]
    left_out = ", ".join(
        f"{each.dropped:,}{' characters' * (each.name in _COUNTED_IN_CHARS)} of {_name(each)}"
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
    column = max(map(display_width, [*map(_name, shown), _HEADINGS]))
    cells = _BAR if width >= _NARROW_WIDTH else _LEAST_BAR
    for section in shown:
        filled = bar(section.chars, section.budget, cells) if section.budget else " " * cells
        name = _name(section)
        yield clipped(
            (name + " " * (column - display_width(name)), "bold"),
            (f"  {_tokens(section.chars):>5}  ", ""),
            (filled, "cyan"),
            (f"  {_summary_of_items(section)}".rstrip(), "dim"),
        )
        for label, chars in _items(section) if items else ():
            tokens = f"{'':{column}}  {_tokens(chars):>5}  "
            yield clipped((tokens, "dim"), (one_line(label, 400), ""))
    if frame > 0:
        yield clipped((f"{_HEADINGS:<{column}}  {_tokens(frame):>5}", "dim"))


def _items(section: ContextSection) -> Iterator[tuple[str, int]]:
    """Yield the label and characters of each item, then of the headings: together the section's."""
    for item in section.items:
        yield item.label + (f" ({item.why})" if item.why else ""), item.chars
    around = section.chars - sum(item.chars for item in section.items)
    if section.items and around > 0:
        yield _HEADINGS, around


def _summary_of_items(section: ContextSection) -> str:
    """Return the number of a section's items and the label of the first."""
    if not section.items:
        return ""
    if section.name.startswith("Recent Conversation"):
        return counted(len(section.items), "turn")
    first = one_line(section.items[0].label, 400)
    more = f" and {len(section.items) - 1} more" if len(section.items) > 1 else ""
    return f"{first}{more}" if not more or len(first) < _BAR else f"{len(section.items)}: {first} …"


def _name(section: ContextSection) -> str:
    return _NAMES.get(section.name, visible(section.name.lower()))


def _tokens(chars: int) -> str:
    return in_short(estimate_tokens(chars))


# --- a resumed session -------------------------------------------------------

_TITLE_CHARS = 80
_FACT_CHARS = 400
_PROMPT_LINES, _PROMPT_CHARS = 6, 1_000
_MAX_CALLS = 5
_OUTPUT_LINES = 5
_ENDINGS = {"interrupted": "was stopped", "failed": "ended with an error"}
"""How an incomplete turn ended, by its status."""


def card(
    session: Session, recap: "SessionRecap | None", last: Turn | None, now: datetime
) -> RenderableType:
    """Return a session's name, turns and age, and below them what was done and what is open."""
    named = "" if session.called == DEFAULT_TITLE else one_line(session.called, _TITLE_CHARS)
    turns = counted(session.turn_count, "turn")
    when = f"last used {ago(session.last_activity_at, now)}"
    head = " · ".join(filter(None, (named, turns, when)))
    facts = {"cut off": cut_off(last)}
    if recap:
        # The entry "cut off" describes an incomplete last turn in more detail.
        is_open = [each for each in recap.open if not (last and each == unfinished(last))]
        facts = {
            "decided": "; ".join(recap.decided),
            "changed": ", ".join(recap.changed),
            "failed": "; ".join(map(without_verdict, recap.failed)),
            **facts,
            "open": "; ".join(is_open),
        }
    rows = (one_line(f"{name}: {text}", _FACT_CHARS) for name, text in facts.items() if text)
    return Group(
        Gutter(head, mark=f"{sign('↩', '<')} ", style="bold", words=True),
        *(Gutter(row, mark="    ", words=True) for row in rows),
    )


def without_verdict(failure: str) -> str:
    """Return a failure without the word "failed", for a line that already begins with it."""
    return failure.replace("` failed: ", "`: ", 1)


def cut_off(turn: Turn | None) -> str:
    """Return where an incomplete turn stopped; empty for a complete one."""
    if turn is None or turn.status not in _ENDINGS:
        return ""
    ended = f"turn {turn.turn_index} {_ENDINGS[turn.status]}"
    finished = [one_line(call.tool_name, 60) for call in turn.tool_calls if call.result]
    if (more := len(finished) - _MAX_CALLS) > 0:
        finished = [f"{more} more", *finished[more:]]
    after = f" after {', '.join(finished)}" if finished else ""
    unknown = (f"`{one_line(subject_of(c), 80)}`" for c in turn.tool_calls if c.is_unknown)
    if running := ", ".join(unknown):
        return f"{ended}{after}; running then: {running}"
    if turn.assistant_message:
        return f"{ended} in the middle of its answer{f',{after}' if after else ''}"
    return f"{ended}{after or ' before it had said or done anything'}; no command was running"


def short_turns(turns: Sequence[Turn], *, before: int) -> list[RenderableType]:
    """Return a row with each turn's prompt and one with the beginning of its answer.

    The row above them has the number of earlier turns and the key that shows all.
    """
    more = f"… {counted(before, 'earlier turn')} · " if before else ""
    rows: list[RenderableType] = [clipped((f"  {more}{expand_key()} shows all", "dim"))]
    for turn in turns:
        rows.append(clipped((f"  {prompt()}{one_line(turn.asked, _FACT_CHARS)}", "")))
        rows.append(clipped((f"    {_outcome(turn)}", "dim")))
    return rows


def _outcome(turn: Turn) -> str:
    """Return the beginning of a turn's answer, or the last line of a user command's output."""
    if turn.is_own_command:
        return one_line(result_text(turn.tool_calls[-1]).rstrip().rpartition("\n")[2], _FACT_CHARS)
    answer = one_line(without_markdown(turn.assistant_message[:_QUOTED_CHARS]), _FACT_CHARS)
    ended = _ENDINGS.get(turn.status, "")
    return f"{answer} ({ended})" if answer and ended else answer or ended


def folded_prompt(text: str) -> str:
    """Return the beginning of a long prompt and the number of lines left out."""
    lines = clip_middle(text, _PROMPT_CHARS).split("\n")
    count = text.count("\n") + 1
    if count <= _PROMPT_LINES:
        return "\n".join(lines)
    shown = lines[: _PROMPT_LINES - 1]
    return "\n".join([*shown, f"[{counted(count - len(shown), 'more line')}]"])


def call_rows(turn: Turn) -> list[RenderableType]:
    """Return the last calls of an incomplete turn, each below the text that the agent wrote before
    it; for a user's command, what it printed.
    """
    if turn.is_own_command:
        return [_command_output(call) for call in turn.tool_calls]
    if turn.status not in _ENDINGS:
        return []
    rows: list[RenderableType] = []
    if (more := len(turn.tool_calls) - _MAX_CALLS) > 0:
        rows.append(clipped((f"  … {counted(more, 'earlier call')}", "dim")))
    for call in turn.tool_calls[-_MAX_CALLS:]:
        if text := one_line(without_markdown(call.preamble[:_QUOTED_CHARS]), _FACT_CHARS):
            rows.append(clipped((f"  {text}", "")))
        rows.append(_call_row(call))
    return rows


def _call_row(call: ToolCall) -> Text:
    mark = f"{sign('●', '*')} " if call.success else f"{sign('✗', 'x')} "
    ended = result_text(call) if call.result else (call.error or "not finished").strip("[]")
    first = ended.strip().split("\n", 1)[0]
    return clipped(
        (mark, "green" if call.success and call.result else "red"),
        (one_line(subject_of(call), 120), ""),
        (f"  {one_line(to_person(first), 200)}", "dim"),
    )


def _command_output(call: ToolCall) -> RenderableType:
    lines = result_text(call).strip().split("\n")
    more = len(lines) - _OUTPUT_LINES
    kept = [f"… {counted(more, 'earlier line')}", *lines[more:]] if more > 0 else lines
    text = "\n".join(one_line(line, _FACT_CHARS) for line in kept)
    return Gutter(text, mark="  ", style="dim" if call.success else "red")


def rule(width: int) -> Text:
    """Return the rule that separates earlier output from what follows."""
    return Text(f"  {sign('─', '-') * max(1, width - 4)}", style="dim")
