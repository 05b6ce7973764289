"""The spool's files, one for each process and locked while it lives, and their way back.

Each is lines of JSON, private (0600), synced before it is spoken of. A torn last
line was never acknowledged and costs only itself.

They lie in a folder that bears the address of the database, and the name of each ends with the id
of the store that its lines are for (`…@ID.jsonl`), as soon as that is known. Such a file is that
store's alone, whatever its address; one without an id belongs to whichever store is found there.
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

from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
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
    """Write one line each, without its end; none for vectors, which are made anew."""
    return [_to_line(write) for write in writes if not isinstance(write, PutVectors)]


def from_line(line: bytes) -> Write | None:
    """Read a write; None for what this version can't store: torn, damaged, too long, newer."""
    try:
        return write_decoder.decode(line) if len(line) < MOST_IN_A_LINE else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def damage(line: bytes) -> str:
    """Why no version can store a line; empty for one that a newer version can."""
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
"""Bytes, twice and more what a turn stores: what is longer would be read and stored for minutes."""


class SpoolFile:
    """One file, locked; read from its start, appended to at its end."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.store_id = store_of(path)
        """Of whom its lines are; empty while that is not known."""
        self._handle = handle
        # Who takes it over may be cancelled before it has it: the lock goes with the object.
        self._let_go = weakref.finalize(self, os.close, handle)
        self._size = os.fstat(handle).st_size
        self._offset = 0

    @classmethod
    def create(cls, folder: Path, store_id: str = "") -> "SpoolFile":
        """A new file of this process."""
        make_private(folder)
        failpoint("spool.create")
        while True:
            path = folder / _new_name(store_id)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            # Another process may take a new file for one that was left, and remove it.
            if file := cls._locked(path, os.open(path, flags, 0o600)):
                sync_folder(folder)
                return file

    @classmethod
    def adopt(cls, path: Path) -> "SpoolFile | None":
        """A file that a process has left; None while its process lives."""
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
        """Append all of the lines, on the disk when this returns; none of them on an OSError."""
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
        """The next whole lines, about a megabyte at most or one; the same until `advance`."""
        data = bytearray()
        while b"\n" not in (more := os.pread(self._handle, _CHUNK, self._offset + len(data))):
            if not more:
                return []
            data += more
        data += more
        return bytes(data[: data.rfind(b"\n")]).split(b"\n")[:count]

    def advance(self, lines: Sequence[bytes]) -> None:
        """Mark the lines that were read last as dealt with."""
        failpoint("spool.advance")
        self._offset += sum(len(line) + 1 for line in lines)
        if self._offset == self._size:
            with contextlib.suppress(OSError):  # then it goes with a later one, or at closing
                failpoint("spool.truncate")
                os.ftruncate(self._handle, 0)
                self._offset = self._size = 0

    def count(self) -> int:
        """Count the lines that wait in it."""
        data = os.pread(self._handle, self._size - self._offset, self._offset)
        return data.count(b"\n")

    def close(self) -> None:
        """Leave what waits to another process; what was dealt with goes."""
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
            self._let_go()


class Spool:
    """This process' waiting lines, in order.

    `folder` is the address's, `older` are those that earlier versions used for it. Everything here
    blocks; it is called from one thread.
    """

    def __init__(self, folder: Path, *, older: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._older = older
        self.store_id = met(folder)
        """Of the store that was last met at this address; empty before one was."""
        self._file: SpoolFile | None = None

    def meet(self, store_id: str) -> int:
        """This store is at the address now. How many lines of this process are another's: they
        are left for it.
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
        """Keep the lines: all of them, or none on an OSError."""
        if self._file and self._file.store_id != self.store_id and not self._file.count():
            self.close()  # It was begun before the store was known.
        if self._file is None:
            self._file = SpoolFile.create(self.folder, self.store_id)
        self._file.append(lines)

    def read(self, count: int) -> list[bytes]:
        """The lines that have waited longest; the same again until `advance`."""
        return self._file.read(count) if self._file else []

    def advance(self, lines: Sequence[bytes]) -> None:
        """Mark the lines that were read last as dealt with."""
        if self._file:
            self._file.advance(lines)

    def others(self) -> list[Path]:
        """Files for this store that other processes have left or are using, oldest first."""
        return [path for path in self._ours() if not self._file or path != self._file.path]

    def elsewhere(self, text: str, *, but: Collection[str]) -> bool:
        """Whether a file of another process, but one of these names, holds a text."""
        wanted = text.encode()
        for path in self.others():
            # One that is not there any more is stored.
            with contextlib.suppress(OSError):
                if path.name not in but and wanted in path.read_bytes():
                    return True
        return False

    def count_waiting(self) -> int:
        """Writes that wait for this store, of every process."""
        return sum(map(_count, self._ours()))

    def count_aside(self) -> int:
        """Lines that were damaged, or too long, and wait no more."""
        return sum(map(_count, _files(self.folder / _ASIDE)))

    def _ours(self) -> list[Path]:
        """The store's files, oldest first: without an id those of its address, else of any."""
        here = {path for each in (self.folder, *self._older) for path in _files(each)}
        found = {path for path in here if store_of(path) in ("", self.store_id)}
        if self.store_id:
            with contextlib.suppress(OSError):
                for each in self.folder.parent.iterdir():
                    found |= {path for path in _files(each) if store_of(path) == self.store_id}
        return sorted(found, key=lambda path: path.name)

    def close(self) -> None:
        """Leave what waits to the next process."""
        if self._file:
            # Of a disk that fails, what was dealt with may be replayed: no harm.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def met(folder: Path) -> str:
    """The id of the store that was last met at an address, whose folder this is; else empty."""
    try:
        return _note(folder).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.id")


def store_of(path: Path) -> str:
    """The id of the store that a file is for; empty while that is not known."""
    return path.stem.partition(_FOR)[2]


def keep_leftover(folder: Path, lines: Sequence[bytes], store_id: str = "") -> str | None:
    """Keep what the store did not take, what is damaged for itself: the file of what still waits.

    A line that no version stores would be tried by each process to come.
    """
    if damaged := [line for line in lines if damage(line)]:
        set_aside(folder / _ASIDE, damaged)
    waiting = [line for line in lines if not damage(line)]
    return set_aside(folder, waiting, store_id) if waiting else None


def set_aside(folder: Path, lines: Sequence[bytes], store_id: str = "") -> str:
    """A new file of these lines, whole or not at all; its name."""
    make_private(folder)
    path = folder / _new_name(store_id)
    failpoint("spool.set_aside")
    replace_private(path, _joined(lines), sync=True)
    failpoint("spool.set_aside")
    sync_folder(folder)
    return path.name


def count_waiting(folder: Path, *, deep: bool = False) -> int:
    """Writes that wait in this folder, or in all folders in it, of every process and store."""
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


# --- back into the store ----------------------------------------------------------------


_MOST_AT_ONCE = 64


class Replay:
    """What this process has brought back into the store."""

    def __init__(self, spool: Spool, disk_thread: Executor) -> None:
        self._spool = spool
        self._disk_thread = disk_thread
        self.batch = _MOST_AT_ONCE
        """Lines in one transaction: halved when one took too long, doubled when it did not."""
        self.known: set[str] = set()
        """Files whose lines the store did not take: not tried again by this process."""
        self._refused = ""
        self.begin()

    def begin(self) -> None:
        """Start counting anew."""
        self.started_at = time.monotonic()
        self.count = 0
        """Lines that the store took."""

    def take_refusal(self) -> str:
        """Why the store did not take a write, the last time; empty once that was told."""
        why, self._refused = self._refused, ""
        return why

    async def left(self, store: Store) -> int:
        """Write what dead processes have left; how many lines the store took."""
        before = self.count
        for path in await self.on_disk(self._spool.others):
            if path.name not in self.known and (
                file := await self.on_disk(partial(SpoolFile.adopt, path))
            ):
                # What one store has begun to take is no other's.
                file.store_id = self._spool.store_id
                try:
                    async for _ in self.lines(store, file):
                        pass
                finally:
                    # Also when cut short: what is in the store need not be written again, and a
                    # slow store is done with it in the end, however short the processes.
                    await self.on_disk(file.close)
        return self.count - before

    async def lines(self, store: Store, source: Spool | SpoolFile) -> AsyncIterator[int]:
        """Write what waits there, in order; yields of how many lines each batch was."""
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
        """Do what blocks on a thread of its own."""
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
                # Is it this write, or any? An owner that nobody is has nothing to give up.
                await store.detach(new_id())
            self._refused = str(error)
            return list(lines)
        self.batch = min(_MOST_AT_ONCE, 2 * self.batch)
        self.count += len(lines)
        return []


class KnownProjects:
    """A private file beside the spool. What can't be read or written costs only this comfort."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> list[Project]:
        """Read them; none where there is no file."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Project])
        except (OSError, msgspec.MsgspecError):
            return []

    def save(self, projects: list[Project]) -> None:
        """Replace the file, if it says something else."""
        if projects == self.load():
            return
        with contextlib.suppress(OSError, UnicodeEncodeError):
            make_private(self._file.parent)
            replace_private(self._file, msgspec.json.encode(projects), sync=False)

    def add(self, projects: Iterable[Project]) -> None:
        """Know those that wait in the spool too."""
        every = (*self.load(), *projects)
        self.save(list({project.project_id: project for project in every}.values()))
