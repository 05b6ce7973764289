"""Client for models' HTTP APIs, which stream server-sent events; protocols are subclasses.

OpenAI's two protocols are here: chat completions, which most other servers speak as well, and
Responses (https://platform.openai.com/docs/api-reference/responses), for its reasoning models and
those that have no other API. No provider's SDK is used: importing one takes 0.8 to 3 s, which each
one-shot call would pay. Nor is httpx, which takes an eighth of the startup time: redirects, cookies
and compression are not used. TLS certificates, proxies and credentials in the URL are handled here;
httpcore, which does the rest, is imported on demand.
"""

import asyncio
import ssl
import sys
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from ragmem.config import environment
from ragmem.errors import LLMError, chain, in_the_systems_words
from ragmem.libraries import load_httpcore, pip_install
from ragmem.llm import faults, wire
from ragmem.llm.base import (
    Chunk,
    ModelInfo,
    Passing,
    ReasoningChunk,
    Request,
    TextChunk,
    UsageChunk,
    retried,
)
from ragmem.llm.faults import Peer
from ragmem.llm.wire import MAX_EVENT_BYTES, EventReader, Refusal, event_data, timed, too_long
from ragmem.messages import ImagePart, Json, Message, TextPart, ToolAnswer, ToolUse
from ragmem.text import clean

if TYPE_CHECKING:
    from httpcore import URL, AsyncConnectionPool, Proxy, Response

_CONNECT_TIMEOUT_S = 10.0
_KEEPALIVE_S = 5.0
_END_FOLLOWS_S = 0.1
_URL_SAFE = "/:?%@!$&'()*+,;="
_PROXIES = {"http", "https", "socks5", "socks5h"}


class Endpoint(Peer, frozen=True, kw_only=True):
    """The address of a model, its credentials, and peculiarities of its server."""

    name: str = ""
    """The name to show; empty for the host."""
    base_url: str
    """The URL without the path of the protocol: `…/v1`."""
    api_key: str | None = None
    uds: Path | None = None
    """A Unix socket to connect to instead of the URL's host."""
    extra_body: Mapping[str, Json] = {}
    tool_call_id_length: int = 0
    """The length that the server requires; 0 for any."""

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, {self.model!r})"


class HttpClient(ABC):
    """Implements `ragmem.llm.base.LLM` over HTTP, with the protocol of a subclass."""

    _path = ""
    """The protocol's path, after the endpoint's base."""

    def __init__(
        self, info: ModelInfo, endpoint: Endpoint, *, timeout_s: float = 120.0, retries: int = 3
    ) -> None:
        self.info = info
        self._timeout_s = timeout_s
        self._retries = retries
        self._pool: AsyncConnectionPool | None = None
        self._proxy: Proxy | None = None
        self._takes_schemas = True
        self._thoughts: wire.Thoughts = {}
        url = urlsplit(endpoint.base_url)
        secrets = tuple(filter(None, (endpoint.api_key, url.password)))
        name = endpoint.name or url.netloc.rpartition("@")[2]
        self._endpoint = msgspec.structs.replace(endpoint, name=name, secrets=secrets)
        host = url.hostname or ""
        is_loopback = host.startswith("127.") or host in ("localhost", "::1", "0.0.0.0")
        self._own_machine = is_loopback or endpoint.uds is not None

    # --- the protocol -----------------------------------------------------------

    @property
    def _url(self) -> str:
        return self._endpoint.base_url.rstrip("/") + self._path

    def _headers(self) -> dict[str, str]:
        """Return the headers for authentication and the protocol's version."""
        key = self._endpoint.api_key
        return {"Authorization": f"Bearer {key}"} if key else {}

    @abstractmethod
    def _body(self, request: Request) -> dict[str, Json]:
        """Return the JSON body of a request."""

    @abstractmethod
    def _reader(self) -> EventReader:
        """Return a reader for one answer."""

    def _adapt(self, body: str) -> bool:
        """Learn from a refusal's body; return whether the next request will differ."""
        return False

    def _schema_of(self, request: Request) -> dict[str, Json] | None:
        """Return the request's answer schema, unless this server has refused one."""
        return request.answer_schema if self._takes_schemas else None

    # --- requests ---------------------------------------------------------------

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """See `LLM.stream`."""
        return retried(lambda: self._attempt(request), self._retries)

    async def prepare(self) -> None:
        """Import the HTTP library."""
        await asyncio.to_thread(load_httpcore)

    async def aclose(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _attempt(self, request: Request) -> AsyncGenerator[Chunk, None]:
        load_httpcore()
        import httpcore

        reader = self._reader()
        fault: LLMError | None = None
        try:
            while fault is None:
                async with self._send(request) as response:
                    if response.status == 200:
                        async for chunk in self._chunks(response, reader):
                            yield chunk
                        break
                    fault = await self._refused(response, request)
        except LLMError as error:
            fault = error.with_traceback(None)
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.ProxyError,
            httpcore.TimeoutException,
        ) as error:
            fault = self._fault(error)
        except TimeoutError:
            fault = faults.timed_out(self._endpoint, self._timeout_s)
        except (ImportError, ValueError) as error:
            fault = faults.unreachable(self._endpoint, f"the proxy settings are wrong: {error}")
        if not reader.end_reason:
            raise fault or faults.closed_early(self._endpoint)
        # The answer is complete: a connection error after its end does not matter.
        for chunk in reader.closing():
            yield chunk

    @asynccontextmanager
    async def _send(self, request: Request) -> AsyncGenerator["Response", None]:
        """Send a request; all headers must arrive in `timeout_s`, not just each byte in turn."""
        async with AsyncExitStack() as stack:
            body = msgspec.json.encode({**self._endpoint.extra_body, **self._body(request)})
            url, headers = self._url_and_headers()
            timeouts = dict.fromkeys(("read", "write", "pool"), self._timeout_s)
            timeouts["connect"] = min(_CONNECT_TIMEOUT_S, self._timeout_s)
            asked = self._connections().stream(
                "POST",
                url,
                headers=[*headers, (b"Content-Length", b"%d" % len(body))],
                content=body,
                extensions={"timeout": timeouts},
            )
            async with asyncio.timeout(self._timeout_s):
                response = await stack.enter_async_context(asked)
            yield response

    async def _chunks(
        self, response: "Response", reader: EventReader
    ) -> AsyncGenerator[Chunk, None]:
        kind = _header(response, "content-type").partition(";")[0].strip().lower()
        packed = _header(response, "content-encoding").strip().lower()
        if packed not in ("", "identity"):
            raise faults.not_an_api(self._endpoint, f"an unrequested {packed} body")
        if kind == "application/json":
            async with asyncio.timeout(self._timeout_s):
                body = await _read(response, MAX_EVENT_BYTES + 1)
            if len(body) > MAX_EVENT_BYTES:
                raise too_long(MAX_EVENT_BYTES)
            for chunk in self._feed(body.decode("utf-8", "surrogateescape"), reader):
                yield chunk
            reader.done()
            return
        if kind not in ("text/event-stream", "text/plain", "application/octet-stream", ""):
            raise faults.not_an_api(self._endpoint, "a web page" if "html" in kind else kind)
        async with aclosing(event_data(response.aiter_stream())) as events:
            async for data in timed(events, reader, self._timeout_s):
                if data == "[DONE]":
                    reader.done()
                    # Read to its end, which comes with it, the connection serves the next request.
                    with suppress(TimeoutError, StopAsyncIteration):
                        async with asyncio.timeout(_END_FOLLOWS_S):
                            await anext(events)
                    return
                for chunk in self._feed(data, reader):
                    yield chunk

    def _feed(self, data: str, reader: EventReader) -> list[Chunk]:
        if not data.strip():
            return []
        try:
            return reader.take(data)
        except Refusal as refusal:
            error = refusal.error
        except ValueError:
            raise Passing(f"{self._endpoint.name} sent an event that is not JSON.") from None
        raise faults.from_event(self._endpoint, error)

    async def _refused(self, response: "Response", request: Request) -> LLMError | None:
        """Return the error for a status; None if an adapted request may be accepted."""
        async with asyncio.timeout(self._timeout_s):
            body = (await _read(response, faults.MOST_ERROR_CHARS)).decode("utf-8", "replace")
        if response.status in (400, 422) and self._adapt(body):
            return None
        if self._schema_of(request) and _may_be_about_schema(response.status, body):
            self._takes_schemas = False
            return None
        seconds = faults.retry_after(_header(response, "retry-after"), body)
        return faults.from_status(self._endpoint, response.status, body, retry_after_s=seconds)

    def _connections(self) -> "AsyncConnectionPool":
        """Return the connections, which are kept alive for a few seconds.

        Raises ValueError if the environment names a proxy that can't be used, and
        ProviderUnavailable if it names certificates that can't be read.
        """
        import httpcore

        if self._pool is None:
            url, uds = urlsplit(self._endpoint.base_url), self._endpoint.uds
            if not self._own_machine:
                self._proxy = _proxy(url.scheme, url.hostname or "")
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=_certificates() if url.scheme == "https" else None,
                # The environment's proxy is used, but never for this machine itself.
                proxy=self._proxy,
                keepalive_expiry=_KEEPALIVE_S,
                uds=str(uds) if uds else None,
            )
        return self._pool

    def _url_and_headers(self) -> "tuple[URL, list[tuple[bytes, bytes]]]":
        import httpcore

        parts, codec = urlsplit(self._url), "ascii" if self._url.isascii() else "idna"
        query = f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else ""
        url = httpcore.URL(
            scheme=parts.scheme.encode(),
            host=(parts.hostname or "").encode(codec),
            port=parts.port,
            target=f"{quote(parts.path or '/', safe=_URL_SAFE)}{query}".encode(),
        )
        headers = {
            "User-Agent": "ragmem",
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            **self._headers(),
        }
        sent = {b"Host": parts.netloc.rpartition("@")[2].encode(codec)}
        sent |= {name.encode(): value.encode() for name, value in headers.items()}
        if parts.username is not None:
            name = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            sent[b"Authorization"] = b"Basic " + b64encode(name.encode())
        return url, list(sent.items())

    def _fault(self, error: Exception) -> LLMError:
        import httpcore

        peer = self._endpoint
        reason = in_the_systems_words(error)
        if isinstance(error, httpcore.ConnectTimeout):
            return self._unreachable(f"no connection within {_CONNECT_TIMEOUT_S:g} s")
        if isinstance(error, httpcore.TimeoutException):
            return faults.timed_out(peer, self._timeout_s)
        if any(isinstance(each, ssl.SSLError) for each in chain(error)):
            return faults.bad_tls(peer, reason)
        if isinstance(error, httpcore.ConnectError | httpcore.ProxyError):
            return self._unreachable(reason)
        lost = faults.scrub(reason, peer.secrets).rstrip(".")
        return Passing(f"The connection to {peer.name} was lost: {lost}.")

    def _unreachable(self, reason: str) -> LLMError:
        proxy = self._proxy.url if self._proxy else None
        through = f"{proxy.host.decode()}:{proxy.port}" if proxy else ""
        return faults.unreachable(self._endpoint, reason, proxy=through)


def _header(response: "Response", name: str) -> str:
    found = [value for key, value in response.headers if key.lower() == name.encode()]
    return found[0].decode("latin-1") if found else ""


def _may_be_about_schema(status: int, body: str) -> bool:
    """Return whether a request may have been refused for its schema, which some say with a 404."""
    folded = body.casefold()
    named = any(word in folded for word in ("schema", "response_format", "structured", "format"))
    return status in (400, 422) or (status in (404, 500, 501) and named)


async def _read(response: "Response", limit: int) -> bytes:
    data = bytearray()
    async for piece in response.aiter_stream():
        data += piece
        if len(data) >= limit:
            break
    return bytes(data[:limit])


class OpenAIClient(HttpClient):
    """Speaks `POST /chat/completions`, which most servers understand."""

    _path = "/chat/completions"
    # Cleared or changed once a client's server has refused them.
    _ask_usage = True
    _limit_name = "max_tokens"

    def _reader(self) -> EventReader:
        return wire.AnswerReader()

    def _adapt(self, body: str) -> bool:
        if self._ask_usage and "stream_options" in body:
            self._ask_usage = False
            return True
        if self._limit_name == "max_tokens" and "max_completion_tokens" in body:
            self._limit_name = "max_completion_tokens"
            return True
        return False

    def _body(self, request: Request) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self._endpoint.model,
            "messages": wire.messages_json(
                request.messages, id_length=self._endpoint.tool_call_id_length
            ),
            "stream": True,
        }
        if self._ask_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = wire.tools_json(request.tools)
        if request.max_output_tokens:
            body[self._limit_name] = request.max_output_tokens
        if request.effort:
            body["reasoning_effort"] = request.effort
        if schema := self._schema_of(request):
            named = {"name": "answer", "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        # See https://platform.openai.com/docs/guides/prompt-caching; others may refuse the field.
        if request.cache_key and self._endpoint.name == "openai":
            body["prompt_cache_key"] = request.cache_key
        return body


class ResponsesClient(HttpClient):
    """Speaks `POST /responses`; the endpoint's base ends in `/v1`."""

    _path = "/responses"

    def _reader(self) -> EventReader:
        return ResponseReader(self._thoughts)

    def _body(self, request: Request) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self._endpoint.model,
            "input": [item for message in request.messages for item in self._items(message)],
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if rules := wire.rules_of(request.messages):
            body["instructions"] = rules
        if request.tools:
            # Not strict, which would make optional arguments required.
            body["tools"] = [
                {"type": "function", "strict": False, **tool["function"]}
                for tool in wire.tools_json(request.tools)
            ]
        if request.max_output_tokens:
            body["max_output_tokens"] = request.max_output_tokens
        if request.effort:
            thinks = {"effort": request.effort}
            body["reasoning"] = thinks | ({} if request.effort == "none" else {"summary": "auto"})
        if schema := self._schema_of(request):
            form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
            body["text"] = {"format": form}
        if request.cache_key:
            body["prompt_cache_key"] = request.cache_key
        return body

    def _items(self, message: Message) -> list[Json]:
        if message.role == "system":
            return []
        role = "assistant" if message.role == "assistant" else "user"
        found: list[Json] = []
        if message.tool_uses:
            found += wire.thought_before(self._thoughts, message.tool_uses[0]) or ()
        for part in message.parts:
            match part:
                case TextPart(text) if clean(text).strip():
                    kind = "output_text" if role == "assistant" else "input_text"
                    found.append({"role": role, "content": [{"type": kind, "text": clean(text)}]})
                case ImagePart():
                    shown = {"type": "input_image", "image_url": part.data_url}
                    found.append({"role": role, "content": [shown]})
                case ToolUse():
                    found.append(
                        {
                            "type": "function_call",
                            "call_id": wire.call_id(part.id),
                            "name": wire.tool_name(part.name),
                            "arguments": wire.arguments_text(part),
                        }
                    )
                case ToolAnswer(use_id, text):
                    output = clean(text) or wire.NOTHING
                    item = {"type": "function_call_output", "call_id": wire.call_id(use_id)}
                    found.append({**item, "output": output})
        return found


# --- responses ---------------------------------------------------------------


class _Call(msgspec.Struct):
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class _TokenDetails(msgspec.Struct):
    cached_tokens: wire.TokenCount = None
    cache_write_tokens: wire.TokenCount = None


class _Usage(msgspec.Struct):
    input_tokens: wire.TokenCount = None
    output_tokens: wire.TokenCount = None
    input_tokens_details: _TokenDetails | None = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    usage: Any = None
    error: Any = None
    incomplete_details: _Reason | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: str | None = None
    item: dict[str, Any] | None = None
    response: _Response | None = None
    message: Any = None
    code: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_END_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponseReader(EventReader):
    """Reads Responses events; `response.completed` or `…incomplete` ends an answer."""

    _refused = False

    def __init__(self, thoughts: wire.Thoughts) -> None:
        self._calls = wire.CallBlocks(thoughts)

    def take(self, data: str) -> list[Chunk]:
        event = wire.decoded(_decode, data)
        response = event.response or _Response()
        if event.error or response.error or event.type == "error":
            error = {"message": event.message, "code": event.code}
            raise wire.Refusal(event.error or response.error or error)
        if usage := wire.counted(response.usage, _Usage):
            details = usage.input_tokens_details or _TokenDetails()
            self._usage = UsageChunk(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=details.cached_tokens,
                written_tokens=details.cache_write_tokens,
            )
        return self._chunks(event, response)

    def _chunks(self, event: _Event, response: _Response) -> list[Chunk]:
        match event.type.removeprefix("response."):
            case "output_text.delta" if event.delta:
                return [TextChunk(event.delta)]
            case "refusal.delta" if event.delta:
                self._refused = True
                return [TextChunk(event.delta)]
            case "reasoning_summary_text.delta" | "reasoning_text.delta" if event.delta:
                return [ReasoningChunk(event.delta)]
            case "reasoning_summary_part.done":
                return [ReasoningChunk("\n\n")]
            case "output_item.added":
                return self._item_added(event.output_index, event.item or {})
            case "function_call_arguments.delta" if event.output_index in self._calls:
                return [self._calls.more(event.output_index, event.delta or "")]
            case "output_item.done":
                return self._item_done(event.output_index, event.item or {})
            case "completed":
                ended = "tool_calls" if self._calls else "stop"
                self.end_reason = "content_filter" if self._refused else ended
            case "incomplete":
                reason = response.incomplete_details or _Reason()
                name = reason.reason or "incomplete"
                self.end_reason = _END_REASONS.get(name, name)
        return []

    def _item_added(self, index: int, raw: dict[str, Any]) -> list[Chunk]:
        if raw.get("type") != "function_call":
            return []
        item = msgspec.convert(raw, _Call)
        return [self._calls.begin(index, item.call_id or "", item.name or "")]

    def _item_done(self, index: int, raw: dict[str, Any]) -> list[Chunk]:
        """Return the chunks of a finished item that did not arrive as deltas; keep reasoning."""
        match raw.get("type"):
            case "reasoning":
                self._calls.thinking.append(raw)
            case "function_call":
                begun = [] if index in self._calls else self._item_added(index, raw)
                call = msgspec.convert(raw, _Call)
                return begun + self._calls.end(index, call.arguments or "")
        return []


def _certificates() -> ssl.SSLContext:
    """Return a TLS context that trusts SSL_CERT_FILE and SSL_CERT_DIR, else certifi's bundle."""
    environ = environment()
    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    if not (file or folder):
        import certifi

        file = certifi.where()
    try:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:
        raise faults.bad_certificates(f"{file}", error.strerror or str(error)) from None


def _proxy(scheme: str, host: str) -> "Proxy | None":
    if sys.platform != "darwin" and not any(n.lower().endswith("_proxy") for n in environment()):
        return None
    from urllib.request import getproxies, proxy_bypass

    import httpcore

    known = getproxies()
    given = known.get(scheme) or known.get("all")
    if not given or proxy_bypass(host):
        return None
    parts = urlsplit(given if "://" in given else f"http://{given}")
    if parts.scheme not in _PROXIES:
        raise ValueError(f"{parts.scheme} is not a kind of proxy")
    if not parts.hostname or not parts.netloc.isascii():
        raise ValueError("its address names no host")
    if parts.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError(f"a SOCKS proxy needs the package socksio: {pip_install()} socksio")
    name = parts.netloc.rpartition("@")[2]
    auth = (unquote(parts.username or ""), unquote(parts.password or ""))
    return httpcore.Proxy(
        f"{parts.scheme}://{name}",
        auth=auth if parts.username is not None else None,
        ssl_context=_certificates() if parts.scheme == "https" else None,
    )
