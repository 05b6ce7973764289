"""Whether any process follows a project's files: each that does shares a lock on a file.

The lock goes with its process, however that ends, so nothing is ever left to be cleaned up.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def following(file: Path) -> Iterator[None]:
    """This process follows them inside of this; where that can't be noted, nobody is told."""
    handle = _opened(file, os.O_RDWR | os.O_CREAT)
    try:
        if handle is not None:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_followed(file: Path) -> bool:
    """Whether a process does now."""
    handle = _opened(file, os.O_RDONLY)
    if handle is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def _opened(file: Path, flags: int) -> int | None:
    try:
        return os.open(file, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
