"""What `ragmem store repair` does: a new database out of a damaged one, or a graph mended."""

import tempfile
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.cli.moving import counts, not_so, opened
from ragmem.cli.new_file import new_file
from ragmem.cli.streams import say, write
from ragmem.config import Config, Paths, environment
from ragmem.errors import EXIT_DONE, EXIT_FAILED, StoreDamaged, UsageError
from ragmem.records import utc_now
from ragmem.store.owning import home_owner, owner_of_file
from ragmem.store.spool.files import Spool
from ragmem.store.sqlite import SQLiteStore, backups, files
from ragmem.store.sqlite.rebuild import Remains, rebuild
from ragmem.text import visible

_WELL = "Nothing to repair: all is well.\n"
_TIMEOUT_S = 600.0
"""For one step over all of a graph."""


async def repair(config: Config, paths: Paths) -> int:
    """Make the store in use whole again; the exit code."""
    if config.store.kind == "neo4j":
        return await _mend_graph(config, paths)
    return await _save_database(config, paths)


async def _save_database(config: Config, paths: Paths) -> int:
    """What can be read goes into a new database, which takes the damaged one's place."""
    try:
        async with opened("sqlite", config, paths, existing=True) as store:
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
    sources: list[Remains] = []
    backup = next(iter(backups.newest_first(paths.database)), None)
    try:
        try:
            sources.append(Remains(paths.database, folder))
        except StoreDamaged:
            if backup is None:
                raise
        remains = sources[0] if sources else None
        if backup is not None:
            sources.append(Remains(backup, folder))
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

    connection = find_connection(config, paths, environment())
    timeout_s = max(_TIMEOUT_S, config.store.timeout_s)
    mending = await Repair.open(connection, timeout_s=timeout_s, owner=home_owner(paths))
    try:
        if not await mending.findings():
            write(_WELL)
            return EXIT_DONE
        kept = _kept(paths)
        with new_file(kept) as part, part.open("wb") as out:
            async for portion in mending.graph():
                out.writelines(msgspec.json.encode(row) + b"\n" for row in portion)
        say(f"The graph as it was is kept: {visible(str(kept))}\n")
        for change in await mending.mend(utc_now()):
            say(f"{change.what}: {visible(change.where)}\n")
        left = await mending.findings()
    finally:
        await mending.aclose()
    async with opened("neo4j", config, paths) as store:
        write(f"Saved: {counts(await store.info())}.\n")
    write("".join(map(not_so, left)))
    return EXIT_FAILED if left else EXIT_DONE


def _kept(paths: Paths) -> Path:
    folder = paths.data_dir / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return folder / f"graph-{now}.damaged.jsonl"
