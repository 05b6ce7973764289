"""A loopback proxy that breaks connections at the moments that matter."""

import asyncio
import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

Cut = str
"""One of those that `TcpProxy` tells of."""

# The Bolt message COMMIT (0x12, no fields) as one chunk with its end mark, and how RUN begins.
_COMMIT = b"\x00\x02\xb0\x12\x00\x00"
_RUN = b"\xb3\x10"


class TcpProxy:
    """Forwards to a Bolt server; `cuts` says what happens at the next messages, one each.

    `before_commit`: the message never reaches the server. `in_commit`: half of it does.
    `after_commit`: the server commits, its answer never reaches the client. `in_answer`: half
    of the answer does. `half_close`: instead of it the client hears that nothing more comes.
    `deadlock`: the server is not asked, the client hears of a deadlock. `before_run` and
    `after_run`: the same for a statement.
    """

    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 7687)
        self._server: asyncio.Server | None = None
        self._place: socket.socket | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._links: set[_Link] = set()
        self._refuses = False
        self.cuts: list[Cut] = []
        self.silent = False
        """Take what the client sends, and never answer."""

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"bolt://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop_listening()
        if self._place:
            self._place.close()

    async def listen(self, port: int = 0) -> None:
        if self._place is None:
            # Never listens: it keeps the port from every other program, also in the meantime.
            self._place = socket.socket()
            self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._place.bind(("127.0.0.1", port))
            port = self._place.getsockname()[1]
        self._refuses = False
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, reuse_port=True)

    async def stop_listening(self) -> int:
        """Refuse and drop every connection; the port, to listen there again."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1] if self._server.sockets else 0
        self._refuses = True
        self._server.close()
        await self.drop_all()
        return port

    async def drop_all(self) -> None:
        """Break every open connection, as a firewall does that forgets them."""
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def swallow_all(self) -> None:
        """Of the connections that are open nothing arrives any more, and neither end hears so."""
        for link in self._links:
            link.lost = True

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward from now on; one that had come when others were dropped is dropped too."""
        if self._refuses:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(lambda _: self._ended(connection, writer))

    def _ended(self, connection: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        # Also of one that was dropped before the server had answered.
        writer.transport.abort()
        self._connections.discard(connection)
        if not connection.cancelled() and (error := connection.exception()):
            assert isinstance(error, ConnectionError), error

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        link = _Link(self, writer, server_writer)
        self._links.add(link)
        directions = [
            asyncio.create_task(link.upward(reader)),
            asyncio.create_task(link.downward(server_reader)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            for each in (writer, server_writer):
                each.transport.abort()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    def next_cut(self, data: bytes) -> Cut | None:
        """What happens to a message of the client, if anything."""
        if not self.cuts:
            return None
        trigger = _RUN if self.cuts[0].endswith("_run") else _COMMIT
        return self.cuts.pop(0) if trigger in data else None


class _Link:
    """One connection through the proxy."""

    def __init__(
        self, proxy: TcpProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answer: Cut | None = None
        """What happens to the next answer."""
        self.lost = False

    async def upward(self, client: asyncio.StreamReader) -> None:
        """From the client to the server, until the connection is to break."""
        while data := await client.read(65536):
            if self.lost:
                continue
            cut = self._proxy.next_cut(data)
            if cut in ("before_run", "before_commit"):
                return
            if cut == "in_commit":
                self._server.write(data[: data.index(_COMMIT) + 3])
                await self._server.drain()
                return
            if cut == "deadlock":
                self._client.write(_deadlock())
                await self._client.drain()
                continue
            self._answer = cut
            self._server.write(data)
            await self._server.drain()

    async def downward(self, server: asyncio.StreamReader) -> None:
        """From the server to the client, as far as it is to come."""
        while data := await server.read(65536):
            answer, self._answer = self._answer, None
            match answer:
                case "after_run" | "after_commit":
                    return
                case "in_answer":
                    self._client.write(data[: len(data) // 2])
                    await self._client.drain()
                    return
                case "half_close":
                    self._client.write_eof()
                    self.lost = True
            if not self.lost and not self._proxy.silent:
                self._client.write(data)
                await self._client.drain()


def _deadlock() -> bytes:
    """The Bolt message FAILURE (0x7F), as servers from 5.26 on word it."""
    told = {
        "neo4j_code": "Neo.TransientError.Transaction.DeadlockDetected",
        "code": "Neo.TransientError.Transaction.DeadlockDetected",
        "message": "ForsetiClient[7] can't acquire ExclusiveLock.",
        "gql_status": "50N05",
        "description": "error: general processing exception - deadlock detected.",
    }
    body = b"\xb1\x7f" + bytes([0xA0 + len(told)])
    for text in (text for pair in told.items() for text in pair):
        data = text.encode()
        body += b"\xd0" + bytes([len(data)]) + data
    return len(body).to_bytes(2, "big") + body + b"\x00\x00"
