"""A file that a command writes: whole or not at all, private, never over another one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragmem.errors import RagmemError, UsageError
from ragmem.failpoints import failpoint
from ragmem.ids import new_id


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Where to write what is to become `file` when the block ends well; empty, 0600."""
    file = Path(os.path.abspath(file.expanduser()))
    if os.path.lexists(file):
        raise _exists(file)
    part = file.with_name(f".{file.name[:100]}.{new_id()[-12:]}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
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
        _sync(file.parent)
    except OSError as error:
        raise RagmemError(f"{file} could not be written: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)


def _exists(file: Path) -> UsageError:
    return UsageError(f"{file} is there already.", hint="Choose another name, or remove it.")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
