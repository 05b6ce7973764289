"""A model's server that never comes to an end, on loopback: what a real one does when it runs wild.

with Torrent(reasoning_events()) as server:
    ... server.env ...
"""

import json
import socketserver
import threading
from typing import Any, Self

from tests.fakes.llm_server import model_env

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(delta: dict[str, Any]) -> bytes:
    """An event of a stream."""
    return b"data: %s\n\n" % json.dumps({"choices": [{"delta": delta}]}).encode()


class Torrent:
    """Answers each request with `head`, then with `block` again and again, until nobody listens."""

    def __init__(self, block: bytes, *, head: bytes = HEAD, pause_s: float = 0.0) -> None:
        self.requests = 0
        self.began = threading.Event()
        """Set once a megabyte was sent, or anything where it drips."""
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
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _answer(self, handler: socketserver.StreamRequestHandler) -> None:
        length = 0
        while (line := handler.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        handler.rfile.read(length)
        self.requests += 1
        handler.wfile.write(self._head)
        sent = 0
        while not self._stopping.wait(self._pause_s):
            handler.wfile.write(self._block)
            sent += len(self._block)
            if self._pause_s or sent > 1 << 20:
                self.began.set()

    @property
    def url(self) -> str:
        """The API base."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def env(self) -> dict[str, str]:
        """Variables that make ragmem use this server."""
        return model_env(self.url)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
