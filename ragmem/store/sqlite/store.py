"""SQLiteStore: the Store protocol over one file."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import apsw

from ragmem.failpoints import failpoint
from ragmem.records import (
    FileAccess,
    Insight,
    MemoryRecord,
    Owner,
    Profile,
    Project,
    PutTurn,
    PutVectors,
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
from ragmem.store.memories import MemoryQuery, touches_memories
from ragmem.store.owning import owned
from ragmem.store.recall import Attempts, Candidate, EmbedderMark, Pending, SearchQuery, Work
from ragmem.store.sqlite import (
    archive,
    checks,
    documents,
    files,
    journal,
    memories,
    memory_writes,
    owners,
    reads,
    refused,
    schema,
    search,
    small_vectors,
    todo,
    vectors,
    words,
)
from ragmem.store.sqlite.code_handle import CodeHandle
from ragmem.store.sqlite.plan import plan
from ragmem.store.sqlite.rows import iso

T = TypeVar("T")


class SQLiteStore(CodeHandle):
    """Memory in one file. Writes and reads have a thread each, and do not wait for one another.

    See `ragmem.store.base.Store` for what each method promises.
    """

    @classmethod
    async def open(
        cls,
        database: Path,
        *,
        locks_dir: Path,
        timeout_s: float = 5.0,
        clock: Callable[[], datetime] = utc_now,
        owner: str = "",
        everyone: bool = False,
    ) -> "SQLiteStore":
        """A store that is ready, for that owner; it is made when there was none.

        `everyone`: what is about other persons is shown too.

        Raises StoreRefused (permission, another program's or a newer file),
        StoreDamaged (lost or broken; left as it is), StoreUnavailable (locked, full).
        """
        store = cls(
            database,
            locks_dir=locks_dir,
            timeout_s=timeout_s,
            clock=clock,
            owner=owner,
            everyone=everyone,
        )
        try:
            had_log, known = journal.has_log(database), files.marker(database).exists()
            store._inode = await store._writer.run(lambda _: database.stat().st_ino)
            if not journal.has_log(database) and (had_log or not known):
                store.notice = journal.NOTICE
        except (files.Full, files.ReadOnly):
            if not files.marker(database).exists():
                await store.aclose()
                raise
            # Nothing can be written; what was stored before can be read.
            store._inode = await store._read(lambda _: database.stat().st_ino)
        except BaseException:
            await store.aclose()
            raise
        return store

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes in order, in one transaction."""
        indexes: dict[str, int] = {}
        writes = owned(writes, self._owner)

        def job(connection: apsw.Connection) -> None:
            steps = plan(connection, writes, self._sees)
            if touches_memories(writes):
                steps.append(lambda db, _: small_vectors.memories_changed(db))
            self._transaction(connection, lambda: [step(connection, indexes) for step in steps])

        if writes:
            await self._write(job)
        return Applied(indexes)

    async def store_id(self) -> str:
        """The database's own id; empty where none could be written into it yet."""
        return await self._read(schema.store_id)

    async def take_id(self, store_id: str) -> None:
        """Be that store from now on: what waits for it waits for this one."""

        def job(connection: apsw.Connection) -> None:
            self._transaction(connection, lambda: schema.identify(connection, store_id))

        await self._write(job)

    async def session(self, session_id: str) -> Session:
        """One session; SessionNotFound when there is none."""
        return await self._read(lambda db: reads.session(db, session_id))

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """The sessions that match."""
        horizon = iso(self._clock() + AHEAD)
        return await self._read(lambda db: reads.sessions(db, query, horizon, self._sees))

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it."""
        owner = self._sees if mine else ""
        return await self._read(lambda db: reads.find_sessions(db, reference, limit, owner))

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""
        return await self._read(lambda db: reads.turns(db, session_id, query))

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Accesses of the newest turns that sum to at most so many characters, newest first."""
        return await self._read(lambda db: reads.file_accesses(db, session_id, max_turn_chars))

    async def find_tool_call(self, session_id: str, reference: str) -> ToolCall | None:
        """The newest call of a session whose id, without its dashes, ends with the reference."""
        return await self._read(lambda db: reads.find_tool_call(db, session_id, reference))

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Newest first. `not_rolled_up`: those that no higher summary covers."""
        return await self._read(
            lambda db: reads.summaries(
                db, session_id, level=level, not_rolled_up=not_rolled_up, limit=limit
            )
        )

    async def raw_history_chars(self, session_id: str) -> int:
        """Characters of completed turns that no level-1 summary covers; 0 for none."""
        return await self._read(lambda db: reads.raw_history_chars(db, session_id))

    async def projects(self) -> list[Project]:
        """Every known project, in the order in which they became known."""
        return await self._read(reads.projects)

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; returns the other live owners' ids."""
        at = iso(self._clock())

        def job(connection: apsw.Connection) -> list[str]:
            return self._transaction(
                connection,
                lambda: owners.attach(connection, session_id, owner_id, self._locks, at),
            )

        return await self._write(job)

    async def heartbeat(self, owner_id: str) -> None:
        """Nothing to renew: the kernel holds the lock while the process lives."""

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""
        at = iso(self._clock())

        def job(connection: apsw.Connection) -> None:
            self._transaction(connection, lambda: owners.give_up(connection, owner_id, at))
            self._locks.release(owner_id)

        await self._write(job)

    async def info(self) -> StoreInfo:
        """What it is, where, and how much is in it."""
        return StoreInfo(
            kind="sqlite",
            location=str(self._database),
            version=apsw.sqlite_lib_version(),
            schema_version=schema.VERSION,
            counts=await self._read(reads.counts),
            summaries_per_level=await self._read(reads.summaries_per_level),
            size_bytes=files.size_bytes(self._database),
        )

    # --- recall -----------------------------------------------------------------

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """The best by text and the best by vector, and of turns their neighbours; in no order."""
        return await self._read(lambda db: search.search(db, query, self._resident))

    async def turns_by_id(self, turn_ids: Sequence[str]) -> list[Turn]:
        """Those of them that exist, with their tool calls, in this order."""
        return await self._read(lambda db: list(words.turns(db, turn_ids)))

    async def embedder(self) -> EmbedderMark | None:
        """Of which its vectors are; None before there are any."""
        return await self._read(vectors.embedder)

    async def use_embedder(self, mark: EmbedderMark) -> None:
        """From now on vectors are of this one; those of another are dropped."""

        def job(connection: apsw.Connection) -> None:
            self._transaction(connection, lambda: vectors.use_embedder(connection, mark))

        await self._write(job)

    async def pending(
        self, work: Work, *, limit: int, session_id: str | None = None
    ) -> list[Pending]:
        """Work to be done, that of the latest activity first; what is leased is left out."""
        now = self._clock()
        return await self._read(
            lambda db: todo.pending(db, work, limit, session_id, now, self._locks, self._sees)
        )

    async def count_pending(self) -> dict[Work, int]:
        """How much of each there is, at most a thousand."""
        now = self._clock()
        return await self._read(lambda db: todo.count_pending(db, now, self._locks, self._sees))

    async def claim(self, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
        """Lease those that are free, or were this owner's; the keys that are now its own."""
        now = self._clock()

        def job(connection: apsw.Connection) -> list[str]:
            return self._transaction(
                connection,
                lambda: todo.claim(connection, keys, owner_id, seconds, now, self._locks),
            )

        return await self._write(job) if keys else []

    async def release(self, keys: Sequence[str], owner_id: str) -> None:
        """Give back what was claimed."""

        def job(connection: apsw.Connection) -> None:
            self._transaction(connection, lambda: todo.release(connection, keys, owner_id))

        if keys:
            await self._write(job)

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Answers that could not be used, at least so many: about an item, or any; latest last."""
        return await self._read(lambda db: refused.read(db, item, least))

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Keep these in place of what was known of their item."""

        def job(connection: apsw.Connection) -> None:
            self._transaction(connection, lambda: refused.keep(connection, attempts))

        await self._write(job)

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Let one item of a session be tried again, or all of them."""

        def job(connection: apsw.Connection) -> None:
            self._transaction(connection, lambda: refused.forget(connection, session_id, item))

        await self._write(job)

    async def vectors_of(self, record_ids: Sequence[str]) -> list[PutVectors]:
        """The vectors of those that have some, in this order."""
        return await self._read(lambda db: vectors.vectors_of(db, record_ids))

    # --- archive ----------------------------------------------------------------

    async def spans(self) -> list[Span]:
        """Every session with all of its own turns."""
        return await self._read(archive.spans)

    async def sessions_by_id(self, session_ids: Sequence[str]) -> list[Session]:
        """Those of them that exist, in this order."""
        return await self._read(lambda db: archive.sessions_by_id(db, session_ids))

    async def own_turns(self, spans: Sequence[Span]) -> list[PutTurn]:
        """The turns in these spans, each with its tool calls and their accesses, in order."""
        return await self._read(lambda db: archive.own_turns(db, spans))

    async def summary_ids(self) -> list[str]:
        """Every summary; one stands after those that it covers."""
        return await self._read(archive.summary_ids)

    async def summaries_by_id(self, summary_ids: Sequence[str]) -> list[Summary]:
        """Those of them that exist, in this order."""
        return await self._read(lambda db: archive.summaries_by_id(db, summary_ids))

    async def branches(self, session_id: str) -> list[Session]:
        """The sessions that were forked from this one, oldest first."""
        return await self._read(lambda db: archive.branches(db, session_id))

    async def delete_session(self, session_id: str) -> dict[str, int]:
        """Remove a session and all that belongs to it alone; nothing of it stays in the file.

        Where that can't be had now, `traces` is among the counts: the next deletion clears them.
        """

        went, clean = await self._erase(
            lambda db: archive.delete_session(db, session_id, self._locks), then=documents.purge
        )
        return went if clean else went | {"traces": 1}

    async def memory_ids(self) -> list[str]:
        """Every memory; one stands after those that it superseded."""
        return await self._read(memories.memory_ids)

    # --- memories ---------------------------------------------------------------

    async def memories_revision(self) -> int:
        """Goes up when memories or their vectors change."""
        return await self._read(memories.revision)

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Those that match, each with its evidence in order."""
        return await self._read(lambda db: memories.memories(db, query, self._sees))

    async def memories_by_id(self, memory_ids: Sequence[str]) -> list[MemoryRecord]:
        """Those of them that exist, superseded ones too, in this order."""
        return await self._read(lambda db: memories.memories_by_id(db, memory_ids, self._sees))

    async def find_memories(self, reference: str, *, limit: int = 20) -> list[MemoryRecord]:
        """Those whose id, without its dashes, is or ends with the reference; newest first."""
        return await self._read(lambda db: memories.find_memories(db, reference, limit, self._sees))

    async def superseded_by(self, memory_id: str) -> list[MemoryRecord]:
        """What this one took the place of, and what that did, and so on; newest first."""
        return await self._read(lambda db: memories.superseded_by(db, memory_id, self._sees))

    async def small_vectors(
        self, record_ids: Sequence[str], level: int, embedder: str
    ) -> dict[str, bytes]:
        """Vectors of memories or sessions, of those that have one of this embedder, by id."""
        return await self._read(
            lambda db: vectors.small_vectors_of(db, record_ids, level, embedder)
        )

    async def forget_memories(self, memory_ids: Sequence[str]) -> int:
        """Remove these and what they took the place of; nothing of them stays in the file."""
        if not await self.memories_by_id(memory_ids):
            return 0
        count, _ = await self._erase(lambda db: memory_writes.forget(db, memory_ids, self._sees))
        return count

    async def profile(self) -> Profile:
        """The person's; empty before anything was said."""

        def job(connection: apsw.Connection) -> Profile:
            own = memories.profile(connection, self._owner)
            others = [] if own.values or self._sees else memories.profiles(connection)
            return others[0] if others else own

        return await self._read(job)

    async def profiles(self) -> list[Profile]:
        """Everybody's, whoever the store was opened for."""
        return await self._read(memories.profiles)

    async def owners(self) -> list[Owner]:
        """Everybody who has something here, or a name, by id."""
        return await self._read(memories.owners)

    async def others(self) -> list[Owner]:
        """Those of them but the one that it was opened for; nobody where all is that one's."""
        if not self._sees:
            return []
        return [each for each in await self.owners() if each.owner_id != self._sees]

    async def insights(self, session_ids: Sequence[str]) -> list[Insight]:
        """What was found in those of them that were looked at, in this order."""
        return await self._read(lambda db: memories.insights(db, session_ids))

    # --- the file ---------------------------------------------------------------

    async def check(self) -> list[Finding]:
        """What is broken: the file, links, indexes of turns, counters."""
        return await self._read(checks.check)

    async def copy_to(self, file: Path) -> None:
        """Write a copy of the database as it is now into a new file, while others go on."""

        def job(connection: apsw.Connection) -> None:
            failpoint("sqlite.backup")
            # To write another file counts as writing.
            connection.pragma("query_only", False)
            try:
                connection.execute("VACUUM INTO ?", (str(file),))
            finally:
                connection.pragma("query_only", True)
            failpoint("sqlite.backed_up")

        await self._reader.run(job)
