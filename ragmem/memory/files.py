"""Which edits undoing back to a turn would revert, and the history of code.

The history of a scope or file is the sessions that touched it and the decisions made there. Their
contents are left to the code index.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ragmem.memory.recall import others_of, sessions_by_id
from ragmem.memory.turns import field_of, taken_back, was_refused
from ragmem.messages import fields_in
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


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """The session's edits of one file since a turn, combined."""

    path: str
    """As in the results of the edits: relative to the session's folder, or absolute."""
    before: str | None
    """Name of the copy made before the first edit; None if the file did not exist."""
    after: str
    """SHA-256 of what the last edit wrote."""
    mode: int | None = None
    """The file's permission bits before the first edit; None if they were not recorded."""
    edit_count: int = 1
    unbroken: bool = True
    """Whether each edit found what the one before had written; if not, something else wrote too."""
    cut_off: bool = False
    """The first edit was interrupted: it may not have been made, and there is no copy."""


class Rewind(msgspec.Struct, frozen=True, kw_only=True):
    """What happened since a turn that the user goes back to."""

    turn_index: int
    changes: tuple[FileChange, ...] = ()
    """One per file, in the order in which they were first changed."""
    command_count: int = 0
    """Commands run since; what they changed is unknown."""
    other_count: int = 0
    """Calls of other tools since that may have had effects, also those of imported sessions."""


def rewind_to(turns: Iterable[Turn], turn_index: int) -> Rewind:
    """Collect what happened to files after the turn of this index; `turns` are in order.

    Edits that the user has undone since are left out.
    """
    turns = tuple(turns)
    undone = taken_back(turns)
    changes: dict[str, FileChange] = {}
    commands = others = 0
    for turn in turns:
        if turn.turn_index <= turn_index:
            continue
        for call in turn.tool_calls:
            if call.tool_name in _HARMLESS or was_refused(call):
                continue
            edit = _edit(call)
            if call.tool_name == RUN_COMMAND:
                commands += 1
            elif call.tool_name not in EDITING_TOOLS or (call.success and call.result and not edit):
                others += 1
            elif edit and edit.path not in undone.get(turn.turn_id, ()):
                known = changes.get(edit.path)
                changes[edit.path] = _joined(known, edit) if known else edit
            elif not call.result and (path := field_of(call.arguments, "path")):
                # If an edit before it is known, the file itself shows whether this one was made.
                path = posixpath.normpath(path)
                cut = FileChange(path=path, before=None, after="", cut_off=True)
                changes.setdefault(path, cut)
    return Rewind(
        turn_index=turn_index,
        changes=tuple(changes.values()),
        command_count=commands,
        other_count=others,
    )


def without_output(turn: Turn) -> Turn:
    """Return the turn with only what `rewind_to` reads."""
    calls = list[ToolCall]()
    for call in turn.tool_calls:
        if call.tool_name in (*EDITING_TOOLS, UNDO):
            calls.append(call)
        elif call.tool_name not in _HARMLESS and not was_refused(call):
            calls.append(msgspec.structs.replace(call, result=""))
    return msgspec.structs.replace(turn, assistant_message="", tool_calls=tuple(calls))


def preimages_of(turns: Iterable[Turn]) -> set[str]:
    """Return the names of the copies of files made before their edits."""
    calls = (call for turn in turns for call in turn.tool_calls if call.tool_name in EDITING_TOOLS)
    return {name for call in calls if (name := field_of(call.result, "preimage"))}


def _edit(call: ToolCall) -> FileChange | None:
    """Return a finished edit as a change; None for a failed one, which left the file unchanged."""
    if not call.success or not call.result:
        return None
    names = ("path", "sha256", "preimage")
    path, after, before = (field_of(call.result, name) for name in names)
    if path is None or after is None:
        return None
    mode = fields_in(call.result).get("mode")
    bits = mode & 0o777 if isinstance(mode, int) else None
    return FileChange(path=path, before=before, after=after, mode=bits)


def _joined(known: FileChange, edit: FileChange) -> FileChange:
    return msgspec.structs.replace(
        known,
        after=edit.after,
        edit_count=known.edit_count + 1,
        unbroken=known.unbroken and known.after == (edit.before or ""),
    )


DECIDED_KINDS: tuple[MemoryKind, ...] = ("decision", "rule", "failure")
"""Kinds of memories shown as decided: what holds for the code, and what was found not to work."""
LOOKED_AT = 1_000
"""Limit of the newest turns that are searched."""
_SCOPES_OF_A_FILE = 1_000
_SESSIONS = 20
"""Limit of the sessions returned."""
_ACCESSES = {"write": "changed", "read": "read", "search": "found", "list": "listed"}
_INCIDENTAL = ("found", "listed")
"""Ways of coming across code after which a decision of the turn need not be about it."""
HOWS = (*REFERENCE_HOWS[:1], "changed", *REFERENCE_HOWS[1:], "listed")


class CodeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that touched some code."""

    session: Session
    hows: tuple[str, ...]
    """`edited`, `changed` (the file), `read`, `found`, `named`, `listed`; the strongest first."""
    turn_count: int
    """Turns that touched it."""
    last_at: datetime


class CodePast(msgspec.Struct, frozen=True, kw_only=True):
    """The history of some code, newest first."""

    session_count: int = 0
    last_at: datetime | None = None
    sessions: tuple[CodeSession, ...] = ()
    """The newest of these sessions."""
    memories: tuple[MemoryRecord, ...] = ()
    """Decisions from those turns, or found in the file."""
    people: dict[str, str] = {}
    """Display names of a shared store's other users, by id."""


NO_PAST = CodePast()


class _Touch(msgspec.Struct, frozen=True):
    turn: CodeTurn
    hows: tuple[str, ...]


async def past_of_scopes(
    store: CodeStore, project_id: str, wanted: Mapping[str, Collection[str]]
) -> dict[str, CodePast]:
    """Return the history of each name's scopes, which are given by id. Raises StoreError."""
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
        name: await _past_from(store, found, decided, known, people)
        for name, found in touches.items()
    }


async def past_of_file(store: CodeStore, project_id: str, path: str) -> CodePast:
    """Return the history of a file and its scopes, by its path in the project; StoreError."""
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
    return await _past_from(store, touches, decided, {}, people, path=path)


async def inside_of(store: CodeStore, project_id: str, path: str, qualified_name: str) -> list[str]:
    """Return the ids of scopes inside another: what touched a method touched its class."""
    query = ScopeQuery(project_ids=(project_id,), path=path, limit=_SCOPES_OF_A_FILE)
    return [
        found.scope.scope_id
        for found in await store.find_scopes(query)
        if found.scope.qualified_name.startswith(f"{qualified_name}.")
    ]


async def _decided(store: CodeStore, project_id: str) -> list[MemoryRecord]:
    query = MemoryQuery(project_ids=(project_id,), kinds=DECIDED_KINDS, alive_at=utc_now())
    return await store.memories(query)


async def _past_from(
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
    sessions, shown = [], list(by_session)[:_SESSIONS]
    known |= await sessions_by_id(store, [each for each in shown if each not in known])
    for session_id in shown:
        own = by_session[session_id]
        if session := known.get(session_id):
            sessions.append(
                CodeSession(
                    session=session,
                    hows=_sorted({how for touch in own for how in touch.hows}),
                    turn_count=len(own),
                    last_at=max(touch.turn.at for touch in own),
                )
            )
    near = {touch.turn.turn_id for touch in touches if set(touch.hows) - set(_INCIDENTAL)}
    return CodePast(
        session_count=len(by_session),
        last_at=max((touch.turn.at for touch in touches), default=None),
        sessions=tuple(sessions),
        memories=tuple(
            memory
            for memory in decided
            if any(e.turn_id in near or (path and e.path == path) for e in memory.evidence)
            and (not path or memory.kind != "failure" or _names(memory, path))
        ),
        people=people,
    )


def _names(memory: MemoryRecord, path: str) -> bool:
    """Whether a memory is about this file, rather than just from a turn that touched it."""
    name = re.escape(posixpath.basename(path))
    return (
        any(e.path == path for e in memory.evidence)
        or re.search(rf"(?<![\w.-]){name}(?![\w-]|\.\w)", memory.content) is not None
    )


def _sorted(hows: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(hows, key=HOWS.index))
