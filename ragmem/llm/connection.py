"""Requests to a model's server: httpcore, with what its callers bring along themselves.

httpx, which would do the rest, is not asked: no redirection is followed, no cookie kept, no body
compressed, and importing it takes an eighth of a start. The rest is here: certificates, proxies,
a name in the address, and server-sent events.
"""

import codecs
import os
import re
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ragmem.errors import AnswerTooLong
from ragmem.libraries import load_httpcore

load_httpcore()
import httpcore  # noqa: E402

CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Of one event, or of an answer that comes in one piece."""
FAULTS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
)
"""What may be wrong with a connection."""
_KEPT_OPEN_S = 5.0
_UNQUOTED = "/:?%@!$&'()*+,;="
_LINE_END = re.compile(r"\r\n|\n|\r")
_PROXIES = {"http", "https", "socks5", "socks5h"}


class Requests:
    """POST to one server, over connections that are kept while answers follow each other."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        uds: Path | None = None,
        own_machine: bool = False,
    ) -> None:
        """ValueError or ImportError for a proxy of the environment that can't be used."""
        parts = urlsplit(url)
        host, codec = parts.hostname or "", "ascii" if url.isascii() else "idna"
        query = f"?{quote(parts.query, safe=_UNQUOTED)}" if parts.query else ""
        self._url = httpcore.URL(
            scheme=parts.scheme.encode(),
            host=host.encode(codec),
            port=parts.port,
            target=f"{quote(parts.path or '/', safe=_UNQUOTED)}{query}".encode(),
        )
        sent = {b"Host": parts.netloc.rpartition("@")[2].encode(codec)}
        sent |= {name.encode(): value.encode() for name, value in headers.items()}
        if parts.username is not None:
            sent[b"Authorization"] = _basic(parts.username, parts.password or "")
        self._headers = list(sent.items())
        self._timeout = dict.fromkeys(("read", "write", "pool"), timeout_s)
        self._timeout["connect"] = min(CONNECT_TIMEOUT_S, timeout_s)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_certificates() if parts.scheme == "https" else None,
            # A proxy of the environment is honoured, but never stands before this machine itself.
            proxy=None if own_machine else _proxy(parts.scheme, host),
            keepalive_expiry=_KEPT_OPEN_S,
            uds=str(uds) if uds else None,
        )

    def post(self, content: bytes) -> AbstractAsyncContextManager[httpcore.Response]:
        """The answer, once its head is there."""
        return self._pool.stream(
            "POST",
            self._url,
            headers=[*self._headers, (b"Content-Length", b"%d" % len(content))],
            content=content,
            extensions={"timeout": self._timeout},
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def header(response: httpcore.Response, name: str) -> str:
    """A header of an answer, by its name in lower case; empty if there is none."""
    found = [value for key, value in response.headers if key.lower() == name.encode()]
    return found[0].decode("latin-1") if found else ""


def _basic(name: str, password: str) -> bytes:
    """How a name and a password in an address are told to the server."""
    return b"Basic " + b64encode(f"{unquote(name)}:{unquote(password)}".encode())


def _certificates() -> ssl.SSLContext:
    """Whom to believe: the bundle or folder that the environment names, else certifi's."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder):
        import certifi

        file = certifi.where()
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


def _proxy(scheme: str, host: str) -> httpcore.Proxy | None:
    """The proxy that the environment names for a host, if any."""
    if sys.platform != "darwin" and not any(n.lower().endswith("_proxy") for n in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    known = getproxies()
    given = known.get(scheme) or known.get("all")
    if not given or proxy_bypass(host):
        return None
    parts = urlsplit(given if "://" in given else f"http://{given}")
    if parts.scheme not in _PROXIES:
        raise ValueError(f"{parts.scheme} is no kind of proxy")
    name = parts.netloc.rpartition("@")[2]
    return httpcore.Proxy(
        f"{parts.scheme}://{name}",
        auth=(unquote(parts.username or ""), unquote(parts.password or ""))
        if parts.username is not None
        else None,
        ssl_context=_certificates() if parts.scheme == "https" else None,
    )


def too_long(limit: int) -> AnswerTooLong:
    """The error of an answer with more than `limit` bytes."""
    return AnswerTooLong(
        f"The answer is longer than {limit >> 20} MB.",
        hint="Ask in other words, or use another model (-m).",
    )


async def event_data(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """The data of each server-sent event; AnswerTooLong.

    Its other fields say nothing that the data does not say as well. See
    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    data: list[str] = []
    async for line in _lines(pieces):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line == "data":
            data.append("")
        elif not line:
            if data:
                yield "\n".join(data)
            data = []


async def _lines(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Each line that has ended.

    A byte that is not UTF-8 becomes half of a surrogate pair, which spoils its own event alone.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    size = length = 0
    begun: list[str] = []
    after_cr = False
    async for piece in pieces:
        size += len(piece)
        length = len(piece) - end if (end := piece.rfind(b"\n") + 1) else length + len(piece)
        if size > MAX_ANSWER_BYTES:
            raise too_long(MAX_ANSWER_BYTES)
        if length > MAX_EVENT_BYTES:
            raise too_long(MAX_EVENT_BYTES)
        if not (text := decoder.decode(piece)):
            continue
        if after_cr and text.startswith("\n"):
            text = text[1:]
        after_cr = text.endswith("\r")
        first, *others = _LINE_END.split(text)
        begun.append(first)
        for line in others:
            yield "".join(begun)
            begun = [line]
