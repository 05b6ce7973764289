"""A tool, its outcome, and the set of tools that the agent is given.

A failing tool is a result that says what to do instead; only cancellation
escapes `Toolset.call`.
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
"""The message of a cancellation that no person asked for: a hangup, say, or a chat that closes."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool is called with: its `Params`; what is told of each stands in its annotation."""


def arg(about: str, most: int | None = None, least: int | None = None) -> msgspec.Meta:
    """What the model is told of an argument; a text or a list has so many characters or items."""
    return msgspec.Meta(description=about, min_length=least, max_length=most)


def number(about: str, least: float, most: float | None = None) -> msgspec.Meta:
    """What the model is told of a number, and its bounds."""
    return msgspec.Meta(description=about, ge=least, le=most)


async def interruptible(work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; when cancelled, tell it to stop and give it a second.

    The work looks at the event it is given at least every tenth of a second.
    """
    stop = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running], timeout=1)
        if running.done() and not running.cancelled():
            # Looked at, so that asyncio does not report it as forgotten.
            running.exception()
        raise


class CurrentMode:
    """The mode that holds now; a person may change `value` while the agent works."""

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
        """For the person, where that is not its text."""
        self.denied = denied
        self.final = final
        """Denied by what `--allow` does not change."""


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool hands back."""

    text: str
    """For the model, and for the store."""
    display: str
    """For the person."""
    data: dict[str, Json] = {}
    """Stored beside the text: `path`, `sha256` for files; `files: [{"path": …}]` for searches."""
    written: tuple[MemoryWritten, ...] = ()
    """What was remembered by it, for the person to see."""
    image: ImagePart | None = None
    """What a picture shows; never stored."""


class OutputSoFar(msgspec.Struct, frozen=True):
    """What a tool that runs has printed, for the person who waits."""

    tail: str
    """Its last lines, without terminal controls."""
    lines: int
    """In all."""


Tell = Callable[[OutputSoFar], None]
"""Takes what was printed; called from any thread, a few times a second."""


class ToolOutcome(ToolOutput, frozen=True, kw_only=True):
    """A call, whichever way it went."""

    success: bool = True
    error: str | None = None
    denied: bool = False
    final: bool = False
    """Denied by what `--allow` does not change: a rule, the mode, the sandbox, where it is."""
    started_at: datetime
    duration_ms: int = 0

    @property
    def result_json(self) -> str:
        """What is stored as the call's result."""
        return msgspec.json.encode({"text": self.text, **self.data}).decode()


AskedOf = Callable[[bool], Awaitable[None]]
"""Keeps of the call that runs that a question about it stands, or that it was allowed."""


async def keep_nothing(_: bool) -> None:
    """Where no call is recorded."""


_running: ContextVar[ToolUse | None] = ContextVar("running", default=None)
_telling: ContextVar[Tell] = ContextVar("telling", default=lambda _: None)
_asked_of: ContextVar[AskedOf] = ContextVar("asked_of", default=keep_nothing)


def teller() -> Tell:
    """Return who hears what the call that runs now prints."""
    return _telling.get()


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What the person is asked to allow, complete and resolved."""

    tool_name: str
    title: str
    kind: Literal["diff", "command", "path", "plan", "call"]
    body: str
    """The whole diff, command or plan; interfaces show it with `text.reveal`, never shortened."""
    warnings: tuple[str, ...] = ()
    always: str = ""
    """What "always" would allow, and for how long, as both interfaces say it; empty: not offered.

    It speaks of what `title` and `body` show in full.
    """
    for_good: tuple[tuple[str, ...], ...] = ()
    """Sets of rules (`ragmem.tools.permissions`) of which one can be kept, the narrowest first."""
    outside: "Proposal | None" = None
    """The same command outside of the sandbox, where the person may choose that instead."""
    use: ToolUse | None = msgspec.field(default_factory=lambda: _running.get())
    """The call that asks: the one that runs where the proposal is made; None outside of any."""

    @property
    def size(self) -> str:
        """How large its content is: `2,013 characters`, or `+3 −1 lines` of a change."""
        lines = self.body.split("\n")
        if self.kind == "diff":
            added, removed = (sum(line[:1] == sign for line in lines[2:]) for sign in "+-")
            return f"+{added:,} −{removed:,} lines"
        count = counted(len(self.body), "character")
        return count if len(lines) == 1 else f"{count}, {counted(len(lines), 'line')}"


class Decision(msgspec.Struct, frozen=True):
    """The person's answer."""

    allowed: bool
    remember: bool = False
    """Allow in this session, without asking again, what the proposal's `always` names."""
    reason: str = ""
    """What to tell the model when denied."""
    changes: bool = False
    """Of a plan: the reason says how it is to be changed, and it is not refused."""
    mode: PermissionMode | None = None
    """Of a plan: the mode that it is to be carried out in."""
    outside: bool = False
    """It is the proposal's `outside` that was decided on."""


Approver = Callable[[Proposal], Awaitable[Decision]]


async def deny_all(_: Proposal) -> Decision:
    """The approver where nobody can be asked."""
    return Decision(False, reason="no one is there to approve it")


class Unanswered(asyncio.CancelledError):
    """The turn was stopped while the person was asked: of the call nothing was done."""


async def answer_to(proposal: Proposal, approver: Approver) -> Decision:
    """Ask the person; Unanswered when that is cancelled, ToolFailure where it can't be done."""
    stands = _asked_of.get()
    try:
        await stands(True)
        decision = await approver(proposal)
        if decision.allowed:
            await stands(False)
        return decision
    except asyncio.CancelledError as error:
        raise Unanswered(*error.args) from None
    except OSError as error:
        why = error.strerror or error
        told = f"The person could not be asked: {why}. Nothing was done."
        raise ToolFailure(told, denied=True) from None


class Tool(Protocol):
    """One tool. The fields of its `Params` make the schema, unless it has one as `parameters`.

    One that holds something which the model has to know of when a turn begins tells it by
    `standing()`, empty for nothing; of one with `may_repeat` the same call may have another answer.
    """

    name: str
    description: str
    effect: Effect

    @property
    def Params(self) -> Any:
        """The type of its arguments: a struct, or a dict where it has a schema."""
        ...

    def title(self, params: Any) -> str:
        """One line for the person: what it is about to do."""
        ...

    async def run(self, params: Any) -> ToolOutput:
        """Do it; ToolFailure when it can't be done."""
        ...


class AgentTool:
    """A tool of the agent's own: what a call of it changes stands in its row of `OWN_TOOLS`."""

    name: str
    effect: Effect

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            cls.effect = OWN_TOOLS[cls.name].effect


class InvalidArguments(ValueError):
    """Arguments that are not strict JSON or not of the tool's schema."""

    def __init__(self, text: str, shown: str) -> None:
        """`text` is for the model that made them, `shown` for the person who looks on."""
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
        """`more`: those that come and go; asked each time that the model is told of its tools."""
        self._tools = {tool.name: tool for tool in tools}
        self._of_person = tuple(of_person)
        self._more = more
        self._others: dict[str, Tool] = {}

    @property
    def of_person(self) -> "Toolset":
        """What the person may do by themself, in the same place and unasked."""
        return Toolset(self._of_person)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the tools' names in the order given."""
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return what the model is told of them."""
        self._others = {tool.name: tool for tool in self._more()}
        return tuple(_spec(tool) for tool in (*self._tools.values(), *self._others.values()))

    def _tool(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._others.get(name)

    def is_read_only(self, name: str) -> bool:
        """Whether a call of this name has no effects, so that several may run at once."""
        tool = self._tool(name)
        return tool is None or tool.effect == "read"

    def may_repeat(self, name: str) -> bool:
        """Whether the same call may have another answer, though nothing has changed."""
        return getattr(self._tools.get(name), "may_repeat", False)

    def standing(self) -> str:
        """What the model has to know of its tools when a turn begins; empty for nothing."""
        held = [tool.standing() for tool in self._tools.values() if hasattr(tool, "standing")]
        return "\n\n".join(filter(None, held))

    def own(self, use: ToolUse) -> ToolUse:
        """Return a call by the names that it has here, where it has those of other agents."""
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
        """InvalidArguments unless the arguments are whole and fit; unknown tools pass."""
        self._parse(use)

    def title(self, use: ToolUse) -> str:
        """Return one line for the person, also for a call that is wrong."""
        named = use.name
        with suppress(InvalidArguments):
            if tool := self._tool(use.name):
                named = f"{tool.name} {tool.title(self._parse(use)[0])}"
        return one_line(named, 200)

    async def call(
        self, use: ToolUse, tell: Tell = lambda _: None, asked_of: AskedOf = keep_nothing
    ) -> ToolOutcome:
        """Run it; failures are outcomes. `tell` hears what is printed meanwhile."""
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
            told = f"There is no tool {one_line(use.name, 80)!r}. Available tools: {names}."
            if "__" in use.name and "wait_for_servers" in self._others:
                told += " MCP servers are still starting: wait_for_servers waits for their tools."
            return failed(told)
        running, telling = _running.set(use), _telling.set(tell)
        asking = _asked_of.set(asked_of)
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
            # A fault of the tool itself must not end the turn: it is told and logged.
            _log.exception("%s failed", use.name)
            return failed(f"{use.name} failed: {type(error).__name__}: {error}")
        finally:
            _running.reset(running)
            _telling.reset(telling)
            _asked_of.reset(asking)

    def _parse(self, use: ToolUse) -> tuple[Any, str]:
        """The tool's `Params`, and a note on what was left out; of no tool what there is."""
        try:
            value = parse_arguments(use.arguments or "{}")
        except ValueError as error:
            raise InvalidArguments(str(error), "its arguments can't be parsed") from None
        tool = self._tool(use.name)
        if tool is None or hasattr(tool, "parameters"):
            return value, ""
        schema = _parameters(tool.Params)
        takes = f"{use.name} takes {signature(schema) or 'no arguments'}"
        value = in_own_words(value, schema)
        vain = left_out(value, schema, tool.effect)
        for name in vain:
            del value[name]
        try:
            params = msgspec.convert(value, tool.Params, strict=False)
        except msgspec.ValidationError as error:
            text = f"invalid arguments for {use.name}: {error}. {takes}"
            raise InvalidArguments(text, in_words(str(error))) from None
        named = one_line(", ".join(vain), 200)
        return params, f"\n\n[Unknown arguments were ignored: {named}. {takes}]" * bool(vain)


def _spec(tool: Tool) -> ToolSpec:
    told = getattr(tool, "parameters", None) or _parameters(tool.Params)
    return ToolSpec(tool.name, tool.description, told)


@cache
def _parameters(params: type[msgspec.Struct]) -> dict[str, Json]:
    (schema,), components = msgspec.json.schema_components([params])
    parameters: dict[str, Json] = _whole(schema, components)
    for noise in ("title", "description"):
        parameters.pop(noise, None)
    return parameters


_UNTOLD = {"title": str, "minLength": int, "maxLength": int}
"""What a call is checked by, or is named for programs, and helps no model to make one."""


def _whole(schema: Any, components: dict[str, Any]) -> Any:
    """Return a schema with what it refers to in its place: not every provider resolves that.

    What helps no model is left out: a call is checked by the type, and takes null for nothing.
    """
    if isinstance(schema, list):
        return [_whole(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    match schema:
        case {"$ref": str(name)}:
            return _whole(components[name.rpartition("/")[2]], components)
        case {"anyOf": [kind, {"type": "null"}], **rest}:
            return _whole({**kind, **rest}, components)
        case {"default": None | "" | [], **rest}:
            return _whole(rest, components)
    return {
        key: _whole(each, components)
        for key, each in schema.items()
        if not isinstance(each, _UNTOLD.get(key, ()))
    }
