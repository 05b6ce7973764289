"""The graph store: sessions, turns, tool calls, summaries and memories as nodes in Neo4j.

gateway.py     addresses, the driver, transactions with a deadline, its errors in plain words
schema.py      constraints and indexes, created once and again when missing
shapes.py      how each kind of record is represented: properties, their types, type checks
writes.py      each Write as Cypher, from one table of kinds
read.py        queries for sessions, turns and summaries, and for everything to be moved
search.py      the search, over entries.py (full-text entries) and vectors.py
vectors.py     vectors as they are stored and read, pending work, leases
memories.py    memories, profiles and owners
code.py        files, scopes and references
belonging.py   links from Projects and Owners; splitting off a project
repair.py      integrity checks; reading out and emptying a graph that fails them
salvage.py     what can be recovered of it, as the rows of a SQLite database
*.cypher       the statements

The Store itself is here; see `ragmem.store` for what it guarantees. The modules' functions take a
running transaction; the store's methods of the same names run each in a transaction of its own.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from ragmem.records import (
    AnyRecord,
    Applied,
    Candidate,
    MemoryRecord,
    PutReferences,
    PutVectors,
    SearchQuery,
    Session,
    StoreInfo,
    Summary,
    Turn,
    Write,
    utc_now,
)
from ragmem.store import owned, touches_memories
from ragmem.store.neo4j import code, memories as of_memories, read, repair, schema, vectors
from ragmem.store.neo4j.entries import index_turns
from ragmem.store.neo4j.gateway import STATEMENTS, Connection, Gateway, Transaction, Value
from ragmem.store.neo4j.search import Searcher
from ragmem.store.neo4j.writes import Batch

__all__ = ["Connection", "Neo4jStore"]


LEASE_S = 30
"""An owner without a heartbeat for this long, in seconds by the server's clock, is dead."""
_BY_ID: dict[type, Callable[..., Awaitable[list[Any]]]] = {
    Session: read.sessions_by_id,
    Turn: read.turns_by_id,
    Summary: read.summaries_by_id,
    MemoryRecord: of_memories.memories_by_id,
    PutReferences: code.references_of,
    PutVectors: vectors.vectors_of,
}
P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Transaction, P], Awaitable[T]]
Method = Callable[Concatenate["Neo4jStore", P], Coroutine[Any, Any, T]]


def _reads(work: Work[P, T]) -> Method[P, T]:
    """Return a method that runs the function in a read transaction."""

    async def method(store: "Neo4jStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._gateway.read(lambda tx: work(tx, *args, **kwargs))

    return method


def _writes(work: Work[P, T]) -> Method[P, T]:
    """Return a method that runs the function in a write transaction: all or nothing."""

    async def method(store: "Neo4jStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._gateway.write(lambda tx: work(tx, *args, **kwargs))

    return method


def _asks(work: Callable[Concatenate[Gateway, P], Awaitable[T]]) -> Method[P, T]:
    """Return a method that runs the function, which takes several transactions."""

    async def method(store: "Neo4jStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await work(store._gateway, *args, **kwargs)

    return method


class Neo4jStore:
    """Sessions and their turns as a graph, with what was learned from them."""

    def __init__(self, gateway: Gateway, server: schema.Server) -> None:
        self._gateway = gateway
        self._server = server
        self._searcher = Searcher(gateway)

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
        brief: bool = False,
        fills: bool = False,
    ) -> "Neo4jStore":
        """Connect and complete the schema.

        `say` is told what takes long, and what is left out because it can't be read. A store opened
        only `brief`ly skips checking the schema if the graph records that it was found complete.
        Raises StoreUnavailable when nothing answers; StoreRefused for a wrong address, password,
        database or version; StoreDamaged during a repair, except for the repair itself, which
        `fills` the graph. `timeout_s` limits every later call too.
        """
        sees = "" if everyone else owner
        gateway = Gateway(connection, timeout_s, say, owner=owner, sees=sees, clock=clock)
        try:
            server = await schema.prepare(gateway, say, owner=owner, skip_check=brief, fills=fills)
            return cls(gateway, server)
        except BaseException:
            await gateway.aclose()
            raise

    async def aclose(self) -> None:
        await self._searcher.aclose()
        await self._gateway.aclose()

    async def store_id(self) -> str:
        return self._server.store_id or await schema.store_id(self._gateway)

    async def info(self) -> StoreInfo:
        [counts] = await self._gateway.read(lambda tx: tx.run(STATEMENTS["counts"]))
        levels = await self._gateway.read(lambda tx: tx.run(STATEMENTS["summaries_per_level"]))
        return StoreInfo(
            kind="neo4j",
            location=self._gateway.location,
            version=self._server.version,
            schema_version=schema.VERSION,
            counts=dict(counts),
            summaries_per_level={row["level"]: row["summaries"] for row in levels},
        )

    async def apply(self, writes: Sequence[Write]) -> Applied:
        writes = owned(writes, self._gateway.owner)

        async def work(tx: Transaction) -> Applied:
            batch = Batch(tx)
            await batch.apply(writes)
            if touches_memories(writes):
                await of_memories.memories_changed(tx)
            return Applied(batch.turn_indexes)

        if not writes:
            return Applied()
        return await self._gateway.write(work)

    # --- sessions and what was said -----------------------------------------------

    async def get(self, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
        if not ids:
            return []
        by_id = _BY_ID.get(kind) or partial(read.by_id, kind=kind)
        return await self._gateway.read(lambda tx: by_id(tx, ids=ids))

    async def ids(self, kind: type[Summary | MemoryRecord]) -> list[str]:
        all_of = read.summary_ids if kind is Summary else of_memories.memory_ids
        return await self._gateway.read(all_of)

    session = _reads(read.session)
    sessions = _reads(read.sessions)
    find_sessions = _reads(read.find_sessions)
    turns = _reads(read.turns)
    file_accesses = _reads(read.file_accesses)
    find_tool_call = _reads(read.find_tool_call)
    summaries = _reads(read.summaries)
    raw_history_chars = _reads(read.raw_history_chars)
    projects = _reads(read.projects)

    # --- search, and what is to be done -------------------------------------------

    async def search(self, query: SearchQuery) -> list[Candidate]:
        return await self._searcher.search(query)

    use_embedder = _asks(vectors.use_embedder)
    embedder = _reads(vectors.embedder)
    pending = _reads(vectors.pending)
    count_pending = _reads(vectors.count_pending)
    claim = _writes(vectors.claim)
    release = _writes(vectors.release)
    attempts = _reads(vectors.attempts)
    keep_attempts = _writes(vectors.keep_attempts)
    forget_attempts = _writes(vectors.forget_attempts)

    # --- memories -----------------------------------------------------------------

    memories_revision = _reads(of_memories.memories_revision)
    memories = _reads(of_memories.memories)
    find_memories = _reads(of_memories.find_memories)
    superseded_by = _reads(of_memories.superseded_by)
    small_vectors = _reads(of_memories.small_vectors)
    forget_memories = _writes(of_memories.forget_memories)
    profile = _reads(of_memories.own_profile)
    profiles = _reads(of_memories.profiles)
    owners = _reads(of_memories.owners)
    others = _reads(of_memories.others)

    # --- code ---------------------------------------------------------------------

    code_files = _asks(code.code_files)
    find_scopes = _asks(code.find_scopes)
    code_turns = _reads(code.code_turns)
    changed_with = _reads(code.changed_with)
    code_projects = _reads(code.code_projects)

    # --- archive ------------------------------------------------------------------

    spans = _reads(read.spans)
    own_turns = _reads(read.own_turns)
    branches = _reads(read.branches)
    delete_session = _writes(read.delete_session)
    check = _asks(repair.check)

    # --- processes ----------------------------------------------------------------

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        async def work(tx: Transaction) -> tuple[list[str], bool]:
            await Batch(tx).lock(session_id)
            who: dict[str, Value] = {"sessionId": session_id, "ownerId": owner_id}
            await tx.run(STATEMENTS["attach_owner"], **who, leaseSeconds=LEASE_S)
            await tx.run(STATEMENTS["forget_old_owners"])
            rows = await tx.run(STATEMENTS["other_owners"], **who)
            unowned = await tx.run(STATEMENTS["sessions_with_unowned_turns"])
            return [row["ownerId"] for row in rows], bool(unowned)

        others, any_unowned = await self._gateway.write(work)
        if any_unowned:
            # In a transaction of its own: it locks sessions in another order.
            await self._gateway.write(self._interrupt_unowned)
        return others

    async def heartbeat(self, owner_id: str) -> None:
        await self._gateway.run(STATEMENTS["heartbeat"], ownerId=owner_id, leaseSeconds=LEASE_S)

    async def detach(self, owner_id: str) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(STATEMENTS["remove_owner"], ownerId=owner_id)
            await self._interrupt_unowned(tx)

        await self._gateway.write(work)

    async def _interrupt_unowned(self, tx: Transaction) -> None:
        """Interrupt the running turns that have no living owner."""
        rows = await tx.run(STATEMENTS["sessions_with_unowned_turns"])
        session_ids = sorted(row["sessionId"] for row in rows)
        if not session_ids:
            return
        # Locked first and then read again: one of them may just be finishing.
        batch = Batch(tx)
        for session_id in session_ids:
            await batch.lock(session_id)
        ended = await tx.found(
            STATEMENTS["interrupt_unowned_turns"], sessionIds=session_ids, at=tx.now
        )
        await index_turns(tx, ended)
