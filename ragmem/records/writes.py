"""The Writes that change what is stored, and a store as far as the code index needs it."""

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
    """The field with the record that is put; empty where the write's own fields are all of it."""

    @property
    def record(self) -> Any:
        """What is put: the record that it holds, or the write itself."""
        return getattr(self, self.holds) if self.holds else self

    @classmethod
    def of(cls, record: Any) -> Self:
        """The write that puts this record, of a kind that holds one."""
        return cls(**{cls.holds: record})


class RegisterProject(Write, frozen=True, kw_only=True, tag="project"):
    """Remember that a folder is a project; the same id again moves it to `project.path`.

    With `joined_into` its sessions, those that are there and those to come, are that project's; a
    project joined twice stays where it is. With its own id there, and `chosen`, the sessions of its
    folder are its own again, with all that is known from them, and so are those to come.
    """

    holds = "project"
    texts = ()
    project: Project
    chosen: bool = False
    """Whether a person says so now: only then what was joined is split, or joined again after."""


class CreateSession(Write, frozen=True, kw_only=True, tag="session"):
    """Start a session; an id that exists is left as it is."""

    holds = "session"
    texts = ("session",)
    session: Session


class UpdateSession(Write, frozen=True, kw_only=True, tag="session_update"):
    """Change what is given, leave what is None."""

    texts = ("title", "summary", "tags")
    session_id: SessionId
    title: str | None = None
    summary: str | None = None
    summarized_count: int | None = None
    tags: tuple[str, ...] | None = None
    status: SessionStatus | None = None
    at: datetime


class BeginTurn(Write, frozen=True, kw_only=True, tag="turn_begin"):
    """The person's message was accepted: the turn exists from here on, as `running`.

    The same id again, with a longer `user_message`: the person has said more while the turn runs,
    and this is all of it. A turn that has ended stays as it is.
    """

    texts = ("user_message",)
    turn_id: TurnId
    session_id: SessionId
    user_message: str
    started_at: datetime
    model: str | None = None
    owner_id: str | None = None


class RecordToolCall(Write, frozen=True, kw_only=True, tag="tool_call"):
    """A tool call has started (`call.result` is empty) or finished.

    The same id again replaces the call, but a start never replaces a finish.
    """

    holds = "call"
    texts = ("call", "accesses")
    session_id: SessionId
    call: ToolCall
    accesses: tuple[FileAccess, ...] = ()


class RecordAnswer(Write, frozen=True, kw_only=True, tag="answer"):
    """What has come of the answer of a turn that runs, all of it; it replaces what had come before.

    It is the turn's answer should nobody finish it. One that has ended stays as it is.
    """

    texts = ("assistant_message",)
    turn_id: TurnId
    session_id: SessionId
    assistant_message: str


class FinishTurn(Write, frozen=True, kw_only=True, tag="turn_finish"):
    """The turn has ended, whichever way. A turn that is `completed` stays so."""

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
    """Store a summary with its links to what it covers."""

    holds = "summary"
    texts = ("summary",)
    summary: Summary


class PutVectors(Write, frozen=True, kw_only=True, tag="vectors"):
    """The vectors of a turn, a summary, a memory or a session; they replace those that it had.

    Left out when the store's embedder is another one, or there is no such record.
    """

    texts = ()
    record_id: RecordId
    level: int
    """0 for a turn, 1 and up for a summary; MEMORY_LEVEL, SESSION_LEVEL: with one vector."""
    embedder: str
    """The model's id."""
    text_hash: str
    """Of what was embedded (`ragmem.embedder.embedding_hash`)."""
    vectors: tuple[bytes, ...]
    """One a passage: unit length, float32 little-endian."""


class PutSession(Write, frozen=True, kw_only=True, tag="session_put"):
    """A session as another store held it: for moving, restoring and importing.

    Times are taken over. Of one that exists, what a person may change is replaced unless it was
    changed later here; what is derived from turns stays derived from those that are here, and it
    stays in its project, which a person may have split from the one that the other store knows.
    """

    holds = "session"
    texts = ("session",)
    session: Session


class PutTurn(Write, frozen=True, kw_only=True, tag="turn"):
    """A turn as another store held it, with its `turn_index`.

    The same id again replaces the turn; one that is `completed` stays so, and so does one in which
    the person has said more since, unless this one is completed. StoreRefused when that place of
    the session, or one of the tool calls, belongs to another turn.
    """

    holds = "turn"
    texts = ("turn",)
    turn: Turn
    accesses: dict[ToolCallId, tuple[FileAccess, ...]] = msgspec.field(default_factory=dict)
    """By `tool_call_id`."""


class PutMemory(Write, frozen=True, kw_only=True, tag="memory"):
    """Store a memory with its evidence, or replace the one of that id.

    Those that it `supersedes` stay, but are no longer current: `valid_until` its `created_at`,
    `superseded_by` it. What is superseded already, or not there, is left as it is; and a memory
    that is superseded stays so when it is put again. All in one transaction.
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
    """Whose profile; a store fills in the one that it was opened for."""


class PutOwner(Write, frozen=True, kw_only=True, tag="owner"):
    """Say what an owner is called; a name that was set later stays."""

    texts = ("name",)
    owner: str
    name: str
    at: datetime


class PutInsight(Write, frozen=True, kw_only=True, tag="insight"):
    """Store what was found in a session; it replaces what was found before."""

    holds = "insight"
    texts = ("insight",)
    insight: Insight


class MarkExtracted(Write, frozen=True, kw_only=True, tag="extracted"):
    """These turns were looked through for memories: none of them is due for it any more."""

    texts = ()
    turn_ids: tuple[TurnId, ...]


class PutCodeFile(Write, frozen=True, kw_only=True, tag="code_file"):
    """A file's scopes and imports as they are now; they replace those that it had.

    A scope of it that another file defined is this one's from now on. One that it defines no more
    goes, unless a turn has to do with it: then it stays, without a file that defines it.
    """

    holds = "file"
    texts = ("file",)
    file: CodeFile


class DropCodeFiles(Write, frozen=True, kw_only=True, tag="code_files_drop"):
    """These files are no more; their scopes go as those do that a file defines no more.

    The File itself stays where a turn has accessed it.
    """

    texts = ()
    project_id: ProjectId
    paths: tuple[str, ...]


class PutReferences(Write, frozen=True, kw_only=True, tag="references"):
    """What a turn has to do with code, all of it; it replaces what was known.

    The turn is not due for it any more. References to scopes that do not exist are left out, and
    so is all of it where there is no such turn.
    """

    texts = ()
    turn_id: TurnId
    references: tuple[CodeReference, ...]


write_decoder: msgspec.json.Decoder[Write] = msgspec.json.Decoder(
    reduce(or_, Write.__subclasses__())
)
"""Reads each write as the kind that it says it is."""


class OfASession(NamedTuple):
    """A kind of record of which a session has one: its id is the record's key.

    Such a record goes where its session goes: it is moved, backed up, copied into a document and
    deleted with it.
    """

    put: type[Any]
    """The Write that puts it, in place of what the session had of its kind."""
    record: type[Record]
    table: str
    """Where SQLite keeps it, and what such records are called in counts and in documents."""
    called: str
    """What one is called, with its article."""
    words: str
    """What it is called before its session's id."""
    changed_at: str
    """The field with the time of its last change: of two the later one stays."""


OF_SESSIONS = (
    OfASession(PutInsight, Insight, "insights", "an insight", "insight into", "created_at"),
)


def changed(write: Write, **fields: object) -> Write:
    """The write with other values in the fields of what it puts."""
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


class Finding(msgspec.Struct, frozen=True):
    """Something in a store that should not be."""

    what: str
    """The promise that is broken, in words."""
    where: str
    """Ids of the first records concerned, or what the engine said."""
    count: int = 1


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
        """Return every known project."""

    async def session(self, session_id: str) -> Session:
        """Return one session; SessionNotFound when there is none."""

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """Return the sessions that match."""

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""

    async def get(self, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
        """Return those records of a kind that exist, in the order of these ids.

        A Session, a Turn with its tool calls, a Summary, a MemoryRecord also when it is superseded,
        and what a session has one of by its id. By what they are of, where there are some:
        PutReferences (a turn's, the strongest first) and PutVectors.
        """

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Return those that match, each with its evidence in order."""

    async def others(self) -> list[Owner]:
        """Return who else has something here, or a name, than the one the store was opened for.

        Nobody where it was opened for everyone: then all in it is one person's.
        """

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """The files that define scopes, with those, by path; of these paths, or all."""

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Find the scopes that match, those that no file defines any more too."""

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Newest first; a turn once, with all that it has to do with what was asked for."""

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Other files that turns wrote to which wrote to this one; most turns first, then newest.

        Of turns that wrote to more than 50 files nothing is learned: they are left out.
        """
