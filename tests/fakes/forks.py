"""Warm processes of ragmem: forked from one that has imported everything, in milliseconds.

What a fork runs is the real `main` of `python -m ragmem`, with descriptors, an environment, a
folder and an end of its own. Only the interpreter's start, its imports, regular expressions and the
shipped embedder's model are spared.

What is only run to its end need not even be a fork of its own: one process does that for command
after command, as long as each leaves it as it was (`ForkServer.run`). Under `--all` each is one.
"""

import atexit
import fcntl
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NoReturn, Self

import ragmem
from ragmem import app, redact
from ragmem.memory import recording
from ragmem.store.spool import Patience
from ragmem.text import LazyPattern
from ragmem.tools.sandbox import find_mechanism

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-m", "ragmem")
FAKE_APP = (sys.executable, "-P", "-W", "error", str(ROOT / "tests" / "repl" / "fake_app.py"))
_PATIENCE_S = 150.0
PATIENCE = "TEST_PATIENCE_S"
"""A variable for forks: the seconds that they wait for their store, on machines that are busy."""
_MOST = 100_000
"""Bytes of a request: more does not fit into one message of a socket."""
_LEFT_OUT = ("ragmem.__main__", "ragmem.llm.litellm_client")
"""litellm takes longer to import than nearly every test that does without it: the first that
embeds or asks through it has it imported for all of a worker."""


_ENDS_BY_ITSELF = ("RAGMEM_FAILPOINT", "RAGMEM_LLM__CLIENT", "RAGMEM_MODEL__EMBEDDING")
"""Settings of processes that may die in their middle, or import what no other should have."""
_OF_COMMANDS = {"acp": ("acp",), "mcp": ("mcp.server.lowlevel", "mcp.server.stdio")}
_NOT_PRINTED = 120
"""Python's exit status where what was printed can't be written."""
_TO_END_S = 0.2
"""For a thread that was told to end."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)
_alone = False
"""Whether each command has a process of its own."""


class Process:
    """A process that runs, or has ended."""

    def __init__(
        self, pid: int, pidfd: int, status: socket.socket | subprocess.Popen[bytes]
    ) -> None:
        """`status`: where its exit status arrives, or the process itself where it is a child."""
        self.pid = pid
        self._status = status
        self._pidfd: int | None = pidfd
        """None once it was waited for."""
        self._code = 0

    def __del__(self) -> None:
        """Close the socket of one that a failed test has not waited for."""
        if isinstance(self._status, socket.socket):
            self._status.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, if it lives."""
        if self._pidfd is None:
            return
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; whether it has ended."""
        if self._pidfd is None:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def wait(self, timeout_s: float = _PATIENCE_S) -> int:
        """Its exit status when it has ended; negative: the signal that ended it."""
        ended = self.ends_within(timeout_s)
        if not ended:
            self.kill()
            self.ends_within(timeout_s)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
            if isinstance(self._status, subprocess.Popen):
                self._code = self._status.wait()
            else:
                with self._status:
                    self._code = int(self._status.recv(16))
        if not ended:
            raise TimeoutError(f"{self.pid} did not end within {timeout_s:g} s")
        return self._code


class ForkServer:
    """The process that forks; what it has forked ends with it."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.fakes.forks", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                # A fork has no other threads, and numpy makes some.
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT),
                    "LANG": "C.UTF-8",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                pass_fds=[theirs.fileno()],
            )

        self._runner: tuple[Process, socket.socket] | None = None
        self._is_free = threading.Lock()
        """Nobody waits for the runner."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner:
            self._runner[1].close()
        self._requests.close()
        self._process.communicate()

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> int:
        """Run `ragmem ARGV` to its end; its exit status.

        In the process that has run the ones before, if these have left it as it was: threads,
        descriptors, children, signals. Whatever a command leaves behind ends with its process. A
        command beside another one is a fork.
        """
        is_apart = _alone or any(env.get(name) for name in _ENDS_BY_ITSELF)
        if is_apart or not self._is_free.acquire(blocking=False):
            return self.start(argv, env=env, cwd=cwd, streams=streams).wait()
        try:
            return self._run_next(argv, env, cwd, streams)
        finally:
            self._is_free.release()

    def _run_next(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> int:
        if self._runner is None:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                fds = [theirs.fileno()] * 3
                self._runner = self.start([], env={}, cwd=ROOT, streams=fds, runner=True), control
        process, control = self._runner
        asked = {"argv": list(argv), "env": dict(env), "cwd": str(cwd)}
        socket.send_fds(control, [json.dumps(asked).encode()], streams)
        ready = select.poll()
        ready.register(control, select.POLLIN)
        if ready.poll(_PATIENCE_S * 1000) and (status := control.recv(16)):
            return int(status)
        self._runner = None
        control.close()
        return process.wait()

    @staticmethod
    def can_start(argv: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a fork is what a start would be: no setting is for the interpreter itself."""
        its_own = {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        return (
            all(env.get(name) == value for name, value in its_own.items())
            and not any(
                name.startswith(("PYTHON", "LC_", "LD_")) and name not in its_own for name in env
            )
            and len(json.dumps([list(argv), dict(env)])) < _MOST
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        streams: Sequence[int],
        hits: Path | None = None,
        on_terminal: bool = False,
        fake_app: bool = False,
        runner: bool = False,
    ) -> Process:
        """Run `ragmem ARGV` on the three streams.

        With `hits` it has a session of its own, and says there at its end how many failpoints
        it came by. `on_terminal`: the
        streams are one, which it is the first to have. `fake_app`: `tests.repl.fake_app` is run.
        `runner`: it runs what comes on a stream (`run`).
        """
        asked = {
            "argv": list(argv), "env": dict(env), "cwd": str(cwd), "hits": str(hits or ""),
            "on_terminal": on_terminal, "fake_app": fake_app,
            "runner": runner,
        }  # fmt: skip
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = json.dumps(asked).encode()
            socket.send_fds(self._requests, [message], [*streams, theirs.fileno()])
        pid, (pidfd,), _, _ = socket.recv_fds(status, 16, 1)
        return Process(int(pid), pidfd, status)


def keep_processes_apart() -> None:
    """Give each command a process of its own from now on."""
    global _alone
    _alone = True


@cache
def forks() -> ForkServer:
    """One for all tests of a worker; it ends when the worker does."""
    return ForkServer()


def start_on_terminal(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, terminal: int
) -> Process:
    """Start a command as the first on this terminal: a fork, if it is ragmem or its fake app."""
    for known in (COMMAND, FAKE_APP):
        argv = command[len(known) :]
        if tuple(command[: len(known)]) == known and ForkServer.can_start(argv, env):
            return forks().start(
                argv,
                env=env,
                cwd=cwd,
                streams=[terminal] * 3,
                on_terminal=True,
                fake_app=known is FAKE_APP,
            )
    child = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=cwd,
        env=env,
        preexec_fn=take_terminal,
    )
    return Process(child.pid, os.pidfd_open(child.pid), child)


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork as asked until nobody can ask any more; in a fork: what it is to run."""
    living: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is requests:
                    message, fds, _, _ = socket.recv_fds(requests, 2 * _MOST, 4)
                    if not message:
                        _end_all(living)
                        return None
                    asked = json.loads(message)
                    if _takes_litellm(asked["env"]):
                        _import_litellm()
                    # Their own imports take six times as long as what they do in a test.
                    for name in _OF_COMMANDS.get(asked["argv"][0] if asked["argv"] else "", ()):
                        import_module(name)
                    if not (pid := os.fork()):
                        for pidfd, (_, status) in living.items():
                            os.close(pidfd)
                            status.close()
                        requests.close()
                        return {**asked, "fds": fds}
                    for fd in fds[:3]:
                        os.close(fd)
                    status, pidfd = socket.socket(fileno=fds[3]), os.pidfd_open(pid)
                    socket.send_fds(status, [b"%d" % pid], [pidfd])
                    living[pidfd] = pid, status
                    ready.register(pidfd, selectors.EVENT_READ)
                else:
                    ready.unregister(key.fileobj)
                    pid, status = living.pop(key.fd)
                    os.close(key.fd)
                    with status:
                        status.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _takes_litellm(env: Mapping[str, str]) -> bool:
    embeds = env.get("RAGMEM_MODEL__EMBEDDING", "").startswith("openai/")
    return embeds or env.get("RAGMEM_LLM__CLIENT") == "litellm"


@cache
def _import_litellm() -> None:
    from ragmem.libraries import load_litellm

    load_litellm()


def _load_embedder() -> None:
    """The shipped model, once for all: to load it takes longer than most of what they do.

    It runs in the thread that calls, so a fork lacks none of its threads.
    """
    models = import_module("ragmem.embedder.models")
    models._load = cache(models._load)
    models._load(models.FOLDER)


def _end_all(living: Mapping[int, tuple[int, socket.socket]]) -> None:
    for pid, _ in living.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(asked: Mapping[str, Any]) -> None:
    """Make this fork the process that was asked for."""
    for number, fd in enumerate(asked["fds"][:3]):
        os.dup2(fd, number)
    for fd in asked["fds"]:
        os.close(fd)
    if asked["on_terminal"]:
        take_terminal()
    _begin(asked)
    if file := asked["hits"]:
        from ragmem.failpoints import ANY, hits

        os.setsid()
        atexit.register(lambda: Path(file).write_text(str(hits(ANY))))


def _begin(asked: Mapping[str, Any]) -> None:
    """Take the streams that there are, and the environment, folder and arguments asked for."""
    # They stay open to the end of the process.
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", buffering=1, closefd=False, errors="backslashreplace"
    )
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None  # litellm has looked for it where it is imported.
    time.tzset()
    if patience_s := os.environ.pop(PATIENCE, ""):
        be_patient(float(patience_s))
    os.chdir(asked["cwd"])
    sys.argv = ["ragmem", *asked["argv"]]


def be_patient(seconds: float) -> None:
    """Give turns, reads and writes so long: what is stored is there when the process has ended."""
    recording._PATIENCE_S = seconds
    each = dict.fromkeys(("stall_s", "read_s", "left_s", "closing_s"), seconds)
    app.Patience = partial(Patience, **each)


def _run_all(requests: socket.socket) -> None:
    """Run what is asked for, one after the other, until nobody asks or one leaves something."""
    from ragmem.__main__ import run

    nowhere, patience_s = os.open(os.devnull, os.O_RDWR), recording._PATIENCE_S
    path, mask = list(sys.path), os.umask(0o077)
    os.umask(mask)
    before: object = None
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 2 * _MOST, 3)
        if not message:
            os._exit(0)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        before = before or _left()
        _begin(json.loads(message))
        status = _printed(run())
        if status == _NOT_PRINTED or _left() != before:
            _end(status)
        for number in range(3):
            os.dup2(nowhere, number)
        recording._PATIENCE_S, app.Patience = patience_s, Patience
        sys.path[:] = path
        os.umask(mask)
        redact._known.clear()
        find_mechanism.cache_clear()
        requests.send(b"%d" % status)


def _left() -> object:
    """What a command must leave as it was, for another one to be run here."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(_TO_END_S)
    children = False
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        children = True
    handlers = tuple(signal.getsignal(number) for number in _SIGNALS)
    return sorted(os.listdir("/proc/self/fd")), threading.active_count(), handlers, children


def take_terminal() -> None:
    """Make stdin the terminal of a session of this process, to which its keys send signals."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _main(control: int) -> None:
    for module in walk_packages(ragmem.__path__, "ragmem."):
        if module.name not in _LEFT_OUT:
            import_module(module.name)
    for name in ("neo4j", "anyio._backends._asyncio", "anyio._core._synchronization"):
        import_module(name)
    fake_app = import_module("tests.repl.fake_app")
    _load_embedder()
    for each in gc.get_objects():
        if isinstance(each, LazyPattern):
            _ = each.search
    gc.freeze()
    asked = _serve(socket.socket(fileno=control))
    if asked is not None and asked["runner"]:
        for fd in asked["fds"][1:]:
            os.close(fd)
        _run_all(socket.socket(fileno=asked["fds"][0]))
    if asked is not None:
        _become(asked)
        if asked["fake_app"]:
            warnings.simplefilter("error")
            _end(fake_app.main(*asked["argv"]))
        from ragmem.__main__ import run

        _end(run())


def _end(status: int) -> NoReturn:
    """End as an interpreter does, but for taking apart what a thousand modules hold."""
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(_printed(status))


def _printed(status: int) -> int:
    """Print what waits; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream and not stream.closed:
                stream.flush()
        except OSError:
            status = _NOT_PRINTED
    return status


if __name__ == "__main__":
    _main(int(sys.argv[1]))
