"""Requests to a model's server: httpcore, with what its callers bring along themselves.

httpx, which would do the rest, is not asked: no redirection is followed, no cookie kept, no body
compressed, and importing it takes an eighth of a start. The rest is here: certificates, proxies,
and a name in the address.
"""

import ssl
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ragmem.config import environment
from ragmem.libraries import load_httpcore

load_httpcore()
import httpcore  # noqa: E402

CONNECT_TIMEOUT_S = 10.0
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
            name = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            sent[b"Authorization"] = b"Basic " + b64encode(name.encode())
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


def _certificates() -> ssl.SSLContext:
    """Whom to believe: the bundle or folder that the environment names, else certifi's."""
    environ = environment()
    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    if not (file or folder):
        import certifi

        file = certifi.where()
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


def _proxy(scheme: str, host: str) -> httpcore.Proxy | None:
    if sys.platform != "darwin" and not any(n.lower().endswith("_proxy") for n in environment()):
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
    told = (unquote(parts.username or ""), unquote(parts.password or ""))
    return httpcore.Proxy(
        f"{parts.scheme}://{name}",
        auth=told if parts.username is not None else None,
        ssl_context=_certificates() if parts.scheme == "https" else None,
    )
