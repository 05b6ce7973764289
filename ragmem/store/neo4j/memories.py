"""The store's part of memories: see `ragmem.store.memories` for what each of these promises."""

from collections.abc import Sequence

from ragmem.records import MEMORY_LEVEL, Insight, MemoryRecord, Owner, Profile
from ragmem.store.memories import MemoryQuery
from ragmem.store.neo4j import remembering
from ragmem.store.neo4j.gateway import Gateway, Transaction
from ragmem.store.neo4j.memory_shapes import time_text, to_insight, to_memory, to_owner
from ragmem.store.neo4j.remembering import STATEMENTS
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

_ALL = 2**31 - 1


class Neo4jMemories:
    """Memories, the profile and insights; a part of the store."""

    _gateway: Gateway
    _owner: str
    _sees: str
    """Whose profile and memories about a person are shown; everybody's where it is empty."""

    async def memories_revision(self) -> int:
        """Goes up when memories or their vectors change."""
        [[found]] = await self._gateway.read(lambda tx: tx.values(STATEMENTS["memories_revision"]))
        return int(found)

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Those that match, each with its evidence in order."""
        conditions = []
        if query.kinds:
            conditions.append("m.kind IN $kinds")
        if query.subjects:
            conditions.append("any(each IN m.subjects WHERE each IN $subjects)")
        if query.session_id is not None:
            conditions.append("$sessionId IN m.sessionIds")
        if query.pinned is not None:
            conditions.append("m.pinned = $pinned")
        if not query.with_superseded:
            conditions.append("m.supersededBy IS NULL")
        if query.alive_at is not None:
            conditions.append("(m.expiresAt IS NULL OR m.expiresAt > datetime($aliveAt))")
        which = STATEMENTS["everywhere" if query.everywhere else "in_scope"]
        which = which.replace("/* conditions */", "".join(f" AND {each}" for each in conditions))
        given: Properties = {
            "projectIds": query.project_ids,
            "owner": self._sees,
            "userWide": query.user_wide,
            "kinds": query.kinds,
            "subjects": [each.casefold() for each in query.subjects],
            "sessionId": query.session_id,
            "pinned": query.pinned,
            "aliveAt": time_text(query.alive_at),
            "limit": _ALL if query.limit is None else query.limit,
        }
        return _newest_first(await self._memories(which, given))

    async def memories_by_id(self, memory_ids: Sequence[str]) -> list[MemoryRecord]:
        """Those of them that exist, superseded ones too, in this order."""
        return await self._gateway.read(lambda tx: _by_id(tx, memory_ids, self._sees))

    async def find_memories(self, reference: str, *, limit: int = 20) -> list[MemoryRecord]:
        """Those whose id, without its dashes, is or ends with the reference; newest first."""
        tail = clean(reference).replace("-", "")
        if not tail:
            return []
        given: Properties = {"reference": tail, "limit": limit, "owner": self._sees}
        return _newest_first(await self._memories(STATEMENTS["by_reference"], given))

    async def superseded_by(self, memory_id: str) -> list[MemoryRecord]:
        """What this one took the place of, and what that did, and so on; newest first."""
        given: Properties = {"id": memory_id, "owner": self._sees}
        return _newest_first(await self._memories(STATEMENTS["superseded"], given))

    async def small_vectors(
        self, record_ids: Sequence[str], level: int, embedder: str
    ) -> dict[str, bytes]:
        """Vectors of memories (MEMORY_LEVEL) or sessions (SESSION_LEVEL), float32 little-endian."""
        kind = "memories" if level == MEMORY_LEVEL else "sessions"
        [[ids, vectors]] = await self._gateway.read(
            lambda tx: tx.values(
                STATEMENTS[f"small_vectors_of_{kind}"], ids=record_ids, embedder=embedder
            )
        )
        return {name: bytes(v) for name, v in zip(ids, vectors, strict=True) if v}

    async def forget_memories(self, memory_ids: Sequence[str]) -> int:
        """Remove these and what they took the place of, with all that hangs on them; how many."""
        return await self._gateway.write(
            lambda tx: remembering.forget_memories(tx, memory_ids, self._sees)
        )

    async def profile(self) -> Profile:
        """The person's; empty before anything was said."""
        return await self._gateway.read(lambda tx: remembering.profile(tx, self._owner))

    async def profiles(self) -> list[Profile]:
        """Everybody's, whoever the store was opened for."""

        async def work(tx: Transaction) -> list[Profile]:
            owners = await tx.found(STATEMENTS["profile_owners"])
            found = [await remembering.profile(tx, owner) for owner in owners]
            return [each for each in found if each.values]

        return await self._gateway.read(work)

    async def owners(self) -> list[Owner]:
        """Everybody who has something here, or a name, by id."""
        [[found]] = await self._gateway.read(lambda tx: tx.values(STATEMENTS["owners"]))
        return self._gateway.reading.records(to_owner, found)

    async def others(self) -> list[Owner]:
        """Those of them but the one that it was opened for; nobody where all is that one's."""
        if not self._sees:
            return []
        return [each for each in await self.owners() if each.owner_id != self._sees]

    async def insights(self, session_ids: Sequence[str]) -> list[Insight]:
        """What was found in those of them that were looked at, in this order."""
        [[found]] = await self._gateway.read(
            lambda tx: tx.values(STATEMENTS["insights"], ids=session_ids)
        )
        return self._gateway.reading.records(to_insight, found)

    async def memory_ids(self) -> list[str]:
        """Every memory; one stands after those that it superseded."""
        [[found]] = await self._gateway.read(lambda tx: tx.values(STATEMENTS["memory_ages"]))
        return _oldest_first([(str(each), by) for each, by in found])

    async def _memories(self, which: str, given: Properties) -> list[MemoryRecord]:
        return await self._gateway.read(lambda tx: _read(tx, which, given))


async def _by_id(tx: Transaction, memory_ids: Sequence[str], owner: str) -> list[MemoryRecord]:
    given: Properties = {"ids": sorted(set(memory_ids)), "owner": owner}
    found = await _read(tx, STATEMENTS["by_id"], given)
    by_their_id = {each.memory_id: each for each in found}
    return [by_their_id[each] for each in memory_ids if each in by_their_id]


async def _read(tx: Transaction, which: str, given: Properties) -> list[MemoryRecord]:
    statement = STATEMENTS["memories"].replace("/* which */", which)
    [[found]] = await tx.values(statement, **given)
    return tx.read.records(to_memory, found)


def _newest_first(memories: list[MemoryRecord]) -> list[MemoryRecord]:
    return sorted(memories, key=lambda each: (each.created_at, each.memory_id), reverse=True)


def _oldest_first(pairs: Sequence[tuple[str, str | None]]) -> list[str]:
    """Each after those that it took the place of; else in the order given."""
    olds: dict[str, list[str]] = {}
    for memory_id, by in pairs:
        if by is not None:
            olds.setdefault(by, []).append(memory_id)
    done: dict[str, None] = {}
    begun: set[str] = set()
    for first, _ in pairs:
        waiting = [first]
        while waiting:
            memory_id = waiting[-1]
            before = [] if memory_id in begun else olds.get(memory_id, [])
            begun.add(memory_id)
            waiting += [each for each in reversed(before) if each not in begun]
            if waiting[-1] == memory_id:
                done.setdefault(waiting.pop())
    return list(done)
