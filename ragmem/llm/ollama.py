"""Is an Ollama running here, and with which models? Asked at most once in ten minutes."""

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ragmem.files import replace_private

PROBE_S = 0.15
CACHE_S = 600.0
DEFAULT_WINDOW = 4096
"""Tokens that Ollama keeps, unless OLLAMA_CONTEXT_LENGTH says otherwise; more it drops, unsaid."""


class _Model(msgspec.Struct):
    name: str = ""


class _Tags(msgspec.Struct):
    models: list[_Model] = []


class _Cached(msgspec.Struct):
    url: str
    at: float
    """Seconds since the epoch."""
    models: tuple[str, ...] = ()


def base_url(environ: Mapping[str, str]) -> str:
    """Where Ollama listens: OLLAMA_HOST as Ollama itself reads it, else its default."""
    host = environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    try:
        url = urlsplit(host if "://" in host else f"http://{host}")
    except ValueError:
        return "http://127.0.0.1:11434"
    scheme = "https" if url.scheme == "https" else "http"
    name = url.hostname or "127.0.0.1"
    try:
        port = url.port
    except ValueError:
        port = None
    if port is None:
        port = {"https": 443, "http": 80}.get(url.scheme, 11434) if "://" in host else 11434
    name = "127.0.0.1" if name in ("0.0.0.0", "::", "localhost") else name
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"


def window(environ: Mapping[str, str]) -> int:
    """Tokens of context that this Ollama serves."""
    value = environ.get("OLLAMA_CONTEXT_LENGTH", "")
    return int(value) if value.isdigit() and int(value) > 0 else DEFAULT_WINDOW


def models(environ: Mapping[str, str], cache_file: Path | None = None) -> tuple[str, ...]:
    """Names of its chat models, newest first; empty when there is no answer in 150 ms.

    What was found, or that nothing answered in time, is kept in `cache_file`; a
    refused connection costs nothing and is not kept.
    """
    url = base_url(environ)
    if cache_file is not None and (kept := _read(cache_file, url)) is not None:
        return kept
    found, in_time = _ask(url)
    if cache_file is not None and (found or not in_time):
        _write(cache_file, _Cached(url, time.time(), found))
    return found


def _ask(url: str) -> tuple[tuple[str, ...], bool]:
    """(models, answered or refused in time); a thread, since resolving a name knows no timeout."""
    found: list[tuple[str, ...] | None] = []
    ended = threading.Event()

    def ask() -> None:
        try:
            found.append(_fetch(url))
        finally:
            ended.set()

    threading.Thread(target=ask, name="ollama-probe", daemon=True).start()
    ended.wait(PROBE_S * 1.5)
    models = found[0] if found else None
    return models or (), models is not None


def _fetch(url: str) -> tuple[str, ...] | None:
    """Chat models; empty where there is no Ollama, None where it does not answer in time."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=PROBE_S)
    try:
        connection.request("GET", "/api/tags")
        response = connection.getresponse()
        if response.status != 200:
            return ()
        tags = msgspec.json.decode(response.read(1 << 20), type=_Tags)
    except TimeoutError:
        return None
    except (OSError, HTTPException, msgspec.DecodeError, ValueError):
        return ()
    finally:
        connection.close()
    return tuple(m.name for m in tags.models if m.name and "embed" not in m.name)


def _read(file: Path, url: str) -> tuple[str, ...] | None:
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=_Cached)
    except (OSError, msgspec.DecodeError):
        return None
    fresh = 0 <= time.time() - kept.at < CACHE_S and kept.url == url
    return kept.models if fresh else None


def _write(file: Path, value: _Cached) -> None:
    """Best effort: without a cache the next start asks again."""
    with contextlib.suppress(OSError):
        replace_private(file, msgspec.json.encode(value), sync=False)
