"""The spool's files, one per process and locked while it is alive, and their replay.

Each consists of JSON lines, is private (0600), and is synced before writes are acknowledged. A torn
last line was never acknowledged, and only that is lost.

They lie in a folder named after the address of the database, and each name ends with the id of the
store that its lines are for (`…@ID.jsonl`), once that is known. Such a file is for that store
alone, whatever its address; one without an id is for whichever store is found there.
"""

import asyncio
import contextlib
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from ragmem.errors import SessionNotFound, StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.files import make_private, replace_private, sync_folder, take
from ragmem.ids import new_id
from ragmem.records import Project, PutVectors, Write, write_decoder
from ragmem.store import Store, stored

T = TypeVar("T")


class _Named(msgspec.Struct):
    write: str


_encoder = msgspec.json.Encoder()


def to_lines(writes: Sequence[Write]) -> list[bytes]:
    """Encode each write as a line without its newline, except vectors, which can be remade."""
    return [_to_line(write) for write in writes if not isinstance(write, PutVectors)]


def from_line(line: bytes) -> Write | None:
    """Decode a write; None for one this version can't store: torn, damaged, too long, newer."""
    try:
        return write_decoder.decode(line) if len(line) < MOST_IN_A_LINE else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def damage(line: bytes) -> str:
    """Return why no version can store a line; empty for one that a newer version can."""
    if len(line) >= MOST_IN_A_LINE:
        return f"a write of it is larger than {MOST_IN_A_LINE >> 20} MB."
    try:
        msgspec.json.decode(line, type=_Named)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "it is damaged."
    return ""


def _to_line(write: Write) -> bytes:
    try:
        return _encoder.encode(write)
    except (UnicodeEncodeError, OverflowError):
        return _encoder.encode(stored(write))


_SUFFIX = ".jsonl"
_FOR = "@"
_CHUNK = 1 << 20
_ASIDE = "set-aside"
MOST_IN_A_LINE = 24 << 20
"""Bytes; more than twice what a turn stores: a longer line would take minutes to read and store."""


class SpoolFile:
    """One locked file, read from its start and appended to at its end."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.store_id = store_of(path)
        """Id of the store that its lines are for; empty while that is unknown."""
        self._handle = handle
        # If whoever adopts it is cancelled before getting it, the lock is released with the object.
        self._release = weakref.finalize(self, os.close, handle)
        self._size = os.fstat(handle).st_size
        self._offset = 0

    @classmethod
    def create(cls, folder: Path, store_id: str = "") -> "SpoolFile":
        """Create a file of this process."""
        make_private(folder)
        failpoint("spool.create")
        while True:
            path = folder / _new_name(store_id)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            # Another process may take a new file for an abandoned one, and remove it.
            if file := cls._locked(path, os.open(path, flags, 0o600)):
                sync_folder(folder)
                return file

    @classmethod
    def adopt(cls, path: Path) -> "SpoolFile | None":
        """Take over an abandoned file; None while its process is alive."""
        try:
            failpoint("spool.adopt")
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        return cls._locked(path, handle)

    @classmethod
    def _locked(cls, path: Path, handle: int) -> "SpoolFile | None":
        return cls(path, handle) if take(path, handle) else None

    def append(self, lines: Sequence[bytes]) -> None:
        """Append all of the lines and sync; none of them on an OSError."""
        try:
            failpoint("spool.write")
            _write(self._handle, _joined(lines), self._size)
            failpoint("spool.written")
            os.fsync(self._handle)
            failpoint("spool.synced")
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size = os.fstat(self._handle).st_size

    def read(self, count: int) -> list[bytes]:
        """Return the next whole lines, about a megabyte, at least one; the same until `advance`."""
        data = bytearray()
        while b"\n" not in (more := os.pread(self._handle, _CHUNK, self._offset + len(data))):
            if not more:
                return []
            data += more
        data += more
        return bytes(data[: data.rfind(b"\n")]).split(b"\n")[:count]

    def advance(self, lines: Sequence[bytes]) -> None:
        """Mark the lines of the last read as done."""
        failpoint("spool.advance")
        self._offset += sum(len(line) + 1 for line in lines)
        if self._offset == self._size:
            with contextlib.suppress(OSError):  # then a later call or `close` does it
                failpoint("spool.truncate")
                os.ftruncate(self._handle, 0)
                self._offset = self._size = 0

    def count(self) -> int:
        """Count the lines that wait in the file."""
        data = os.pread(self._handle, self._size - self._offset, self._offset)
        return data.count(b"\n")

    def close(self) -> None:
        """Leave waiting lines to another process; remove the file if all are done."""
        try:
            failpoint("spool.close")
            if not self.read(1):
                self.path.unlink(missing_ok=True)
            elif self._offset:
                with contextlib.suppress(OSError):  # then all of it is replayed: no harm
                    rest = os.pread(self._handle, self._size - self._offset, self._offset)
                    lines = rest.rpartition(b"\n")[0].split(b"\n")
                    set_aside(self.path.parent, lines, self.store_id)
                    self.path.unlink()
        finally:
            self._release()


class Spool:
    """This process's waiting lines, in order.

    `folder` is named after the address; `older` are those that earlier versions used for it. All
    methods block, and are called from one thread.
    """

    def __init__(self, folder: Path, *, older: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._older = older
        self.store_id = last_store_id(folder)
        """Id of the store last met at this address; empty before the first."""
        self._file: SpoolFile | None = None

    def meet(self, store_id: str) -> int:
        """Record that this store is at the address; return how many lines are for another one.

        Their file is closed and left.
        """
        if not store_id:
            return 0
        if self.store_id != store_id:
            self.store_id = store_id
            with contextlib.suppress(OSError):
                make_private(self.folder.parent)
                replace_private(_note(self.folder), store_id.encode(), sync=False)
        if not self._file or self._file.store_id in ("", store_id):
            return 0
        count = self._file.count()
        self.close()
        return count

    def append(self, lines: Sequence[bytes]) -> None:
        """Spool the lines: all of them, or none on an OSError."""
        if self._file and self._file.store_id != self.store_id and not self._file.count():
            self.close()  # it was created before the store was known
        if self._file is None:
            self._file = SpoolFile.create(self.folder, self.store_id)
        self._file.append(lines)

    def read(self, count: int) -> list[bytes]:
        """Return the lines that have waited longest; the same until `advance`."""
        return self._file.read(count) if self._file else []

    def advance(self, lines: Sequence[bytes]) -> None:
        """Mark the lines of the last read as done."""
        if self._file:
            self._file.advance(lines)

    def others(self) -> list[Path]:
        """Return the files for this store of other processes, alive or dead, oldest first."""
        return [path for path in self._ours() if not self._file or path != self._file.path]

    def elsewhere(self, text: str, *, but: Collection[str]) -> bool:
        """Whether another process's file contains a text; files named in `but` are skipped."""
        wanted = text.encode()
        for path in self.others():
            # A file that has disappeared is stored.
            with contextlib.suppress(OSError):
                if path.name not in but and wanted in path.read_bytes():
                    return True
        return False

    def count_waiting(self) -> int:
        """Count the writes that wait for this store, of all processes."""
        return sum(map(_count, self._ours()))

    def count_aside(self) -> int:
        """Count lines set aside as damaged or too long, which no longer wait."""
        return sum(map(_count, _files(self.folder / _ASIDE)))

    def _ours(self) -> list[Path]:
        """Return the store's files, oldest first: with its id anywhere, without at its address."""
        here = {path for each in (self.folder, *self._older) for path in _files(each)}
        found = {path for path in here if store_of(path) in ("", self.store_id)}
        if self.store_id:
            with contextlib.suppress(OSError):
                for each in self.folder.parent.iterdir():
                    found |= {path for path in _files(each) if store_of(path) == self.store_id}
        return sorted(found, key=lambda path: path.name)

    def close(self) -> None:
        """Leave waiting lines to the next process."""
        if self._file:
            # On a failing disk, lines that are done may be replayed: no harm.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def last_store_id(folder: Path) -> str:
    """Return the id of the store last met at the address with this folder, or ""."""
    try:
        return _note(folder).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.id")


def store_of(path: Path) -> str:
    """Return the id of the store that a file is for; empty while that is unknown."""
    return path.stem.partition(_FOR)[2]


def keep_leftover(folder: Path, lines: Sequence[bytes], store_id: str = "") -> str | None:
    """Keep lines that the store refused; return the file's name of those that still wait.

    Damaged ones are set aside: no version can store them, and each process would try them again.
    """
    if damaged := [line for line in lines if damage(line)]:
        set_aside(folder / _ASIDE, damaged)
    waiting = [line for line in lines if not damage(line)]
    return set_aside(folder, waiting, store_id) if waiting else None


def set_aside(folder: Path, lines: Sequence[bytes], store_id: str = "") -> str:
    """Write these lines to a new file, atomically; return its name."""
    make_private(folder)
    path = folder / _new_name(store_id)
    failpoint("spool.set_aside")
    replace_private(path, _joined(lines), sync=True)
    failpoint("spool.set_aside")
    sync_folder(folder)
    return path.name


def count_waiting(folder: Path, *, deep: bool = False) -> int:
    """Count the writes that wait in this folder, or `deep` in the folders in it, for any store."""
    found = folder.glob(f"*/*{_SUFFIX}") if deep else _files(folder)
    return sum(map(_count, found))


def _count(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.read_bytes().count(b"\n")
    return 0


def _new_name(store_id: str) -> str:
    return f"{new_id()}{_FOR if store_id else ''}{store_id}{_SUFFIX}"


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return []


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write(handle: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, offset)
        offset += written
        view = view[written:]


# --- replay -------------------------------------------------------------------------------


_MOST_AT_ONCE = 64


class Replay:
    """Writes spooled lines to the store."""

    def __init__(
        self, spool: Spool, disk_thread: Executor, deleted: Callable[[], set[str]]
    ) -> None:
        self._spool = spool
        self._disk_thread = disk_thread
        self._find_deleted = deleted
        self._dropped = 0
        self.batch = _MOST_AT_ONCE
        """Lines per transaction: halved when one took too long, doubled when it did not."""
        self.known: set[str] = set()
        """Names of files whose lines the store refused: not tried again by this process."""
        self._refused = ""
        self.begin()

    def begin(self) -> None:
        """Restart the counts, and forget which sessions were deleted."""
        self._deleted: set[str] | None = None
        self.started_at = time.monotonic()
        self.count = 0
        """Lines that the store has accepted."""

    def take_refusal(self) -> str:
        """Return why the store last refused a write, once; then ""."""
        why, self._refused = self._refused, ""
        return why

    def take_dropped(self) -> int:
        """Return how many writes of deleted sessions were dropped since it was last asked."""
        count, self._dropped = self._dropped, 0
        return count

    async def left(self, store: Store) -> int:
        """Store what dead processes have left; return how many lines the store accepted."""
        before = self.count
        for path in await self.on_disk(self._spool.others):
            if path.name not in self.known and (
                file := await self.on_disk(partial(SpoolFile.adopt, path))
            ):
                # What one store has begun to take is for no other.
                file.store_id = self._spool.store_id
                try:
                    async for _ in self.lines(store, file):
                        pass
                finally:
                    # Also when interrupted: stored lines need not be written again, so that even a
                    # slow store and short-lived processes finish in the end.
                    await self.on_disk(file.close)
        return self.count - before

    async def lines(self, store: Store, source: Spool | SpoolFile) -> AsyncIterator[int]:
        """Store the waiting lines in order; yield the number of lines in each batch."""
        while lines := await self.on_disk(partial(source.read, self.batch)):
            failpoint("spool.replay")
            unknown = [line for line in lines if from_line(line) is None]
            if unknown:
                self._refused = max(map(damage, unknown)) or "it was written by a newer version."
            known = [line for line in lines if line not in unknown] if unknown else lines
            leftover = unknown + await self._apply_known(store, known)
            failpoint("spool.replayed")
            if leftover:
                keep = partial(keep_leftover, self._spool.folder, leftover, self._spool.store_id)
                if kept := await self.on_disk(keep):
                    self.known.add(kept)
            await self.on_disk(partial(source.advance, lines))
            yield len(lines)

    def on_disk(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run blocking work on the disk thread."""
        return asyncio.get_running_loop().run_in_executor(self._disk_thread, work)

    async def _apply_known(self, store: Store, lines: Sequence[bytes]) -> list[bytes]:
        try:
            await store.apply([write for line in lines if (write := from_line(line))])
        except StoreUnavailable:
            self.batch = max(1, len(lines) // 2)
            raise
        except StoreDamaged:
            raise
        except Exception as error:
            if len(lines) > 1:
                return [rest for line in lines for rest in await self._apply_known(store, [line])]
            if isinstance(error, StoreRefused):
                # Is it this write, or any? Detaching an unknown owner writes without any effect.
                await store.detach(new_id())
            if isinstance(error, SessionNotFound) and await self._is_of_deleted(lines[0]):
                self._dropped += 1
                return []
            self._refused = str(error)
            return list(lines)
        self.batch = min(_MOST_AT_ONCE, 2 * self.batch)
        self.count += len(lines)
        return []

    async def _is_of_deleted(self, line: bytes) -> bool:
        """Whether the session that a line is for was deleted; one may also be still to come."""
        if (write := from_line(line)) is None:
            return False
        session_id = getattr(write, "session_id", "") or getattr(write.record, "session_id", "")
        if self._deleted is None:
            self._deleted = await self.on_disk(self._find_deleted)
        return session_id in self._deleted


class KnownProjects:
    """The projects of a store, cached in a private file next to the spool; errors are ignored."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> list[Project]:
        """Return the projects; none if there is no file."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Project])
        except (OSError, msgspec.MsgspecError):
            return []

    def save(self, projects: list[Project]) -> None:
        """Replace the file, if its content has changed."""
        if projects == self.load():
            return
        with contextlib.suppress(OSError, UnicodeEncodeError):
            make_private(self._file.parent)
            replace_private(self._file, msgspec.json.encode(projects), sync=False)

    def add(self, projects: Iterable[Project]) -> None:
        """Add the projects of spooled writes."""
        every = (*self.load(), *projects)
        self.save(list({project.project_id: project for project in every}.values()))
