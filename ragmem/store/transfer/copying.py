"""A stream of Writes into a store, and the comparison of both afterwards."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar, get_args

import msgspec

from ragmem.failpoints import failpoint
from ragmem.records import (
    AddSummary,
    CodeFile,
    DropCodeFiles,
    Insight,
    MemoryRecord,
    Project,
    PutCodeFile,
    PutInsight,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    RecordToolCall,
    RegisterProject,
    Session,
    Summary,
    Write,
)
from ragmem.store import vectors
from ragmem.store.base import Archive, Span
from ragmem.store.moved_code import is_as_it_is
from ragmem.store.recall import EmbedderMark
from ragmem.store.transfer.stream import OnProgress, Stream, owner_write, profile_writes

A = TypeVar("A")
B = TypeVar("B")


async def held_in(
    batch: Sequence[Write], target: Archive, projects: dict[str, Project]
) -> list[Write | None]:
    """What the target holds in the place of each."""
    sessions = await _asked(
        target.sessions_by_id,
        [write.session.session_id for write in batch if isinstance(write, PutSession)],
    )
    turns = await _asked(
        target.own_turns, _spans([write for write in batch if isinstance(write, PutTurn)])
    )
    summaries = await _asked(
        target.summaries_by_id,
        [write.summary.summary_id for write in batch if isinstance(write, AddSummary)],
    )
    embedded = await _asked(
        target.vectors_of, [write.record_id for write in batch if isinstance(write, PutVectors)]
    )
    memories = await _asked(
        target.memories_by_id,
        [write.memory.memory_id for write in batch if isinstance(write, PutMemory)],
    )
    insights = await _asked(
        target.insights,
        [write.insight.session_id for write in batch if isinstance(write, PutInsight)],
    )
    references = await _asked(
        target.references_of,
        [write.turn_id for write in batch if isinstance(write, PutReferences)],
    )
    held: list[Write] = [*await _held_files(batch, target), *references]
    held += [RegisterProject(project=project) for project in projects.values()]
    held += [PutSession(session=session) for session in sessions]
    held += turns
    held += [AddSummary(summary=summary) for summary in summaries]
    held += embedded
    held += [PutMemory(memory=memory) for memory in memories]
    held += [PutInsight(insight=insight) for insight in insights]
    if any(isinstance(write, PutProfile) for write in batch):
        for profile in await target.profiles():
            held += profile_writes(profile)
    if any(isinstance(write, PutOwner) for write in batch):
        held += [each for each in map(owner_write, await target.owners()) if each]
    found = {key_of(write): write for write in held}
    return [found.get(key_of(write)) for write in batch]


async def _held_files(batch: Sequence[Write], target: Archive) -> list[Write]:
    paths: dict[str, list[str]] = {}
    for write in batch:
        if isinstance(write, PutCodeFile):
            paths.setdefault(write.file.project_id, []).append(write.file.path)
    return [
        PutCodeFile(file=file)
        for project_id, those in paths.items()
        for file in await target.code_files(project_id, those)
    ]


async def _asked(query: Callable[[Sequence[A]], Awaitable[list[B]]], wanted: list[A]) -> list[B]:
    """What the store has of these; it is not asked for nothing."""
    return await query(wanted) if wanted else []


def _spans(puts: Sequence[PutTurn]) -> list[Span]:
    """Few spans that hold these turns: neighbours together."""
    spans: list[Span] = []
    for put in puts:
        turn = put.turn
        last = spans[-1] if spans else None
        if last and (last.session_id, last.last + 1) == (turn.session_id, turn.turn_index):
            spans[-1] = Span(turn.session_id, last.first, turn.turn_index)
            continue
        spans.append(Span(turn.session_id, turn.turn_index, turn.turn_index))
    return spans


def key_of(write: Write) -> tuple[str, str]:
    """What names a record among all: its kind in words, and its id."""
    match write:
        case RegisterProject(project=Project(project_id=record_id)):
            return "project", record_id
        case PutSession(session=Session(session_id=record_id)):
            return "session", record_id
        case PutTurn():
            return "turn", write.turn.turn_id
        case AddSummary(summary=Summary(summary_id=record_id)):
            return "summary", record_id
        case PutVectors():
            return "vectors of", write.record_id
        case PutMemory(memory=MemoryRecord(memory_id=record_id)):
            return "memory", record_id
        case PutProfile():
            return "profile", f"{write.key} of {write.owner}" if write.owner else write.key
        case PutOwner():
            return "name of", write.owner
        case PutInsight(insight=Insight(session_id=record_id)):
            return "insight into", record_id
        case PutCodeFile(file=CodeFile(project_id=project_id, path=path)):
            return "file", f"{path} of {project_id}"
        case PutReferences():
            return "references of", write.turn_id
        case DropCodeFiles():
            return "no files", " ".join(write.paths)
    raise TypeError(f"a {type(write).__name__} is no record")


Kind = Literal[
    "projects",
    "code_files",
    "scopes",
    "sessions",
    "turns",
    "tool_calls",
    "references",
    "summaries",
    "memories",
    "profile",
    "owners",
    "insights",
    "vectors",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SHOWN = 5
_MODULUS = 1 << 64
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)


class Counter(msgspec.Struct, frozen=True):
    """Records of a kind: how many, and the sum of their digests, whatever their order."""

    count: int = 0
    checksum: int = 0

    def with_record(self, record: msgspec.Struct) -> "Counter":
        """One more."""
        encoded = msgspec.json.encode(record, order="deterministic")
        digest = hashlib.blake2b(encoded, digest_size=8).digest()
        return Counter(self.count + 1, (self.checksum + int.from_bytes(digest, "big")) % _MODULUS)

    @property
    def text(self) -> str:
        """The checksum as it is shown."""
        return f"{self.checksum:016x}"


class Comparison(msgspec.Struct, frozen=True):
    """What both sides hold of the source's records, by kind."""

    source: dict[Kind, Counter]
    target: dict[Kind, Counter]
    later: int
    """Records of the target that were changed after the source's: they are left as they are."""
    differing_count: int
    """Records that are missing in the target, or different."""
    differing: tuple[str, ...]
    """The first of them, in words."""

    @property
    def equal(self) -> bool:
        """Whether all of the source is in the target."""
        return not self.differing_count and self.source == self.target


async def copy(stream: Stream, target: Archive, on_progress: OnProgress) -> None:
    """Apply the whole stream; what is there already stays, so that it can be run again.

    Vectors come along to a target that has none, or those of the same embedder.
    """
    mark = await target.embedder()
    batches = stream()
    ahead = asyncio.ensure_future(_next(batches))
    try:
        while batch := await ahead:
            ahead = asyncio.ensure_future(_next(batches))
            if mark is None and (mark := _mark(batch)):
                await target.use_embedder(mark)
            failpoint("transfer.apply")
            await target.apply(await _without_older(batch, target))
            failpoint("transfer.applied")
            on_progress("copying", len(batch))
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)


def _mark(batch: Sequence[Write]) -> EmbedderMark | None:
    """The embedder of the vectors in it, if there are any."""
    for write in batch:
        if isinstance(write, PutVectors) and write.vectors:
            return EmbedderMark(write.embedder, len(write.vectors[0]) // 4)
    return None


async def _without_older(batch: Sequence[Write], target: Archive) -> list[Write]:
    """Without what would undo a change that was made in the target since."""
    embedded = {each.record_id for each in batch if isinstance(each, PutVectors)}
    changeable = [
        each
        for each in batch
        if isinstance(each, _CHANGEABLE)
        or (isinstance(each, PutSession) and each.session.session_id in embedded)
    ]
    if not changeable:
        return list(batch)
    held = await held_in(changeable, target, {})
    later = _later(changeable, held)
    older = {
        id(write)
        for write, there in zip(changeable, held, strict=True)
        if there is not None and _changed_later(write, there)
    }
    return [
        write
        for write in batch
        if isinstance(write, PutSession)  # the store itself keeps what is newer of it
        or not (id(write) in older or (isinstance(write, PutVectors) and write.record_id in later))
    ]


_CHANGEABLE = (PutMemory, PutProfile, PutOwner, PutInsight)


def _later(batch: Sequence[Write], held: Sequence[Write | None]) -> set[str]:
    """Ids of what was changed in the target since: vectors of the source are of another text."""
    return {
        key_of(write)[1]
        for write, there in zip(batch, held, strict=True)
        if there is not None and _changed_later(write, there)
    }


async def _next(batches: AsyncIterator[Sequence[Write]]) -> Sequence[Write] | None:
    async for batch in batches:
        if batch:
            return batch
    return None


async def compare(stream: Stream, target: Archive, on_progress: OnProgress) -> Comparison:
    """Look up every record of the stream in the target."""
    comparison = _Comparison()
    projects = {project.project_id: project for project in await target.projects()}
    mark = await target.embedder()
    async for batch in stream():
        failpoint("transfer.compare")
        there = await held_in(batch, target, projects)
        later = _later(batch, there)
        for write, held in zip(batch, there, strict=True):
            if isinstance(write, PutVectors) and (
                not mark or mark.model_id != write.embedder or write.record_id in later
            ):
                continue  # The target has another embedder, or another text: they were left out.
            if isinstance(write, DropCodeFiles) or (
                isinstance(write, PutCodeFile) and not is_as_it_is(write)
            ):
                continue  # Not what is there, but a step on the way to it.
            comparison.add(_as_owned(_as_joined(write, projects), held), held)
        on_progress("comparing", len(batch))
    return comparison.result()


def _as_joined(write: Write, projects: dict[str, Project]) -> Write:
    """The write as a target holds it in which the person has joined projects."""
    match write:
        case RegisterProject(project=Project(joined_into=None) as project):
            held = projects.get(project.project_id, project)
            project = msgspec.structs.replace(project, joined_into=held.joined_into)
            return RegisterProject(project=project)
        case PutSession(session=session) if known := projects.get(session.project_id):
            session = msgspec.structs.replace(session, project_id=known.root_id)
            return PutSession(session=session)
        case PutMemory(memory=memory) if known := projects.get(memory.project_id or ""):
            memory = msgspec.structs.replace(memory, project_id=known.root_id)
            return PutMemory(memory=memory)
    return write


def _as_owned(write: Write, held: Write | None) -> Write:
    """The write as a target holds it whose owner took over what had none."""
    match write, held:
        case PutSession(session=session), PutSession(session=there) if not session.owner:
            return PutSession(session=msgspec.structs.replace(session, owner=there.owner))
        case PutMemory(memory=memory), PutMemory(memory=there) if not memory.owner:
            memory = msgspec.structs.replace(memory, owner=there.owner)
            return msgspec.structs.replace(write, memory=memory)
        case PutProfile(owner=""), PutProfile():
            return msgspec.structs.replace(write, owner=held.owner)
    return write


class _Comparison:
    """Counts up both sides, record by record."""

    def __init__(self) -> None:
        self._source = dict.fromkeys(KINDS, Counter())
        self._target = dict.fromkeys(KINDS, Counter())
        self._later = 0
        self._differing: list[str] = []
        self._differing_count = 0

    def add(self, write: Write, held: Write | None) -> None:
        """A record of the source, and what the target holds in its place."""
        if held is not None and _changed_later(write, held):
            self._later += 1
            return
        for kind, record in _records(write):
            self._source[kind] = self._source[kind].with_record(record)
        if held is not None:
            for kind, record in _records(held):
                self._target[kind] = self._target[kind].with_record(record)
        if held is None or _records(write) != _records(held):
            self._differing_count += 1
            if len(self._differing) < _SHOWN:
                state = "missing" if held is None else "different"
                self._differing.append(f"{' '.join(key_of(write))} is {state}")

    def result(self) -> Comparison:
        """All of it."""
        return Comparison(
            self._source, self._target, self._later, self._differing_count, tuple(self._differing)
        )


def _changed_later(write: Write, held: Write) -> bool:
    """Whether the target's record went on after the source's was written."""
    match write, held:
        case PutSession(session=ours), PutSession(session=theirs):
            return theirs.updated_at > ours.updated_at or theirs.turn_count > ours.turn_count
        case PutTurn(turn=ours), PutTurn(turn=theirs):
            return ours.status != "completed" and theirs.status == "completed"
        case PutMemory(memory=ours), PutMemory(memory=theirs):
            if ours.superseded_by != theirs.superseded_by:
                return theirs.superseded_by is not None
            return theirs.updated_at > ours.updated_at
        case PutProfile(), PutProfile():
            return write.value != held.value and held.at > write.at
        case PutOwner(), PutOwner():
            return write.name != held.name and held.at > write.at
        case PutInsight(insight=ours), PutInsight(insight=theirs):
            return theirs.created_at > ours.created_at
    return False


def _records(write: Write) -> list[tuple[Kind, msgspec.Struct]]:
    """What is counted and summed up: tool calls by themselves, with their accesses."""
    match write:
        case RegisterProject(project=project):
            # A project that was known keeps the day on which it became so.
            return [("projects", msgspec.structs.replace(project, created_at=_ANY_DAY))]
        case PutSession(session=session):
            return [("sessions", session)]
        case PutTurn(turn=turn, accesses=accesses):
            calls: list[tuple[Kind, msgspec.Struct]] = [
                (
                    "tool_calls",
                    RecordToolCall(
                        session_id=turn.session_id,
                        call=call,
                        accesses=accesses.get(call.tool_call_id, ()),
                    ),
                )
                for call in turn.tool_calls
            ]
            usage = turn.usage
            if usage.cost_usd is not None and not math.isfinite(usage.cost_usd):
                # What is no number equals nothing, itself included, and is none in JSON.
                usage = msgspec.structs.replace(usage, cost_usd=None)
            turn = msgspec.structs.replace(turn, tool_calls=(), usage=usage)
            return [("turns", turn), *calls]
        case AddSummary(summary=summary):
            return [("summaries", summary)]
        case PutMemory(memory=memory):
            return [("memories", memory)]
        case PutProfile():
            # A profile says only when it was changed last.
            return [("profile", msgspec.structs.replace(write, at=_ANY_DAY))]
        case PutOwner():
            return [("owners", write)]
        case PutInsight(insight=insight):
            return [("insights", insight)]
        case PutVectors():
            # A store may keep them packed: so far they are the same in both.
            packed = vectors.packed(write.vectors)
            return [("vectors", msgspec.structs.replace(write, vectors=(packed,)))]
        case PutCodeFile(file=file):
            alone = msgspec.structs.replace(file, scopes=())
            scopes: list[tuple[Kind, msgspec.Struct]] = [("scopes", each) for each in file.scopes]
            return [("code_files", alone), *scopes]
        case PutReferences():
            return [("references", write)]
    raise TypeError(f"a {type(write).__name__} is no record")
