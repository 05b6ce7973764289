"""Finding programs, the environment of child processes, their end, running ripgrep; memory.

ripgrep runs without its configuration file, and with patterns and paths after `-e` and `--`, since
`--pre` and RIPGREP_CONFIG_PATH could make it run programs.
"""

import os
import re
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

from ragmem.config import environment

_INHERITED = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR", "LANG", "LANGUAGE",
    "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "NVM_DIR", "NVM_BIN",
    "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "GRADLE_USER_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}  # fmt: skip
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_URL_WITH_USER = re.compile(r"//[^/\s]*@")
_NON_INTERACTIVE = {
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
_OF_TERMINAL = {
    *_NON_INTERACTIVE, "COLORTERM", "TERMINFO", "TERMINFO_DIRS", "TMUX", "TMUX_PANE", "DISPLAY",
    "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
    "VISUAL", "VIMINIT", "NVIM", "NVIM_APPNAME", "VSCODE_IPC_HOOK_CLI", "EMACS_SOCKET_NAME",
    "LESS", "LESSCHARSET", "LESSKEYIN", "LESSOPEN",
}  # fmt: skip


def child_environment(
    environ: Mapping[str, str] | None = None, *, interactive: bool = False
) -> dict[str, str]:
    """Return the environment for commands: an allow-list, without anything like a secret.

    `interactive`: for one that has the user's terminal.
    """
    given = environment() if environ is None else environ
    kept = {
        name: value
        for name, value in given.items()
        if (name in _INHERITED or name.startswith("LC_"))
        and not SECRET_NAME.search(name)
        and not _URL_WITH_USER.search(value)
    }
    if interactive:
        return kept | {name: given[name] for name in _OF_TERMINAL if name in given}
    return kept | _NON_INTERACTIVE


def find_program(name: str, not_in: Sequence[Path] = ()) -> Path | None:
    """Return a program on PATH that is outside of `not_in`, also with links resolved, or None."""
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
    """Return whether a file exists and is executable; False if its folder can't be searched."""
    return os.path.isfile(file) and os.access(file, os.X_OK)


_BASE = ("--no-config", "--hidden", "--no-require-git", "--color=never", "--glob=!.git")
_EXIT_S = 0.4
"""How long a process group gets to exit by itself, and again after each signal."""
_TICK_MS = 50
_END_S = 1.0
_SILENT_S = 10.0
"""The time without output after which a listing is taken to hang on an endless ignore file."""
_MAX_ERROR_BYTES = 4000
_MAX_MEMORY_BYTES = 512 * 1024 * 1024
"""The limit of ripgrep's memory; since its buffer doubles, it fails at half of it."""
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
_MAX_IGNORE_BYTES = 100_000


def find_ripgrep(not_in: Sequence[Path] = ()) -> Path | None:
    """Return the ripgrep installed with ragmem, else one on PATH that is outside of `not_in`."""
    import sysconfig

    for scheme in (None, "posix_user"):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        if folder and is_program(file := Path(folder, "rg")):
            return file
    return find_program("rg", not_in)


class Ripgrep:
    """A run of ripgrep. Iterate over `chunks`, then check `failed` and `timed_out`.

    Its memory is limited on Linux: it would read an ignore file that is a link to `/dev/zero`,
    say, without end.
    """

    _silent_s = float("inf")

    def __init__(
        self,
        program: Path,
        arguments: Sequence[str],
        *,
        folder: int,
        timeout_s: float,
        stop: threading.Event,
        ignoring: bool = True,
    ) -> None:
        """`folder` is a descriptor of the working directory: a path could be swapped for a link.

        Without `ignoring`, only ignore files in the folder itself are used, and only regular files
        of at most 100 kB.
        """
        few = () if ignoring else ("--no-ignore", *_usable_ignore_files(folder))
        self._command = [str(program), *_BASE, *few, *arguments]
        self.is_ignoring = ignoring
        self._folder = folder
        self._timeout_s = timeout_s
        self._stop = stop
        self.timed_out = False
        self.failed = ""
        """Its error message, if it failed as a whole."""
        self.unreadable = 0
        """The number of files and folders that could not be read."""
        self._is_incomplete = False
        """Whether it was killed from outside (out of memory, say), or hung."""

    @classmethod
    def tries(cls, *given: Any, **more: Any) -> Iterator[Self]:
        """Yield a run and, if that is lost after it was read, another one without `ignoring`.

        The result of the last run replaces that of the first.
        """
        run = cls(*given, **more)
        yield run
        if run._is_incomplete:
            yield cls(*given, **more, ignoring=False)

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the output as it arrives; the process is killed when the generator ends."""
        here = f"/proc/self/fd/{self._folder}"
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=here if os.path.exists(here) else _path_of(self._folder),
            env=child_environment(),
            pass_fds=(self._folder,),
            start_new_session=True,
            bufsize=0,
        )
        _limit_memory(process.pid)
        errors = bytearray()
        try:
            yield from self._pump(process, errors)
        finally:
            status = process.poll()
            process.kill()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait()
        self._set_outcome(status, errors.decode("utf-8", "replace"))

    def _pump(self, process: "subprocess.Popen[bytes]", errors: bytearray) -> Iterator[bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.fileno(), process.stderr.fileno()
        poll = select.poll()
        open_pipes = {out, err}
        for fd in open_pipes:
            poll.register(fd, select.POLLIN)
        started = time.monotonic()
        deadline = started + min(self._timeout_s, self._silent_s)
        while open_pipes:
            for fd, _ in poll.poll(_TICK_MS):
                data = os.read(fd, 65536)
                if not data:
                    poll.unregister(fd)
                    open_pipes.discard(fd)
                elif fd == out:
                    deadline = started + self._timeout_s
                    yield data
                else:
                    errors += data[: max(0, _MAX_ERROR_BYTES - len(errors))]
            if self._stop.is_set():
                return
            if time.monotonic() > deadline:
                self.timed_out = True
                self._is_incomplete = deadline < started + self._timeout_s
                return
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)

    def _set_outcome(self, status: int | None, errors: str) -> None:
        """Set the outcome; `status` is None if it was stopped by us after enough output."""
        if status is None or 0 <= status <= 1:
            return
        if status != 2:
            # The output is incomplete: it was killed, by the system for lack of memory, say.
            self._is_incomplete = True
            self.failed = errors.strip() or (
                f"it was ended by signal {-status}" if status < 0 else f"it ended with {status}"
            )
            return
        lines = [line for line in errors.splitlines() if line.strip()]
        self.unreadable = sum("(os error " in line for line in lines)
        if self.unreadable < len(lines):
            self.failed = errors.strip()


MADE_FOLDERS = frozenset({
    "__pycache__", "node_modules", ".venv", "site-packages", ".cache", ".mypy_cache",
    ".pytest_cache", ".ruff_cache", ".tox", ".gradle",
})  # fmt: skip
"""Names of folders with installed, cached or compiled files, which are left out even without a
.gitignore."""


class FileList(Ripgrep):
    """The files below a folder, given by a descriptor, that ignore files don't exclude.

    Iterate once for paths relative to the folder; then the attributes of the run are valid.
    """

    def __init__(
        self, program: Path, folder: int, filters: Sequence[str] = (), **options: Any
    ) -> None:
        """`filters` are more arguments of ripgrep; `options` are passed to `Ripgrep`."""
        super().__init__(program, ("--files", "--null", *filters), folder=folder, **options)
        self._silent_s = _SILENT_S if self.is_ignoring else self._timeout_s

    def __iter__(self) -> Iterator[str]:
        rest = b""
        with closing(self.chunks()) as chunks:
            for chunk in chunks:
                *whole, rest = (rest + chunk).split(b"\0")
                for path in whole:
                    yield os.fsdecode(path.removeprefix(b"./"))


def _usable_ignore_files(folder: int) -> Iterator[str]:
    """Yield arguments for the usable ignore files of a folder; later ones take precedence."""
    for name in IGNORE_FILES:
        with suppress(OSError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_IGNORE_BYTES:
                yield f"--ignore-file=./{name}"


def _limit_memory(pid: int) -> None:
    import resource

    if hasattr(resource, "prlimit"):  # not on macOS, which doesn't enforce it either
        with suppress(OSError):  # it has ended, or has a lower limit already
            resource.prlimit(pid, resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))


def _path_of(folder: int) -> str:
    import fcntl

    # macOS has no /proc; F_GETPATH (50) names the folder that the descriptor holds.
    return fcntl.fcntl(folder, 50, b"\0" * 1024).rstrip(b"\0").decode()


def return_memory() -> None:
    """Return freed memory to the system, as far as its C library can; takes some milliseconds.

    glibc keeps what each thread has freed: after a refresh of 43,000 files in each of some threads
    these are more than 60 MB.
    """
    import ctypes

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


async def end_group(group: int) -> None:
    """Terminate a process group: wait, as its stdin is closed, then SIGTERM, then SIGKILL."""
    import asyncio  # Most processes that use this module have no loop.

    for number in (0, signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _EXIT_S
        while True:
            try:
                os.killpg(group, number)
            except (ProcessLookupError, PermissionError):
                return  # nothing is left, or nothing that belongs to this user
            number = 0
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
