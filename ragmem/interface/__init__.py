"""The Python interface: `ragmem.open_memory`, `ConversationAgent` and `Conversation`.

This module checks the values that a program passes, and converts them to records and writes.
"""

import inspect
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial, wraps
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import msgspec

from ragmem.config import ScopeName
from ragmem.errors import SessionNotFound, UsageError
from ragmem.ids import derived_id, new_id
from ragmem.llm.base import parse_arguments
from ragmem.memory.context.collect import STRATEGIES, Place, Strategy
from ragmem.memory.projects import Instructions, find_instructions, real_folder
from ragmem.memory.recall import scope_of
from ragmem.memory.recording import write_of
from ragmem.memory.turns import extract_accessed_files, shown_path
from ragmem.messages import fields_in
from ragmem.records import (
    EVERYTHING,
    BeginTurn,
    CodeStore,
    FinishTurn,
    RecordToolCall,
    Scope,
    Session,
    ToolCall,
    Turn,
    Write,
    wrong_time,
)
from ragmem.text import Regex, clean, clip_middle

GivenCall = ToolCall | Mapping[str, Any]
"""A tool call to store: a `ToolCall`, or a mapping of its fields (see docs/python.md)."""

_FIELDS = frozenset(ToolCall.__struct_fields__) - {"turn_id", "order", "origin"}


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def checked_arguments(cls: C) -> C:
    """Apply `checked` to the constructor and the public methods of a class, as a decorator."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, checked(method, cls.__name__ if name == "__init__" else name))
    return cls


def checked(call: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Wrap a function to raise UsageError for an argument that doesn't match its annotation."""
    signature = inspect.signature(call)

    def check(*given: P.args, **named: P.kwargs) -> None:
        for argument, value in signature.bind(*given, **named).arguments.items():
            hint = signature.parameters[argument].annotation
            if not _fits(value, hint):
                raise UsageError(
                    f"{argument} of {name or call.__name__} can't be {reprlib.repr(value)}.",
                    hint=f"It takes {_MODULES.sub('', inspect.formatannotation(hint))}.",
                )

    @wraps(call)
    def checking(*given: P.args, **named: P.kwargs) -> R:
        check(*given, **named)
        return call(*given, **named)

    @wraps(call)
    async def awaiting(*given: P.args, **named: P.kwargs) -> Any:
        check(*given, **named)
        return await call(*given, **named)  # type: ignore[misc]

    return awaiting if inspect.iscoroutinefunction(call) else checking  # type: ignore[return-value]


_MODULES = Regex(r"\b(?:\w+\.)+(?=\w)")


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value matches a type, as far as this can be seen without using it."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Literal:
        return isinstance(value, str)  # The called function checks the value and lists the others.
    wanted = kind or hint
    if wanted in (Any, inspect.Parameter.empty) or not isinstance(wanted, type):
        return True
    if getattr(wanted, "_is_protocol", False):
        return True
    if kind and isinstance(value, str):
        return False  # A string is a sequence of strings, but is never meant as one.
    if not isinstance(value, int | float if wanted is float else wanted):
        return False
    if isinstance(value, Collection) and not isinstance(value, Mapping):
        return all(_fits(each, part) for part in parts[:1] for each in value)
    return True


def local_time(at: datetime | None, now: datetime) -> datetime:
    """Return a time in the zone of `now`, taking a naive one as local; `now` if none is given.

    Raises UsageError for anything that has no such time.
    """
    with suppress(AttributeError, ValueError, OverflowError):
        found = at.astimezone(now.tzinfo) if at else now
        if not wrong_time(found):
            return found
    raise UsageError(f"Not a time that can be stored: {reprlib.repr(at)}.")


def calls_of(given: Iterable[GivenCall], *, turn_id: str, at: datetime) -> tuple[ToolCall, ...]:
    """Return the given calls as records, in order; `at` is the default for their start."""
    made = [_call(one, turn_id=turn_id, order=order, at=at) for order, one in enumerate(given)]
    if len({call.tool_call_id for call in made}) < len(made):
        raise UsageError("Two tool calls of a turn have the same id.")
    return tuple(made)


def _call(one: GivenCall, *, turn_id: str, order: int, at: datetime) -> ToolCall:
    fields = msgspec.structs.asdict(one) if isinstance(one, ToolCall) else _checked_fields(one)
    success = fields.get("success")
    given = fields.get("tool_call_id")
    whole = {
        "success": fields.get("error") is None if success is None else success,
        # Providers reuse their ids ("call_0"), and a stored turn's calls may be stored again.
        "tool_call_id": derived_id(turn_id, str(given)) if given else new_id(),
        "started_at": local_time(fields.get("started_at"), at),
        "turn_id": turn_id,
        "order": order,
        "arguments": _arguments(fields.get("arguments")),
        "result": _result(fields.get("result", "")),
    }
    try:
        return msgspec.convert(fields | whole, ToolCall)
    except msgspec.ValidationError as wrong:
        raise UsageError(f"Can't store the tool call: {wrong}.") from None


def _checked_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(given) - _FIELDS):
        raise UsageError(
            f"A tool call has no field {unknown[0]!r}.",
            hint=(f"Its fields are {', '.join(sorted(_FIELDS))}."),
        )
    if not given.get("tool_name"):
        raise UsageError("A tool call needs a tool_name.")
    return {**given, "tool_name": clean(given["tool_name"])}


def _arguments(value: object) -> str:
    """Return arguments as a JSON object; anything else is wrapped in one."""
    encoded = value if isinstance(value, str) else _json({} if value is None else value)
    try:
        parse_arguments(encoded or "{}")
    except ValueError:
        return _json({"value": value})
    return clean(encoded or "{}")


def _result(value: object) -> str:
    """Return a result as a JSON object with a field `text`, which the model was shown."""
    if isinstance(value, str):
        has_text = isinstance(fields_in(value).get("text"), str)
        return clean(value) if has_text else _json({"text": clean(value)})
    fields = dict(value) if isinstance(value, Mapping) else {}
    return _json(fields if isinstance(fields.get("text"), str) else {"text": _json(value)} | fields)


def _json(value: object) -> str:
    try:
        return clean(msgspec.json.encode(value).decode())
    except (TypeError, ValueError, RecursionError) as wrong:
        raise UsageError(
            f"Arguments and results of a tool call must be JSON: {wrong}.",
            hint="Give a text, a number, a list or a dict of such.",
        ) from None


_SUMMARY_LEVELS = tuple(range(1, 65))
"""More levels than are possible: each covers at least twice the turns of the one below."""


def writes_of(turn: Turn, locate: Callable[[str], str]) -> list[Write]:
    """Return the writes that store a completed turn, for one transaction."""
    return [
        write_of(BeginTurn, turn),
        *(
            RecordToolCall(
                session_id=turn.session_id,
                call=call,
                accesses=tuple(extract_accessed_files(call, locate=locate)),
            )
            for call in turn.tool_calls
        ),
        write_of(FinishTurn, turn),
    ]


def scope_around(
    session: Session | None, scope: ScopeName | Scope | None, *, default: ScopeName
) -> Scope:
    """Return the scope to search; without a session the only valid name is `all`."""
    if isinstance(scope, Scope):
        return scope
    if scope is not None and scope not in get_args(ScopeName):
        raise UsageError(
            f"Not a scope: {scope!r}.", hint="Use session, project, all, a Scope or a Path."
        )
    if session is not None:
        return scope_of(session, scope or default)
    if scope in (None, "all"):
        return EVERYTHING
    raise UsageError(
        f"The scope {scope!r} needs a session.",
        hint="Give a session id, the Path of a project, or a Scope.",
    )


async def found_session(store: CodeStore, session_id: str) -> Session:
    """Return the session with an id; raises SessionNotFound."""
    session_id = clean(session_id)
    try:
        return await store.session(session_id)
    except SessionNotFound:
        raise SessionNotFound(
            f"Conversation {session_id} not found",
            hint="get_sessions_by_cwd and list_conversations return existing ids.",
        ) from None


def checked_strategy(strategy: Strategy) -> Strategy:
    """Return a strategy if it is valid; raises UsageError."""
    if strategy not in STRATEGIES:
        raise UsageError(f"Unknown strategy: {strategy!r}.", hint="Use recent, relevant or hybrid.")
    return strategy


def place_of(session: Session, instructions: Instructions | None = None) -> Place:
    """Return the place of a session, with its project's instructions if none are given."""
    cwd = real_folder(session.cwd)
    top = real_folder(session.project_path) if session.project_path else cwd
    if instructions is None:
        instructions = find_instructions(cwd, top if cwd.is_relative_to(top) else cwd)
    return Place(
        cwd=cwd,
        project=top,
        instructions=instructions,
        show_path=partial(shown_path, cwd=cwd, project=top),
    )


def wanted_levels(levels: Iterable[int] | None, *, include_turns: bool) -> tuple[int, ...] | None:
    """Return the levels for a search, where an empty tuple means all; None to find nothing."""
    if levels is None:
        return () if include_turns else _SUMMARY_LEVELS
    wanted = tuple(dict.fromkeys(levels))
    return tuple(level for level in wanted if level or include_turns) or None


def clipped(turn: Turn, max_chars: int) -> Turn:
    """Cut a turn's messages to `max_chars` in all; what the shorter leaves is for the other."""
    if turn.char_count <= max_chars:
        return turn
    half = max_chars // 2
    for_user = max(half, max_chars - len(turn.assistant_message))
    user = clip_middle(turn.user_message, for_user)
    answer = clip_middle(turn.assistant_message, max_chars - len(user))
    return msgspec.structs.replace(turn, user_message=user, assistant_message=answer)
