"""The Store protocol: what a memory's storage does, and what every store promises.

Promises, checked by `tests/store/test_contract.py` on each implementation:

- `apply` is one transaction: all of the writes or none; when it returns, they
  survive kill -9.
- Every write is idempotent: applied twice (a retry, a replay), the effect is
  that of once. `BeginTurn` again returns the index it got the first time.
- Turn indexes of a session are 1, 2, 3 … without gaps or duplicates, whatever
  number of processes write it at once.
- Text rows, links and derived fields (`turn_count`, `last_message` …) change in
  the same transaction as their source.
- Nothing is deleted.
- Ids that do not exist raise `SessionNotFound`; a store that can't be reached
  raises `StoreUnavailable` within `Config.store.timeout_s`, never later.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ragmem.records import FileAccess, Project, Session, Summary, Turn, Write


class Applied(msgspec.Struct, frozen=True):
    """What only the store could know."""

    turn_indexes: dict[str, int] = {}
    """turn_id to turn_index, for each BeginTurn among the writes."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions; conditions combine with AND, newest activity first."""

    cwd: str | None = None
    project_ids: tuple[str, ...] = ()
    status: str | None = None
    tags: tuple[str, ...] = ()
    """Any of these (B50)."""
    limit: int = 50


class TurnQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which turns of a session, a fork's shared ones included; always returned in order."""

    limit: int | None = None
    """The newest so many."""
    max_chars: int | None = None
    """The newest whole turns whose `char_count` sums to at most this, but at least one."""
    before_index: int | None = None
    """Only turns with a smaller index."""
    statuses: tuple[str, ...] = ()
    """Empty for all."""
    with_tool_calls: bool = True


ALL_TURNS = TurnQuery()


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `store info` and `doctor` tell."""

    kind: str
    location: str
    """A path, or a URL without credentials."""
    version: str
    """Of the engine."""
    schema_version: int
    counts: dict[str, int]
    """Records by kind: sessions, turns, tool_calls, summaries, files, projects."""
    size_bytes: int | None = None


class Store(Protocol):
    """See the module's text for what each implementation promises."""

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes in order, in one transaction."""
        ...

    async def session(self, session_id: str) -> Session:
        """One session; SessionNotFound when there is none."""
        ...

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """The sessions that match."""
        ...

    async def find_sessions(self, reference: str, *, limit: int = 20) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it (casefolded)."""
        ...

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""
        ...

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Accesses of the newest turns that sum to at most so many characters, newest first."""
        ...

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Newest first. `not_rolled_up`: those that no higher summary covers (A79)."""
        ...

    async def raw_history_chars(self, session_id: str) -> int:
        """Characters of completed turns that no level-1 summary covers (A78); 0 for none."""
        ...

    async def projects(self) -> list[Project]:
        """Every known project."""
        ...

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; returns the other live owners' ids.

        Turns left `running` by owners that live no more become `interrupted`.
        An owner lives while its process does (SQLite: a file lock, freed by the
        kernel) or while its lease holds (Neo4j: 30 s on the server's clock).
        """
        ...

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease; to be called every 10 s (a no-op where the kernel does it)."""
        ...

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""
        ...

    async def info(self) -> StoreInfo:
        """What it is, where, and how much is in it."""
        ...

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""
        ...
