"""The store's part for memories: see `ragmem.store` for what each of these guarantees."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from ragmem.errors import StoreRefused
from ragmem.records import (
    MEMORY_LEVEL,
    Evidence,
    MemoryQuery,
    MemoryRecord,
    Owner,
    Profile,
    PutMemory,
    PutOwner,
    PutProfile,
)
from ragmem.store import (
    AHEAD,
    MOST_FOUND,
    anothers,
    in_order,
    join_conditions,
    oldest_first,
    stored,
)
from ragmem.store.neo4j import shapes
from ragmem.store.neo4j.entries import STATEMENTS as RECALL
from ragmem.store.neo4j.gateway import Row, Transaction, from_text, named_statements
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

_TIMES = ("createdAt", "updatedAt", "at", "expiresAt", "validUntil")
"""Times are read as text: the driver takes 0.1 ms for each of its own."""


class _Loose(msgspec.Struct, frozen=True):
    """Evidence without a turn in this store, as it is kept on its memory."""

    position: int
    evidence: Evidence


def loose_text(position: int, evidence: Evidence) -> str:
    """Encode evidence for the memory itself."""
    return msgspec.json.encode(_Loose(position, stored(evidence))).decode()


def loose_evidence(texts: Sequence[str]) -> list[tuple[int, Evidence]]:
    """Decode evidence with its positions; what can't be decoded is reported by `check`."""
    return [(each.position, each.evidence) for each in map(_loose, texts) if each is not None]


def _loose(text: str) -> _Loose | None:
    try:
        return msgspec.json.decode(text, type=_Loose)
    except msgspec.MsgspecError:
        return None


def to_memory(row: Row) -> MemoryRecord:
    """Return the memory of a node's properties, with its relationships' as `said`."""
    evidence = loose_evidence(row["evidence"]) + [
        (each["position"], shapes.to_record(Evidence, _timed(each), turn_id=each["turnId"]))
        for each in row["said"]
    ]
    evidence.sort(key=lambda each: each[0])
    in_order = tuple(each for _, each in evidence)
    return shapes.to_record(MemoryRecord, _timed(row), evidence=in_order)


def _timed(row: Row) -> Row:
    return Row(row | {name: from_text(row[name]) for name in _TIMES if row.get(name)})


STATEMENTS = named_statements("memories.cypher")
NOBODY = "local"
"""User id of the profile in a store opened without an owner."""


async def memories_changed(tx: Transaction) -> None:
    """Count up the revision of memories, once per transaction, to invalidate what was read."""
    await tx.run(STATEMENTS["memories_changed"])


async def put_memories(
    tx: Transaction,
    puts: Sequence[PutMemory],
    lock_sessions: Callable[[set[str]], Awaitable[object]],
) -> None:
    """Put memories with their evidence and what they supersede, one after the other.

    Raises StoreRefused for one about another person than the store's owner.
    """
    evidence = [each for put in puts for each in put.memory.evidence]
    turn_ids = sorted({clean(each.turn_id) for each in evidence if each.turn_id})
    homes = {home for _, home in await tx.found(STATEMENTS["sessions_of_turns"], ids=turn_ids)}
    await lock_sessions(homes | {clean(each.session_id) for each in evidence if each.session_id})
    named = {name for put in puts for name in (put.memory.project_id, put.memory.joined_from)}
    projects = sorted(clean(name) for name in named if name is not None)
    await tx.run(STATEMENTS["lock_projects"], ids=projects)
    await tx.run(RECALL["lock_vectors"])
    ids = [clean(put.memory.memory_id) for put in puts]
    if theirs := await tx.found(STATEMENTS["not_theirs"], ids=ids, owner=tx.sees):
        raise anothers(theirs[0])
    # Read again: one of these sessions may have been deleted before it was locked.
    homes_of_turns = dict(await tx.found(STATEMENTS["sessions_of_turns"], ids=turn_ids))
    for part in _without_repeats(puts):
        await _put(tx, part, homes_of_turns)


def _without_repeats(puts: Sequence[PutMemory]) -> Iterator[Sequence[PutMemory]]:
    """Split into parts in which no memory occurs twice, or after the one that supersedes it."""
    part: list[PutMemory] = []
    named: set[str] = set()
    for put in puts:
        if clean(put.memory.memory_id) in named:
            yield part
            part, named = [], set()
        part.append(put)
        named |= {clean(each) for each in (put.memory.memory_id, *put.supersedes)}
    yield part


async def _put(tx: Transaction, puts: Sequence[PutMemory], homes_of_turns: dict[str, str]) -> None:
    ids = [clean(put.memory.memory_id) for put in puts]
    memories = [_row(put.memory, homes_of_turns) for put in puts]
    await tx.run(STATEMENTS["put_memories"], memories=memories)
    await tx.run(STATEMENTS["link_superseded"], ids=ids)
    olds: list[str] = []
    for put in puts:
        if put.supersedes:
            await tx.run(
                STATEMENTS["supersede"],
                id=put.memory.memory_id,
                olds=sorted(put.supersedes),
                owner=tx.sees,
            )
            olds += put.supersedes
    await tx.run(STATEMENTS["forget_evidence"], ids=ids)
    rows: list[Properties] = [
        {
            "memoryId": put.memory.memory_id,
            "turnId": each.turn_id,
            "properties": shapes.properties(each) | {"position": position},
        }
        for put in puts
        for position, each in enumerate(put.memory.evidence)
        if clean(each.turn_id) in homes_of_turns
    ]
    await tx.run(STATEMENTS["put_evidence"], evidence=rows)
    await tx.run(STATEMENTS["note_vectors_due"], ids=[*ids, *olds])


def _row(memory: MemoryRecord, homes_of_turns: dict[str, str]) -> Properties:
    """Return a memory's row, with evidence that has no turn here, and the sessions of all of it."""
    loose = [
        loose_text(position, each)
        for position, each in enumerate(memory.evidence)
        if clean(each.turn_id) not in homes_of_turns
    ]
    sessions = (
        clean(each.session_id) or homes_of_turns.get(clean(each.turn_id), "")
        for each in memory.evidence
    )
    found = shapes.properties(memory) | {"scope": memory.scope}
    apart = ("projectId", "joinedFrom", "supersededBy", "validUntil")
    return {
        "memoryId": found.pop("uuid"),
        **{name: found.pop(name) for name in apart},
        "owner": found.pop("owner") or None,
        "properties": found,
        "evidence": loose,
        "sessionIds": list(dict.fromkeys(each for each in sessions if each)),
    }


async def forget_memories(
    tx: Transaction, memory_ids: Sequence[str], *, erase: bool = True
) -> dict[str, int]:
    """Delete memories that the owner sees, and all that they superseded; return counts by kind.

    What is left in the server's files is up to the server, whatever `erase` says.
    """
    await tx.run(RECALL["lock_vectors"])
    gone = await tx.found(STATEMENTS["chains"], ids=memory_ids, owner=tx.sees)
    await tx.run(STATEMENTS["forget_memories"], ids=gone)
    await tx.run(STATEMENTS["forget_leases"], ids=gone)
    await memories_changed(tx)
    return {"memories": len(gone)}


async def forget_session(tx: Transaction, session_id: str) -> int:
    """Delete what was said in a session, which is locked, and the memories with no other evidence.

    Returns how many memories were deleted. What one of them superseded is superseded by its
    successor from now on, or current again.
    """
    await tx.run(RECALL["lock_vectors"])
    gone = []
    kept: list[Properties] = []
    for memory_id, elsewhere, texts in await tx.found(
        STATEMENTS["memories_of_session"], sessionId=session_id
    ):
        loose = [
            (position, each)
            for position, each in loose_evidence(texts or ())
            if each.session_id != clean(session_id)
        ]
        if not loose and not elsewhere:
            gone.append(memory_id)
            continue
        sessions = [*elsewhere, *(each.session_id for _, each in loose)]
        kept.append(
            {
                "memoryId": memory_id,
                "evidence": [loose_text(position, each) for position, each in loose],
                "sessionIds": list(dict.fromkeys(each for each in sessions if each)),
            }
        )
    await tx.run(STATEMENTS["keep_memories"], kept=kept, sessionId=session_id)
    await _delete(tx, gone)
    await memories_changed(tx)
    return len(gone)


async def _delete(tx: Transaction, gone: Sequence[str]) -> None:
    """Unlink memories that are deleted, and link what they superseded to their successors."""
    after = dict(await tx.found(STATEMENTS["successors"], ids=gone))
    rows: list[Properties] = []
    for old_id, by in await tx.found(STATEMENTS["superseded_by_these"], ids=gone):
        seen = set()
        while by in after and by not in seen:
            seen.add(by)
            by = after[by]
        rows.append({"id": old_id, "by": None if by in seen else by})
    await tx.run(STATEMENTS["forget_memories"], ids=gone)
    await tx.run(STATEMENTS["forget_leases"], ids=gone)
    await tx.run(STATEMENTS["succeed"], rows=rows)
    olds = [row["id"] for row in rows]
    await tx.run(STATEMENTS["link_superseded"], ids=olds)
    await tx.run(STATEMENTS["note_vectors_due"], ids=olds)


async def put_profile(tx: Transaction, writes: Sequence[PutProfile]) -> None:
    """Set or remove keys of profiles; the others stay."""
    for owner in sorted({write.owner for write in writes}):
        await _put_profile(tx, owner, [write for write in writes if write.owner == owner])


async def _put_profile(tx: Transaction, owner: str, writes: Sequence[PutProfile]) -> None:
    of = clean(owner) or NOBODY
    await tx.run(STATEMENTS["lock_profile"], owner=of)
    values = dict((await profile(tx, owner)).values)
    for write in writes:
        key = clean(write.key)
        if write.value is None:
            values.pop(key, None)
        else:
            values[key] = clean(write.value)
    await tx.run(
        STATEMENTS["put_profile"],
        owner=of,
        json=msgspec.json.encode(values).decode(),
        at=max(write.at for write in writes),
    )


async def put_owners(tx: Transaction, writes: Sequence[PutOwner]) -> None:
    """Set the names of owners; a name that was set later stays, except by a wrong clock."""
    horizon = tx.now + AHEAD
    for write in sorted(writes, key=lambda each: each.owner):
        await tx.run(
            STATEMENTS["put_owner"],
            owner=write.owner,
            name=write.name,
            at=write.at,
            horizon=horizon,
        )


async def assign_owner(tx: Transaction, owner: str) -> None:
    """Give the owner whatever was stored before stores knew owners."""
    for statement in ("take_sessions", "take_memories", "take_profile"):
        await tx.run(STATEMENTS[statement], owner=owner)


async def profile(tx: Transaction, owner: str) -> Profile:
    """Return the stored profile of an owner."""
    owner = "" if owner == NOBODY else clean(owner)
    row = await tx.first_row(STATEMENTS["profile"], owner=owner or NOBODY)
    if row is None or row["json"] is None:
        return Profile(owner=owner)
    values = _values(row["json"])
    if values is None:
        raise StoreRefused(
            "The profile in Neo4j can't be read: something other than ragmem has changed it.",
            hint="`ragmem store repair` sets it aside.",
        )
    return Profile(values=values, updated_at=row["at"], owner=owner)


def _values(json: str) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(json, type=dict[str, str])
    except msgspec.MsgspecError:
        return None


async def unreadable(tx: Transaction) -> list[str]:
    """Return ids of memories with undecodable evidence, and "profile" for each such profile."""
    [row] = await tx.run(STATEMENTS["what_is_json"])
    found = [name for name, texts in row["evidence"] if not all(map(_loose, texts))]
    return [*found, *("profile" for json in row["profiles"] if _values(json) is None)]


async def summaries_before(tx: Transaction, session_ids: Sequence[str]) -> dict[str, str]:
    """Return the summaries of sessions that are about to change; this locks the sessions."""
    return dict(await tx.found(STATEMENTS["summaries_of_sessions"], ids=session_ids))


async def note_summaries(
    tx: Transaction, session_ids: Sequence[str], before: dict[str, str]
) -> None:
    """Drop the vectors of summaries that have changed; new ones are pending then."""
    after = await summaries_before(tx, session_ids)
    changed = [each for each, text in before.items() if after.get(each) != text]
    if changed:
        await tx.run(STATEMENTS["forget_summary_vectors"], ids=changed)
    noted = changed + [each for each, text in after.items() if text and each not in before]
    if noted:
        await tx.run(STATEMENTS["note_vectors_due"], ids=noted)


_ALL = 2**31 - 1


async def memories_revision(tx: Transaction) -> int:
    """Return a number that goes up when memories or their vectors change."""
    [[found]] = await tx.values(STATEMENTS["memories_revision"])
    return int(found)


async def memories(tx: Transaction, query: MemoryQuery) -> list[MemoryRecord]:
    """Return those that match, each with its evidence in order."""
    conditions = join_conditions(
        (query.kinds, "m.kind IN $kinds"),
        (query.subjects, "any(each IN m.subjects WHERE each IN $subjects)"),
        (query.session_ids, "any(each IN m.sessionIds WHERE each IN $session_ids)"),
        (query.pinned is not None, "m.pinned = $pinned"),
        (not query.with_superseded, "m.supersededBy IS NULL"),
        (query.alive_at is not None, "(m.expiresAt IS NULL OR m.expiresAt > $alive_at)"),
    )
    which = STATEMENTS["everywhere" if query.everywhere else "in_scope"]
    which = which.replace("/* conditions */", f" AND {conditions}")
    given = msgspec.structs.asdict(query) | {"owner": tx.sees}
    given["subjects"] = [each.casefold() for each in query.subjects]
    given["limit"] = _ALL if query.limit is None else query.limit
    return _newest_first(await _read(tx, which, given))


async def memories_by_id(tx: Transaction, ids: Sequence[str]) -> list[MemoryRecord]:
    """Return those memories that exist, superseded ones too, in this order."""
    given: Properties = {"ids": sorted(set(ids)), "owner": tx.sees}
    return in_order(await _read(tx, STATEMENTS["by_id"], given), ids)


async def find_memories(tx: Transaction, reference: str) -> list[MemoryRecord]:
    """Find memories whose id, without dashes, is or ends with the reference; newest first."""
    tail = clean(reference).replace("-", "")
    if not tail:
        return []
    given: Properties = {"reference": tail, "limit": MOST_FOUND, "owner": tx.sees}
    return _newest_first(await _read(tx, STATEMENTS["by_reference"], given))


async def superseded_by(tx: Transaction, memory_id: str) -> list[MemoryRecord]:
    """Return all that this memory superseded, directly or through others; newest first."""
    given: Properties = {"id": memory_id, "owner": tx.sees}
    return _newest_first(await _read(tx, STATEMENTS["superseded"], given))


async def small_vectors(
    tx: Transaction, record_ids: Sequence[str], level: int, embedder: str
) -> dict[str, bytes]:
    """Return vectors of memories (MEMORY_LEVEL) or sessions (SESSION_LEVEL), by id."""
    kind = "memories" if level == MEMORY_LEVEL else "sessions"
    [[ids, vectors]] = await tx.values(
        STATEMENTS[f"small_vectors_of_{kind}"], ids=record_ids, embedder=embedder
    )
    return {name: bytes(v) for name, v in zip(ids, vectors, strict=True) if v}


async def own_profile(tx: Transaction) -> Profile:
    """Return the profile of the owner that the store was opened for; empty at first."""
    return await profile(tx, tx.owner)


async def profiles(tx: Transaction) -> list[Profile]:
    """Return the profile of every owner, whoever the store was opened for."""
    owners = await tx.found(STATEMENTS["profile_owners"])
    found = [await profile(tx, owner) for owner in owners]
    return [each for each in found if each.values]


async def owners(tx: Transaction) -> list[Owner]:
    """Return everybody who owns something here, or has a name, by id."""
    found = await tx.found(STATEMENTS["owners"])
    return shapes.records(tx, Owner, found)


async def others(tx: Transaction) -> list[Owner]:
    """Return the owners except the one that the store was opened for; none if that is everyone."""
    if not tx.sees:
        return []
    return [each for each in await owners(tx) if each.owner_id != tx.sees]


async def memory_ids(tx: Transaction) -> list[str]:
    """Return the id of every memory, each after those that it superseded."""
    [[found]] = await tx.values(STATEMENTS["memory_ages"])
    return oldest_first([(str(each), by) for each, by in found])


async def _read(tx: Transaction, which: str, given: Properties) -> list[MemoryRecord]:
    statement = STATEMENTS["memories"].replace("/* which */", which)
    [[found]] = await tx.values(statement, **given)
    return tx.read.records(to_memory, found)


def _newest_first(memories: list[MemoryRecord]) -> list[MemoryRecord]:
    return sorted(memories, key=lambda each: (each.created_at, each.memory_id), reverse=True)
