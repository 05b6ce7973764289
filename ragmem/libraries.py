"""Importing large libraries without the parts that are not needed, and installing extras."""

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


class _HiddenModules(threading.local):
    """An import finder that makes modules appear missing, with a list of names per thread."""

    names: tuple[str, ...] = ()

    def find_spec(self, name: str, *_: object) -> None:
        if name in self.names:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


_hidden_modules = _HiddenModules()


@contextmanager
def _hiding(*names: str) -> Iterator[None]:
    """Make these modules appear missing to imports in this thread, within the block."""
    # Never removed: another thread that iterates over sys.meta_path would skip a finder.
    if _hidden_modules not in sys.meta_path:
        sys.meta_path.insert(0, _hidden_modules)
    _hidden_modules.names = names
    try:
        yield
    finally:
        _hidden_modules.names = ()


def load_httpcore() -> None:
    """Import httpcore without HTTP/2 (h2, hpack), which takes half of the import's time."""
    with _hiding("h2"):
        import httpcore  # noqa: F401


# Read by litellm while it is imported: DEV mode loads the current folder's `.env`, and tables are
# fetched from the network unless the packaged ones are chosen. They are not removed from the
# environment afterwards: a thread that is copying it would fail.
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
    """Import and return litellm, silent and without network access; takes 3 s, also in a thread."""
    with _loading:
        if (loaded := sys.modules.get("litellm")) and loaded.suppress_debug_info:
            return loaded
        load_httpcore()
        # Without its command line (click, rich, pygments).
        with _hiding("httpx._main"):
            import httpx  # noqa: F401
        os.environ.update(_SETTINGS)
        _exclude_loopback()
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
        # Counting tokens would download a tokenizer.
        litellm.disable_token_counter = True
        litellm.disable_hf_tokenizer_download = True
        # httpx everywhere, for the same proxies, timeouts and certificates.
        litellm.disable_aiohttp_transport = True
        return litellm


async def close_litellm() -> None:
    """Close litellm's cached connections, if it was imported."""
    litellm = sys.modules.get("litellm")
    close = getattr(litellm, "close_litellm_async_clients", None)
    if close is not None:
        with suppress(Exception):
            await close()
        litellm.in_memory_llm_clients_cache.flush_cache()  # type: ignore[union-attr]


def hush_litellm() -> None:
    """Suppress warnings of litellm and its dependencies, which are meant for developers."""
    for module in ("litellm", "pydantic", "openai"):
        warnings.filterwarnings("ignore", module=rf"{module}(\..*)?$")


def _exclude_loopback() -> None:
    """Exclude this machine itself from the environment's proxies."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    for variable in ("NO_PROXY", "no_proxy"):
        listed = [h for h in os.environ.get(variable, "").split(",") if h]
        os.environ[variable] = ",".join(dict.fromkeys([*listed, *_LOOPBACK]))


def load_neo4j() -> None:
    """Import Neo4j's driver without support for arrays and tables, which takes half of its time.

    Only for ragmem's own processes, which pass none to the driver.
    """
    with _hiding("numpy", "pandas", "pyarrow"):
        import neo4j  # noqa: F401


def load_numpy() -> None:
    """Import numpy without OpenBLAS's thread pool, whose start takes half of the time.

    No product here is large enough for it (see ragmem/similarity.py). OpenBLAS reads the variable
    from the process environment; `os.environ`, which other threads copy, is not changed.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.putenv(_THREADS, "1")
    try:
        import numpy  # noqa: F401
    finally:
        os.unsetenv(_THREADS)


def pip_install() -> str:
    """Return the command to install a package into this Python, with uv if it has no pip."""
    if find_spec("pip"):
        return f"{sys.executable} -m pip install"
    return f"uv pip install --python {sys.executable}"


_EXTRAS = {"acp": "acp", "local": "xllamacpp", "mcp": "mcp", "zstd": "backports"}
"""The package's extras, each with a module that it installs."""


def install_command(extra: str, *, package: Path = Path(__file__).parent) -> str:
    """Return the command that adds an extra: pinned by hash in a checkout, else by name.

    An installation by `uv tool` or pipx from a package index is reinstalled with all its extras,
    since packages that are added to it are lost with the next upgrade.
    """
    pins = package.parent / "requirements" / f"{extra}.txt"
    if pins.is_file():
        return f"{pip_install()} --require-hashes -r {pins}"
    from importlib.metadata import distribution

    if distribution("ragmem").read_text("direct_url.json") is None:
        extras = sorted({extra, *(name for name, module in _EXTRAS.items() if find_spec(module))})
        for mark, tool in (
            ("uv-receipt.toml", "uv tool install"),
            ("pipx_metadata.json", "pipx install --force"),
        ):
            if Path(sys.prefix, mark).is_file():
                return f'{tool} "ragmem[{",".join(extras)}]"'
    return f'{pip_install()} "ragmem[{extra}]"'
