"""Operations on a whole store, bypassing the spool: copy, back up, check, repair.

All such operations go through this module; everything else goes through `ragmem.memory`.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.config import Config, Paths, environment
from ragmem.config.address import configured
from ragmem.errors import (
    MemoryOff,
    StoreDamaged,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UsageError,
    unreadable,
)
from ragmem.files import expanded, lock, remove_leftovers, work_folder
from ragmem.ids import is_whole_id, short_id
from ragmem.memory.projects import is_kept_apart, project_to_split, real_folder
from ragmem.records import (
    Claims,
    Finding,
    MemoryRecord,
    Owner,
    Project,
    PutMemory,
    PutProfile,
    RegisterProject,
    Session,
    SessionQuery,
    StoreInfo,
    Write,
    claims_of,
    utc_now,
)
from ragmem.store import KINDS, home_owner, open_archive, owned, owner_of_file, take_owner
from ragmem.text import counted, one_line, visible

if TYPE_CHECKING:
    from ragmem.store import Archive
    from ragmem.store.neo4j_server import LocalNeo4j
    from ragmem.store.sqlite.repair import LostTurns
    from ragmem.store.transfer import Comparison as Comparison, OnProgress, Stream
    from ragmem.store.transfer.document import SessionDocument

_ANOTHER_BACKUP = "Use another backup, if you have one."
_SQLITE = b"SQLite format 3\0"
_MOVED = ("projects", "sessions", "turns", "summaries", "memories")
_TIMEOUT_S = 600.0
"""For one statement over a whole graph."""
_PAGE = 100
_ALL = 2**31 - 1
_LISTED_SESSIONS = 20
"""How many sessions that lost turns are listed one by one."""

Progress = Callable[[int], "AbstractContextManager[OnProgress]"]
"""Shows progress: how many of the expected records have arrived."""
Allow = Callable[[Claims], Awaitable[None]]
"""Tells the user what would gain standing; raises UsageError if they refuse."""
NewFile = Callable[[Path], AbstractContextManager[Path]]
"""Yields where to write a file that is put in place if the block succeeds."""


class CopySource(msgspec.Struct, frozen=True):
    """A store or a backup to copy from."""

    stream: "Stream"
    label: str
    total: int
    """Approximate number of records."""


class Split(msgspec.Struct, frozen=True):
    """The result of splitting a folder's project off."""

    project: Project
    root: str | None = None
    """Path of the project that it was joined to; None if it was on its own before."""
    sessions: int = 0
    """How many sessions were split off with it."""


class Saved(msgspec.Struct, frozen=True):
    """A repaired store."""

    info: StoreInfo
    left: Sequence[Finding] = ()
    """What is still broken."""


class Administration:
    """The stores of one home; each operation opens the one it needs, and closes it."""

    def __init__(self, config: Config, paths: Paths) -> None:
        self.config = config
        self.paths = paths

    @property
    def kind(self) -> str:
        """The kind of the configured store."""
        return self.config.store.kind

    @asynccontextmanager
    async def archive(
        self,
        kind: str = "",
        *,
        existing: bool = False,
        fills: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> "AsyncIterator[Archive]":
        """Open the store of that kind, or the configured one, without the spool.

        Raises UsageError if it must be `existing` and is not, StoreDamaged for a graph that is
        being repaired, except for the repair that `fills` it. `say` receives messages about long
        operations.
        """
        store = await open_archive(
            kind or self.kind,
            self.config,
            self.paths,
            environment(),
            existing=existing,
            fills=fills,
            say=say,
        )
        try:
            yield store
        finally:
            await store.aclose()

    async def look(self, say: Callable[[str], None]) -> None:
        """Query the configured store once, patiently, so that the next caller need not wait.

        Errors are left for that caller to meet; `say` receives messages about long operations.
        """
        with suppress(StoreError):
            async with self.archive(say=say) as store:
                await store.sessions(SessionQuery(limit=1))

    # --- copies -----------------------------------------------------------------

    @asynccontextmanager
    async def store(self, kind: str) -> AsyncIterator[CopySource]:
        """Open the whole store of that kind; raises StoreUnavailable while writes wait for it."""
        async with self.archive(kind, existing=True) as store:
            await self._refuse_while_writes_wait(store, kind)
            yield await _copy_source(store)

    async def _refuse_while_writes_wait(self, store: "Archive", kind: str, of: str = "") -> None:
        from ragmem.store.spool.files import Spool

        where = configured(self.config, self.paths, environment(), kind=kind)
        older = [self.paths.spool_dir / name for name in where.older_spools]
        spool = Spool(self.paths.spool_dir / where.spool, older=older)
        spool.meet(await store.store_id())
        if (not of or spool.elsewhere(of, but=())) and (waiting := spool.count_waiting()):
            raise StoreUnavailable(
                f"{counted(waiting, 'write', 'still wait')} for {kind}.",
                hint="Run `ragmem sessions list` to store them, then run this again. "
                "`ragmem doctor` shows any that were rejected."
                if self.kind == kind
                else f"With `store.kind = {kind}`, any command that reads memory stores them.",
            )

    @asynccontextmanager
    async def file(self, file: Path) -> AsyncIterator[CopySource]:
        """Open a whole backup; raises UsageError if the file can't be read or is not a backup."""
        from ragmem.store.sqlite import SQLiteStore, schema
        from ragmem.store.transfer import count_lines, stream_of_lines

        try:
            with file.open("rb") as beginning:
                is_database = beginning.read(len(_SQLITE)) == _SQLITE
        except OSError as error:
            raise unreadable(file, error) from None
        if not is_database:
            stream = _with_owner(stream_of_lines(file), self.owner_id, file)
            yield CopySource(stream, str(file), count_lines(file))
            return
        # A copy, because opening a database writes next to it and updates its schema.
        with work_folder(self.paths, "restoring") as folder:
            database = folder / "memory.db"
            schema.copy_in_use(file, database)
            try:
                with _reporting_damage(file):
                    store = await SQLiteStore.open(database, locks_dir=folder / "locks")
                try:
                    with _reporting_damage(file):
                        source = await _copy_source(store)
                    stream = _with_owner(source.stream, self.owner_id, file)
                    yield msgspec.structs.replace(source, stream=stream, label=str(file))
                finally:
                    await store.aclose()
            except (StoreDamaged, StoreRefused) as error:
                raise _about_backup(error, database, file) from None

    async def claims(self, source: CopySource, into: "Archive") -> Claims:
        """Return the standing, and the profile, that a copy's new and changed records would bring.

        Copying preserves both, whoever owns them.
        """
        from ragmem.store.transfer import changes

        owner, profile = owner_of_file(self.paths), dict[str, str]()
        memories, replaced = list[MemoryRecord](), list[MemoryRecord]()
        # A truncated backup is copied as far as it goes, and reported by the copy.
        with suppress(StoreDamaged):
            async for writes in source.stream():
                for write, existing in await changes(writes, into):
                    if isinstance(write, PutMemory):
                        memories.append(write.memory)
                        if isinstance(existing, PutMemory) and existing.memory.has_standing:
                            replaced.append(existing.memory)
                    elif isinstance(write, PutProfile) and write.owner in ("", owner):
                        profile[write.key] = write.value or ""
        return msgspec.structs.replace(
            claims_of(memories, owner, known=(), now=utc_now()),
            profile=profile,
            replaced=tuple(replaced),
            is_copy=True,
        )

    async def copy(self, source: CopySource, into: "Archive", progress: Progress) -> "Comparison":
        """Copy everything, and compare both sides afterwards."""
        from ragmem.store.transfer import compare, copy

        with progress(source.total) as show:
            await copy(source.stream, into, show)
            return await compare(source.stream, into, show)

    async def stranger(self, store: "Archive") -> Owner | None:
        """Return whose a store's newest session is, if none of the newest is this home's own."""
        sessions = await store.sessions(SessionQuery(limit=_PAGE))
        owners = [session.owner for session in sessions]
        if not owners or {"", owner_of_file(self.paths)} & set(owners):
            return None
        known = {each.owner_id: each for each in await store.owners()}
        return known.get(owners[0], Owner(owner_id=owners[0]))

    async def back_up(
        self, file: Path | None, new: NewFile, progress: Progress
    ) -> tuple[Path, StoreInfo]:
        """Write the whole configured store into a new file, by default in `backups`."""
        from ragmem.store.sqlite import SQLiteStore
        from ragmem.store.transfer import write_lines

        if file is None:
            file = self._backup_file("memory", "db" if self.kind == "sqlite" else "jsonl")
        file = expanded(file).absolute()
        async with self.archive(existing=True) as store:
            found = await store.info()
            with new(file) as part:
                if isinstance(store, SQLiteStore):
                    await store.copy_to(part)
                else:
                    source = await _copy_source(store)
                    with part.open("wb") as out, progress(source.total) as show:
                        await write_lines(source.stream, out, show)
        return file, found

    def _backup_file(self, name: str, suffix: str) -> Path:
        folder = self.paths.data_dir / "backups"
        folder.mkdir(mode=0o700, exist_ok=True)
        now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        return folder / f"{name}-{now}.{suffix}"

    async def keep_daily_backup(self) -> None:
        """Keep one copy a day of a SQLite database, in case its disk fails."""
        from asyncio import to_thread

        from ragmem.store.sqlite import repair

        await to_thread(remove_leftovers, self.paths)
        await to_thread(repair.keep_copy, self.paths.database, self.paths.locks_dir, utc_now())

    # --- sessions ---------------------------------------------------------------

    async def export(self, session_id: str) -> tuple["SessionDocument", bytes]:
        """Return a session with everything that belongs to it, also as JSON."""
        from ragmem.store.transfer.document import document_of, encoded

        async with self.archive(existing=True) as store:
            document = await document_of(store, session_id)
        return document, encoded(document)

    async def take_in(
        self, data: bytes, allow: Allow, *, as_new: bool
    ) -> tuple[Session, "SessionDocument"]:
        """Store an exported session; raises UsageError if it exists already, MemoryOff.

        `allow` is asked first if memories in it have standing or replace existing ones.
        """
        from ragmem.store.transfer.document import (
            claims,
            decoded,
            import_document,
            without_others_standing,
        )

        if not self.config.memory.enabled:
            raise MemoryOff
        document, owner = decoded(data), owner_of_file(self.paths)
        async with self.archive() as store:
            if claimed := await claims(store, document, owner, as_new=as_new):
                await allow(claimed)
            document = await without_others_standing(store, document, owner, was_asked=True)
            return await import_document(store, document, as_new=as_new), document

    async def delete(self, session: Session) -> dict[str, int]:
        """Delete a session after everything derived from it; returns counts by kind.

        Raises StoreUnavailable while writes of it wait.
        """
        from ragmem.deletion import delete_session

        remove_leftovers(self.paths)
        async with self.archive(existing=True) as store:
            await self._refuse_while_writes_wait(store, self.kind, session.session_id)
            return await delete_session(store, session, paths=self.paths, kind=self.kind)

    async def split(self, folder: Path) -> Split:
        """Make a normalized folder's project independent of the one that it was joined to.

        Raises UsageError for a project that others were joined to, StoreUnavailable while writes
        wait.
        """
        async with self.archive(existing=True) as store:
            await self._refuse_while_writes_wait(store, self.kind)
            known = await store.projects()
            project = project_to_split(folder, known, now=utc_now())
            was_joined = project.root_id != project.project_id
            if was_joined or not is_kept_apart(project, real_folder(project.path, folder)):
                apart = msgspec.structs.replace(project, joined_into=project.project_id)
                await store.apply([RegisterProject(project=apart, chosen=True)])
            if not was_joined:
                return Split(project)
            root = next((p.path for p in known if p.project_id == project.root_id), "another")
            query = SessionQuery(project_ids=(project.project_id,), limit=_ALL)
            return Split(project, root, len(await store.sessions(query)))

    # --- checks and repair -----------------------------------------------------------

    async def check(self) -> tuple[list[Finding], StoreInfo]:
        """Return what is broken in the configured store, and what it contains."""
        async with self.archive(existing=True) as store:
            return await store.check(), await store.info()

    async def repair(self, new: NewFile, say: Callable[[str], None]) -> Saved | None:
        """Repair the configured store; None if it is intact. `say` receives what was done."""
        if self.kind != "neo4j":
            return await self._repair_database(say)
        # A second repair would take this one for interrupted, and empty what it is filling.
        only_one = lock(self.paths.data_dir / "repair.lock", timeout_s=0)
        try:
            return await self._repair_graph(new, say)
        finally:
            os.close(only_one)

    async def _repair_database(self, say: Callable[[str], None]) -> Saved | None:
        """Copy what can be read into a new database, which replaces the damaged one."""
        from ragmem.store.spool.files import Spool
        from ragmem.store.sqlite import SQLiteStore, schema

        paths = self.paths
        try:
            findings, _ = await self.check()
        except (StoreDamaged, UsageError):  # UsageError if there is none
            has_data = paths.database.exists() and paths.database.stat().st_size > 0
            if not (has_data or schema.daily_copies(paths.database)):
                raise
        else:
            if not findings:
                return None
        with work_folder(paths, "repairing") as folder:
            # If the damaged store's id is unreadable, waiting writes are assigned to the new store.
            known = Spool(paths.spool_dir / "sqlite").store_id
            state = schema.state_of(paths.database)
            lost, backup, lost_turns = _rebuilt(paths, folder, known)
            store = await SQLiteStore.open(folder / "memory.db", locks_dir=folder / "locks")
            try:
                found = await store.info()
            finally:
                await store.aclose()
            kept = schema.exchange(paths.database, folder / "memory.db", state)
        fates = {None: "Nothing could be read.", 0: "Everything could be read."}
        message = fates.get(lost, f"{counted(lost or 0, 'place')} could not be read.")
        if backup is not None:
            message += f" Missing records were restored from {backup} where possible."
        newer = schema.newest_backup(paths.database) if lost != 0 or lost_turns else None
        if newer and (backup is None or newer.stat().st_mtime > backup.stat().st_mtime):
            message += f" {newer} may have more: add it with `ragmem store migrate --from`."
        if kept.exists():
            message += f" The damaged database is kept: {kept}"
        say(message)
        for each in lost_turns[:_LISTED_SESSIONS]:
            title = one_line(each.title, 80)
            turns = f"{each.lost:,} of {counted(each.had, 'turn')}"
            say(f"Lost from session {short_id(each.session_id)} “{title}”: {turns}.")
        if (more := len(lost_turns) - _LISTED_SESSIONS) > 0:
            say(f"{counted(more, 'more session')} lost turns.")
        return Saved(found)

    async def _repair_graph(self, new: NewFile, say: Callable[[str], None]) -> Saved | None:
        """Rebuild the graph from what can be read, after writing a copy of it to a file."""
        from ragmem.store import transfer
        from ragmem.store.neo4j.repair import Repair
        from ragmem.store.neo4j.salvage import GraphCopy
        from ragmem.store.sqlite.repair import rebuild

        timeout_s = max(_TIMEOUT_S, self.config.store.timeout_s)
        repairing = await Repair.open(self.neo4j.connection(), timeout_s=timeout_s)
        try:
            if repairing.cut_off:
                kept = _saved_graph(repairing.cut_off)
                say("Resuming an interrupted repair.")
            else:
                found = await repairing.findings()
                if not found:
                    return None
                await repairing.refuse_while_used()
                for each in found:
                    say(f"{each.what}: {each.where}")
                kept = self._backup_file("graph", "damaged.jsonl")
                with new(kept) as part, part.open("wb") as out:
                    async for portion in repairing.graph():
                        out.writelines(msgspec.json.encode(row) + b"\n" for row in portion)
            copy = GraphCopy(kept, repairing.store_id, utc_now())
            saved = self._backup_file("graph", "saved.db")
            with (
                work_folder(self.paths, "repairing") as folder,
                new(saved) as part,
            ):
                rebuild([copy], folder / "memory.db", folder / "locks", owner=self.owner_id)
                shutil.copyfile(folder / "memory.db", part)
            say(
                f"The original graph is kept in {kept} ({counted(copy.lost, 'place')} could not "
                f"be read). The readable part is in {saved}. If this is interrupted, run it "
                "again."
            )
            await repairing.empty(kept)
            async with self.file(saved) as source, self.archive("neo4j", fills=True) as store:
                await transfer.copy(source.stream, store, lambda *_: None)
                await repairing.end()
                return Saved(await store.info(), await store.check())
        finally:
            await repairing.aclose()

    def waiting_writes(self) -> int:
        """Return how many writes wait on this disk, for any store."""
        from ragmem.store.spool.files import count_waiting

        return count_waiting(self.paths.spool_dir, deep=True)

    # --- owner -----------------------------------------------------------------------

    @property
    def owner_id(self) -> str:
        """The id of this home's owner; raises StoreUnavailable if it can't be read."""
        return home_owner(self.paths)

    def take_owner(self, owner_id: str) -> None:
        """Assign this home to an owner from now on; raises UsageError unless the id is complete."""
        if not is_whole_id(owner_id):
            raise UsageError(
                f"{one_line(owner_id, 80)!r} is not a complete owner id.",
                hint="`ragmem memory owner`, on the other machine, prints the id to take over.",
            )
        take_owner(self.paths, owner_id)

    # --- a local Neo4j --------------------------------------------------------------

    @property
    def neo4j(self) -> "LocalNeo4j":
        """The Neo4j server of this home."""
        from ragmem.store.neo4j_server import LocalNeo4j

        return LocalNeo4j(self.paths, self.config, environment())


def known_kind(kind: str) -> str:
    """Return `kind`; raises UsageError if there is no such store."""
    if kind not in KINDS:
        raise UsageError(
            f"Unknown store: {visible(kind)!r}.", hint=f"Available stores: {' and '.join(KINDS)}."
        )
    return kind


def contents(found: StoreInfo) -> str:
    """Summarize a store's contents in a few words."""
    kinds = [("sessions", "session"), ("turns", "turn")]
    kinds += [("memories", "memory")] if found.counts["memories"] else []
    return ", ".join(counted(found.counts[kind], name) for kind, name in kinds)


def label_of(found: StoreInfo) -> str:
    """Return which store it is, and what it contains."""
    return f"{found.kind} {found.location} ({contents(found)})"


async def _copy_source(store: "Archive") -> CopySource:
    from ragmem.store.transfer import stream_of

    found = await store.info()
    # The code index's files are copied too.
    code = [len(await store.code_files(project)) for project in await store.code_projects()]
    total = sum(found.counts[kind] for kind in _MOVED) + sum(code)
    return CopySource(stream_of(store), label_of(found), total)


def _with_owner(stream: "Stream", owner: str, file: Path) -> "Stream":
    """Return a backup's stream, with this owner for records from before owners existed."""
    from ragmem.store.transfer.document import wrong_time_in

    async def writes() -> AsyncIterator[Sequence[Write]]:
        with _reporting_damage(file):
            async for batch in stream():
                if wrong := next(filter(None, map(wrong_time_in, batch)), ""):
                    raise msgspec.ValidationError(wrong)
                yield owned(batch, owner)

    return writes


@contextmanager
def _reporting_damage(file: Path) -> Iterator[None]:
    """Raise StoreDamaged for a backup that is a database, but contains what ragmem never writes."""
    import apsw

    try:
        yield
    except (apsw.SQLError, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"The backup {file} is damaged: {error}. It was not changed.",
            hint=_ANOTHER_BACKUP,
        ) from None


def _saved_graph(cut_off: str) -> Path:
    """Return the file of an interrupted repair; raises UsageError if it is on another machine."""
    file = Path(cut_off)
    if not file.is_file():
        raise UsageError(
            f"A repair was interrupted, and its saved copy of the graph, {file}, is not on this "
            "machine.",
            hint="Run this on the machine where the repair began. If the file is lost, "
            "`MATCH (r:RagmemRepair) DELETE r` makes the graph usable as it is, so that you "
            "can restore a backup.",
        )
    return file


def _about_backup(error: StoreError, database: Path, file: Path) -> StoreError:
    """Reword an error about the temporary copy of a backup as one about the backup."""
    prefix = f"The memory's database {database}"
    if prefix not in str(error):
        return error
    hint = _ANOTHER_BACKUP if isinstance(error, StoreDamaged) else error.hint
    return type(error)(str(error).replace(prefix, f"The backup {file}"), hint=hint)


def _rebuilt(
    paths: Paths, folder: Path, known_id: str
) -> tuple[int | None, Path | None, list["LostTurns"]]:
    """Rebuild a damaged database in `folder`, with the help of its newest backup.

    Returns the number of places lost (None if all are), the backup used, and the sessions that lost
    turns. Raises StoreDamaged if neither can be read, StoreRefused while a session is in use.
    """
    from ragmem.store.sqlite import schema
    from ragmem.store.sqlite.repair import DamagedDatabase, rebuild

    sources = list[DamagedDatabase]()
    backup = next(iter(schema.daily_copies(paths.database)), None)
    try:
        try:
            sources.append(DamagedDatabase(paths.database, folder))
            sources[0].refuse_while_used(paths.locks_dir)
        except StoreDamaged:
            if backup is None:
                raise
        remains = sources[0] if sources else None
        if backup is not None:
            sources.append(DamagedDatabase(backup, folder))
        lost_turns = rebuild(
            sources,
            folder / "memory.db",
            folder / "locks",
            owner=owner_of_file(paths),
            store_id=known_id,
        )
        used = backup if backup and sources[-1].gave else None
        return (remains.lost if remains else None), used, lost_turns
    finally:
        for source in sources:
            source.connection.close()
