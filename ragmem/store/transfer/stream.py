"""Everything in a store as a stream of Writes, in memory that does not grow with it.

In the order in which a store takes them: projects, their code, sessions before those that
were forked from them, turns by index, summaries after what they cover, memories after what
they took the place of, and vectors and references to code after what they are of.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from ragmem.errors import StoreDamaged, UsageError
from ragmem.failpoints import failpoint
from ragmem.records import (
    AddSummary,
    CodeFile,
    CodeScope,
    DropCodeFiles,
    FoundScope,
    Insight,
    MemoryRecord,
    Owner,
    Profile,
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
    RegisterProject,
    ScopeQuery,
    Session,
    Span,
    Summary,
    Write,
    utc_now,
)
from ragmem.store.base import Archive
from ragmem.store.room import fitted

T = TypeVar("T")
BATCH = 200
"""Writes in a batch, about: with its tool calls a turn is some ten records."""
_ALL = 2**31 - 1

OnProgress = Callable[[Literal["copying", "comparing"], int], None]
"""What is done, and how many more records of it."""

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
                sessions = await source.get(Session, portion.session_ids)
                turns = [_fitted(put) for put in await source.own_turns(portion.spans)]
                embedded = [*portion.session_ids, *(put.turn.turn_id for put in turns)]
                yield [
                    *(PutSession(session=session) for session in sessions),
                    *turns,
                    *await source.get(PutVectors, embedded),
                    *await source.get(PutReferences, [put.turn.turn_id for put in turns]),
                    *[
                        PutInsight(insight=each)
                        for each in await source.get(Insight, portion.session_ids)
                    ],
                ]
        async for code in _code_of(source, projects):
            for settled in _parts(list(code.after_turns()), batch):
                yield settled
        for portion_ids in _parts(await source.ids(Summary), batch):
            failpoint("transfer.read")
            found = await source.get(Summary, portion_ids)
            summaries = (AddSummary(summary=summary) for summary in found)
            yield [*summaries, *await source.get(PutVectors, portion_ids)]
        for portion_ids in _parts(await source.ids(MemoryRecord), batch):
            failpoint("transfer.read")
            known = await source.get(MemoryRecord, portion_ids)
            memories = (PutMemory(memory=memory) for memory in known)
            yield [*memories, *await source.get(PutVectors, portion_ids)]
        if named := [each for each in map(owner_write, await source.owners()) if each]:
            yield named
        for profile in await source.profiles():
            if writes := profile_writes(profile):
                yield writes

    return stream


def _fitted(put: PutTurn) -> PutTurn:
    return replace(put, turn=fitted(put.turn))


class MovedCode(msgspec.Struct, frozen=True):
    """The code of one project's folder, with the scopes that no file defines any more.

    Such a scope is there for the turns that have to do with it. So it is put as if its last file
    defined it still, then come the turns with their references, then that file as it is.
    """

    project_id: str
    files: Sequence[CodeFile]
    lost: Sequence[FoundScope]
    """Scopes of it that no file defines."""

    def before_turns(self) -> Iterator[PutCodeFile]:
        """Every scope with a file. What is not so bears no hash: see `is_as_it_is`."""
        held = {file.path: file for file in self.files}
        lost: dict[str, list[CodeScope]] = {}
        for found in self.lost:
            lost.setdefault(found.path, []).append(found.scope)
        for path in sorted(held.keys() | lost.keys()):
            file = held.get(path) or CodeFile(
                project_id=self.project_id, path=path, language="text", hash=""
            )
            if path in lost:
                file = replace(file, hash="", scopes=(*file.scopes, *lost[path]))
            yield PutCodeFile(file=file)

    def after_turns(self) -> Iterator[PutCodeFile | DropCodeFiles]:
        """What of that was not so, as it is."""
        paths = {found.path for found in self.lost}
        for file in self.files:
            if file.path in paths:
                yield PutCodeFile(file=file)
                paths.remove(file.path)
        if paths:
            yield DropCodeFiles(project_id=self.project_id, paths=tuple(sorted(paths)))


def is_as_it_is(write: PutCodeFile) -> bool:
    """Whether the file is so, and not only put so until its turns are there."""
    return write.file.hash != ""


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


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


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
