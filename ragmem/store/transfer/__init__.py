"""Everything in a store as a stream of Writes, with bounded memory.

In an order in which a store accepts them: projects, their code, sessions before their forks, turns
by index, summaries after what they cover, memories after what they superseded, and vectors and
references to code after what they belong to. `document.py` has single sessions as documents.
"""

import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ragmem import similarity
from ragmem.errors import StoreDamaged, UsageError
from ragmem.failpoints import failpoint
from ragmem.records import (
    OF_SESSIONS,
    AddSummary,
    CodeFile,
    DropCodeFiles,
    EmbedderMark,
    MemoryRecord,
    Owner,
    Project,
    PutCodeFile,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    RecordToolCall,
    RegisterProject,
    ScopeQuery,
    Session,
    Span,
    Summary,
    Write,
    changed,
    utc_now,
    write_decoder,
)
from ragmem.store import Archive, batches, fitted, grouped, turn_stays

BATCH = 200
"""Approximate number of writes in a batch; with its tool calls a turn is some ten records."""
_ALL = 2**31 - 1

OnProgress = Callable[[Literal["copying", "comparing"], int], None]
"""Called with the phase, and the number of records done since the last call."""

Stream = Callable[[], AsyncIterator[Sequence[Write]]]
"""Starts from the beginning each time it is called."""


def stream_of(source: Archive, *, batch: int = BATCH) -> Stream:
    """Stream everything that the store holds."""

    async def stream() -> AsyncIterator[Sequence[Write]]:
        if projects := await source.projects():
            yield [RegisterProject(project=project) for project in projects]
        async for files in _code_of(source, projects, batch, after_turns=False):
            yield files
        for generation in generations(await source.spans()):
            for portion in portions(generation, batch):
                failpoint("transfer.read")
                sessions = await source.get(Session, portion.session_ids)
                turns = [
                    replace(put, turn=fitted(put.turn))
                    for put in await source.own_turns(portion.spans)
                ]
                embedded = [*portion.session_ids, *(put.turn.turn_id for put in turns)]
                yield [
                    *(PutSession(session=session) for session in sessions),
                    *turns,
                    *await source.get(PutVectors, embedded),
                    *await source.get(PutReferences, [put.turn.turn_id for put in turns]),
                    *[
                        kind.put.of(each)
                        for kind in OF_SESSIONS
                        for each in await source.get(kind.record, portion.session_ids)
                    ],
                ]
        async for files in _code_of(source, projects, batch, after_turns=True):
            yield files
        for put, kind in ((AddSummary, Summary), (PutMemory, MemoryRecord)):
            for ids in batches(await source.ids(kind), batch):
                failpoint("transfer.read")
                yield [
                    *map(put.of, await source.get(kind, ids)),
                    *await source.get(PutVectors, ids),
                ]
        if owners := await _held_owners(source):
            yield owners
        if profiles := await _held_profiles(source):
            yield profiles

    return stream


async def _code_of(
    source: Archive, projects: Sequence[Project], batch: int, *, after_turns: bool
) -> AsyncIterator[Sequence[PutCodeFile | DropCodeFiles]]:
    """Yield the files of each project, one project after the other, in batches.

    A scope that no file defines any more exists only for the turns that refer to it. So it is put
    as if its last file still defined it, without the file's hash; then come the turns with their
    references, and `after_turns` that file as it is.
    """
    with_code = await source.code_projects()
    for project_id in dict.fromkeys([*(each.project_id for each in projects), *with_code]):
        failpoint("transfer.read")
        # For a joined project this returns the scopes of the whole family.
        known = await source.find_scopes(ScopeQuery(project_ids=(project_id,), limit=_ALL))
        lost = grouped(
            (each.path, each.scope)
            for each in known
            if each.project_id == project_id and not each.defined
        )
        held = await source.code_files(project_id) if project_id in with_code else []
        writes: list[PutCodeFile | DropCodeFiles]
        if after_turns:
            gone = tuple(sorted(lost.keys() - {file.path for file in held}))
            writes = [PutCodeFile(file=file) for file in held if file.path in lost]
            if gone:
                writes.append(DropCodeFiles(project_id=project_id, paths=gone))
        else:
            files = {file.path: file for file in held}
            for path, scopes in lost.items():
                none = CodeFile(project_id=project_id, path=path, language="text", hash="")
                file = files.get(path, none)
                files[path] = replace(file, hash="", scopes=(*file.scopes, *scopes))
            writes = [PutCodeFile(file=file) for _, file in sorted(files.items())]
        for part in batches(writes, batch):
            yield part


def owner_write(owner: Owner) -> PutOwner | None:
    """Return the write of an owner's name; None for one without a name."""
    if not owner.name:
        return None
    return PutOwner(owner=owner.owner_id, name=owner.name, at=owner.named_at or utc_now())


def generations(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield sessions that were not forked, then their forks, then the forks of these."""
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
    """Sessions and spans of turns that make about one batch."""

    session_ids: list[str]
    """Sessions that begin in this portion."""
    spans: list[Span]
    """Turns of sessions that begin in this portion, or in an earlier one."""


def portions(spans: Sequence[Span], size: int) -> Iterator[Portion]:
    """Yield portions: short sessions together, a long one in several parts."""
    portion, room = Portion([], []), size
    for span in spans:
        portion.session_ids.append(span.session_id)
        room -= 1
        first = span.first
        while first <= span.last:
            last = min(span.last, first + max(room, 1) - 1)
            portion.spans.append(replace(span, first=first, last=last))
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
    format: Literal["ragmem.writes"]
    version: Literal[1]


_LONGEST_HEAD = 1000


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    end: int
    """The number of writes before this line."""


async def write_lines(stream: Stream, out: BinaryIO, on_progress: OnProgress) -> None:
    """Write the whole stream; making it durable is left to the caller."""
    count = 0
    out.write(msgspec.json.encode(_Head("ragmem.writes", 1)) + b"\n")
    async for batch in stream():
        failpoint("lines.write")
        out.writelines(msgspec.json.encode(write) + b"\n" for write in batch)
        count += len(batch)
        on_progress("copying", len(batch))
    out.write(msgspec.json.encode(_End(count)) + b"\n")


def count_lines(file: Path) -> int:
    """Return the approximate number of writes in the file."""
    with file.open("rb") as lines:
        return max(0, sum(1 for _ in lines) - 2)


def stream_of_lines(file: Path) -> Stream:
    """Return a stream of a backup's writes; UsageError if the file is none.

    Reading it raises StoreDamaged at the first undecodable line, or at a missing end.
    """
    with file.open("rb") as beginning:
        try:
            msgspec.json.decode(beginning.readline(_LONGEST_HEAD), type=_Head)
        except msgspec.MsgspecError:
            raise UsageError(
                f"{file} is not a backup of ragmem's memory.",
                hint="`ragmem store backup FILE` writes one. `ragmem sessions import` takes "
                "sessions, `ragmem memory import` memories.",
            ) from None

    async def stream() -> AsyncIterator[Sequence[Write]]:
        batch: list[Write] = []
        damage, ended = None, False
        with file.open("rb") as lines:
            lines.readline()
            for count, line in enumerate(lines):
                failpoint("lines.read")
                try:
                    if line.startswith(b'{"end":'):
                        ended = msgspec.json.decode(line, type=_End).end == count
                        break
                    write = write_decoder.decode(line)
                    if isinstance(write, PutMemory):
                        # The records themselves have what superseded them.
                        write = replace(write, supersedes=())
                    batch.append(write)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    damage = f"its line {count + 2} can't be read"
                    break
                if len(batch) >= BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch
        if not ended:
            raise StoreDamaged(
                f"The backup {file} is damaged: {damage or 'its end is missing'}. Everything "
                "before that was restored.",
                hint="Use another backup if there is one.",
            )

    return stream


# --- copying into a store, and comparing with it ----------------------------------------


KINDS = (
    "projects", "code_files", "scopes", "sessions", "turns", "tool_calls", "references",
    "summaries", "memories", "profile", "owners", *(each.table for each in OF_SESSIONS),
    "vectors",
)  # fmt: skip
_SHOWN = 5
_MODULUS = 1 << 64
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)


async def _held_files(target: Archive, writes: Sequence[PutCodeFile]) -> list[CodeFile]:
    paths = grouped((write.file.project_id, write.file.path) for write in writes)
    return [
        file
        for project_id, those in paths.items()
        for file in await target.code_files(project_id, those)
    ]


def _spans(puts: Sequence[PutTurn]) -> list[Span]:
    """Return few spans that contain these turns, adjacent ones together."""
    spans: list[Span] = []
    for put in puts:
        turn = put.turn
        last = spans[-1] if spans else None
        if last and (last.session_id, last.last + 1) == (turn.session_id, turn.turn_index):
            spans[-1] = Span(turn.session_id, last.first, turn.turn_index)
            continue
        spans.append(Span(turn.session_id, turn.turn_index, turn.turn_index))
    return spans


async def _held_profiles(target: Archive, _: object = None) -> list[PutProfile]:
    return [
        PutProfile(key=key, value=value, at=profile.updated_at or utc_now(), owner=profile.owner)
        for profile in await target.profiles()
        for key, value in profile.values.items()
    ]


async def _held_owners(target: Archive, _: object = None) -> list[PutOwner]:
    return [write for write in map(owner_write, await target.owners()) if write]


class _Moved(NamedTuple):
    """How writes of one type are counted, named, looked up in another store and compared."""

    kind: str
    words: str
    """The noun for such a record before its id."""
    ids: str
    """Fields that identify the record among its kind; their values are joined by ` of `."""
    held: Callable[[Archive, list[Any]], Awaitable[Iterable[Any]]] | None = None
    """Returns what a store has in place of such writes; without it, they are looked up by id."""
    later: Callable[[Any, Any], bool] = lambda ours, theirs: False
    """Whether the target's record was changed after the source's was written."""


def _memory_went_on(ours: MemoryRecord, theirs: MemoryRecord) -> bool:
    if ours.superseded_by != theirs.superseded_by:
        return theirs.superseded_by is not None
    return theirs.updated_at > ours.updated_at


def _later_by(changed_at: str) -> Callable[[Any, Any], bool]:
    return lambda ours, theirs: bool(getattr(theirs, changed_at) > getattr(ours, changed_at))


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
        lambda ours, theirs: (
            ours.status != "completed"
            and turn_stays(ours, theirs.status, len(theirs.user_message))
        ),
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
    **{
        each.put: _Moved(each.table, each.words, "session_id", later=_later_by(each.changed_at))
        for each in OF_SESSIONS
    },
    PutCodeFile: _Moved("code_files", "file", "path project_id", _held_files),
    PutReferences: _Moved("references", "references of", "turn_id"),
}  # fmt: skip


def key_of(write: Write) -> tuple[str, str]:
    """Return what identifies a record among all: its kind in words, and its id."""
    if isinstance(write, DropCodeFiles):
        return "no files", " ".join(write.paths)
    moved = _MOVED[type(write)]
    names = (getattr(write.record, name) for name in moved.ids.split())
    return moved.words, " of ".join(filter(None, names))


async def stored_counterparts(
    batch: Sequence[Write], target: Archive
) -> dict[tuple[str, str], Write]:
    """Return what the target holds in place of these writes, by `key_of`."""
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
                write = each if isinstance(each, kind) else kind.of(each)
                found[key_of(write)] = write
    return found


class Counter(msgspec.Struct, frozen=True):
    """Records of a kind: their number, and the sum of their digests, independent of their order."""

    count: int = 0
    checksum: int = 0

    def with_record(self, record: msgspec.Struct) -> "Counter":
        """Return a counter with this record added."""
        encoded = msgspec.json.encode(record, order="deterministic")
        digest = hashlib.blake2b(encoded, digest_size=8).digest()
        return Counter(self.count + 1, (self.checksum + int.from_bytes(digest, "big")) % _MODULUS)

    @property
    def text(self) -> str:
        """The checksum as it is shown."""
        return f"{self.checksum:016x}"


class Comparison:
    """Counts and checksums, by kind, of the source's records in the source and the target."""

    def __init__(self) -> None:
        self.source = dict.fromkeys(KINDS, Counter())
        self.target = dict.fromkeys(KINDS, Counter())
        self.later = 0
        """Records that were changed in the target after the source's: they are left as they are."""
        self.differing_count = 0
        """Number of records that are missing in the target, or different."""
        self.differing: list[str] = []
        """The first of them, in words."""

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each kind: its name, the count, and the checksums of both sides."""
        return [
            (
                kind.replace("_", " "),
                f"{counter.count:,}",
                counter.text,
                "equal" if self.target[kind] == counter else self.target[kind].text,
            )
            for kind, counter in self.source.items()
        ]

    @property
    def equal(self) -> bool:
        """Whether all of the source is in the target."""
        return not self.differing_count and self.source == self.target

    def add(self, write: Write, held: Write | None) -> None:
        """Add a record of the source, and what the target holds in its place."""
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
                self.differing.append(f"{state}: {' '.join(key_of(write))}")


async def copy(stream: Stream, target: Archive, on_progress: OnProgress) -> None:
    """Apply the whole stream; existing records stay, so that it can be run again.

    Vectors are copied to a target that has none, or vectors of the same embedder.
    """
    mark = await target.embedder()
    async for batch in stream():
        embedded = [each for each in batch if isinstance(each, PutVectors) and each.vectors]
        if mark is None and embedded:
            mark = EmbedderMark(embedded[0].embedder, len(embedded[0].vectors[0]) // 4)
            await target.use_embedder(mark)
        failpoint("transfer.apply")
        await target.apply(await _without_older(batch, target))
        failpoint("transfer.applied")
        on_progress("copying", len(batch))


async def _without_older(batch: Sequence[Write], target: Archive) -> list[Write]:
    """Return the batch without writes that would undo a later change in the target, or a split."""
    embedded = {each.record_id for each in batch if isinstance(each, PutVectors)}
    changeable = [
        each
        for each in batch
        if isinstance(each, _CHANGEABLE)
        or (isinstance(each, PutSession) and each.session.session_id in embedded)
    ]
    if not changeable:
        return list(batch)
    held = await stored_counterparts(changeable, target)
    later = _later_keys(changeable, held)
    texts = {record_id for _, record_id in later}
    projects = {each.project_id: each for each in await target.projects()}
    return [
        _in_split_project(write, held.get(key_of(write)), projects)
        for write in batch
        if isinstance(write, PutSession)  # the store itself keeps the newer one
        or (
            write.record_id not in texts
            if isinstance(write, PutVectors)
            else key_of(write) not in later
        )
    ]


async def changes(batch: Sequence[Write], target: Archive) -> list[tuple[Write, Write | None]]:
    """Return the memories and profile entries that a copy of the batch would add or change.

    Each comes with what the target holds in its place.
    """
    known = [write for write in batch if isinstance(write, PutMemory | PutProfile)]
    if not known:
        return []
    writes = await _without_older(known, target)
    projects = {project.project_id: project for project in await target.projects()}
    there = await stored_counterparts(writes, target)
    return [
        (write, held)
        for write in writes
        if (held := there.get(key_of(write))) is None
        or _records(_as_held(write, held, projects)) != _records(held)
    ]


_CHANGEABLE: tuple[type[Any], ...] = (
    *(PutMemory, PutProfile, PutOwner),
    *(each.put for each in OF_SESSIONS),
)


def _later_keys(batch: Sequence[Write], held: dict[tuple[str, str], Write]) -> set[tuple[str, str]]:
    """Return the keys of the writes whose record was changed later in the target."""
    pairs = ((write, held.get(key_of(write))) for write in batch)
    return {key_of(write) for write, there in pairs if there and _changed_later(write, there)}


async def compare(stream: Stream, target: Archive, on_progress: OnProgress) -> Comparison:
    """Look up every record of the stream in the target."""
    comparison = Comparison()
    projects = {project.project_id: project for project in await target.projects()}
    mark = await target.embedder()
    async for batch in stream():
        failpoint("transfer.compare")
        there = await stored_counterparts(batch, target)
        texts = {record_id for _, record_id in _later_keys(batch, there)}
        for write in batch:
            if isinstance(write, PutVectors) and (
                not mark or mark.model_id != write.embedder or write.record_id in texts
            ):
                continue  # not copied: the target has another embedder, or another text
            if isinstance(write, DropCodeFiles) or (
                isinstance(write, PutCodeFile) and not write.file.hash
            ):
                continue  # no final state, but a step on the way to it
            held = there.get(key_of(write))
            comparison.add(_as_held(write, held, projects), held)
        on_progress("comparing", len(batch))
    return comparison


def _as_held(write: Write, held: Write | None, projects: dict[str, Project]) -> Write:
    """Return the write as the target stores it, with its joined projects and its owner."""
    record, there = write.record, held.record if held is not None else None
    project = projects.get(getattr(record, "project_id", None) or "")
    if isinstance(write, RegisterProject):
        # A split or join by the target's user is kept, whatever the source has.
        if project and project.joined_into is not None:
            write = changed(write, joined_into=project.joined_into)
    elif isinstance(write, PutMemory):
        own = projects.get(write.memory.joined_from or "") or project
        if own:
            is_joined = own.root_id != own.project_id
            joined_from = own.project_id if is_joined else None
            write = changed(write, project_id=own.root_id, joined_from=joined_from)
        write = _in_split_project(write, held, projects)
    elif isinstance(write, PutSession) and there is not None:
        # It is the message of the first turn; a backup of an earlier version lacks it.
        first_message = record.first_message or there.first_message
        write = changed(write, project_id=there.project_id, first_message=first_message)
    if there is not None and getattr(record, "owner", None) == "":
        write = changed(write, owner=there.owner)
    return write


def _in_split_project(write: Write, held: Write | None, projects: dict[str, Project]) -> Write:
    """Return the write of a memory in the target's project, if the user has split that off there.

    The source may still have the two as one project, under whose id it has the memory.
    """
    if not isinstance(write, PutMemory) or not isinstance(held, PutMemory):
        return write
    own = projects.get(held.memory.project_id or "")
    if own is None or own.joined_into != own.project_id or write.memory.project_id is None:
        return write
    return changed(write, project_id=own.project_id, joined_from=None)


def _changed_later(write: Write, held: Write) -> bool:
    """Whether the target's record was changed after the source's was written."""
    return _MOVED[type(write)].later(write.record, held.record)


def _records(write: Write) -> list[tuple[str, msgspec.Struct]]:
    """Return the records to count and checksum: tool calls separately, with their accesses."""
    moved = _MOVED[type(write)]
    record, day = write.record, _ANY_DAY
    more: list[tuple[str, msgspec.Struct]] = []
    # A project keeps the time of its first registration; a profile has one time for all its keys.
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
            # NaN is not equal to itself, and neither NaN nor infinity can be written as JSON.
            usage = replace(usage, cost_usd=None)
        record = replace(record, tool_calls=(), usage=usage)
    elif isinstance(write, PutVectors):
        # A store may keep vectors packed, which loses precision: they are compared that way.
        record = replace(record, vectors=(similarity.packed(write.vectors),))
    elif isinstance(write, PutCodeFile):
        more += [("scopes", each) for each in record.scopes]
        record = replace(record, scopes=())
    return [(moved.kind, record), *more]
