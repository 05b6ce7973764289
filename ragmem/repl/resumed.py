"""What is told of a session that one comes back to: what was done, cut off and left open."""

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from ragmem.memory.window import argument, result_text
from ragmem.records import DEFAULT_TITLE, Session, ToolCall, Turn
from ragmem.repl.early import sign
from ragmem.repl.output import clipped, gutter
from ragmem.text import ago, clip_middle, counted, one_line

if TYPE_CHECKING:
    from ragmem.memory.context import SessionRecap

_TITLE_CHARS = 80
_FACT_CHARS = 400
_PROMPT_LINES, _PROMPT_CHARS = 6, 1_000
_CUT_CALLS = 5
_OUTPUT_LINES = 5
_COMMAND = "run_command"
_ARGUMENTS = ("command", "path", "pattern", "query", "content")
_CUT_OFF = ("interrupted", "failed")


def card(
    session: Session, recap: "SessionRecap | None", last: Turn | None, now: datetime
) -> RenderableType:
    """Return a session's name, turns and age, and below what was done, cut off and left open."""
    named = "" if session.title == DEFAULT_TITLE else one_line(session.title, _TITLE_CHARS)
    turns = counted(session.turn_count, "turn")
    when = f"last used {ago(session.last_activity_at, now)}"
    head = " · ".join(filter(None, (named, turns, when)))
    told = (one_line(fact, _FACT_CHARS) for fact in facts(recap, last))
    return Group(
        gutter(head, mark=f"{sign('↩', '<')} ", style="bold", words=True),
        *(gutter(fact, mark="    ", words=True) for fact in told),
    )


def facts(recap: "SessionRecap | None", last: Turn | None) -> list[str]:
    """Return a line for what was done, one for what was cut off, one for what is open."""
    told = []
    if recap:
        done = [f"{', '.join(recap.changed)} edited"] if recap.changed else []
        done += [f"failed: {each}" for each in recap.failed]
        told += [f"done: {'; '.join(done)}"] if done else []
    if cut := cut_off(last):
        told.append(f"cut off: {cut}")
    if recap:
        # That the last turn was cut off is told in more words.
        is_open = [each for each in recap.open if not (cut and each.startswith(_CUT_OFF))]
        told += [f"open: {'; '.join(is_open)}"] if is_open else []
    return told


def cut_off(turn: Turn | None) -> str:
    """Return where a turn that did not come to its end stopped; empty for one that did."""
    if turn is None or turn.status not in _CUT_OFF:
        return ""
    ended = "failed" if turn.status == "failed" else "stopped"
    finished = [call for call in turn.tool_calls if call.result]
    unknown = [call for call in turn.tool_calls if not call.result]
    names = [one_line(call.tool_name, 60) for call in finished[-_CUT_CALLS:]]
    earlier = len(finished) - len(names)
    names = [f"{earlier} more", *names] if earlier > 0 else names
    after = f" after {', '.join(names)}" if names else ""
    if unknown:
        running = ", ".join(f"`{one_line(subject_of(call), 80)}`" for call in unknown)
        return f"turn {turn.turn_index} {ended}{after}; running then: {running}"
    after = after or " before it did anything"
    return f"turn {turn.turn_index} {ended}{after}; no command was running"


def folded_prompt(text: str) -> str:
    """Return the beginning of a long prompt, and how much there is more."""
    lines = clip_middle(text, _PROMPT_CHARS).split("\n")
    count = text.count("\n") + 1
    if count <= _PROMPT_LINES:
        return "\n".join(lines)
    shown = lines[: _PROMPT_LINES - 1]
    return "\n".join([*shown, f"[{counted(count - len(shown), 'more line')}]"])


def call_rows(turn: Turn) -> list[RenderableType]:
    """Return the calls of a turn that was cut off, or what a person's own command printed."""
    if turn.is_own_command:
        return [_printed(call) for call in turn.tool_calls]
    if turn.status not in _CUT_OFF:
        return []
    calls = turn.tool_calls[-_CUT_CALLS:]
    more = len(turn.tool_calls) - len(calls)
    rows: list[RenderableType] = [clipped((f"  … {counted(more, 'earlier call')}", "dim"))]
    return [*(rows if more > 0 else []), *(_row(call) for call in calls)]


def _row(call: ToolCall) -> Text:
    mark = f"{sign('●', '*')} " if call.success else f"{sign('✗', 'x')} "
    said = result_text(call).strip().split("\n", 1)[0] if call.result else "not finished"
    return clipped(
        (mark, "green" if call.success and call.result else "red"),
        (one_line(subject_of(call), 120), ""),
        (f"  {one_line(said, 200)}", "dim"),
    )


def _printed(call: ToolCall) -> RenderableType:
    lines = result_text(call).strip().split("\n")
    more = len(lines) - _OUTPUT_LINES
    kept = [f"… {counted(more, 'earlier line')}", *lines[more:]] if more > 0 else lines
    text = "\n".join(one_line(line, _FACT_CHARS) for line in kept)
    return gutter(text, mark="  ", style="dim" if call.success else "red")


def subject_of(call: ToolCall) -> str:
    """Return a call as it was named when it ran: the tool, and what it was about."""
    about = argument(call, *_ARGUMENTS)
    return about if call.tool_name == _COMMAND and about else f"{call.tool_name} {about}".rstrip()


def rule(width: int) -> Text:
    """Return the line between what was and what is."""
    return Text(f"  {sign('─', '-') * max(1, width - 4)}", style="dim")
