"""What the memory has of code: which sessions had to do with it, and what was decided there.

Asked of the store by scope or by file; what a scope or file holds is the code index's affair.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ragmem.memory import others_of, sessions_by_id
from ragmem.records import (
    REFERENCE_HOWS,
    CodeStore,
    CodeTurn,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    PutReferences,
    ScopeQuery,
    Session,
    TurnsQuery,
    utc_now,
)

DECIDED_KINDS: tuple[MemoryKind, ...] = ("decision", "rule", "failure")
"""What is told of as decided: what holds for the code, and what was found not to work."""
LOOKED_AT = 1_000
"""The newest so many turns are looked at."""
_SCOPES_OF_A_FILE = 1_000
_ACCESSES = {"write": "changed", "read": "read", "search": "found", "list": "listed"}
_PASSING = ("found", "listed")
"""What was merely met: a decision of that turn need not be about it."""
HOWS = (*REFERENCE_HOWS[:1], "changed", *REFERENCE_HOWS[1:], "listed")


class CodeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that had to do with some code."""

    session: Session
    hows: tuple[str, ...]
    """`edited`, `changed` (the file), `read`, `found`, `named`, `listed`; the strongest first."""
    turn_count: int
    """Turns that had to do with it."""
    last_at: datetime


class CodePast(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to tell of some code; newest first."""

    session_count: int = 0
    last_at: datetime | None = None
    sessions: tuple[CodeSession, ...] = ()
    """The newest of them, as many as were asked for."""
    memories: tuple[MemoryRecord, ...] = ()
    """What was decided in those turns, or stood in the file."""
    people: dict[str, str] = {}
    """What others are called who have said something here, by id."""


NO_PAST = CodePast()


class _Touch(msgspec.Struct, frozen=True):
    turn: CodeTurn
    hows: tuple[str, ...]


async def past_of_scopes(
    store: CodeStore, project_id: str, wanted: Mapping[str, Collection[str]], *, sessions: int = 20
) -> dict[str, CodePast]:
    """Of each name the past of its scopes' ids; `sessions`: told of each at most. StoreError."""
    owners: dict[str, set[str]] = {}
    for name, scope_ids in wanted.items():
        for scope_id in scope_ids:
            owners.setdefault(scope_id, set()).add(name)
    if not owners:
        return {}
    turns = await store.code_turns(TurnsQuery(scope_ids=tuple(owners), limit=LOOKED_AT))
    references = {
        put.turn_id: put.references
        for put in await store.get(PutReferences, [turn.turn_id for turn in turns])
    }
    touches: dict[str, list[_Touch]] = {}
    for turn in turns:
        hows: dict[str, set[str]] = {}
        for reference in references.get(turn.turn_id, ()):
            for name in owners.get(reference.scope_id, ()):
                hows.setdefault(name, set()).add(reference.how)
        for name, found in hows.items():
            touches.setdefault(name, []).append(_Touch(turn, _sorted(found)))
    decided = await _decided(store, project_id) if touches else []
    known: dict[str, Session] = {}
    people = await others_of(store)
    return {
        name: await _told(store, found, decided, known, people, sessions=sessions)
        for name, found in touches.items()
    }


async def past_of_file(
    store: CodeStore, project_id: str, path: str, *, sessions: int = 20
) -> CodePast:
    """Of a file, by its path in the project, and of what it defines. StoreError."""
    query = ScopeQuery(project_ids=(project_id,), path=path, limit=_SCOPES_OF_A_FILE)
    scopes = tuple(found.scope.scope_id for found in await store.find_scopes(query))
    turns = await store.code_turns(
        TurnsQuery(scope_ids=scopes, project_ids=(project_id,), paths=(path,), limit=LOOKED_AT)
    )
    touches = [
        _Touch(turn, _sorted({*turn.hows, *(_ACCESSES[each] for each in turn.accesses)}))
        for turn in turns
    ]
    decided = await _decided(store, project_id)
    people = await others_of(store)
    return await _told(store, touches, decided, {}, people, sessions=sessions, path=path)


async def inside_of(store: CodeStore, project_id: str, path: str, qualified_name: str) -> list[str]:
    """Ids of the scopes inside of one: what was done with a method was done with its class."""
    query = ScopeQuery(project_ids=(project_id,), path=path, limit=_SCOPES_OF_A_FILE)
    return [
        found.scope.scope_id
        for found in await store.find_scopes(query)
        if found.scope.qualified_name.startswith(f"{qualified_name}.")
    ]


async def _decided(store: CodeStore, project_id: str) -> list[MemoryRecord]:
    query = MemoryQuery(project_ids=(project_id,), kinds=DECIDED_KINDS, alive_at=utc_now())
    return await store.memories(query)


async def _told(
    store: CodeStore,
    touches: Sequence[_Touch],
    decided: Iterable[MemoryRecord],
    known: dict[str, Session],
    people: dict[str, str],
    *,
    sessions: int,
    path: str = "",
) -> CodePast:
    by_session: dict[str, list[_Touch]] = {}
    for touch in touches:
        by_session.setdefault(touch.turn.session_id, []).append(touch)
    told, shown = [], list(by_session)[:sessions]
    known |= await sessions_by_id(store, [each for each in shown if each not in known])
    for session_id in shown:
        own = by_session[session_id]
        if session := known.get(session_id):
            told.append(
                CodeSession(
                    session=session,
                    hows=_sorted({how for touch in own for how in touch.hows}),
                    turn_count=len(own),
                    last_at=max(touch.turn.at for touch in own),
                )
            )
    near = {touch.turn.turn_id for touch in touches if set(touch.hows) - set(_PASSING)}
    return CodePast(
        session_count=len(by_session),
        last_at=max((touch.turn.at for touch in touches), default=None),
        sessions=tuple(told),
        memories=tuple(
            memory
            for memory in decided
            if any(e.turn_id in near or (path and e.path == path) for e in memory.evidence)
        ),
        people=people,
    )


def _sorted(hows: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(hows, key=HOWS.index))
