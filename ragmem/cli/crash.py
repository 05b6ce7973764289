"""A bug's traceback goes into a log file that only its owner reads, never on the terminal."""

import os
import traceback
from pathlib import Path

from ragmem import __version__
from ragmem.config import environment, find_paths
from ragmem.errors import RagmemError
from ragmem.ids import new_id
from ragmem.redact import know, redact, secrets_among
from ragmem.text import one_line


def record_crash(error: BaseException) -> str:
    """Log the traceback; the lines for the person that say so."""
    what = f"error: {type(error).__name__}: {one_line(str(error), 300)}"
    environ = environment()
    know(secrets_among(environ))
    text = "".join(traceback.format_exception(error))
    try:
        log = _write(find_paths(environ).make().log_dir, redact(text))
    except (OSError, RagmemError) as failure:
        return f"{redact(what)}\nThis is a bug. It could not be logged: {failure}\n"
    return f"{redact(what)}\nThis is a bug. Its traceback is in {log}\n"


def _write(folder: Path, text: str) -> Path:
    log = folder / f"crash-{new_id()}.log"
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"ragmem {__version__}\n{text}")
    return log
