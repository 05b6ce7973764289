"""The Writes that change what is stored, and the part of a store that the code index needs."""

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import msgspec

from ragmem.records.conversation import (
    ALL_TURNS,
    ChangedTogether,
    CodeFile,
    CodeReference,
    CodeTurn,
    FileAccess,
    FoundScope,
    Project,
    ProjectId,
    Record,
    RecordId,
    ScopeQuery,
    Session,
    SessionId,
    SessionQuery,
    SessionStatus,
    Summary,
    ToolCall,
    ToolCallId,
    Turn,
    TurnId,
    TurnQuery,
    TurnsQuery,
    TurnStatus,
    Usage,
)
from ragmem.records.memories import Insight, MemoryId, MemoryQuery, MemoryRecord, Owner


class Write(Record, frozen=True, tag_field="write"):
    """A change of what is stored; each kind of change has a class of its own."""

    holds: ClassVar[str] = ""
    """The field with the record to put; empty if the write's own fields are the record."""

    @property
    def record(self) -> Any:
        """The record to put: the one that it holds, or the write itself."""
        return getattr(self, self.holds) if self.holds else self

    @classmethod
    def of(cls, record: Any) -> Self:
        """Return the write that puts this record, of a kind that holds one."""
        return cls(**{cls.holds: record})


class RegisterProject(Write, frozen=True, kw_only=True, tag="project"):
    """Register a directory as a project; the same id again moves it to `project.path`.

    With `joined_into`, its sessions, existing and future, belong to that project; a project joined
    before stays where it is. With its own id there and `chosen`, the sessions of its directory,
    existing and future, are its own again, with all that is known from them.
    """

    holds = "project"
    texts = ()
    project: Project
    chosen: bool = False
    """Whether the user asks for it now: required to split what was joined, or to join it again."""


class CreateSession(Write, frozen=True, kw_only=True, tag="session"):
    """Create a session; one with this id is left unchanged."""

    holds = "session"
    texts = ("session",)
    session: Session


class UpdateSession(Write, frozen=True, kw_only=True, tag="session_update"):
    """Change the given fields; those that are None stay."""

    texts = ("title", "summary", "tags")
    session_id: SessionId
    title: str | None = None
    summary: str | None = None
    summarized_count: int | None = None
    tags: tuple[str, ...] | None = None
    status: SessionStatus | None = None
    at: datetime


class BeginTurn(Write, frozen=True, kw_only=True, tag="turn_begin"):
    """Record that the user's message was accepted: from here on the turn exists, as `running`.

    The same id again with a longer `user_message`: the user has added to it while the turn runs,
    and this is all of it. A turn that has ended is left unchanged.
    """

    texts = ("user_message",)
    turn_id: TurnId
    session_id: SessionId
    user_message: str
    started_at: datetime
    model: str | None = None
    owner_id: str | None = None


class RecordToolCall(Write, frozen=True, kw_only=True, tag="tool_call"):
    """Record that a tool call has started (`call.result` is empty) or finished."""

    holds = "call"
    texts = ("call", "accesses")
    session_id: SessionId
    call: ToolCall
    accesses: tuple[FileAccess, ...] = ()


class RecordAnswer(Write, frozen=True, kw_only=True, tag="answer"):
    """Record the answer of a running turn so far; it replaces what was recorded before.

    It is the turn's answer if the turn is never finished. A turn that has ended is left unchanged.
    """

    texts = ("assistant_message",)
    turn_id: TurnId
    session_id: SessionId
    assistant_message: str


class FinishTurn(Write, frozen=True, kw_only=True, tag="turn_finish"):
    """Record the end of a turn, whatever its status. A turn that is `completed` stays so."""

    texts = ("assistant_message", "reasoning")
    turn_id: TurnId
    session_id: SessionId
    status: TurnStatus
    assistant_message: str = ""
    reasoning: str | None = None
    model: str | None = None
    usage: Usage = Usage()
    finished_at: datetime


class AddSummary(Write, frozen=True, kw_only=True, tag="summary"):
    """Store a summary with links to what it covers."""

    holds = "summary"
    texts = ("summary",)
    summary: Summary


class PutVectors(Write, frozen=True, kw_only=True, tag="vectors"):
    """Replace the vectors of a turn, a summary, a memory or a session.

    Ignored if the store's embedder is another one, or there is no such record.
    """

    texts = ()
    record_id: RecordId
    level: int
    """0 for a turn, 1 and up for a summary; MEMORY_LEVEL or SESSION_LEVEL, with one vector."""
    embedder: str
    """Model id of the embedder."""
    text_hash: str
    """Hash of what was embedded (`ragmem.embedder.embedding_hash`)."""
    vectors: tuple[bytes, ...]
    """One per passage: unit length, float32 little-endian."""


class PutSession(Write, frozen=True, kw_only=True, tag="session_put"):
    """Put a session as another store held it, to move, restore or import it.

    Its times are kept. If it exists, what a user may change is replaced unless it was changed later
    here; what is derived from turns stays derived from the turns stored here, and it stays in its
    project, which a user may have split from the one that the other store knows.
    """

    holds = "session"
    texts = ("session",)
    session: Session


class PutTurn(Write, frozen=True, kw_only=True, tag="turn"):
    """Put a turn as another store held it, with its `turn_index`.

    The same id again replaces the turn, except one that is `completed`, and one whose user message
    has grown since, unless this one is completed. Raises StoreRefused if that index of the session,
    or the id of one of the tool calls, belongs to another turn.
    """

    holds = "turn"
    texts = ("turn",)
    turn: Turn
    accesses: dict[ToolCallId, tuple[FileAccess, ...]] = msgspec.field(default_factory=dict)
    """By `tool_call_id`."""
    to_extract: bool = False
    """Whether the other store had still to look it through for memories."""


class PutMemory(Write, frozen=True, kw_only=True, tag="memory"):
    """Store a memory with its evidence, or replace the one with its id.

    Memories that it `supersedes` stay but are no longer current: their `valid_until` is its
    `created_at`, their `superseded_by` its id. Those that are superseded already, or do not exist,
    are left as they are; a superseded memory that is put again stays superseded.
    """

    holds = "memory"
    texts = ("memory",)
    memory: MemoryRecord
    supersedes: tuple[MemoryId, ...] = ()


class PutProfile(Write, frozen=True, kw_only=True, tag="profile"):
    """Set one key of the profile, or remove it with None; the others stay."""

    texts = ("key", "value")
    key: str
    value: str | None
    at: datetime
    owner: str = ""
    """Whose profile it is; a store fills in the owner that it was opened for."""


class PutOwner(Write, frozen=True, kw_only=True, tag="owner"):
    """Set an owner's name; a name that was set later stays."""

    texts = ("name",)
    owner: str
    name: str
    at: datetime


class PutInsight(Write, frozen=True, kw_only=True, tag="insight"):
    """Store what was found in a session, in place of what was found before."""

    holds = "insight"
    texts = ("insight",)
    insight: Insight


class MarkExtracted(Write, frozen=True, kw_only=True, tag="extracted"):
    """Mark turns as looked through for memories: they are no longer pending."""

    texts = ()
    turn_ids: tuple[TurnId, ...]


class PutCodeFile(Write, frozen=True, kw_only=True, tag="code_file"):
    """Replace a file's scopes and imports by the current ones.

    A scope of it that another file defined belongs to this file from now on. One that it no longer
    defines is deleted, unless a turn refers to it: then it stays without a file that defines it.
    """

    holds = "file"
    texts = ("file",)
    file: CodeFile


class DropCodeFiles(Write, frozen=True, kw_only=True, tag="code_files_drop"):
    """Drop files that no longer exist, and their scopes as `PutCodeFile` drops them.

    The File itself stays if a turn has accessed it.
    """

    texts = ()
    project_id: ProjectId
    paths: tuple[str, ...]


class PutReferences(Write, frozen=True, kw_only=True, tag="references"):
    """Replace a turn's references to code by these.

    The turn is no longer pending. References to scopes that do not exist are left out; ignored if
    there is no such turn.
    """

    texts = ()
    turn_id: TurnId
    references: tuple[CodeReference, ...]


write_decoder = msgspec.json.Decoder[Write](reduce(or_, Write.__subclasses__()))
"""Decodes each write as the kind that its tag names."""


class OfASession(NamedTuple):
    """A kind of record that a session has one of, keyed by the session's id.

    It goes where its session goes: moved, backed up, copied into a document and deleted with it.
    """

    put: type[Any]
    """The Write that puts it, in place of the session's record of this kind."""
    record: type[Record]
    table: str
    """Its table in SQLite, and the name of such records in counts and documents."""
    called: str
    """The noun for one of them, with its article."""
    words: str
    """The words for it before its session's id."""
    changed_at: str
    """The field with the time of its last change: of two records the later one stays."""


OF_SESSIONS = (
    OfASession(PutInsight, Insight, "insights", "an insight", "insight into", "created_at"),
)


def changed(write: Write, **fields: object) -> Write:
    """Return the write with other values in fields of the record that it puts."""
    if not write.holds:
        return msgspec.structs.replace(write, **fields)
    record = msgspec.structs.replace(write.record, **fields)
    return msgspec.structs.replace(write, **{write.holds: record})


AnyRecord = TypeVar("AnyRecord", bound=Record)


class Applied(msgspec.Struct, frozen=True):
    """What only the store could know."""

    turn_indexes: dict[str, int] = {}
    """turn_id to turn_index, for each BeginTurn among the writes."""


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `store info` and `doctor` show."""

    kind: str
    location: str
    """A path, or a URL without credentials."""
    version: str
    """Version of the engine."""
    schema_version: int
    counts: dict[str, int]
    """Records by kind: sessions, turns, tool_calls, summaries, memories, projects, files
    (that tools touched), scopes."""
    summaries_per_level: dict[int, int] = {}
    """Lowest level first."""
    size_bytes: int | None = None


class Finding(msgspec.Struct, frozen=True):
    """A broken guarantee found in a store."""

    what: str
    """The broken guarantee, in words."""
    where: str
    """Ids of the first records concerned, or the engine's message."""
    count: int = 1


class Leases(Protocol):
    """Leases on work that two processes must not do at once."""

    async def claim(self, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
        """Lease the keys that are free or already this owner's; return those it holds now.

        A lease expires by the store's clock (Neo4j) or this machine's (SQLite).
        """

    async def release(self, keys: Sequence[str], owner_id: str) -> None:
        """Release what was claimed."""


class CodeStore(Leases, Protocol):
    """The code index's view of a store: scopes, the turns that refer to them, and their records."""

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes in order, in one transaction."""

    async def projects(self) -> list[Project]:
        """Return every known project."""

    async def session(self, session_id: str) -> Session:
        """Return one session; SessionNotFound when there is none."""

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """Return the sessions that match."""

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Return turns in order, each with its tool calls in order."""

    async def get(self, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
        """Return those records of a kind that exist, in the order of these ids.

        Kinds: Session; Turn, with its tool calls; Summary; MemoryRecord, also when superseded; and
        the kinds that a session has one of, by its id. PutReferences (a turn's, the strongest
        first) and PutVectors go by the id of what they belong to, if it has any.
        """

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Return the memories that match, each with its evidence in order."""

    async def others(self) -> list[Owner]:
        """Return the other owners who have something here, or a name.

        Empty if the store was opened for everyone: then everything in it is one user's.
        """

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """Return the files with these paths, or all, that define scopes, with those; by path."""

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Find the scopes that match, including those that no file defines any more."""

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Return turns, newest first; each once, with all its relations to what was asked for."""

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Return other files written to in turns that wrote to this one; those with most first.

        Turns that wrote to more than 50 files are ignored: nothing can be learned from them.
        """
