"""Libraries: large ones without the parts that are not needed here, and what adds others."""

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_THREADS = "OPENBLAS_NUM_THREADS"


class _Absent(threading.local):
    """A finder that says, to each thread of what that leaves out, that modules are not there."""

    names: tuple[str, ...] = ()

    def find_spec(self, name: str, *_: object) -> None:
        if name in self.names:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


_absent = _Absent()


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Let what this thread imports find none of these, unless they are imported already."""
    # The finder stays: a thread that is in the midst of the list would miss the next if it went.
    if _absent not in sys.meta_path:
        sys.meta_path.insert(0, _absent)
    _absent.names = names
    try:
        yield
    finally:
        _absent.names = ()


def load_httpcore() -> None:
    """httpcore without HTTP/2 (h2, hpack), which takes half of its import's time."""
    with _without("h2"):
        import httpcore  # noqa: F401


def load_httpx() -> None:
    """httpx without a command line (click, rich, pygments) and HTTP/2: litellm imports it."""
    load_httpcore()
    with _without("httpx._main"):
        import httpx  # noqa: F401


# Read by litellm while it is imported: DEV mode loads the current folder's `.env`, and each
# table that is not the packaged one is fetched from the network. None is taken away: a thread
# that copies the environment just then would fail at it.
_SETTINGS = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOG": "ERROR",
}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_loading = threading.Lock()


def load_litellm() -> ModuleType:
    """litellm, silent and off the network; may be called in a thread, as it takes 3 s."""
    with _loading:
        if (loaded := sys.modules.get("litellm")) and loaded.suppress_debug_info:
            return loaded
        load_httpx()
        os.environ.update(_SETTINGS)
        _spare_loopback()
        hush_litellm()
        import litellm

        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logger = logging.getLogger(name)
            logger.handlers = [logging.NullHandler()]
            logger.propagate = False
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        litellm.drop_params = True
        litellm.modify_params = True
        litellm.num_retries = 0
        litellm.disable_streaming_logging = True
        # Counting tokens would fetch a tokenizer from the network.
        litellm.disable_token_counter = True
        litellm.disable_hf_tokenizer_download = True
        # One HTTP library for all: the same proxies, timeouts and certificates.
        litellm.disable_aiohttp_transport = True
        return litellm


async def close_litellm() -> None:
    """Close the connections that litellm keeps, if it was ever used."""
    litellm = sys.modules.get("litellm")
    close = getattr(litellm, "close_litellm_async_clients", None)
    if close is not None:
        with suppress(Exception):
            await close()
        litellm.in_memory_llm_clients_cache.flush_cache()  # type: ignore[union-attr]


def hush_litellm() -> None:
    """Warnings meant for litellm's authors don't reach the person's terminal."""
    for module in ("litellm", "pydantic", "openai"):
        warnings.filterwarnings("ignore", module=rf"{module}(\..*)?$")


def _spare_loopback() -> None:
    """A proxy of the environment never stands before this machine itself."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    for variable in ("NO_PROXY", "no_proxy"):
        listed = [h for h in os.environ.get(variable, "").split(",") if h]
        os.environ[variable] = ",".join(dict.fromkeys([*listed, *_LOOPBACK]))


def load_neo4j() -> None:
    """Neo4j's driver, without what it would take arrays and tables of: half of its time.

    For a process of our own: in it nobody has any for the driver.
    """
    with _without("numpy", "pandas", "pyarrow"):
        import neo4j  # noqa: F401


def load_numpy() -> None:
    """numpy, if it is not there: half of the time that it takes is starting its threads.

    Nothing that is multiplied here is large enough for them (see ragmem/similarity.py). They are
    read from the process' environment; `os.environ`, which other threads copy, stays as it is.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.putenv(_THREADS, "1")
    try:
        import numpy  # noqa: F401
    finally:
        os.unsetenv(_THREADS)


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
