"""Turns and files as a model is shown them: messages, text, or passages a question names.

Where the store can't answer, the history is pruned: the first message, which holds the goal of a
conversation, and the latest ones stay; of those between them rules and decisions in the person's
own words, and summaries.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from ragmem.messages import (
    Json,
    Message,
    TextPart,
    ToolUse,
    assistant,
    named_arguments,
    prompt as prompt_text,
    tool,
    user,
)
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import ToolCall, Turn, without_pipe
from ragmem.text import (
    NO_DATE,
    Regex,
    clip_middle,
    first_line,
    one_line,
    plain_or_quoted,
    set_in,
)

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
    stored = _stored(call)
    return stored.text if stored else call.result


def _stored(call: ToolCall) -> "_StoredResult | None":
    try:
        return msgspec.json.decode(call.result, type=_StoredResult)
    except (msgspec.DecodeError, RecursionError):
        return None


def argument(call: ToolCall, *names: str) -> str:
    """The first of its arguments of these names that is a text, or the words of a command; empty
    where there is none."""
    given = named_arguments(call.arguments)
    return next(filter(None, (_as_text(given.get(name)) for name in names)), "")


def _as_text(value: Json) -> str:
    """Other agents keep a command as a list of its words."""
    if isinstance(value, str):
        return value
    words = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return words[2] if words[1:2] in (["-c"], ["-lc"]) and len(words) == 3 else shlex.join(words)


_SUBJECTS = ("command", "cmd", "path", "file_path", "pattern", "query", "url", "content")
"""Arguments that a call is about, the first of which it is named by."""


def subject_of(call: ToolCall) -> str:
    """Return a call as it was named when it ran: the tool, and what it was about."""
    about = first_line(argument(call, *_SUBJECTS))
    return (
        about if call.tool_name == RUN_COMMAND and about else f"{call.tool_name} {about}".rstrip()
    )


def has_failed(call: ToolCall) -> bool:
    """Whether a person would say so: a command that ends with 1 has run, and failed.

    Of one without a result nobody knows.
    """
    return bool(call.result) and (not call.success or (exit_code(call) or 0) != 0)


def exit_code(call: ToolCall) -> int | None:
    """How a command has ended, if it has."""
    code = stored.exit_code if (stored := _stored(call)) else None
    return code if isinstance(code, int) else None


class _StoredResult(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    said_then: str = ""
    """What the person said when the call had ended, while the turn went on."""
    exit_code: object = None


def with_said(call: ToolCall, words: str) -> ToolCall:
    """The last call that had ended when the person said something: it keeps the place.

    The words themselves are part of the turn's `user_message`; see `prompts_of`. A call whose
    result is no JSON object stays as it is.
    """
    try:
        result = msgspec.json.decode(call.result, type=dict[str, Json])
    except msgspec.DecodeError:
        return call
    before = result.get("said_then")
    result["said_then"] = "\n\n".join(filter(None, (before, words)))
    return msgspec.structs.replace(call, result=msgspec.json.encode(result).decode())


def prompts_of(turn: Turn) -> tuple[str, dict[str, str]]:
    """What the turn began with; and what the person said while it ran, by the id of the call
    after which they said it. What has no place that fits is part of the beginning.
    """
    prompt = turn.user_message
    later: dict[str, str] = {}
    for call in reversed(turn.tool_calls):
        if call.origin != "model" or '"said_then"' not in call.result:
            continue
        stored = _stored(call)
        words = stored.said_then if stored else ""
        if words and prompt.endswith(f"\n\n{words}"):
            prompt = prompt.removesuffix(f"\n\n{words}")
            later[call.tool_call_id] = words
    return without_pipe(prompt), dict(reversed(later.items()))


class Said(NamedTuple):
    """Words of a conversation."""

    by: Literal["person", "agent", "thought"]
    """Whose they are; `thought`: what the model said to itself."""
    text: str


def blocks_of(turns: Sequence[Turn]) -> Iterator[Turn | Said | ToolCall]:
    """A conversation in the order in which it is read.

    Each turn by itself, for its heading; then its prompt, what the model thought, and its calls,
    each after what the agent said before it; words that the person said meanwhile stand after
    their call, and the answer last.
    """
    for turn in turns:
        yield turn
        prompt, later = prompts_of(turn)
        yield Said("person", prompt)
        if turn.reasoning:
            yield Said("thought", turn.reasoning)
        for call in turn.tool_calls:
            if call.preamble:
                yield Said("agent", call.preamble)
            yield call
            if words := later.get(call.tool_call_id):
                yield Said("person", words)
        if turn.assistant_message:
            yield Said("agent", turn.assistant_message)


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
    prompt, later = prompts_of(turn)
    tag = turn_tag(turn.turn_id)
    # What such words name was read for the model call that followed.
    read_later = {call.iteration + 1 for call in calls if call.tool_call_id in later}
    at_once = [call for call in calls if call.iteration not in read_later]
    out: list[Message] = [user(with_mentions(prompt, at_once, tag) or "(empty)")]
    asked = [call for call in calls if call.origin == "model"]
    for iteration in sorted({call.iteration for call in asked}):
        batch = [call for call in asked if call.iteration == iteration]
        uses = tuple(ToolUse(call_id(c.tool_call_id), c.tool_name, c.arguments) for c in batch)
        out.append(assistant(batch[0].preamble, uses))
        out.extend(
            tool(call_id(c.tool_call_id), result_text(c), is_error=not c.success) for c in batch
        )
        if words := "\n\n".join(later[c.tool_call_id] for c in batch if c.tool_call_id in later):
            read = [call for call in calls if call.iteration == iteration + 1]
            out.append(user(with_mentions(words, read, tag)))
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
    if turns and total > high:
        rendered[-1] = _squeezed(turns[-1], high)
        sizes[-1] = sum(m.char_count for m in rendered[-1])
    messages = tuple(message for messages in rendered[start:] for message in messages)
    return Window(turns=tuple(turns[start:]), messages=messages, sizes=tuple(sizes[start:]))


def _squeezed(turn: Turn, limit: int) -> tuple[Message, ...]:
    clip = limit
    while clip >= 100:
        messages = turn_messages(turn, result_limit=clip)
        if sum(m.char_count for m in messages) <= limit:
            return messages
        clip //= 2
    # Its own words are too long, or its calls too many: keep the exchange alone.
    bare = msgspec.structs.replace(turn, tool_calls=())
    share = max(50, limit // 2)
    return tuple(
        Message(m.role, (TextPart(clip_middle(m.text, share)),))
        for m in turn_messages(bare, result_limit=0)
    )


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
        return f"User: {set_in(turn.user_message)}\nIt printed: {set_in(printed)}\n"
    lines = [f"User: {set_in(turn.user_message)}", f"Assistant: {set_in(answer)}"]
    if turn.tool_calls:
        lines.append("Tools: " + set_in(", ".join(call.tool_name for call in turn.tool_calls)))
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


def answered(turn: Turn, question: str) -> str:
    """What the agent said that a question may be about: its answer, and with it what it said
    between its calls where that has words of the question which the answer lacks.
    """
    answer, said = turn.assistant_message.casefold(), turn.said.casefold()
    lacks = any(word in said and word not in answer for word in question_words(question))
    return turn.said if lacks or not answer.strip() else turn.assistant_message


def question_words(question: str) -> set[str]:
    """What is asked about: its words, casefolded, but those of questions themselves."""
    return _words(question) - _ASKING


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _whole_lines(lines: Sequence[str], max_chars: int) -> str:
    kept, room = 0, max_chars + 1
    while kept < len(lines) and len(lines[kept]) < room:
        room -= len(lines[kept]) + 1
        kept += 1
    return "\n".join(lines[:kept]) if kept or not lines else lines[0][: max(0, max_chars)]


COMPRESSION_MARKER = "... [Intermediate memory compressed] ..."
WHOLE_LIMIT = 10
"""Up to so many messages all are kept."""
TAIL_COUNT = 9
"""Beyond, so many of the latest, after the first and the marker."""
_MOST_CRITICAL = 8
_LINE_CHARS = 200
_SENTENCE = Regex(rf"(?<=[.!?…]){NO_DATE}\s+|\n+")
_CRITICAL = Regex(
    r"\b(?:always|never|must|don['’]t ever|do not|from now on|remember|important|deadline"
    r"|decision|decided?|we(?:['’]ll| will) use|no longer"
    r"|toujours|jamais|il faut|désormais|rappelle|retiens|important|échéance|décision|décidé)\b",
    re.IGNORECASE,
)
_DECISION = Regex(r"\W*(?:decision|décision)\b", re.IGNORECASE)

HistoryMessage = tuple[str, str]
"""(role, content)."""


def messages_of(turns: Sequence[Turn]) -> list[HistoryMessage]:
    """The turns' user and assistant messages in order, their further lines set in; answers that
    never came are left out.
    """
    return [message for turn in turns for message in _said(turn)]


def digests_of(turns: Sequence[Turn], summaries: Mapping[str, str]) -> dict[int, str]:
    """The summaries, given by turn, by the place of its last one in `messages_of` these turns."""
    ends = accumulate(len(_said(turn)) for turn in turns)
    return {
        end - 1: summaries[turn.turn_id]
        for end, turn in zip(ends, turns, strict=True)
        if summaries.get(turn.turn_id)
    }


def format_history(messages: Sequence[HistoryMessage]) -> str:
    """One paragraph a message: `role: content`."""
    return "\n\n".join(f"{role}: {content}" for role, content in messages)


def build_history_context(
    messages: Sequence[HistoryMessage],
    *,
    so_far: str = "",
    digests: Mapping[int, str] = MappingProxyType({}),
    max_chars: int | None = None,
) -> str:
    """The pruned history as text; only for when the enriched context can't be built.

    All of ten or fewer; else the first, the marker with role `system`, and the last nine.
    Where nine of the latest are more than fits `max_chars`, there are fewer. What is
    known of those between follows the marker: `so_far` is of the whole conversation, `digests`
    are by the place of the last message that each tells of.
    """
    tail = TAIL_COUNT if len(messages) > WHOLE_LIMIT else len(messages) - 1
    if max_chars is not None and _size(messages[:1], messages[-tail:] if tail else ()) > max_chars:
        while tail > 1 and _size(messages[:1], messages[-tail:]) > max_chars * 3 // 4:
            tail -= 1
    first_shown = len(messages) - tail
    if first_shown <= 1:
        return _clipped(list(messages), max_chars)
    room = None
    if max_chars is not None:
        used = _size(messages[:1], (("system", COMPRESSION_MARKER),), messages[-tail:])
        room = max(max_chars - used, max_chars // 8)
    known = [text for until, text in digests.items() if 0 < until < first_shown]
    gist = _gist(messages[1:first_shown], so_far, known, room)
    bridge = "\n".join(filter(None, (COMPRESSION_MARKER, gist)))
    return _clipped([messages[0], ("system", bridge), *messages[-tail:]], max_chars)


def _said(turn: Turn) -> list[HistoryMessage]:
    answer = [("assistant", set_in(turn.assistant_message))] if turn.assistant_message else []
    return [("user", set_in(turn.user_message)), *answer]


def _size(*groups: Sequence[HistoryMessage]) -> int:
    return len(format_history([message for group in groups for message in group]))


def _gist(
    hidden: Sequence[HistoryMessage], so_far: str, summaries: Sequence[str], room: int | None
) -> str:
    """What is known of the hidden messages: what was ruled and decided goes first for room."""
    critical = [f"- {line}" for line in _critical(hidden)[-_MOST_CRITICAL:]]
    whole = [f"So far: {set_in(so_far)}"] if so_far else []
    known = [f"- {' '.join(text.split())}" for text in summaries]
    taken: set[str] = set()
    for line in [*reversed(critical), *whole, *reversed(known)]:
        if room is not None:
            room -= len(line) + 1
            if room < 0:
                break
        taken.add(line)
    return "\n".join(dict.fromkeys(line for line in (*whole, *known, *critical) if line in taken))


def _critical(messages: Sequence[HistoryMessage]) -> list[str]:
    found: list[str] = []
    for role, content in messages:
        wanted = _CRITICAL.search if role == "user" else _DECISION.match
        for sentence in _SENTENCE.split(content):
            if wanted(sentence):
                found.append(f"{role}: {one_line(sentence, _LINE_CHARS)}")
    return list(dict.fromkeys(found))


def _clipped(messages: list[HistoryMessage], max_chars: int | None) -> str:
    """Formatted; where that is too long, the longest are clipped in their middle."""
    text = format_history(messages)
    if max_chars is None or len(text) <= max_chars:
        return text
    contents = sorted(len(content) for _, content in messages)
    room = max_chars - (len(text) - sum(contents))
    share = 0
    for done, size in enumerate(contents):
        share = room // (len(contents) - done)
        if size > share:
            break
        room -= size
    clipped = [(role, clip_middle(content, max(0, share))) for role, content in messages]
    return clip_middle(format_history(clipped), max_chars)
