"""What `ragmem store migrate`, `backup` and `check` do."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.cli.choice import ask_line
from ragmem.cli.new_file import new_file
from ragmem.cli.streams import is_interactive, say, write
from ragmem.cli.table import table
from ragmem.cli.transfer_progress import progress
from ragmem.config import Config, Paths, environment
from ragmem.errors import EXIT_DONE, EXIT_FAILED, StoreUnavailable, UsageError
from ragmem.interface.address import configured
from ragmem.store.base import Archive, Finding, StoreInfo
from ragmem.store.opening import open_archive
from ragmem.store.spool.files import Spool
from ragmem.store.sqlite import SQLiteStore
from ragmem.store.transfer import Compared, Stream, compare, copy, stream_of
from ragmem.store.transfer.lines import count_lines, is_lines, stream_of_lines, write_lines
from ragmem.text import counted, visible

_SQLITE = b"SQLite format 3\0"
_MOVED = ("projects", "sessions", "turns", "summaries", "memories")


class _Source(msgspec.Struct, frozen=True):
    stream: Stream
    label: str
    total: int
    """Records, about."""


async def migrate(
    config: Config, paths: Paths, *, target: str, backup: Path | None, confirmed: bool
) -> int:
    """Copy all of the other store, or of a backup, into the target; compare; the exit code."""
    other = "neo4j" if target == "sqlite" else "sqlite"
    source = _file(backup, paths) if backup else _store(other, config, paths)
    async with source as found, opened(target, config, paths) as into:
        there = await into.info()
        say(f"from  {visible(found.label)}\nto    {visible(_label(there))}\n")
        if not confirmed:
            await confirm("Copy it?", "Nothing was copied.")
        try:
            with progress(found.total) as show:
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


async def backup(config: Config, paths: Paths, file: Path | None) -> int:
    """Write the store in use into a new file; the exit code."""
    file = _named(file, paths, config.store.kind)
    async with opened(config.store.kind, config, paths, existing=True) as store:
        found = await store.info()
        with new_file(file) as part:
            if isinstance(store, SQLiteStore):
                await store.copy_to(part)
            else:
                with part.open("wb") as out, progress(await _total(store, found)) as show:
                    await write_lines(stream_of(store), out, show)
        size = file.stat().st_size
    write(f"{visible(str(file))}\n")
    say(f"{counts(found)}, {size / 1e6:,.1f} MB\n")
    return EXIT_DONE


async def check(config: Config, paths: Paths) -> int:
    """Say what is wrong with the store in use; the exit code."""
    async with opened(config.store.kind, config, paths, existing=True) as store:
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


async def confirm(question: str, otherwise: str) -> None:
    """UsageError unless a person says yes; without one, --yes has to."""
    if not is_interactive():
        raise UsageError("There is nobody to ask here.", hint="Add --yes to do it without asking.")
    if (await ask_line(f"{question} [y/N] ")).casefold() not in ("y", "yes"):
        raise UsageError(otherwise)


def comparison_text(compared: Compared) -> str:
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


@asynccontextmanager
async def opened(
    kind: str, config: Config, paths: Paths, *, existing: bool = False
) -> AsyncIterator[Archive]:
    """The store of that kind, as it is, without the spool."""
    store = await open_archive(kind, config, paths, environment(), existing=existing)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def _store(kind: str, config: Config, paths: Paths) -> AsyncIterator[_Source]:
    async with opened(kind, config, paths, existing=True) as store:
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
    try:
        with file.open("rb") as beginning:
            if beginning.read(len(_SQLITE)) == _SQLITE:
                return True
        if is_lines(file):
            return False
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.") from None
    raise UsageError(f"{file} is no backup of ragmem's memory.")


def _named(file: Path | None, paths: Paths, kind: str) -> Path:
    if file is not None:
        return file.expanduser().absolute()
    folder = paths.data_dir / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return folder / f"memory-{now}.{'db' if kind == 'sqlite' else 'jsonl'}"


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
