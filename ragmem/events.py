"""What an interface sees of a running turn. The loop yields these and never prints."""

from datetime import datetime
from typing import Literal

import msgspec

from ragmem.ids import short_id
from ragmem.messages import Json
from ragmem.records import Usage

Subtype = Literal[
    "success",
    "interrupted",
    "error_max_turns",
    "error_max_budget_usd",
    "error_during_execution",
]


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """Something that happened in a turn; each kind has a class of its own."""


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    """The person's message lasts (`recorded`), in the store or its spool, or can't be kept."""

    session_id: str
    turn_id: str
    turn_index: int
    model: str
    recorded: bool = True


class Recalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn, summary, memory or place in the code that goes to the model, and why."""

    id: str
    section: str
    score: float | None
    why: str
    label: str = ""
    """What it says, in a line."""
    chars: int = 0
    """Of its text in the request."""
    source: str = ""
    """Whose word it is, or where it was said."""
    at: datetime | None = None
    """When it was said or made known."""
    similarity: float | None = None
    """Cosine to the prompt; None for what was found otherwise."""


class PromptAdded(Event, frozen=True, kw_only=True, tag="prompt_added"):
    """What the person has said while the turn ran lasts, and goes to the model next."""

    text: str


class ContextBuilt(Event, frozen=True, kw_only=True, tag="context"):
    """What goes to the model with the prompt."""

    sections: dict[str, int]
    """Characters per section."""
    fallback: bool = False
    """Pruned history, because the store could not answer."""
    recalled: tuple[Recalled, ...] = ()
    without_code: str = ""
    """Why the project's code was left out, where looking for it took too long."""


class ModelCallStarted(Event, frozen=True, kw_only=True, tag="model_call"):
    """A request goes out; `number` counts from 1 within the turn."""

    number: int
    context_tokens: int = 0
    """Of the request, estimated."""


class RetryWaiting(Event, frozen=True, kw_only=True, tag="retry"):
    """The model could not be asked, and is asked again after a while."""

    reason: str
    """In a few words."""
    attempt: int
    """Which try comes next, of `most`."""
    most: int
    wait_s: float


class TextDelta(Event, frozen=True, kw_only=True, tag="text"):
    """More of the answer."""

    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning"):
    """More of the provider's own reasoning."""

    text: str


class MessageFinished(Event, frozen=True, kw_only=True, tag="message"):
    """One whole message of the model: its words and the tools it asks for."""

    text: str
    tool_uses: tuple[tuple[str, str, str], ...] = ()
    """(id, name, JSON arguments) each."""
    context_tokens: int = 0
    """Of the request and this answer; estimated where the provider reports none."""


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool_started"):
    """A tool runs."""

    tool_call_id: str
    name: str
    title: str
    """One line for the person, such as `read_file ragmem/app.py`."""


class ToolProgress(Event, frozen=True, kw_only=True, tag="tool_progress"):
    """What a tool that runs has printed so far; a few times a second at most."""

    tool_call_id: str
    tail: str
    """Its last lines."""
    lines: int
    """In all."""


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished"):
    """A tool has answered and is recorded."""

    tool_call_id: str
    name: str
    success: bool
    text: str
    """What the model reads."""
    display: str
    """What the person reads; may be several lines, or a diff."""
    duration_ms: int
    exit_code: int | None = None
    """Of a command that ran to its end; negative: the signal that ended it."""

    @property
    def failed(self) -> bool:
        """Whether a person would call it so: a command that ends with 1 has run, and failed."""
        return not self.success or bool(self.exit_code)


class MemoryWritten(Event, frozen=True, kw_only=True, tag="memory_written"):
    """Something was remembered while the answer was made: the person sees each time."""

    action: Literal["added", "updated"]
    kind: str
    content: str
    id: str
    trust: str = "model"
    """Who vouches for it: person, model or tool."""
    superseded: tuple[str, ...] = ()
    """Ids of the memories that it took the place of."""

    @property
    def line(self) -> str:
        """Tell it to a person in a few words, with the id that `/forget` and `/why` take."""
        anew = " anew" if self.action == "updated" else ""
        return f"remembered {self.kind} {short_id(self.id)}{anew}: {self.content}"


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """Something the person should know; never part of the answer."""

    level: Literal["info", "warning", "error"]
    text: str


class PermissionDenial(msgspec.Struct, frozen=True):
    """A tool call that was not allowed."""

    tool_name: str
    tool_use_id: str
    arguments: str
    final: bool = False
    """Whether no `--allow` would have changed it."""
    reason: str = ""
    """What the model was told."""


class TurnFinished(Event, frozen=True, kw_only=True, tag="turn_finished"):
    """The turn is over and recorded; always the last event."""

    session_id: str
    turn_id: str
    subtype: Subtype
    result: str
    error: str = ""
    hint: str = ""
    exit_code: int = 0
    model: str
    usage: Usage
    duration_ms: int
    context: dict[str, int] = {}
    permission_denials: tuple[PermissionDenial, ...] = ()
    structured_output: Json = None
    """The answer as a value, where one of a schema was wanted."""
    is_cut: bool = False
    """Whether the answer reached the model's limit of output."""

    @property
    def is_error(self) -> bool:
        """Whether the answer is missing or cut short."""
        return self.subtype != "success"
