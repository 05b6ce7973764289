"""Libraries: large ones without the parts that are not needed here, and what adds others."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
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


def pip_install() -> str:
    """The words that install a package into this Python, which may have been made without pip."""
    if find_spec("pip"):
        return f"{sys.executable} -m pip install"
    return f"uv pip install --python {sys.executable}"


_EXTRAS = {"acp": "acp", "local": "xllamacpp", "mcp": "mcp", "zstd": "backports"}
"""The extras of the package, each by a module that it brings."""


def install_command(extra: str, *, package: Path = Path(__file__).parent) -> str:
    """What adds an extra to this installation: pinned by hash from a checkout, else by name.

    A tool of uv or pipx is made anew, with the extras that it has: what is put in beside them
    goes with the next upgrade. One that did not come from an index stays what it is.
    """
    pins = package.parent / "requirements" / f"{extra}.txt"
    if pins.is_file():
        return f"{pip_install()} --require-hashes -r {pins}"
    from importlib.metadata import distribution

    if distribution("ragmem").read_text("direct_url.json") is None:
        there = sorted({extra, *(name for name, module in _EXTRAS.items() if find_spec(module))})
        for mark, tool in (
            ("uv-receipt.toml", "uv tool install"),
            ("pipx_metadata.json", "pipx install --force"),
        ):
            if Path(sys.prefix, mark).is_file():
                return f'{tool} "ragmem[{",".join(there)}]"'
    return f'{pip_install()} "ragmem[{extra}]"'
