"""Locks on files: the kernel frees them when their process ends, however it ends.

flock, not POSIX locks: those vanish when any descriptor of the file is closed,
and never conflict within one process.
"""

import fcntl
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from ragmem.errors import StoreUnavailable

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
                f"Another process holds {path} and did not let go of it within {timeout_s:g} s.",
                hint="Try again.",
            )
        time.sleep(_PAUSE_S)


def take(path: Path, handle: int) -> bool:
    """Lock an open file without waiting; where that fails, the descriptor is closed."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock on a file that was removed meanwhile keeps nobody out.
        if path.stat().st_ino == os.fstat(handle).st_ino:
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return False


def is_held(path: Path) -> bool:
    """Whether a process holds the file's lock; a file that nobody holds is removed."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


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
