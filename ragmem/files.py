"""Ragmem's own files, for their user alone: where they are, replaced whole or not at all, locked.

The kernel frees a lock when its process ends, however it ends. They are flock's, not POSIX's:
those vanish when any descriptor of the file is closed, and never conflict within one process.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ragmem.errors import ConfigError, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import new_id

_SHOWN = 3


class Paths(msgspec.Struct, frozen=True):
    """Folders of this user: all under RAGMEM_HOME if set, else the platform's own."""

    config_dir: Path
    data_dir: Path
    log_dir: Path

    @property
    def config_file(self) -> Path:
        """Return the file of settings."""
        return self.config_dir / "ragmem.toml"

    @property
    def database(self) -> Path:
        """Return the file of the embedded store."""
        return self.data_dir / "memory.db"

    @property
    def locks_dir(self) -> Path:
        """Return the folder of the lock files of running processes."""
        return self.data_dir / "locks"

    @property
    def embedder_socket(self) -> Path:
        """Return the socket of the process that has the embedder loaded and answers the others."""
        return self.data_dir / "embedder.sock"

    @property
    def spool_dir(self) -> Path:
        """What waits for a store that is away, a folder for each kind of store."""
        return self.data_dir / "spool"

    @property
    def neo4j_dir(self) -> Path:
        """The local Neo4j: server, data, password."""
        return self.data_dir / "neo4j"

    @property
    def local_model_dir(self) -> Path:
        """The small local model's weights, fetched, a folder a version."""
        return self.data_dir / "local-model"

    @property
    def owner_file(self) -> Path:
        """Return the file that says whose home it is: an id, and a name."""
        return self.data_dir / "owner"

    @property
    def agreed_file(self) -> Path:
        """What the person said of skills and commands that projects bring."""
        return self.data_dir / "agreed.json"

    @property
    def prompt_history(self) -> Path:
        """Return the file of what was typed in `chat`."""
        return self.data_dir / "history"

    def make(self) -> "Paths":
        """Create the folders, 0700 whatever the umask."""
        if self == NO_HOME:
            raise ConfigError(
                "There is no home folder to keep the memory in: HOME is not set.",
                hint="Set RAGMEM_HOME to a folder that can be written.",
            )
        for folder in self.own_folders:
            try:
                make_private(folder)
                if folder == self.data_dir and not _is_of_use(folder):
                    raise OSError("it can't be written")
            except OSError as error:
                why = error.strerror or str(error)
                if isinstance(error, FileExistsError | NotADirectoryError):
                    why = "a file stands where a folder should be"
                raise ConfigError(
                    f"The folder {folder} can't be used: {why}.",
                    hint="Make it writable, or set RAGMEM_HOME to a folder that is.",
                ) from None
        return self

    def close_to_others(self) -> str:
        """Repair modes that let others in; what was loose, in words, empty when nothing was."""
        inside = [entry for folder in (self.data_dir, self.log_dir) for entry in _entries(folder)]
        loose = [
            f"{path} (was {mode:04o})"
            for path in dict.fromkeys([*self.own_folders, *inside])
            if (mode := _closed(path))
        ]
        if not loose:
            return ""
        more = f" and {len(loose) - _SHOWN:,} more" if len(loose) > _SHOWN else ""
        return f"Others could look into {', '.join(loose[:_SHOWN])}{more}; closed to them now."

    @property
    def neo4j_password(self) -> str:
        """Return that of the local Neo4j; empty where none was set up."""
        with suppress(OSError, UnicodeDecodeError):
            return (self.neo4j_dir / "password").read_text("utf-8").strip()
        return ""

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """Return all of them: no tool reads or changes what is in them, and none is indexed."""
        return (self.config_dir, self.data_dir, self.log_dir)


def _is_of_use(folder: Path) -> bool:
    """Whether memory can be kept there, or something was before, which can be read."""
    return os.access(folder, os.W_OK | os.X_OK) or any(folder.iterdir())


NO_HOME = Paths(*(Path(os.devnull, "no-home", name) for name in ("config", "data", "logs")))
"""Where nothing can be: the user has no home, and RAGMEM_HOME is not set."""


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _closed(path: Path) -> int:
    """Take the rights of others away; the mode as it was if there were any and they went."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        # A sticky folder such as /tmp is everybody's: not ours to close. A link has no rights.
        ours = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if ours and mode & 0o077 and not mode & stat.S_ISVTX:
            path.chmod(stat.S_IMODE(mode) & 0o700)
            return stat.S_IMODE(mode)
    return 0


def refusal(folder: Path) -> str:
    """Return why a folder is no project to be indexed; empty where it may be one."""
    real = Path(os.path.realpath(folder))
    if real == Path(real.anchor):
        return "it is the root of the file system"
    try:
        home = Path(os.path.realpath(Path.home()))
    except RuntimeError:  # HOME is not set, and the system knows of none
        return ""
    if real == home:
        return "it is your home folder"
    return "your home folder is in it" if home.is_relative_to(real) else ""


_PATH_MAX = 4096
"""Bytes of a path with its end, which no system that ragmem runs on goes beyond."""


def make_private(folder: Path) -> None:
    """Make a folder, and those that it is to be in, for this user alone."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # `parents=True` would leave them open to others.
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def replace_private(path: Path, data: bytes, *, sync: bool) -> None:
    """Put the data in place of a file, readable by this user alone; an OSError leaves the old one.

    With `sync` the data is on the disk before it bears the name; see `sync_folder` for the name.
    """
    draft = path.with_name(f".ragmem-{new_id()}")
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
    """Make a file that this user alone can read, whole at once; FileExistsError if it is there."""
    draft = path.with_name(f".ragmem-{new_id()}")
    replace_private(draft, data, sync=True)
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links.
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in it outlast a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(handle: int, line: bytes) -> int:
    """Add a line to an open, locked file, on a line of its own; the file's size before it."""
    size = os.lseek(handle, 0, os.SEEK_END)
    # What a full disk has torn ends here.
    torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    os.write(handle, b"\n" * torn + line + b"\n")
    return size


def is_a_path(text: str | os.PathLike[str]) -> bool:
    """Whether a system opens such a name: no NUL in it, no half of a character, not too long."""
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in name and len(name) < _PATH_MAX


_PAUSE_S = 0.005
_OWNER_TIMEOUT_S = 1.0
"""Longer than another process takes to look whether an owner lives."""
_OWNERS = re.compile(r"[0-9a-f]+\.lock")


def lock(path: Path, *, timeout_s: float) -> int:
    """A descriptor that holds the file's lock until it is closed."""
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
    """Lock an open file without waiting; where that fails, the descriptor is closed."""
    try:
        if _taken(path, handle):
            return True
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return False


def _taken(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock on a file that was removed meanwhile keeps nobody out.
        return path.stat().st_ino == os.fstat(handle).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def is_held(path: Path) -> bool:
    """Whether a process holds the file's lock; a file that nobody holds is removed."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # By one alone of all that look: a name that is free again may be locked anew at once.
        if _taken(path, handle):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def forget_prompts(history: Path, is_meant: Callable[[str], bool]) -> int:
    """Take prompts out of the file of those that were typed, as prompt-toolkit writes it.

    How many went; 0 where there is no such file. OSError where it can't be written.
    """
    try:
        held = history.read_bytes()
    except FileNotFoundError:
        return 0
    lines = held.decode("utf-8", "surrogateescape").split("\n")
    # Each entry is a blank line, a comment with the time, and its lines behind a plus sign.
    entries: list[list[str]] = [[]]
    for line in lines:
        if not line.startswith("+") and entries[-1][-1:] and entries[-1][-1].startswith("+"):
            entries.append([])
        entries[-1].append(line)
    kept = [
        entry
        for entry in entries
        if not (prompt := "\n".join(line[1:] for line in entry if line.startswith("+")))
        or not is_meant(prompt)
    ]
    if len(kept) < len(entries):
        if history.stat().st_size != len(held):  # Another chat has written meanwhile.
            return forget_prompts(history, is_meant)
        text = "\n".join(line for entry in kept for line in entry)
        replace_private(history, text.encode("utf-8", "surrogateescape"), sync=True)
    return len(entries) - len(kept)


class OwnerLocks:
    """A lock file per owner of sessions and leases: it is held while the owner's process lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner_id: str) -> None:
        """Show that this owner lives, until `release` or the end of the process."""
        if not self._held:
            self._sweep()
        if owner_id not in self._held:
            self._held[owner_id] = lock(self._path(owner_id), timeout_s=_OWNER_TIMEOUT_S)

    def lives(self, owner_id: str) -> bool:
        """Whether some process, this one included, holds this owner's lock."""
        return is_held(self._path(owner_id))

    def release(self, owner_id: str) -> None:
        """Let this owner go."""
        handle = self._held.pop(owner_id, None)
        if handle is not None:
            self._path(owner_id).unlink(missing_ok=True)
            os.close(handle)

    def release_all(self) -> None:
        """Let every owner go."""
        for owner_id in tuple(self._held):
            self.release(owner_id)

    def _sweep(self) -> None:
        # Files of the dead that nothing names any more: `is_held` removes them.
        for path in self._folder.glob("*.lock"):
            if _OWNERS.fullmatch(path.name):
                with suppress(OSError):
                    is_held(path)

    def _path(self, owner_id: str) -> Path:
        # In hexadecimal and cut: an id from an imported file could be a path, or endless.
        return self._folder / f"{owner_id.encode('utf-8', 'replace').hex()[:200]}.lock"
