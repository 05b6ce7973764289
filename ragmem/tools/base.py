"""Define tools, their outcomes, and the toolset that an agent is given.

A failing tool yields a result that tells the model what to do instead; only cancellation escapes
`Toolset.call`.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from ragmem.config import PermissionMode
from ragmem.events import MemoryWritten
from ragmem.failpoints import failpoint
from ragmem.llm.base import parse_arguments
from ragmem.messages import ImagePart, Json, ToolSpec, ToolUse
from ragmem.own_tools import OWN_TOOLS, Effect as Effect
from ragmem.records import utc_now
from ragmem.text import clean, counted, in_words, one_line
from ragmem.tools.arguments import in_own_words, left_out, own_name, signature

T = TypeVar("T")

_log = logging.getLogger("ragmem")

ENDED = "ragmem exited"
"""Message of a cancellation that the user did not ask for: a hangup, or a chat that is closing."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every tool's `Params`; each field's annotation describes it to the model."""


def arg(about: str, most: int | None = None, least: int | None = None) -> msgspec.Meta:
    """Describe an argument to the model; the bounds are characters of a text or items of a list."""
    return msgspec.Meta(description=about, min_length=least, max_length=most)


def number(about: str, least: float, most: float | None = None) -> msgspec.Meta:
    """Describe a number to the model, with its bounds."""
    return msgspec.Meta(description=about, ge=least, le=most)


async def interruptible(work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; on cancellation, set its stop event and wait up to a second.

    The work must check the event at least every tenth of a second.
    """
    stop = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running], timeout=1)
        if running.done() and not running.cancelled():
            # Retrieve the exception, so that asyncio does not report it as never retrieved.
            running.exception()
        raise


class CurrentMode:
    """The current permission mode; the user may change `value` while the agent works."""

    def __init__(self, value: PermissionMode = "default") -> None:
        self.value = value


class ToolFailure(Exception):
    """Raised inside a tool: `text` tells the model what happened and what to do instead."""

    def __init__(
        self, text: str, *, shown: str = "", denied: bool = False, final: bool = False
    ) -> None:
        super().__init__(text)
        self.text = text
        self.shown = shown
        """Text for the user, where it differs from `text`."""
        self.denied = denied
        self.final = final
        """Whether it was denied by something that `--allow` does not override."""


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returns."""

    text: str
    """For the model, and for the store."""
    display: str
    """For the user."""
    data: dict[str, Json] = {}
    """Stored with the text: `path`, `sha256` for files; `files: [{"path": …}]` for searches."""
    written: tuple[MemoryWritten, ...] = ()
    """Memories that the call wrote, to be shown to the user."""
    image: ImagePart | None = None
    """The image itself, for the model; never stored."""


class OutputSoFar(msgspec.Struct, frozen=True):
    """What a running tool has printed so far, for the waiting user."""

    tail: str
    """The last lines, without terminal controls."""
    lines: int
    """Number of lines in all."""


Tell = Callable[[OutputSoFar], None]
"""Receives the output so far; called from any thread, a few times a second."""


class ToolOutcome(ToolOutput, frozen=True, kw_only=True):
    """The outcome of a call, successful or not."""

    success: bool = True
    error: str | None = None
    denied: bool = False
    final: bool = False
    """Denied by what `--allow` does not override: a rule, the mode, the sandbox, the path."""
    started_at: datetime
    duration_ms: int = 0

    @property
    def result_json(self) -> str:
        """Return the call's result as it is stored."""
        return msgspec.json.encode({"text": self.text, **self.data}).decode()


ApprovalNote = Callable[[bool], Awaitable[None]]
"""Records whether the running call is waiting for approval: True when asked, False once allowed."""


async def note_nothing(_: bool) -> None:
    """Record nothing: used where calls are not recorded."""


_running: ContextVar[ToolUse | None] = ContextVar("running", default=None)
_on_output: ContextVar[Tell] = ContextVar("on_output", default=lambda _: None)
_note_approval: ContextVar[ApprovalNote] = ContextVar("note_approval", default=note_nothing)


def teller() -> Tell:
    """Return the callback that receives what the running call prints."""
    return _on_output.get()


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked to allow, complete and resolved."""

    tool_name: str
    title: str
    kind: Literal["diff", "command", "path", "plan", "call"]
    body: str
    """The whole diff, command or plan; interfaces show it with `text.reveal`, never shortened."""
    warnings: tuple[str, ...] = ()
    always: str = ""
    """What "always" would allow, and for how long, as both interfaces phrase it; empty: not
    offered.

    It refers only to what `title` and `body` show in full.
    """
    for_good: tuple[tuple[str, ...], ...] = ()
    """Sets of rules (`ragmem.tools.permissions`) of which one can be saved, narrowest first."""
    outside: "Proposal | None" = None
    """The same command outside the sandbox, if the user may choose that instead."""
    use: ToolUse | None = msgspec.field(default_factory=lambda: _running.get())
    """The call that asks: the one running when the proposal is made; None outside any call."""

    @property
    def size(self) -> str:
        """Return the size of the content: `2,013 characters`, or `+3 −1 lines` for a change."""
        lines = self.body.split("\n")
        if self.kind == "diff":
            added, removed = (sum(line[:1] == sign for line in lines[2:]) for sign in "+-")
            return f"+{added:,} −{removed:,} lines"
        count = counted(len(self.body), "character")
        return count if len(lines) == 1 else f"{count}, {counted(len(lines), 'line')}"


class Decision(msgspec.Struct, frozen=True):
    """The user's answer to a proposal."""

    allowed: bool
    remember: bool = False
    """Allow what the proposal's `always` describes for this session, without asking again."""
    reason: str = ""
    """What to tell the model when denied."""
    changes: bool = False
    """For a plan: `reason` says how to change the plan, which is not rejected."""
    mode: PermissionMode | None = None
    """For a plan: the mode in which to carry it out."""
    outside: bool = False
    """Whether the decision is about the proposal's `outside`."""


Approver = Callable[[Proposal], Awaitable[Decision]]


async def deny_all(_: Proposal) -> Decision:
    """Deny every proposal: the approver used where nobody can be asked."""
    return Decision(False, reason="no one is there to approve it")


class Unanswered(asyncio.CancelledError):
    """The turn was cancelled while the user was being asked; no part of the call was executed."""


async def answer_to(proposal: Proposal, approver: Approver) -> Decision:
    """Ask the user; raise Unanswered when cancelled, ToolFailure where asking is impossible."""
    note_approval = _note_approval.get()
    try:
        await note_approval(True)
        decision = await approver(proposal)
        if decision.allowed:
            await note_approval(False)
        return decision
    except asyncio.CancelledError as error:
        raise Unanswered(*error.args) from None
    except OSError as error:
        why = error.strerror or error
        text = f"The user could not be asked: {why}. Nothing was done."
        raise ToolFailure(text, denied=True) from None


class Tool(Protocol):
    """A tool. Its schema is derived from the fields of `Params`, unless it defines `parameters`.

    Optional members: `standing()` returns what the model must know when a turn begins (empty for
    nothing); `may_repeat` says that repeating the same call can give a different result.
    """

    name: str
    description: str
    effect: Effect

    @property
    def Params(self) -> Any:
        """The type of its arguments: a struct, or a dict if the tool has its own schema."""
        ...

    def title(self, params: Any) -> str:
        """Describe the call to the user, on one line."""
        ...

    async def run(self, params: Any) -> ToolOutput:
        """Execute the call; raise ToolFailure if that is impossible."""
        ...


class AgentTool:
    """One of ragmem's own tools; its row in `OWN_TOOLS` determines what a call changes."""

    name: str
    effect: Effect

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            cls.effect = OWN_TOOLS[cls.name].effect


class InvalidArguments(ValueError):
    """Arguments that are not strict JSON, or do not match the tool's schema."""

    def __init__(self, text: str, shown: str) -> None:
        """Set `text` for the model that made the call, and `shown` for the user who is watching."""
        super().__init__(text)
        self.shown = f"invalid call: {shown}. The model was told."


class Toolset:
    """The tools of one agent, called by name."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        of_person: Sequence[Tool] = (),
        more: Callable[[], Sequence[Tool]] = tuple,
    ) -> None:
        """Set the tools; `more` returns those that come and go, each time the model gets a list."""
        self._tools = {tool.name: tool for tool in tools}
        self._of_person = tuple(of_person)
        self._more = more
        self._others: dict[str, Tool] = {}

    @property
    def of_person(self) -> "Toolset":
        """Return the tools that the user may call directly, in the same place, without approval."""
        return Toolset(self._of_person)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the tools' names in the order given."""
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of all tools, as the model gets them."""
        self._others = {tool.name: tool for tool in self._more()}
        return tuple(_spec(tool) for tool in (*self._tools.values(), *self._others.values()))

    def _tool(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._others.get(name)

    def is_read_only(self, name: str) -> bool:
        """Return whether calls of this name have no side effects, and can run in parallel."""
        tool = self._tool(name)
        return tool is None or tool.effect == "read"

    def may_repeat(self, name: str) -> bool:
        """Return whether the same call can give a different result although nothing has changed."""
        return getattr(self._tools.get(name), "may_repeat", False)

    def standing(self) -> str:
        """Return what the model must know about its tools when a turn begins; empty for nothing."""
        texts = [tool.standing() for tool in self._tools.values() if hasattr(tool, "standing")]
        return "\n\n".join(filter(None, texts))

    def own(self, use: ToolUse) -> ToolUse:
        """Translate another agent's names for a tool and its arguments into ragmem's own."""
        tool = self._tool(use.name) or self._tools.get(own_name(use.name))
        if tool is None or hasattr(tool, "parameters"):
            return use
        use = msgspec.structs.replace(use, name=tool.name)
        with suppress(ValueError, RecursionError):
            given = parse_arguments(use.arguments or "{}")
            if (own := in_own_words(given, _parameters(tool.Params))) != given:
                return msgspec.structs.replace(use, arguments=json.dumps(own))
        return use

    def check(self, use: ToolUse) -> None:
        """Raise InvalidArguments unless arguments are complete and valid; unknown tools pass."""
        self._parse(use)

    def title(self, use: ToolUse) -> str:
        """Describe a call to the user on one line, even if it is invalid."""
        shown = use.name
        with suppress(InvalidArguments):
            if tool := self._tool(use.name):
                shown = f"{tool.name} {tool.title(self._parse(use)[0])}"
        return one_line(shown, 200)

    async def call(
        self, use: ToolUse, tell: Tell = lambda _: None, note_approval: ApprovalNote = note_nothing
    ) -> ToolOutcome:
        """Execute a call; failures are outcomes. `tell` receives what is printed meanwhile."""
        started_at, started = utc_now(), time.perf_counter()

        def outcome(text: str, display: str, **fields: Any) -> ToolOutcome:
            return ToolOutcome(
                text=text,
                display=display,
                started_at=started_at,
                duration_ms=round((time.perf_counter() - started) * 1000),
                **fields,
            )

        def failed(text: str, shown: str = "", **fields: bool) -> ToolOutcome:
            text = clean(text)
            display = one_line(shown or text, 300)
            return outcome(text, display, success=False, error=text, **fields)

        tool = self._tool(use.name)
        if tool is None:
            names = ", ".join((*self._tools, *self._others)) or "none"
            text = f"There is no tool {one_line(use.name, 80)!r}. Available tools: {names}."
            if "__" in use.name and "wait_for_servers" in self._others:
                text += " MCP servers are still starting: wait_for_servers waits for their tools."
            return failed(text)
        running, on_output = _running.set(use), _on_output.set(tell)
        noting = _note_approval.set(note_approval)
        try:
            params, note = self._parse(use)
            failpoint("tool.run")
            output = await tool.run(params)
            failpoint("tool.ran")
            return outcome(
                clean(output.text + note),
                clean(output.display),
                data=output.data,
                written=output.written,
                image=output.image,
            )
        except InvalidArguments as error:
            again = f"Nothing was executed; call {use.name} again with valid arguments."
            return failed(f"{error}. {again}", error.shown)
        except ToolFailure as failure:
            return failed(failure.text, failure.shown, denied=failure.denied, final=failure.final)
        except Exception as error:
            # A bug in the tool must not end the turn: report it to the model and log it.
            _log.exception("%s failed", use.name)
            return failed(f"{use.name} failed: {type(error).__name__}: {error}")
        finally:
            _running.reset(running)
            _on_output.reset(on_output)
            _note_approval.reset(noting)

    def _parse(self, use: ToolUse) -> tuple[Any, str]:
        """Return the tool's `Params` (raw values if unknown), and a note on ignored arguments."""
        try:
            value = parse_arguments(use.arguments or "{}")
        except ValueError as error:
            raise InvalidArguments(str(error), "its arguments can't be parsed") from None
        tool = self._tool(use.name)
        if tool is None or hasattr(tool, "parameters"):
            return value, ""
        schema = _parameters(tool.Params)
        usage = f"{use.name} takes {signature(schema) or 'no arguments'}"
        value = in_own_words(value, schema)
        ignored = left_out(value, schema, tool.effect)
        for name in ignored:
            del value[name]
        try:
            params = msgspec.convert(value, tool.Params, strict=False)
        except msgspec.ValidationError as error:
            text = f"invalid arguments for {use.name}: {error}. {usage}"
            raise InvalidArguments(text, in_words(str(error))) from None
        names = one_line(", ".join(ignored), 200)
        return params, f"\n\n[Unknown arguments were ignored: {names}. {usage}]" * bool(ignored)


def _spec(tool: Tool) -> ToolSpec:
    schema = getattr(tool, "parameters", None) or _parameters(tool.Params)
    return ToolSpec(tool.name, tool.description, schema)


@cache
def _parameters(params: type[msgspec.Struct]) -> dict[str, Json]:
    (schema,), components = msgspec.json.schema_components([params])
    parameters: dict[str, Json] = _inline_references(schema, components)
    for noise in ("title", "description"):
        parameters.pop(noise, None)
    return parameters


_SCHEMA_NOISE = {"title": str, "minLength": int, "maxLength": int}
"""Keywords for validation or for programs, which do not help a model to make a call."""


def _inline_references(schema: Any, components: dict[str, Any]) -> Any:
    """Return a schema with its references inlined, since not every provider resolves them.

    What does not help a model is left out: calls are validated against the type, and null counts as
    no value.
    """
    if isinstance(schema, list):
        return [_inline_references(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    match schema:
        case {"$ref": str(name)}:
            return _inline_references(components[name.rpartition("/")[2]], components)
        case {"anyOf": [kind, {"type": "null"}], **rest}:
            return _inline_references({**kind, **rest}, components)
        case {"default": None | "" | [], **rest}:
            return _inline_references(rest, components)
    return {
        key: _inline_references(each, components)
        for key, each in schema.items()
        if not isinstance(each, _SCHEMA_NOISE.get(key, ()))
    }
