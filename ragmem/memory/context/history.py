"""A conversation in short, for when the store can't be asked.

The first message, which holds the goal of a conversation, and the latest ones stay; of those
between them rules and decisions in the person's own words, and summaries.
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
"""Up to so many messages all are kept."""
TAIL_COUNT = 9
"""Beyond, so many of the latest, after the first and the marker."""
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
    """Write one paragraph a message: `role: content`."""
    return "\n\n".join(f"{role}: {content}" for role, content in messages)


def build_history_context(
    messages: Sequence[HistoryMessage],
    *,
    so_far: str = "",
    digests: Mapping[int, str] = MappingProxyType({}),
    max_chars: int = sys.maxsize,
) -> str:
    """The pruned history as text; only for when the enriched context can't be built.

    All of ten or fewer; else the first, the marker with role `system`, and the last nine.
    Where nine of the latest are more than fits `max_chars`, there are fewer. What is
    known of those between follows the marker: `so_far` is of the whole conversation, `digests`
    are by the place of the last message that each tells of.
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


def _gist(
    hidden: Sequence[HistoryMessage], so_far: str, summaries: Sequence[str], room: int
) -> str:
    """What is known of the hidden messages: what was ruled and decided goes first for room."""
    critical = [f"- {line}" for line in _critical(hidden)[-_MOST_CRITICAL:]]
    whole = [f"So far: {set_in(so_far)}"] if so_far else []
    known = [f"- {' '.join(text.split())}" for text in summaries]
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
    """Formatted; where that is too long, the longest are clipped in their middle."""
    text = format_history(messages)
    if len(text) <= max_chars:
        return text
    contents = [len(content) for _, content in messages]
    share = fair_share(contents, max_chars - (len(text) - sum(contents)))
    clipped = [(role, clip_middle(content, max(0, share))) for role, content in messages]
    return clip_middle(format_history(clipped), max_chars)
