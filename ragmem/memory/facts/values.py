"""What is told to memory and what is found in it, as values."""

from datetime import datetime
from typing import Literal

import msgspec

from ragmem.records import (
    Evidence,
    MemoryKind,
    MemoryRecord,
    MemoryScope,
    MemorySource,
    Trust,
)

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
