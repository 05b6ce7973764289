"""What is asked of a store, and what it answers, beside records: values, whichever store it is."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeVar

import msgspec

from ragmem.records.code import CodeFile, CodeScope, ReferenceHow
from ragmem.records.conversation import AccessType, Project, Record, Session, Turn
from ragmem.records.memories import MemoryRecord, Owner
from ragmem.records.writes import Write

AnyRecord = TypeVar("AnyRecord", bound=Record)


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


Work = Literal["vectors", "level1", "roll_up", "thread", "memories", "references"]
WORK: tuple[Work, ...] = ("vectors", "level1", "roll_up", "thread", "memories", "references")
TURN_LEVEL = 0


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: sessions (with what a fork shares with its parents) or projects.

    With both, what is in either; with none, the whole store. A project that was
    joined to another counts as that one, whichever id is given.
    """

    session_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()


EVERYTHING = Scope()


class WeightedTerm(msgspec.Struct, frozen=True):
    """An index term of the question, and how much it counts."""

    term: str
    weight: float = 1.0


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A time that is asked about, half-open."""

    start_at: datetime
    end_at: datetime


LOOKED_THROUGH = 1_000
"""Turns of an interval among which the best are taken: its newest."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes asked a model about an item, when no answer could be used."""

    item: str
    session_id: str
    model: str
    count: int
    not_before: datetime
    """Until then it is not asked again."""
    problem: str
    """What was wrong with the last answer."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A question, as a store can look for it."""

    scope: Scope = EVERYTHING
    terms: tuple[WeightedTerm, ...] = ()
    """Heaviest first; none: nothing is found by text."""
    vector: bytes = b""
    """The question's unit vector, float32 little-endian; empty: nothing is found by vector."""
    embedder: str = ""
    """The model of `vector`."""
    intervals: tuple[Interval, ...] = ()
    """Turns that began in one of these are found too, whatever they say."""
    levels: tuple[int, ...] = ()
    """0 for turns, 1 and up for summaries; empty for all."""
    limit: int = 50
    """The best so many turns by text, as many by vector; and the same of summaries."""

    @property
    def of_interval(self) -> int:
        """Of each interval so many turns by text, by vector, and of the newest."""
        return -(-self.limit // 2)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A turn or summary that may answer the question, with its raw scores."""

    record_id: str
    level: int = TURN_LEVEL
    session_id: str
    turn_index: int = 0
    """Of a turn; 0 for a summary."""
    at: datetime
    """When the turn began, or the summary was made."""
    text: float = 0.0
    """BM25, higher is better; 0 for one that is not among the best by text, nor an interval's."""
    similarity: float | None = None
    """Raw cosine of its best passage with the question; None without a vector of this embedder."""
    whole: float | None = None
    """The same of its first passage: all of it, as far as the embedder reads at once."""
    passages: int = 0
    """How many it has: how long it is."""


class EmbedderMark(msgspec.Struct, frozen=True):
    """The embedder that a store's vectors are of."""

    model_id: str
    dimension: int


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work."""

    work: Work
    session_id: str
    record_id: str
    """`vectors`: what is to be embedded; `level1`, `memories`, `references`: the turn; `roll_up`,
    `thread`: the session."""
    level: int = TURN_LEVEL
    """`vectors`: of the record; `roll_up`: of the summaries that wait."""

    @property
    def key(self) -> str:
        """Names it among all work, for leases."""
        return f"{self.work}:{self.level}:{self.record_id}"


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
    session_ids: tuple[str, ...] = ()
    """Those with evidence in any of these; empty for all."""
    pinned: bool | None = None
    with_superseded: bool = False
    alive_at: datetime | None = None
    """Without those that had expired then."""
    limit: int | None = None


MOST_CHANGED = 50
"""Files that a turn may write to, that something be learned of what changes together."""


class ScopeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes; conditions combine with AND. By path, then by first line."""

    project_ids: tuple[str, ...] = ()
    """Of these; one that was joined to another counts as that one. Empty: of all."""
    name: str = ""
    """Of those that are called so: by name, qualified name, or the last dotted parts of that
    (`Service.validate`); upper and lower case alike. Empty: any."""
    path: str = ""
    """Of this file."""
    defined: bool | None = None
    """Only those that their file defines still, or only those that it doesn't; None: both."""
    limit: int = 100


class FoundScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope, and where it is."""

    project_id: str
    path: str
    """Of the file that defines it, or did last."""
    defined: bool
    """Whether that file defines it still."""
    scope: CodeScope


class TurnsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that have to do with any of these scopes or files."""

    scope_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()
    """Of the files; as in ScopeQuery, but never empty where `paths` is not."""
    paths: tuple[str, ...] = ()
    limit: int = 100
    """The newest so many."""


class CodeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has to do with code, and how."""

    turn_id: str
    session_id: str
    turn_index: int
    at: datetime
    """When it began."""
    hows: tuple[ReferenceHow, ...] = ()
    """Of the scopes that were asked for; each once, in the order of REFERENCE_HOWS."""
    accesses: tuple[AccessType, ...] = ()
    """Of the files that were asked for; each once, sorted."""


class ChangedTogether(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was changed in the same turns as another."""

    path: str
    turn_count: int
    session_count: int
    last_at: datetime


class Leases(Protocol):
    """Work that two processes must not do at once."""

    async def claim(self, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
        """Lease those that are free, or were this owner's; the keys that are now its own.

        A lease ends by itself, by the store's clock (Neo4j) or this machine's.
        """

    async def release(self, keys: Sequence[str], owner_id: str) -> None:
        """Give back what was claimed."""


class CodeStore(Leases, Protocol):
    """Which scopes there are, which turns concern them, and what is known of those."""

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes in order, in one transaction."""

    async def projects(self) -> list[Project]:
        """Every known project."""

    async def session(self, session_id: str) -> Session:
        """One session; SessionNotFound when there is none."""

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """The sessions that match."""

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""

    async def get(self, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
        """Those records of a kind that exist, in the order of these ids.

        A Session, a Turn with its tool calls, a Summary, a MemoryRecord also when it is superseded,
        and what a session has one of by its id. By what they are of, where there are some:
        PutReferences (a turn's, the strongest first) and PutVectors.
        """

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Those that match, each with its evidence in order."""

    async def others(self) -> list[Owner]:
        """Those who have something here, or a name, but the one whom the store was opened for.

        Nobody where it was opened for everyone: then all in it is one person's.
        """

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """The files that define scopes, with those, by path; of these paths, or all."""

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Those that match, those that no file defines any more too."""

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Newest first; a turn once, with all that it has to do with what was asked for."""

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Other files that turns wrote to which wrote to this one; most turns first, then newest.

        Of turns that wrote to more than 50 files nothing is learned: they are left out.
        """
