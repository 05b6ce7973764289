"""Projects, sessions, turns, tool calls, files, summaries, and the code that turns have to do with.

A scope is a piece of a file with a name of its own: a function, a class, a section of a text. Its
id stays while its path, name and kind stay, and goes with its file where that is renamed as it is.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar, get_args

import msgspec

SessionStatus = Literal["active", "archived"]
ASKED = "ask"
"""Tag of a session that `ragmem ask` began, until somebody chats in it."""
UNSUMMARIZED = "unsummarized"
"""Tag of a session of which the background makes no summaries, whoever works on it."""
TurnStatus = Literal["running", "completed", "interrupted", "failed"]
AccessType = Literal["read", "write", "search", "list"]
CallOrigin = Literal["model", "mention", "person"]

DEFAULT_TITLE = "New Conversation"


class IdOf(NamedTuple):
    """Marks a text as the id of a record: where a copy gets other ids, it stands for another."""

    kind: str


ProjectId = Annotated[str, IdOf("project")]
SessionId = Annotated[str, IdOf("session")]
TurnId = Annotated[str, IdOf("turn")]
ToolCallId = Annotated[str, IdOf("tool call")]
SummaryId = Annotated[str, IdOf("summary")]
RecordId = Annotated[str, IdOf("turn, summary, memory or session")]
"""Where something is of records of several kinds."""


def utc_now() -> datetime:
    """The wall clock; the default of every `clock` parameter."""
    return datetime.now(UTC)


def wrong_time(at: datetime | None) -> str:
    """Why a time that a file brings can't be stored; empty where it can.

    What lies at an end of the calendar can't be shown: in another time zone it is beyond.
    """
    if at and at.tzinfo is None:
        return "a time has no time zone"
    return "a time lies beyond the years 2 to 9998" if at and not 1 < at.year < 9999 else ""


class Record(msgspec.Struct, frozen=True):
    """Base of everything stored, and of what is written."""

    texts: ClassVar[tuple[str, ...]]
    """Fields that may hold a secret, or records that do. Without them nothing can be written."""

    @property
    def uuid(self) -> str:
        """Return its id, the first field, under the name that the interface for programs has."""
        return str(getattr(self, self.__struct_fields__[0]))


class Project(Record, frozen=True, kw_only=True):
    """A folder whose sessions share their memory."""

    project_id: ProjectId
    path: str
    """Real path of its top folder."""
    remote: str | None = None
    """The checkout's `origin`, without user information; without one `commit:` and the id of its
    first commit, where that was made in it."""
    created_at: datetime
    joined_into: ProjectId | None = None
    """The project that it was joined to: whose its sessions are. Its own id once the person split
    it off again: then only they join it, never its being a worktree."""

    @property
    def root_id(self) -> str:
        """Id of the project that the folder's sessions belong to."""
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
    """The digest of the conversation so far."""
    summarized_count: int = 0
    """`message_count` when the summary was made."""
    tags: tuple[str, ...] = ()
    status: SessionStatus = "active"
    started_at: datetime
    updated_at: datetime
    last_activity_at: datetime
    turn_count: int = 0
    """Turns a reader of this session sees: its own and, for a fork, the shared ones."""
    message_count: int = 0
    """Two for each completed turn."""
    first_message: str | None = None
    """Of one that was never named: the first message of its own turns that asked something."""
    last_message: str | None = None
    """The newest user message."""
    parent_session_id: SessionId | None = None
    forked_at_index: int | None = None
    """A fork sees its parent's turns up to this `turn_index`; its own go on from there."""
    owner: str = ""
    """Id of the person whose it is; a store fills in the one that it was opened for."""

    @property
    def called(self) -> str:
        """Return what people call it: its title, or the first prompt of one that was never named.

        Of a fork that has asked nothing yet it is the newest of those that it shares. What
        begins with `!` is a command of the person's own.
        """
        if self.title != DEFAULT_TITLE:
            return self.title
        last = self.last_asked
        first = as_shown(self.first_message or "")
        return first or (last if not last.startswith("!") else "") or self.title

    @property
    def last_asked(self) -> str:
        """The newest prompt as a person is shown it; empty where there is none."""
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
"""What the call of a turn is called that says which edits the person has taken back."""
REWIND = "/rewind"
"""What the turn of such a call is called with which a session is left: the person goes on in a fork
that ends before a prompt of it, whether edits were taken back or not."""


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
    ever if the process died: then its effects are unknown, unless `error` says of them."""
    success: bool = True
    error: str | None = None
    started_at: datetime
    duration_ms: int = 0
    origin: CallOrigin = "model"
    preamble: str = ""
    """What the agent said before the calls of this iteration; on the first of them only."""

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known of its effects: the process died in it, or it runs."""
        return not self.result and not self.error

    @property
    def is_undo(self) -> bool:
        """Whether the person has taken edits back by it; a model may call anything so."""
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
        """Sums; what neither reported stays unknown."""
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            model_calls=self.model_calls + other.model_calls,
            api_ms=self.api_ms + other.api_ms,
        )


_Number = TypeVar("_Number", int, float)


def _sum(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


_MARKED = re.compile(
    r"\A<stdin>\n(.*)\n</stdin>\Z|"
    r"\A<command>\n(?:<typed>\n.*?\n</typed>\n)?(.*)\n</command>(?=\n\n|\Z)",
    re.DOTALL,
)
_TYPED = re.compile(
    r"\A<command>\n<typed>\n(.*?)\n</typed>\n(?:.*\n</command>(?:\n\n|\Z)|.*\Z)", re.DOTALL
)
"""Also of what was cut."""


def without_marks(message: str) -> str:
    """Return a prompt without the marks that say what of it nobody typed: what came through a pipe
    alone, or what a command stands for; any other as it is.
    """
    return _MARKED.sub(lambda marked: marked[1] or marked[2] or "", message)


def as_typed(message: str) -> str:
    """Return a prompt with what was typed for a command in the place of what that stands for."""
    typed = _TYPED.match(message)
    return f"{typed[1]} {message[typed.end() :]}".rstrip() if typed else message


def as_shown(message: str) -> str:
    """Return a prompt as a person is shown it: as it was typed, and without marks."""
    return without_marks(as_typed(message))


class Turn(Record, frozen=True, kw_only=True):
    """One prompt of the person and all that followed from it."""

    texts = ("user_message", "assistant_message", "reasoning", "tool_calls")
    turn_id: TurnId
    session_id: SessionId
    """The session that it was said in (a fork's shared turns keep their parent's)."""
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
    """The process that runs it, while `status` is running."""
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def timestamp(self) -> datetime:
        """When it was complete; of one that runs, when it began."""
        return self.finished_at or self.started_at

    @property
    def asked(self) -> str:
        """What it began with, as a person is shown it."""
        return as_shown(self.user_message)

    @property
    def prompt(self) -> str:
        """What it began with, as the model was asked it."""
        return without_marks(self.user_message)

    @property
    def said(self) -> str:
        """Return all that the agent said in it, in order: between its calls, then its answer."""
        between = (call.preamble for call in self.tool_calls)
        return "\n\n".join(filter(None, (*between, self.assistant_message)))

    @property
    def char_count(self) -> int:
        """Code points of user and assistant text; tool results do not count."""
        return len(self.user_message) + len(self.assistant_message)

    @property
    def is_own_command(self) -> bool:
        """Whether the person ran a command by themself: nothing was asked, nothing said."""
        return any(call.origin == "person" for call in self.tool_calls)

    @property
    def is_undo(self) -> bool:
        """Whether it says no more than that the person has taken edits back, or gone back."""
        return any(call.is_undo for call in self.tool_calls)

    @property
    def is_rewind(self) -> bool:
        """Whether it says that the person has gone back in the session, and on in a fork of it."""
        return self.is_undo and self.user_message == REWIND


class Summary(Record, frozen=True, kw_only=True):
    """A digest of turns (level 1) or of summaries of the level below."""

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
    """Ids of the turns (level 1) or summaries (level 2 and up) that it digests."""
    extractive: bool = False
    """Cut from the turns without a model; to be redone."""

    @property
    def char_count(self) -> int:
        """Count the text's code points."""
        return len(self.text)

    def repeats(self, shown: Collection[str]) -> bool:
        """Whether all that it digests is among these turns."""
        return self.level == 1 and all(turn_id in shown for turn_id in self.covers)


# --- what is asked, and what is answered, beside records --------------------------------


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
WITHOUT_CALLS = TurnQuery(with_tool_calls=False)


class Span(msgspec.Struct, frozen=True):
    """A session's own turns from `first` to `last` by index; none when `last` is smaller."""

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
    problem: str = ""
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
        """Return how many turns of each interval are found by text, by vector, as the newest."""
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


ScopeKind = Literal["class", "function", "method", "type", "constant", "block", "section", "text"]
ReferenceHow = Literal["edited", "read", "found", "named"]
"""The strongest first: a turn has one reference to a scope."""

SCOPE_KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)
REFERENCE_HOWS: tuple[ReferenceHow, ...] = get_args(ReferenceHow)


class CodeScope(Record, frozen=True, kw_only=True):
    """A scope as it stands in its file; never its text, which is in the file."""

    texts = ("name", "qualified_name", "signature", "docstring")
    scope_id: str
    kind: ScopeKind
    name: str
    """`validate`; a section's heading; empty for a block or text without one."""
    qualified_name: str
    """With what it is in, joined with dots: `AuthService.validate`; unique within kind and file."""
    signature: str = ""
    """Its first line or lines, at most 300 characters."""
    docstring: str = ""
    """What stands about it in the file, at most 500 characters."""
    start_line: int
    """1-based."""
    end_line: int
    """The last one, included."""
    hash: str
    """Of its text."""


class CodeFile(Record, frozen=True, kw_only=True):
    """A file of a project with what it defines."""

    texts = ("scopes",)
    project_id: ProjectId
    """Of the folder that it is in, itself, not of what that was joined to."""
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
    """What a turn has to do with a scope."""

    scope_id: str
    how: ReferenceHow


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
