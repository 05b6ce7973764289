"""Files cut in child processes, a few at a time, where there are many.

A child reads requests from its standard input and ends with it, so that none outlives its parent,
however that ends. It runs in a session of its own: Ctrl-C in a terminal is the parent's affair.
What a file does to a parser (a crash, no end) costs that file alone.
"""

import os
import queue
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

import msgspec

from ragmem.index.rows import FileRow, rows_of
from ragmem.redact import know, known

_HERE_AT_MOST = 64
"""Files: for fewer a child would take longer to start than they take to be cut."""
_BATCH = 40
_MOST_CHILDREN = 4
_NICENESS = 10
_PATIENCE_S = 60.0
"""For a batch of files."""
_PATIENCE_ALONE_S = 20.0
"""For one file alone."""
_TICK_S = 0.1
_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16


class _Start(msgspec.Struct, array_like=True):
    most: int
    secrets: tuple[tuple[str, str], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[FileRow]).decode


def cut_files(
    root: int, paths: Sequence[str], *, most: int, stop: threading.Event
) -> Iterator[list[FileRow]]:
    """The rows of all of these files, in batches, in any order; ends early when told to stop."""
    if len(paths) <= _HERE_AT_MOST:
        for path in paths:
            if stop.is_set():
                return
            yield rows_of(root, [path], most)
        return
    yield from _cut_by_children(root, paths, most, stop)


def _child_count() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min((cores or 1) - 1, _MOST_CHILDREN))


def _cut_by_children(
    root: int, paths: Sequence[str], most: int, stop: threading.Event
) -> Generator[list[FileRow], None, None]:
    batches: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    for start in range(0, len(paths), _BATCH):
        batches.put(list(paths[start : start + _BATCH]))
    count = batches.qsize()
    ended = threading.Event()
    done: queue.Queue[list[FileRow] | Exception] = queue.Queue(_MOST_CHILDREN)
    workers = [
        threading.Thread(target=_work, args=(root, most, batches, done, ended), daemon=True)
        for _ in range(min(_child_count(), count))
    ]
    for worker in workers:
        worker.start()
    try:
        while count and not stop.is_set():
            try:
                rows = done.get(timeout=_TICK_S)
            except queue.Empty:
                continue
            if isinstance(rows, Exception):
                raise rows
            count -= 1
            yield rows
    finally:
        ended.set()
        for worker in workers:
            worker.join()


def _work(
    root: int,
    most: int,
    batches: "queue.SimpleQueue[list[str]]",
    done: "queue.Queue[list[FileRow] | Exception]",
    ended: threading.Event,
) -> None:
    """A thread for each child."""
    child = _Child(root, most, ended)
    try:
        while not ended.is_set():
            try:
                batch = batches.get_nowait()
            except queue.Empty:
                return
            _hand_over(done, child.rows(batch), ended)
    except Exception as error:
        _hand_over(done, error, ended)
    finally:
        child.end()


def _hand_over(
    done: "queue.Queue[list[FileRow] | Exception]",
    result: list[FileRow] | Exception,
    ended: threading.Event,
) -> None:
    while not ended.is_set():
        with suppress(queue.Full):
            done.put(result, timeout=_TICK_S)
            return


class _Child:
    """One process, started anew when it dies.

    Where none can be started the files are cut here.
    """

    def __init__(self, root: int, most: int, ended: threading.Event) -> None:
        self._root = root
        self._most = most
        self._ended = ended
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._works: bool | None = None
        """Whether one has ever answered."""

    def rows(self, paths: list[str]) -> list[FileRow]:
        """Of a batch; of a file that no child survives `unreadable`."""
        rows = self._ask(paths) if self._works is not False else None
        if rows is not None or self._ended.is_set():
            return rows or []
        if self._works is None:
            self._works = self._ask([]) is not None
        if not self._works:
            return rows_of(self._root, paths, self._most)
        if len(paths) == 1:
            return [FileRow(paths[0], "unreadable")]
        return [row for path in paths for row in self.rows([path])]

    def end(self) -> None:
        """Kill it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        os.close(self._answers)
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        process.wait()

    def _ask(self, paths: list[str]) -> list[FileRow] | None:
        """None where the child did not answer."""
        try:
            process = self._process or self._started()
            assert process.stdin is not None
            _send(process.stdin.fileno(), _encode(paths))
            answer = self._answer(_PATIENCE_S if len(paths) > 1 else _PATIENCE_ALONE_S)
        except OSError:
            answer = None
        if answer is None:
            self.end()
            return None
        self._works = True
        return _decode_rows(answer)

    def _started(self) -> "subprocess.Popen[bytes]":
        from ragmem.children import child_environment

        answers, theirs = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(self._root), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=(self._root, theirs),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            os.close(answers)
            raise
        finally:
            os.close(theirs)
        self._process, self._answers = process, answers
        assert process.stdin is not None
        _send(process.stdin.fileno(), _encode(_Start(self._most, known())))
        return process

    def _answer(self, patience_s: float) -> bytes | None:
        deadline = time.monotonic() + patience_s
        head = self._exactly(self._answers, _LENGTH.size, deadline)
        return head and self._exactly(self._answers, _LENGTH.unpack(head)[0], deadline)

    def _exactly(self, handle: int, size: int, deadline: float) -> bytes | None:
        parts = bytearray()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while len(parts) < size:
            if self._ended.is_set() or time.monotonic() > deadline:
                return None
            if poll.poll(_TICK_S * 1000):
                data = os.read(handle, min(_CHUNK, size - len(parts)))
                if not data:
                    return None
                parts += data
        return bytes(parts)


def _send(handle: int, message: bytes) -> None:
    data = memoryview(_LENGTH.pack(len(message)) + message)
    while data:
        data = data[os.write(handle, data) :]


# --- in the child ---------------------------------------------------------------------

_PROGRAM = "from ragmem.index.pool import serve; serve()"


def serve() -> None:
    """Answer requests until there are no more; the arguments are descriptors.

    Of the project's folder, and of where answers go: not standard output, which is anybody's.
    """
    root, answers = int(sys.argv[1]), int(sys.argv[2])
    requests = sys.stdin.buffer
    with suppress(OSError):
        os.nice(_NICENESS)
    first = _received(requests)
    if first is None:
        return
    start = msgspec.msgpack.decode(first, type=_Start)
    for name, value in start.secrets:
        know({name: value})
    while (message := _received(requests)) is not None:
        paths = msgspec.msgpack.decode(message, type=list[str])
        with suppress(BrokenPipeError):
            _send(answers, _encode(rows_of(root, paths, start.most)))


def _received(pipe: BinaryIO) -> bytes | None:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(head)[0]
    message = pipe.read(size)
    return message if len(message) == size else None
