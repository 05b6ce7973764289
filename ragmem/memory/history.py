"""The pruning fallback: what the agent is told when the store can't answer (C13 to C26).

Keeping the first message and the latest ones is the "sink and window" shape:
the goal of a conversation is in its first message.
"""

from collections.abc import Sequence

from ragmem.records import Turn

COMPRESSION_MARKER = "... [Intermediate memory compressed] ..."
WHOLE_LIMIT = 10
"""Up to so many messages all are kept."""
TAIL_COUNT = 9
"""Beyond, so many of the latest, after the first and the marker."""

HistoryMessage = tuple[str, str]
"""(role, content)."""


def messages_of(turns: Sequence[Turn]) -> list[HistoryMessage]:
    """The turns' user and assistant messages in order; answers that never came are left out."""
    found: list[HistoryMessage] = []
    for turn in turns:
        found.append(("user", turn.user_message))
        if turn.assistant_message:
            found.append(("assistant", turn.assistant_message))
    return found


def prune_history(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """All of ten or fewer; else the first, the marker with role `system`, and the last nine."""
    if len(messages) <= WHOLE_LIMIT:
        return list(messages)
    return [messages[0], ("system", COMPRESSION_MARKER), *messages[-TAIL_COUNT:]]


def format_history(messages: Sequence[HistoryMessage]) -> str:
    """One paragraph a message: `role: content`."""
    return "\n\n".join(f"{role}: {content}" for role, content in messages)


def build_history_context(messages: Sequence[HistoryMessage]) -> str:
    """The pruned history as text; only for when the enriched context can't be built."""
    return format_history(prune_history(messages))
