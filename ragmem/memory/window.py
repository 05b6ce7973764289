"""Turns and files as a model is shown them: messages, text, or passages a question names."""

import json
import re
from collections.abc import Sequence

import msgspec

from ragmem.messages import Json, Message, TextPart, ToolUse, assistant, tool, user
from ragmem.prompts import prompt as prompt_text
from ragmem.records import ToolCall, Turn
from ragmem.text import clip_middle, plain_or_quoted

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
    sizes: tuple[int, ...] = ()
    """Characters of each turn's messages, tool calls and their results among them."""

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


def argument(call: ToolCall, *names: str) -> str:
    """The first of its arguments of these names that is a text; empty where there is none."""
    try:
        arguments: Json = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    found = [arguments.get(name) for name in names] if isinstance(arguments, dict) else []
    return next((value for value in found if isinstance(value, str) and value), "")


_COMMAND = "run_command"
_SUBJECTS = ("command", "path", "file_path", "pattern", "query", "url", "content")
"""Arguments that a call is about, the first of which it is named by."""


def subject_of(call: ToolCall) -> str:
    """Return a call as it was named when it ran: the tool, and what it was about."""
    about = argument(call, *_SUBJECTS)
    return about if call.tool_name == _COMMAND and about else f"{call.tool_name} {about}".rstrip()


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
        sizes=tuple(sum(message.char_count for message in messages) for messages in kept),
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


_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
"""What read_file puts before each line."""
_WORD = re.compile(r"[^\W_]{3,}")
_ASKING = set(
    _WORD.findall(
        "about and are can did does explain file files for from has have how into its read say "
        "says show tell that the this use used was were what when where which who why with you"
    )
)
"""Words of questions, not of what is asked about."""
_RARE = 3
"""A word on more lines than this does not tell where to look."""


def with_passages(prompt: str, calls: Sequence[ToolCall], tag: str, *, max_chars: int) -> str:
    """Passages of the files that the prompt mentions, as quoted data, then the prompt.

    Tried with a model of 135 million parameters: it repeats line numbers and the `@`
    of a path, answers what stands last, and knows an answer's place by its name.
    """
    blocks = []
    question = prompt
    for call in calls:
        path = argument(call, "path")
        question = question.replace(f'@"{path}"', path).replace(f"@{path}", path)
        text = _NUMBER.sub("", result_text(call)).strip("\n")
        found = passage(text, question.replace(path, ""), max_chars // len(calls))
        blocks.append(f"{plain_or_quoted(path)}:\n<file-{tag}>\n{found}\n</file-{tag}>")
    return "\n\n".join([*blocks, prompt_text("question_small").format(question=question)])


def passage(text: str, question: str, max_chars: int) -> str:
    """At most `max_chars` of a text, in whole lines: its beginning, and what the question names.

    A text that fits stays whole. Otherwise half of the room is for the lines from
    just before the one with most of the question's rare words, where there is one;
    an ellipsis stands for what is left out before them.
    """
    if len(text) <= max_chars:
        return text
    lines = text.split("\n")
    named = _named_line(lines, question)
    if named is None:
        return _whole_lines(lines, max_chars)
    start = max(0, named - 1)
    there = _whole_lines(lines[start:], max_chars // 2)
    beginning = _whole_lines(lines[:start], max_chars - len(there) - len("\n…\n"))
    follows = beginning == "\n".join(lines[:start])
    return "\n".join(([beginning] if beginning else []) + ([] if follows else ["…"]) + [there])


def _named_line(lines: Sequence[str], question: str) -> int | None:
    words = [_words(line) for line in lines]
    counts = {word: sum(word in found for found in words) for word in question_words(question)}
    rare = {word: 1 / count for word, count in counts.items() if 0 < count <= _RARE}
    if not rare:
        return None
    scores = [sum(rare.get(word, 0.0) for word in found) for found in words]
    return scores.index(max(scores))


def question_words(question: str) -> set[str]:
    """What is asked about: its words, casefolded, but those of questions themselves."""
    return _words(question) - _ASKING


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _whole_lines(lines: Sequence[str], max_chars: int) -> str:
    """As many as fit; a first line that is too long is cut."""
    kept, room = 0, max_chars + 1
    while kept < len(lines) and len(lines[kept]) < room:
        room -= len(lines[kept]) + 1
        kept += 1
    return "\n".join(lines[:kept]) if kept or not lines else lines[0][: max(0, max_chars)]
