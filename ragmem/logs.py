"""Logging of warnings and non-fatal errors, to files of mode 0600."""

import fcntl
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

import msgspec

from ragmem.errors import lacking
from ragmem.ids import new_id
from ragmem.redact import redact
from ragmem.text import one_line

LOGGER = "ragmem"


class _PrivateFile(logging.FileHandler):
    """A log file, created on first use with mode 0600 whatever the umask; secrets are redacted."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def _open(self) -> TextIOWrapper:
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return open(fd, "a", encoding="utf-8", errors="backslashreplace")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        # A log that can't be written must not disturb the user.
        with suppress(OSError):
            super().emit(record)

    def close(self) -> None:
        # Closing flushes again what a full disk refused, and may fail again.
        with suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing, for the same reason."""


class _BugReporter(logging.Handler):
    """Writes a crash file for each record with a traceback, which is a bug, and reports it once."""

    def __init__(self, folder: Path, tell: Callable[[str], None], version: str) -> None:
        super().__init__()
        self._folder = folder
        self._version = version
        self._tell = tell
        self._reported: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and record.exc_info[1]
        if not error or repr(error) in self._reported:
            return
        self._reported.add(repr(error))
        what = one_line(redact(record.getMessage()), 300)
        if why := lacking(error):
            self._tell(f"{what}: the system is out of resources ({why}).")
            return
        try:
            where = f"the traceback is in {write_crash(self._folder, error, self._version)}"
        except OSError as failure:
            where = f"it could not be logged: {failure}"
        self._tell(f"{what} ({type(error).__name__}). This is a bug in ragmem; {where}")


def write_crash(folder: Path, error: BaseException, version: str) -> Path:
    """Write an error's traceback, redacted, to a new file of mode 0600; return its path."""
    log = folder / f"crash-{new_id()}.log"
    text = redact("".join(traceback.format_exception(error)))
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"ragmem {version}\n{text}")
    return log


@contextmanager
def logging_to(
    folder: Path, tell: Callable[[str], None] = lambda _: None, *, version: str = ""
) -> Iterator[None]:
    """Log warnings and errors to `ragmem.log` in a folder, and nowhere else, within the block.

    For a logged bug a crash file is written beside it, and `tell` is called once with a message.
    """
    handler = _PrivateFile(folder / "ragmem.log")
    bugs = _BugReporter(folder, tell, version)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.addHandler(bugs)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(bugs)
        logger.removeHandler(handler)
        # Several such blocks may be active at once, and end in any order.
        logger.propagate = not any(isinstance(each, _PrivateFile) for each in logger.handlers)
        handler.close()


def log_deletion(folder: Path, deletion: dict[str, object]) -> bytes:
    """Append a line to `deletions.log` in a folder, and return it: no user data is deleted without.

    `unlog_deletion` takes it back if nothing was deleted after all.
    """
    line = msgspec.json.encode(deletion) + b"\n"
    with suppress(OSError), _deletions(folder) as file:
        file.write(line)
    return line


def unlog_deletion(folder: Path, line: bytes) -> None:
    """Remove a line from `deletions.log`."""
    with suppress(OSError), _deletions(folder) as file:
        file.seek(0)
        before, found, after = file.read().rpartition(line)
        if found:
            file.truncate(len(before))
            file.write(after)


class _Deletion(msgspec.Struct, frozen=True):
    session_id: str | None = None
    """None for a memory."""
    store: str = ""


def deleted_sessions(folder: Path, store: str) -> set[str]:
    """Return the ids of all sessions of this kind of store that were deleted (`deletions.log`)."""
    found, lines = set[str](), list[bytes]()
    with suppress(OSError):
        lines = (folder / "deletions.log").read_bytes().splitlines()
    for line in lines:
        with suppress(msgspec.MsgspecError):
            deletion = msgspec.json.decode(line, type=_Deletion)
            if deletion.store == store and deletion.session_id is not None:
                found.add(deletion.session_id)
    return found


@contextmanager
def _deletions(folder: Path) -> Iterator[BinaryIO]:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with os.fdopen(os.open(folder / "deletions.log", flags, 0o600), "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
