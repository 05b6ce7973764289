"""Locks on files: the kernel frees them when their process ends, however it ends.

flock, not POSIX locks: those vanish when any descriptor of the file is closed,
and never conflict within one process.
"""

import fcntl
import os
import time
from pathlib import Path

from ragmem.errors import StoreUnavailable

_PAUSE_S = 0.005


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
