"""What `ragmem store repair` does: a new database out of a damaged one, or a graph mended."""

import tempfile
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.cli.moving import counts, not_so, opened
from ragmem.cli.new_file import new_file
from ragmem.cli.streams import say, write
from ragmem.config import Config, Paths, environment
from ragmem.errors import EXIT_DONE, EXIT_FAILED, StoreDamaged
from ragmem.records import utc_now
from ragmem.store.base import StoreInfo
from ragmem.store.opening import owner_of_file
from ragmem.store.owning import home_owner
from ragmem.store.spool.files import Spool
from ragmem.store.sqlite import SQLiteStore, files
from ragmem.store.sqlite.salvage import Salvage
from ragmem.store.transfer import copy
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
    except StoreDamaged:
        if not paths.database.exists() or not paths.database.stat().st_size:
            raise
    else:
        if not findings:
            write(_WELL)
            return EXIT_DONE
    with tempfile.TemporaryDirectory(prefix="repairing-", dir=paths.data_dir) as folder:
        # What waits in the spool waits for the new one, if nobody can read any more for whom.
        known = Spool(paths.spool_dir / "sqlite").store_id
        owner = owner_of_file(paths)
        found, lost = await _salvaged(paths.database, Path(folder), known, owner)
        kept = files.exchange(paths.database, Path(folder) / "memory.db")
    write(f"Saved: {counts(found)}.\n")
    say(
        f"{lost} places could not be read. The damaged database is kept as it was: "
        f"{visible(str(kept))}\n"
    )
    return EXIT_DONE


async def _salvaged(
    database: Path, folder: Path, known_id: str, owner: str
) -> tuple[StoreInfo, int]:
    """What the new database in the folder holds, and how many places were lost."""
    salvage = Salvage(database, folder)
    try:
        store = await SQLiteStore.open(
            folder / "memory.db", locks_dir=folder / "locks", owner=owner, everyone=True
        )
        try:
            await copy(salvage.writes, store, lambda _phase, _count: None)
            if its_id := salvage.store_id() or known_id:
                await store.take_id(its_id)
            return await store.info(), salvage.lost
        finally:
            await store.aclose()
    finally:
        salvage.close()


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
