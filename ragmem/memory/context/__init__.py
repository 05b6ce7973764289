"""The context, and what it is made of: a value of sections with budgets, built once a turn."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from ragmem.ids import short_id
from ragmem.memory.facts import FactHit
from ragmem.memory.projects import Instructions
from ragmem.memory.recall import Hit
from ragmem.memory.window import NO_WINDOW, Window
from ragmem.messages import Message, TextPart, ToolAnswer
from ragmem.records import (
    DEFAULT_TITLE,
    FileAccess,
    MemoryRecord,
    Profile,
    Session,
    Summary,
    ToolCall,
    Turn,
)
from ragmem.text import ago, counted, estimate_tokens, one_line

Strategy = Literal["recent", "relevant", "hybrid"]
"""Which sections there are: the latest, what bears on the prompt, or both."""
_TITLE_CHARS = 60
STRATEGIES: tuple[Strategy, ...] = ("recent", "relevant", "hybrid")


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a section, and why it is there."""

    label: str
    chars: int
    score: float | None = None
    why: str
    record_id: str = ""
    """Of the turn, summary or memory that was recalled."""
    source: str = ""
    """Whose word it is, or where it was said, for people."""
    at: datetime | None = None
    """When it was said or made known."""
    similarity: float | None = None
    """Cosine to the prompt; None for what was found by words alone, or is always there."""
    holds: bool = True
    """Whether nothing is known that took its place or changed since."""


class ContextSection(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the request with its own budget, in characters; 0 is no limit."""

    name: str
    chars: int
    budget: int
    items: tuple[ContextItem, ...] = ()
    dropped: int = 0
    """Items left out for want of room."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what is sent with a prompt, and how it came about."""

    sections: tuple[ContextSection, ...]
    messages: tuple[Message, ...]
    max_chars: int
    recalled: str = ""
    """What memory adds to the request: rules and pinned memories, then what is quoted as data."""
    fallback: bool = False
    without_code: str = ""
    """Why the project's code was left out, where looking for it took too long."""
    notices: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    """Of the conversation, those that are replayed or that its latest are taken from."""

    @property
    def chars(self) -> int:
        """Characters of the request."""
        return sum(message.char_count for message in self.messages)

    @property
    def tokens(self) -> int:
        """Estimated at four characters each."""
        return estimate_tokens(self.chars)

    @property
    def sizes(self) -> dict[str, int]:
        """Characters per section."""
        return {section.name: section.chars for section in self.sections}

    def text(self) -> str:
        """The same as one text, for people and for models without tool calls."""
        return "\n\n".join(f"[{message.role}]\n{_spoken(message)}" for message in self.messages)


def _spoken(message: Message) -> str:
    words = [p.text for p in message.parts if isinstance(p, TextPart | ToolAnswer)]
    return "\n".join([*words, *(f"(calls {u.name} {u.arguments})" for u in message.tool_uses)])


class CodePassage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the project's code that bear on a prompt, as they are on the disk now."""

    scope_id: str
    path: str
    """As in `FileAccess`."""
    name: str
    """`Service.validate`; empty for lines without one."""
    start_line: int
    end_line: int
    text: str
    score: float
    why: str
    """In words, for the model and for people."""


FindCode = Callable[[str], Awaitable[Sequence[CodePassage]]]
"""What of the project's code bears on a text, best first; SearchTooLong."""


class SessionRecap(msgspec.Struct, frozen=True, kw_only=True):
    """What a session came to."""

    session: Session
    about: str = ""
    """The digest of a longer one."""
    outcome: str = ""
    """What was asked last, and the beginning of the answer."""
    outcome_id: str = ""
    """Of the turn that it is of."""
    before: tuple[str, ...] = ()
    """The same of the turns before that, the newest first."""
    changed: tuple[str, ...] = ()
    """Files, as the project knows them, with what became of them since."""
    failed: tuple[str, ...] = ()
    """Commands and edits that did not work when they were last tried, and why."""
    decided: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    """What was said to be undone, and a turn that was cut short."""

    def head(self, now: datetime) -> str:
        """Which session it is, and how old."""
        title = "" if self.session.title == DEFAULT_TITLE else self.session.title
        named = f" “{one_line(title, _TITLE_CHARS)}”" if title else ""
        turns = counted(self.session.turn_count, "turn")
        when = ago(self.session.last_activity_at, now)
        return f"Session {short_id(self.session.session_id)}{named}, {when}, {turns}"

    def lines(self, shown: Collection[str] = ()) -> list[str]:
        """What it came to, a line a kind; not what stands in turns that are `shown` anyway."""
        told = (
            ("About", self.about),
            ("Outcome", "" if self.outcome_id in shown else self.outcome),
            *(("Before that", each) for each in self.before),
            ("Decided", _listed(self.decided)),
            ("Changed", ", ".join(self.changed)),
            ("Failed last", _listed(self.failed)),
            ("Open", _listed(self.open)),
        )
        return [f"{name}: {text}" for name, text in told if text]


def _listed(sentences: Sequence[str]) -> str:
    """On one line; the full stop of each but the last is the mark between them."""
    return "; ".join([*(each.rstrip(".") for each in sentences[:-1]), *sentences[-1:]])


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What memory has for a prompt: reading it is the store's work, shaping it is done here."""

    turns: tuple[Turn, ...] = ()
    """Finished turns, in order: as many as `window.window_limit` asks for."""
    window: Window = NO_WINDOW
    """`ContextBuilder.window` of those turns."""
    older: tuple[Turn, ...] = ()
    """The turns just before the window, in order; for their queries."""
    older_count: int = 0
    """How many turns came before the window."""
    accesses: tuple[FileAccess, ...] = ()
    """One a path, latest first."""
    last_time: tuple[SessionRecap, ...] = ()
    """What other sessions came to, for whoever comes back; the newest first."""
    hits: tuple[Hit, ...] = ()
    """What memory holds on the prompt, best first."""
    level1: tuple[Summary, ...] = ()
    """Summaries of turns that no higher summary covers, newest first."""
    thread_summary: str = ""
    pinned: tuple[MemoryRecord, ...] = ()
    """The person's rules and pinned memories, oldest first: for the system message."""
    profile: Profile = Profile()
    preferences: tuple[MemoryRecord, ...] = ()
    """What the person likes, the most telling first."""
    facts: tuple[FactHit, ...] = ()
    """Memories that bear on the prompt, best first; more than are shown."""
    code: tuple[CodePassage, ...] = ()
    """Best first; more than are shown."""
    without_code: str = ""
    """Why there is none, where looking for it took too long."""
    changed: str = ""
    """Which files are other than the agent knows them; one line."""
    notices: tuple[str, ...] = ()
    """What the person is to be told of what is missing."""
    at_hand: bool = False
    """The store could not answer: this is what the process remembers."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds beside the budgets; None is none. A turn is two messages, and never cut in two."""

    at_most: int | None = None
    """Messages of the recent window: when there are more, half of them go at once, so that
    the beginning of the request stays the same for a while and providers' caches hit."""
    recent_messages: int | None = None
    """Exactly the latest so many."""
    relevant_messages: int | None = None
    """Hits: at most 16 are looked for."""
    includes_summary: bool = True

    def of(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The newest of these, as many as may be shown."""
        if self.recent_messages is not None:
            count = -(-self.recent_messages // 2)
            return turns[-count:] if count else ()
        if self.at_most is None or not turns:
            return turns
        count = max(1, self.at_most // 2)
        step = max(1, count // 2)
        over = turns[-1].turn_index - count
        first = -(-over // step) * step if over > 0 else 0
        return [turn for turn in turns if turn.turn_index > first]

    def applied(self, material: Material) -> Material:
        """The material, of which the window has been counted, within the counts."""
        if self == NO_COUNTS:
            return material
        return msgspec.structs.replace(
            material,
            turns=tuple(self.of(material.turns)),
            hits=material.hits if self.relevant_messages != 0 else (),
            thread_summary=material.thread_summary if self.includes_summary else "",
        )


NO_COUNTS = Counts()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent works."""

    cwd: Path
    project: Path
    instructions: Instructions
    session_id: str = ""
    """Of the conversation that the request belongs to."""
    show_path: Callable[[str], str] = str
    memory_tools: bool = False
    """Whether the model has tools to search the memory and to add to it."""
    code_tool: bool = False
    """Whether the model has brain_search."""
    skills: str = ""
    """What the model is told of skills that it can read."""


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and where, when and how it is asked."""

    prompt: str
    place: Place
    tag: str
    """Delimits quoted data: one that no file could know."""
    now: datetime
    mentions: Sequence[ToolCall] = ()
    """Of files that the prompt names, and commands that the person ran."""
    strategy: Strategy = "hybrid"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A section before it is placed; an empty text is no section."""

    name: str
    text: str
    budget: int = 0
    items: tuple[ContextItem, ...] = ()
    dropped: int = 0

    @property
    def section(self) -> ContextSection:
        return ContextSection(
            name=self.name,
            chars=len(self.text),
            budget=self.budget,
            items=self.items,
            dropped=self.dropped,
        )


NO_PART = Part(name="", text="")
