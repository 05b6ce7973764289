"""Real processes of ragmem, in a project and a home of their own."""

import json
import os
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Self

import msgspec
import pexpect
from pexpect.fdpexpect import fdspawn

import ragmem
from tests.fakes.forks import COMMAND, ForkServer, Process, forks, start_on_terminal

__all__ = ["COMMAND"]
SOURCE = Path(ragmem.__file__).parents[1]


class Done(msgspec.Struct, frozen=True):
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its stdout as one JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Ragmem:
    """Runs `ragmem` in `project` with `home` as RAGMEM_HOME and nothing else of ours."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        self.project.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(SOURCE),
            "RAGMEM_HOME": str(self.home),
            "RAGMEM_LLM__RETRIES": "0",
            "RAGMEM_MEMORY__SUMMARIES__RETRY_PAUSE_S": "0",
            "OLLAMA_HOST": "http://127.0.0.1:9",
            "RAGMEM_MEMORY__WORKER": "off",
            # No process outlives the test that started it.
            "RAGMEM_MEMORY__EMBEDDINGS__IDLE_S": "0",
            **(env or {}),
        }

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        through: Sequence[str | Path] = (),
    ) -> Done:
        """Run to the end: in a warm process, where that differs in nothing but time.

        A variable that is None is not set; `through` is a program that starts it.
        """
        folder, given = cwd or self.project, self._with(env)
        if not through and ForkServer.can_start(arguments, given):
            return run_warm(arguments, env=given, cwd=folder, stdin=stdin)
        return self.execute(*through, *COMMAND, *arguments, stdin=stdin, cwd=cwd, env=env)

    def execute(
        self,
        *command: str | Path,
        stdin: bytes = b"",
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Done:
        """Run another program to its end, as it would be run itself."""
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            cwd=cwd or self.project,
            env=self._with(env),
            timeout=120,
            check=False,
        )
        said = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
        return Done(done.returncode, *said)

    def _with(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        given = {**self.env, **(env or {})}
        return {name: value for name, value in given.items() if value is not None}

    def ok(self, *arguments: str, **options: Any) -> Done:
        """The same for what must succeed."""
        done = self.run(*arguments, **options)
        assert done.code == 0, (arguments, done.out, done.err)
        return done

    def refused(self, *arguments: str, code: int = 2, **options: Any) -> str:
        """What is said of what can't be done: an error in words, and nothing on stdout."""
        done = self.run(*arguments, **options)
        assert (done.code, done.out) == (code, ""), (arguments, done)
        assert done.err.startswith("error: "), done.err
        assert "Traceback" not in done.err
        return done.err

    def read(self, *arguments: str, **options: Any) -> Any:
        """A command's JSON."""
        return self.ok(*arguments, "--format", "json", **options).json

    def asked(self, *arguments: str, **options: Any) -> Any:
        """`ask` as JSON."""
        return self.ok("ask", *arguments, "--output-format", "json", **options).json

    def session_of(self, *arguments: str, **options: Any) -> str:
        """Id of the session in which `ask` was answered."""
        return str(self.asked(*arguments, **options)["session_id"])

    def listed(self, *arguments: str, **options: Any) -> list[str]:
        """Ids of the sessions that are listed."""
        found = self.read("sessions", "list", *arguments, **options)
        return [session["session_id"] for session in found]

    def start(self, *arguments: str, **streams: Any) -> "Started":
        """Start it, in a warm process; the caller waits."""
        return Started(arguments, env=self.env, cwd=self.project, **streams)

    def start_fresh(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start an interpreter of its own for it; the caller waits."""
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def on_terminal(self, *arguments: str, cwd: Path | None = None, columns: int = 100) -> Any:
        """Start it on a terminal of 24 rows, for `finish` to wait for."""
        terminal, theirs = os.openpty()
        termios.tcsetwinsize(terminal, (24, columns))
        command, folder = [*COMMAND, *arguments], cwd or self.project
        try:
            process = start_on_terminal(command, env=self.env, cwd=folder, terminal=theirs)
        finally:
            os.close(theirs)
        return Terminal(process, terminal)

    def sessions(self) -> Any:
        """`sessions list --all` as JSON."""
        return self.read("sessions", "list", "--all")

    def shown(self, session_id: str) -> Any:
        """`sessions show` as JSON."""
        return self.read("sessions", "show", session_id)


class Started:
    """A warm process, with as much of `subprocess.Popen` as tests of processes take."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self.returncode: int | None = None
        given, written = os.pipe()
        self.stdin = os.fdopen(written, "wb", buffering=0)
        if stdin == subprocess.DEVNULL:
            self.stdin.close()
            os.close(given)
            given = os.open(os.devnull, os.O_RDONLY)
        self.stdout, out = _reader(stdout)
        self.stderr, err = _reader(stderr)
        streams = [given, out, err]
        try:
            self._process = forks().start(arguments, env=env, cwd=cwd, streams=streams)
        finally:
            for fd in streams:
                os.close(fd)
        self.pid = self._process.pid
        self.send_signal = self.kill = self._process.kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self.wait()

    def wait(self, timeout: float = 60) -> int:
        """Its exit status when it has ended."""
        self.returncode = self._process.wait(timeout)
        return self.returncode

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        return self.wait() if self._process.ends_within(0) else None

    def communicate(self, words: bytes = b"", timeout: float = 60) -> tuple[bytes, bytes]:
        """Send the last words to it; what it prints until it ends."""
        with ThreadPoolExecutor(2) as threads:
            printed = [threads.submit(each.read) for each in (self.stdout, self.stderr)]
            with suppress(BrokenPipeError):
                if not self.stdin.closed:
                    self.stdin.write(words)
            self.stdin.close()
            self.wait(timeout)
            out, err = (each.result() for each in printed)
        self.stdout.close()
        self.stderr.close()
        return out, err


def _reader(stream: int | IO[Any]) -> tuple[IO[bytes], int]:
    """Where a process's output is read, and the descriptor to print it to."""
    if stream == subprocess.PIPE:
        ours, theirs = os.pipe()
        return os.fdopen(ours, "rb", buffering=0), theirs
    nothing = BytesIO()
    if isinstance(stream, int):
        return nothing, os.open(os.devnull, os.O_WRONLY)
    return nothing, os.dup(stream.fileno())


class Terminal(fdspawn):  # type: ignore[misc]
    """What a process says on its terminal, and hears there."""

    def __init__(self, process: Process, terminal: int) -> None:
        super().__init__(terminal, timeout=60, encoding="utf-8")
        self.process = process


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def finish(child: Terminal) -> int:
    """The exit code of what was started on a terminal."""
    child.expect(pexpect.EOF)
    child.close()
    return child.process.wait()


def run_warm(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdin: bytes = b""
) -> Done:
    """Run to the end in a warm process; see `ForkServer.can_start` and `run`."""
    (given, feed), (out, told_out), (err, told_err) = (os.pipe() for _ in range(3))
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_feed, feed, stdin)
        words = [threads.submit(_read, fd) for fd in (out, err)]
        streams = [given, told_out, told_err]
        try:
            code = forks().run(arguments, env=env, cwd=cwd, streams=streams)
        finally:
            for fd in streams:
                os.close(fd)
        return Done(code, *(each.result().decode() for each in words))


def _feed(pipe: int, words: bytes) -> None:
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(words)


def _read(pipe: int) -> bytes:
    with open(pipe, "rb") as file:
        return file.read()
