"""The Store on Neo4j; see `ragmem.store.base` for what it promises."""

from collections.abc import Callable, Sequence
from datetime import datetime

from ragmem.records import (
    FileAccess,
    Project,
    PutTurn,
    Session,
    Summary,
    ToolCall,
    Turn,
    Write,
    utc_now,
)
from ragmem.store.base import (
    AHEAD,
    ALL_TURNS,
    Applied,
    Finding,
    SessionQuery,
    Span,
    StoreInfo,
    TurnQuery,
)
from ragmem.store.memories import touches_memories
from ragmem.store.neo4j import archive, coding, remembering, schema, shapes
from ragmem.store.neo4j.code import Neo4jCode
from ragmem.store.neo4j.connection import Connection
from ragmem.store.neo4j.cypher import STATEMENTS
from ragmem.store.neo4j.entries import Drafts, index_turns
from ragmem.store.neo4j.gateway import Gateway, Transaction, Value
from ragmem.store.neo4j.memories import Neo4jMemories
from ragmem.store.neo4j.recall import Neo4jRecall
from ragmem.store.neo4j.writes import Batch, lineage, not_found
from ragmem.store.open import owned

LEASE_S = 30
"""An owner that was not heard of for so long, in seconds by the server's clock, lives no more."""
_ALL = 2**31 - 1


class Neo4jStore(Neo4jRecall, Neo4jMemories, Neo4jCode):
    """Sessions and their turns as a graph, with what was learned from them."""

    def __init__(
        self,
        gateway: Gateway,
        version: str,
        clock: Callable[[], datetime] = utc_now,
        *,
        owner: str = "",
        everyone: bool = False,
    ) -> None:
        super().__init__(gateway)
        self._owner = owner
        self._sees = "" if everyone else owner
        self._version = version
        self._drafts = Drafts()
        self._clock = clock

    @classmethod
    async def open(
        cls,
        connection: Connection,
        *,
        timeout_s: float = 5.0,
        clock: Callable[[], datetime] = utc_now,
        say: Callable[[str], None] | None = None,
        owner: str = "",
        everyone: bool = False,
    ) -> "Neo4jStore":
        """Connect and complete the schema; `say` is told of what takes long, or is left out.

        StoreUnavailable when nothing answers, StoreRefused for a wrong address,
        password, database or version. `timeout_s` bounds every later call too.
        """
        gateway = Gateway.connect(connection, timeout_s, say)
        try:
            version = await schema.prepare(gateway, say, owner=owner)
            return cls(gateway, version, clock, owner=owner, everyone=everyone)
        except BaseException:
            await gateway.aclose()
            raise

    async def store_id(self) -> str:
        """The graph's own id; empty where none could be written into it."""
        return await schema.store_id(self._gateway)

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes in order, in one transaction."""

        writes = owned(writes, self._owner)
        words = await self._drafts.words(writes)

        async def work(tx: Transaction) -> Applied:
            batch = Batch(tx, self._clock() + AHEAD, words, sees=self._sees)
            await batch.apply(writes)
            if touches_memories(writes):
                await remembering.memories_changed(tx)
            return Applied(batch.turn_indexes)

        if not writes:
            return Applied()
        applied = await self._gateway.write(work)
        self._drafts.follow(writes)
        return applied

    async def session(self, session_id: str) -> Session:
        """One session; SessionNotFound when there is none."""
        found = await self._sessions(["s.sessionId = $id"], limit=1, id=session_id)
        if not found:
            raise not_found("session", session_id)
        return found[0]

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """The sessions that match, newest activity first."""
        conditions = []
        if query.cwd is not None:
            conditions.append("s.cwd = $cwd")
        if query.project_ids:
            conditions.append("s.projectId IN $projectIds")
        if query.status is not None:
            conditions.append("s.status = $status")
        if query.mine and self._owner:
            conditions.append("s.owner = $owner")
        if query.tags:
            conditions.append("any(tag IN s.tags WHERE tag IN $tags)")
        given: dict[str, Value] = {
            "cwd": query.cwd,
            "projectIds": query.project_ids,
            "status": query.status,
            "owner": self._owner,
            "tags": query.tags,
        }
        if query.cwd is not None or query.project_ids:
            return await self._sessions(conditions, limit=query.limit, **given)
        # Of all that there are, the newest come from their index, unsorted; then those that a
        # wrong clock has put into the future.
        found = await self._sessions(
            [*conditions, "s.lastActivity <= $horizon"], limit=query.limit, **given
        )
        if len(found) < query.limit:
            left = query.limit - len(found)
            future = [*conditions, "s.lastActivity > $horizon"]
            found += await self._sessions(future, limit=left, **given)
        return found

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it (casefolded)."""
        if not reference:
            return []
        return await self._sessions(
            [
                "(s.sessionId ENDS WITH $reference OR s.titleFolded = $folded)",
                *(["s.owner = $owner"] if mine and self._owner else []),
            ],
            limit=limit,
            owner=self._owner,
            reference=reference,
            folded=shapes.title_key(reference),
        )

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""

        async def work(tx: Transaction) -> list[Turn]:
            found = await tx.found(
                STATEMENTS["turns"],
                ids=await _choose_turns(tx, session_id, query),
                withToolCalls=query.with_tool_calls,
            )
            return tx.read.records(shapes.to_turn, found)

        return await self._gateway.read(work)

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Accesses of the newest turns that sum to at most so many characters, newest first."""

        async def work(tx: Transaction) -> list[FileAccess]:
            ids = await _choose_turns(tx, session_id, TurnQuery(max_chars=max_turn_chars))
            found = await tx.found(STATEMENTS["file_accesses"], ids=ids)
            return tx.read.records(shapes.to_access, found)

        return await self._gateway.read(work)

    async def find_tool_call(self, session_id: str, reference: str) -> ToolCall | None:
        """The newest call of a session whose id, without its dashes, ends with the reference."""

        async def work(tx: Transaction) -> ToolCall | None:
            spans = await _spans(tx, session_id)
            found = await tx.run(
                STATEMENTS["find_tool_call"], spans=spans, reference=reference.replace("-", "")
            )
            calls = [row["call"] | {"turnId": row["turnId"]} for row in found]
            return next(iter(tx.read.records(shapes.to_tool_call, calls)), None)

        return await self._gateway.read(work)

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Newest first. `not_rolled_up`: those that no higher summary covers."""

        async def work(tx: Transaction) -> list[Summary]:
            await _spans(tx, session_id)
            found = await tx.found(
                STATEMENTS["summaries"],
                sessionId=session_id,
                level=level,
                notRolledUp=not_rolled_up,
                limit=_ALL if limit is None else limit,
            )
            return tx.read.records(shapes.to_summary, found)

        return await self._gateway.read(work)

    async def raw_history_chars(self, session_id: str) -> int:
        """Characters of completed turns that no level-1 summary covers; 0 for none."""

        async def work(tx: Transaction) -> int:
            spans = await _spans(tx, session_id)
            [row] = await tx.run(STATEMENTS["raw_history_chars"], spans=spans)
            return int(row["chars"])

        return await self._gateway.read(work)

    async def projects(self) -> list[Project]:
        """Every known project."""
        found = await self._gateway.read(lambda tx: tx.found(STATEMENTS["projects"]))
        return self._gateway.reading.records(shapes.to_project, found)

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; returns the other live owners' ids."""

        async def work(tx: Transaction) -> list[str]:
            await Batch(tx).lock(session_id)
            who: dict[str, Value] = {"sessionId": session_id, "ownerId": owner_id}
            await tx.run(STATEMENTS["attach_owner"], **who, leaseSeconds=LEASE_S)
            await tx.run(STATEMENTS["forget_old_owners"])
            rows = await tx.run(STATEMENTS["other_owners"], **who)
            return [row["ownerId"] for row in rows]

        others = await self._gateway.write(work)
        await self._gateway.write(self._interrupt_unowned)
        return others

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease; to be called every 10 s."""
        await self._gateway.write(
            lambda tx: tx.run(STATEMENTS["heartbeat"], ownerId=owner_id, leaseSeconds=LEASE_S)
        )

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""

        async def work(tx: Transaction) -> None:
            await tx.run(STATEMENTS["remove_owner"], ownerId=owner_id)
            await self._interrupt_unowned(tx)

        await self._gateway.write(work)

    async def info(self) -> StoreInfo:
        """What it is, where, and how much is in it."""
        [counts] = await self._gateway.read(lambda tx: tx.run(STATEMENTS["counts"]))
        levels = await self._gateway.read(lambda tx: tx.run(STATEMENTS["summaries_per_level"]))
        return StoreInfo(
            kind="neo4j",
            location=self._gateway.location,
            version=self._version,
            schema_version=schema.VERSION,
            counts=dict(counts),
            summaries_per_level={row["level"]: row["summaries"] for row in levels},
        )

    # --- archive ----------------------------------------------------------------

    async def spans(self) -> list[Span]:
        """Every session with all of its own turns."""
        return await self._gateway.read(archive.spans)

    async def sessions_by_id(self, session_ids: Sequence[str]) -> list[Session]:
        """Those of them that exist, in this order."""
        return await self._gateway.read(lambda tx: archive.sessions_by_id(tx, session_ids))

    async def own_turns(self, spans: Sequence[Span]) -> list[PutTurn]:
        """The turns in these spans, each with its tool calls and their accesses, in order."""
        return await self._gateway.read(lambda tx: archive.own_turns(tx, spans))

    async def summary_ids(self) -> list[str]:
        """Every summary; one stands after those that it covers."""
        return await self._gateway.read(lambda tx: tx.found(archive.STATEMENTS["summary_ids"]))

    async def branches(self, session_id: str) -> list[Session]:
        """The sessions that were forked from this one, oldest first."""
        return await self._gateway.read(lambda tx: archive.branches(tx, session_id))

    async def delete_session(self, session_id: str) -> dict[str, int]:
        """Remove a session and all that belongs to it alone; counts of what went, by kind."""

        async def work(tx: Transaction) -> dict[str, int]:
            await coding.hold_scopes_of(tx, session_id)
            await Batch(tx).lock(session_id)
            return await archive.delete_session(tx, session_id)

        return await self._gateway.write(work)

    async def check(self) -> list[Finding]:
        """What is broken: links, indexes of turns, counters. Its files are the server's matter."""
        return await archive.check(self._gateway)

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""
        await self._searcher.aclose()
        await self._gateway.aclose()

    async def _interrupt_unowned(self, tx: Transaction) -> None:
        """End the running turns that no living owner runs."""
        rows = await tx.run(STATEMENTS["sessions_with_unowned_turns"])
        session_ids = sorted(row["sessionId"] for row in rows)
        if not session_ids:
            return
        # Locked first and looked at again: one of them may be finishing at this moment.
        batch = Batch(tx)
        for session_id in session_ids:
            await batch.lock(session_id)
        ended = await tx.found(
            STATEMENTS["interrupt_unowned_turns"], sessionIds=session_ids, at=self._clock()
        )
        await index_turns(tx, ended)

    async def _sessions(
        self, conditions: Sequence[str], *, limit: int, **parameters: Value
    ) -> list[Session]:
        # Only the conditions that are asked for: `$x IS NULL OR …` would keep indexes unused.
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        statement = STATEMENTS["sessions"].replace("/* conditions */", where)
        if "$horizon" in where:  # All are on the same side of it.
            statement = statement.replace("ORDER BY s.lastActivity > $horizon, ", "ORDER BY ")
        horizon = self._clock() + AHEAD
        found = await self._gateway.read(
            lambda tx: tx.found(statement, limit=limit, horizon=horizon, **parameters)
        )
        return self._gateway.reading.records(shapes.to_session, found)


async def _spans(tx: Transaction, session_id: str) -> list[dict[str, Value]]:
    spans = await lineage(tx, session_id)
    if not spans:
        raise not_found("session", session_id)
    return spans


async def _choose_turns(tx: Transaction, session_id: str, query: TurnQuery) -> list[str]:
    """Ids of the turns that the query asks for, newest first."""
    last = None if query.before_index is None else query.before_index - 1
    spans = await lineage(tx, session_id, last=last)
    if not spans:
        raise not_found("session", session_id)
    found = await tx.found(
        STATEMENTS["choose_turns"],
        spans=spans,
        statuses=query.statuses,
        limit=_ALL if query.limit is None else query.limit,
    )
    if query.max_chars is not None:
        found = found[: _fitting([size for _, size in found], query.max_chars)]
    return [turn_id for turn_id, _ in found]


def _fitting(sizes: Sequence[int], budget: int) -> int:
    """How many of the first sizes sum to at most the budget; at least one if there is one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > budget and count:
            return count
    return len(sizes)
