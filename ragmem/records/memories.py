"""What is known apart from the conversations: memories, the user's profile, insights."""

from collections.abc import Container, Iterable
from datetime import datetime
from typing import Annotated, Literal, Self, get_args

import msgspec

from ragmem.ids import short_id
from ragmem.records.conversation import IdOf, ProjectId, Record, SessionId, ToolCallId, TurnId
from ragmem.text import one_line

MemoryKind = Literal["fact", "preference", "decision", "deadline", "failure", "rule"]
MEMORY_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
EPISODE_KINDS: tuple[MemoryKind, ...] = ("decision", "preference", "deadline")
"""The kinds that are notable moments."""
Trust = Literal["person", "model", "tool"]
"""Who vouches for it: the user said it, the model did, or it was in a file or a tool's output."""
MemorySource = Literal["conversation", "chat", "note"]
"""Learned from a conversation; told with `remember` or `#text`; written with `memory add`."""
MemoryScope = Literal["user", "project"]
MemoryId = Annotated[str, IdOf("memory")]

MEMORY_LEVEL = -1
"""The level of a memory, where one is asked for (0: a turn, 1 and up: a summary)."""
SESSION_LEVEL = -2
"""The level of a session, whose summary has a vector of its own."""
_NAME_CHARS = 40


class Evidence(Record, frozen=True, kw_only=True):
    """One place that a memory comes from."""

    texts = ("path", "quote")
    session_id: SessionId = ""
    turn_id: TurnId = ""
    """The turn in which it was said or read; empty for a note of the user's."""
    turn_index: int = 0
    tool_call_id: ToolCallId = ""
    """The call whose result contained it."""
    tool_name: str = ""
    path: str = ""
    """The file that contained it, as in `FileAccess`."""
    quote: str = ""
    """The words themselves, clipped."""
    at: datetime


class MemoryRecord(Record, frozen=True, kw_only=True):
    """Something worth knowing later, in a sentence, with its evidence."""

    texts = ("content", "subjects", "evidence")
    memory_id: MemoryId
    kind: MemoryKind = "fact"
    content: str
    subjects: tuple[str, ...] = ()
    """Flat tags, casefolded."""
    trust: Trust = "person"
    source: MemorySource = "conversation"
    project_id: ProjectId | None = None
    """The project that it belongs to; None: it is user-wide, known in all projects."""
    joined_from: ProjectId | None = None
    """The project it was learned in, if joined to `project_id` since; a split gives it back."""
    pinned: bool = False
    """Whether it is in the system message of every call."""
    created_at: datetime
    updated_at: datetime
    at: datetime | None = None
    """When it happened or is due, if known; the date of a deadline."""
    expires_at: datetime | None = None
    """It is not shown after this; None: it lasts."""
    valid_until: datetime | None = None
    """When another one superseded it; None: it is current."""
    superseded_by: MemoryId | None = None
    """The memory that superseded it."""
    evidence: tuple[Evidence, ...] = ()
    owner: str = ""
    """Id of the user it came from; a store fills in the owner that it was opened for."""

    @property
    def scope(self) -> MemoryScope:
        """Return `user` if it is known in all projects, else `project`."""
        return "user" if self.project_id is None else "project"

    @property
    def stands_always(self) -> bool:
        """Return whether it goes into the system message of every call: it is pinned, or a rule."""
        return self.pinned or self.kind == "rule"

    @property
    def has_standing(self) -> bool:
        """Return whether it is in every system message, a preference, or user-wide."""
        return self.stands_always or self.kind == "preference" or self.project_id is None

    def of_another(self, project_id: ProjectId) -> Self:
        """Return what is kept of it when it comes from somebody else's file: a memory of that
        project, without standing, and not vouched for by the user.
        """
        return msgspec.structs.replace(
            self,
            kind="fact" if self.kind in ("rule", "preference") else self.kind,
            trust="model" if self.trust == "person" else self.trust,
            pinned=False,
            project_id=project_id,
        )

    def is_demoted(self, stored: Self | None) -> bool:
        """Whether `stored` is what `of_another` has kept of it, unchanged since."""
        if stored is None or stored.project_id is None or stored == self:
            return False
        return stored == self.of_another(stored.project_id)

    def is_current(self, now: datetime) -> bool:
        """Whether it is neither superseded nor expired."""
        return self.superseded_by is None and not self.is_past(now)

    def is_past(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The memories of a file that had standing where it was written, and are not here yet.

    Told apart by the owner ids in the file, which anybody who has seen the user's can write.
    """

    own: tuple[MemoryRecord, ...] = ()
    """Memories of this home's owner: they keep their standing, if the user says so."""
    others: tuple[MemoryRecord, ...] = ()
    """Memories of another owner, or of an unknown one: they lose their standing."""
    profile: dict[str, str] = msgspec.field(default_factory=dict)
    """The profile of the user, as the file has it."""
    replaced: tuple[MemoryRecord, ...] = ()
    """Memories stored here that one in the file supersedes."""
    is_copy: bool = False
    """Everything is taken as it was: `others` keep their standing too."""

    def __bool__(self) -> bool:
        """Whether there is anything for the user to decide."""
        return bool(self.own or self.others or self.profile or self.replaced)


def is_own(memory: MemoryRecord, owner: str) -> bool:
    """Whether a memory of a file is this owner's; one without an owner is nobody's."""
    return memory.owner != "" and memory.owner == owner


def claims_of(
    memories: Iterable[MemoryRecord], owner: str, *, known: Container[str], now: datetime
) -> Claims:
    """Return what a file's memories claim in the home of this owner, without those of `known` ids.

    Superseded memories claim it too: they are current again when their successor is forgotten.
    """
    claiming = [
        memory
        for memory in memories
        if memory.has_standing and not memory.is_past(now) and memory.memory_id not in known
    ]
    return Claims(
        own=tuple(memory for memory in claiming if is_own(memory, owner)),
        others=tuple(memory for memory in claiming if not is_own(memory, owner)),
    )


class Profile(Record, frozen=True, kw_only=True):
    """What the user has said about themselves, by key; one for each owner."""

    values: dict[str, str] = msgspec.field(default_factory=dict)
    updated_at: datetime | None = None
    owner: str = ""
    """Id of the user it is about."""


class Owner(Record, frozen=True, kw_only=True):
    """A user with a home directory, and sessions and memories in this store."""

    owner_id: str
    name: str = ""
    """What others are shown next to this owner's records; empty until it is set."""
    named_at: datetime | None = None

    @property
    def called(self) -> str:
        """Return the name to show, or the end of the id."""
        return one_line(self.name, _NAME_CHARS) or short_id(self.owner_id)


class Insight(Record, frozen=True, kw_only=True):
    """What analyzing a whole session found; one per session."""

    texts = ("main_topic", "key_findings", "action_items")
    session_id: SessionId
    main_topic: str
    key_findings: tuple[str, ...] = ()
    action_items: tuple[str, ...] = ()
    created_at: datetime


class MemoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories; conditions combine with AND. Newest first by `created_at`, then by id."""

    everywhere: bool = False
    """Memories of all projects and user-wide ones; otherwise as the next two say."""
    project_ids: tuple[str, ...] = ()
    """Of these projects; a project that was joined to another counts as that one."""
    user_wide: bool = True
    """Also user-wide ones."""
    kinds: tuple[str, ...] = ()
    """Any of these; empty for all."""
    subjects: tuple[str, ...] = ()
    """With any of these, casefolded; empty for all."""
    session_ids: tuple[str, ...] = ()
    """With evidence in any of these; empty for all."""
    pinned: bool | None = None
    with_superseded: bool = False
    alive_at: datetime | None = None
    """Only those that had not expired by then."""
    limit: int | None = None
