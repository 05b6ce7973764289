"""Large libraries, imported without those parts that are not needed here."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

_THREADS = "OPENBLAS_NUM_THREADS"


class _Absent:
    """A finder that says, to the thread that made it alone, that modules are not there."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._thread = get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._names and get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Let what is imported find none of these, unless they are imported already."""
    absent = _Absent(names)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


def load_httpcore() -> None:
    """httpcore without HTTP/2 (h2, hpack), which takes half of its import's time."""
    with _without("h2"):
        import httpcore  # noqa: F401


def load_httpx() -> None:
    """httpx without a command line (click, rich, pygments) and HTTP/2: litellm imports it."""
    load_httpcore()
    with _without("httpx._main"):
        import httpx  # noqa: F401


def load_neo4j() -> None:
    """Neo4j's driver, without what it would take arrays and tables of: half of its time.

    For a process of our own: in it nobody has any for the driver.
    """
    with _without("numpy", "pandas", "pyarrow"):
        import neo4j  # noqa: F401


def load_numpy() -> None:
    """numpy, if it is not there: half of the time that it takes is starting its threads.

    Nothing that is multiplied here is large enough for them (see ragmem/similarity.py). They
    are read from the environment, which is put back: commands that are run inherit it.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]
