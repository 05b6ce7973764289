"""The embedded store: the Store protocol over one SQLite file, without a server."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from ragmem.errors import RagmemError, StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.files import OwnerLocks
from ragmem.records import (
    AnyRecord,
    Applied,
    Candidate,
    Finding,
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
from ragmem.similarity import VectorCache
from ragmem.store import owned
from ragmem.store.sqlite import code, documents, read, schema, search, work
from ragmem.store.sqlite.apply import apply, delete_session, forget_memories
from ragmem.store.sqlite.connection import Access, ConnectionThread, Database

__all__ = ["SQLiteStore"]


P = ParamSpec("P")
T = TypeVar("T")
Query = Callable[Concatenate[Database, P], T]
Method = Callable[Concatenate["SQLiteStore", P], Coroutine[Any, Any, T]]

_BY_ID: dict[type, Callable[..., list[Any]]] = {
    Session: read.sessions_by_id,
    Turn: read.turns_by_id,
    Summary: read.summaries_by_id,
    MemoryRecord: read.memories_by_id,
    PutReferences: code.references_of,
    PutVectors: documents.vectors_of,
}
"""Kinds read from more than one table; the others are in `read.TABLES`."""
_ALONE_S = 1.0
"""How long to wait for exclusive access to a database that can't be shared."""


def _reads(query: Query[P, T]) -> Method[P, T]:
    """Return a method that runs the query in one snapshot."""

    async def method(self: "SQLiteStore", /, *args: P.args, **given: P.kwargs) -> T:
        return await self._read(lambda db: query(db, *args, **given))

    return method


def _writes(change: Query[P, T]) -> Method[P, T]:
    """Return a method that makes the change in a transaction of its own."""

    async def method(self: "SQLiteStore", /, *args: P.args, **given: P.kwargs) -> T:
        return await self._write(
            lambda db: self._transaction(db, lambda: change(db, *args, **given))
        )

    return method


# --- the processes attached to sessions ---------------------------------------------------


def _attach(db: Database, session_id: str, owner_id: str) -> list[str]:
    """Register the owner, and interrupt turns of dead ones; return the session's other owners."""
    read.need_session(db, session_id)
    db.access.locks.hold(owner_id)
    known = db.column(
        "SELECT owner_id FROM owners"
        " UNION SELECT owner_id FROM turns WHERE status = 'running' AND owner_id IS NOT NULL"
    )
    for other in known:
        if other != owner_id and not db.access.locks.lives(other):
            _detach(db, other)
    _interrupt(db, None)
    documents.catch_up(db)
    db.query(
        "INSERT INTO owners (owner_id, session_id) VALUES (:id, :session_id)"
        " ON CONFLICT DO NOTHING",
        id=owner_id,
        session_id=session_id,
    )
    return db.column(
        "SELECT owner_id FROM owners WHERE session_id = :session_id AND owner_id <> :id"
        " ORDER BY owner_id",
        id=owner_id,
        session_id=session_id,
    )


def _detach(db: Database, owner_id: str) -> None:
    """Interrupt the owner's running turns, and unregister it."""
    _interrupt(db, owner_id)
    db.query("DELETE FROM owners WHERE owner_id = :id", id=owner_id)


def _interrupt(db: Database, owner_id: str | None) -> None:
    for turn_id in db.column(
        "UPDATE turns SET status = 'interrupted', owner_id = NULL, finished_at = :now"
        " WHERE status = 'running' AND owner_id IS :id RETURNING turn_id",
        id=owner_id,
        now=db.now,
    ):
        documents.turn_changed(db, turn_id)


class SQLiteStore:
    """A memory in one file; reading and writing have a thread and a connection each.

    See `ragmem.store.Store` for what each method guarantees.
    """

    def __init__(
        self, database: Path, access: Access, *, locks_dir: Path, timeout_s: float
    ) -> None:
        self._database = database
        self._access = access
        self._timeout_s = timeout_s
        self._damage: StoreDamaged | None = None
        self._inode = 0
        self._vectors = VectorCache()
        self.notice = ""
        """What to tell the user about how the database was opened."""
        self._writer = self._thread(
            partial(
                schema.open_for_writing, database, access, locks_dir=locks_dir, timeout_s=timeout_s
            ),
            timeout_s,
        )
        self._reader = self._thread(
            partial(schema.open_for_reading, database, access, timeout_s=timeout_s), timeout_s
        )

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
        """Open the store for that owner; the database is created if there is none.

        With `everyone`, memories about other persons and their profiles are shown too.

        Raises StoreRefused (no permission, another program's file, or a newer one), StoreDamaged
        (lost or broken; left as it is), StoreUnavailable (locked, full).
        """
        access = Access(OwnerLocks(locks_dir), owner, "" if everyone else owner, clock)
        store = cls(database, access, locks_dir=locks_dir, timeout_s=timeout_s)
        try:
            try:
                had_log, known = schema.has_log(database), schema.marker(database).exists()
                store._inode = await store._writer.run(lambda _: database.stat().st_ino)
                if not schema.has_log(database) and (had_log or not known):
                    store.notice = schema.NETWORK_NOTICE
            except (schema.Full, schema.ReadOnly):
                if not schema.marker(database).exists():
                    raise
                # Nothing can be written; what is stored can be read if its schema is current.
                store._inode = await store._read(
                    lambda db: (
                        schema.version_of(db, database) == schema.VERSION and database.stat().st_ino
                    )
                )
                if not store._inode:
                    raise
        except BaseException:
            await store.aclose()
            raise
        return store

    async def aclose(self) -> None:
        await self._reader.aclose()
        await self._writer.aclose(schema.leave_untouched if self._damage else None)
        self._access.locks.release_all()

    async def apply(self, writes: Sequence[Write]) -> Applied:
        writes = owned(writes, self._access.owner)

        def job(db: Database) -> dict[str, int]:
            return self._transaction(db, lambda: apply(db, writes))

        return Applied(await self._write(job) if writes else {})

    async def search(self, query: SearchQuery) -> list[Candidate]:
        return await self._read(lambda db: search.search(db, query, self._vectors))

    async def get(self, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
        query = _BY_ID.get(kind) or partial(read.by_id, kind=kind)
        return await self._read(lambda db: query(db, ids=ids))

    async def ids(self, kind: type[Summary | MemoryRecord]) -> list[str]:
        return await self._read(read.summary_ids if kind is Summary else read.memory_ids)

    session = _reads(read.session)
    sessions = _reads(read.sessions)
    find_sessions = _reads(read.find_sessions)
    branches = _reads(read.branches)
    turns = _reads(read.turns)
    own_turns = _reads(read.own_turns)
    file_accesses = _reads(read.file_accesses)
    find_tool_call = _reads(read.find_tool_call)
    raw_history_chars = _reads(read.raw_history_chars)
    summaries = _reads(read.summaries)
    projects = _reads(read.projects)
    spans = _reads(read.spans)

    memories = _reads(read.memories)
    find_memories = _reads(read.find_memories)
    superseded_by = _reads(read.superseded_by)
    memories_revision = _reads(read.memories_revision)
    profile = _reads(read.profile)
    profiles = _reads(read.profiles)
    owners = _reads(read.owners)
    others = _reads(read.others)

    code_projects = _reads(code.code_projects)
    code_files = _reads(code.code_files)
    find_scopes = _reads(code.find_scopes)
    code_turns = _reads(code.code_turns)
    changed_with = _reads(code.changed_with)

    embedder = _reads(documents.embedder)
    use_embedder = _writes(documents.use_embedder)
    small_vectors = _reads(documents.small_vectors)

    pending = _reads(work.pending)
    count_pending = _reads(work.count_pending)
    claim = _writes(work.claim)
    release = _writes(work.release)
    attempts = _reads(work.attempts)
    keep_attempts = _writes(work.keep_attempts)
    forget_attempts = _writes(work.forget_attempts)
    attach = _writes(_attach)

    store_id = _reads(schema.store_id)

    async def check(self) -> list[Finding]:
        """Find what is broken: see `Archive.check`."""
        from ragmem.store.sqlite import repair

        return await self._read(repair.check)

    async def heartbeat(self, owner_id: str) -> None:
        """Nothing to renew: the kernel holds the lock while the process lives."""

    async def detach(self, owner_id: str) -> None:
        def job(db: Database) -> None:
            self._transaction(db, lambda: _detach(db, owner_id))
            self._access.locks.release(owner_id)

        await self._write(job)

    async def info(self) -> StoreInfo:
        return StoreInfo(
            kind="sqlite",
            location=str(self._database),
            version=apsw.sqlite_lib_version(),
            schema_version=schema.VERSION,
            counts=await self._read(read.counts),
            summaries_per_level=await self._read(read.summaries_per_level),
            size_bytes=schema.size_bytes(self._database),
        )

    async def delete_session(
        self, session_id: str, *, first: Callable[[dict[str, int]], None] = lambda _: None
    ) -> dict[str, int]:
        """Delete a session and all that belongs to it alone; nothing of it is left in the file.

        If that is impossible right now, the counts have `traces`: the next deletion clears them.
        """

        def work(db: Database) -> dict[str, int]:
            went = delete_session(db, session_id)
            first(went)
            return went

        return await self._erase(work, then=documents.purge)

    async def forget_memories(
        self, memory_ids: Sequence[str], *, erase: bool = True
    ) -> dict[str, int]:
        """Delete these memories and what they superseded; see `Store.forget_memories`."""
        if not await self._read(lambda db: read.memories_by_id(db, memory_ids)):
            return {"memories": 0}

        def work(db: Database) -> dict[str, int]:
            return {"memories": forget_memories(db, memory_ids)}

        if not erase:
            return await self._write(lambda db: self._transaction(db, lambda: work(db)))
        return await self._erase(work)

    async def copy_to(self, file: Path) -> None:
        """Write a copy of the database to a new file; other processes may go on."""
        from ragmem.store.sqlite import repair

        await self._reader.run(lambda db: repair.copy(db, file))

    # --- threads and transactions -------------------------------------------------

    def _thread(self, connect: Callable[[], Database], timeout_s: float) -> ConnectionThread:
        def translate(error: Exception, db: Database | None) -> RagmemError | None:
            number = db.system_errno if db else 0
            return schema.translated(error, self._database, timeout_s, number)

        return ConnectionThread(connect, translate, timeout_s=timeout_s)

    async def _read(self, query: Callable[[Database], T]) -> T:
        def job(db: Database) -> T:
            db.execute("BEGIN")
            try:
                failpoint("sqlite.read")
                return query(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

        try:
            return await self._reader.run(job)
        except StoreDamaged as damage:
            self._damage = damage
            raise
        except (schema.Full, schema.ReadOnly) as error:
            try:
                return await self._read_alone(job)
            except StoreUnavailable:
                # Another process has it open: what prevents sharing it is the reason to report.
                raise error from None

    async def _read_alone(self, job: Callable[[Database], T]) -> T:
        """Run a job with exclusive access, on a disk where readers' shared memory can't be had."""
        await self._reader.close_connection()
        limit_s = min(self._timeout_s, _ALONE_S)
        connect = partial(schema.open_alone, self._database, self._access, timeout_s=limit_s)
        alone = self._thread(connect, limit_s)
        try:
            return await alone.run(job)
        finally:
            await alone.aclose()

    async def _write(self, job: Callable[[Database], T]) -> T:
        if self._damage is not None:
            raise self._damage.with_traceback(None)
        try:
            return await self._writer.run(job)
        except StoreDamaged as damage:
            self._damage = damage
            raise

    async def _erase(
        self,
        work: Callable[[Database], dict[str, int]],
        *,
        then: Callable[[Database], None] = lambda _: None,
    ) -> dict[str, int]:
        """Run a deleting transaction; its counts also have `traces` if some is left in files."""

        def work_on_all(db: Database) -> dict[str, int]:
            # Before it takes effect: it could not be repeated if this process were killed.
            schema.remove_daily_copies(self._database)
            return work(db)

        def job(db: Database) -> dict[str, int]:
            db.pragma("secure_delete", True)
            try:
                went = self._transaction(db, lambda: work_on_all(db))
                return went if self._leaves_nothing(db, then) else went | {"traces": 1}
            finally:
                db.pragma("secure_delete", schema.OVERWRITES)

        return await self._write(job)

    def _leaves_nothing(self, db: Database, then: Callable[[Database], None]) -> bool:
        """Remove what is left of what was deleted, as far as that is possible; return whether it
        was all."""
        from ragmem.store.sqlite import repair

        def remove_copies(_: Database) -> None:
            schema.remove_daily_copies(self._database)  # one that was made meanwhile

        failures = (
            StoreRefused, apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError
        )  # fmt: skip
        is_clean = True
        for remove in (remove_copies, then, repair.rewrite):
            try:
                remove(db)
            except failures:
                is_clean = False
        return is_clean

    def _transaction(self, db: Database, work: Callable[[], T]) -> T:
        """Do all of the work or none; it is durable on return."""
        with schema.transaction(db):
            # SQLite would go on writing to a deleted file, and acknowledge it.
            if schema.inode_of(self._database) != self._inode:
                raise schema.lost(self._database, "was replaced while in use")
            failpoint("sqlite.begun")
            result = work()
            failpoint("sqlite.commit")
        failpoint("sqlite.committed")
        return result
