"""This process and its children: what they inherit, and how waiting for them ends."""

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from ragmem.config import environment

T = TypeVar("T")

_PR_SET_DUMPABLE = 4
_KEPT = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR", "LANG", "LANGUAGE",
    "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "NVM_DIR", "NVM_BIN",
    "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "GRADLE_USER_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}  # fmt: skip
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_URL_WITH_USER = re.compile(r"//[^/\s]*@")
_NOBODY_WATCHES = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "EDITOR": "true",
    "GIT_EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
}


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a command inherits: an allow-list without anything that looks like a secret."""
    source = environment() if environ is None else environ
    kept = {
        name: value
        for name, value in source.items()
        if (name in _KEPT or name.startswith("LC_"))
        and not _SECRET_NAME.search(name)
        and not _URL_WITH_USER.search(value)
    }
    return kept | _NOBODY_WATCHES


def protect_process() -> bool:
    """Keep this process's memory and environment, keys among them, from its own children.

    True where the system can do it (Linux; it holds for everyone but root).
    Core dumps and debuggers are off from then on.
    """
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


async def interruptible(work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; when cancelled, tell it to stop and give it a second.

    The work looks at the event it is given at least every tenth of a second.
    """
    stop = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running], timeout=1)
        if running.done() and not running.cancelled():
            # Looked at, so that asyncio does not report it as forgotten.
            running.exception()
        raise
