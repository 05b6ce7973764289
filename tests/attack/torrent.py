"""A model's server that never comes to an end, on loopback: what a real one does when it runs wild.

with Torrent(reasoning_events()) as server:
    ... server.env ...
"""

import json
import socketserver
import ssl
import threading
from typing import Any, Self

from tests.fakes.llm_server import model_env

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(delta: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps({"choices": [{"delta": delta}]}).encode()


class Torrent:
    """Answers each request with `head`, then with `block` again and again, until nobody listens.

    Without a `block` the answer ends after its head.
    """

    def __init__(
        self,
        block: bytes = b"",
        *,
        head: bytes = HEAD,
        pause_s: float = 0.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.requests = 0
        self._block, self._head, self._pause_s = block, head, pause_s
        self._stopping = threading.Event()
        torrent = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                torrent._answer(self)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            block_on_close = True

            def handle_error(self, *_: Any) -> None:
                """Whoever has heard enough leaves in the middle."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        """The API base."""
        if tls:
            self.url = self.url.replace("http://127.0.0.1", "https://localhost")
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _answer(self, handler: socketserver.StreamRequestHandler) -> None:
        length = 0
        while (line := handler.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        handler.rfile.read(length)
        self.requests += 1
        handler.wfile.write(self._head)
        while self._block and not self._stopping.wait(self._pause_s):
            handler.wfile.write(self._block)

    @property
    def env(self) -> dict[str, str]:
        return model_env(self.url)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def raw(
    headers: bytes, body: bytes, *, status: bytes = b"200 OK", tls: ssl.SSLContext | None = None
) -> Torrent:
    """A server that answers every request with the same bytes."""
    ends = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    return Torrent(head=b"HTTP/1.1 " + status + b"\r\n" + headers + ends + body, tls=tls)
