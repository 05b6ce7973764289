"""Memories, the profile and insights, written and forgotten inside a transaction.

Who changes memories holds the lock of the vectors (`entries.lock_vectors`), taken after those
of the sessions and projects: what is read of memories from there on is the latest.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from ragmem.errors import StoreRefused
from ragmem.records import Insight, MemoryRecord, Profile, PutMemory, PutOwner, PutProfile
from ragmem.store.base import anothers
from ragmem.store.neo4j import memory_shapes as shapes
from ragmem.store.neo4j.cypher import named_statements
from ragmem.store.neo4j.entries import STATEMENTS as RECALL
from ragmem.store.neo4j.gateway import Transaction
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

STATEMENTS = named_statements("memories.cypher")
_NOBODY = "local"
"""As the profile of a store that was opened for nobody is called."""


async def memories_changed(tx: Transaction) -> None:
    """Tell those who hold memories: once in a transaction that changes some."""
    await tx.run(STATEMENTS["memories_changed"])


async def put_memories(
    tx: Transaction,
    puts: Sequence[PutMemory],
    lock_sessions: Callable[[set[str]], Awaitable[object]],
    sees: str = "",
) -> None:
    """Memories with their evidence and what they take the place of; one after the other.

    StoreRefused for one that is about another person than `sees`.
    """
    evidence = [each for put in puts for each in put.memory.evidence]
    turn_ids = sorted({clean(each.turn_id) for each in evidence if each.turn_id})
    homes = {home for _, home in await tx.found(STATEMENTS["sessions_of_turns"], ids=turn_ids)}
    await lock_sessions(homes | {clean(each.session_id) for each in evidence if each.session_id})
    projects = {clean(put.memory.project_id) for put in puts if put.memory.project_id is not None}
    await tx.run(STATEMENTS["lock_projects"], ids=sorted(projects))
    await tx.run(RECALL["lock_vectors"])
    ids = [clean(put.memory.memory_id) for put in puts]
    if theirs := await tx.found(STATEMENTS["not_theirs"], ids=ids, owner=sees):
        raise anothers(theirs[0])
    # Looked for again: one of these sessions may have been deleted before it was held.
    homes_of_turns = dict(await tx.found(STATEMENTS["sessions_of_turns"], ids=turn_ids))
    for part in _apart(puts):
        await _put(tx, part, homes_of_turns, sees)


def _apart(puts: Sequence[PutMemory]) -> Iterator[Sequence[PutMemory]]:
    """Parts in which no memory comes twice, or after what takes its place."""
    part: list[PutMemory] = []
    named: set[str] = set()
    for put in puts:
        if clean(put.memory.memory_id) in named:
            yield part
            part, named = [], set()
        part.append(put)
        named |= {clean(each) for each in (put.memory.memory_id, *put.supersedes)}
    yield part


async def _put(
    tx: Transaction, puts: Sequence[PutMemory], homes_of_turns: dict[str, str], sees: str
) -> None:
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
                owner=sees,
            )
            olds += put.supersedes
    await tx.run(STATEMENTS["forget_evidence"], ids=ids)
    rows = [
        shapes.evidence_row(put.memory.memory_id, position, each)
        for put in puts
        for position, each in enumerate(put.memory.evidence)
        if clean(each.turn_id) in homes_of_turns
    ]
    await tx.run(STATEMENTS["put_evidence"], evidence=rows)
    await tx.run(STATEMENTS["note_vectors_due"], ids=[*ids, *olds])


def _row(memory: MemoryRecord, homes_of_turns: dict[str, str]) -> Properties:
    """As `memory_row`, with the evidence that has no turn here, and the sessions of all of it."""
    loose = [
        shapes.loose_text(position, each)
        for position, each in enumerate(memory.evidence)
        if clean(each.turn_id) not in homes_of_turns
    ]
    sessions = (
        clean(each.session_id) or homes_of_turns.get(clean(each.turn_id), "")
        for each in memory.evidence
    )
    return {
        **shapes.memory_row(memory),
        "evidence": loose,
        "sessionIds": list(dict.fromkeys(each for each in sessions if each)),
    }


async def forget_memories(tx: Transaction, memory_ids: Sequence[str], sees: str) -> int:
    """Remove these, and all that stands behind them, of what this person sees; how many."""
    await tx.run(RECALL["lock_vectors"])
    gone = await tx.found(STATEMENTS["chains"], ids=memory_ids, owner=sees)
    await tx.run(STATEMENTS["forget_memories"], ids=gone)
    await tx.run(STATEMENTS["forget_leases"], ids=gone)
    await memories_changed(tx)
    return len(gone)


async def forget_session(tx: Transaction, session_id: str) -> int:
    """Remove what was said in a session, which is locked, and what comes of it alone.

    How many memories went. What one of them took the place of has the next one for its
    successor, or is current again.
    """
    await tx.run(RECALL["lock_vectors"])
    await tx.run(STATEMENTS["forget_insight"], sessionId=session_id)
    gone = []
    kept: list[Properties] = []
    for memory_id, elsewhere, texts in await tx.found(
        STATEMENTS["memories_of_session"], sessionId=session_id
    ):
        loose = [
            (position, each)
            for position, each in shapes.loose_evidence(texts or ())
            if each.session_id != clean(session_id)
        ]
        if not loose and not elsewhere:
            gone.append(memory_id)
            continue
        sessions = [*elsewhere, *(each.session_id for _, each in loose)]
        kept.append(
            {
                "memoryId": memory_id,
                "evidence": [shapes.loose_text(position, each) for position, each in loose],
                "sessionIds": list(dict.fromkeys(each for each in sessions if each)),
            }
        )
    await tx.run(STATEMENTS["keep_memories"], kept=kept, sessionId=session_id)
    await _take_out(tx, gone)
    await memories_changed(tx)
    return len(gone)


async def _take_out(tx: Transaction, gone: Sequence[str]) -> None:
    """Remove these out of the chains in which they stand."""
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
    of = clean(owner) or _NOBODY
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
        at=shapes.time_text(max(write.at for write in writes)),
    )


async def put_owners(tx: Transaction, writes: Sequence[PutOwner]) -> None:
    """What people are called."""
    for write in sorted(writes, key=lambda each: each.owner):
        given = {"owner": write.owner, "name": write.name, "at": shapes.time_text(write.at)}
        await tx.run(STATEMENTS["put_owner"], **given)


async def take(tx: Transaction, owner: str) -> None:
    """What was kept before there were owners is this one's."""
    for statement in ("take_sessions", "take_memories", "take_profile"):
        await tx.run(STATEMENTS[statement], owner=owner)


async def profile(tx: Transaction, owner: str) -> Profile:
    """The owner's, as it stands."""
    owner = "" if owner == _NOBODY else clean(owner)
    row = await tx.first_row(STATEMENTS["profile"], owner=owner or _NOBODY)
    if row is None or row["json"] is None:
        return Profile(owner=owner)
    values = _values(row["json"])
    if values is None:
        raise StoreRefused(
            "The profile in Neo4j can't be read: it was changed by something else than ragmem.",
            hint="`ragmem store repair` sets it aside.",
        )
    return Profile(values=values, updated_at=shapes.to_time(row["at"]), owner=owner)


def _values(json: str) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(json, type=dict[str, str])
    except msgspec.MsgspecError:
        return None


async def unreadable(tx: Transaction) -> list[str]:
    """Ids of memories of whose evidence some can't be read, and the profile's."""
    [row] = await tx.run(STATEMENTS["what_is_json"])
    found = [name for name, texts in row["evidence"] if not all(map(shapes.is_readable, texts))]
    return [*found, *("profile" for json in row["profiles"] if _values(json) is None)]


async def set_unreadable_aside(tx: Transaction) -> list[str]:
    """Keep it beside, where nobody stumbles over it; ids as before."""
    found = await unreadable(tx)
    if found:
        [row] = await tx.run(STATEMENTS["what_is_json"])
        rows: list[Properties] = [
            {
                "memoryId": name,
                "kept": [text for text in texts if shapes.is_readable(text)],
                "aside": [text for text in texts if not shapes.is_readable(text)],
            }
            for name, texts in row["evidence"]
            if name in found
        ]
        await tx.run(STATEMENTS["set_evidence_aside"], rows=rows)
        profiles = [json for json in row["profiles"] if _values(json) is None]
        await tx.run(STATEMENTS["set_profile_aside"], profiles=profiles)
    return found


async def put_insights(tx: Transaction, insights: Sequence[Insight]) -> None:
    """What was found in sessions, which are locked; the last of each counts."""
    last = {clean(each.session_id): each for each in insights}
    rows = [shapes.insight_row(each) for each in last.values()]
    await tx.run(STATEMENTS["put_insights"], insights=rows)


async def summaries_before(tx: Transaction, session_ids: Sequence[str]) -> dict[str, str]:
    """Of sessions that are about to change, and are locked where they exist."""
    return dict(await tx.found(STATEMENTS["summaries_of_sessions"], ids=session_ids))


async def note_summaries(
    tx: Transaction, session_ids: Sequence[str], before: dict[str, str]
) -> None:
    """After the change: a summary that is another one lost its vector, and waits for a new one."""
    after = await summaries_before(tx, session_ids)
    changed = [each for each, text in before.items() if after.get(each) != text]
    if changed:
        await tx.run(STATEMENTS["forget_summary_vectors"], ids=changed)
    noted = changed + [each for each, text in after.items() if text and each not in before]
    if noted:
        await tx.run(STATEMENTS["note_vectors_due"], ids=noted)
