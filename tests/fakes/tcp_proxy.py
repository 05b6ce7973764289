"""A loopback proxy that breaks connections at the moments that matter."""

import asyncio
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

Cut = Literal["before_commit", "after_commit"]

# The Bolt message COMMIT (0x12, no fields) as one chunk with its end mark.
_COMMIT = b"\x00\x02\xb0\x12\x00\x00"


class TcpProxy:
    """Forwards to a Bolt server; `cuts` says at which of the next commits a connection breaks.

    `before_commit`: the message never reaches the server. `after_commit`: the
    server commits, its answer never reaches the client.
    """

    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 7687)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.cuts: list[Cut] = []
        self.silent = False
        """Take what the client sends, and never answer."""
        self.commits = 0

    @property
    def url(self) -> str:
        """Where to connect."""
        assert self._server is not None
        return f"bolt://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.stop_listening()

    async def listen(self, port: int = 0) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def stop_listening(self) -> int:
        """Refuse and drop every connection; the port, to listen there again."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1] if self._server.sockets else 0
        self._server.close()
        await self.drop_all()
        return port

    async def drop_all(self) -> None:
        """Break every open connection, as a firewall does that forgets them."""
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            return
        finally:
            self._connections.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        committed = asyncio.Event()
        directions = [
            asyncio.create_task(self._upward(reader, server_writer, committed)),
            asyncio.create_task(self._downward(server_reader, writer, committed)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (writer, server_writer):
                each.transport.abort()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _upward(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, committed: asyncio.Event
    ) -> None:
        while data := await client.read(65536):
            if _COMMIT in data:
                self.commits += 1
                cut = self.cuts.pop(0) if self.cuts else None
                if cut == "before_commit":
                    return
                if cut == "after_commit":
                    committed.set()
            server.write(data)
            await server.drain()

    async def _downward(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, committed: asyncio.Event
    ) -> None:
        while data := await server.read(65536):
            if committed.is_set():
                return
            if not self.silent:
                client.write(data)
                await client.drain()
