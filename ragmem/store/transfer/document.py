"""One session as a JSON document, and back: nothing is lost on the way.

Ids are kept. A fork's document has the turns that it shares too: where the
session that it was forked from is not known, it stands by itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ragmem.errors import UsageError
from ragmem.failpoints import failpoint
from ragmem.files import is_a_path
from ragmem.ids import new_id, short_id
from ragmem.records import (
    UNDO,
    AddSummary,
    Evidence,
    FileAccess,
    Insight,
    MemoryQuery,
    MemoryRecord,
    Owner,
    Project,
    PutInsight,
    PutMemory,
    PutSession,
    PutTurn,
    RegisterProject,
    Session,
    Span,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
    Write,
)
from ragmem.store import Archive, fitted
from ragmem.store.transfer import owner_write
from ragmem.text import one_line


class MemoryDocument(MemoryRecord, frozen=True, kw_only=True):
    """A memory, and what it took the place of."""

    supersedes: tuple[str, ...] = ()
    """Directly."""


async def memories_of(store: Archive, session_id: str) -> tuple[MemoryDocument, ...]:
    """Those that were said in the session, oldest first."""
    query = MemoryQuery(everywhere=True, with_superseded=True, session_ids=(session_id,))
    found = []
    for memory in reversed(await store.memories(query)):
        older = await store.superseded_by(memory.memory_id)
        fields = msgspec.structs.asdict(memory)
        fields["supersedes"] = tuple(
            each.memory_id for each in reversed(older) if each.superseded_by == memory.memory_id
        )
        found.append(MemoryDocument(**fields))
    return tuple(found)


async def memory_writes(
    store: Archive, memories: Sequence[MemoryDocument], session_id: str
) -> list[Write]:
    """The writes that store them. One that is here keeps what it says, and is said here too."""
    held = {
        memory.memory_id: memory
        for memory in await store.get(MemoryRecord, [memory.memory_id for memory in memories])
    }
    writes: list[Write] = []
    for memory in memories:
        if here := held.get(memory.memory_id):
            evidence = _together(here.evidence, memory.evidence, session_id)
            writes.append(PutMemory(memory=replace(here, evidence=evidence)))
            continue
        # Its evidence says where it is from, and a split finds it by that.
        fields = msgspec.structs.asdict(memory) | {"joined_from": None}
        supersedes = fields.pop("supersedes")
        record = MemoryRecord(**fields)
        if supersedes and record.superseded_by:
            # What is superseded takes nothing's place any more: it does so before.
            current = replace(record, superseded_by=None, valid_until=None)
            writes.append(PutMemory(memory=current, supersedes=supersedes))
            supersedes = ()
        writes.append(PutMemory(memory=record, supersedes=supersedes))
    return writes


def _together(
    here: Sequence[Evidence], given: Sequence[Evidence], session_id: str
) -> tuple[Evidence, ...]:
    """What is here, and of what is given the places in the session; in the order of that."""
    if set(map(_place, here)) <= set(map(_place, given)):
        known = set(map(_place, here))
        return tuple(
            each for each in given if each.session_id == session_id or _place(each) in known
        )
    return (*here, *(each for each in given if each.session_id == session_id))


def _place(evidence: Evidence) -> bytes:
    return msgspec.json.encode(evidence)


_IDS = frozenset((
    "session_id", "project_id", "parent_session_id", "turn_id", "tool_call_id", "summary_id",
    "covers", "memory_id", "superseded_by", "supersedes",
))  # fmt: skip
"""The fields of a document that hold ids."""
_AN_ID = re.compile(r"[\w-]+")
_MOST_ID_BYTES = 1_000
"""Far more than any has; what a graph can index ends at 8,000."""
_SHOWN_CHARS = 80


class CallDocument(ToolCall, frozen=True, kw_only=True):
    """A tool call with the files that it touched."""

    file_accesses: tuple[FileAccess, ...] = ()


class TurnDocument(Turn, frozen=True, kw_only=True):
    """A turn with its tool calls."""

    tool_calls: tuple[CallDocument, ...] = ()


class BranchDocument(msgspec.Struct, frozen=True):
    """A session that was forked from this one; it has a document of its own."""

    session_id: str
    title: str
    forked_at_index: int | None


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A session with all that belongs to it."""

    format: Literal["ragmem.session"] = "ragmem.session"
    version: Literal[1] = 1
    session: Session
    turns: tuple[TurnDocument, ...] = ()
    summaries: tuple[Summary, ...] = ()
    memories: tuple[MemoryDocument, ...] = ()
    """What was said in it, oldest first."""
    branches: tuple[BranchDocument, ...] = ()
    insights: tuple[Insight, ...] = ()
    """What a look over it has found: one, if there was any. Older versions pass it over."""
    owners: tuple[Owner, ...] = ()
    """Whose the session and its memories are, by name where they have one."""


async def document_of(store: Archive, session_id: str) -> SessionDocument:
    """A session as it is stored; SessionNotFound when there is none."""
    session = await store.session(session_id)
    turns: list[TurnDocument] = []
    for span in await _lineage(store, session):
        turns += [_turn_document(put) for put in await store.own_turns([span])]
    branches = await store.branches(session_id)
    memories = await memories_of(store, session_id)
    people = {session.owner, *(memory.owner for memory in memories)}
    return SessionDocument(
        session=session,
        turns=tuple(turns),
        summaries=tuple(reversed(await store.summaries(session_id))),
        memories=memories,
        branches=tuple(
            BranchDocument(fork.session_id, fork.title, fork.forked_at_index) for fork in branches
        ),
        insights=tuple(await store.get(Insight, [session_id])),
        owners=tuple(
            each for each in await store.owners() if each.owner_id in people and each.name
        ),
    )


async def _lineage(store: Archive, session: Session) -> list[Span]:
    """Whose turns the session sees, from the first on."""
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
    calls = tuple(
        CallDocument(
            **msgspec.structs.asdict(call),
            file_accesses=put.accesses.get(call.tool_call_id, ()),
        )
        for call in put.turn.tool_calls
    )
    return TurnDocument(**msgspec.structs.asdict(put.turn) | {"tool_calls": calls})


def encoded(document: msgspec.Struct) -> bytes:
    """As it is written, indented by 2."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decoded(data: bytes) -> SessionDocument:
    """From a file; UsageError for what is none of ours, or not whole."""
    try:
        document = msgspec.json.decode(data, type=SessionDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"This is no session that ragmem has exported: {error}.",
            hint="`ragmem sessions export -o FILE` writes such a file.",
        ) from None
    _check(document)
    return document


def _check(document: SessionDocument) -> None:
    session = document.session
    leaves = list(_leaves(_built_in(document)))
    wrong = ""
    if [turn.turn_index for turn in document.turns] != list(range(1, len(document.turns) + 1)):
        wrong = "its turns are not numbered from 1 without gaps"
    elif any(isinstance(each, datetime) and each.tzinfo is None for _, each in leaves):
        wrong = "a time has no time zone"
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
    elif any(insight.session_id != session.session_id for insight in document.insights):
        wrong = "an insight is of another session"
    elif any(len(str(each).encode()) > _MOST_ID_BYTES for name, each in leaves if name in _IDS):
        wrong = f"an id in it is longer than {_MOST_ID_BYTES:,} bytes"
    elif not is_a_path(session.cwd):
        wrong = "its folder is no path"
    if wrong:
        shown = one_line(session.session_id, _SHOWN_CHARS)
        raise UsageError(f"The session {shown} can't be imported: {wrong}.")


def _built_in(document: SessionDocument) -> Any:
    return msgspec.to_builtins(document, builtin_types=(datetime,))


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """All that a document holds, each with its field's name."""
    match value:
        case dict():
            for key, each in value.items():
                yield from _leaves(each, key)
        case list() | tuple():
            for each in value:
                yield from _leaves(each, name)
        case _:
            yield name, value


def _renamed(document: SessionDocument, ids: Mapping[str, str]) -> SessionDocument:
    """The document with other ids, wherever they stand."""

    def renamed(value: Any, name: str = "") -> Any:
        match value:
            case dict():
                other = {key: renamed(each, key) for key, each in value.items()}
                if value.get("tool_name") == UNDO and value.get("origin") == "person":
                    # It names the turns whose edits were taken back, within what it says.
                    told = value["result"]
                    other["result"] = _AN_ID.sub(lambda each: ids.get(each[0], each[0]), told)
                return other
            case list() | tuple():
                return [renamed(each, name) for each in value]
            case str() if name in _IDS:
                return ids.get(value, value)
        return value

    return msgspec.convert(renamed(_built_in(document)), SessionDocument)


async def import_document(store: Archive, document: SessionDocument, *, as_new: bool) -> Session:
    """Store it, all or nothing; UsageError for an id that exists, unless all ids are to be new."""
    session_id = document.session.session_id
    if not as_new and await store.get(Session, [session_id]):
        raise UsageError(
            f"Session {short_id(session_id)} is here already.",
            hint="--as-new imports it as another one.",
        )
    if as_new or not await _shares_turns(store, document):
        document = _by_itself(document, as_new=as_new)
    document, writes = await _in_its_project(store, document)
    if as_new:
        document = await _with_those_here(store, document)
    summaries = await _coverable(store, document)
    if known := await store.get(Summary, [summary.summary_id for summary in summaries]):
        raise UsageError(
            f"Summary {known[0].summary_id} is here already, in another session.",
            hint="--as-new imports everything with new ids.",
        )
    writes.append(PutSession(session=document.session))
    writes += [
        _put(turn) for turn in document.turns if turn.session_id == document.session.session_id
    ]
    writes += [AddSummary(summary=summary) for summary in summaries]
    writes += await memory_writes(store, document.memories, document.session.session_id)
    writes += [PutInsight(insight=insight) for insight in document.insights]
    writes += [each for each in map(owner_write, document.owners) if each]
    failpoint("transfer.import")
    await store.apply(writes)
    return await store.session(document.session.session_id)


async def _coverable(store: Archive, document: SessionDocument) -> list[Summary]:
    """Lower levels first; without what they digest that is neither here nor in the document."""
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
    """Whether a fork's parent is here, with the very turns that it shared."""
    session = document.session
    if session.parent_session_id is None:
        return True
    if not await store.get(Session, [session.parent_session_id]):
        return False
    query = TurnQuery(before_index=(session.forked_at_index or 0) + 1, with_tool_calls=False)
    shared = await store.turns(session.parent_session_id, query)
    given = [turn.turn_id for turn in document.turns if turn.session_id != session.session_id]
    return [turn.turn_id for turn in shared] == given


def _by_itself(document: SessionDocument, *, as_new: bool) -> SessionDocument:
    """As a session of its own, with new ids for what belongs to others; or for everything."""
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
    document = _renamed(document, ids)
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


async def _with_those_here(store: Archive, document: SessionDocument) -> SessionDocument:
    """With the ids of memories in the store that say the same: a second copy of a session says it
    a second time, and makes no second fact."""
    query = MemoryQuery(everywhere=True, with_superseded=True)
    here = {_saying(each): each.memory_id for each in await store.memories(query)}
    memories = document.memories
    ids = {each.memory_id: here[_saying(each)] for each in memories if _saying(each) in here}
    return _renamed(document, ids)


def _saying(memory: MemoryRecord) -> tuple[str | None, str, str, bool]:
    words = " ".join(memory.content.casefold().split())
    return memory.project_id, memory.kind, words, memory.superseded_by is None


async def _in_its_project(
    store: Archive, document: SessionDocument
) -> tuple[SessionDocument, list[Write]]:
    """In the project that its folder is here; where that is none, its own is registered."""
    session = document.session
    path = session.project_path or session.cwd
    known: Sequence[Project] = await store.projects()
    if any(session.project_id == each.project_id for each in known):
        return document, []
    for project in known:
        if project.path == path:
            return _renamed(document, {session.project_id: project.root_id}), []
    project = Project(project_id=session.project_id, path=path, created_at=session.started_at)
    return document, [RegisterProject(project=project)]


def _put(turn: TurnDocument) -> PutTurn:
    """A turn for the store; one that ran when it was exported runs no more."""
    calls = []
    for call in turn.tool_calls:
        fields = msgspec.structs.asdict(call) | {"turn_id": turn.turn_id}
        del fields["file_accesses"]
        calls.append(ToolCall(**fields))
    fields = msgspec.structs.asdict(turn) | {"tool_calls": tuple(calls)}
    if turn.status == "running":
        fields |= {"status": "interrupted", "owner_id": None, "finished_at": turn.started_at}
    return PutTurn(
        turn=fitted(Turn(**fields)),
        accesses={
            call.tool_call_id: call.file_accesses for call in turn.tool_calls if call.file_accesses
        },
    )
