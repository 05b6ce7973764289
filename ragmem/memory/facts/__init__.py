"""What is told to memory and what is found in it, as values; how long a memory lasts."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from ragmem.records import Evidence, MemoryKind, MemoryRecord, MemoryScope, MemorySource, Trust
from ragmem.text import one_line, relevance

Action = Literal["added", "updated", "known", "refused"]
"""What became of a draft: new, in the place of others, said before, or not kept at all."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be remembered, before it is compared with what is known."""

    content: str
    kind: MemoryKind = "fact"
    subjects: tuple[str, ...] = ()
    trust: Trust = "person"
    source: MemorySource = "conversation"
    scope: MemoryScope | None = None
    """None: as its kind, and what it is about, decide."""
    ttl: str | None = None
    """A number and h, d or w (hours, days, weeks); None: it lasts."""
    pinned: bool = False
    at: datetime | None = None
    """When it happened or is due."""
    evidence: tuple[Evidence, ...] = ()


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a draft."""

    action: Action
    memory: MemoryRecord | None = None
    """As it stands now; None where it was refused."""
    superseded: tuple[MemoryRecord, ...] = ()
    note: str = ""
    """For people: why it was refused, or what was changed about it (an unknown duration)."""


class FactHit(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that bears on a question."""

    memory: MemoryRecord
    score: float
    """What the order goes by; comparable within one search only."""
    similarity: float | None = None
    """Raw cosine; None for one found by its words or subjects alone."""
    why: str = ""
    """What it was found by, in words: its words, its meaning, its subject …"""
    since: str = ""
    """What was said later on the same, and may be otherwise."""

    @property
    def relevance(self) -> str:
        """The similarity as it is shown."""
        return relevance(self.similarity)

    def is_close(self, _: float | None) -> bool:
        """Always: what is far is not found."""
        return True

    def is_further(self, _: float | None) -> bool:
        """Never: it is close."""
        return False


def told_by(memory: MemoryRecord) -> str:
    """Who vouches for it, in words; empty for the person."""
    if memory.trust == "person":
        return ""
    if memory.trust == "model":
        return "said by the model"
    for evidence in memory.evidence:
        if evidence.path:
            return f"read in {one_line(evidence.path, 120)}"
    for evidence in memory.evidence:
        if evidence.tool_name:
            return f"read in the output of {one_line(evidence.tool_name, 60)}"
    return "read in a file or an output"


def dated(memory: MemoryRecord, now: datetime) -> str:
    """When it happened or is due, in words; empty where that is not known."""
    if memory.at is None:
        return ""
    day = f"{memory.at.astimezone(now.tzinfo):%Y-%m-%d}"
    return f"due {day}" if memory.kind == "deadline" else day


_TTL = re.compile(
    r"\s*(\d{1,6})\s*(?:(h|hours?|heures?)|(d|days?|j|jours?)|(w|weeks?|semaines?))\s*",
    re.IGNORECASE,
)
_LASTING = frozenset({"", "null", "none", "never", "permanent", "forever"})


def expiry(ttl: str | None, now: datetime) -> tuple[datetime | None, str]:
    """When it ends, None where it lasts; and what to tell of a duration that says nothing.

    What can't be read lasts: to keep something too long costs less than to lose it.
    """
    if ttl is None or ttl.strip().casefold() in _LASTING:
        return None, ""
    match = _TTL.fullmatch(ttl)
    count = int(match[1]) if match else 0
    if match is None or count == 0:
        return None, f"{ttl[:40]!r} is no duration like 1h, 7d or 2w, so it is kept for good."
    step = timedelta(hours=1) if match[2] else timedelta(days=1 if match[3] else 7)
    try:
        return now + count * step, ""
    except OverflowError:
        return None, f"{ttl[:40]!r} is longer than time is counted, so it is kept for good."


def past_their_time(memories: Iterable[MemoryRecord], now: datetime) -> list[str]:
    """Ids of those that may be removed; `memories`: all there are, superseded ones too.

    What goes takes what it superseded with it: so one in whose place it came that lasts keeps it,
    unseen.
    """
    known = {memory.memory_id: memory for memory in memories}
    over = {i for i, m in known.items() if m.is_past(now)}
    before: dict[str, list[str]] = {}
    for memory in known.values():
        if memory.superseded_by is not None:
            before.setdefault(memory.superseded_by, []).append(memory.memory_id)

    def goes(memory_id: str) -> bool:
        todo, seen = [memory_id], {memory_id}
        while todo:
            one = todo.pop()
            if one not in over:
                return False
            older = [each for each in before.get(one, ()) if each not in seen]
            seen.update(older)
            todo += older
        return True

    return [memory_id for memory_id in known if memory_id in over and goes(memory_id)]
