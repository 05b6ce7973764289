"""Copies of the database that nobody asked for: one a day, the newest three, for a broken disk.

They lie beside those of `ragmem store backup`, under names of their own. What is deleted goes
from them too: with a deletion all of them go, and the next day's is made at once.
"""

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw

from ragmem.failpoints import failpoint
from ragmem.files import sync_folder
from ragmem.locks import OwnerLocks, lock
from ragmem.store.sqlite import files, schema
from ragmem.store.sqlite.connection import Access, Database

FOLDER = "backups"
_MOST = 3
_EACH = timedelta(days=1)
_ROOM = 3
"""So many times the database's size has to be free."""
_TIMEOUT_S = 5.0


def newest_first(database: Path) -> list[Path]:
    """The database's own backups that there are."""
    return sorted(database.parent.glob(f"{FOLDER}/daily-*.db"), reverse=True)


def drop(database: Path) -> None:
    """Remove them all, since they hold what is deleted now."""
    for backup in newest_first(database):
        backup.unlink(missing_ok=True)


def keep(database: Path, locks_dir: Path, now: datetime) -> bool:
    """Make today's if it is due, and remove what is older than the newest three.

    False where nothing has changed since the last one, or there is no room for it. Raises OSError
    or what apsw raises where it can't be written or read: a damaged one comes in nobody's place.
    """
    there = newest_first(database)
    if there and not _is_due(database, there[0], now):
        return False
    folder = database.parent / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    if shutil.disk_usage(folder).free < _ROOM * files.size_bytes(database):
        return False
    alone = lock(locks_dir / "backup.lock", timeout_s=_TIMEOUT_S)
    part = folder / ".daily.part"
    try:
        part.unlink(missing_ok=True)
        # SQLite takes an empty file for a new one, and this one is private from the first.
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _copy(database, part, locks_dir)
        part.rename(folder / f"daily-{now.astimezone(UTC):%Y%m%d-%H%M%S}.db")
        sync_folder(folder)
    finally:
        part.unlink(missing_ok=True)
        os.close(alone)
    for old in newest_first(database)[_MOST:]:
        old.unlink(missing_ok=True)
    return True


def _is_due(database: Path, last: Path, now: datetime) -> bool:
    made = last.stat().st_mtime
    changed = [
        path.stat().st_mtime
        for path in (database, database.with_name(f"{database.name}-wal"))
        if path.exists() and path.stat().st_size  # an empty log tells of no change
    ]
    return now.timestamp() - made >= _EACH.total_seconds() and max(changed, default=0.0) > made


def _copy(database: Path, to: Path, locks_dir: Path) -> None:
    db = schema.open_for_reading(database, Access(OwnerLocks(locks_dir)), timeout_s=_TIMEOUT_S)
    try:
        said = db.get("PRAGMA quick_check(1)")
        if said != "ok":
            raise apsw.CorruptError(str(said))
        copy(db, to)
    finally:
        with suppress(apsw.Error):
            db.close()


def copy(db: Database, to: Path) -> None:
    """Write a copy of the database as it is now into a new file, over a reading connection."""
    # To write another file counts as writing.
    db.pragma("query_only", False)
    try:
        db.query("VACUUM INTO :file", file=str(to))
    finally:
        db.pragma("query_only", True)


def rewrite(db: Database) -> bool:
    """Write the file anew: where a page was split, its rest still holds what moved away.

    False while another process reads the old pages, or where the disk has no room for it.
    """
    try:
        db.execute("VACUUM")
        failpoint("sqlite.checkpoint")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError):
        return False
    return True
