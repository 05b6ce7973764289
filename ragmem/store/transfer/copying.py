"""A stream of Writes into a store, and the comparison of both afterwards."""

import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
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
    Span,
    Write,
    changed,
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


class _Moved(NamedTuple):
    """How writes of one type are counted, named, looked up in another store and compared."""

    kind: Kind
    words: str
    """What such a record is called before its id."""
    ids: str
    """The fields of the record that name it among all of its kind, joined with ` of `."""
    held: Callable[[Archive, list[Any]], Awaitable[Iterable[Any]]] | None = None
    """What a store has in the place of such writes; else what it gets by their ids."""
    later: Callable[[Any, Any], bool] = lambda ours, theirs: False
    """Whether the target's record went on after the source's was written."""


def _memory_went_on(ours: MemoryRecord, theirs: MemoryRecord) -> bool:
    if ours.superseded_by != theirs.superseded_by:
        return theirs.superseded_by is not None
    return theirs.updated_at > ours.updated_at


_MOVED: dict[type[Write], _Moved] = {
    RegisterProject: _Moved(
        "projects", "project", "project_id", lambda target, _: target.projects()
    ),
    PutSession: _Moved(
        "sessions", "session", "session_id",
        later=lambda ours, theirs: (
            theirs.updated_at > ours.updated_at or theirs.turn_count > ours.turn_count
        ),
    ),
    PutTurn: _Moved(
        "turns", "turn", "turn_id",
        lambda target, writes: target.own_turns(_spans(writes)),
        lambda ours, theirs: ours.status != "completed" and theirs.status == "completed",
    ),
    AddSummary: _Moved("summaries", "summary", "summary_id"),
    PutVectors: _Moved("vectors", "vectors of", "record_id"),
    PutMemory: _Moved("memories", "memory", "memory_id", later=_memory_went_on),
    PutProfile: _Moved(
        "profile", "profile", "key owner", _held_profiles,
        lambda ours, theirs: ours.value != theirs.value and theirs.at > ours.at,
    ),
    PutOwner: _Moved(
        "owners", "name of", "owner", _held_owners,
        lambda ours, theirs: ours.name != theirs.name and theirs.at > ours.at,
    ),
    PutInsight: _Moved(
        "insights", "insight into", "session_id",
        later=lambda ours, theirs: theirs.created_at > ours.created_at,
    ),
    PutCodeFile: _Moved("code_files", "file", "path project_id", _held_files),
    PutReferences: _Moved("references", "references of", "turn_id"),
}  # fmt: skip


def key_of(write: Write) -> tuple[str, str]:
    """What names a record among all: its kind in words, and its id."""
    if isinstance(write, DropCodeFiles):
        return "no files", " ".join(write.paths)
    moved = _MOVED[type(write)]
    names = (getattr(write.record, name) for name in moved.ids.split())
    return moved.words, " of ".join(filter(None, names))


async def held_in(batch: Sequence[Write], target: Archive) -> list[Write | None]:
    """What the target holds in the place of each."""
    found: dict[tuple[str, str], Write] = {}
    for kind, moved in _MOVED.items():
        if writes := [write for write in batch if type(write) is kind]:
            ids = [key_of(write)[1] for write in writes]
            there = (
                moved.held(target, writes)
                if moved.held
                else target.get(type(writes[0].record), ids)
            )
            for each in await there:
                write = each if isinstance(each, kind) else kind(**{kind.holds: each})
                found[key_of(write)] = write
    return [found.get(key_of(write)) for write in batch]


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
            comparison.add(_as_held(write, held, projects), held)
        on_progress("comparing", len(batch))
    return comparison


def _as_held(write: Write, held: Write | None, projects: dict[str, Project]) -> Write:
    """The write as a target holds it that has joined projects, or an owner for what had none."""
    record, there = write.record, held.record if held is not None else None
    project = projects.get(getattr(record, "project_id", None) or "")
    if isinstance(write, RegisterProject):
        if project and record.joined_into is None:
            write = changed(write, joined_into=project.joined_into)
    elif project and isinstance(write, PutSession | PutMemory):
        write = changed(write, project_id=project.root_id)
    if there is not None and getattr(record, "owner", None) == "":
        write = changed(write, owner=there.owner)
    return write


def _changed_later(write: Write, held: Write) -> bool:
    """Whether the target's record went on after the source's was written."""
    return _MOVED[type(write)].later(write.record, held.record)


def _records(write: Write) -> list[tuple[Kind, msgspec.Struct]]:
    """What is counted and summed up: tool calls by themselves, with their accesses."""
    moved = _MOVED[type(write)]
    record, day = write.record, _ANY_DAY
    more: list[tuple[Kind, msgspec.Struct]] = []
    # A known project keeps the day on which it became so; a profile has one for all keys.
    if isinstance(write, RegisterProject):
        record = replace(record, created_at=day)
    elif isinstance(write, PutProfile):
        record = replace(record, at=day)
    elif isinstance(write, PutTurn):
        for call in record.tool_calls:
            its = write.accesses.get(call.tool_call_id, ())
            whole = RecordToolCall(session_id=record.session_id, call=call, accesses=its)
            more.append(("tool_calls", whole))
        usage = record.usage
        if usage.cost_usd is not None and not math.isfinite(usage.cost_usd):
            # What is no number equals nothing, itself included, and is none in JSON.
            usage = replace(usage, cost_usd=None)
        record = replace(record, tool_calls=(), usage=usage)
    elif isinstance(write, PutVectors):
        # A store may keep them packed: so far they are the same in both.
        record = replace(record, vectors=(vectors.packed(write.vectors),))
    elif isinstance(write, PutCodeFile):
        more += [("scopes", each) for each in record.scopes]
        record = replace(record, scopes=())
    return [(moved.kind, record), *more]
