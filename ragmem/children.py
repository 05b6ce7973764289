"""Programs to run, what a child process inherits and sees, and ripgrep, which finds files.

ripgrep runs without its configuration file and with patterns and paths behind `-e` and `--`:
`--pre` and RIPGREP_CONFIG_PATH run programs otherwise.
"""

import os
import re
import select
import stat
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

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
    kept = {
        name: value
        for name, value in (environment() if environ is None else environ).items()
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


_BASE = ("--no-config", "--hidden", "--no-require-git", "--color=never", "--glob=!.git")
_TICK_MS = 50
_END_S = 1.0
_SILENT_S = 10.0
"""A listing that names no file for so long waits for an ignore file that never ends."""
_MAX_ERROR_BYTES = 4000
_MAX_MEMORY_BYTES = 512 * 1024 * 1024
"""Of ripgrep; one whose buffer doubles ends at half of it."""
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
_MAX_IGNORE_BYTES = 100_000


def find_ripgrep(not_in: Sequence[Path] = ()) -> Path | None:
    """The one installed with ragmem, else one on PATH that lies outside of `not_in`."""
    import sysconfig

    for scheme in (None, "posix_user"):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        if folder and is_program(file := Path(folder, "rg")):
            return file
    return find_program("rg", not_in)


class Ripgrep:
    """One run of it. Iterate `chunks`, then look at `failed` and `timed_out`.

    Its memory is bounded where the system can do that (Linux): it follows an ignore file that is
    a link to `/dev/zero`, say, and reads it to its end.
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
        """`folder` is a descriptor of where it runs: it can't be swapped for a link.

        Not `ignoring`: of all ignore files only those in the folder itself hold, and of them only
        regular ones of no more than 100 kB.
        """
        few = () if ignoring else ("--no-ignore", *_sound_ignore_files(folder))
        self._command = [str(program), *_BASE, *few, *arguments]
        self.is_ignoring = ignoring
        self._folder = folder
        self._timeout_s = timeout_s
        self._stop = stop
        self.timed_out = False
        self.failed = ""
        """Its complaint, where it refused to search at all."""
        self.unreadable = 0
        """Files and folders that could not be read."""
        self._is_lost = False
        """Whether it was ended from outside (for lack of memory), or hung."""

    @classmethod
    def tries(cls, *given: Any, **more: Any) -> Iterator[Self]:
        """Yield a run and, where that is lost once it was read, one not `ignoring`.

        The last one counts, in place of what the first one found.
        """
        run = cls(*given, **more)
        yield run
        if run._is_lost:
            yield cls(*given, **more, ignoring=False)

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield its output as it comes; the process is gone when this ends, however it ends."""
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
        _bound_memory(process.pid)
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
        self._judge(status, errors.decode("utf-8", "replace"))

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
                self._is_lost = deadline < started + self._timeout_s
                return
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)

    def _judge(self, status: int | None, errors: str) -> None:
        """`status` is None where it was ended from here: all of it was read, or no more wanted."""
        if status is None or 0 <= status <= 1:
            return
        if status != 2:
            # Its output is not whole: somebody killed it, the system for lack of memory, say.
            self._is_lost = True
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
"""Names of folders of what is installed, cached or compiled: nobody works on it, also where no
.gitignore says so."""


class FileList(Ripgrep):
    """Every file below a folder, held by a descriptor, that .gitignore does not leave out.

    Iterate once for paths relative to the folder; then what a run says of itself holds.
    """

    def __init__(self, program: Path, folder: int, **options: Any) -> None:
        """`options` are those of a `Ripgrep`."""
        super().__init__(program, ("--files", "--null"), folder=folder, **options)
        self._silent_s = _SILENT_S if self.is_ignoring else self._timeout_s

    def __iter__(self) -> Iterator[str]:
        rest = b""
        with closing(self.chunks()) as chunks:
            for chunk in chunks:
                *whole, rest = (rest + chunk).split(b"\0")
                for path in whole:
                    yield os.fsdecode(path.removeprefix(b"./"))


def _sound_ignore_files(folder: int) -> Iterator[str]:
    """The arguments that name those of a folder that can be read; a later one goes first."""
    for name in IGNORE_FILES:
        with suppress(OSError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_IGNORE_BYTES:
                yield f"--ignore-file=./{name}"


def _bound_memory(pid: int) -> None:
    import resource

    if hasattr(resource, "prlimit"):  # not on macOS, which bounds no memory either
        with suppress(OSError):  # it has ended, or has a lower bound already
            resource.prlimit(pid, resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))


def _path_of(folder: int) -> str:
    import fcntl

    # macOS has no /proc; F_GETPATH (50) names the folder that the descriptor holds.
    return fcntl.fcntl(folder, 50, b"\0" * 1024).rstrip(b"\0").decode()
