"""Programs to run, and what a child process inherits and sees."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragmem.config import environment

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


def find_program(name: str, not_in: Sequence[Path] = ()) -> Path | None:
    """A program on PATH that lies outside of `not_in`, links followed too; None: there is none."""
    for folder in child_environment().get("PATH", "").split(os.pathsep):
        file = Path(folder, name)
        real = Path(os.path.realpath(file))
        if (
            os.path.isabs(folder)
            and is_program(file)
            and not any(path.is_relative_to(root) for path in (file, real) for root in not_in)
        ):
            return file
    return None


def is_program(file: Path) -> bool:
    """Whether it is a file that can be run; not one in a folder that can't be looked into."""
    return os.path.isfile(file) and os.access(file, os.X_OK)


_PR_SET_DUMPABLE = 4


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
