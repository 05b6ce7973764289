"""The log: faults that nobody is shown, in a file that only its owner reads."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

import msgspec

from ragmem.redact import redact

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


@contextmanager
def logging_to(folder: Path) -> Iterator[None]:
    """While it lasts, warnings and faults go to `ragmem.log` there, and nowhere else."""
    handler = _PrivateFile(folder / "ragmem.log")
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
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
