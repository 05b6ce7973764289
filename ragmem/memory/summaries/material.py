"""What a summary is made from: what was said and done, condensed, without what was recalled.

`Turn` holds the person's words, the tool calls and the answer, never the memory
block of the request; answers of tools that bring back the past are left out too.
"""

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ragmem.memory.files import extract_accessed_files
from ragmem.memory.window import result_text
from ragmem.messages import Json
from ragmem.records import Summary, ToolCall, Turn
from ragmem.redact import redact
from ragmem.text import clean, clip_middle, one_line

RECALL_TOOLS = frozenset(
    {
        "recall_result",
        "recall",
        "search_memory",
        "search_history",
        "search_memories",
        "get_recent_memories",
        "remember",
    }
)
"""Their answers were said before: nothing is summed up from them a second time."""
WRITING_TOOLS = frozenset({"write_file", "edit_file", "create_file"})
MAX_FILES = 50
MAX_TOOLS = 30
_CALLS_CHARS = 12_000
_ARGUMENT_CHARS = 160
_RESULT_CHARS = 400
_SHORTEST_RESULT = 60
_MAX_MESSAGES = 1_000
_ORDER = {"write": 0, "read": 1, "search": 2}
_MAIN_ARGUMENTS = ("path", "command", "pattern", "query", "id")


def turn_records(turn: Turn) -> str:
    """A turn for the model: its words whole, each tool call in a line or two."""
    parts = [f"Person: {turn.user_message}"]
    calls = "\n".join(_call_lines(turn.tool_calls))
    if calls:
        parts.append("Tool calls:\n" + clip_middle(calls, _CALLS_CHARS))
    if turn.assistant_message:
        parts.append(f"Agent: {turn.assistant_message}")
    return redact(clean("\n\n".join(parts)))


def summaries_records(summaries: Sequence[Summary]) -> str:
    """Summaries for the model, oldest first."""
    return redact(clean("\n\n".join(summary_entry(s) for s in summaries)))


def summary_entry(summary: Summary) -> str:
    """A summary with its findings."""
    return entry(summary.text, summary.key_findings)


def entry(text: str, findings: Sequence[str]) -> str:
    """A text, then each finding on a line of its own."""
    return "\n".join([f"Summary: {text}", *(f"- {finding}" for finding in findings)])


def thread_records(previous: str | None, since: Sequence[Turn], *, max_chars: int) -> str:
    """The session's summary so far, then `role: content` for at most 1,000 messages."""
    turns = list(since)[-_MAX_MESSAGES // 2 :]
    share = max(200, max_chars // max(1, 2 * len(turns)))
    parts = [f"summary of what went before: {previous}"] if previous else []
    for turn in turns:
        for role, content in (("user", turn.user_message), ("assistant", turn.assistant_message)):
            if content:
                parts.append(f"{role}: {clip_middle(content, share)}")
    return redact(clean("\n\n".join(parts)))


def split(text: str, room: int) -> list[str]:
    """Pieces of at most `room` characters, ended at a paragraph, a line or a word if one is near.

    Together they are the text, but for the white space between them.
    """
    pieces = []
    rest = text.strip()
    while len(rest) > room:
        end = room
        for mark in ("\n\n", "\n", " "):
            if (found := rest.rfind(mark, room * 7 // 8, room)) > 0:
                end = found
                break
        pieces.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [piece for piece in [*pieces, rest] if piece]


def files_of(
    calls: Iterable[ToolCall], locate: Callable[[str], str] = posixpath.normpath
) -> tuple[str, ...]:
    """Files that recorded calls touched: changed ones first, then read, then found."""
    found: dict[str, int] = {}
    for call in calls:
        for access in extract_accessed_files(call, locate=locate):
            if access.access_type in _ORDER:
                rank = _ORDER[access.access_type]
                found[access.path] = min(rank, found.get(access.path, rank))
    ranked = sorted(found, key=lambda path: found[path])
    return tuple(ranked[:MAX_FILES])


def tools_of(calls: Iterable[ToolCall]) -> tuple[str, ...]:
    """Names of the recorded tools, in the order of their first call."""
    return tuple(dict.fromkeys(call.tool_name for call in calls))[:MAX_TOOLS]


def union(groups: Sequence[Sequence[str]], limit: int) -> tuple[str, ...]:
    """What stands in most groups first, then what stands in the latest ones."""
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for index, group in enumerate(groups):
        counts.update(set(group))
        last.update(dict.fromkeys(group, index))
    names = list(dict.fromkeys(name for group in groups for name in group))
    ranked = sorted(names, key=lambda name: (-counts[name], -last[name]))
    return tuple(ranked[:limit])


def main_argument(call: ToolCall) -> str:
    """What a call was about: its path or command, else its arguments, on one line."""
    try:
        arguments: Json = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        for name in _MAIN_ARGUMENTS:
            if isinstance(value := arguments.get(name), str):
                return one_line(value[: 2 * _ARGUMENT_CHARS], _ARGUMENT_CHARS)
    return one_line(call.arguments[: 2 * _ARGUMENT_CHARS], _ARGUMENT_CHARS)


def outcome(call: ToolCall, limit: int) -> str:
    """How a call ended, on one line: its first words and its last."""
    if not call.result:
        return "no result was recorded"
    if call.tool_name in RECALL_TOOLS:
        return "brought back earlier records"
    text = result_text(call)
    if not call.success:
        return one_line(f"failed: {(call.error or text)[: 2 * limit]}", limit)
    words = _flat(text, 2 * limit)
    return words if len(words) <= limit else f"{words[: limit // 2]} … {words[-limit // 2 :]}"


def _flat(text: str, limit: int) -> str:
    """On one line; of a long text its two ends, so that a file of megabytes costs nothing."""
    if len(text) > 4 * limit:
        text = f"{text[:limit]} … {text[-limit:]}"
    text = re.sub(r"^ *\d+\t", "", text, flags=re.MULTILINE)
    return one_line(text, len(text) + 1)


def _call_lines(calls: Sequence[ToolCall]) -> list[str]:
    share = max(_SHORTEST_RESULT, min(_RESULT_CHARS, _CALLS_CHARS // max(1, len(calls))))
    lines = []
    for call in calls:
        if call.preamble:
            lines.append(f"(said: {one_line(call.preamble[: 2 * _RESULT_CHARS], _RESULT_CHARS)})")
        lines.append(f"- {call.tool_name} {main_argument(call)} -> {outcome(call, share)}")
        if call.tool_name in WRITING_TOOLS and call.success:
            lines.append(f"  with {one_line(call.arguments[: 2 * share], share)}")
    return lines
