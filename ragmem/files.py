"""ragmem's own files: paths, private modes, atomic replacement, and locks.

Locks are taken with flock, not POSIX's fcntl: those are released when any descriptor of the file
is closed, and never conflict within a process. The kernel releases a lock when its process ends.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

import msgspec

from ragmem.errors import ConfigError, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import new_id

_MOST_SHOWN = 3


class Paths(msgspec.Struct, frozen=True):
    """The folders of this user: under RAGMEM_HOME if that is set, else the platform's own."""

    config_dir: Path
    data_dir: Path
    log_dir: Path

    @property
    def config_file(self) -> Path:
        """Return the settings file."""
        return self.config_dir / "ragmem.toml"

    @property
    def database(self) -> Path:
        """Return the database file of the SQLite store."""
        return self.data_dir / "memory.db"

    @property
    def locks_dir(self) -> Path:
        """Return the folder for lock files of running processes."""
        return self.data_dir / "locks"

    @property
    def embedder_socket(self) -> Path:
        """Return the socket of the process that has loaded the embedder and serves the others."""
        return self.data_dir / "embedder.sock"

    @property
    def spool_dir(self) -> Path:
        """Return the folder for writes to a store that is unavailable, with one for each store."""
        return self.data_dir / "spool"

    @property
    def neo4j_dir(self) -> Path:
        """Return the folder of the local Neo4j: server, data, password."""
        return self.data_dir / "neo4j"

    @property
    def local_model_dir(self) -> Path:
        """Return the folder of the small local model's weights, with one for each version."""
        return self.data_dir / "local-model"

    @property
    def owner_file(self) -> Path:
        """Return the file with the id and name of this home's owner."""
        return self.data_dir / "owner"

    @property
    def prompt_history(self) -> Path:
        """Return the file with the prompts typed in `chat`."""
        return self.data_dir / "history"

    def make(self) -> "Paths":
        """Create the folders with mode 0700, whatever the umask; raises ConfigError."""
        if self == NO_HOME:
            raise ConfigError(
                "No home folder for the memory: HOME is not set.",
                hint="Set RAGMEM_HOME to a writable folder.",
            )
        for folder in self.own_folders:
            try:
                make_private(folder)
                # What was stored before can be read in a folder that is not writable.
                is_writable = folder != self.data_dir or os.access(folder, os.W_OK | os.X_OK)
                if not is_writable and not any(folder.iterdir()):
                    raise OSError("it is not writable")
            except OSError as error:
                why = error.strerror or str(error)
                if isinstance(error, FileExistsError | NotADirectoryError):
                    why = "a file is in its place"
                raise ConfigError(
                    f"Can't use the folder {folder}: {why}.",
                    hint="Make it writable, or set RAGMEM_HOME to a folder that is.",
                ) from None
        return self

    def close_to_others(self) -> str:
        """Remove other users' rights; return a message about what they had, else nothing."""
        inside = [entry for folder in (self.data_dir, self.log_dir) for entry in _entries(folder)]
        loose = [
            f"{path} (was {mode:04o})"
            for path in dict.fromkeys([*self.own_folders, *inside])
            if (mode := _remove_others_rights(path))
        ]
        if not loose:
            return ""
        more = f" and {len(loose) - _MOST_SHOWN:,} more" if len(loose) > _MOST_SHOWN else ""
        return f"Others could read {', '.join(loose[:_MOST_SHOWN])}{more}; permissions were fixed."

    @property
    def neo4j_password(self) -> str:
        """Return the password of the local Neo4j; empty if there is none."""
        with suppress(OSError, UnicodeDecodeError):
            return (self.neo4j_dir / "password").read_text("utf-8").strip()
        return ""

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """Return all folders, which no tool reads or changes, and which are never indexed."""
        return (self.config_dir, self.data_dir, self.log_dir)


NO_HOME = Paths(*(Path(os.devnull, "no-home", name) for name in ("config", "data", "logs")))
"""Paths that can't exist, for a user without a home folder if RAGMEM_HOME is not set."""


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _remove_others_rights(path: Path) -> int:
    """Remove other users' rights; return the previous mode if there were any, else 0."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        # A sticky folder such as /tmp is shared on purpose, and a symbolic link has no mode.
        ours = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if ours and mode & 0o077 and not mode & stat.S_ISVTX:
            path.chmod(stat.S_IMODE(mode) & 0o700)
            return stat.S_IMODE(mode)
    return 0


def refusal(folder: Path) -> str:
    """Return why a folder may not be indexed as a project; empty if it may."""
    real = Path(os.path.realpath(folder))
    if real == Path(real.anchor):
        return "it is the root of the file system"
    home = home_folder()
    if real == home:
        return "it is your home folder"
    return "your home folder is in it" if home and home.is_relative_to(real) else ""


def home_folder() -> Path | None:
    """Return the real path of the user's home; None if neither HOME nor the system names one."""
    home = os.path.expanduser("~")
    return Path(os.path.realpath(home)) if os.path.isabs(home) else None


_DRAFT = ".ragmem-"
_DRAFT_S = 60.0
"""How long ago a draft was written to if nobody is still writing it."""
_WORK_FOLDER = re.compile(r"(restoring|repairing)-(?P<owner_id>.+)")


@contextmanager
def work_folder(paths: Paths, task: str) -> Iterator[Path]:
    """Make a private folder for a copy of a whole memory; it is removed at the end."""
    remove_leftovers(paths)
    make_private(paths.locks_dir)
    locks, owner_id = OwnerLocks(paths.locks_dir), new_id()
    locks.hold(owner_id)
    folder = paths.data_dir / f"{task}-{owner_id}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        locks.release(owner_id)


def remove_leftovers(paths: Paths) -> None:
    """Remove the work folders, and the drafts of files, of processes that were killed."""
    locks = OwnerLocks(paths.locks_dir)
    for file in (*_entries(paths.data_dir), *_entries(paths.spool_dir)):
        if file.name.startswith(_DRAFT):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > _DRAFT_S:
                    file.unlink()
    for folder in _entries(paths.data_dir):
        found = _WORK_FOLDER.fullmatch(folder.name)
        if found and not locks.lives(found["owner_id"]):
            shutil.rmtree(folder, ignore_errors=True)


_PATH_MAX = 4096
"""The largest PATH_MAX of supported systems, in bytes with the final NUL."""


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # `parents=True` would create them with the default mode.
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


class TemporaryFolder:
    """A private folder outside of ragmem's own, with a name that nobody can guess.

    It is created by whoever first needs it, with mode 0700, and removed by `close`, or when the
    process exits; a process that is killed leaves it behind.
    """

    def __init__(self) -> None:
        """Choose the path."""
        import tempfile

        name = f"ragmem-{os.urandom(16).hex()}"
        self.path = Path(os.path.realpath(tempfile.gettempdir()), name)
        self._removal = finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder with everything in it."""
        self._removal()


def replace_private(path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a file atomically, with mode 0600; after an OSError the old one is still there.

    With `sync` the data is flushed to disk before renaming; see `sync_folder` for the name.
    """
    draft = path.with_name(f"{_DRAFT}{new_id()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as out:
            out.write(data)
            if sync:
                out.flush()
                os.fsync(out.fileno())
        failpoint("private.written")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_new_private(path: Path, data: bytes) -> None:
    """Create a file atomically, with mode 0600; raises FileExistsError."""
    draft = path.with_name(f"{_DRAFT}{new_id()}")
    replace_private(draft, data, sync=True)
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links.
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path, within: int | None = None) -> None:
    """Flush a folder's entries to disk, so that new names in it survive a power failure.

    A relative path is one below the descriptor `within`. Does nothing on file systems that can't,
    as some of networks.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=within)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def append_line(handle: int, line: bytes) -> int:
    """Append a line to an open, locked file; return the file's size before it."""
    size = os.lseek(handle, 0, os.SEEK_END)
    # An incomplete last line, as a full disk leaves it, is terminated first.
    torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    os.write(handle, b"\n" * torn + line + b"\n")
    return size


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of `~`; raises ConfigError if there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{os.fspath(path)!r}: there is no such home folder.",
            hint="Write the whole path, or set HOME.",
        ) from None


def is_a_path(text: str | os.PathLike[str]) -> bool:
    """Return whether a text is a valid path: no NUL, no lone surrogate, not too long."""
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in name and len(name) < _PATH_MAX


_PAUSE_S = 0.005
_OWNER_TIMEOUT_S = 1.0
"""Longer than another process holds the lock to check whether an owner is alive."""
_OWNERS = re.compile(r"[0-9a-f]+\.lock")


def lock(path: Path, *, timeout_s: float) -> int:
    """Lock a file until the returned descriptor is closed; raises StoreUnavailable on timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if take(path, handle):
            return handle
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"Another process holds {path} and did not release it within {timeout_s:g} s.",
                hint="Try again.",
            )
        time.sleep(_PAUSE_S)


def take(path: Path, handle: int) -> bool:
    """Lock an open file without waiting; return whether it is locked, else close the descriptor."""
    try:
        if _try_lock(path, handle):
            return True
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return False


def _try_lock(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock on a file that was removed meanwhile excludes nobody.
        return path.stat().st_ino == os.fstat(handle).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def is_held(path: Path) -> bool:
    """Return whether a process holds a file's lock; if not, the file is removed."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Upgraded to an exclusive lock first: another process may create and lock the name anew.
        if _try_lock(path, handle):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def remove_pages(paths: Paths) -> None:
    """Delete what `ragmem graph` wrote to the data folder, since it shows what is deleted now.

    Raises OSError.
    """
    for page in paths.data_dir.glob("graph.*"):
        page.unlink(missing_ok=True)


def forget_prompts(history: Path, is_meant: Callable[[str], bool]) -> bytes:
    """Delete prompts from the history file of prompt-toolkit; return them as they stood in it.

    Raises OSError if the file can't be written.
    """
    try:
        held = history.read_bytes()
    except FileNotFoundError:
        return b""
    lines = held.decode("utf-8", "surrogateescape").split("\n")
    # An entry is a blank line, a comment with the time, and its lines with a leading plus sign.
    entries: list[list[str]] = [[]]
    for line in lines:
        if not line.startswith("+") and entries[-1][-1:] and entries[-1][-1].startswith("+"):
            entries.append([])
        entries[-1].append(line)
    kept, gone = list[str](), list[str]()
    for entry in entries:
        prompt = "\n".join(line[1:] for line in entry if line.startswith("+"))
        (gone if prompt and is_meant(prompt) else kept).extend(entry)
    if gone:
        if history.stat().st_size != len(held):  # Another chat has written to it meanwhile.
            return forget_prompts(history, is_meant)
        replace_private(history, "\n".join(kept).encode("utf-8", "surrogateescape"), sync=True)
    return "".join(f"{line}\n" for line in gone).encode("utf-8", "surrogateescape")


def restore_prompts(history: Path, gone: bytes) -> None:
    """Put prompts that `forget_prompts` has deleted back, as the latest, if that is possible."""
    if gone:
        with suppress(OSError), history.open("ab") as file:
            file.write(gone)


class OwnerLocks:
    """Lock files for the owners of sessions and leases, held while the owner's process lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner_id: str) -> None:
        """Mark an owner as alive, until `release` or the end of this process."""
        if not self._held:
            self._sweep()
        if owner_id not in self._held:
            self._held[owner_id] = lock(self._path(owner_id), timeout_s=_OWNER_TIMEOUT_S)

    def lives(self, owner_id: str) -> bool:
        """Return whether any process, this one included, holds an owner's lock."""
        return is_held(self._path(owner_id))

    def release(self, owner_id: str) -> None:
        """Release an owner's lock and remove its file."""
        handle = self._held.pop(owner_id, None)
        if handle is not None:
            self._path(owner_id).unlink(missing_ok=True)
            os.close(handle)

    def release_all(self) -> None:
        """Release all locks that this object holds."""
        for owner_id in tuple(self._held):
            self.release(owner_id)

    def _sweep(self) -> None:
        # `is_held` removes the files of owners whose process has ended.
        for path in self._folder.glob("*.lock"):
            if _OWNERS.fullmatch(path.name):
                with suppress(OSError):
                    is_held(path)

    def _path(self, owner_id: str) -> Path:
        # Hexadecimal and truncated: an id from an imported file may contain a slash, or be huge.
        return self._folder / f"{owner_id.encode('utf-8', 'replace').hex()[:200]}.lock"
