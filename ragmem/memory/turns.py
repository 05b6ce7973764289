"""Reading recorded turns: the files their calls touched, and their form in a request.

A model gets turns as messages within a window, as text, or as the passages that a question names.
"""

import json
import os
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ragmem.messages import (
    Json,
    Message,
    TextPart,
    ToolUse,
    assistant,
    fields_in,
    prompt as prompt_text,
    tool,
    user,
)
from ragmem.own_tools import OWN_TOOLS, RUN_COMMAND
from ragmem.records import FileAccess, Session, ToolCall, Turn, as_shown, without_marks
from ragmem.text import Regex, clip_middle, fair_share, first_line, plain_or_quoted, set_in

UNKNOWN_EFFECTS = "[interrupted: no result was recorded, and its effects are unknown]"
ONLY_ASKED = "[interrupted before the user had answered: nothing was done]"
"""The error of a call without a result while the user is being asked about it."""
_LOOKBACK = 50
"""Windows are planned from a turn index that is a multiple of this (see `window_limit`)."""
_MARKS = {
    "interrupted": "[This turn was interrupted before it was finished.]",
    "failed": "[This turn failed before it was finished.]",
    "running": "[This turn is still running in another process.]",
}

_OWN_COMMAND = "(The user ran this themselves; nothing was asked.)"
_OWN_OUTPUT_CHARS = 600
"""Limit of a user's own command's output, for a model that gets the conversation as text."""


class Window(msgspec.Struct, frozen=True):
    """The turns that a request replays, as messages, with their sizes."""

    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    sizes: tuple[int, ...] = ()
    """Characters of each turn's messages, including tool calls and results."""

    @property
    def char_count(self) -> int:
        """Count the characters of all its messages."""
        return sum(message.char_count for message in self.messages)


NO_WINDOW = Window((), ())


def call_id(tool_call_id: str) -> str:
    """Return a call's id for providers: nine letters and digits, as Mistral requires."""
    return tool_call_id.replace("-", "")[-9:]


def result_text(call: ToolCall) -> str:
    """Return a call's result as the model was shown it."""
    if not call.result:
        return call.error or UNKNOWN_EFFECTS
    stored = _stored(call)
    return stored.text if stored else call.result


def _stored(call: ToolCall) -> "_StoredResult | None":
    try:
        return msgspec.json.decode(call.result, type=_StoredResult)
    except (msgspec.DecodeError, RecursionError):
        return None


def argument(call: ToolCall, *names: str) -> str:
    """Return the first of these arguments that is a text or a command's list of words, else ""."""
    given = fields_in(call.arguments)
    return next(filter(None, (_as_text(given.get(name)) for name in names)), "")


def _as_text(value: Json) -> str:
    """Return a text, or a command that other agents record as a list of words; "" for others."""
    if isinstance(value, str):
        return value
    words = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return words[2] if words[1:2] in (["-c"], ["-lc"]) and len(words) == 3 else shlex.join(words)


_SUBJECTS = ("command", "cmd", "path", "file_path", "pattern", "query", "url", "content")
"""Arguments that say what a call is about; the first that it has is shown."""


def subject_of(call: ToolCall) -> str:
    """Return a call as it was displayed when it ran: the tool and its main argument."""
    main = first_line(argument(call, *_SUBJECTS))
    return main if call.tool_name == RUN_COMMAND and main else f"{call.tool_name} {main}".rstrip()


def has_failed(call: ToolCall) -> bool:
    """Whether a finished call failed, including commands with an exit code other than 0."""
    return bool(call.result) and (not call.success or (exit_code(call) or 0) != 0)


_STOPPED = ("Stopped ", "The process that watches the command was ")
"""How errors of commands begin that ran until they were stopped; their output follows."""
_REFUSED = Regex(
    r"^Not executed: |was not allowed|This is plan mode|belongs to ragmem|: not run\.$|"
    r"[Nn]othing was (?:executed|done|changed|written)|There is no tool"
)
"""Errors of calls that were denied, invalid or not started."""


def was_refused(call: ToolCall) -> bool:
    """Whether a call had no effect, because it was denied, invalid or not started."""
    said = call.error or result_text(call)
    is_refused = _REFUSED.search(said) is not None and not said.startswith(_STOPPED)
    return is_refused and not call.success


def exit_code(call: ToolCall) -> int | None:
    """Return a command's exit code, if it has one."""
    code = stored.exit_code if (stored := _stored(call)) else None
    return code if isinstance(code, int) else None


class _StoredResult(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    said_then: str = ""
    """What the user said after the call, while the turn went on."""
    exit_code: object = None
    taken_back: dict[str, tuple[str, ...]] = {}
    """The files whose edits the user has undone, by turn id."""


def field_of(text: str, name: str) -> str | None:
    """Return a text field of a call's arguments or result; None if there is none."""
    value = fields_in(text).get(name)
    return value if isinstance(value, str) else None


_WRAPPERS = ("files", "matches", "results")
_CHARS_PER_PATH = 50


def extract_accessed_files(
    call: ToolCall, *, turn_index: int = 0, locate: Callable[[str], str] = posixpath.normpath
) -> list[FileAccess]:
    """Return which files a finished call touched; never raises, whatever its result is.

    `locate` turns a path as the tool gave it into the stored form. A failed call touched nothing;
    unknown tools are ignored.
    """
    if not call.success or not call.result:
        return []
    result = _decode(call.result)
    access = OWN_TOOLS[call.tool_name].access if call.tool_name in OWN_TOOLS else None
    if call.is_undo:
        access, paths = "write", sorted(set().union(*_taken_back(call).values()))
    elif access is None:
        return []
    elif access == "search":
        paths = _result_paths(result)
    else:
        # The path in the result is normalized; the argument may be `./a.py`.
        named = result.get("path") if isinstance(result, dict) else None
        path = named or field_of(call.arguments, "path")
        paths = [path] if isinstance(path, str) else []
    return [
        FileAccess(
            path=locate(path),
            tool_name=call.tool_name,
            access_type=access,
            accessed_at=call.started_at,
            turn_index=turn_index,
            order=call.order,
        )
        for path in dict.fromkeys(paths)
        if path
    ]


def taken_back(turns: Iterable[Turn]) -> dict[str, set[str]]:
    """Return the files whose edits the user has undone, by the id of the turn that made them.

    Paths are as in the results of the edits.
    """
    found: dict[str, set[str]] = {}
    for turn in turns:
        for call in turn.tool_calls:
            for turn_id, paths in _taken_back(call).items():
                found.setdefault(turn_id, set()).update(paths)
    return found


def _taken_back(call: ToolCall) -> dict[str, tuple[str, ...]]:
    stored = _stored(call) if call.is_undo and call.result else None
    return stored.taken_back if stored else {}


def _decode(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _result_paths(result: Json) -> list[str]:
    if isinstance(result, dict):
        result = next((result[key] for key in _WRAPPERS if key in result), None)
    if not isinstance(result, list):
        return []
    found = []
    for item in result:
        path = item.get("file") or item.get("path") if isinstance(item, dict) else item
        if isinstance(path, str):
            found.append(path)
    return found


def stored_path(path: str, *, cwd: Path, project: Path) -> str:
    """Return a path's stored form: relative to the project with `/`, absolute outside of it."""
    full = os.path.normpath(cwd / path)
    relative = os.path.relpath(full, project)
    outside = relative == os.pardir or relative.startswith(os.pardir + os.sep)
    return full if outside else Path(relative).as_posix()


def locator(session: Session) -> Callable[[str], str]:
    """Return a function that turns paths as given by a session's tools into the stored form."""
    cwd = Path(session.cwd)
    return partial(stored_path, cwd=cwd, project=Path(session.project_path or cwd))


def shown_path(path: str, *, cwd: Path, project: Path) -> str:
    """Return a stored path as the agent in `cwd` would write it."""
    return stored_path(str(project / path), cwd=cwd, project=cwd)


_CLOCKS = timedelta(seconds=2)
"""How far a file system's clock may differ."""


def written_since(path: Path, at: datetime) -> bool | None:
    """Whether a file was written after a moment; None if it does not exist."""
    try:
        written = datetime.fromtimestamp(path.stat().st_mtime, at.tzinfo)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, OverflowError):
        return False
    return written > at + _CLOCKS


def recently_accessed(accesses: Iterable[FileAccess], *, max_chars: int = 5000) -> list[FileAccess]:
    """Return one access per path, latest first, at most `max_chars` / 50 of them.

    The latest write of a path counts, or else its latest access. If there are too many, written
    paths are kept first. The order is by turn and call, never by clock.
    """
    best: dict[str, FileAccess] = {}
    for access in sorted(accesses, key=_sequence):
        before = best.get(access.path)
        if before and before.access_type == "write" and access.access_type != "write":
            continue
        best[access.path] = access
    kept = sorted(best.values(), key=_sequence, reverse=True)
    kept.sort(key=lambda a: a.access_type != "write")
    return sorted(kept[: max_chars // _CHARS_PER_PATH], key=_sequence, reverse=True)


def _sequence(access: FileAccess) -> tuple[int, int]:
    return access.turn_index, access.order


def format_accessed_files(
    files: Sequence[FileAccess], *, max_chars: int = 5000, show: Callable[[str], str] = str
) -> tuple[str, int]:
    """Return the section `## Recently Accessed Files`, and how many files did not fit.

    The text is empty without files, and never longer than `max_chars`: entries are dropped from the
    end, modified ones last.
    """
    shown = sorted(files, key=lambda a: ("write", "read", "search", "list").index(a.access_type))
    while shown:
        text = _format(shown, show)
        if len(text) <= max_chars:
            return text, len(files) - len(shown)
        # A tenth at a time: long lists shrink in a few steps.
        del shown[-max(1, len(shown) // 10) :]
    return "", len(files)


_GROUPS = {"read": "Read", "write": "Modified", "search": "Found in searches", "list": "Listed"}


def _format(files: Sequence[FileAccess], show: Callable[[str], str]) -> str:
    lines = ["## Recently Accessed Files", "Files that were accessed by tools in recent turns:"]
    for access_type, heading in _GROUPS.items():
        members = [access for access in files if access.access_type == access_type]
        lines += ["", f"**{heading}:**"] if members else []
        for each in members:
            by = f" (via {each.tool_name}, Turn {each.turn_index})"
            shown_by = by if access_type in ("read", "write") else ""
            lines.append(f"- {plain_or_quoted(show(each.path))}{shown_by}")
    return "\n".join([*lines, ""])


def with_said(call: ToolCall, words: str) -> ToolCall:
    """Note in a call's result what the user said after it, to keep the position of the words.

    The words themselves are part of the turn's `user_message`; see `prompts_of`. A call whose
    result is not a JSON object is returned unchanged.
    """
    try:
        result = msgspec.json.decode(call.result, type=dict[str, Json])
    except msgspec.DecodeError:
        return call
    before = result.get("said_then")
    result["said_then"] = "\n\n".join(filter(None, (before, words)))
    return msgspec.structs.replace(call, result=msgspec.json.encode(result).decode())


def prompts_of(turn: Turn) -> tuple[str, dict[str, str]]:
    """Return the prompt that a turn began with, and what the user said while it ran.

    The latter is by the id of the call that it followed. Words without a known position remain part
    of the first prompt.
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
    return prompt, dict(reversed(later.items()))


_FOLDED = Regex(r"\[pasted [^\]\n]{1,80}\]")
"""Matches what a chat shows, and keeps in the history of prompts, instead of a very long paste."""


def was_said(typed: str, said: Collection[str]) -> bool:
    """Whether a typed line is among the recorded prompts of turns.

    Those have a shell command without blanks after the `!`, and of a custom slash command the
    prompt that it expanded to, with its arguments. What was pasted may be folded in a typed line.
    """
    typed = typed.strip()
    if typed.startswith("!"):
        return f"!{typed[1:].strip()}" in said
    words = typed.partition(" ")[2].strip() if typed.startswith("/") else ""
    if typed in said or (words and any(words in each for each in said)):
        return True
    around = _FOLDED.split(typed)
    return any(map(str.strip, around)) and any(_begins_and_ends(each, around) for each in said)


def _begins_and_ends(text: str, parts: Sequence[str]) -> bool:
    """Return whether a text begins with the first of several parts and ends with the last, with the
    others in between, in order."""
    at, end = len(parts[0]), len(text) - len(parts[-1])
    if len(parts) == 1 or not (text.startswith(parts[0]) and text.endswith(parts[-1])):
        return False
    for part in parts[1:-1]:
        at = text.find(part, at, max(at, end)) + len(part)
        if at < len(part):
            return False
    return at <= end


class Said(NamedTuple):
    """A text of a conversation."""

    by: Literal["person", "agent", "thought"]
    """Who said it; `thought` is the model's reasoning."""
    text: str


def blocks_of(turns: Sequence[Turn]) -> Iterator[Turn | Said | ToolCall]:
    """Yield a conversation in reading order.

    For each turn: the turn itself, for a heading; its prompt; the model's reasoning; its calls,
    each between the agent's text before it and the user's words after it; the answer.
    """
    for turn in turns:
        yield turn
        prompt, later = prompts_of(turn)
        yield Said("person", as_shown(prompt))
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
    """Return a prompt, then its files and the output of the user's own commands as quoted data."""
    blocks = [prompt]
    for call in calls:
        if call.origin != "model":
            what = f"{'file' if call.origin == 'mention' else 'output'}-{tag}"
            blocks.append(f"<{what}>\n{result_text(call)}\n</{what}>")
    return "\n\n".join(blocks)


def turn_tag(turn_id: str) -> str:
    """Return the random end of a turn's id: a delimiter that no file can contain in advance."""
    return turn_id.replace("-", "")[-10:]


def turn_messages(turn: Turn, *, result_limit: int) -> tuple[Message, ...]:
    """Return a turn's messages; a long result is clipped in its middle, with a hint to recall it.

    They are valid for every provider: each call has a result, no message is empty, and the turn
    ends with an assistant message.
    """
    calls = [clip_result(call, result_limit) for call in turn.tool_calls]
    prompt, later = prompts_of(turn)
    tag = turn_tag(turn.turn_id)
    # Files mentioned in later words were read for the model call that followed.
    read_later = {call.iteration + 1 for call in calls if call.tool_call_id in later}
    at_once = [call for call in calls if call.iteration not in read_later]
    out: list[Message] = [user(with_mentions(without_marks(prompt), at_once, tag) or "(empty)")]
    asked = [call for call in turn.tool_calls if call.origin == "model"]
    for iteration in sorted({call.iteration for call in asked}):
        batch = [call for call in asked if call.iteration == iteration]
        uses = tuple(ToolUse(call_id(c.tool_call_id), c.tool_name, c.arguments) for c in batch)
        out.append(assistant(batch[0].preamble, uses))
        for c in batch:
            shown_id = call_id(c.tool_call_id)
            text = clip_recallable(result_text(c), result_limit, shown_id)
            out.append(tool(shown_id, text, is_error=not c.success))
        if words := "\n\n".join(later[c.tool_call_id] for c in batch if c.tool_call_id in later):
            read = [call for call in calls if call.iteration == iteration + 1]
            out.append(user(with_mentions(words, read, tag)))
    said = [turn.assistant_message, _MARKS.get(turn.status, "")]
    nothing = _OWN_COMMAND if turn.is_own_command else "(no answer)"
    out.append(assistant("\n\n".join(filter(None, said)) or nothing))
    return tuple(out)


def clip_recallable(text: str, limit: int, shown_id: str) -> str:
    """Return a call's result, clipped in its middle with a hint to recall it if it is too long."""
    if len(text) <= limit:
        return text
    hint = f"\n[recall_result brings all of it back: id {shown_id}]"
    return clip_middle(text, max(0, limit - len(hint))) + hint


def clip_result(call: ToolCall, limit: int) -> ToolCall:
    """Return the call with its result clipped in the middle."""
    if len(call.result) <= limit:
        return call
    text = clip_middle(result_text(call), limit)
    return msgspec.structs.replace(call, result=msgspec.json.encode(_StoredResult(text)).decode())


def window_limit(turn_count: int) -> int:
    """Return how many of the newest turns to read for planning the window.

    Planning starts at a fixed turn for 50 turns in a row, so that all processes get the same window
    and read no more than 100 turns.
    """
    return turn_count - max(0, turn_count // _LOOKBACK - 1) * _LOOKBACK


def recent_window(turns: Sequence[Turn], *, high: int, low: int, result_limit: int) -> Window:
    """Return the newest whole turns within `high` characters.

    When the sum exceeds `high`, the oldest turns are dropped until it is at most `low`. The start
    stays there until the sum exceeds `high` again, so that successive requests have the same prefix
    byte for byte, and providers' prefix caches hit. The newest turn is always included: clipped
    further if it alone is too long, and with more than `result_limit` of its results if the others
    leave room.
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
    if turns:
        room = high if total > high else high - total + sizes[-1]
        rendered[-1] = _fitting(turns[-1], room, usual=result_limit)
        sizes[-1] = sum(m.char_count for m in rendered[-1])
    messages = tuple(message for messages in rendered[start:] for message in messages)
    return Window(turns=tuple(turns[start:]), messages=messages, sizes=tuple(sizes[start:]))


_LEAST_RESULT = 100


def _fitting(turn: Turn, limit: int, *, usual: int) -> tuple[Message, ...]:
    """Return a turn's messages within a limit, its longest results clipped to the same length."""
    lengths = [len(result_text(call)) for call in turn.tool_calls]
    whole = turn_messages(turn, result_limit=max(lengths, default=0))
    if (over := sum(m.char_count for m in whole) - limit) <= 0:
        return whole
    clip = max(usual, fair_share(lengths, sum(lengths) - over))
    while clip >= _LEAST_RESULT:
        messages = turn_messages(turn, result_limit=clip)
        if sum(m.char_count for m in messages) <= limit:
            return messages
        clip = usual if clip // 2 < usual < clip else clip // 2
    # The prompt and answer are too long, or the calls too many: keep only the prompt and answer.
    bare = msgspec.structs.replace(turn, tool_calls=())
    share = max(50, limit // 2)
    return tuple(
        Message(m.role, (TextPart(clip_middle(m.text, share)),))
        for m in turn_messages(bare, result_limit=0)
    )


def recent_text(turns: Sequence[Turn], *, limit: int, max_chars: int) -> tuple[str, int]:
    """Return the section `## Recent Conversation (Raw)`, and how many turns it shows.

    It has at most `limit` turns and `max_chars` characters; the newest turn is always included,
    clipped in its middle if needed. A turn without tools has no `Tools:` line.
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
"""The line number that read_file puts before each line."""
_WORD = re.compile(r"[^\W_]{3,}")
_ASKING = set(
    _WORD.findall(
        "about and are can did does explain file files for from has have how into its read say "
        "says show tell that the this use used was were what when where which who why with you"
    )
)
"""Words that questions are made of, rather than their subject."""
_RARE = 3
"""A word on more lines than this does not count in finding the line that a question names."""


def with_passages(prompt: str, calls: Sequence[ToolCall], tag: str, *, max_chars: int) -> str:
    """Return passages of the files that the prompt mentions, as quoted data, then the prompt.

    The form is the result of trials with a model of 135 million parameters: it repeats line numbers
    and the `@` of a path, answers what comes last, and refers to a file by its name.
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
    """Cut a text to `max_chars` in whole lines: its beginning, and what the question names.

    A text that fits stays whole. Otherwise half of the room is for the lines from just before the
    one with most of the question's rare words, if there is one; an ellipsis replaces the lines left
    out before them.
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
    asked = question_words(question)
    words = [_words(line) & asked for line in lines]
    counts = Counter(chain.from_iterable(words))
    rare = {word: 1 / count for word, count in counts.items() if count <= _RARE}
    if not rare:
        return None
    scores = [sum(rare.get(word, 0.0) for word in found) for found in words]
    return scores.index(max(scores))


def answered(turn: Turn, question: str) -> str:
    """Return a turn's answer, or all the agent said if only that has a word of the question."""
    answer, said = turn.assistant_message.casefold(), turn.said.casefold()
    lacks = any(word in said and word not in answer for word in question_words(question))
    return turn.said if lacks or not answer.strip() else turn.assistant_message


def question_words(question: str) -> set[str]:
    """Return the words that a question is about, casefolded, without words like "which"."""
    return _words(question) - _ASKING


def _words(text: str) -> set[str]:
    return {found[0].casefold() for found in _WORD.finditer(text)}


def _whole_lines(lines: Sequence[str], max_chars: int) -> str:
    kept, room = 0, max_chars + 1
    while kept < len(lines) and len(lines[kept]) < room:
        room -= len(lines[kept]) + 1
        kept += 1
    return "\n".join(lines[:kept]) if kept or not lines else lines[0][: max(0, max_chars)]
