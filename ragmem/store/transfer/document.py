"""One session as a JSON document, and back, without loss.

Ids are kept. A fork's document also has the turns that it shares: it becomes independent where the
session that it was forked from is not known.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from ragmem.errors import UsageError
from ragmem.failpoints import failpoint
from ragmem.files import is_a_path
from ragmem.ids import new_id, short_id
from ragmem.records import (
    OF_SESSIONS,
    AddSummary,
    Claims,
    Evidence,
    FileAccess,
    IdOf,
    Insight,
    MemoryId,
    MemoryQuery,
    MemoryRecord,
    OfASession,
    Owner,
    Project,
    PutMemory,
    PutSession,
    PutTurn,
    RegisterProject,
    Session,
    SessionId,
    Span,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
    Write,
    claims_of,
    is_own,
    utc_now,
    wrong_time,
)
from ragmem.store import Archive, fitted
from ragmem.store.transfer import owner_write
from ragmem.text import one_line

T = TypeVar("T", bound=msgspec.Struct)


class MemoryDocument(MemoryRecord, frozen=True, kw_only=True):
    """A memory, with what it superseded."""

    supersedes: tuple[MemoryId, ...] = ()
    """Only directly."""


async def memories_of(store: Archive, session_id: str) -> tuple[MemoryDocument, ...]:
    """Return the memories with evidence in the session, oldest first."""
    query = MemoryQuery(everywhere=True, with_superseded=True, session_ids=(session_id,))
    found = []
    for memory in reversed(await store.memories(query)):
        older = await store.superseded_by(memory.memory_id)
        its_own = tuple(
            each.memory_id for each in reversed(older) if each.superseded_by == memory.memory_id
        )
        found.append(replace(_as(MemoryDocument, memory), supersedes=its_own))
    return tuple(found)


def _as(kind: type[T], record: msgspec.Struct) -> T:
    """Convert a record to another kind by their common fields, including nested records."""
    return msgspec.convert(record, kind, from_attributes=True)


async def memory_writes(
    store: Archive, memories: Sequence[MemoryDocument], session_id: str
) -> list[Write]:
    """Return the writes that store memories; an existing one is kept, and gets the new evidence."""
    held = {
        memory.memory_id: memory
        for memory in await store.get(MemoryRecord, [memory.memory_id for memory in memories])
    }
    writes: list[Write] = []
    for memory in memories:
        if here := held.get(memory.memory_id):
            evidence = _merged_evidence(here.evidence, memory.evidence, session_id)
            writes.append(PutMemory(memory=replace(here, evidence=evidence)))
            continue
        # Its evidence tells the project that it came from, and a split finds it by that.
        record, supersedes = replace(_as(MemoryRecord, memory), joined_from=None), memory.supersedes
        if supersedes and record.superseded_by:
            # A superseded memory supersedes nothing any more, so that is stored first.
            current = replace(record, superseded_by=None, valid_until=None)
            writes.append(PutMemory(memory=current, supersedes=supersedes))
            supersedes = ()
        writes.append(PutMemory(memory=record, supersedes=supersedes))
    return writes


def _merged_evidence(
    here: Sequence[Evidence], given: Sequence[Evidence], session_id: str
) -> tuple[Evidence, ...]:
    """Return the stored evidence, and the given evidence in this session."""
    known = set(here)
    if known <= set(given):
        return tuple(each for each in given if each.session_id == session_id or each in known)
    return (*here, *(each for each in given if each.session_id == session_id))


_AN_ID = re.compile(r"[\w-]+")
_MOST_ID_BYTES = 1_000
"""Far more than any id has; a graph can't index more than 8,000."""
_SHOWN_CHARS = 80


class CallDocument(ToolCall, frozen=True, kw_only=True):
    """A tool call with the files it accessed."""

    file_accesses: tuple[FileAccess, ...] = ()


class TurnDocument(Turn, frozen=True, kw_only=True):
    """A turn with its tool calls."""

    tool_calls: tuple[CallDocument, ...] = ()


class BranchDocument(msgspec.Struct, frozen=True):
    """A session that was forked from this one, and has a document of its own."""

    session_id: SessionId
    title: str
    forked_at_index: int | None


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A session with all that belongs to it; `OF_SESSIONS` in fields named after their tables."""

    format: Literal["ragmem.session"] = "ragmem.session"
    version: Literal[1] = 1
    session: Session
    turns: tuple[TurnDocument, ...] = ()
    summaries: tuple[Summary, ...] = ()
    memories: tuple[MemoryDocument, ...] = ()
    """Memories with evidence in it, oldest first."""
    branches: tuple[BranchDocument, ...] = ()
    insights: tuple[Insight, ...] = ()
    """The insight into it, if there is one. Older versions ignore it."""
    owners: tuple[Owner, ...] = ()
    """The owners of the session and its memories, of those that have a name."""


async def document_of(store: Archive, session_id: str) -> SessionDocument:
    """Return a session's document; SessionNotFound if there is none."""
    session = await store.session(session_id)
    turns = await store.own_turns(await _lineage(store, session))
    branches = await store.branches(session_id)
    memories = await memories_of(store, session_id)
    people = {session.owner, *(memory.owner for memory in memories)}
    records: dict[str, Any] = {
        each.table: tuple(await store.get(each.record, [session_id])) for each in OF_SESSIONS
    }
    return SessionDocument(
        session=session,
        turns=tuple(map(_turn_document, turns)),
        summaries=tuple(reversed(await store.summaries(session_id))),
        memories=memories,
        branches=tuple(
            BranchDocument(fork.session_id, fork.title, fork.forked_at_index) for fork in branches
        ),
        owners=tuple(
            each for each in await store.owners() if each.owner_id in people and each.name
        ),
        **records,
    )


async def _lineage(store: Archive, session: Session) -> list[Span]:
    """Return the spans of turns that a session sees, its ancestors' first."""
    spans: list[Span] = []
    last = session.turn_count
    current: Session | None = session
    while current is not None:
        shared = min(last, current.forked_at_index or 0) if current.parent_session_id else 0
        spans.insert(0, Span(current.session_id, shared + 1, last))
        last = shared
        parent = current.parent_session_id
        current = await store.session(parent) if parent else None
    return spans


def _turn_document(put: PutTurn) -> TurnDocument:
    document = _as(TurnDocument, put.turn)
    calls = tuple(
        replace(call, file_accesses=put.accesses.get(call.tool_call_id, ()))
        for call in document.tool_calls
    )
    return replace(document, tool_calls=calls)


def encoded(document: msgspec.Struct) -> bytes:
    """Encode the document as JSON, indented by 2."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decoded(data: bytes) -> SessionDocument:
    """Decode a document; UsageError if it is none of ragmem's, or incomplete."""
    try:
        document = msgspec.json.decode(data, type=SessionDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"This is not a session exported by ragmem: {error}.",
            hint="`ragmem sessions export -o FILE` writes one. `ragmem memory import` takes "
            "memories, `ragmem store migrate --from` backups.",
        ) from None
    _check(document)
    return document


def _check(document: SessionDocument) -> None:
    session = document.session
    values = list(leaves(document))
    used = [number for turn in document.turns for number in msgspec.structs.astuple(turn.usage)]
    wrong = ""
    if [turn.turn_index for turn in document.turns] != list(range(1, len(document.turns) + 1)):
        wrong = "its turns are not numbered from 1 without gaps"
    elif strange_time := wrong_time_in(document):
        wrong = strange_time
    elif any(number is not None and number < 0 for number in used):
        wrong = "a turn has negative usage"
    elif not session.parent_session_id and any(
        turn.session_id != session.session_id for turn in document.turns
    ):
        wrong = "a turn belongs to another session"
    elif any(summary.level < 1 for summary in document.summaries):
        wrong = "a summary has no level"
    elif any(
        all(each.session_id != session.session_id for each in memory.evidence)
        for memory in document.memories
    ):
        wrong = "a memory does not come from it"
    elif strange := [kind for kind in OF_SESSIONS if _is_of_another(document, kind)]:
        wrong = f"{strange[0].called} is of another session"
    elif any(len(str(each).encode()) > _MOST_ID_BYTES for is_id, each in values if is_id):
        wrong = f"an id in it is longer than {_MOST_ID_BYTES:,} bytes"
    elif not is_a_path(session.cwd):
        wrong = "its folder is not a path"
    if wrong:
        shown = one_line(session.session_id, _SHOWN_CHARS)
        raise UsageError(f"The session {shown} can't be imported: {wrong}.")


def wrong_time_in(record: msgspec.Struct) -> str:
    """Return why one of its times can't be stored, or "" if all can."""
    times = (each for _, each in leaves(record) if isinstance(each, datetime))
    return next(filter(None, map(wrong_time, times)), "")


def _is_of_another(document: SessionDocument, kind: OfASession) -> bool:
    own = document.session.session_id
    return any(each.session_id != own for each in getattr(document, kind.table))


@cache
def _of_ids(kind: type[msgspec.Struct]) -> Mapping[str, bool]:
    """Return the fields of a kind of record, each with whether its texts are ids."""
    types = get_type_hints(kind, include_extras=True)
    return {name: _holds_ids(types[name]) for name in kind.__struct_fields__}


def _holds_ids(held: Any) -> bool:
    """Whether texts of this type are ids, also within a tuple or an optional type."""
    marks = getattr(held, "__metadata__", ())
    return any(isinstance(each, IdOf) for each in marks) or any(map(_holds_ids, get_args(held)))


def leaves(value: object, *, is_id: bool = False) -> Iterator[tuple[bool, object]]:
    """Yield all texts, numbers and times in a document, each with whether it is an id."""
    match value:
        case msgspec.Struct():
            for name, holds_ids in _of_ids(type(value)).items():
                yield from leaves(getattr(value, name), is_id=holds_ids)
        case tuple():
            for each in value:
                yield from leaves(each, is_id=is_id)
        case _:
            yield is_id, value


def renamed(record: T, ids: Mapping[str, str]) -> T:
    """Return a record, with those within it, with other ids, whatever their fields are called."""
    return cast("T", _renamed(record, ids, is_id=False))


def _renamed(value: Any, ids: Mapping[str, str], *, is_id: bool) -> Any:
    match value:
        case msgspec.Struct():
            other = {
                name: _renamed(getattr(value, name), ids, is_id=holds_ids)
                for name, holds_ids in _of_ids(type(value)).items()
            }
            if isinstance(value, ToolCall) and value.is_undo:
                # Its text names the turns whose edits were undone.
                other["result"] = _AN_ID.sub(lambda each: ids.get(each[0], each[0]), value.result)
            return replace(value, **other)
        case tuple():
            return tuple(_renamed(each, ids, is_id=is_id) for each in value)
        case str() if is_id:
            return ids.get(value, value)
    return value


async def without_others_standing(
    store: Archive, document: SessionDocument, owner: str, *, was_asked: bool
) -> SessionDocument:
    """Return the document as this owner's home may take it in.

    The user's own memories, by the owner ids in the document, are kept as they are if the user was
    asked: whoever had a file of theirs may know the id. Memories of others, and all of them if
    nobody was asked, neither speak for the user nor supersede what is here.
    """
    theirs = {
        each.memory_id for each in document.memories if not (was_asked and is_own(each, owner))
    }
    here = {each.memory_id for each in await store.get(MemoryRecord, sorted(theirs))}
    memories = tuple(
        replace(
            memory.of_another(document.session.project_id),
            supersedes=tuple(each for each in memory.supersedes if each in theirs - here),
        )
        if memory.memory_id in theirs
        else memory
        for memory in document.memories
    )
    owners = document.owners
    if not was_asked or document.session.owner != owner:
        owners = tuple(each for each in owners if each.owner_id != owner)
    return replace(document, memories=memories, owners=owners)


async def claims(store: Archive, document: SessionDocument, owner: str, *, as_new: bool) -> Claims:
    """Return what a document's memories claim in the home of that owner; all of them, if `as_new`.

    Only the user's own can supersede what is here, and none with a new id.
    """
    if as_new:
        return claims_of(document.memories, owner, known=(), now=utc_now())
    ids = [each.memory_id for each in document.memories]
    known = {each.memory_id for each in await store.get(MemoryRecord, ids)}
    own = [m for m in document.memories if is_own(m, owner) and m.memory_id not in known]
    older = sorted({each for memory in own for each in memory.supersedes})
    here = await store.get(MemoryRecord, older)
    return replace(
        claims_of(document.memories, owner, known=known, now=utc_now()),
        replaced=tuple(each for each in here if each.superseded_by is None),
    )


async def import_document(store: Archive, document: SessionDocument, *, as_new: bool) -> Session:
    """Store the document, all or nothing; UsageError if an id exists, unless all ids are new."""
    session_id = document.session.session_id
    if not as_new and await store.get(Session, [session_id]):
        raise UsageError(
            f"Session {short_id(session_id)} is already here.",
            hint="To import it as another one, add --as-new.",
        )
    if as_new or not await _shares_turns(store, document):
        document = _without_parent(document, as_new=as_new)
    document, writes = await _in_local_project(store, document)
    if as_new:
        document = await _with_stored_ids(store, document)
    summaries = await _coverable(store, document)
    if known := await store.get(Summary, [summary.summary_id for summary in summaries]):
        raise UsageError(
            f"Summary {known[0].summary_id} is already here, in another session.",
            hint="To import everything with new ids, add --as-new.",
        )
    writes.append(PutSession(session=document.session))
    writes += [
        _put(turn) for turn in document.turns if turn.session_id == document.session.session_id
    ]
    writes += [AddSummary(summary=summary) for summary in summaries]
    writes += await memory_writes(store, document.memories, document.session.session_id)
    writes += [kind.put.of(each) for kind in OF_SESSIONS for each in getattr(document, kind.table)]
    writes += [each for each in map(owner_write, document.owners) if each]
    failpoint("transfer.import")
    await store.apply(writes)
    return await store.session(document.session.session_id)


async def _coverable(store: Archive, document: SessionDocument) -> list[Summary]:
    """Return the summaries, lower levels first, covering only what is stored or comes along."""
    ids = {turn.turn_id for turn in document.turns}
    ids |= {summary.summary_id for summary in document.summaries}
    others = {each for summary in document.summaries for each in summary.covers if each not in ids}
    ids |= {summary.summary_id for summary in await store.get(Summary, sorted(others))}
    left = []
    for summary in sorted(document.summaries, key=lambda summary: summary.level):
        if covers := tuple(each for each in summary.covers if each in ids):
            left.append(replace(summary, covers=covers))
    return left


async def _shares_turns(store: Archive, document: SessionDocument) -> bool:
    """Whether a fork's parent is here, with exactly the turns that it shared."""
    session = document.session
    if session.parent_session_id is None:
        return True
    if not await store.get(Session, [session.parent_session_id]):
        return False
    query = TurnQuery(before_index=(session.forked_at_index or 0) + 1, with_tool_calls=False)
    shared = await store.turns(session.parent_session_id, query)
    given = [turn.turn_id for turn in document.turns if turn.session_id != session.session_id]
    return [turn.turn_id for turn in shared] == given


def _without_parent(document: SessionDocument, *, as_new: bool) -> SessionDocument:
    """Return the document without a parent: with new ids for shared turns, or `as_new` for all."""
    before = document.session.session_id
    ids: dict[str, str] = {}
    for turn in document.turns:
        if as_new or turn.session_id != before:
            ids |= {
                each: new_id()
                for each in (turn.turn_id, *(call.tool_call_id for call in turn.tool_calls))
            }
    if as_new:
        own = {memory.memory_id: new_id() for memory in document.memories}
        memories = tuple(
            replace(memory, supersedes=tuple(each for each in memory.supersedes if each in own))
            for memory in document.memories
        )
        document = replace(document, memories=memories)
        ids |= own | {each.summary_id: new_id() for each in document.summaries}
        ids[before] = new_id()
    document = renamed(document, ids)
    session_id = ids.get(before, before)
    its_own = {turn.turn_id for turn in document.turns}
    return replace(
        document,
        session=replace(document.session, parent_session_id=None, forked_at_index=None),
        turns=tuple(replace(turn, session_id=session_id) for turn in document.turns),
        memories=tuple(
            replace(
                memory,
                evidence=tuple(
                    replace(each, session_id=session_id) if each.turn_id in its_own else each
                    for each in memory.evidence
                ),
            )
            for memory in document.memories
        ),
    )


async def _with_stored_ids(store: Archive, document: SessionDocument) -> SessionDocument:
    """Return the document with the ids of stored memories that have the same content.

    A second copy of a session thus adds evidence, but no second memory, and supersedes none.
    """
    query = MemoryQuery(everywhere=True, with_superseded=True)
    here = {_content_key(each): each.memory_id for each in await store.memories(query)}
    memories = document.memories
    ids = {
        each.memory_id: here[_content_key(each)] for each in memories if _content_key(each) in here
    }
    memories = tuple(
        replace(each, supersedes=tuple(older for older in each.supersedes if older not in ids))
        for each in memories
    )
    return renamed(replace(document, memories=memories), ids)


def _content_key(memory: MemoryRecord) -> tuple[str | None, str, str, bool]:
    words = " ".join(memory.content.casefold().split())
    return memory.project_id, memory.kind, words, memory.superseded_by is None


async def _in_local_project(
    store: Archive, document: SessionDocument
) -> tuple[SessionDocument, list[Write]]:
    """Return the document in the project of its directory here, with the writes to register it."""
    session = document.session
    path = session.project_path or session.cwd
    known: Sequence[Project] = await store.projects()
    if any(session.project_id == each.project_id for each in known):
        return document, []
    for project in known:
        if project.path == path:
            return renamed(document, {session.project_id: project.root_id}), []
    project = Project(project_id=session.project_id, path=path, created_at=session.started_at)
    return document, [RegisterProject(project=project)]


def _put(turn: TurnDocument) -> PutTurn:
    """Return the write of a turn; one that was running on export counts as interrupted."""
    whole = _as(Turn, turn)
    calls = tuple(replace(call, turn_id=turn.turn_id) for call in whole.tool_calls)
    if turn.status == "running":
        whole = replace(whole, status="interrupted", owner_id=None, finished_at=turn.started_at)
    return PutTurn(
        turn=fitted(replace(whole, tool_calls=calls)),
        accesses={
            call.tool_call_id: call.file_accesses for call in turn.tool_calls if call.file_accesses
        },
    )
