"""Run a command under a guard process, with bounded output: its ends in memory, most in a file."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.children import child_environment
from ragmem.files import make_private
from ragmem.ids import new_id
from ragmem.redact import first_of, last_of, redact
from ragmem.text import one_line, plain
from ragmem.tools import subprocess_guard
from ragmem.tools.base import OutputSoFar, Tell
from ragmem.tools.workspace import Workspace

if TYPE_CHECKING:
    from ragmem.tools.sandbox import Confined, Sandbox

MAX_SHOWN_CHARS = 30_000
MAX_SPILLED_BYTES = 50_000_000
"""How much of a command's output is kept in a file."""
MAX_KEPT_BYTES = 1_000_000_000
"""Limit for the files of all commands together; the oldest are deleted."""
MAX_OUTPUT_BYTES = 500_000_000
"""A command that writes more is stopped, since it would never end."""
_MEMORY_BYTES = 512 * 1024
_BUFFER_BYTES = 256 * 1024
"""Output is searched for secrets in blocks of this size."""
_LONGEST_KEY = 16 * 1024
_DRAIN_S = 0.2
_STOP_S = 2.0
_TICK_MS = 50
_REPORT_EVERY_S = 0.1
_REPORT_BYTES = 4096


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    reason: str
    """`exit`, `timeout`, `endless`, `stopped` or `held` (its guard was stopped by a signal)."""
    status: int | None
    """Exit code, or the negative signal number; None if the guard itself was lost."""
    leftovers: int
    """How many processes were still running in the background when the shell ended."""
    left: tuple[str, ...] | None
    """Processes that could not be killed; None if the system does not list processes."""
    touched: tuple[str, ...] = ()
    """Files that can run by themselves and were created or changed meanwhile."""


class CommandOutput:
    """A command's output: its start and end in memory, most of it in a file."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self.total = 0
        self.lines = 0
        self._tell = tell
        self._reported, self._reported_at = 0, float("-inf")
        self.file: Path | None = None
        self.problem = ""
        self._folder = folder
        self._head = bytearray()
        self._tail = bytearray()
        self._fd = -1
        self._spilled = 0
        self._buffer = b""
        self._lock = threading.Lock()

    def since(self, start: int) -> tuple[str, int]:
        """Return the output from a byte offset, as a terminal shows it, and the offset of its end.

        If it is too long for memory, its beginning is left out.
        """
        with self._lock:
            kept = bytes(self._head + self._tail) if self._is_whole else bytes(self._tail)
            wanted = self.total - start
            text = plain(kept[max(0, len(kept) - wanted) :].decode("utf-8", "replace"))
            missed = wanted - len(kept)
            return (f"[{missed:,} bytes left out]\n{text}" if missed > 0 else text), self.total

    @property
    def _is_whole(self) -> bool:
        return self.total <= len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        """Append output."""
        with self._lock:
            self.total += len(data)
            self.lines += data.count(b"\n")
            room = _MEMORY_BYTES - len(self._head)
            self._head += data[:room]
            if more := data[room:]:
                self._spill(more)
                self._tail += more
                del self._tail[:-_MEMORY_BYTES]

    def tell(self) -> None:
        """Report the last lines if there are new ones, no more often than anyone can read."""
        now = time.monotonic()
        if self.total == self._reported or now - self._reported_at < _REPORT_EVERY_S:
            return
        self._reported, self._reported_at = self.total, now
        end = bytes(self._tail[-_REPORT_BYTES:])
        if len(end) < _REPORT_BYTES:
            end = bytes(self._head[len(end) - _REPORT_BYTES :]) + end
        # The first line is probably incomplete, and so may be an escape sequence in it.
        first = end.find(b"\n") + 1 if len(end) < self.total else 0
        self._tell(OutputSoFar(plain(end[first:].decode("utf-8", "replace")), self.lines))

    def text(self) -> str:
        """Return what a terminal would have shown, with the middle cut to the model's limit."""
        with self._lock:
            if self._is_whole:
                start = end = plain((self._head + self._tail).decode("utf-8", "replace"))
                if len(start) <= MAX_SHOWN_CHARS:
                    return start
            else:
                start = plain(self._head.decode("utf-8", "replace"))
                end = plain(self._tail.decode("utf-8", "replace"))
            self._spill(b"")
        half = MAX_SHOWN_CHARS // 2
        left_out = f"{self.total:,} bytes in all; the middle is left out. {self._file_note()}"
        return f"{first_of(start, half)}\n… [{left_out}] …\n{last_of(end, half)}"

    def close(self) -> None:
        """Write what is still buffered, and close the file."""
        with self._lock:
            if self._fd >= 0:
                self._write(self._buffer)
                self._buffer = b""
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _file_note(self) -> str:
        if self.file is None:
            return f"The rest could not be kept: {self.problem}."
        whole = "The whole output" if self._spilled >= self.total else "Its first part"
        return f"{whole} is in {self.file}: read it with read_file or grep_files"

    def _open(self) -> None:
        try:
            make_private(self._folder)
            _make_room(self._folder)
            file = self._folder / f"command-{new_id()}.txt"
            self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self.file = file
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _spill(self, data: bytes) -> None:
        """Write to the file, which starts with what is in memory."""
        if self.file is None and not self.problem:
            self._open()
            data = bytes(self._head) + data
        data = data[: max(0, MAX_SPILLED_BYTES - self._spilled)]
        if self._fd < 0 or not data:
            return
        self._spilled += len(data)
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            end = _safe_cut(self._buffer)
            self._write(self._buffer[:end])
            self._buffer = self._buffer[end:]

    def _write(self, data: bytes) -> None:
        """Write to the file, with secrets redacted."""
        text = redact(data.decode("utf-8", "surrogateescape"))
        try:
            view = memoryview(text.encode("utf-8", "surrogateescape"))
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            # A full disk costs the rest of the file, not the command's result.
            self.problem = error.strerror or str(error)
            self._buffer = b""
            self._close()


def _make_room(folder: Path) -> None:
    """Delete the oldest outputs while there are too many; turns keep their starts and ends."""
    kept = []
    for file in folder.glob("command-*.txt"):
        with suppress(FileNotFoundError):  # another process deletes them too
            kept.append((file.name, file.stat().st_size, file))
    over = sum(size for _, size, _ in kept) + MAX_SPILLED_BYTES - MAX_KEPT_BYTES
    # Their names begin with the time.
    for _, size, file in sorted(kept):
        if over <= 0:
            return
        file.unlink(missing_ok=True)
        over -= size


def _safe_cut(data: bytes) -> int:
    """Return an offset unlikely to split a secret: after a line, and not within a private key."""
    end = data.rfind(b"\n") + 1 or len(data)
    key = data.rfind(b"-----BEGIN ", max(0, end - _LONGEST_KEY), end)
    if key > 0 and b"-----END " not in data[key:end]:
        end = data.rfind(b"\n", 0, key) + 1 or key
    return end


def run_guarded(
    command: str,
    workspace: Workspace,
    timeout_s: float,
    output: CommandOutput,
    stop: threading.Event,
    sandbox: "Sandbox | None" = None,
) -> Ended:
    """Run a command, in the sandbox if one is given; blocks until it ends or is stopped."""
    from ragmem.tools.sandbox import Confined, changed, remove_new_commondirs, states

    argv = ["/bin/bash", "--noprofile", "--norc", "-c", command, "bash"]
    if sandbox is None:
        return _guarded(Confined(argv), workspace.cwd, timeout_s, output, stop)
    before = states(workspace.roots)
    removed = set[Path]()

    def look() -> None:
        # Immediately rather than at the end, since the user's own git runs meanwhile.
        removed.update(remove_new_commondirs(workspace.roots, before))

    with sandbox.confining(argv, workspace.roots) as start:
        ended = _guarded(start, workspace.cwd, timeout_s, output, stop, look)
    look()
    touched = {*changed(before, states(workspace.roots)), *removed}
    return msgspec.structs.replace(ended, touched=tuple(map(str, sorted(touched))))


def _guarded(
    start: "Confined",
    cwd: Path,
    timeout_s: float,
    output: CommandOutput,
    stop: threading.Event,
    look: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a command under the guard; `look` is called at intervals meanwhile."""
    ours, theirs = socket.socketpair()
    supervisor, mark = str(Path(subprocess_guard.__file__)), subprocess_guard.new_mark()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor, str(mark), start.by_guard, *start.argv],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=child_environment() | start.environ,
                pass_fds=start.descriptors,
                start_new_session=True,
                bufsize=0,
            )
        assert process.stdout is not None
        guard, started = process.pid, subprocess_guard.started_at(process.pid)

        def find() -> list[int]:
            return subprocess_guard.processes_of(guard, started, mark) or []

        try:
            reason = _pump(process.stdout.fileno(), ours, guard, timeout_s, output, stop, look)
            if reason != "exit":
                ours.shutdown(socket.SHUT_WR)
            answer = _guard_answer(ours, guard)
            if not answer:
                # The guard was killed, stopped or is slow: everything below it can still be found.
                subprocess_guard.end_all(find)
            _drain(process.stdout.fileno(), output)
        finally:
            # Whatever went wrong above: closing the socket makes the guard end everything that
            # still runs.
            ours.close()
            process.stdout.close()
            _reap_guard(process)
            left = subprocess_guard.end_all(find)
            output.close()
    status, leftovers = map(int, answer.split()) if answer else (None, 0)
    named = tuple(f"{pid} ({one_line(subprocess_guard.name_of(pid), 40)})" for pid in left)
    is_seen = subprocess_guard.processes_of(guard, started, mark) is not None
    return Ended(reason, status, leftovers, named if is_seen else None)


def _reap_guard(guard: "subprocess.Popen[bytes]") -> None:
    """Wait for the guard to exit, but kill one that can't."""
    deadline = time.monotonic() + _STOP_S
    while guard.poll() is None and not subprocess_guard.is_stopped(guard.pid):
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    if guard.returncode is None:
        guard.kill()
        guard.wait()


def _pump(
    pipe: int,
    line: socket.socket,
    guard: int,
    timeout_s: float,
    output: CommandOutput,
    stop: threading.Event,
    look: Callable[[], None],
) -> str:
    """Read output until the guard answers, the time is up or the user stops the command."""
    deadline = time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(line, select.POLLIN)
    while not stop.is_set():
        output.tell()
        look()
        ready = {fd for fd, _ in poll.poll(_TICK_MS)}
        if pipe in ready:
            data = os.read(pipe, 65536)
            output.feed(data)
            if not data:
                poll.unregister(pipe)
            if output.total > MAX_OUTPUT_BYTES and timeout_s < float("inf"):
                return "endless"
        elif line.fileno() in ready:
            return "exit"
        if subprocess_guard.is_stopped(guard):
            return "held"
        if time.monotonic() > deadline:
            return "timeout"
    return "stopped"


def _guard_answer(line: socket.socket, guard: int) -> bytes:
    line.settimeout(_TICK_MS / 1000)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline and not subprocess_guard.is_stopped(guard):
        try:
            return line.recv(64)
        except TimeoutError:
            continue
        except OSError:
            break
    return b""


def _drain(pipe: int, output: CommandOutput) -> None:
    """Read what is left in the pipe, without waiting for other processes that hold it."""
    deadline = time.monotonic() + _DRAIN_S
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and poll.poll(left * 1000):
        data = os.read(pipe, 65536)
        if not data:
            return
        output.feed(data)
