"""How to take edits back to a turn, and what is known of some code.

Of code that is which sessions had to do with it and what was decided there, asked of the store by
scope or by file; what a scope or file holds is the code index's affair.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ragmem.memory.recall import others_of, sessions_by_id
from ragmem.memory.turns import field_of, taken_back
from ragmem.own_tools import EDITING_TOOLS, OWN_TOOLS, RUN_COMMAND
from ragmem.records import (
    REFERENCE_HOWS,
    UNDO,
    CodeStore,
    CodeTurn,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    PutReferences,
    ScopeQuery,
    Session,
    ToolCall,
    Turn,
    TurnsQuery,
    utc_now,
)

_HARMLESS = {n for n, tool in OWN_TOOLS.items() if tool.effect in ("read", "memory")} | {UNDO}
_NOT_RUN = ("nothing was done", "not executed", "nothing was executed")
"""In the answer of a call that had no effect."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """All that the session's edits did to one file since a turn."""

    path: str
    """As the results record it: relative to the folder of the session, or absolute."""
    before: str | None
    """Pre-image of the first of these edits; None: the file was not there."""
    after: str
    """SHA-256 of what the last one wrote."""
    edit_count: int = 1
    first_turn: int = 0
    unbroken: bool = True
    """Whether each edit found what the one before it had written: if not, others wrote too."""
    cut_off: bool = False
    """The first edit was cut off: whether it was made is not known, nor what stood there before."""


class Rewind(msgspec.Struct, frozen=True, kw_only=True):
    """What going back to a turn is about."""

    turn_index: int
    changes: tuple[FileChange, ...] = ()
    """A file each, those that were changed first come first."""
    command_count: int = 0
    """Commands that ran since: nothing is known of what they changed."""
    other_count: int = 0
    """Calls of other tools, and of other agents' (imported sessions): neither of these."""


def rewind_to(turns: Iterable[Turn], turn_index: int) -> Rewind:
    """What happened to files after the turn of this index, in the session's order.

    What was taken back since has not happened.
    """
    turns = tuple(turns)
    gone = taken_back(turns)
    changes: dict[str, FileChange] = {}
    commands = others = 0
    for turn in turns:
        if turn.turn_index <= turn_index:
            continue
        for call in turn.tool_calls:
            if call.tool_name in _HARMLESS or _was_not_run(call):
                continue
            edit = _edit(call, turn.turn_index)
            if call.tool_name == RUN_COMMAND:
                commands += 1
            elif call.tool_name not in EDITING_TOOLS or (call.success and call.result and not edit):
                others += 1
            elif edit and edit.path not in gone.get(turn.turn_id, ()):
                known = changes.get(edit.path)
                changes[edit.path] = _joined(known, edit) if known else edit
            elif not call.result and (path := field_of(call.arguments, "path")):
                # After an edit that is known, the file itself tells whether this one was made.
                path, at = posixpath.normpath(path), turn.turn_index
                cut = FileChange(path=path, before=None, after="", first_turn=at, cut_off=True)
                changes.setdefault(path, cut)
    return Rewind(
        turn_index=turn_index,
        changes=tuple(changes.values()),
        command_count=commands,
        other_count=others,
    )


def without_output(turn: Turn) -> Turn:
    """The turn with no more than `rewind_to` looks at."""
    calls = list[ToolCall]()
    for call in turn.tool_calls:
        if call.tool_name in (*EDITING_TOOLS, UNDO):
            calls.append(call)
        elif call.tool_name not in _HARMLESS and not _was_not_run(call):
            calls.append(msgspec.structs.replace(call, result=""))
    return msgspec.structs.replace(turn, assistant_message="", tool_calls=tuple(calls))


def preimages_of(turns: Iterable[Turn]) -> set[str]:
    """Names of the copies of files that were taken before their edits."""
    calls = (call for turn in turns for call in turn.tool_calls if call.tool_name in EDITING_TOOLS)
    return {name for call in calls if (name := field_of(call.result, "preimage"))}


def _was_not_run(call: ToolCall) -> bool:
    said = (field_of(call.result, "text") or call.error or "").casefold()
    return not call.success and any(words in said for words in _NOT_RUN)


def _edit(call: ToolCall, turn_index: int) -> FileChange | None:
    """A finished edit; None for one that failed, and so left the file as it was."""
    if not call.success or not call.result:
        return None
    names = ("path", "sha256", "preimage")
    path, after, before = (field_of(call.result, name) for name in names)
    if path is None or after is None:
        return None
    return FileChange(path=path, before=before, after=after, first_turn=turn_index)


def _joined(known: FileChange, edit: FileChange) -> FileChange:
    return msgspec.structs.replace(
        known,
        after=edit.after,
        edit_count=known.edit_count + 1,
        unbroken=known.unbroken and known.after == (edit.before or ""),
    )


DECIDED_KINDS: tuple[MemoryKind, ...] = ("decision", "rule", "failure")
"""What is told of as decided: what holds for the code, and what was found not to work."""
LOOKED_AT = 1_000
"""The newest so many turns are looked at."""
_SCOPES_OF_A_FILE = 1_000
_SESSIONS = 20
"""Told of at most."""
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
    """The newest of them."""
    memories: tuple[MemoryRecord, ...] = ()
    """What was decided in those turns, or stood in the file."""
    people: dict[str, str] = {}
    """What others are called who have said something here, by id."""


NO_PAST = CodePast()


class _Touch(msgspec.Struct, frozen=True):
    turn: CodeTurn
    hows: tuple[str, ...]


async def past_of_scopes(
    store: CodeStore, project_id: str, wanted: Mapping[str, Collection[str]]
) -> dict[str, CodePast]:
    """Return of each name the past of its scopes' ids. StoreError."""
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
        name: await _told(store, found, decided, known, people) for name, found in touches.items()
    }


async def past_of_file(store: CodeStore, project_id: str, path: str) -> CodePast:
    """Return the past of a file, by its path in the project, and of what it defines. StoreError."""
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
    return await _told(store, touches, decided, {}, people, path=path)


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
    path: str = "",
) -> CodePast:
    by_session: dict[str, list[_Touch]] = {}
    for touch in touches:
        by_session.setdefault(touch.turn.session_id, []).append(touch)
    told, shown = [], list(by_session)[:_SESSIONS]
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
            and (not path or memory.kind != "failure" or _names(memory, path))
        ),
        people=people,
    )


def _names(memory: MemoryRecord, path: str) -> bool:
    """Whether it is about this file, rather than merely of a turn that touched it."""
    name = re.escape(posixpath.basename(path))
    return (
        any(e.path == path for e in memory.evidence)
        or re.search(rf"(?<![\w.-]){name}(?![\w-]|\.\w)", memory.content) is not None
    )


def _sorted(hows: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(hows, key=HOWS.index))
