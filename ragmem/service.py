"""Answer searches of other processes of the same home over a private socket.

Importing and loading what a search needs takes longer than everything else that a command does
before it asks a model. So the detached process, once its work is done, stays for a while and
answers on a Unix socket in its home's private folder. A process that gets no answer does the work
itself, as if there were no service.

A request is one frame, its answer another: four bytes of length, then msgpack. Neither is stored or
logged.
"""

import asyncio
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ragmem.errors import RagmemError
from ragmem.files import take

_MOST_FRAME = 2 * 1024 * 1024
_MOST_PATH = 100
"""Longest path of a socket in bytes: some systems accept no more than 103."""
_REQUEST_S = 10.0
_LOOK_S = 1.0
"""How often the service checks whether its socket is still in place."""
_LENGTH = struct.Struct(">I")
_NOTHING = msgspec.Raw(b"\xc0")
SEARCH_S = 1.0
"""How long a process waits for an answer before it searches itself."""
T = TypeVar("T")

Fault = Literal["", "version", "request", "failed"]
Handlers = Mapping[str, tuple[type, Callable[[Any], Awaitable[Any]]]]
"""The supported requests: name, type of the question, and handler.

A handler raises `NotAnswered` or a RagmemError if it has no answer.
"""


class NotAnswered(Exception):
    """The question is not for this service: it concerns another model, or other settings."""


class _Request(msgspec.Struct, frozen=True):
    version: str
    settings: str
    """The settings that the answer depends on; empty if it depends on none."""
    name: str
    question: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True):
    error: Fault = ""
    value: msgspec.Raw = _NOTHING


def is_offered(socket_file: Path) -> bool:
    """Return whether a service is possible: the path of a socket in a deep folder is too long."""
    return len(os.fsencode(socket_file)) <= _MOST_PATH


# --- server ---------------------------------------------------------------------


async def serve(
    handlers: Handlers,
    socket_file: Path,
    lock_file: Path,
    *,
    idle_s: float,
    version: str,
    settings: str = "",
    prepare: Callable[[], Awaitable[None]],
) -> bool:
    """Serve until there was no request for `idle_s` seconds; False if another process serves.

    `prepare` loads whatever takes long, before requests are accepted. Also ends when its socket was
    removed or replaced, and when a newer version sends a request. Requests with other `settings`
    are not answered; from then on, only requests with its own keep it, so that one with the
    others can follow.
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
        await prepare()
        with _listen(socket_file) as listener:
            service = _Service(handlers, socket_file, idle_s, version, settings)
            await service.run(listener)
    except (RagmemError, OSError):
        return False
    finally:
        with suppress(OSError):
            os.unlink(lock_file)
        os.close(handle)
    return True


def _listen(socket_file: Path) -> socket.socket:
    """Create the socket in place of a killed process's; raises OSError if a file is there."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(socket_file.lstat().st_mode):
            raise FileExistsError(str(socket_file))
        socket_file.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(socket_file))
        # Nobody can connect before it listens, whatever the umask was.
        socket_file.chmod(0o600)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class _Service:
    def __init__(
        self, handlers: Handlers, socket_file: Path, idle_s: float, version: str, settings: str
    ) -> None:
        self._handlers = handlers
        self._file = socket_file
        self._version = version
        self._settings = settings
        self._own = _identity(socket_file)
        self._idle_s = idle_s
        self._last_request = time.monotonic()
        self._is_wanted = True
        """Whether no request with other settings has followed the last one with its own."""
        self._ended = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket) -> None:
        server = await asyncio.start_unix_server(self._connected, sock=listener)
        try:
            while (left_s := self._last_request + self._idle_s - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, _LOOK_S)):
                        await self._ended.wait()
                if self._ended.is_set() or not self._is_ours():
                    break
        finally:
            # Remove the name first: new clients find no service, and do not wait for an answer.
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
                    answer = await self._answer(await _read_frame(reader.readexactly))
                    writer.write(_encode(answer))
                    await writer.drain()
        except (OSError, EOFError, TimeoutError, ValueError):
            # The client is gone or not one of ragmem's; it does the work itself.
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, frame: bytes) -> _Answer:
        try:
            request = msgspec.msgpack.decode(frame, type=_Request)
            if request.version != self._version:
                # An older one, open since before an update, would end each service of the new one.
                if _numbers(request.version) > _numbers(self._version):
                    self._ended.set()
                return _Answer("version")
            if request.settings not in ("", self._settings):
                self._is_wanted = False
                return _Answer("request")
            kind, answer = self._handlers[request.name]
            question: Any = msgspec.msgpack.decode(request.question, type=kind)
        except (msgspec.MsgspecError, LookupError):
            return _Answer("request")
        self._is_wanted = self._is_wanted or bool(request.settings)
        self._note_request()
        try:
            value = msgspec.msgpack.encode(await answer(question))
        except NotAnswered:
            return _Answer("request")
        except RagmemError:
            return _Answer("failed")
        self._note_request()
        return _Answer(value=msgspec.Raw(value))

    def _note_request(self) -> None:
        if self._is_wanted:
            self._last_request = time.monotonic()


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", version)]


def _identity(file: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        found = file.lstat()
        # The inode number of a deleted file can be reused.
        return (found.st_dev, found.st_ino, found.st_ctime_ns)
    return None


def _is_of_this_user(peer: socket.socket) -> bool:
    """Return whether the peer is this user, if the system tells; else rely on the folder's mode."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    ids = struct.Struct("3i")
    _, user, _ = ids.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, ids.size))
    return bool(user == os.geteuid())


# --- frames ---------------------------------------------------------------------


def _encode(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


async def _read_frame(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    """Read the next frame; raises ValueError if it is too long."""
    (length,) = _LENGTH.unpack(await read(_LENGTH.size))
    if length > _MOST_FRAME:
        raise ValueError("a frame that is too long")
    return await read(length)


# --- client ---------------------------------------------------------------------


class Client:
    """Queries the service of a home, if there is one."""

    def __init__(self, socket_file: Path, *, version: str, settings: str = "") -> None:
        self._file = socket_file
        self._version = version
        self._settings = settings

    @property
    def may_answer(self) -> bool:
        """Whether there seems to be a service."""
        return is_offered(self._file) and self._file.exists()

    async def ask(self, name: str, question: object, kind: type[T], *, within_s: float) -> T | None:
        """Return a valid answer, or None for any reason; raises nothing except on cancellation."""
        if not is_offered(self._file):
            return None
        try:
            raw = msgspec.Raw(msgspec.msgpack.encode(question))
            async with asyncio.timeout(within_s):
                request = _Request(self._version, self._settings, name, raw)
                frame = await self._exchange(_encode(request))
            answer = msgspec.msgpack.decode(frame, type=_Answer)
            return None if answer.error else msgspec.msgpack.decode(answer.value, type=kind)
        except (OSError, EOFError, TimeoutError, ValueError):
            return None

    async def _exchange(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._file)
        try:
            if not _is_of_this_user(writer.get_extra_info("socket")):
                raise PermissionError("another user's socket")
            writer.write(request)
            await writer.drain()
            return await _read_frame(reader.readexactly)
        finally:
            writer.close()
