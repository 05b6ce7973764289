"""Projects, sessions, turns, tool calls, files, summaries, and the code that turns refer to.

A scope is a named piece of a file: a function, a class, a section of a text. Its id stays the same
as long as its path, name and kind do, and follows its file when that is renamed unchanged.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import msgspec

SessionStatus = Literal["active", "archived"]
ASKED = "ask"
"""Tag of a session that `ragmem ask` began, until it is continued in a chat."""
UNSUMMARIZED = "unsummarized"
"""Tag of a session that gets no summaries from background work, whoever works on it."""
TurnStatus = Literal["running", "completed", "interrupted", "failed"]
AccessType = Literal["read", "write", "search", "list"]
CallOrigin = Literal["model", "mention", "person"]

DEFAULT_TITLE = "New Conversation"


class IdOf(NamedTuple):
    """Marks a string as a record's id, so that a copy of a session can replace it by a new one."""

    kind: str


ProjectId = Annotated[str, IdOf("project")]
SessionId = Annotated[str, IdOf("session")]
TurnId = Annotated[str, IdOf("turn")]
ToolCallId = Annotated[str, IdOf("tool call")]
SummaryId = Annotated[str, IdOf("summary")]
RecordId = Annotated[str, IdOf("turn, summary, memory or session")]
"""An id that may be of any of these kinds."""


def utc_now() -> datetime:
    """The wall clock; the default of every `clock` parameter."""
    return datetime.now(UTC)


def wrong_time(at: datetime | None) -> str:
    """Return why a time from a file can't be stored, or "" if it can.

    The first and last years can't be shown: another time zone may be out of range.
    """
    if at and at.tzinfo is None:
        return "a time has no time zone"
    return "a time lies beyond the years 2 to 9998" if at and not 1 < at.year < 9999 else ""


class Record(msgspec.Struct, frozen=True):
    """Base of everything stored, and of the writes."""

    texts: ClassVar[tuple[str, ...]]
    """Fields that may hold a secret, or records that do. Required for anything that is written."""

    @property
    def uuid(self) -> str:
        """Return its id, the first field, under the name that the programming interface uses."""
        return str(getattr(self, self.__struct_fields__[0]))


class Project(Record, frozen=True, kw_only=True):
    """A folder whose sessions share their memory."""

    project_id: ProjectId
    path: str
    """Real path of its top directory."""
    remote: str | None = None
    """The checkout's `origin`, without user information; without one, `commit:` and the id of its
    first commit, if it was made in this checkout."""
    created_at: datetime
    joined_into: ProjectId | None = None
    """The project it was joined to, which its sessions belong to. Its own id once the user split it
    off again: then only the user joins it, and being a worktree no longer does."""

    @property
    def root_id(self) -> str:
        """Id of the project that the directory's sessions belong to."""
        return self.joined_into or self.project_id


class Session(Record, frozen=True, kw_only=True):
    """A conversation bound to the working directory it was started in.

    `turn_count`, `message_count`, `first_message`, `last_message` and `last_activity_at`
    are derived by the store; what a caller puts there is ignored by `CreateSession`.
    """

    texts = ("title", "summary", "tags")
    session_id: SessionId
    cwd: str
    """Real path; see `ragmem.memory.projects.normalize_cwd`."""
    project_id: ProjectId
    project_path: str | None = None
    title: str = DEFAULT_TITLE
    summary: str | None = None
    """The summary of the conversation so far."""
    summarized_count: int = 0
    """`message_count` when the summary was made."""
    tags: tuple[str, ...] = ()
    status: SessionStatus = "active"
    started_at: datetime
    updated_at: datetime
    last_activity_at: datetime
    turn_count: int = 0
    """Turns that a reader of this session sees: its own and, for a fork, the shared ones."""
    message_count: int = 0
    """Two for each completed turn."""
    first_message: str | None = None
    """For a session without a title: the first of its own turns' messages that asked something."""
    last_message: str | None = None
    """The newest user message."""
    parent_session_id: SessionId | None = None
    forked_at_index: int | None = None
    """A fork sees its parent's turns up to this `turn_index`; its own go on from there."""
    owner: str = ""
    """Id of the owner; a store fills in the one that it was opened for."""

    @property
    def called(self) -> str:
        """Return the name to show: its title, or without one its first prompt.

        For a fork that has asked nothing yet, the newest of the shared prompts, unless that begins
        with `!`: a shell command of the user's.
        """
        if self.title != DEFAULT_TITLE:
            return self.title
        last = self.last_asked
        first = as_shown(self.first_message or "")
        return first or (last if not last.startswith("!") else "") or self.title

    @property
    def last_asked(self) -> str:
        """The newest prompt as the user is shown it; empty if there is none."""
        return as_shown(self.last_message or "")


class FileAccess(Record, frozen=True, kw_only=True):
    """One access of a tool to one file."""

    texts = ("path",)
    path: str
    """Relative to the project's folder with `/`, absolute when outside of it."""
    tool_name: str
    access_type: AccessType
    accessed_at: datetime
    turn_index: int = 0
    order: int = 0
    """The tool call's order within the turn."""


UNDO = "undo"
"""The `tool_name` of the call that records which edits the user has undone."""
REWIND = "/rewind"
"""The `user_message` of the turn that records a rewind, around such a call: the user left the
session for a fork that ends before one of its prompts, with or without undoing edits."""


class ToolCall(Record, frozen=True, kw_only=True):
    """A tool call as it happened, with its result."""

    texts = ("tool_name", "arguments", "result", "error", "preamble")
    tool_call_id: ToolCallId
    turn_id: TurnId
    order: int
    iteration: int = 0
    """Which model call of the turn asked for it, 0-based."""
    tool_name: str
    arguments: str = "{}"
    """A JSON object."""
    result: str = "{}"
    """A JSON object with at least `text`: what the model was shown. Empty while it runs, and for
    ever if the process died: its effects are unknown then, unless `error` describes them."""
    success: bool = True
    error: str | None = None
    started_at: datetime
    duration_ms: int = 0
    origin: CallOrigin = "model"
    preamble: str = ""
    """What the agent said before the calls of this iteration; on the first of them only."""

    @property
    def is_unknown(self) -> bool:
        """Whether its effects are unknown: it still runs, or the process died in it."""
        return not self.result and not self.error

    @property
    def is_undo(self) -> bool:
        """Whether it records edits undone by the user; a model may give any call this name."""
        return self.tool_name == UNDO and self.origin == "person"

    @property
    def result_size_bytes(self) -> int:
        """Return the size of `result` in UTF-8."""
        return len(self.result.encode("utf-8", "replace"))


class Usage(Record, frozen=True, kw_only=True):
    """Tokens as the provider reported them, summed over a turn; None where it did not."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    model_calls: int = 0
    api_ms: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Add each field; what is None in both stays None."""
        sums: dict[str, Any] = {}
        for name in self.__struct_fields__:
            both = (getattr(self, name), getattr(other, name))
            known = [each for each in both if each is not None]
            sums[name] = sum(known) if known else None
        return Usage(**sums)


_MARKED = re.compile(
    r"\A<stdin>\n(.*)\n</stdin>\Z|"
    r"\A<command>\n(?:<typed>\n.*?\n</typed>\n)?(.*)\n</command>(?=\n\n|\Z)",
    re.DOTALL,
)
_TYPED = re.compile(
    r"\A<command>\n<typed>\n(.*?)\n</typed>\n(?:.*\n</command>(?:\n\n|\Z)|.*\Z)", re.DOTALL
)
"""The end of the message may have been cut off."""


def without_marks(message: str) -> str:
    """Return a prompt without the tags around what nobody typed.

    `<stdin>`, if all of it came through a pipe, or `<command>`, around a slash command's prompt.
    """
    return _MARKED.sub(lambda marked: marked[1] or marked[2] or "", message)


def as_typed(message: str) -> str:
    """Return a prompt with the slash command as typed in place of the prompt that it stands for."""
    typed = _TYPED.match(message)
    return f"{typed[1]} {message[typed.end() :]}".rstrip() if typed else message


def as_shown(message: str) -> str:
    """Return a prompt as the user is shown it: as typed, without tags."""
    return without_marks(as_typed(message))


class Turn(Record, frozen=True, kw_only=True):
    """One prompt of the user and everything that followed from it."""

    texts = ("user_message", "assistant_message", "reasoning", "tool_calls")
    turn_id: TurnId
    session_id: SessionId
    """The session that it was recorded in (a fork's shared turns keep their parent's)."""
    turn_index: int = 0
    """Assigned by the store, from 1."""
    user_message: str
    assistant_message: str = ""
    reasoning: str | None = None
    status: TurnStatus = "running"
    started_at: datetime
    finished_at: datetime | None = None
    model: str | None = None
    usage: Usage = Usage()
    owner_id: str | None = None
    """The process that runs it, while `status` is `running`."""
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def timestamp(self) -> datetime:
        """When it ended; when it began while it runs."""
        return self.finished_at or self.started_at

    @property
    def asked(self) -> str:
        """The prompt as the user is shown it."""
        return as_shown(self.user_message)

    @property
    def prompt(self) -> str:
        """The prompt as the model was sent it."""
        return without_marks(self.user_message)

    @property
    def said(self) -> str:
        """Return all text of the agent in order: before its tool calls, then its answer."""
        between = (call.preamble for call in self.tool_calls)
        return "\n\n".join(filter(None, (*between, self.assistant_message)))

    @property
    def char_count(self) -> int:
        """Code points of the user's and the agent's message; tool results do not count."""
        return len(self.user_message) + len(self.assistant_message)

    @property
    def is_own_command(self) -> bool:
        """Whether the user ran a command without a model: nothing was asked, nothing answered."""
        return any(call.origin == "person" for call in self.tool_calls)

    @property
    def is_undo(self) -> bool:
        """Whether it only records that the user has undone edits, or rewound the session."""
        return any(call.is_undo for call in self.tool_calls)

    @property
    def is_rewind(self) -> bool:
        """Whether it records that the user has left the session for a fork by `/rewind`."""
        return self.is_undo and self.user_message == REWIND


class Summary(Record, frozen=True, kw_only=True):
    """A summary of turns (level 1) or of summaries of the level below."""

    texts = ("text", "key_findings", "topics")
    summary_id: SummaryId
    session_id: SessionId
    text: str
    level: int
    turn_count: int
    files_mentioned: tuple[str, ...] = ()
    key_findings: tuple[str, ...] = ()
    tools_used: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    created_at: datetime
    covers: tuple[RecordId, ...]
    """Ids of the turns (level 1) or summaries (level 2 and up) that it summarizes."""
    extractive: bool = False
    """Cut from the turns without a model; to be replaced by a model's."""

    @property
    def char_count(self) -> int:
        """Count the text's code points."""
        return len(self.text)

    def repeats(self, shown: Collection[str]) -> bool:
        """Whether all that it summarizes is among these turns."""
        return self.level == 1 and all(turn_id in shown for turn_id in self.covers)


# --- queries and their results ----------------------------------------------------------


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
    """Only the newest ones."""
    max_chars: int | None = None
    """The newest whole turns whose `char_count` sums to at most this; at least one."""
    before_index: int | None = None
    """Only turns with a smaller index."""
    statuses: tuple[str, ...] = ()
    """Empty for all."""
    with_tool_calls: bool = True


ALL_TURNS = TurnQuery()
WITHOUT_CALLS = TurnQuery(with_tool_calls=False)


class Span(msgspec.Struct, frozen=True):
    """A session's own turns from index `first` to `last`; empty when `last` is smaller."""

    session_id: str
    first: int
    last: int
    parent_id: str | None = None
    """The session that it was forked from."""


Work = Literal["vectors", "level1", "roll_up", "thread", "memories", "references"]
WORK: tuple[Work, ...] = get_args(Work)
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
    """A half-open range of time that the question asks about."""

    start_at: datetime
    end_at: datetime


LOOKED_THROUGH = 1_000
"""The best of an interval are taken among this many of its newest turns."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The failed attempts of all processes at an item: answers of a model that were unusable."""

    item: str
    session_id: str
    model: str
    count: int
    not_before: datetime
    """The item is not tried again before this."""
    problem: str = ""
    """What was wrong with the last answer."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A question, in the form that a store searches for."""

    scope: Scope = EVERYTHING
    terms: tuple[WeightedTerm, ...] = ()
    """Heaviest first; without any, nothing is found by text."""
    vector: bytes = b""
    """The question's unit vector, float32 little-endian; if empty, nothing is found by vector."""
    embedder: str = ""
    """Model id of the embedder of `vector`."""
    intervals: tuple[Interval, ...] = ()
    """Turns that began in one of these are found too, whatever their text."""
    levels: tuple[int, ...] = ()
    """0 for turns, 1 and up for summaries; empty for all."""
    limit: int = 50
    """Maximum number of turns by text, and by vector; and the same of summaries."""

    @property
    def of_interval(self) -> int:
        """Return how many turns of each interval come by text, by vector, and as the newest."""
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
    """BM25, higher is better; 0 if it is not among the best by text, in all or of an interval."""
    similarity: float | None = None
    """Raw cosine of its best passage with the question; None without a vector of this embedder."""
    whole: float | None = None
    """Raw cosine of its first passage: all of it, if the embedder can read it at once."""
    passages: int = 0
    """How many passages it has, as a measure of its length."""


class EmbedderMark(msgspec.Struct, frozen=True):
    """The embedder that a store's vectors are of."""

    model_id: str
    dimension: int


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of background work."""

    work: Work
    session_id: str
    record_id: str
    """`vectors`: the record to embed; `level1`, `memories`, `references`: the turn; `roll_up`,
    `thread`: the session."""
    level: int = TURN_LEVEL
    """`vectors`: of the record; `roll_up`: of the summaries to roll up."""

    @property
    def key(self) -> str:
        """Identifies it among all work, for leases."""
        return f"{self.work}:{self.level}:{self.record_id}"


ScopeKind = Literal["class", "function", "method", "type", "constant", "block", "section", "text"]
ReferenceHow = Literal["edited", "read", "found", "named"]
"""Strongest first: a turn has one reference to a scope."""

SCOPE_KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)
REFERENCE_HOWS: tuple[ReferenceHow, ...] = get_args(ReferenceHow)


class CodeScope(Record, frozen=True, kw_only=True):
    """A scope as it is in its file, except for its text, which is only there."""

    texts = ("name", "qualified_name", "signature", "docstring")
    scope_id: str
    kind: ScopeKind
    name: str
    """`validate`; a section's heading; empty for a block or text without one."""
    qualified_name: str
    """With the scopes around it: `AuthService.validate`; unique within kind and file."""
    signature: str = ""
    """Its first line or lines, at most 300 characters."""
    docstring: str = ""
    """Its docstring or the comment about it, at most 500 characters."""
    start_line: int
    """1-based."""
    end_line: int
    """Inclusive."""
    hash: str
    """Of its text."""


class CodeFile(Record, frozen=True, kw_only=True):
    """A file of a project with what it defines."""

    texts = ("scopes",)
    project_id: ProjectId
    """Of the directory that it is in, even if that project was joined to another."""
    path: str
    """Relative to the project's folder, with `/`; as in `FileAccess`."""
    language: str
    """`python`, `markdown`, …; `text` where none is known."""
    hash: str
    """Of its bytes."""
    scopes: tuple[CodeScope, ...] = ()
    """In the order of their first lines."""
    imports: tuple[str, ...] = ()
    """Paths of the files of the project that it imports."""


class CodeReference(Record, frozen=True, kw_only=True):
    """How a turn refers to a scope."""

    scope_id: str
    how: ReferenceHow


MOST_CHANGED = 50
"""Of a turn that wrote to more files than this, nothing is learned about changing together."""


class ScopeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes; conditions combine with AND. By path, then by first line."""

    project_ids: tuple[str, ...] = ()
    """Of these; a project that was joined to another counts as that one. Empty: of all."""
    name: str = ""
    """Scopes with this name, qualified name, or last dotted parts of that (`Service.validate`);
    case-insensitive. Empty: any."""
    path: str = ""
    """Of this file."""
    defined: bool | None = None
    """True: only scopes that their file still defines; False: only those it doesn't; None: both."""
    limit: int = 100


class FoundScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope, and where it is."""

    project_id: str
    path: str
    """The file that defines it, or was the last to do so."""
    defined: bool
    """Whether that file still defines it."""
    scope: CodeScope


class TurnsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that refer to any of these scopes, or accessed any of these files."""

    scope_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()
    """Of the files; as in ScopeQuery, but required where `paths` are given."""
    paths: tuple[str, ...] = ()
    limit: int = 100
    """The newest ones."""


class CodeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that refers to code, and how."""

    turn_id: str
    session_id: str
    turn_index: int
    at: datetime
    """When it began."""
    hows: tuple[ReferenceHow, ...] = ()
    """How it refers to the scopes asked for; each once, in the order of REFERENCE_HOWS."""
    accesses: tuple[AccessType, ...] = ()
    """How it accessed the files asked for; each once, sorted."""


class ChangedTogether(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written to in the same turns as another."""

    path: str
    turn_count: int
    session_count: int
    last_at: datetime
