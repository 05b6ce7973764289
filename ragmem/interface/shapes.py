"""What calls of the interface come down to: checked values, and the writes of a turn."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import get_args

import msgspec

from ragmem.errors import SessionNotFound, UsageError
from ragmem.interface import given
from ragmem.memory.context import STRATEGIES, Place, Strategy
from ragmem.memory.files import extract_accessed_files, shown_path, stored_path
from ragmem.memory.projects import find_instructions
from ragmem.memory.recall import ScopeName, scope_of
from ragmem.records import (
    EVERYTHING,
    BeginTurn,
    FinishTurn,
    Project,
    RecordToolCall,
    Scope,
    Session,
    Turn,
    Write,
)
from ragmem.store.base import Store
from ragmem.text import clip_middle

_SUMMARY_LEVELS = tuple(range(1, 65))
"""More than there can ever be: each has at least twice the turns of the one below."""


def writes_of(turn: Turn, locate: Callable[[str], str]) -> list[Write]:
    """A completed turn from its beginning to its end, for one transaction."""
    return [
        BeginTurn(
            turn_id=turn.turn_id,
            session_id=turn.session_id,
            user_message=turn.user_message,
            started_at=turn.started_at,
            model=turn.model,
        ),
        *(
            RecordToolCall(
                session_id=turn.session_id,
                call=call,
                accesses=tuple(extract_accessed_files(call, locate=locate)),
            )
            for call in turn.tool_calls
        ),
        FinishTurn(
            turn_id=turn.turn_id,
            session_id=turn.session_id,
            status=turn.status,
            assistant_message=turn.assistant_message,
            reasoning=turn.reasoning,
            model=turn.model,
            finished_at=turn.started_at,
        ),
    ]


def scope_around(
    session: Session | None, scope: ScopeName | Scope | None, *, default: ScopeName
) -> Scope:
    """Where to search; without a session by name it can only be everywhere."""
    if isinstance(scope, Scope):
        return scope
    if scope is not None and scope not in get_args(ScopeName):
        raise UsageError(
            f"{scope!r} is no scope.", hint="It is session, project, all, a Scope or a Path."
        )
    if session is not None:
        return scope_of(session, scope or default)
    if scope in (None, "all"):
        return EVERYTHING
    raise UsageError(
        f"The scope {scope!r} is that of a session, and none is given.",
        hint="Give a session's id, the Path of a project, or a Scope.",
    )


async def found_session(store: Store, session_id: str) -> Session:
    """The session of an id; SessionNotFound where there is none."""
    try:
        return await store.session(given.text(session_id, "session_id"))
    except SessionNotFound:
        raise SessionNotFound(
            f"Conversation {session_id} not found",
            hint="get_sessions_by_cwd and list_conversations know those that there are.",
        ) from None


def checked_strategy(strategy: Strategy) -> Strategy:
    """Itself; UsageError for one that there is not."""
    if strategy not in STRATEGIES:
        raise UsageError(f"There is no strategy {strategy!r}.", hint="recent, relevant or hybrid.")
    return strategy


def place_of(session: Session, *, project: Project | None = None) -> Place:
    """Where a session works, with the instructions that its project holds."""
    cwd = Path(session.cwd)
    top = Path(project.path if project else session.project_path or session.cwd)
    inside = cwd.is_relative_to(top)
    return Place(
        cwd=cwd,
        project=top,
        instructions=find_instructions(cwd, top if inside else cwd),
        session_id=session.session_id,
        show_path=partial(shown_path, cwd=cwd, project=top),
    )


def locator(session: Session) -> Callable[[str], str]:
    """Turns a path as a tool gave it into its stored form."""
    cwd = Path(session.cwd)
    return partial(stored_path, cwd=cwd, project=Path(session.project_path or cwd))


def wanted_levels(levels: Iterable[int] | None, *, include_turns: bool) -> tuple[int, ...] | None:
    """As a search takes them, where none is all; None where nothing is wanted."""
    if levels is None:
        return () if include_turns else _SUMMARY_LEVELS
    wanted = tuple(dict.fromkeys(levels))
    if wrong := [level for level in wanted if not isinstance(level, int) or level < 0]:
        raise UsageError(f"{wrong[0]!r} is no level.", hint="0 is turns, 1 and up are summaries.")
    return tuple(level for level in wanted if level or include_turns) or None


def clipped(turn: Turn, max_chars: int) -> Turn:
    """Its texts in so many characters: what the shorter one leaves is for the other."""
    if turn.char_count <= max_chars:
        return turn
    half = max_chars // 2
    for_user = max(half, max_chars - len(turn.assistant_message))
    user = clip_middle(turn.user_message, for_user)
    answer = clip_middle(turn.assistant_message, max_chars - len(user))
    return msgspec.structs.replace(turn, user_message=user, assistant_message=answer)
