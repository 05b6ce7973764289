"""A file that a command writes: whole or not at all, private, never over another one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragmem.errors import RagmemError, UsageError
from ragmem.failpoints import failpoint
from ragmem.files import sync_folder
from ragmem.ids import new_id
from ragmem.store.locks import is_held, lock

_PART = ".ragmem-part"


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Where to write what is to become `file` when the block ends well; empty, 0600."""
    file = Path(os.path.abspath(file.expanduser()))
    if os.path.lexists(file):
        raise _exists(file)
    _clear(file.parent)
    part = file.with_name(f".{file.name[:100]}.{new_id()[-12:]}{_PART}")
    try:
        handle = lock(part, timeout_s=1)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}.") from None
    try:
        yield part
        failpoint("export.written")
        _sync(part)
        try:
            os.link(part, file)
        except FileExistsError:
            raise _exists(file) from None
        except OSError:  # a file system without hard links
            part.rename(file)
        failpoint("export.named")
        sync_folder(file.parent)
    except OSError as error:
        raise RagmemError(f"{file} could not be written: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)
        os.close(handle)


def _clear(folder: Path) -> None:
    """Remove what processes that were killed had begun to write here; they hold no lock."""
    with suppress(OSError):
        for part in folder.glob(f".*{_PART}"):
            is_held(part)


def _exists(file: Path) -> UsageError:
    return UsageError(f"{file} is there already.", hint="Choose another name, or remove it.")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
