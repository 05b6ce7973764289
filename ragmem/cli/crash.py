"""A bug's traceback goes into a log file that only its owner reads, never on the terminal."""

import os
import traceback
from collections.abc import Mapping
from pathlib import Path

from ragmem import __version__
from ragmem.config import environment, find_paths
from ragmem.errors import RagmemError
from ragmem.ids import new_id
from ragmem.text import one_line

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST_SECRET = 8


def record_crash(error: BaseException) -> str:
    """Log the traceback; the lines for the person that say so."""
    what = f"error: {type(error).__name__}: {one_line(str(error), 300)}"
    environ = environment()
    text = "".join(traceback.format_exception(error))
    try:
        log = _write(find_paths(environ).make().log_dir, redact(text, environ))
    except (OSError, RagmemError) as failure:
        return f"{redact(what, environ)}\nThis is a bug. It could not be logged: {failure}\n"
    return f"{redact(what, environ)}\nThis is a bug. Its traceback is in {log}\n"


def redact(text: str, environ: Mapping[str, str]) -> str:
    """The text without the values of variables that are named like secrets."""
    for name, value in environ.items():
        secret = any(word in name.upper() for word in _SECRET_NAMES)
        if secret and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, f"[{name}]")
    return text


def _write(folder: Path, text: str) -> Path:
    log = folder / f"crash-{new_id()}.log"
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"ragmem {__version__}\n{text}")
    return log
