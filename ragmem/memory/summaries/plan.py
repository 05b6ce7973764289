"""What is to be summed up next: pure functions over what waits."""

import hashlib
import uuid
from collections.abc import Sequence

import msgspec

_TOGETHER = 2
"""Fewer are never summed up."""
_ENOUGH = 4
"""So many summaries of level 2 and up are summed up whatever their length."""


class WaitingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that no higher one covers yet."""

    summary_id: str
    level: int
    turn_count: int = 1
    raw_chars: int = 0
    """Of the turns behind a summary of level 1."""
    own_chars: int = 0
    """Of its text."""


class RollUp(msgspec.Struct, frozen=True):
    """A summary to be made: its level, and the ids of those below that it covers, in order."""

    level: int
    covers: tuple[str, ...]


def next_roll_up(waiting: Sequence[WaitingSummary], *, rollup_chars: int) -> RollUp | None:
    """The roll-up that is due, of the lowest level that has one; None where none is.

    `waiting` is in the order of the conversation. The oldest are taken, as many as
    make it due and no more, so that work done late comes to the same summaries as
    work done along the way. Ask again once it is stored.
    """
    by_level: dict[int, list[WaitingSummary]] = {}
    for summary in waiting:
        by_level.setdefault(summary.level, []).append(summary)
    for level in sorted(by_level):
        taken: list[WaitingSummary] = []
        for summary in by_level[level]:
            taken.append(summary)
            if _is_due(taken, level, rollup_chars):
                return RollUp(level + 1, tuple(s.summary_id for s in taken))
    return None


def _is_due(taken: Sequence[WaitingSummary], level: int, rollup_chars: int) -> bool:
    if len(taken) < _TOGETHER:
        return False
    if level == 1:
        return sum(summary.raw_chars for summary in taken) > rollup_chars
    return len(taken) >= _ENOUGH or sum(summary.own_chars for summary in taken) > rollup_chars


def thread_summary_due(message_count: int, summarized_count: int, *, every: int) -> bool:
    """Whether a multiple of `every` messages was crossed since the session's summary."""
    return message_count // every > summarized_count // every


def summary_id(session_id: str, level: int, covers: Sequence[str]) -> str:
    """The same id for the same work, so that what two processes do twice is stored once.

    In UUIDv7's form: the time is that of the last id covered, the rest is a digest.
    """
    digest = hashlib.sha256("\n".join([session_id, str(level), *covers]).encode()).digest()
    value = int.from_bytes(digest[:16], "big")
    try:
        time_bits = uuid.UUID(covers[-1]).int >> 80
    except (ValueError, IndexError):
        time_bits = value >> 80
    value = time_bits << 80 | value & ((1 << 80) - 1)
    value = value & ~(0xF << 76 | 0b11 << 62) | 0x7 << 76 | 0b10 << 62
    return str(uuid.UUID(int=value))
