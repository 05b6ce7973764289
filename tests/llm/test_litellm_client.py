"""What litellm must not do: read a folder's `.env`, ask the network, print, make up an end."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ragmem.errors import LLMError, ProviderRefused, StreamCut
from ragmem.llm.base import ModelInfo, TextChunk
from ragmem.llm.litellm_client import LiteLLMClient
from ragmem.messages import system, user
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.llm.adapters import KEY, all_text_of, asking, complete, litellm_client

PROBE = """
import sys, os, socket
asked = []
def audit(event, args):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and args[0].family != 1):
        asked.append((event, str(args[-1])))
sys.addaudithook(audit)
from ragmem.llm.litellm_client import load_litellm
load_litellm()
load_litellm()
print("ASKED", asked)
print("CANARY", os.environ.get("RAGMEM_CANARY"), os.environ.get("OPENAI_API_BASE"))
print("MCP", "mcp" in sys.modules)
"""


def run_probe(how: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Import litellm in a folder with a hostile `.env`, as `python -c` or as a script."""
    (folder / ".env").write_text("RAGMEM_CANARY=read\nOPENAI_API_BASE=http://evil.invalid\n")
    script = folder / "probe.py"
    script.write_text(PROBE)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("LITELLM", "PYTHON"))}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    environ["LITELLM_MODE"] = "DEV"
    environ["LITELLM_LOG"] = "DEBUG"
    return subprocess.run(
        [sys.executable, *(["-c", PROBE] if how == "-c" else [str(script)])],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.parametrize("how", [pytest.param("-c", marks=pytest.mark.campaign), "script"])
def test_no_env_file_no_network_no_words(how: str, tmp_path: Path) -> None:
    done = run_probe(how, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ASKED []", "CANARY None None", "MCP False"]
    assert done.stderr == ""


async def test_an_unknown_provider_is_refused_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    """No "Provider List" banner on stdout."""
    name = "antropic/x"
    llm = LiteLLMClient(ModelInfo(name=name), model=name, api_key=KEY, retries=0)
    with pytest.raises(ProviderRefused) as caught:
        await complete(llm)
    await llm.aclose()
    assert "names no provider that is known: 'antropic' is none." in str(caught.value)
    assert KEY not in all_text_of(caught.value)
    assert capfd.readouterr() == ("", "")


async def test_tools_do_not_import_mcp(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of this process may have imported it.
    monkeypatch.delitem(sys.modules, "mcp", raising=False)
    with LLMServer([Answer("ok")]) as server:
        llm = litellm_client(server.url)
        await complete(llm, asking())
        await llm.aclose()
    assert "mcp" not in sys.modules


async def test_a_malformed_call_is_a_cut() -> None:
    with LLMServer([Answer(tools=[Call("f", '{"cmd": "rm -rf /tmp/x')])]) as server:
        llm = litellm_client(server.url)
        with pytest.raises(StreamCut, match="not whole"):
            await complete(llm)
        await llm.aclose()


# --- a provider that speaks another format ----------------------------------------


def anthropic_events() -> list[bytes]:
    """An answer of Anthropic's API: words, then a tool call, then its end."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
    values: list[dict[str, object]] = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "content": [],
                "model": "claude-sonnet-5-5",
                "stop_reason": None,
                "usage": {"input_tokens": 25, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        _delta(0, {"type": "text_delta", "text": "Let me look."}),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        _delta(1, {"type": "input_json_delta", "partial_json": '{"path": '}),
        _delta(1, {"type": "input_json_delta", "partial_json": '"a.py"}'}),
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 15},
        },
        {"type": "message_stop"},
    ]
    return [f"event: {v['type']}\ndata: {json.dumps(v)}\n\n".encode() for v in values]


def _delta(index: int, delta: dict[str, str]) -> dict[str, object]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


class AnthropicServer:
    """Sends the first `count` events and ends the body properly."""

    def __init__(self, count: int) -> None:
        body = b"".join(anthropic_events()[:count])
        self.requests: list[dict[str, Any]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "AnthropicServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def anthropic_client(url: str) -> LiteLLMClient:
    """The adapter for Anthropic, at an address of ours."""
    name = "anthropic/claude-sonnet-5-5"
    return LiteLLMClient(ModelInfo(name=name), model=name, api_key=KEY, api_base=url, retries=0)


async def test_anthropic_answers_whole() -> None:
    with AnthropicServer(99) as server:
        llm = anthropic_client(server.url)
        done = await complete(llm)
        await llm.aclose()
    assert done.text == "Let me look."
    assert [(u.id, u.name, u.arguments) for u in done.tool_uses] == [
        ("toolu_1", "read_file", '{"path": "a.py"}')
    ]
    assert done.end_reason == "tool_calls"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (25, 15)


async def test_anthropic_is_told_what_to_cache() -> None:
    """The system message and the history so far are reread at a tenth of the price."""
    with AnthropicServer(99) as server:
        llm = anthropic_client(server.url)
        await complete(llm, asking(system("Be brief."), user("What is in a.py?")))
        await llm.aclose()
    sent = server.requests[0]
    marker = {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": marker}]
    assert sent["messages"][-1]["content"][-1]["cache_control"] == marker


@pytest.mark.parametrize("count", range(8))
async def test_anthropic_cut_anywhere(count: int) -> None:
    """A body that ends properly before stop_reason is a cut, after any event."""
    with AnthropicServer(count) as server:
        llm = anthropic_client(server.url)
        got = []
        with pytest.raises(LLMError) as caught:
            await _collect(llm, got)
        await llm.aclose()
    if any(isinstance(c, TextChunk) for c in got):
        assert isinstance(caught.value, StreamCut)


async def _collect(llm: LiteLLMClient, into: list[object]) -> None:
    async for chunk in llm.stream(asking()):
        into.append(chunk)
