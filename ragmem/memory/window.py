"""The recent window: a session's latest turns, as native messages or as text."""

from collections.abc import Sequence

import msgspec

from ragmem.messages import Message, TextPart, ToolUse, assistant, tool, user
from ragmem.records import ToolCall, Turn
from ragmem.text import clip_middle

UNKNOWN_EFFECTS = "[interrupted: no result was recorded, and its effects are unknown]"
_LOOKBACK = 50
"""Windows are planned from a turn index that is a multiple of this (see `window_limit`)."""
_MARKS = {
    "interrupted": "[This turn was interrupted before it was finished.]",
    "failed": "[This turn failed before it was finished.]",
    "running": "[This turn is still running in another process.]",
}

_OWN_COMMAND = "(The person ran this by themself; nothing was asked.)"
_OWN_OUTPUT_CHARS = 600
"""Of what it printed, for a model that gets the conversation as text."""


class Window(msgspec.Struct, frozen=True):
    """The turns that are replayed, and what they cost."""

    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]

    @property
    def char_count(self) -> int:
        """Characters of all its messages."""
        return sum(message.char_count for message in self.messages)


NO_WINDOW = Window((), ())


def call_id(tool_call_id: str) -> str:
    """The id by which providers know a call: nine letters and digits, as Mistral demands."""
    return tool_call_id.replace("-", "")[-9:]


def result_text(call: ToolCall) -> str:
    """What the model was shown as the call's answer."""
    if not call.result:
        return UNKNOWN_EFFECTS
    try:
        return msgspec.json.decode(call.result, type=_StoredResult).text
    except msgspec.DecodeError:
        return call.result


class _StoredResult(msgspec.Struct, frozen=True):
    text: str


def with_mentions(prompt: str, calls: Sequence[ToolCall], tag: str) -> str:
    """The person's words, then what they show with them (files, what a command of their own
    printed) as quoted data.
    """
    blocks = [prompt]
    for call in calls:
        if call.origin != "model":
            what = f"{'file' if call.origin == 'mention' else 'output'}-{tag}"
            blocks.append(f"<{what}>\n{result_text(call)}\n</{what}>")
    return "\n\n".join(blocks)


def turn_tag(turn_id: str) -> str:
    """The random end of the turn's id: a delimiter that no file could know beforehand."""
    return turn_id.replace("-", "")[-10:]


def turn_messages(turn: Turn, *, result_limit: int) -> tuple[Message, ...]:
    """A turn as the provider saw it, results clipped in their middle.

    Valid for every provider whatever happened: each call has its answer, no
    message is empty, and the turn ends with the assistant's words.
    """
    calls = [clip_result(call, result_limit) for call in turn.tool_calls]
    prompt = with_mentions(turn.user_message, calls, turn_tag(turn.turn_id))
    out: list[Message] = [user(prompt or "(empty)")]
    asked = [call for call in calls if call.origin == "model"]
    for iteration in sorted({call.iteration for call in asked}):
        batch = [call for call in asked if call.iteration == iteration]
        uses = tuple(ToolUse(call_id(c.tool_call_id), c.tool_name, c.arguments) for c in batch)
        out.append(assistant(batch[0].preamble, uses))
        out.extend(
            tool(call_id(c.tool_call_id), result_text(c), is_error=not c.success) for c in batch
        )
    said = [turn.assistant_message, _MARKS.get(turn.status, "")]
    nothing = _OWN_COMMAND if turn.is_own_command else "(no answer)"
    out.append(assistant("\n\n".join(filter(None, said)) or nothing))
    return tuple(out)


def clip_result(call: ToolCall, limit: int) -> ToolCall:
    """The call with its answer clipped in the middle."""
    if len(call.result) <= limit:
        return call
    text = clip_middle(result_text(call), limit)
    return msgspec.structs.replace(call, result=msgspec.json.encode(_StoredResult(text)).decode())


def window_limit(turn_count: int) -> int:
    """How many of the newest turns to read for planning the window.

    Planning starts at a fixed turn for 50 turns in a row, so that every process
    comes to the same window while reading between 50 and 100 turns.
    """
    return turn_count - max(0, turn_count // _LOOKBACK - 1) * _LOOKBACK


def recent_window(turns: Sequence[Turn], *, high: int, low: int, result_limit: int) -> Window:
    """The newest whole turns within `high` characters.

    When the sum passes `high`, the oldest are dropped down to `low`; until it
    passes again the start stays where it is, so that the prefix of successive
    requests is the same to the byte and providers' caches hit. The newest turn
    is always there, clipped further if it is too long alone.
    """
    rendered = [turn_messages(turn, result_limit=result_limit) for turn in turns]
    sizes = [sum(m.char_count for m in messages) for messages in rendered]
    start, total = 0, 0
    for i, size in enumerate(sizes):
        total += size
        if total > high:
            while total > low and start < i:
                total -= sizes[start]
                start += 1
    kept = rendered[start:]
    if kept and total > high:
        kept[-1] = _squeezed(turns[-1], high)
    return Window(
        turns=tuple(turns[start:]),
        messages=tuple(message for messages in kept for message in messages),
    )


def _squeezed(turn: Turn, limit: int) -> tuple[Message, ...]:
    clip = limit
    while True:
        messages = turn_messages(turn, result_limit=clip)
        over = sum(m.char_count for m in messages) > limit
        if not over or clip < 200:
            break
        clip //= 2
    if over:
        # Its own words are too long, or its calls too many: keep the exchange alone.
        bare = msgspec.structs.replace(turn, tool_calls=())
        share = max(50, limit // 2)
        messages = tuple(
            Message(m.role, (TextPart(clip_middle(m.text, share)),))
            for m in turn_messages(bare, result_limit=clip)
        )
    return messages


def recent_text(turns: Sequence[Turn], *, limit: int, max_chars: int) -> tuple[str, int]:
    """`## Recent Conversation (Raw)` and how many turns it shows.

    At most `limit` turns and `max_chars` characters; the newest is always there,
    clipped in its middle if need be. A turn without tools has no `Tools:`
    line.
    """
    heading = "## Recent Conversation (Raw)\n"
    entries: list[str] = []
    room = max_chars - len(heading)
    for turn in list(turns)[-limit:][::-1]:
        entry = _raw_entry(turn)
        if len(entry) + 1 > room:
            if entries:
                break
            entry = clip_middle(entry, max(room - 1, 80))
        entries.insert(0, entry)
        room -= len(entry) + 1
    return (heading + "\n".join(entries) if entries else ""), len(entries)


def _raw_entry(turn: Turn) -> str:
    answer = "\n".join(filter(None, (turn.assistant_message, _MARKS.get(turn.status, ""))))
    if turn.is_own_command:
        printed = clip_middle("\n".join(map(result_text, turn.tool_calls)), _OWN_OUTPUT_CHARS)
        return f"User: {turn.user_message}\nIt printed: {printed}\n"
    lines = [f"User: {turn.user_message}", f"Assistant: {answer}"]
    if turn.tool_calls:
        lines.append("Tools: " + ", ".join(call.tool_name for call in turn.tool_calls))
    return "\n".join(lines) + "\n"
