"""A stream of Writes into a store, and the comparison of both afterwards."""

import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from ragmem import vectors
from ragmem.failpoints import failpoint
from ragmem.records import (
    AddSummary,
    CodeFile,
    DropCodeFiles,
    EmbedderMark,
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
    Span,
    Write,
)
from ragmem.store.base import Archive
from ragmem.store.transfer.stream import (
    OnProgress,
    Stream,
    is_as_it_is,
    owner_write,
    profile_writes,
)

Kind = Literal[
    "projects", "code_files", "scopes", "sessions", "turns", "tool_calls", "references",
    "summaries", "memories", "profile", "owners", "insights", "vectors",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
_SHOWN = 5
_MODULUS = 1 << 64
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)


class _Moved(NamedTuple):
    """How writes of one type are counted, named and looked up in another store."""

    kind: Kind
    words: str
    """What such a record is called before its id."""
    record: str
    """The write's field that holds it; empty where that is the write itself."""
    ids: str
    """The fields that name it among all of its kind, joined with ` of `."""
    held: Callable[[Archive, list[Any]], Awaitable[Iterable[Any]]]
    """What a store has in the place of such writes: records, or writes where `record` is empty."""

    def name(self, write: Write) -> str:
        """The record's id."""
        return " of ".join(filter(None, (attrgetter(each)(write) for each in self.ids.split())))


def key_of(write: Write) -> tuple[str, str]:
    """What names a record among all: its kind in words, and its id."""
    if isinstance(write, DropCodeFiles):
        return "no files", " ".join(write.paths)
    moved = _MOVED[type(write)]
    return moved.words, moved.name(write)


async def held_in(batch: Sequence[Write], target: Archive) -> list[Write | None]:
    """What the target holds in the place of each."""
    found: dict[tuple[str, str], Write] = {}
    for kind, moved in _MOVED.items():
        if writes := [write for write in batch if type(write) is kind]:
            for each in await moved.held(target, writes):
                write = kind(**{moved.record: each}) if moved.record else each
                found[key_of(write)] = write
    return [found.get(key_of(write)) for write in batch]


def _ids(writes: Sequence[Write]) -> list[str]:
    return [key_of(write)[1] for write in writes]


async def _held_files(target: Archive, writes: Sequence[PutCodeFile]) -> list[CodeFile]:
    paths: dict[str, list[str]] = {}
    for write in writes:
        paths.setdefault(write.file.project_id, []).append(write.file.path)
    return [
        file
        for project_id, those in paths.items()
        for file in await target.code_files(project_id, those)
    ]


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


async def _held_profiles(target: Archive, _: object) -> list[PutProfile]:
    return [write for profile in await target.profiles() for write in profile_writes(profile)]


async def _held_owners(target: Archive, _: object) -> list[PutOwner]:
    return [write for write in map(owner_write, await target.owners()) if write]


_MOVED: dict[type[Write], _Moved] = {
    RegisterProject: _Moved(
        "projects", "project", "project", "project.project_id",
        lambda target, _: target.projects(),
    ),
    PutSession: _Moved(
        "sessions", "session", "session", "session.session_id",
        lambda target, writes: target.sessions_by_id(_ids(writes)),
    ),
    PutTurn: _Moved(
        "turns", "turn", "", "turn.turn_id",
        lambda target, writes: target.own_turns(_spans(writes)),
    ),
    AddSummary: _Moved(
        "summaries", "summary", "summary", "summary.summary_id",
        lambda target, writes: target.summaries_by_id(_ids(writes)),
    ),
    PutVectors: _Moved(
        "vectors", "vectors of", "", "record_id",
        lambda target, writes: target.vectors_of(_ids(writes)),
    ),
    PutMemory: _Moved(
        "memories", "memory", "memory", "memory.memory_id",
        lambda target, writes: target.memories_by_id(_ids(writes)),
    ),
    PutProfile: _Moved("profile", "profile", "", "key owner", _held_profiles),
    PutOwner: _Moved("owners", "name of", "", "owner", _held_owners),
    PutInsight: _Moved(
        "insights", "insight into", "insight", "insight.session_id",
        lambda target, writes: target.insights(_ids(writes)),
    ),
    PutCodeFile: _Moved("code_files", "file", "file", "file.path file.project_id", _held_files),
    PutReferences: _Moved(
        "references", "references of", "", "turn_id",
        lambda target, writes: target.references_of(_ids(writes)),
    ),
}  # fmt: skip


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


class Comparison:
    """What both sides hold of the source's records, by kind."""

    def __init__(self) -> None:
        self.source = dict.fromkeys(KINDS, Counter())
        self.target = dict.fromkeys(KINDS, Counter())
        self.later = 0
        """Records of the target that were changed after the source's: they are left as they are."""
        self.differing_count = 0
        """Records that are missing in the target, or different."""
        self.differing: list[str] = []
        """The first of them, in words."""

    @property
    def equal(self) -> bool:
        """Whether all of the source is in the target."""
        return not self.differing_count and self.source == self.target

    def add(self, write: Write, held: Write | None) -> None:
        """A record of the source, and what the target holds in its place."""
        if held is not None and _changed_later(write, held):
            self.later += 1
            return
        ours, theirs = _records(write), _records(held) if held is not None else []
        for side, records in ((self.source, ours), (self.target, theirs)):
            for kind, record in records:
                side[kind] = side[kind].with_record(record)
        if ours != theirs:
            self.differing_count += 1
            if len(self.differing) < _SHOWN:
                state = "missing" if held is None else "different"
                self.differing.append(f"{' '.join(key_of(write))} is {state}")


async def copy(stream: Stream, target: Archive, on_progress: OnProgress) -> None:
    """Apply the whole stream; what is there already stays, so that it can be run again.

    Vectors come along to a target that has none, or those of the same embedder.
    """
    mark = await target.embedder()
    async for batch in stream():
        if mark is None and (mark := _mark(batch)):
            await target.use_embedder(mark)
        failpoint("transfer.apply")
        await target.apply(await _without_older(batch, target))
        failpoint("transfer.applied")
        on_progress("copying", len(batch))


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
    later = _later(changeable, await held_in(changeable, target))
    texts = {record_id for _, record_id in later}
    return [
        write
        for write in batch
        if isinstance(write, PutSession)  # the store itself keeps what is newer of it
        or (
            write.record_id not in texts
            if isinstance(write, PutVectors)
            else key_of(write) not in later
        )
    ]


_CHANGEABLE = (PutMemory, PutProfile, PutOwner, PutInsight)


def _later(batch: Sequence[Write], held: Sequence[Write | None]) -> set[tuple[str, str]]:
    """What was changed in the target since, by its key."""
    return {
        key_of(write)
        for write, there in zip(batch, held, strict=True)
        if there is not None and _changed_later(write, there)
    }


async def compare(stream: Stream, target: Archive, on_progress: OnProgress) -> Comparison:
    """Look up every record of the stream in the target."""
    comparison = Comparison()
    projects = {project.project_id: project for project in await target.projects()}
    mark = await target.embedder()
    async for batch in stream():
        failpoint("transfer.compare")
        there = await held_in(batch, target)
        texts = {record_id for _, record_id in _later(batch, there)}
        for write, held in zip(batch, there, strict=True):
            if isinstance(write, PutVectors) and (
                not mark or mark.model_id != write.embedder or write.record_id in texts
            ):
                continue  # The target has another embedder, or another text: they were left out.
            if isinstance(write, DropCodeFiles) or (
                isinstance(write, PutCodeFile) and not is_as_it_is(write)
            ):
                continue  # Not what is there, but a step on the way to it.
            comparison.add(_as_owned(_as_joined(write, projects), held), held)
        on_progress("comparing", len(batch))
    return comparison


def _as_joined(write: Write, projects: dict[str, Project]) -> Write:
    """The write as a target holds it in which the person has joined projects."""
    match write:
        case RegisterProject(project=Project(joined_into=None) as project):
            held = projects.get(project.project_id, project)
            project = replace(project, joined_into=held.joined_into)
            return RegisterProject(project=project)
        case PutSession(session=session) if known := projects.get(session.project_id):
            session = replace(session, project_id=known.root_id)
            return PutSession(session=session)
        case PutMemory(memory=memory) if known := projects.get(memory.project_id or ""):
            memory = replace(memory, project_id=known.root_id)
            return PutMemory(memory=memory)
    return write


def _as_owned(write: Write, held: Write | None) -> Write:
    """The write as a target holds it whose owner took over what had none."""
    match write, held:
        case PutSession(session=session), PutSession(session=there) if not session.owner:
            return PutSession(session=replace(session, owner=there.owner))
        case PutMemory(memory=memory), PutMemory(memory=there) if not memory.owner:
            memory = replace(memory, owner=there.owner)
            return replace(write, memory=memory)
        case PutProfile(owner=""), PutProfile():
            return replace(write, owner=held.owner)
    return write


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
    moved = _MOVED[type(write)]
    record = attrgetter(moved.record)(write) if moved.record else write
    more: list[tuple[Kind, msgspec.Struct]] = []
    match write:
        case RegisterProject() | PutProfile():
            # A known project keeps the day on which it became so; a profile has one for all keys.
            day = "at" if isinstance(write, PutProfile) else "created_at"
            record = replace(record, **{day: _ANY_DAY})
        case PutTurn(turn=turn, accesses=accesses):
            for call in turn.tool_calls:
                its = accesses.get(call.tool_call_id, ())
                whole = RecordToolCall(session_id=turn.session_id, call=call, accesses=its)
                more.append(("tool_calls", whole))
            usage = turn.usage
            if usage.cost_usd is not None and not math.isfinite(usage.cost_usd):
                # What is no number equals nothing, itself included, and is none in JSON.
                usage = replace(usage, cost_usd=None)
            record = replace(turn, tool_calls=(), usage=usage)
        case PutVectors():
            # A store may keep them packed: so far they are the same in both.
            record = replace(write, vectors=(vectors.packed(write.vectors),))
        case PutCodeFile(file=file):
            record = replace(file, scopes=())
            more += [("scopes", each) for each in file.scopes]
    return [(moved.kind, record), *more]
