"""The Store protocol: what a memory's storage does, and what every store promises.

Promises, checked by `tests/store/test_contract*.py` on each implementation:

- `apply` is one transaction: all of the writes or none; when it returns, they
  survive kill -9.
- Every write is idempotent: applied twice (a retry, a replay), the effect is
  that of once. `BeginTurn` again returns the index it got the first time.
- Turn indexes of a session are 1, 2, 3 … without gaps or duplicates, whatever
  number of processes write it at once.
- Text rows, links and derived fields (`turn_count`, `last_message` …) change in
  the same transaction as their source.
- A store is opened for an owner, the person whose home it is. What is written without one is
  theirs; memories about a person and the profile are seen by their owner alone. What stood
  without one when the store came to know owners belongs to who opened it then. Opened for
  nobody, as tools do, a store shows all.
- Nothing is deleted, except by `Archive.delete_session` and `forget_memories`.
- Ids that do not exist raise `SessionNotFound`; a store that can't be reached
  raises `StoreUnavailable` within `Config.store.timeout_s`, never later.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from ragmem.errors import StoreRefused
from ragmem.records import (
    FileAccess,
    Owner,
    Profile,
    Project,
    PutTurn,
    PutVectors,
    Session,
    Summary,
    ToolCall,
    Turn,
    Write,
)
from ragmem.store.code import CodeStore
from ragmem.store.memories import MemoryStore
from ragmem.store.recall import RecallStore

AHEAD = timedelta(minutes=5)
"""A time that is further ahead is a wrong clock's: it is not what is newest."""


class Applied(msgspec.Struct, frozen=True):
    """What only the store could know."""

    turn_indexes: dict[str, int] = {}
    """turn_id to turn_index, for each BeginTurn among the writes."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions; conditions combine with AND, newest activity first."""

    cwd: str | None = None
    project_ids: tuple[str, ...] = ()
    status: str | None = None
    mine: bool = False
    """Only those of the owner for whom the store was opened."""
    tags: tuple[str, ...] = ()
    """Any of these."""
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
    """Records by kind: sessions, turns, tool_calls, summaries, memories, projects, files
    (that tools touched), scopes."""
    summaries_per_level: dict[int, int] = {}
    """Lowest level first."""
    size_bytes: int | None = None


class Store(RecallStore, MemoryStore, CodeStore, Protocol):
    """See the module's text for what each promises, `ragmem.store.recall`, `.memories`, `.code`."""

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes in order, in one transaction."""

    async def store_id(self) -> str:
        """The store's own id, random, kept in it; empty where it has none and can't keep one."""

    async def session(self, session_id: str) -> Session:
        """One session; SessionNotFound when there is none."""

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """The sessions that match."""

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it (casefolded).

        With `mine` only those of the owner for whom the store was opened.
        """

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Accesses of the newest turns that sum to at most so many characters, newest first."""

    async def find_tool_call(self, session_id: str, reference: str) -> ToolCall | None:
        """The newest call of a session whose id, without its dashes, ends with the reference."""

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Newest first. `not_rolled_up`: those that no higher summary covers."""

    async def raw_history_chars(self, session_id: str) -> int:
        """Characters of completed turns that no level-1 summary covers; 0 for none."""

    async def projects(self) -> list[Project]:
        """Every known project."""

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; returns the other live owners' ids.

        Turns left `running` by owners that live no more become `interrupted`.
        An owner lives while its process does (SQLite: a file lock, freed by the
        kernel) or while its lease holds (Neo4j: 30 s on the server's clock).
        """

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease; to be called every 10 s (a no-op where the kernel does it)."""

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""

    async def info(self) -> StoreInfo:
        """What it is, where, and how much is in it."""

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""


class Span(msgspec.Struct, frozen=True):
    """A session's own turns from `first` to `last` by index; none when `last` is smaller."""

    session_id: str
    first: int
    last: int
    parent_id: str | None = None
    """The session that it was forked from."""


class Finding(msgspec.Struct, frozen=True):
    """Something in a store that should not be."""

    what: str
    """The promise that is broken, in words."""
    where: str
    """Ids of the first records concerned, or what the engine said."""
    count: int = 1


def misplaced(session_id: str, turn_index: int) -> StoreRefused:
    """The error for a turn whose place in the session is another turn's, or past a gap."""
    return StoreRefused(
        f"Turn {turn_index} of session {session_id} has no place here: the session went on in a "
        "different way.",
        hint="To keep both, export the session from the other store, and import it here with "
        "--as-new.",
    )


def of_another_turn(tool_call_id: str) -> StoreRefused:
    """The error for a tool call that can't be put in place: its id is taken."""
    return StoreRefused(f"The tool call {tool_call_id} belongs to another turn here.")


def anothers(memory_id: str) -> StoreRefused:
    """The error for a memory that can't be replaced: it is about another person."""
    return StoreRefused(f"Memory {memory_id} is another person's.")


def forked(session_id: str, fork_id: str) -> StoreRefused:
    """The error for a session that can't be deleted: a fork shares its turns."""
    return StoreRefused(
        f"Session {session_id} can't be deleted: {fork_id} was forked from it and shares its "
        "turns.",
        hint="Delete the fork first.",
    )


def in_use(session_id: str) -> StoreRefused:
    """The error for a session that can't be deleted: some process works in it."""
    return StoreRefused(
        f"Session {session_id} can't be deleted: a process works in it.",
        hint="Leave it there first.",
    )


class Archive(Store, Protocol):
    """A store whose whole content can be moved, looked through, and deleted by session.

    Moving goes by `spans`: a session's turns have the same indexes in every store, so that the
    same span of two stores holds the same turns.
    """

    async def spans(self) -> list[Span]:
        """Every session with all of its own turns."""

    async def sessions_by_id(self, session_ids: Sequence[str]) -> list[Session]:
        """Those of them that exist, in this order."""

    async def own_turns(self, spans: Sequence[Span]) -> list[PutTurn]:
        """The turns in these spans, each with its tool calls and their accesses, in order."""

    async def owners(self) -> list[Owner]:
        """Everybody who has something here, or a name, by id."""

    async def profiles(self) -> list[Profile]:
        """Everybody's, whoever the store was opened for."""

    async def summary_ids(self) -> list[str]:
        """Every summary; one stands after those that it covers."""

    async def memory_ids(self) -> list[str]:
        """Every memory; one stands after those that it superseded."""

    async def code_projects(self) -> list[str]:
        """Every project whose files define scopes."""

    async def vectors_of(self, record_ids: Sequence[str]) -> list[PutVectors]:
        """The vectors of those turns, summaries, memories and sessions that have some, in order."""

    async def branches(self, session_id: str) -> list[Session]:
        """The sessions that were forked from this one, oldest first."""

    async def delete_session(self, session_id: str) -> dict[str, int]:
        """Remove a session and all that belongs to it alone; counts of what went, by kind.

        Memories whose only evidence was said in it go too; the others lose that evidence.

        StoreRefused while a fork shares its turns, or a process works in it.
        """

    async def check(self) -> list[Finding]:
        """What is broken: the files, links, indexes of turns, counters. Empty when all is well."""
