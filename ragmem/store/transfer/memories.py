"""Memories of a session's document: gathered, given new ids, and stored again."""

from collections.abc import Mapping, Sequence

import msgspec

from ragmem.ids import new_id
from ragmem.records import Evidence, MemoryRecord, PutMemory, Write
from ragmem.store.base import Archive
from ragmem.store.memories import MemoryQuery


class MemoryDocument(MemoryRecord, frozen=True, kw_only=True):
    """A memory, and what it took the place of."""

    supersedes: tuple[str, ...] = ()
    """Directly."""


async def memories_of(store: Archive, session_id: str) -> tuple[MemoryDocument, ...]:
    """Those that were said in the session, oldest first."""
    query = MemoryQuery(everywhere=True, with_superseded=True, session_id=session_id)
    found = []
    for memory in reversed(await store.memories(query)):
        older = await store.superseded_by(memory.memory_id)
        fields = msgspec.structs.asdict(memory)
        fields["supersedes"] = tuple(
            each.memory_id for each in reversed(older) if each.superseded_by == memory.memory_id
        )
        found.append(MemoryDocument(**fields))
    return tuple(found)


def pointed_to(
    memories: Sequence[MemoryDocument],
    session_ids: tuple[str, str],
    ids: Mapping[str, str],
    *,
    as_new: bool,
) -> tuple[MemoryDocument, ...]:
    """Memories that come from turns which bear other ids now; with ids of their own, if wanted.

    `session_ids`: of the session as it was, and as it is; `ids`: of turns and tool calls.
    """
    own = {memory.memory_id: new_id() for memory in memories} if as_new else {}
    return tuple(
        msgspec.structs.replace(
            memory,
            memory_id=own.get(memory.memory_id, memory.memory_id),
            superseded_by=own.get(memory.superseded_by or "", memory.superseded_by),
            supersedes=tuple(own[each] for each in memory.supersedes if each in own)
            if as_new
            else memory.supersedes,
            evidence=tuple(_pointed(each, session_ids, ids) for each in memory.evidence),
        )
        for memory in memories
    )


async def those_here(
    store: Archive, memories: Sequence[MemoryDocument]
) -> tuple[MemoryDocument, ...]:
    """With the ids of those in the store that say the same: a second copy of a session says it
    a second time, and makes no second fact."""
    query = MemoryQuery(everywhere=True, with_superseded=True)
    here = {_saying(each): each.memory_id for each in await store.memories(query)}
    ids = {each.memory_id: here[_saying(each)] for each in memories if _saying(each) in here}
    return tuple(
        msgspec.structs.replace(
            memory,
            memory_id=ids.get(memory.memory_id, memory.memory_id),
            superseded_by=ids.get(memory.superseded_by or "", memory.superseded_by),
            supersedes=tuple(ids.get(each, each) for each in memory.supersedes),
        )
        for memory in memories
    )


def _saying(memory: MemoryRecord) -> tuple[str | None, str, str, bool]:
    words = " ".join(memory.content.casefold().split())
    return memory.project_id, memory.kind, words, memory.superseded_by is None


def _pointed(evidence: Evidence, session_ids: tuple[str, str], ids: Mapping[str, str]) -> Evidence:
    before, now = session_ids
    if evidence.session_id != before and evidence.turn_id not in ids:
        return evidence
    return msgspec.structs.replace(
        evidence,
        session_id=now,
        turn_id=ids.get(evidence.turn_id, evidence.turn_id),
        tool_call_id=ids.get(evidence.tool_call_id, evidence.tool_call_id),
    )


def moved_to(
    memories: Sequence[MemoryDocument], before: str, project_id: str
) -> tuple[MemoryDocument, ...]:
    """Where the session's project is another one here, its memories are that one's."""
    return tuple(
        msgspec.structs.replace(memory, project_id=project_id)
        if memory.project_id == before
        else memory
        for memory in memories
    )


async def memory_writes(
    store: Archive, memories: Sequence[MemoryDocument], session_id: str
) -> list[Write]:
    """The writes that store them. One that is here keeps what it says, and is said here too."""
    held = {
        memory.memory_id: memory
        for memory in await store.memories_by_id([memory.memory_id for memory in memories])
    }
    writes: list[Write] = []
    for memory in memories:
        if here := held.get(memory.memory_id):
            evidence = _together(here.evidence, memory.evidence, session_id)
            writes.append(PutMemory(memory=msgspec.structs.replace(here, evidence=evidence)))
            continue
        fields = msgspec.structs.asdict(memory)
        supersedes = fields.pop("supersedes")
        record = MemoryRecord(**fields)
        if supersedes and record.superseded_by:
            # What is superseded takes nothing's place any more: it does so before.
            current = msgspec.structs.replace(record, superseded_by=None, valid_until=None)
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
