"""Define tools, their outcomes, and the toolset that an agent is given.

A failing tool yields a result that tells the model what to do instead; only cancellation escapes
`Toolset.call`.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from ragmem.own_tools import OWN_TOOLS, READ_FILE, RUN_COMMAND, Effect as Effect
from ragmem.records import utc_now
from ragmem.text import clean, counted, in_words, one_line

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


def denial(text: str) -> ToolFailure:
    """Return the failure of a call that is denied by what `--allow` does not override."""
    return ToolFailure(text, denied=True, final=True)


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


class RunningCall(msgspec.Struct, frozen=True):
    """The call that runs in this context."""

    use: ToolUse | None = None
    """None outside any call."""
    tell: Tell = lambda _: None
    """Receives what the call prints."""
    note_approval: ApprovalNote = note_nothing


_NO_CALL = RunningCall()
RUNNING: ContextVar[RunningCall] = ContextVar("running", default=_NO_CALL)


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked to allow, complete and resolved."""

    tool_name: str
    title: str
    kind: Literal["diff", "command", "path", "plan", "call"]
    body: str
    """The whole diff, command or plan; interfaces show it with `text.reveal`, never shortened."""
    warnings: tuple[str, ...] = ()
    always: str = ""
    """What "always" would allow, and for how long, in the words of both interfaces; or empty.

    It refers only to what `title` and `body` show in full.
    """
    for_good: tuple[tuple[str, ...], ...] = ()
    """Sets of rules (`ragmem.tools.permissions`) of which one can be saved, narrowest first."""
    outside: "Proposal | None" = None
    """The same command outside the sandbox, if the user may choose that instead."""
    use: ToolUse | None = msgspec.field(default_factory=lambda: RUNNING.get().use)
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
    note_approval = RUNNING.get().note_approval
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

    def title(self, params: Any) -> str:
        """Describe the call to the user by its first argument."""
        return str(getattr(params, params.__struct_fields__[0]))


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
        of_preview: Sequence[Tool] = (),
        more: Callable[[], Sequence[Tool]] = tuple,
    ) -> None:
        """Set the tools; `more` returns those that come and go, each time the model gets a list."""
        self._tools = {tool.name: tool for tool in tools}
        self._of_person = tuple(of_person)
        self._of_preview = tuple(of_preview)
        self._more = more
        self._others: dict[str, Tool] = {}

    @property
    def of_person(self) -> "Toolset":
        """Return the tools that the user may call directly, in the same place, without approval."""
        return Toolset(self._of_person)

    @property
    def of_preview(self) -> "Toolset":
        """Return tools that read for a preview: they ask nobody, and nothing counts as read."""
        return Toolset(self._of_preview)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the tools' names in the order given."""
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of all tools, as the model gets them."""
        self._others = {tool.name: tool for tool in self._more()}
        return tuple(
            ToolSpec(tool.name, tool.description, _schema(tool))
            for tool in (*self._tools.values(), *self._others.values())
        )

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
        own_name = _OWN_NAMES.get(use.name.casefold(), "")
        tool = self._tool(use.name) or self._tools.get(own_name)
        if tool is None or hasattr(tool, "parameters"):
            return use
        use = msgspec.structs.replace(use, name=tool.name)
        with suppress(ValueError, RecursionError):
            given = parse_arguments(use.arguments or "{}")
            if (own := in_own_words(given, _schema(tool))) != given:
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
        running = RUNNING.set(RunningCall(use, tell, note_approval))
        try:
            output = await self._output(use)
            outcome = {name: getattr(output, name) for name in ToolOutput.__struct_fields__}
        except ToolFailure as failure:
            text = clean(failure.text)
            outcome = {"text": text, "display": one_line(failure.shown or text, 300)}
            outcome |= {"success": False, "error": text}
            outcome |= {"denied": failure.denied, "final": failure.final}
        finally:
            RUNNING.reset(running)
        duration_ms = round((time.perf_counter() - started) * 1000)
        return ToolOutcome(**outcome, started_at=started_at, duration_ms=duration_ms)

    async def _output(self, use: ToolUse) -> ToolOutput:
        """Execute a call; raises nothing but ToolFailure, except on cancellation."""
        tool = self._tool(use.name)
        if tool is None:
            names = ", ".join((*self._tools, *self._others)) or "none"
            text = f"There is no tool {one_line(use.name, 80)!r}. Available tools: {names}."
            if "__" in use.name and "wait_for_servers" in self._others:
                text += " MCP servers are still starting: wait_for_servers waits for their tools."
            raise ToolFailure(text)
        try:
            params, note = self._parse(use)
            failpoint("tool.run")
            output = await tool.run(params)
            failpoint("tool.ran")
            text, display = clean(output.text + note), clean(output.display)
            return msgspec.structs.replace(output, text=text, display=display)
        except InvalidArguments as error:
            again = f"Nothing was executed; call {use.name} again with valid arguments."
            raise ToolFailure(f"{error}. {again}", shown=error.shown) from None
        except ToolFailure:
            raise
        except Exception as error:
            # A bug in the tool must not end the turn: report it to the model and log it.
            _log.exception("%s failed", use.name)
            raise ToolFailure(f"{use.name} failed: {type(error).__name__}: {error}") from None

    def _parse(self, use: ToolUse) -> tuple[Any, str]:
        """Return the tool's `Params` (raw values if unknown), and a note on ignored arguments."""
        try:
            value = parse_arguments(use.arguments or "{}")
        except ValueError as error:
            raise InvalidArguments(str(error), "its arguments can't be parsed") from None
        tool = self._tool(use.name)
        if tool is None or hasattr(tool, "parameters"):
            plain = json.dumps(value, ensure_ascii=False)
            if clean(plain) != plain:
                # No server could be sent it.
                text = "arguments contain half a character (an unpaired surrogate)"
                raise InvalidArguments(text, "its arguments contain half a character")
            return value, ""
        schema = _schema(tool)
        usage = f"{use.name} takes {_signature(schema) or 'no arguments'}"
        value = in_own_words(value, schema)
        # For a tool that changes something, an unknown argument could be essential, such as another
        # folder.
        is_harmless = tool.effect in ("read", "memory")
        unknown = [name for name in value if name not in schema["properties"]]
        ignored = [name for name in unknown if is_harmless or name in _EXPLANATIONS]
        for name in ignored:
            del value[name]
        try:
            params = msgspec.convert(value, tool.Params, strict=False)
        except msgspec.ValidationError as error:
            text = f"invalid arguments for {use.name}: {error}. {usage}"
            raise InvalidArguments(text, in_words(str(error))) from None
        names = one_line(", ".join(ignored), 200)
        return params, f"\n\n[Unknown arguments were ignored: {names}. {usage}]" * bool(ignored)


def _schema(tool: Tool) -> dict[str, Json]:
    return getattr(tool, "parameters", None) or _parameters(tool.Params)


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

    What does not help a model is left out: calls are checked by the type, and null is no value.
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


# --- calls that deviate from a tool's own form, where their meaning is plain -----------------

# Models are trained with the tools of other agents. Their names for tools and arguments, numbers
# given as text, and a single text in place of a list are accepted; what a tool does is never
# guessed.

_TOOLS = {
    READ_FILE: "read view",
    "list_directory": "ls list list_dir list_files",
    "glob_files": "glob file_search",
    "grep_files": "grep grep_search search_files search_file_content",
    "write_file": "write write_to_file",
    "edit_file": "edit replace replace_in_file",
    RUN_COMMAND: "bash shell exec_command execute_command run_shell_command run_terminal_cmd",
}
"""By own tool, the names of equivalent tools of other agents."""
_OWN_NAMES = {other: own for own, others in _TOOLS.items() for other in others.split()}
_ARGUMENTS = {
    "path": "file_path filepath filename file absolute_path target_file dir_path directory dir",
    "content": "contents file_text text",
    "old": "old_string old_str old_text",
    "new": "new_string new_str new_text",
    "command": "cmd",
    "pattern": "query regex",
    "query": "pattern",
    "glob": "include",
    "background": "run_in_background is_background",
}
"""By own argument, the names of equivalent arguments of other agents."""
_EXPLANATIONS = {"description", "explanation", "instruction", "justification"}
"""Arguments in which a model explains its call; they do not affect what is done."""


def in_own_words(given: Mapping[str, Json], schema: Mapping[str, Any]) -> dict[str, Json]:
    """Return arguments under their own names, without optional nulls; lists as lists."""
    known = schema["properties"]
    own = {
        other: name
        for name in known.keys() - given.keys()
        if (other := next((o for o in _ARGUMENTS.get(name, "").split() if o in given), ""))
        and other not in known
    }
    named = {own.get(name, name): value for name, value in given.items()}
    required = schema.get("required", ())
    return {
        name: _as_list(value, known.get(name, {}))
        for name, value in named.items()
        if value is not None or name in required or name not in known
    }


def _as_list(value: Json, schema: Mapping[str, Any]) -> Json:
    """Turn a text into a list where the schema wants one: parsed as JSON, else as its only item."""
    if schema.get("type") != "array" or not isinstance(value, str):
        return value
    with suppress(ValueError, RecursionError):
        if isinstance(listed := json.loads(value), list):
            return listed
    return [value]


def _signature(schema: Mapping[str, Any]) -> str:
    """Return a tool's arguments on one line, with their types: `path: string, limit?: integer`."""
    required = schema.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(each)}"
        for name, each in schema["properties"].items()
    )


def _kind(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": choices}:
            return "|".join(map(str, choices))
        case {"anyOf": kinds}:
            return "|".join(map(_kind, kinds))
        case {"items": items}:
            return f"[{_kind(items)}]"
        case {"properties": _}:
            return f"{{{_signature(schema)}}}"
        case _:
            return str(schema.get("type", "any"))
