"""A bug's traceback goes into a log file that only its owner reads, never on the terminal."""

from ragmem import __version__
from ragmem.config import environment, find_paths
from ragmem.errors import RagmemError
from ragmem.logs import write_crash
from ragmem.redact import know, redact, secrets_among
from ragmem.text import one_line


def record_crash(error: BaseException) -> str:
    """Log the traceback; the lines for the person that say so."""
    what = f"error: {type(error).__name__}: {one_line(str(error), 300)}"
    environ = environment()
    know(secrets_among(environ))
    try:
        log = write_crash(find_paths(environ).make().log_dir, error, __version__)
    except (OSError, RagmemError) as failure:
        return f"{redact(what)}\nThis is a bug. It could not be logged: {failure}\n"
    return f"{redact(what)}\nThis is a bug. Its traceback is in {log}\n"
