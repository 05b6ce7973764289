"""`ragmem store`: where memory is kept; how it is moved, backed up, checked and repaired."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ragmem.cli.command import (
    Home,
    archive,
    command,
    confirm,
    home,
    open_app,
)
from ragmem.cli.documents import document
from ragmem.cli.options import (
    Format,
    Yes,
    argument,
    commands,
    option,
)
from ragmem.cli.output import new_file, print_one, records, say, write
from ragmem.config import Config, Paths, environment, load_config
from ragmem.config.file import change
from ragmem.errors import EXIT_DONE, EXIT_FAILED, StoreDamaged, StoreUnavailable, UsageError
from ragmem.listings import table
from ragmem.records import Finding, StoreInfo, utc_now
from ragmem.store.base import Archive
from ragmem.store.open import KINDS
from ragmem.text import counted, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.store.transfer import Comparison, Stream

app = commands("Show and choose where memory is kept; move, keep and mend it.")

_INFO = "kind location version schema_version counts size_bytes"
_SQLITE = b"SQLite format 3\0"
_MOVED = ("projects", "sessions", "turns", "summaries", "memories")
_WELL = "Nothing to repair: all is well.\n"
_TIMEOUT_S = 600.0
"""For one step over all of a graph."""


@command(app, open_app)
async def info(opened: "App", output: Format = "table") -> None:
    """Show the store in use and how much is in it."""
    found = await (await opened.store()).info()
    print_one(output, lambda: document(_INFO, found), lambda _: store_text(found))


@command(app, home)
async def use(
    own: Home,
    kind: Annotated[str, argument("sqlite|neo4j", "The store.")],
) -> None:
    """Keep memory in another store from now on; nothing is moved.

    The store is opened first: one that can't be is not chosen.
    """
    _known(kind)
    before = own.config.store.kind
    config = load_config(own.paths.config_file, flags={("store", "kind"): kind})
    async with open_app(config, own.paths) as opened:
        found = await (await opened.store()).info()
    if outranked := change("store.kind", kind):
        say(f"warning: {outranked}\n")
    write(store_text(found))
    if before != kind:
        write(
            f"Nothing was moved: what is in {before} stays there, untouched. "
            f"`ragmem store migrate --to {kind}` copies it.\n"
        )


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise UsageError(
            f"There is no store {visible(kind)!r}.", hint=f"The stores are {' and '.join(KINDS)}."
        )
    return kind


@command(app, home)
async def migrate(
    own: Home,
    to: Annotated[
        str | None, option("--to", "The store that is to have it all.", "sqlite|neo4j")
    ] = None,
    file: Annotated[
        Path | None, option("--from", "Take it from a backup, not the other store.", "FILE")
    ] = None,
    yes: Yes = False,
) -> int:
    """Copy all of memory into another store, or a backup into one.

    What is there stays, what is copied from is left untouched, and both are compared
    afterwards. Stopped half-way, it can be run again.
    """
    from ragmem.store.transfer import compare, copy

    if to is None and file is None:
        raise UsageError("Where to?", hint="Add `--to neo4j` or `--to sqlite`.")
    config, paths = own.config, own.paths
    target = _known(to) if to else config.store.kind
    other = "neo4j" if target == "sqlite" else "sqlite"
    source = _file(file, paths) if file else _store(other, config, paths)
    async with source as found, archive(target, config, paths) as into:
        there = await into.info()
        say(f"from  {visible(found.label)}\nto    {visible(_label(there))}\n")
        if not yes:
            await confirm("Copy it?", "Nothing was copied.")
        try:
            with records(found.total) as show:
                await copy(found.stream, into, show)
                compared = await compare(found.stream, into, show)
        except asyncio.CancelledError:
            say("Stopped. What was copied stays there; run it again to go on.\n")
            raise
    write(comparison_text(compared))
    if not compared.equal:
        return EXIT_FAILED
    if config.store.kind != target:
        say(f"`ragmem store use {target}` keeps memory there from now on.\n")
    return EXIT_DONE


@command(app, home)
async def backup(
    own: Home,
    file: Annotated[Path | None, argument("FILE", "A new file; else one in `backups`.")] = None,
) -> None:
    """Write all of memory into one file, while others go on working.

    `ragmem store migrate --from FILE` brings it back.
    """
    from ragmem.store.sqlite import SQLiteStore
    from ragmem.store.transfer import stream_of
    from ragmem.store.transfer.stream import write_lines

    kind = own.config.store.kind
    if file is None:
        file = _backup_file(own.paths, "memory", "db" if kind == "sqlite" else "jsonl")
    file = file.expanduser().absolute()
    async with archive(kind, own.config, own.paths, existing=True) as store:
        found = await store.info()
        with new_file(file) as part:
            if isinstance(store, SQLiteStore):
                await store.copy_to(part)
            else:
                with part.open("wb") as out, records(await _total(store, found)) as show:
                    await write_lines(stream_of(store), out, show)
        size = file.stat().st_size
    write(f"{visible(str(file))}\n")
    say(f"{counts(found)}, {size / 1e6:,.1f} MB\n")


def _backup_file(paths: Paths, name: str, suffix: str) -> Path:
    folder = paths.data_dir / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return folder / f"{name}-{now}.{suffix}"


@command(app, home)
async def check(own: Home) -> int:
    """Look whether memory is whole; exit 1 when it is not."""
    async with archive(own.config.store.kind, own.config, own.paths, existing=True) as store:
        findings = await store.check()
        found = await store.info()
    write("".join(map(not_so, findings)))
    if findings:
        return EXIT_FAILED
    write(f"All is well: {counts(found)}.\n")
    return EXIT_DONE


def not_so(finding: Finding) -> str:
    """A broken promise in a line."""
    return f"not so: {finding.what} ({finding.count}: {visible(finding.where)})\n"


@command(app, home)
async def repair(own: Home) -> int:
    """Make a damaged memory whole again; what was there before is kept.

    Of a SQLite memory, what can be read is saved into a new one. In Neo4j it is mended in its
    place: counted and numbered anew, and what belongs to nothing gets a session. Nothing is
    deleted.
    """
    if own.config.store.kind == "neo4j":
        return await _mend_graph(own.config, own.paths)
    return await _save_database(own.config, own.paths)


@command(app, open_app)
async def reembed(opened: "App") -> None:
    """Make all vectors anew, with the embedder of the settings.

    Those of turns and summaries, for when `model.embedding` has changed: until then
    search goes by words alone. Stopped half-way, it can be run again and goes on.
    """
    store = await opened.store()
    found = (await store.info()).counts
    try:
        with records(found["turns"] + found["summaries"] + found["memories"]) as show:
            done = await opened.background.reembed(lambda count: show("embedding", count))
    except asyncio.CancelledError:
        say("Stopped. What was embedded stays; run it again to go on.\n")
        raise
    mark = await store.embedder()
    by = f" by {mark.model_id}" if mark else ""
    made = f"{done:,} turns, summaries and memories were embedded{by}.\n"
    write(made if done else "Nothing was to do.\n")


def store_text(found: StoreInfo) -> str:
    """The store as a person reads it."""
    lines = [
        f"store      {found.kind} {visible(found.version)}",
        f"location   {visible(found.location)}",
        f"schema     version {found.schema_version}",
    ]
    lines += [f"{name.replace('_', ' '):<10} {count:,}" for name, count in found.counts.items()]
    if found.size_bytes is not None:
        lines.append(f"size       {found.size_bytes / 1e6:,.1f} MB")
    return "\n".join(lines) + "\n"


# --- what is copied -----------------------------------------------------------


class _Source(msgspec.Struct, frozen=True):
    stream: "Stream"
    label: str
    total: int
    """Records, about."""


@asynccontextmanager
async def _store(kind: str, config: Config, paths: Paths) -> AsyncIterator[_Source]:
    from ragmem.interface.address import configured
    from ragmem.store.spool.files import Spool
    from ragmem.store.transfer import stream_of

    async with archive(kind, config, paths, existing=True) as store:
        where = configured(config, paths, environment(), kind=kind)
        older = [paths.spool_dir / name for name in where.older_spools]
        spool = Spool(paths.spool_dir / where.spool, older=older)
        spool.meet(await store.store_id())
        if waiting := spool.count_waiting():
            raise StoreUnavailable(
                f"{waiting} writes still wait for {kind}.",
                hint=f"With `store.kind = {kind}`, any command that reads memory stores them.",
            )
        found = await store.info()
        yield _Source(stream_of(store), _label(found), await _total(store, found))


@asynccontextmanager
async def _file(file: Path, paths: Paths) -> AsyncIterator[_Source]:
    from ragmem.store.sqlite import SQLiteStore
    from ragmem.store.transfer import stream_of
    from ragmem.store.transfer.stream import count_lines, stream_of_lines

    if not _is_database(file):
        yield _Source(stream_of_lines(file), str(file), count_lines(file))
        return
    # A copy: to open a database is to write beside it, and to bring its schema up to date.
    with tempfile.TemporaryDirectory(prefix="restoring-", dir=paths.data_dir) as folder:
        database = Path(folder) / "memory.db"
        shutil.copyfile(file, database)
        store = await SQLiteStore.open(database, locks_dir=Path(folder) / "locks")
        try:
            found = await store.info()
            yield _Source(stream_of(store), str(file), await _total(store, found))
        finally:
            await store.aclose()


def _is_database(file: Path) -> bool:
    """Of the two kinds of backup; UsageError for what is neither."""
    from ragmem.store.transfer.stream import is_lines

    try:
        with file.open("rb") as beginning:
            if beginning.read(len(_SQLITE)) == _SQLITE:
                return True
        if is_lines(file):
            return False
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.") from None
    raise UsageError(f"{file} is no backup of ragmem's memory.")


def comparison_text(compared: "Comparison") -> str:
    """Counts and checksums of both sides, and what they mean."""
    rows = [
        (
            kind.replace("_", " "),
            f"{counter.count:,}",
            counter.text,
            "equal" if compared.target[kind] == counter else compared.target[kind].text,
        )
        for kind, counter in compared.source.items()
    ]
    lines = [table(("RECORDS", "COUNT", "CHECKSUM", "COPY"), rows)]
    if compared.later:
        lines.append(f"{compared.later:,} went on there since: they were left as they are.\n")
    if not compared.equal:
        lines += [f"{visible(each)}\n" for each in compared.differing]
        lines.append(
            f"{compared.differing_count:,} are not the same. If somebody worked meanwhile, run it "
            "again.\n"
        )
    return "".join(lines)


def _label(found: StoreInfo) -> str:
    return f"{found.kind} {found.location} ({counts(found)})"


def counts(found: StoreInfo) -> str:
    """How much there is, in few words."""
    kinds = [("sessions", "session"), ("turns", "turn")]
    kinds += [("memories", "memory")] if found.counts["memories"] else []
    return ", ".join(counted(found.counts[kind], name) for kind, name in kinds)


async def _total(store: Archive, found: StoreInfo) -> int:
    """How many records are moved, about; files of the code index among them."""
    code = [len(await store.code_files(project)) for project in await store.code_projects()]
    return sum(found.counts[kind] for kind in _MOVED) + sum(code)


# --- repair -------------------------------------------------------------------


async def _save_database(config: Config, paths: Paths) -> int:
    """What can be read goes into a new database, which takes the damaged one's place."""
    from ragmem.store.spool.files import Spool
    from ragmem.store.sqlite import SQLiteStore, backups, files

    try:
        async with archive("sqlite", config, paths, existing=True) as store:
            findings = await store.check()
    except (StoreDamaged, UsageError):  # the latter where there is none
        if not (_holds_something(paths.database) or backups.newest_first(paths.database)):
            raise
    else:
        if not findings:
            write(_WELL)
            return EXIT_DONE
    with tempfile.TemporaryDirectory(prefix="repairing-", dir=paths.data_dir) as folder:
        # What waits in the spool waits for the new one, if nobody can read any more for whom.
        known = Spool(paths.spool_dir / "sqlite").store_id
        lost, backup = _rebuilt(paths, Path(folder), known)
        store = await SQLiteStore.open(Path(folder) / "memory.db", locks_dir=Path(folder) / "locks")
        try:
            found = await store.info()
        finally:
            await store.aclose()
        kept = files.exchange(paths.database, Path(folder) / "memory.db")
    write(f"Saved: {counts(found)}.\n")
    said = "Nothing could be read." if lost is None else f"{lost} places could not be read."
    if backup is not None:
        said += f" What is missing was taken from {visible(str(backup))}, as far as it is there."
    if kept.exists():
        said += f" The damaged database is kept as it was: {visible(str(kept))}"
    say(f"{said}\n")
    return EXIT_DONE


def _holds_something(database: Path) -> bool:
    return database.exists() and database.stat().st_size > 0


def _rebuilt(paths: Paths, folder: Path, known_id: str) -> tuple[int | None, Path | None]:
    """Places that were lost, None for all of them; and the backup that stood in for them.

    StoreDamaged where neither the database nor a backup can be read.
    """
    from ragmem.store.open import owner_of_file
    from ragmem.store.sqlite import backups
    from ragmem.store.sqlite.rebuild import DamagedDatabase, rebuild

    sources: list[DamagedDatabase] = []
    backup = next(iter(backups.newest_first(paths.database)), None)
    try:
        try:
            sources.append(DamagedDatabase(paths.database, folder))
        except StoreDamaged:
            if backup is None:
                raise
        remains = sources[0] if sources else None
        if backup is not None:
            sources.append(DamagedDatabase(backup, folder))
        rebuild(
            sources,
            folder / "memory.db",
            folder / "locks",
            owner=owner_of_file(paths),
            store_id=known_id,
        )
        return (remains.lost if remains else None), backup
    finally:
        for source in sources:
            source.connection.close()


async def _mend_graph(config: Config, paths: Paths) -> int:
    """All is mended in its place, after a copy of it was written."""
    from ragmem.store.neo4j.repair import Repair
    from ragmem.store.neo4j_server import find_connection
    from ragmem.store.open import home_owner

    connection = find_connection(config, paths, environment())
    timeout_s = max(_TIMEOUT_S, config.store.timeout_s)
    mending = await Repair.open(connection, timeout_s=timeout_s, owner=home_owner(paths))
    try:
        if not await mending.findings():
            write(_WELL)
            return EXIT_DONE
        kept = _backup_file(paths, "graph", "damaged.jsonl")
        with new_file(kept) as part, part.open("wb") as out:
            async for portion in mending.graph():
                out.writelines(msgspec.json.encode(row) + b"\n" for row in portion)
        say(f"The graph as it was is kept: {visible(str(kept))}\n")
        for change in await mending.mend(utc_now()):
            say(f"{change.what}: {visible(change.where)}\n")
        left = await mending.findings()
    finally:
        await mending.aclose()
    async with archive("neo4j", config, paths) as store:
        write(f"Saved: {counts(await store.info())}.\n")
    write("".join(map(not_so, left)))
    return EXIT_FAILED if left else EXIT_DONE
