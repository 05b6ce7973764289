"""A scripted server on loopback: real HTTP, real faults, no model.

It speaks chat completions, and at their paths OpenAI's Responses, Anthropic's Messages and
Gemini's generateContent.

In a test, in process (it runs in threads, so sync and async tests use it alike):

    with LLMServer([
        Answer(tools=[Call("read_file", {"path": "a.py"})]),
        Answer("It prints hello."),
        Answer(mode="429", retry_after="1"),        # a fault, then the next request goes on
        lambda request: Answer(f"You sent {len(request.body['messages'])} messages."),
    ]) as server:
        ... RAGMEM_API_BASE=server.url, RAGMEM_MODEL="openai/scripted", RAGMEM_API_KEY="any" ...
    server.requests[0].body["messages"]             # every request, as it arrived
    server.requests[0].headers["authorization"]

Each request takes the next answer of the script. Answers with `model` set wait
for requests of that model (a summary model, say). When the script is over, every
further request is a 400 "the script is over", unless `repeat=True`: then the last
answer repeats. `server.env` is the environment that points ragmem at the server.

`LLMServer.spawn(...)` runs one in a process of its own.

`/embeddings` answers with vectors of shared words, of 8 numbers or as asked (`text="16"` sends
others); `mode` and `delay_s` work there too.

Modes of an answer. Faults strike after `cut_at` bytes of the stream (default: half):
  ok          the answer
  cut_rst     connection reset                 cut_clean  the body ends as if it were whole
  cut_noend   closed without the last chunk    stall      silent in the middle
  silent      nothing at all, not even headers nothing    200, event stream of no bytes
  badjson     an event that is not JSON        utf8       bytes that are not UTF-8
  errevent    an SSE error event               empty      a proper end, but no words and no tools
  429 (Retry-After: `retry_after`), 500, 502 (HTML), 401, 403, 404
  400, 400_context (the prompt is too long)    html, json_error: a 200 that is not a stream
"""

import contextlib
import hashlib
import json
import multiprocessing
import re
import select
import signal
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import msgspec

Mode = str
"""One of those above."""

HTML = "<!DOCTYPE html><html><head><title>Welcome</title></head><body>Sign in</body></html>"


class Call(msgspec.Struct, frozen=True):
    """A tool call; `arguments` as an object, or as raw text to send what is not JSON."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the server says to one request."""

    text: str | list[str] = ""
    tools: list[Call] = []
    reasoning: str = ""
    mode: Mode = "ok"
    model: str = ""
    """Only for requests of this model."""
    usage: tuple[int, int, int] | None = (100, 20, 0)
    """Tokens in, out, cached; sent if the request asks for usage."""
    finish: str = ""
    """Default: tool_calls with tools, else stop."""
    delay_s: float = 0.0
    """Before the first byte."""
    chunk_delay_s: float = 0.0
    """Between events."""
    chunk_chars: int = 12
    """Characters of text and arguments per event."""
    write_bytes: int = 0
    """Bytes per write, to split characters and events; 0: an event a write."""
    cut_at: int = -1
    """Bytes of the stream before the fault; -1: half."""
    retry_after: str = ""
    message: str = ""
    """Of an error body."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"there is no mode {self.mode!r}")


class Received(msgspec.Struct, frozen=True):
    """A request as it arrived; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Step = Answer | Callable[[Received], Answer]


def render(answer: Answer, *, model: str = "scripted", usage: bool = True) -> list[bytes]:
    """The events of an answer's stream, `data: [DONE]` last."""
    events: list[dict[str, Any]] = [_delta({"role": "assistant", "content": ""}, model)]
    for piece in _pieces(answer.reasoning, answer.chunk_chars):
        events.append(_delta({"reasoning_content": piece}, model))
    for piece in _words_of(answer):
        events.append(_delta({"content": piece}, model))
    for index, call in enumerate(answer.tools):
        head = {"name": call.name, "arguments": ""}
        first = {"index": index, "id": _call_id(call, index), "type": "function", "function": head}
        events.append(_delta({"tool_calls": [first]}, model))
        for piece in _pieces(_arguments(call), answer.chunk_chars):
            more = {"index": index, "function": {"arguments": piece}}
            events.append(_delta({"tool_calls": [more]}, model))
    events.append(_delta({}, model, finish=_finish(answer)))
    if usage and answer.usage is not None:
        events.append({**_delta({}, model), "choices": [], "usage": _usage(answer.usage)})
    return [_event(e) for e in events] + [b"data: [DONE]\n\n"]


def render_anthropic(answer: Answer) -> list[bytes]:
    """The same as Anthropic's Messages stream it."""
    into, out, cached = answer.usage or (0, 0, 0)
    usage = {"input_tokens": into - cached, "cache_read_input_tokens": cached, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": usage}}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if answer.reasoning:
        said = [{"type": "thinking_delta", "thinking": p} for p in _pieces(answer.reasoning, 12)]
        signed = {"type": "signature_delta", "signature": "signed"}
        blocks.append(({"type": "thinking", "thinking": ""}, [*said, signed]))
    if answer.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _words_of(answer)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for index, call in enumerate(answer.tools):
        head = {"type": "tool_use", "id": _call_id(call, index), "name": call.name, "input": {}}
        parts = _pieces(_arguments(call), answer.chunk_chars)
        blocks.append((head, [{"type": "input_json_delta", "partial_json": p} for p in parts]))
    for index, (head, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": head})
        events.append({"type": "ping"})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ends = {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}
    delta = {"stop_reason": ends.get(_finish(answer), "refusal")}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": out}})
    events.append({"type": "message_stop"})
    return [f"event: {e['type']}\n".encode() + _event(e) for e in events]


def render_gemini(answer: Answer) -> list[bytes]:
    """The same as Gemini streams it: calls come whole."""
    thoughts = _pieces(answer.reasoning, answer.chunk_chars)
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in thoughts]
    parts += [{"text": piece} for piece in _words_of(answer)]
    for index, call in enumerate(answer.tools):
        made = {"name": call.name, "args": json.loads(_arguments(call))}
        parts.append({"functionCall": made, **({} if index else {"thoughtSignature": "signed"})})
    into, out, cached = answer.usage or (0, 0, 0)
    events: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts
    ]
    ends = {"tool_calls": "STOP", "stop": "STOP", "length": "MAX_TOKENS"}
    counted = {
        "promptTokenCount": into,
        "candidatesTokenCount": out,
        "cachedContentTokenCount": cached,
    }
    last = {"finishReason": ends.get(_finish(answer), "SAFETY"), "content": {"parts": []}}
    events.append({"candidates": [last], "usageMetadata": counted})
    return [_event(e) for e in events]


def render_responses(answer: Answer) -> list[bytes]:
    """The same as OpenAI's Responses stream it."""
    items: list[tuple[dict[str, Any], str, list[str]]] = []
    if answer.reasoning:
        head = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed"}
        thoughts = _pieces(answer.reasoning, answer.chunk_chars)
        items.append((head, "reasoning_summary_text", thoughts))
    if answer.text:
        head = {"type": "message", "role": "assistant"}
        items.append((head, "output_text", _words_of(answer)))
    for index, call in enumerate(answer.tools):
        head = {"type": "function_call", "call_id": _call_id(call, index), "name": call.name}
        parts = _pieces(_arguments(call), answer.chunk_chars)
        items.append((head, "function_call_arguments", parts))
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {}}]
    for index, (item, kind, pieces) in enumerate(items):
        whole = {**item, "arguments": _arguments(answer.tools[-1])} if "name" in item else item
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        delta = {"type": f"response.{kind}.delta", "output_index": index}
        events += [{**delta, "delta": piece} for piece in pieces]
        events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
    into, out, cached = answer.usage or (0, 0, 0)
    usage = {
        "input_tokens": into,
        "output_tokens": out,
        "input_tokens_details": {"cached_tokens": cached},
    }
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    if reason := reasons.get(_finish(answer)):
        ended = {"usage": usage, "incomplete_details": {"reason": reason}}
        events.append({"type": "response.incomplete", "response": ended})
    else:
        events.append({"type": "response.completed", "response": {"usage": usage}})
    return [f"event: {e['type']}\n".encode() + _event(e) for e in events]


def rendered(path: str, answer: Answer, body: dict[str, Any]) -> list[bytes]:
    """The events of an answer, as the protocol of this path has them."""
    if path.endswith("/messages"):
        return render_anthropic(answer)
    if ":streamGenerateContent" in path:
        return render_gemini(answer)
    if path.endswith("/responses"):
        return render_responses(answer)
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return render(answer, model=str(body.get("model", "")), usage=usage)


def model_env(url: str) -> dict[str, str]:
    """Variables that make ragmem use the server at this address."""
    return {
        "RAGMEM_API_BASE": url,
        "RAGMEM_MODEL": "openai/scripted",
        "RAGMEM_API_KEY": "scripted-key",
        # Tests of background work switch it on: elsewhere each request is one of the turn's.
        "RAGMEM_MEMORY__WORKER": "off",
        # On a busy machine a question would be searched for by its words alone.
        "RAGMEM_MEMORY__EMBEDDINGS__TIMEOUT_S": "30",
        "RAGMEM_CODE__WAIT_S": "30",
        # No process outlives the test that started it.
        "RAGMEM_MEMORY__EMBEDDINGS__IDLE_S": "0",
    }


class LLMServer:
    def __init__(
        self,
        script: Sequence[Step] = (),
        *,
        repeat: bool = False,
        models: Sequence[str] = ("scripted",),
        ollama: bool = False,
        refuse_stream_options: bool = False,
        uds: Path | None = None,
    ) -> None:
        self.requests: list[Received] = []
        self.refuse_stream_options = refuse_stream_options
        self.models = tuple(models)
        self.ollama = ollama
        self.stopping = threading.Event()
        self._script = list(script)
        self._repeat = repeat
        self._lock = threading.Lock()
        self._tcp: socketserver.BaseServer
        if uds is None:
            self._tcp = _Tcp(("127.0.0.1", 0), _Handler)
            self.port = self._tcp.server_address[1]
        else:
            self._tcp = _Unix(str(uds), _UnixHandler)
            self.port = 0
        self._tcp.llm = self
        self._thread = threading.Thread(
            target=self._tcp.serve_forever, args=(0.02,), name="llm-server", daemon=True
        )

    def extend(self, *steps: Step) -> None:
        """More answers, while it runs: before the one that repeats."""
        with self._lock:
            end = len(self._script) - self._repeat
            self._script[end:end] = steps

    def always(self, step: Step) -> None:
        """Nothing but this from now on."""
        with self._lock:
            self._script, self._repeat = [step], True

    @property
    def left(self) -> int:
        with self._lock:
            return len(self._script)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection and the threads."""
        self.stopping.set()
        self._tcp.shutdown()
        self._tcp.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def env(self) -> dict[str, str]:
        """Variables that make ragmem use this server."""
        return model_env(self.url)

    @staticmethod
    @contextlib.contextmanager
    def spawn(script: Sequence[Answer], *, repeat: bool = False) -> Iterator[str]:
        """The address of one in another process."""
        processes = multiprocessing.get_context("spawn")
        line, theirs = processes.Pipe()
        process = processes.Process(target=_serve, args=(script, repeat, theirs), daemon=True)
        process.start()
        try:
            yield line.recv()
        finally:
            process.terminate()
            process.join()

    def take(self, request: Received) -> Answer:
        """Record the request and choose its answer."""
        with self._lock:
            self.requests.append(request)
            step = self._next(str(request.body.get("model", "")))
        return step if isinstance(step, Answer) else step(request)

    def _next(self, model: str) -> Step:
        for i, step in enumerate(self._script):
            wanted = step.model if isinstance(step, Answer) else ""
            if wanted in ("", model):
                last = self._repeat and i == len(self._script) - 1
                return step if last else self._script.pop(i)
        return Answer(mode="400", message="the script is over")


class _Quiet:
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # A client that leaves in the middle is part of the game.


class _Tcp(_Quiet, socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 64


class _Unix(_Quiet, socketserver.ThreadingUnixStreamServer):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 30

    @property
    def llm(self) -> LLMServer:
        return self.server.llm

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        """As the parent's, but an idle connection ends when the server stops."""
        while not self.llm.stopping.is_set():
            if select.select([self.connection], [], [], 0.05)[0]:
                super().handle_one_request()
                return
        self.close_connection = True

    def do_GET(self) -> None:
        if self.path.startswith("/v1/models"):
            self._json(200, {"object": "list", "data": [{"id": m} for m in self.llm.models]})
        elif self.path.startswith("/api/tags") and self.llm.ollama:
            self._json(200, {"models": [{"name": m, "model": m} for m in self.llm.models]})
        else:
            self._json(404, {"error": {"message": f"no route {self.path}"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            body = json.loads(raw)
        except ValueError:
            self._json(400, {"error": {"message": "the request is not JSON"}})
            return
        if self.llm.refuse_stream_options and "stream_options" in body:
            self._json(400, {"error": {"message": "Unrecognized argument: stream_options"}})
            return
        headers = {k.lower(): v for k, v in self.headers.items()}
        if found := re.search(r"/models/(.+):streamGenerateContent", self.path):
            body["model"] = found[1]
        answer = self.llm.take(Received(self.path, headers, body))
        self._wait(answer.delay_s)
        if answer.mode == "silent":
            self._wait(3600)
            self.close_connection = True
        elif answer.mode in _STATUS or answer.mode in ("html", "json_error"):
            self._refuse(answer)
        elif self.path.endswith("/embeddings"):
            self._json(200, _vectors(body, answer))
        else:
            self._stream(answer, body)

    def _refuse(self, answer: Answer) -> None:
        if answer.mode in ("html", "502"):
            self._send(200 if answer.mode == "html" else 502, HTML.encode(), "text/html")
            return
        if answer.mode == "json_error":
            text = answer.message or "the upstream is overloaded"
            self._json(200, {"error": {"message": text, "code": 503}})
            return
        status, text, code = _STATUS[answer.mode]
        extra = {"Retry-After": answer.retry_after} if answer.retry_after else {}
        error = {"message": answer.message or text, "type": "error", "code": code}
        self._json(status, {"error": error}, extra)

    def _stream(self, answer: Answer, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        if answer.mode not in ("ok", "empty"):
            self.send_header("Connection", "close")
        self.end_headers()
        if answer.mode == "empty":
            answer = msgspec.structs.replace(answer, text="", tools=[], reasoning="")
        events = rendered(self.path, answer, body)
        if answer.mode in ("ok", "empty"):
            self._write_events(events, answer)
            self._chunk(b"")
            return
        whole = b"".join(events)
        cut = 0 if answer.mode == "nothing" else answer.cut_at
        cut = len(whole) // 2 if cut < 0 else min(cut, len(whole))
        before = whole[:cut]
        if answer.mode in _INJECTED:
            # Between two events, so that the fault is the event itself.
            before = before[: before.rfind(b"\n\n") + 2] + _INJECTED[answer.mode]
        if before:
            self._chunk(before)
        match answer.mode:
            case "cut_rst":
                # Linger zero: close() sends RST instead of FIN.
                linger = struct.pack("ii", 1, 0)
                time.sleep(0.02)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            case "stall":
                self._wait(3600)
            case "cut_noend":
                pass
            case _:
                self._chunk(b"")
        self.close_connection = True

    def _write_events(self, events: list[bytes], answer: Answer) -> None:
        if answer.write_bytes:
            whole = b"".join(events)
            size = answer.write_bytes
            events = [whole[i : i + size] for i in range(0, len(whole), size)]
        for event in events:
            self._chunk(event)
            self._wait(answer.chunk_delay_s)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _wait(self, seconds: float) -> None:
        """Sleep; ends at once when the server stops or the client leaves."""
        deadline = time.monotonic() + seconds
        while not self.llm.stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            self.llm.stopping.wait(min(left, 0.05))
            if seconds >= 1 and self._client_left():
                return

    def _client_left(self) -> bool:
        # The connection has a timeout: asked for a byte, it would wait that long.
        try:
            readable = select.select([self.connection], [], [], 0)[0]
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _json(self, status: int, body: Any, extra: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(body).encode(), "application/json", extra)

    def _send(
        self, status: int, body: bytes, kind: str, extra: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _UnixHandler(_Handler):
    disable_nagle_algorithm = False


_STATUS: dict[str, tuple[int, str, str]] = {
    "429": (429, "Rate limit reached", "rate_limit_exceeded"),
    "500": (500, "The server had an error", "server_error"),
    "502": (502, "", ""),
    "401": (401, "Incorrect API key provided", "invalid_api_key"),
    "403": (403, "Your organisation may not use this model", "forbidden"),
    "404": (404, "The model `scripted` does not exist", "model_not_found"),
    "400": (400, "Invalid value for 'messages'", "invalid_request_error"),
    "400_context": (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages "
        "resulted in 9000 tokens. Please reduce the length of the messages.",
        "context_length_exceeded",
    ),
}

_INJECTED = {
    "badjson": b'data: {"choices": [{"delta": {"content": "tru\n\n',
    "utf8": b'data: {"choices": [{"index": 0, "delta": {"content": "\xff\xfe\xc3("}}]}\n\n',
    "errevent": b'data: {"error": {"message": "Overloaded", "type": "server_error", '
    b'"code": "overloaded"}}\n\n',
}


MODES = {
    *("ok", "cut_rst", "cut_clean", "cut_noend", "stall", "silent", "nothing", "empty"),
    *("html", "json_error", *_STATUS, *_INJECTED),
}


def _words_of(answer: Answer) -> list[str]:
    if isinstance(answer.text, list):
        return answer.text
    return _pieces(answer.text, answer.chunk_chars)


def _pieces(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), max(1, size))]


def _call_id(call: Call, index: int) -> str:
    return call.id or f"call_{call.name}_{index}"


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.tools else "stop")


def _usage(usage: tuple[int, int, int]) -> dict[str, Any]:
    into, out, cached = usage
    return {
        "prompt_tokens": into,
        "completion_tokens": out,
        "total_tokens": into + out,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _delta(delta: dict[str, Any], model: str, finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _vectors(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """A vector a text, last text first; `answer.text` may name another dimension than asked."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    dimension = int("".join(answer.text) or body.get("dimensions") or 8)
    rows = [
        {"object": "embedding", "index": i, "embedding": word_vector(text, dimension)}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": sum(len(t.split()) for t in texts), "total_tokens": 0}
    return {"object": "list", "data": rows[::-1], "model": body.get("model"), "usage": usage}


def word_vector(text: str, dimension: int) -> list[float]:
    """A vector that is closer the more words two texts share; never of length 0, rarely 1."""
    vector = [0.01] * dimension
    for word in re.findall(r"\w+", text.casefold()):
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest, "big") % dimension] += 1.0
    return vector


def _serve(script: Sequence[Answer], repeat: bool, line: Connection) -> None:
    with LLMServer(script, repeat=repeat) as server:
        line.send(server.url)
        signal.pause()
