"""The shipped embedder as a service: a process that has it loaded answers those that have not.

Importing and loading it takes a command longer than all else that it does before it asks a
model, and 60 MB, for one question. So the detached process, once its work is done, stays for a
while and answers on a Unix socket in the private folder of its home. The same file makes the same
vectors wherever it runs; who gets no answer loads it, as if there were no service.

A request is one frame, its answer another: four bytes of length, then msgpack. Nothing of a text
is kept or written anywhere.
"""

import asyncio
import os
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ragmem.embedder.base import Embedder, EmbedderInfo, Kind, Spent
from ragmem.errors import EmbedderError
from ragmem.locks import take

if TYPE_CHECKING:
    from ragmem.embedder.base import Vectors

MOST_TEXTS = 16
MOST_BYTES = 64 * 1024
"""Of a text."""
_MOST_FRAME = 2 * 1024 * 1024
_MOST_PATH = 100
"""Bytes of a socket's path: some systems take no more than 103."""
ANSWER_S = 2.0
"""Who has no answer until then makes the vectors."""
QUESTION_S = 0.5
"""Somebody waits for a question: so long that the own model can still be loaded after it."""
_REQUEST_S = 10.0
_LOOK_S = 1.0
"""So often the service looks whether its socket is still the one that is asked."""
_LENGTH = struct.Struct(">I")
_MARKS = 2

Fault = Literal["", "version", "model", "request", "failed"]


class _Request(msgspec.Struct, frozen=True):
    version: str
    model_id: str
    kind: Kind
    texts: Annotated[list[str], msgspec.Meta(max_length=MOST_TEXTS)]


class _Answer(msgspec.Struct, frozen=True):
    error: Fault = ""
    rows: bytes = b""
    """float32, little-endian, one row after the other."""
    tokens: int = 0


def is_offered(socket_file: Path) -> bool:
    """Whether there can be a service: not on a system without such sockets, nor far down."""
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(socket_file)) <= _MOST_PATH


# --- who answers ----------------------------------------------------------------


async def serve(
    embedder: Embedder, socket_file: Path, lock_file: Path, *, idle_s: float, version: str
) -> bool:
    """Answer until nobody has asked for `idle_s` seconds; false where another process does.

    It ends too when its socket is gone or another's, and when another version asks.
    """
    if not is_offered(socket_file):
        return False
    try:
        handle = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not take(lock_file, handle):
            return False
    except OSError:
        return False
    try:
        # Before it listens: nobody waits for it to be loaded.
        await embedder.prepare()
        with _listening(socket_file) as listener:
            service = _Service(embedder, socket_file, idle_s=idle_s, version=version)
            await service.run(listener)
    except (EmbedderError, OSError):
        return False
    finally:
        with suppress(OSError):
            os.unlink(lock_file)
        os.close(handle)
    return True


def _listening(socket_file: Path) -> socket.socket:
    """A socket in place of what a killed process has left; an OSError where a file stands."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(socket_file.lstat().st_mode):
            raise FileExistsError(str(socket_file))
        socket_file.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(socket_file))
        # Until it listens nobody can connect, whatever the umask was.
        socket_file.chmod(0o600)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class _Service:
    def __init__(
        self, embedder: Embedder, socket_file: Path, *, idle_s: float, version: str
    ) -> None:
        self._embedder = embedder
        self._file = socket_file
        self._version = version
        self._own = _identity(socket_file)
        self._idle_s = idle_s
        self._asked = time.monotonic()
        self._ended = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket) -> None:
        server = await asyncio.start_unix_server(self._connected, sock=listener)
        try:
            while (left_s := self._asked + self._idle_s - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, _LOOK_S)):
                        await self._ended.wait()
                if self._ended.is_set() or not self._is_ours():
                    break
        finally:
            # First its name: who comes now finds none, and does not wait for an answer.
            if self._is_ours():
                with suppress(OSError):
                    self._file.unlink(missing_ok=True)
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _is_ours(self) -> bool:
        return self._own is not None and _identity(self._file) == self._own

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if _is_of_this_user(writer.get_extra_info("socket")):
                async with asyncio.timeout(_REQUEST_S):
                    answer = await self._answer(await _frame(reader.readexactly))
                    writer.write(_framed(answer))
                    await writer.drain()
        except (OSError, EOFError, TimeoutError, ValueError):
            # Who asked is gone, or is none of ours: that one makes its vectors itself.
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, frame: bytes) -> _Answer:
        try:
            request = msgspec.msgpack.decode(frame, type=_Request)
        except msgspec.MsgspecError:
            return _Answer("request")
        if request.version != self._version:
            self._ended.set()
            return _Answer("version")
        info = self._embedder.info
        if request.model_id != info.model_id:
            return _Answer("model")
        if any(_is_long(text) for text in request.texts):
            return _Answer("request")
        self._asked = time.monotonic()
        try:
            rows = await self._embedder.embed(request.texts, request.kind)
            count = self._embedder.count_tokens
            tokens = sum(min(count(text) + _MARKS, info.max_tokens) for text in request.texts)
        except EmbedderError:
            return _Answer("failed")
        self._asked = time.monotonic()
        return _Answer(rows=rows.astype("<f4").tobytes(), tokens=tokens)


def _identity(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.lstat()
    except OSError:
        return None
    # The number of an inode that is gone is given again.
    return (found.st_dev, found.st_ino, found.st_ctime_ns)


def _is_of_this_user(peer: socket.socket) -> bool:
    """Where the system tells who is at the other end; else the folder's mode has to do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    ids = struct.Struct("3i")
    _, user, _ = ids.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, ids.size))
    return bool(user == os.geteuid())


# --- frames ---------------------------------------------------------------------


def _framed(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


async def _frame(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    """The next one; a ValueError where it is longer than any may be."""
    (length,) = _LENGTH.unpack(await read(_LENGTH.size))
    if length > _MOST_FRAME:
        raise ValueError("a frame that is too long")
    return await read(length)


def _is_long(text: str) -> bool:
    return len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES


# --- who asks -------------------------------------------------------------------


class SharedEmbedder:
    """Implements `Embedder`: by the service where one answers, else by `own`.

    Once `own` is loaded nobody is asked any more.
    """

    def __init__(self, own: Embedder, socket_file: Path, *, version: str) -> None:
        self._own = own
        self._file = socket_file
        self._version = version
        self._loaded = False
        self._shared = Spent()

    @property
    def info(self) -> EmbedderInfo:
        """See `Embedder.info`."""
        return self._own.info

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`; with what the service was asked."""
        return self._own.spent + self._shared

    async def prepare(self) -> None:
        """See `Embedder.prepare`; where a service answers, there is nothing to load."""
        if self._loaded or await self._ask([], "query") is not None:
            return
        await self._own.prepare()
        self._loaded = True

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; it loads `own`."""
        count = self._own.count_tokens(text)
        self._loaded = True
        return count

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`."""
        import numpy as np

        short = 0 < len(texts) <= MOST_TEXTS and not any(map(_is_long, texts))
        if short and not self._loaded and (answer := await self._ask(texts, kind)):
            rows = np.frombuffer(answer.rows, dtype="<f4").astype(np.float32)
            vectors: Vectors = rows.reshape(len(texts), self.info.dimension)
            if np.isfinite(vectors).all():
                self._shared += Spent(texts=len(texts), tokens=answer.tokens, calls=len(texts))
                return vectors
        found = await self._own.embed(texts, kind)
        self._loaded = True
        return found

    async def aclose(self) -> None:
        """See `Embedder.aclose`."""
        await self._own.aclose()
        self._loaded = False

    async def _ask(self, texts: Sequence[str], kind: Kind) -> _Answer | None:
        """A sound answer, or none, whatever the reason; no exception but a cancellation."""
        if not is_offered(self._file):
            return None
        # Half a character is what the own model reads as a question mark too.
        sound = [text.encode("utf-8", "replace").decode() for text in texts]
        request = _framed(_Request(self._version, self.info.model_id, kind, sound))
        try:
            async with asyncio.timeout(QUESTION_S if kind == "query" else ANSWER_S):
                frame = await _exchanged(self._file, request)
            answer = msgspec.msgpack.decode(frame, type=_Answer)
        except (OSError, EOFError, TimeoutError, ValueError):
            return None
        size = len(texts) * self.info.dimension * 4
        return None if answer.error or len(answer.rows) != size else answer


async def _exchanged(socket_file: Path, request: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.setblocking(False)
        await loop.sock_connect(service, str(socket_file))
        if not _is_of_this_user(service):
            raise PermissionError("another user's socket")
        await loop.sock_sendall(service, request)

        async def read(size: int) -> bytes:
            found = bytearray()
            while len(found) < size:
                part = await loop.sock_recv(service, size - len(found))
                if not part:
                    raise EOFError
                found += part
            return bytes(found)

        return await _frame(read)
