"""The log: faults that end nothing, in files that only their owner reads."""

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

import msgspec

from ragmem.errors import lacking
from ragmem.ids import new_id
from ragmem.redact import redact
from ragmem.text import one_line

LOGGER = "ragmem"


class _PrivateFile(logging.FileHandler):
    """Made when something is first logged, 0600 whatever the umask; secrets are left out."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def _open(self) -> TextIOWrapper:
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return open(fd, "a", encoding="utf-8", errors="backslashreplace")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        # A log that can't be written is no reason to disturb the person.
        with suppress(OSError):
            super().emit(record)

    def close(self) -> None:
        # What a full disk did not take is tried again here.
        with suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """Said nowhere, for the same reason."""


class _Bugs(logging.Handler):
    """What is logged with a traceback is a bug: it gets a crash file, and is told once."""

    def __init__(self, folder: Path, tell: Callable[[str], None], version: str) -> None:
        super().__init__()
        self._folder = folder
        self._version = version
        self._tell = tell
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and record.exc_info[1]
        if not error or repr(error) in self._told:
            return
        self._told.add(repr(error))
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
    """Write the error's traceback, without secrets, into a new private file there; its path."""
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
    """While it lasts, warnings and faults go to `ragmem.log` there, and nowhere else.

    A bug that nothing ends for has a crash file beside it, and `tell` hears of it once.
    """
    handler = _PrivateFile(folder / "ragmem.log")
    bugs = _Bugs(folder, tell, version)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.addHandler(bugs)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(bugs)
        logger.removeHandler(handler)
        # Several may be open at once, and end in any order.
        logger.propagate = not any(isinstance(each, _PrivateFile) for each in logger.handlers)
        handler.close()


def log_deletion(folder: Path, deletion: msgspec.Struct) -> None:
    """Add a line to `deletions.log` there: nothing that a person had goes without one."""
    line = msgspec.json.encode(deletion) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with suppress(OSError):
        handle = os.open(folder / "deletions.log", flags, 0o600)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
