"""What memories ask of a store. A part of the Store protocol (`ragmem.store.base`).

Stores keep, filter and link memories; what is like what, and what takes whose place, is
decided above them. Promises:

- A memory, its evidence and what it supersedes are written in one transaction.
- Memories that were superseded stay, until they are forgotten; none goes by its age alone.
- In the graph a memory hangs on its turns (REMEMBERS) and on what it took the place of
  (SUPERSEDES).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from ragmem.records import (
    MEMORY_LEVEL,
    Insight,
    MemoryRecord,
    Owner,
    Profile,
    PutMemory,
    PutVectors,
    RegisterProject,
    Write,
)


class MemoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories; conditions combine with AND. Newest first by `created_at`, then by id."""

    everywhere: bool = False
    """Of all projects and the person's own; else as the next two say."""
    project_ids: tuple[str, ...] = ()
    """Those of these projects; one that was joined to another counts as that one."""
    user_wide: bool = True
    """And the person's own."""
    kinds: tuple[str, ...] = ()
    """Any of these; empty for all."""
    subjects: tuple[str, ...] = ()
    """Those with any of these, casefolded; empty for all."""
    session_id: str | None = None
    """Those with evidence in this session."""
    pinned: bool | None = None
    with_superseded: bool = False
    alive_at: datetime | None = None
    """Without those that had expired then."""
    limit: int | None = None


def touches_memories(writes: Sequence[Write]) -> bool:
    """Whether what `memories` or their `small_vectors` answer may be another after these."""
    return any(
        isinstance(write, PutMemory)
        or (isinstance(write, PutVectors) and write.level == MEMORY_LEVEL)
        or (isinstance(write, RegisterProject) and write.project.joined_into is not None)
        for write in writes
    )


class MemoryStore(Protocol):
    """See the module's text."""

    async def memories_revision(self) -> int:
        """Goes up when memories or their vectors change: while it stays, what was read holds.

        By one with each `apply` that changes some, so that who wrote knows whether others did.
        """

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Those that match, each with its evidence in order."""

    async def memories_by_id(self, memory_ids: Sequence[str]) -> list[MemoryRecord]:
        """Those of them that exist, superseded ones too, in this order."""

    async def find_memories(self, reference: str, *, limit: int = 20) -> list[MemoryRecord]:
        """Those whose id, without its dashes, is or ends with the reference; newest first."""

    async def superseded_by(self, memory_id: str) -> list[MemoryRecord]:
        """What this one took the place of, and what that did, and so on; newest first."""

    async def small_vectors(
        self, record_ids: Sequence[str], level: int, embedder: str
    ) -> dict[str, bytes]:
        """Vectors of memories (MEMORY_LEVEL) or sessions (SESSION_LEVEL), float32 little-endian.

        Of those that have one of this embedder, by id.
        """

    async def forget_memories(self, memory_ids: Sequence[str]) -> int:
        """Remove these and what they took the place of, with all that hangs on them; how many."""

    async def profile(self) -> Profile:
        """The person's; empty before anything was said."""

    async def others(self) -> list[Owner]:
        """Those who have something here, or a name, but the one whom the store was opened for.

        Nobody where it was opened for everyone: then all in it is one person's.
        """

    async def insights(self, session_ids: Sequence[str]) -> list[Insight]:
        """What was found in those of them that were looked at, in this order."""
