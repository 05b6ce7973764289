"""A database's files, its connections, and the schema that this version knows.

Migrations are the numbered `*.sql` files beside this module. New ones are added, but none is ever
changed; each is applied in one transaction together with its record.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw

from ragmem.errors import RagmemError, StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.files import lock, make_private, replace_private, sync_folder
from ragmem.ids import new_id
from ragmem.records import utc_now
from ragmem.store import AHEAD
from ragmem.store.sqlite import documents
from ragmem.store.sqlite.connection import Access, Database, iso

OVERWRITES = "FAST"
"""Overwrites deleted data in pages that are written anyway, at no cost; a deletion by the user
overwrites everything that it frees."""
_MAGIC = b"SQLite format 3\0"
BACKUPS = "backups"
"""Directory of the copies beside a database."""
_BUSY_MS = 5_000
_MARKER = ".initialised"
_MARKER_TEXT = (
    "The memory next to this file was set up. If it is ever missing or empty, ragmem\n"
    "knows from this file that it was lost, and does not start a new one over it.\n"
)


def marker(database: Path) -> Path:
    """Return the file whose existence says that this database was set up."""
    return _beside(database, _MARKER)


def prepare(database: Path, locks_dir: Path) -> bool:
    """Create the directories and an empty file; return whether the database was set up before.

    Raises StoreDamaged for one that was lost or is broken, StoreRefused for what is not a database.
    """
    for folder in (database.parent, locks_dir):
        make_private(folder)
    _tighten(locks_dir)
    # Not the directory of a file that the user named: its locks directory is named after it.
    if not locks_dir.name.startswith(database.name):
        _tighten(database.parent)
    # The marker is written after the database, so it is checked before it.
    was_set_up = marker(database).exists()
    try:
        found = database.stat()
    except FileNotFoundError:
        if was_set_up:
            raise lost(database, "is missing") from None
        # If another store of this process has just created it, closing it would free its locks.
        with suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(os.path.realpath(database), flags, 0o600))
        return False
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise StoreRefused(
            f"{database} is {kind}, where the memory's database should be.",
            hint="Move it away, or set RAGMEM_HOME to another folder.",
        )
    if found.st_size == 0 and was_set_up:
        raise lost(database, "is empty")
    if found.st_size:
        _look_at_header(database, found.st_size)
    for suffix in ("", "-wal", "-shm", _MARKER):
        if (path := _beside(database, suffix)).exists():
            _tighten(path)
    return was_set_up


def state_of(database: Path) -> list[tuple[int, int]]:
    """Return the sizes and times of a database and its log; any change to what is stored shows."""
    database = database.resolve()  # A link's log is beside its target.
    files = [file.stat() for name in ("", "-wal") if (file := _beside(database, name)).exists()]
    return [(found.st_size, found.st_mtime_ns) for found in files if found.st_size]


def copy_files(database: Path, to: Path) -> None:
    """Copy a database with what is only in its log, or has to be rolled back, as it is."""
    database = database.resolve()
    for suffix in ("", "-wal", "-journal"):
        if (file := _beside(database, suffix)).exists():
            shutil.copyfile(file, _beside(to, suffix))


def copy_in_use(database: Path, to: Path) -> None:
    """Copy a database that others may be using, as it is at one moment; nothing is changed there.

    Raises StoreUnavailable if it is written to meanwhile, where SQLite can't prevent it.
    """
    database = database.resolve()
    # A log without shared memory is of nobody who lives, and SQLite would leave some beside it.
    if _beside(database, "-shm").exists() or not has_log(database):
        with suppress(apsw.Error):
            _copy_pages(database, to)
            return
        to.unlink(missing_ok=True)
    state = state_of(database)
    copy_files(database, to)
    if state_of(database) != state:
        raise StoreUnavailable(
            f"{database} was written to while it was copied.",
            hint="Close what uses it, or make a copy with `ragmem store backup`.",
        )


def _copy_pages(database: Path, to: Path) -> None:
    source = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    with closing(source), closing(apsw.Connection(str(to))) as target:
        source.set_busy_timeout(_BUSY_MS)
        with target.backup("main", source, "main") as copying:
            copying.step(-1)


def exchange(database: Path, new: Path, state: list[tuple[int, int]]) -> Path:
    """Put another database in place of a damaged one, which is kept byte for byte.

    Raises StoreUnavailable if the damaged one was written to since it was in that `state_of`.
    """
    writer, is_written = None, False
    try:
        writer = apsw.Connection(str(database), apsw.SQLITE_OPEN_READWRITE)
        leave_untouched(writer)
        writer.execute("BEGIN IMMEDIATE")
    except (apsw.BusyError, apsw.LockedError):
        is_written = True
    except apsw.Error:
        pass  # nobody else can write to it either
    try:
        if is_written or state_of(database) != state:
            raise StoreUnavailable(
                f"The memory's database {database} was written to during the repair.",
                hint="Nothing was changed. Run this again while no other ragmem is working.",
            )
        return _exchange(database, new)
    finally:
        if writer is not None:
            writer.close()


def _exchange(database: Path, new: Path) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    kept = _beside(database, f".damaged-{now}")
    # There is a database at every moment: if killed in between, the damaged one is still there.
    for suffix in ("-wal", ""):
        if (path := _beside(database, suffix)).exists() and (path.stat().st_size or not suffix):
            failpoint("sqlite.exchange")
            other = _beside(kept, suffix)
            try:
                other.hardlink_to(path)
            except OSError:  # the file system has no hard links
                shutil.copyfile(path, other)
                other.chmod(0o600)
    # The log goes first: it must not be applied to the new database.
    for suffix in ("-wal", "-shm"):
        _beside(database, suffix).unlink(missing_ok=True)
    failpoint("sqlite.exchange")
    new.rename(database)
    sync_folder(database.parent)
    return kept


def size_bytes(database: Path) -> int:
    """Return the size of the database and its log together."""
    log = _beside(database, "-wal")
    return database.stat().st_size + (log.stat().st_size if log.exists() else 0)


def inode_of(database: Path) -> int:
    """Return the inode of a database in use; StoreDamaged if the file is gone."""
    try:
        return database.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        raise lost(database, "was moved or deleted while in use") from None
    except OSError as error:
        raise _io_failure(database, error.strerror or str(error)) from None


def daily_copy(database: Path, at: datetime) -> Path:
    """Return the file of the daily copy made at a time."""
    return database.parent / BACKUPS / f"daily-{at.astimezone(UTC):%Y%m%d-%H%M%S}.db"


def daily_copies(database: Path, now: datetime | None = None) -> list[Path]:
    """Return the daily copies, newest first; last those from the future: a clock was wrong."""
    latest = daily_copy(database, (now or utc_now()) + AHEAD)
    made = database.parent.glob(f"{BACKUPS}/daily-*.db")
    return sorted(made, key=lambda file: (file <= latest, file), reverse=True)


def unfinished_copy(database: Path) -> Path:
    """Return the file in which a daily copy is made before it gets its name."""
    return database.parent / BACKUPS / ".daily.part"


def remove_daily_copies(database: Path) -> None:
    """Delete all daily copies, and the one that is being made: it then never gets its name.

    Raises StoreRefused if one can't be deleted.
    """
    # In this order: one that is being made may get its name meanwhile.
    for pattern in (unfinished_copy(database).name, "daily-*.db"):
        for copy in (database.parent / BACKUPS).glob(pattern):
            try:
                copy.unlink(missing_ok=True)
            except OSError as error:
                raise StoreRefused(
                    f"The copy {copy} of the memory, from before this deletion, can't be deleted: "
                    f"{error.strerror or error}.",
                    hint="Make its folder writable, or delete it, and run this again.",
                ) from None


def newest_backup(database: Path) -> Path | None:
    """Return the newest of the user's own backups in their default directory."""
    made = database.parent.glob(f"{BACKUPS}/memory-*.db")
    return max(made, key=lambda file: file.stat().st_mtime, default=None)


def lost(database: Path, how: str) -> StoreDamaged:
    """Return the error for a database that existed and is gone."""
    copies = daily_copies(database)
    way = f"`ragmem store repair` restores {copies[0]}. Or move" if copies else "Move"
    return StoreDamaged(
        f"The memory's database {database} {how}, but it was in use before.",
        hint=f"{way} away what is left of it ({database}*), then run `ragmem store migrate --from "
        f"{newest_backup(database) or 'FILE'}` for a backup, or start with an empty memory.",
    )


def damaged(database: Path, why: str) -> StoreDamaged:
    """Return the error for a file that is not an intact database; it is left as it is."""
    return StoreDamaged(
        f"The memory's database {database} is damaged: {why}. It was left as it is.",
        hint="`ragmem store repair` saves what can be read into a new one and keeps this one. Or "
        f"move {database}* away, then run `ragmem store migrate --from FILE` with a backup.",
    )


class ReadOnly(StoreRefused):
    """The database can't be written; reading it may still work."""

    can_be_read = True


class Full(StoreUnavailable):
    """The file system is full; what is stored can be read."""

    can_be_read = True


def unwritable(database: Path, why: str) -> StoreRefused:
    """Return the error for a database that SQLite may not write."""
    return ReadOnly(
        f"The memory's database {database} can't be written: {why}.",
        hint="Make the file and its folder writable, or set RAGMEM_HOME to another folder.",
    )


def _io_failure(database: Path, why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The memory's database {database}, on the file system {_mount_point(database)}, "
        f"could not be read or written: {why}.",
        hint="Check the disk and its free space; what was stored before is safe.",
    )


def _from_errno(number: int | None, database: Path) -> RagmemError | None:
    """Return the error for an errno, such as a full disk; None for any other number."""
    match number:
        case errno.ENOSPC | errno.EDQUOT:
            return Full(
                f"The file system {_mount_point(database)} is full; nothing more can be stored "
                "there.",
                hint="Free some space; what was stored before is safe.",
            )
        case errno.EIO:
            return _io_failure(database, os.strerror(number))
        case errno.EMFILE | errno.ENFILE:
            return StoreUnavailable(
                f"The memory's database {database} can't be opened: {os.strerror(number)}.",
                hint="Close programs that have many files open, or raise the limit (`ulimit -n`); "
                "what was stored before is safe.",
            )
        case errno.ENOMEM:
            return StoreUnavailable(
                f"The memory's database {database} can't be used: {os.strerror(number)}.",
                hint="Close programs that use much of the machine's memory, then try again; what "
                "was stored before is safe.",
            )
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return unwritable(database, os.strerror(number))
    return None


def translated(
    error: Exception, database: Path, timeout_s: float, number: int = 0
) -> RagmemError | None:
    """Translate an error of SQLite or the file system; None for one that only a bug can cause.

    `number`: the errno behind it, as its connection knows it.
    """
    if isinstance(error, apsw.IOError | apsw.CantOpenError) and (
        known := _from_errno(number or _folder_errno(database), database)
    ):
        return known
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(
                f"The memory's database {database} is in use by another process, "
                f"which did not release it within {timeout_s:g} s.",
                hint="Nothing is damaged; what failed can be tried again.",
            )
        case apsw.FullError():
            return _from_errno(errno.ENOSPC, database)
        case apsw.NoMemError():
            return _from_errno(errno.ENOMEM, database)
        case apsw.NotADBError():
            return damaged(database, "it is not a SQLite database")
        case apsw.CorruptError():
            return damaged(database, str(error))
        case (
            apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError() | apsw.CantOpenError()
        ):
            return unwritable(database, str(error))
        case apsw.TooBigError():
            return StoreRefused(
                "A text of more than 1 GB can't be stored.", hint="Store it as a file."
            )
        case apsw.IOError():
            return _io_failure(database, str(error))
        case OSError():
            why = error.strerror or str(error)
            if isinstance(error, FileExistsError | NotADirectoryError):
                why = "a file stands where a folder should be"
            return _from_errno(error.errno, database) or StoreRefused(
                f"The memory can't use {error.filename or database}: {why}.",
                hint="Make it writable, or set RAGMEM_HOME to a folder that is.",
            )
    return None


def _folder_errno(database: Path) -> int:
    """Return the errno of opening its directory; never the file, whose locks that would free."""
    try:
        os.close(os.open(database.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or 0
    return 0


# --- the file header ----------------------------------------------------------------------


def _header(database: Path) -> bytes:
    """Read the first 100 bytes through SQLite; raises what apsw does.

    Opening and closing the file directly would free every lock that this process holds on it:
    another program that closes the database would then take its log for unused.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
    # SQLite opens the target of a symbolic link, never the link.
    file = apsw.VFSFile("", str(database.resolve()), [flags, 0])
    try:
        return file.xRead(100, 0)
    finally:
        file.xClose()


def _look_at_header(database: Path, size: int) -> None:
    """Raise StoreDamaged for what the header shows: not a SQLite file, or a truncated one."""
    first = _header(database)
    if not first.startswith(_MAGIC) or len(first) < 100:
        raise damaged(database, "it is not a SQLite database")
    page_size = int.from_bytes(first[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    pages = int.from_bytes(first[28:32], "big")
    log = _beside(database, "-wal")
    # With a log, the missing pages may be in there.
    if size < pages * page_size and not (log.exists() and log.stat().st_size):
        raise damaged(database, f"{size} bytes are left of {pages * page_size}")


def _beside(database: Path, suffix: str) -> Path:
    return database.with_name(database.name + suffix)


def _tighten(path: Path) -> None:
    mode = path.stat().st_mode
    # A sticky directory such as /tmp is everybody's: not ours to close.
    if mode & 0o077 and not mode & stat.S_ISVTX:
        path.chmod(stat.S_IMODE(mode) & 0o700)


def _mount_point(path: Path) -> Path:
    path = path.absolute()
    while not path.is_mount() and path != path.parent:
        path = path.parent
    return path


# --- the journal ----------------------------------------------------------------------------
# A write-ahead log needs memory shared between processes, which network drives and some others
# don't provide. A rollback journal only needs locks: writers and readers wait for each other then,
# and nothing else is lost.

_WRITE_VERSION = 18
"""Offset of the header's file format version: 2 is a write-ahead log."""
_NO_SHARED_MEMORY = (apsw.CantOpenError, apsw.IOError, apsw.ProtocolError)
_TEMPORARY = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Temporary reasons for having no shared memory, on a disk that could provide it."""

NETWORK_NOTICE = (
    "The memory's folder can't have a write-ahead log (is it on a network drive?): a rollback "
    "journal is used instead. It is as safe, but processes that share it wait for each other."
)


def has_log(database: Path) -> bool:
    """Whether the header says that the database has a write-ahead log."""
    if not database.is_file():  # opening a pipe would block until somebody writes to it
        return False
    try:
        return _header(database)[_WRITE_VERSION : _WRITE_VERSION + 1] == b"\2"
    except (apsw.Error, OSError):
        return False


# --- the schema -------------------------------------------------------------------------


_MIGRATIONS = tuple(sorted(Path(__file__).parent.glob("*.sql")))
VERSION = int(_MIGRATIONS[-1].stem.partition("_")[0])
"""Version of the schema after the last migration."""
APPLICATION_ID = 0x7261676D
_FIRST_WITH_DOCUMENTS = 3
_FIRST_WITH_OWNERS = 7


def open_for_writing(
    database: Path, access: Access, *, locks_dir: Path, timeout_s: float
) -> Database:
    """Open the connection that may write, on files that are private, intact and up to date."""
    was_set_up = prepare(database, locks_dir)
    db = Database(str(database), apsw.SQLITE_OPEN_READWRITE, access)
    try:
        db.set_busy_timeout(round(timeout_s * 1000))
        if db.readonly("main"):
            raise unwritable(database, "it is read-only")
        if version_of(db, database) < VERSION or documents.is_old(db):
            # One process at a time: switching the journal mode ignores the busy timeout.
            alone = lock(locks_dir / "schema.lock", timeout_s=timeout_s)
            try:
                _migrate(db, database)
                with transaction(db):
                    documents.build(db)
            finally:
                os.close(alone)
        if not store_id(db):
            # If another process is writing right now, leave it to a later opening.
            with suppress(apsw.BusyError), transaction(db):
                if not store_id(db):
                    identify(db, new_id())
        failpoint("sqlite.mark")
        if not was_set_up:
            replace_private(marker(database), _MARKER_TEXT.encode(), sync=True)
        # SQL's horizon(): the latest time that is not from a wrong clock.
        db.create_scalar_function("horizon", lambda *_: iso(db.now + AHEAD), 0)
        db.pragma("synchronous", "FULL")
        db.pragma("secure_delete", OVERWRITES)
        db.pragma("foreign_keys", True)
    except BaseException as error:
        number = db.system_errno
        leave_untouched(db)
        db.close()
        if isinstance(error, apsw.Error) and (
            plain := translated(error, database, timeout_s, number)
        ):
            raise plain from error
        raise
    return db


@contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """Commit all statements of the block or none; durable at its end."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def store_id(db: Database) -> str:
    """Return the database's own id; empty while it has none."""
    if db.get("SELECT 1 FROM sqlite_schema WHERE name = 'identity'") is None:
        return ""
    return str(db.get("SELECT store_id FROM identity") or "")


def identify(db: Database, its_id: str) -> None:
    """Give the database this id, replacing any other; its table is in no schema version."""
    db.execute("CREATE TABLE IF NOT EXISTS identity (store_id TEXT NOT NULL) STRICT")
    db.execute("DELETE FROM identity")
    db.query("INSERT INTO identity VALUES (:id)", id=its_id)


def open_for_reading(database: Path, access: Access, *, timeout_s: float) -> Database:
    """Open a connection that reads while another one writes."""
    # With a rollback journal, a reader has to roll back what another process's crash left.
    only = has_log(database)
    flags = apsw.SQLITE_OPEN_READONLY if only else apsw.SQLITE_OPEN_READWRITE
    db = Database(str(database), flags, access)
    db.set_busy_timeout(round(timeout_s * 1000))
    db.pragma("query_only", True)
    return db


def open_alone(database: Path, access: Access, *, timeout_s: float) -> Database:
    """Open a reading connection with exclusive access, where nothing can be shared.

    Others wait until it is closed. StoreRefused if this version can't read it as it is.
    """
    name, flags = str(database), apsw.SQLITE_OPEN_READWRITE
    log = _beside(database, "-wal")
    is_read_only = bool(os.statvfs(database.parent).f_flag & os.ST_RDONLY)
    if is_read_only and not (log.exists() and log.stat().st_size):
        name = f"{database.absolute().as_uri()}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = Database(name, flags, access)
    db.set_busy_timeout(round(timeout_s * 1000))
    db.pragma("locking_mode", "exclusive")
    db.pragma("query_only", True)
    leave_untouched(db)
    if version_of(db, database) < VERSION:
        db.close()
        raise unwritable(database, "it must be upgraded first")
    return db


def leave_untouched(connection: apsw.Connection) -> None:
    """Don't checkpoint on close: the last connection would move the log into a damaged database."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def version_of(db: Database, database: Path) -> int:
    """Return the schema's version, 0 for a new file; StoreRefused for what is not ours to use."""
    # In one statement: another process may be creating the schema.
    application, version, tables = db.get(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    )
    is_new = not (application or version or tables)
    if application != APPLICATION_ID and not is_new:
        raise StoreRefused(
            f"{database} is another program's database.",
            hint="Move it away, or set RAGMEM_HOME to another folder.",
        )
    if version > VERSION:
        raise StoreRefused(
            f"The memory's database {database} was written by a newer ragmem "
            f"(schema {version}, this one knows up to {VERSION}).",
            hint="Update ragmem; nothing was changed.",
        )
    return int(version)


def _migrate(db: Database, database: Path) -> None:
    if version_of(db, database) == 0:
        try:
            db.pragma("journal_mode", "wal")
        except _NO_SHARED_MEMORY:
            if db.system_errno in _TEMPORARY:
                raise
            db.pragma("journal_mode", "delete")
    for number, name, sql in migrations():
        with transaction(db):
            failpoint("sqlite.migrate")
            # Another process may have been first.
            if version_of(db, database) < number:
                db.execute(sql)
                if number == _FIRST_WITH_DOCUMENTS:
                    documents.build(db)
                if number == _FIRST_WITH_OWNERS:
                    assign_owner(db, db.access.owner)
                row = {"version": number, "name": name, "applied_at": iso(db.now)}
                db.put("migrations", row, "version")
                db.pragma("user_version", number)
            failpoint("sqlite.migrated")


def assign_owner(db: Database, owner: str) -> None:
    """Give the owner whatever was stored before stores knew owners."""
    for table in ("sessions", "memories", "profile", "profile_state"):
        db.query(f"UPDATE {table} SET owner = :owner WHERE owner = ''", owner=owner)


def migrations() -> Iterator[tuple[int, str, str]]:
    """Yield number, name and statements of each migration, in order."""
    for script in _MIGRATIONS:
        number, name = script.stem.split("_", 1)
        yield int(number), name, script.read_text("utf-8")
