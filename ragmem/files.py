"""Small files of ragmem's own: private, and replaced whole or not at all."""

import os
from pathlib import Path

from ragmem.failpoints import failpoint
from ragmem.ids import new_id

_PATH_MAX = 4096
"""Bytes of a path with its end, which no system that ragmem runs on goes beyond."""


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
