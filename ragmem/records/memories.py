"""What is known beyond the conversations: memories, the person's profile, insights."""

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
"""Those that are notable moments."""
Trust = Literal["person", "model", "tool"]
"""Who vouches for it: the person said it, the model did, or it stood in a file or an output."""
MemorySource = Literal["conversation", "chat", "note"]
"""Learned from what was said; told with `remember` or `#text`; written with `memory add`."""
MemoryScope = Literal["user", "project"]
MemoryId = Annotated[str, IdOf("memory")]

MEMORY_LEVEL = -1
"""Where a level is asked for (0: a turn, 1 and up: a summary), that of a memory."""
SESSION_LEVEL = -2
"""The same of a session, whose summary has a vector of its own."""
_NAME_CHARS = 40


class Evidence(Record, frozen=True, kw_only=True):
    """One place where a memory comes from."""

    texts = ("path", "quote")
    session_id: SessionId = ""
    turn_id: TurnId = ""
    """Of the turn in which it was said or read; empty for a note of the person."""
    turn_index: int = 0
    tool_call_id: ToolCallId = ""
    """Of the call whose result it stood in."""
    tool_name: str = ""
    path: str = ""
    """Of the file that it stood in, as the project knows it."""
    quote: str = ""
    """The words themselves, clipped."""
    at: datetime


class MemoryRecord(Record, frozen=True, kw_only=True):
    """Something worth knowing later, in a sentence, with where it comes from."""

    texts = ("content", "subjects", "evidence")
    memory_id: MemoryId
    kind: MemoryKind = "fact"
    content: str
    subjects: tuple[str, ...] = ()
    """Flat tags, casefolded."""
    trust: Trust = "person"
    source: MemorySource = "conversation"
    project_id: ProjectId | None = None
    """The project that it belongs to; None: it is the person's, and known in all of them."""
    joined_from: ProjectId | None = None
    """The project that it was made known in, where that one was joined to `project_id` since; a
    split gives it back."""
    pinned: bool = False
    """It stands in the system message of every call."""
    created_at: datetime
    updated_at: datetime
    at: datetime | None = None
    """When it happened or is due, where that is known: of a deadline its date."""
    expires_at: datetime | None = None
    """Past it nothing shows it any more; None: it lasts."""
    valid_until: datetime | None = None
    """When another took its place; None: it is current."""
    superseded_by: MemoryId | None = None
    """The memory that took its place."""
    evidence: tuple[Evidence, ...] = ()
    owner: str = ""
    """Id of the person who made it known; a store fills in the one that it was opened for."""

    @property
    def scope(self) -> MemoryScope:
        """Return where it is known."""
        return "user" if self.project_id is None else "project"

    @property
    def stands_always(self) -> bool:
        """Return whether it is for the system message of every call: pinned, or a rule."""
        return self.pinned or self.kind == "rule"

    @property
    def has_standing(self) -> bool:
        """Return whether it holds beyond one question of one project: it stands always, is what the
        person prefers, or is known in every project."""
        return self.stands_always or self.kind == "preference" or self.project_id is None

    def of_another(self, project_id: ProjectId) -> Self:
        """What is kept of it where somebody else's file brings it: a memory of that project, that
        has no standing and that the person does not vouch for."""
        return msgspec.structs.replace(
            self,
            kind="fact" if self.kind in ("rule", "preference") else self.kind,
            trust="model" if self.trust == "person" else self.trust,
            pinned=False,
            project_id=project_id,
        )

    def is_demoted(self, stored: Self | None) -> bool:
        """Whether what is stored is no more than `of_another` has kept of it, unchanged since."""
        if stored is None or stored.project_id is None or stored == self:
            return False
        return stored == self.of_another(stored.project_id)

    def is_current(self, now: datetime) -> bool:
        """Neither superseded nor past its time."""
        return self.superseded_by is None and not self.is_past(now)

    def is_past(self, now: datetime) -> bool:
        """Whether the time up to which it holds is over."""
        return self.expires_at is not None and self.expires_at <= now


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The memories of a file that had standing where it was written, and are not here yet.

    By the ids of owners that the file names: whoever has seen one of the person can name it.
    """

    own: tuple[MemoryRecord, ...] = ()
    """Those of the person whose home it is: they keep it, if the person says so."""
    others: tuple[MemoryRecord, ...] = ()
    """Those of somebody else, or of nobody knows whom: they lose it."""
    profile: dict[str, str] = msgspec.field(default_factory=dict)
    """What the person is to have said of themselves."""
    replaced: tuple[MemoryRecord, ...] = ()
    """What is here, and gives way to something in the file."""
    is_copy: bool = False
    """All of it is taken as it was: `others` keep their standing too."""

    def __bool__(self) -> bool:
        """Whether there is anything for a person to decide."""
        return bool(self.own or self.others or self.profile or self.replaced)


def is_own(memory: MemoryRecord, owner: str) -> bool:
    """Whether a memory of a file is this owner's; of one that names nobody, nobody knows."""
    return memory.owner != "" and memory.owner == owner


def claims_of(
    memories: Iterable[MemoryRecord], owner: str, *, known: Container[str], now: datetime
) -> Claims:
    """What a file's memories claim in the home of that owner, less those of the `known` ids.

    One that is superseded claims it too: it is current again when its successor is forgotten.
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
    """What the person has said of themselves, by key; one for each owner."""

    values: dict[str, str] = msgspec.field(default_factory=dict)
    updated_at: datetime | None = None
    owner: str = ""
    """Id of the person whose it is."""


class Owner(Record, frozen=True, kw_only=True):
    """A person whose home, sessions and memories there are."""

    owner_id: str
    name: str = ""
    """What others see beside what is theirs; empty until it is set."""
    named_at: datetime | None = None

    @property
    def called(self) -> str:
        """Return what people are told: the name, or the end of the id."""
        return one_line(self.name, _NAME_CHARS) or short_id(self.owner_id)


class Insight(Record, frozen=True, kw_only=True):
    """What a look over a whole session found; one a session."""

    texts = ("main_topic", "key_findings", "action_items")
    session_id: SessionId
    main_topic: str
    key_findings: tuple[str, ...] = ()
    action_items: tuple[str, ...] = ()
    created_at: datetime


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
