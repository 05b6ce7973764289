"""The events of a running turn, for interfaces. The agent's loop yields them and never prints."""

from datetime import datetime
from typing import Literal

import msgspec

from ragmem.ids import short_id
from ragmem.messages import Json
from ragmem.records import Usage

Subtype = Literal[
    "success", "interrupted", "error_max_turns", "error_max_budget_usd", "error_during_execution"
]


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """Something that happened in a turn; each kind has its own subclass."""


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    """The turn has begun; `recorded` tells whether the prompt is in the store or its spool."""

    session_id: str
    turn_id: str
    turn_index: int
    model: str
    recorded: bool = True


class Recalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn, summary, memory or code passage in a request, and the reason."""

    id: str
    section: str
    score: float | None
    why: str
    label: str = ""
    """Its content in one line."""
    chars: int = 0
    """The length of its text in the request."""
    source: str = ""
    """Who said it, or where."""
    at: datetime | None = None
    """When it was said or recorded."""
    similarity: float | None = None
    """The cosine similarity to the prompt; None if it was found in another way."""


class PromptAdded(Event, frozen=True, kw_only=True, tag="prompt_added"):
    """A prompt typed during the turn is recorded, and goes to the model next."""

    text: str


class ContextBuilt(Event, frozen=True, kw_only=True, tag="context"):
    """The context that goes to the model with the prompt."""

    sections: dict[str, int]
    """The characters in each section."""
    fallback: bool = False
    """Whether it is only a pruned history, because the store was unavailable."""
    recalled: tuple[Recalled, ...] = ()
    without_code: str = ""
    """Why the project's code was left out, if the search took too long."""


class ModelCallStarted(Event, frozen=True, kw_only=True, tag="model_call"):
    """A request is sent to the model; `number` counts from 1 within the turn."""

    number: int
    context_tokens: int = 0
    """The estimated tokens of the request."""


class RetryWaiting(Event, frozen=True, kw_only=True, tag="retry"):
    """A request to the model failed, and will be sent again."""

    reason: str
    """A few words to show to the user."""
    attempt: int
    """The number of the next attempt, of at most `most`."""
    most: int
    wait_s: float


class TextDelta(Event, frozen=True, kw_only=True, tag="text"):
    """A piece of the answer."""

    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning"):
    """A piece of the model's reasoning."""

    text: str


class MessageFinished(Event, frozen=True, kw_only=True, tag="message"):
    """A complete message of the model: its text and tool calls."""

    text: str
    tool_uses: tuple[tuple[str, str, str], ...] = ()
    """The id, name and JSON arguments of each tool call."""
    context_tokens: int = 0
    """The tokens of the request and this answer; estimated if the provider reports none."""


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool_started"):
    """A tool has been started."""

    tool_call_id: str
    name: str
    title: str
    """One line to show, such as `read_file ragmem/app.py`."""


class ToolProgress(Event, frozen=True, kw_only=True, tag="tool_progress"):
    """The output of a running tool so far; at most a few times a second."""

    tool_call_id: str
    tail: str
    """The last lines."""
    lines: int
    """The total number of lines."""


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished"):
    """A tool call has ended and is recorded."""

    tool_call_id: str
    name: str
    success: bool
    text: str
    """The result for the model."""
    display: str
    """The result for the user; may be several lines, or a diff."""
    duration_ms: int
    exit_code: int | None = None
    """The exit status of a command that has ended; negative for the signal that ended it."""

    @property
    def failed(self) -> bool:
        """Return whether it failed; a command with a nonzero exit status has, too."""
        return not self.success or bool(self.exit_code)


class MemoryWritten(Event, frozen=True, kw_only=True, tag="memory_written"):
    """A memory was added or updated during the turn, which the user is always shown."""

    action: Literal["added", "updated"]
    kind: str
    content: str
    id: str
    trust: str = "model"
    """Its origin: person, model or tool."""
    superseded: tuple[str, ...] = ()
    """The ids of the memories that it replaces."""

    @property
    def line(self) -> str:
        """Return a line to show, with the id that `/forget` and `/why` take."""
        anew = " anew" if self.action == "updated" else ""
        return f"remembered {self.kind} {short_id(self.id)}{anew}: {self.content}"


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """A message to show to the user that isn't part of the answer."""

    level: Literal["info", "warning", "error"]
    text: str


class PermissionDenial(msgspec.Struct, frozen=True):
    """A tool call that was not allowed."""

    tool_name: str
    tool_use_id: str
    arguments: str
    final: bool = False
    """Whether no `--allow` could have allowed it."""
    reason: str = ""
    """The reason, as the model was told."""


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
    """The answer as a value, if a schema was given."""
    is_cut: bool = False
    """Whether the answer reached the model's output limit."""

    @property
    def is_error(self) -> bool:
        """Return whether the answer is missing or incomplete."""
        return self.subtype != "success"
