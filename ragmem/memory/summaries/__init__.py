"""Summaries: when a level is due, what it covers, what it says, and what that costs."""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from ragmem.records import Pending, Session, Summary, Turn
from ragmem.store import Store

_REST = timedelta(minutes=10)
_TOGETHER = 2
"""Fewer are never summed up."""
_ENOUGH = 4
"""So many summaries of level 2 and up are summed up whatever their length."""


def next_roll_up(
    waiting: Sequence[Summary], raw_chars: Mapping[str, int], *, rollup_chars: int
) -> list[Summary]:
    """Those that one summary is to be made of, of the lowest level that is due; empty for none.

    `waiting` are those that no higher one covers, in the order of the conversation; `raw_chars`
    are the characters of turns, by id. The oldest are taken, as many as make it due and no more,
    so that work done late comes to the same summaries as work done along the way. Ask again once
    it is stored.
    """
    for level in sorted({summary.level for summary in waiting}):
        taken: list[Summary] = []
        chars = 0
        for summary in (each for each in waiting if each.level == level):
            taken.append(summary)
            raw = sum(raw_chars.get(turn_id, 0) for turn_id in summary.covers)
            chars += raw if level == 1 else summary.char_count
            enough = chars > rollup_chars or (level > 1 and len(taken) >= _ENOUGH)
            if enough and len(taken) >= _TOGETHER:
                return taken
    return []


def thread_summary_due(session: Session, *, every: int) -> bool:
    """Whether a multiple of `every` messages was crossed since the session's summary."""
    return session.message_count // every > session.summarized_count // every


def has_rested(session: Session, now: datetime) -> bool:
    """Whether nobody has gone on for a while with what its summary does not tell of yet."""
    behind = session.message_count > session.summarized_count
    return behind and now - session.last_activity_at >= _REST


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


# --- as a store has it ------------------------------------------------------------------------


async def level1_of(store: Store, items: Iterable[Pending]) -> dict[str, Summary]:
    """By turn: the summaries that there are already of turns that have work pending."""
    ids = [summary_id(item.session_id, 1, (item.record_id,)) for item in items]
    return {s.covers[0]: s for s in await store.get(Summary, ids) if s.covers}


async def calls_behind(store: Store, session: Session, *, every: int) -> int:
    """Calls of a model that the session's summaries took at least, in all processes."""
    made = [s for s in await store.summaries(session.session_id) if not s.extractive]
    return len(made) + session.summarized_count // every


async def due_roll_up(store: Store, session_id: str, *, rollup_chars: int) -> list[Summary]:
    """The summaries that go into the next one; empty where none is due.

    While a turn still waits for its own summary, none is due: what is summed up has no gaps.
    """
    if await store.raw_history_chars(session_id):
        return []
    found = await store.summaries(session_id, not_rolled_up=True)
    waiting, raw_chars = await _in_order(store, found)
    return next_roll_up(waiting, raw_chars, rollup_chars=rollup_chars)


async def to_roll_up(store: Store, session_id: str, level: int) -> list[Summary]:
    """Those of a level that no higher one covers, in the conversation's order."""
    waiting = await store.summaries(session_id, level=level, not_rolled_up=True)
    return (await _in_order(store, waiting))[0]


async def _in_order(store: Store, found: Sequence[Summary]) -> tuple[list[Summary], dict[str, int]]:
    """By the last turn that each tells of, however late it was made; and characters by turn."""
    last: dict[str, str] = {}
    above = {s.summary_id: s for s in found if s.covers}
    while above:
        last |= {name: s.covers[-1] for name, s in above.items() if s.level <= 1}
        higher = {name: s.covers[-1] for name, s in above.items() if s.level > 1}
        below = {s.summary_id: s for s in await store.get(Summary, list(higher.values()))}
        above = {n: below[i] for n, i in higher.items() if i in below and below[i].covers}
    ids = {*last.values(), *(turn_id for s in found if s.level == 1 for turn_id in s.covers)}
    turns = {turn.turn_id: turn for turn in await store.get(Turn, sorted(ids))}
    places = {n: turns[turn_id].turn_index for n, turn_id in last.items() if turn_id in turns}
    ordered = sorted(found, key=lambda s: (places.get(s.summary_id, 0), s.created_at))
    return ordered, {turn_id: turn.char_count for turn_id, turn in turns.items()}


async def renewable(store: Store, session_id: str) -> list[tuple[Summary, list[Summary]]]:
    """Stand-ins of level 2 and up over summaries that a model made, lowest first, with those."""
    found = await store.summaries(session_id)
    by_id = {summary.summary_id: summary for summary in found}
    out = []
    for summary in sorted(found, key=lambda s: s.level):
        below = [by_id[covered] for covered in summary.covers if covered in by_id]
        whole = summary.level > 1 and len(below) == len(summary.covers)
        if summary.extractive and whole and not any(s.extractive for s in below):
            out.append((summary, below))
    return out
