"""What is done to a store as a whole: opened past the spool, copied, kept, checked, mended.

The one door for it; what is asked of a memory goes through `ragmem.memory`.
"""

import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.config import Config, Paths, environment
from ragmem.config.address import configured
from ragmem.errors import (
    RagmemError,
    StoreDamaged,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UsageError,
    unreadable,
)
from ragmem.files import forget_prompts, lock
from ragmem.ids import is_whole_id, short_id
from ragmem.memory.projects import is_kept_apart, project_to_split, real_folder
from ragmem.own_tools import RUN_COMMAND
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
    Span,
    StoreInfo,
    Turn,
    Write,
    as_shown,
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
    from ragmem.tools.rewind import Preimages

_ANOTHER_BACKUP = "Use another backup, if you have one."
_SQLITE = b"SQLite format 3\0"
_MOVED = ("projects", "sessions", "turns", "summaries", "memories")
_TIMEOUT_S = 600.0
"""For one step over all of a graph."""
_PAGE = 100
_ALL = 2**31 - 1
_TOLD_SESSIONS = 20
"""Sessions that lost turns are told of one by one up to so many."""
_LONGEST_TURN = timedelta(days=1)
"""A turn's edits are made after the time that stands for the session's last activity."""
_KEPT_OUTPUT = re.compile(r"command-[0-9a-f-]{36}\.txt")

Progress = Callable[[int], "AbstractContextManager[OnProgress]"]
"""Shows how many of so many records came."""
Allow = Callable[[Claims], Awaitable[None]]
"""Tells a person what would have standing; UsageError where they do not want it."""
NewFile = Callable[[Path], AbstractContextManager[Path]]
"""Where to write what is to become a file when the block ends well."""


class CopySource(msgspec.Struct, frozen=True):
    """A store or a backup that is copied from."""

    stream: "Stream"
    label: str
    total: int
    """Records, about."""


class Split(msgspec.Struct, frozen=True):
    """A folder's project that is its own."""

    project: Project
    root: str | None = None
    """Path of the one that it was joined to; None where it was its own before."""
    sessions: int = 0
    """That went along."""


class _Deletion(msgspec.Struct, frozen=True):
    """A line of the log: nothing goes without one."""

    at: datetime
    session_id: str
    cwd: str
    store: str
    deleted: dict[str, int]


class Saved(msgspec.Struct, frozen=True):
    """A memory that was made whole again."""

    info: StoreInfo
    left: Sequence[Finding] = ()
    """What is broken still."""


class Administration:
    """The stores of one home; each is opened for one thing, and closed."""

    def __init__(self, config: Config, paths: Paths) -> None:
        self.config = config
        self.paths = paths

    @property
    def kind(self) -> str:
        """The kind of store that is in use."""
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
        """The store of that kind, or the one in use, as it is, without the spool.

        UsageError where it has to be there already and is not, StoreDamaged for a graph that is
        being repaired, but to the repair, which `fills` it. `say` is told of what takes long.
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
        """Let the store in use answer once, with patience, so that the next who asks needs none.

        What is wrong with it that one is told, `say` what takes long.
        """
        with suppress(StoreError):
            async with self.archive(say=say) as store:
                await store.sessions(SessionQuery(limit=1))

    # --- copies -----------------------------------------------------------------

    @asynccontextmanager
    async def store(self, kind: str) -> AsyncIterator[CopySource]:
        """Open all of the store of that kind; StoreUnavailable while writes wait for it."""
        async with self.archive(kind, existing=True) as store:
            await self._refuse_while_writes_wait(store, kind)
            yield await _copy_source(store)

    async def _refuse_while_writes_wait(self, store: "Archive", kind: str) -> None:
        from ragmem.store.spool.files import Spool

        where = configured(self.config, self.paths, environment(), kind=kind)
        older = [self.paths.spool_dir / name for name in where.older_spools]
        spool = Spool(self.paths.spool_dir / where.spool, older=older)
        spool.meet(await store.store_id())
        if waiting := spool.count_waiting():
            raise StoreUnavailable(
                f"{counted(waiting, 'write', 'still wait')} for {kind}.",
                hint="Run `ragmem sessions list` to store them, then run this again. "
                "`ragmem doctor` shows any that were rejected."
                if self.kind == kind
                else f"With `store.kind = {kind}`, any command that reads memory stores them.",
            )

    @asynccontextmanager
    async def file(self, file: Path) -> AsyncIterator[CopySource]:
        """Open all of a backup; UsageError for what is none."""
        from ragmem.store.sqlite import SQLiteStore
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
        # A copy: to open a database is to write beside it, and to bring its schema up to date.
        with tempfile.TemporaryDirectory(prefix="restoring-", dir=self.paths.data_dir) as folder:
            database = Path(folder) / "memory.db"
            shutil.copyfile(file, database)
            try:
                with _as_ragmem_wrote(file):
                    store = await SQLiteStore.open(database, locks_dir=Path(folder) / "locks")
                try:
                    with _as_ragmem_wrote(file):
                        source = await _copy_source(store)
                    stream = _with_owner(source.stream, self.owner_id, file)
                    yield msgspec.structs.replace(source, stream=stream, label=str(file))
                finally:
                    await store.aclose()
            except (StoreDamaged, StoreRefused) as error:
                raise _of_backup(error, database, file) from None

    async def claims(self, source: CopySource, into: "Archive") -> Claims:
        """What would have standing, or the profile, of what a copy adds or changes.

        It keeps all as it was, whoever's it is.
        """
        from ragmem.store.transfer import changes

        owner, profile = owner_of_file(self.paths), dict[str, str]()
        memories, replaced = list[MemoryRecord](), list[MemoryRecord]()
        # Of a backup without its end all that stands there is copied, which then says so.
        with suppress(StoreDamaged):
            async for writes in source.stream():
                for write, held in await changes(writes, into):
                    if isinstance(write, PutMemory):
                        memories.append(write.memory)
                        if isinstance(held, PutMemory) and held.memory.has_standing:
                            replaced.append(held.memory)
                    elif isinstance(write, PutProfile) and write.owner in ("", owner):
                        profile[write.key] = write.value or ""
        return msgspec.structs.replace(
            claims_of(memories, owner, known=(), now=utc_now()),
            profile=profile,
            replaced=tuple(replaced),
            is_copy=True,
        )

    async def copy(self, source: CopySource, into: "Archive", progress: Progress) -> "Comparison":
        """Copy all of it, and compare both sides afterwards."""
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
        """Write all of the store in use into a new file; else one in `backups`."""
        from ragmem.store.sqlite import SQLiteStore
        from ragmem.store.transfer import write_lines

        if file is None:
            file = self._backup_file("memory", "db" if self.kind == "sqlite" else "jsonl")
        file = file.expanduser().absolute()
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
        """Keep a copy of a SQLite database for the day that its disk breaks, once a day."""
        from asyncio import to_thread

        from ragmem.store.sqlite import repair

        await to_thread(repair.keep, self.paths.database, self.paths.locks_dir, utc_now())

    # --- sessions ---------------------------------------------------------------

    async def export(self, session_id: str) -> tuple["SessionDocument", bytes]:
        """A session with all that belongs to it, and the same as JSON."""
        from ragmem.store.transfer.document import document_of, encoded

        async with self.archive(existing=True) as store:
            document = await document_of(store, session_id)
        return document, encoded(document)

    async def take_in(
        self, data: bytes, allow: Allow, *, as_new: bool
    ) -> tuple[Session, "SessionDocument"]:
        """Store a session that was exported; UsageError where it is here already.

        `allow` is asked before, where memories in it had standing or replace what is here.
        """
        from ragmem.store.transfer.document import (
            claims,
            decoded,
            import_document,
            without_others_standing,
        )

        document, owner = decoded(data), owner_of_file(self.paths)
        async with self.archive() as store:
            if claimed := await claims(store, document, owner, as_new=as_new):
                await allow(claimed)
            document = await without_others_standing(store, document, owner, was_asked=True)
            return await import_document(store, document, as_new=as_new), document

    async def delete(self, session: Session) -> dict[str, int]:
        """Delete a session with all that was derived from it; counts of what went, by kind."""
        from ragmem.logs import log_deletion
        from ragmem.memory.recording import TAIL_SUFFIX, RequestLog, Tail
        from ragmem.memory.turns import stands_in
        from ragmem.tools.rewind import Preimages

        preimages = Preimages(self.paths.data_dir / "preimages")
        async with self.archive(existing=True) as store:
            outputs, copies, said = await _left_by(store, session, preimages)
            gone = await store.delete_session(session.session_id)
        folder = self.paths.data_dir / "outputs"
        files = [file for name in sorted(outputs) if (file := folder / name).is_file()]
        for output in files:
            output.unlink(missing_ok=True)
        gone |= {"outputs": len(files), "copies": preimages.remove(copies)}
        deletion = _Deletion(datetime.now(UTC), session.session_id, session.cwd, self.kind, gone)
        log_deletion(self.paths.log_dir, deletion)
        for file in self.paths.spool_dir.glob(f"*{TAIL_SUFFIX}"):
            Tail(file, str).forget(session.session_id)
        RequestLog(self.paths.data_dir).forget(session.session_id)
        preimages.look_through()
        history = self.paths.prompt_history
        try:
            forget_prompts(history, lambda typed: stands_in(typed, said))
        except OSError as error:
            raise RagmemError(
                f"The session is deleted, but its prompts remain in {history}: {error.strerror}.",
                hint="Delete that file, or make it writable and delete the lines in it.",
            ) from None
        return gone

    async def split(self, folder: Path) -> Split:
        """Let a normalized folder's sessions be a project of their own, apart from what it was
        joined to. UsageError for the project that others were joined to; StoreUnavailable while
        writes wait."""
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

    # --- whole or not -----------------------------------------------------------

    async def check(self) -> tuple[list[Finding], StoreInfo]:
        """What is broken in the store in use, and how much is in it."""
        async with self.archive(existing=True) as store:
            return await store.check(), await store.info()

    async def repair(self, new: NewFile, say: Callable[[str], None]) -> Saved | None:
        """Make the store in use whole again; None where it is. `say` is told what was done."""
        if self.kind != "neo4j":
            return await self._save_database(say)
        # Another would take this one for one that was cut off, and empty what it fills.
        alone = lock(self.paths.data_dir / "repair.lock", timeout_s=0)
        try:
            return await self._mend_graph(new, say)
        finally:
            os.close(alone)

    async def _save_database(self, say: Callable[[str], None]) -> Saved | None:
        """What can be read goes into a new database, which takes the damaged one's place."""
        from ragmem.store.spool.files import Spool
        from ragmem.store.sqlite import SQLiteStore, schema

        paths = self.paths
        try:
            findings, _ = await self.check()
        except (StoreDamaged, UsageError):  # the latter where there is none
            held = paths.database.exists() and paths.database.stat().st_size > 0
            if not (held or schema.newest_first(paths.database)):
                raise
        else:
            if not findings:
                return None
        with tempfile.TemporaryDirectory(prefix="repairing-", dir=paths.data_dir) as name:
            folder = Path(name)
            # What waits in the spool waits for the new one, if nobody can read any more for whom.
            known = Spool(paths.spool_dir / "sqlite").store_id
            lost, backup, lost_turns = _rebuilt(paths, folder, known)
            store = await SQLiteStore.open(folder / "memory.db", locks_dir=folder / "locks")
            try:
                found = await store.info()
            finally:
                await store.aclose()
            kept = schema.exchange(paths.database, folder / "memory.db")
        said = "Nothing could be read."
        if lost is not None:
            said = f"{counted(lost, 'place')} could not be read."
        if lost == 0:
            said = "Everything could be read."
        if backup is not None:
            said += f" Missing records were restored from {backup} where possible."
        newer = schema.newest_made(paths.database) if lost != 0 or lost_turns else None
        if newer and (backup is None or newer.stat().st_mtime > backup.stat().st_mtime):
            said += f" {newer} may have more: add it with `ragmem store migrate --from`."
        if kept.exists():
            said += f" The damaged database is kept: {kept}"
        say(said)
        for each in lost_turns[:_TOLD_SESSIONS]:
            title = one_line(each.title, 80)
            turns = f"{each.lost:,} of {counted(each.had, 'turn')}"
            say(f"Lost from session {short_id(each.session_id)} “{title}”: {turns}.")
        if (more := len(lost_turns) - _TOLD_SESSIONS) > 0:
            say(f"{counted(more, 'more session')} lost turns.")
        return Saved(found)

    async def _mend_graph(self, new: NewFile, say: Callable[[str], None]) -> Saved | None:
        """What can be read goes into the graph anew, after a copy of it was written."""
        from ragmem.store import transfer
        from ragmem.store.neo4j.repair import Repair
        from ragmem.store.neo4j.salvage import GraphCopy
        from ragmem.store.sqlite.repair import rebuild

        timeout_s = max(_TIMEOUT_S, self.config.store.timeout_s)
        mending = await Repair.open(self.neo4j.connection(), timeout_s=timeout_s)
        try:
            if mending.cut_off:
                kept = _read_out(mending.cut_off)
                say("Resuming an interrupted repair.")
            else:
                found = await mending.findings()
                if not found:
                    return None
                await mending.refuse_while_used()
                for each in found:
                    say(f"{each.what}: {each.where}")
                kept = self._backup_file("graph", "damaged.jsonl")
                with new(kept) as part, part.open("wb") as out:
                    async for portion in mending.graph():
                        out.writelines(msgspec.json.encode(row) + b"\n" for row in portion)
            copy = GraphCopy(kept, mending.store_id, utc_now())
            saved = self._backup_file("graph", "saved.db")
            with (
                tempfile.TemporaryDirectory(prefix="repairing-", dir=self.paths.data_dir) as name,
                new(saved) as part,
            ):
                folder = Path(name)
                rebuild([copy], folder / "memory.db", folder / "locks", owner=self.owner_id)
                shutil.copyfile(folder / "memory.db", part)
            say(
                f"The original graph is kept in {kept} ({counted(copy.lost, 'place')} could not "
                f"be read). The readable part is in {saved}. If this is interrupted, run it "
                "again."
            )
            await mending.empty(kept)
            async with self.file(saved) as source, self.archive("neo4j", fills=True) as store:
                await transfer.copy(source.stream, store, lambda *_: None)
                await mending.end(copy.due)
                return Saved(await store.info(), await store.check())
        finally:
            await mending.aclose()

    def waiting_writes(self) -> int:
        """How many writes wait on this disk, for whichever store."""
        from ragmem.store.spool.files import count_waiting

        return count_waiting(self.paths.spool_dir, deep=True)

    # --- whose it is --------------------------------------------------------------

    @property
    def owner_id(self) -> str:
        """Id of the person whose home it is; StoreUnavailable where that can't be known."""
        return home_owner(self.paths)

    def take_owner(self, owner_id: str) -> None:
        """Make this home that person's too, from now on; UsageError for less than the whole id."""
        if not is_whole_id(owner_id):
            raise UsageError(
                f"{one_line(owner_id, 80)!r} is not a complete owner id.",
                hint="`ragmem memory owner`, on the other machine, prints the id to take over.",
            )
        take_owner(self.paths, owner_id)

    # --- a local Neo4j --------------------------------------------------------------

    @property
    def neo4j(self) -> "LocalNeo4j":
        """The server of this home."""
        from ragmem.store.neo4j_server import LocalNeo4j

        return LocalNeo4j(self.paths, self.config, environment())


def known_kind(kind: str) -> str:
    """Itself; UsageError where there is no such store."""
    if kind not in KINDS:
        raise UsageError(
            f"Unknown store: {visible(kind)!r}.", hint=f"Available stores: {' and '.join(KINDS)}."
        )
    return kind


def contents(found: StoreInfo) -> str:
    """How much there is, in few words."""
    kinds = [("sessions", "session"), ("turns", "turn")]
    kinds += [("memories", "memory")] if found.counts["memories"] else []
    return ", ".join(counted(found.counts[kind], name) for kind, name in kinds)


def label_of(found: StoreInfo) -> str:
    """Tell which store it is, and how much is in it."""
    return f"{found.kind} {found.location} ({contents(found)})"


async def _copy_source(store: "Archive") -> CopySource:
    from ragmem.store.transfer import stream_of

    found = await store.info()
    # Files of the code index are moved too.
    code = [len(await store.code_files(project)) for project in await store.code_projects()]
    total = sum(found.counts[kind] for kind in _MOVED) + sum(code)
    return CopySource(stream_of(store), label_of(found), total)


def _with_owner(stream: "Stream", owner: str, file: Path) -> "Stream":
    """The stream of a backup, with this owner for what was written before there were owners."""

    async def writes() -> AsyncIterator[Sequence[Write]]:
        with _as_ragmem_wrote(file):
            async for batch in stream():
                yield owned(batch, owner)

    return writes


@contextmanager
def _as_ragmem_wrote(file: Path) -> Iterator[None]:
    """StoreDamaged for a backup that is a database, but holds what ragmem does not write."""
    import apsw

    try:
        yield
    except (apsw.SQLError, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"The backup {file} is damaged: {error}. It was not changed.",
            hint=_ANOTHER_BACKUP,
        ) from None


def _read_out(cut_off: str) -> Path:
    """The file of a repair that was cut off; UsageError where it is on another machine."""
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


def _of_backup(error: StoreError, database: Path, file: Path) -> StoreError:
    """The error as one of the backup, where it is about the copy of it that was read."""
    told = f"The memory's database {database}"
    if told not in str(error):
        return error
    hint = _ANOTHER_BACKUP if isinstance(error, StoreDamaged) else error.hint
    return type(error)(str(error).replace(told, f"The backup {file}"), hint=hint)


def _rebuilt(
    paths: Paths, folder: Path, known_id: str
) -> tuple[int | None, Path | None, list["LostTurns"]]:
    """Places that were lost, None for all of them; the backup that stood in for them; and the
    sessions that have lost turns.

    StoreDamaged where neither the database nor a backup can be read.
    """
    from ragmem.store.sqlite import schema
    from ragmem.store.sqlite.repair import DamagedDatabase, rebuild

    sources: list[DamagedDatabase] = []
    backup = next(iter(schema.newest_first(paths.database)), None)
    try:
        try:
            sources.append(DamagedDatabase(paths.database, folder))
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
        return (remains.lost if remains else None), backup, lost_turns
    finally:
        for source in sources:
            source.connection.close()


async def _left_by(
    store: "Archive", session: Session, preimages: "Preimages"
) -> tuple[set[str], set[str], set[str]]:
    """Files with long outputs of the session's own commands; copies that no other one names; what
    was typed in it."""
    from ragmem.memory.files import preimages_of
    from ragmem.memory.turns import prompts_of

    outputs: set[str] = set()
    copies: set[str] = set()
    said: set[str] = set()
    async for turns in _own_turns(store, session):
        copies |= preimages_of(turns)
        for turn in turns:
            prompt, later = prompts_of(turn)
            for words in (as_shown(prompt), *later.values()):
                # What was typed while a turn ran is joined by blank lines.
                said |= {words.strip(), *map(str.strip, words.split("\n\n"))}
            for call in turn.tool_calls:
                if call.tool_name == RUN_COMMAND:
                    outputs.update(_KEPT_OUTPUT.findall(call.result))
    return outputs, await _named_by_none(store, session, copies, preimages), said


async def _named_by_none(
    store: "Archive", session: Session, copies: set[str], preimages: "Preimages"
) -> set[str]:
    """Those of the copies that no other session names, in whatever project it is."""
    from ragmem.memory.files import preimages_of

    made = {name: at for name in copies if (at := preimages.made_at(name))}
    left = set(made)
    # What was over before the first of them was made names none.
    since = min(made.values(), default=datetime.now(UTC)) - _LONGEST_TURN
    for other in await store.sessions(SessionQuery(limit=_ALL)) if left else ():
        if other.session_id != session.session_id and other.last_activity_at >= since:
            async for turns in _own_turns(store, other):
                left -= preimages_of(turns)
    return left


async def _own_turns(store: "Archive", session: Session) -> AsyncIterator[list[Turn]]:
    """The turns that it shares with none, in portions."""
    for first in range((session.forked_at_index or 0) + 1, session.turn_count + 1, _PAGE):
        page = Span(session.session_id, first, min(first + _PAGE - 1, session.turn_count))
        yield [put.turn for put in await store.own_turns([page])]
