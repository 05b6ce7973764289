"""A stream of Writes into a store, and the comparison of both afterwards."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar, get_args

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
    RegisterProject,
    Session,
    Summary,
    Write,
)
from ragmem.store.base import Archive, Span
from ragmem.store.transfer.stream import owner_write, profile_writes

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
