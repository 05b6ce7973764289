"""Everything in a store as a stream of Writes, in memory that does not grow with it.

In the order in which a store takes them: projects, their code, sessions before those that
were forked from them, turns by index, summaries after what they cover, memories after what
they took the place of, and vectors and references to code after what they are of.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from ragmem.errors import StoreDamaged, UsageError
from ragmem.failpoints import failpoint
from ragmem.records import (
    AddSummary,
    Owner,
    Profile,
    Project,
    PutInsight,
    PutMemory,
    PutOwner,
    PutProfile,
    PutSession,
    PutTurn,
    RegisterProject,
    Write,
    utc_now,
)
from ragmem.store.base import Archive, Span
from ragmem.store.code import ScopeQuery
from ragmem.store.moved_code import MovedCode
from ragmem.store.room import fitted

BATCH = 200
"""Writes in a batch, about: with its tool calls a turn is some ten records."""
_ALL = 2**31 - 1

OnProgress = Callable[[Literal["copying", "comparing"], int], None]
"""What is done, and how many more records of it."""
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


Stream = Callable[[], AsyncIterator[Sequence[Write]]]
"""Starts from the beginning each time that it is called."""


def stream_of(source: Archive, *, batch: int = BATCH) -> Stream:
    """All that the store holds."""

    async def stream() -> AsyncIterator[Sequence[Write]]:
        if projects := await source.projects():
            yield [RegisterProject(project=project) for project in projects]
        async for code in _code_of(source, projects):
            for files in _parts(list(code.before_turns()), batch):
                yield files
        for generation in generations(await source.spans()):
            for portion in portions(generation, batch):
                failpoint("transfer.read")
                sessions = await source.sessions_by_id(portion.session_ids)
                turns = [_fitted(put) for put in await source.own_turns(portion.spans)]
                embedded = [*portion.session_ids, *(put.turn.turn_id for put in turns)]
                yield [
                    *(PutSession(session=session) for session in sessions),
                    *turns,
                    *await source.vectors_of(embedded),
                    *await source.references_of([put.turn.turn_id for put in turns]),
                    *[
                        PutInsight(insight=each)
                        for each in await source.insights(portion.session_ids)
                    ],
                ]
        async for code in _code_of(source, projects):
            for settled in _parts(list(code.after_turns()), batch):
                yield settled
        ids = await source.summary_ids()
        for start in range(0, len(ids), batch):
            failpoint("transfer.read")
            portion_ids = ids[start : start + batch]
            found = await source.summaries_by_id(portion_ids)
            yield [
                *(AddSummary(summary=summary) for summary in found),
                *await source.vectors_of(portion_ids),
            ]
        ids = await source.memory_ids()
        for start in range(0, len(ids), batch):
            failpoint("transfer.read")
            portion_ids = ids[start : start + batch]
            memories = await source.memories_by_id(portion_ids)
            yield [
                *(PutMemory(memory=memory) for memory in memories),
                *await source.vectors_of(portion_ids),
            ]
        if named := [each for each in map(owner_write, await source.owners()) if each]:
            yield named
        for profile in await source.profiles():
            if known := profile_writes(profile):
                yield known

    return stream


def _fitted(put: PutTurn) -> PutTurn:
    return msgspec.structs.replace(put, turn=fitted(put.turn))


async def _code_of(source: Archive, projects: Sequence[Project]) -> AsyncIterator[MovedCode]:
    """The code of each folder, one after the other."""
    with_code = await source.code_projects()
    for project_id in dict.fromkeys([*(each.project_id for each in projects), *with_code]):
        failpoint("transfer.read")
        # Of a project that was joined: the whole family's.
        found = await source.find_scopes(ScopeQuery(project_ids=(project_id,), limit=_ALL))
        lost = [each for each in found if each.project_id == project_id and not each.defined]
        files = await source.code_files(project_id) if project_id in with_code else []
        yield MovedCode(project_id, files, lost)


def _parts(writes: Sequence[Write], size: int) -> Iterator[Sequence[Write]]:
    for start in range(0, len(writes), size):
        yield writes[start : start + size]


def owner_write(owner: Owner) -> PutOwner | None:
    """What a person is called, if that was said."""
    if not owner.name:
        return None
    return PutOwner(owner=owner.owner_id, name=owner.name, at=owner.named_at or utc_now())


def profile_writes(profile: Profile) -> list[PutProfile]:
    """The profile, a write for each key."""
    at = profile.updated_at or utc_now()
    return [
        PutProfile(key=key, value=value, at=at, owner=profile.owner)
        for key, value in profile.values.items()
    ]


def generations(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """First those that were not forked, then their forks, then the forks of these."""
    by_parent: dict[str | None, list[Span]] = {}
    known = {span.session_id for span in spans}
    for span in spans:
        parent = span.parent_id if span.parent_id in known else None
        by_parent.setdefault(parent, []).append(span)
    generation = by_parent.get(None, [])
    while generation:
        yield generation
        generation = [fork for span in generation for fork in by_parent.get(span.session_id, ())]


class Portion(msgspec.Struct, frozen=True):
    """About as many records as go in one batch."""

    session_ids: list[str]
    """Of sessions that begin here."""
    spans: list[Span]
    """Of turns; of sessions that begin here, or did before."""


def portions(spans: Sequence[Span], size: int) -> Iterator[Portion]:
    """Whole sessions together while they are short, a long one in parts."""
    portion, room = Portion([], []), size
    for span in spans:
        portion.session_ids.append(span.session_id)
        room -= 1
        first = span.first
        while first <= span.last:
            last = min(span.last, first + max(room, 1) - 1)
            portion.spans.append(msgspec.structs.replace(span, first=first, last=last))
            room -= last - first + 1
            first = last + 1
            if room <= 0 and first <= span.last:
                yield portion
                portion, room = Portion([], []), size
        if room <= 0:
            yield portion
            portion, room = Portion([], []), size
    if portion.session_ids or portion.spans:
        yield portion


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["ragmem.writes"] = "ragmem.writes"
    version: Literal[1] = 1


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    end: int
    """Writes before this line."""


_write = msgspec.json.Decoder(Write)


async def write_lines(stream: Stream, out: BinaryIO, on_progress: OnProgress) -> None:
    """Write the whole stream; the caller makes it durable."""
    count = 0
    out.write(msgspec.json.encode(_Head()) + b"\n")
    async for batch in stream():
        failpoint("lines.write")
        out.writelines(msgspec.json.encode(write) + b"\n" for write in batch)
        count += len(batch)
        on_progress("copying", len(batch))
    out.write(msgspec.json.encode(_End(count)) + b"\n")


def is_lines(file: Path) -> bool:
    """Whether the file begins as such a one does."""
    with file.open("rb") as lines:
        try:
            msgspec.json.decode(lines.readline(1000), type=_Head)
        except msgspec.MsgspecError:
            return False
    return True


def count_lines(file: Path) -> int:
    """How many writes are in it, about."""
    with file.open("rb") as lines:
        return max(0, sum(1 for _ in lines) - 2)


def stream_of_lines(file: Path) -> Stream:
    """What is in the file; StoreDamaged at the first line that can't be read, or at a cut end."""

    async def stream() -> AsyncIterator[Sequence[Write]]:
        batch: list[Write] = []
        damage = None
        with file.open("rb") as lines:
            try:
                msgspec.json.decode(lines.readline(), type=_Head)
            except msgspec.MsgspecError:
                raise UsageError(f"{file} is no backup of ragmem's memory.") from None
            ended = False
            for count, line in enumerate(lines):
                failpoint("lines.read")
                try:
                    if line.startswith(b'{"end":'):
                        ended = msgspec.json.decode(line, type=_End).end == count
                        break
                    batch.append(_write.decode(line))
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    damage = f"its line {count + 2} can't be read"
                    break
                if len(batch) >= BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch
        if not ended:
            raise StoreDamaged(
                f"The backup {file} is damaged: {damage or 'its end is missing'}. What stands "
                "before that was taken.",
                hint="Use another backup if there is one.",
            )

    return stream
