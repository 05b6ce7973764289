"""A shortened conversation, for when the store is unavailable.

The first message, which states the goal of a conversation, and the latest ones stay. Those between
are replaced by rules and decisions in the user's own words, and by summaries.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType

from ragmem.records import Turn
from ragmem.text import IN_SENTENCE, Regex, clip_middle, fair_share, one_line, set_in

COMPRESSION_MARKER = "... [Intermediate memory compressed] ..."
WHOLE_LIMIT = 10
"""Number of messages up to which all are kept."""
TAIL_COUNT = 9
"""Number of latest messages kept otherwise, after the first and the marker."""
_MOST_CRITICAL = 8
_LINE_CHARS = 200
_SENTENCE = Regex(rf"(?<=[.!?…]){IN_SENTENCE}\s+|\n+")
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
    """Return the turns' user and assistant messages in order, without empty answers.

    All lines of a message but its first are indented.
    """
    return [message for turn in turns for message in _said(turn)]


def digests_of(turns: Sequence[Turn], summaries: Mapping[str, str]) -> dict[int, str]:
    """Return summaries, given by turn id, by the position of the turn's end in `messages_of`."""
    ends = accumulate(len(_said(turn)) for turn in turns)
    return {
        end - 1: summaries[turn.turn_id]
        for end, turn in zip(ends, turns, strict=True)
        if summaries.get(turn.turn_id)
    }


def format_history(messages: Sequence[HistoryMessage]) -> str:
    """Return one paragraph per message: `role: content`."""
    return "\n\n".join(f"{role}: {content}" for role, content in messages)


def build_history_context(
    messages: Sequence[HistoryMessage],
    *,
    so_far: str = "",
    digests: Mapping[int, str] = MappingProxyType({}),
    max_chars: int = sys.maxsize,
) -> str:
    """Return the pruned history as text, for when the full context can't be built.

    Up to ten messages are all kept; otherwise the first, the marker with role `system`, and the
    last nine, or fewer if those exceed `max_chars`. After the marker comes what is known of the
    messages between: `so_far`, the summary of the whole conversation, and `digests`, by the
    position of the last message that each covers.
    """
    tail = TAIL_COUNT if len(messages) > WHOLE_LIMIT else len(messages) - 1
    if _size(messages[:1], messages[-tail:] if tail else ()) > max_chars:
        while tail > 1 and _size(messages[:1], messages[-tail:]) > max_chars * 3 // 4:
            tail -= 1
    first_shown = len(messages) - tail
    if first_shown <= 1:
        return _clipped(list(messages), max_chars)
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


def _gist(hidden: Sequence[HistoryMessage], so_far: str, digests: Sequence[str], room: int) -> str:
    """Return what is known of the hidden messages; rules and decisions get the room first."""
    critical = [f"- {line}" for line in _critical(hidden)[-_MOST_CRITICAL:]]
    whole = [f"So far: {set_in(so_far)}"] if so_far else []
    known = [f"- {' '.join(text.split())}" for text in digests]
    taken: set[str] = set()
    for line in [*reversed(critical), *whole, *reversed(known)]:
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


def _clipped(messages: list[HistoryMessage], max_chars: int) -> str:
    """Format messages; if that is too long, the longest are clipped in their middle."""
    text = format_history(messages)
    if len(text) <= max_chars:
        return text
    contents = [len(content) for _, content in messages]
    share = fair_share(contents, max_chars - (len(text) - sum(contents)))
    clipped = [(role, clip_middle(content, max(0, share))) for role, content in messages]
    return clip_middle(format_history(clipped), max_chars)
