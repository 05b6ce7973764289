"""What litellm must not do: read a folder's `.env`, ask the network, print, make up an end."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from ragmem.errors import LLMError, ProviderRefused, RequestRefused, StreamCut
from ragmem.llm.base import Assembler, ModelInfo, UsageChunk
from ragmem.llm.http_client import Endpoint
from ragmem.llm.litellm_client import LiteLLMClient
from ragmem.messages import system, user
from tests.attack.torrent import raw
from tests.fakes.llm_server import Answer, Call, LLMServer, render_anthropic
from tests.llm.adapters import KEY, all_text_of, ask, asking, complete, feed, litellm_client

PROBE = """
import sys, os, socket
asked = []
def audit(event, args):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and args[0].family != 1):
        asked.append((event, str(args[-1])))
sys.addaudithook(audit)
from ragmem.libraries import load_litellm
before = set(os.environ)
load_litellm()
load_litellm()
print("ASKED", asked)
print("CANARY", os.environ.get("RAGMEM_CANARY"), os.environ.get("OPENAI_API_BASE"))
print("MCP", "mcp" in sys.modules)
print("GONE", before - set(os.environ))
"""


@pytest.mark.parametrize("how", [pytest.param("-c", marks=pytest.mark.campaign), "script"])
def test_no_env_file_no_network_no_words(how: str, tmp_path: Path) -> None:
    """Imported in a folder with a hostile `.env`, by `python -c` or by a script.

    No variable goes, which a thread that copies the environment meanwhile would miss.
    """
    (tmp_path / ".env").write_text("RAGMEM_CANARY=read\nOPENAI_API_BASE=http://evil.invalid\n")
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("LITELLM", "PYTHON"))}
    environ |= {
        "PYTHONPATH": str(Path(__file__).parents[2]), "LITELLM_MODE": "DEV", "LITELLM_LOG": "DEBUG",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *(["-c", PROBE] if how == "-c" else [str(script)])],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ASKED []", "CANARY None None", "MCP False", "GONE set()"]
    assert done.stderr == ""


async def test_an_unknown_provider_is_refused_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    """No "Provider List" banner on stdout."""
    name = "antropic/x"
    endpoint = Endpoint(base_url="", model=name, api_key=KEY)
    llm = LiteLLMClient(ModelInfo(name=name), endpoint, retries=0)
    with pytest.raises(ProviderRefused) as caught:
        await complete(llm)
    await llm.aclose()
    assert "The provider 'antropic' of" in str(caught.value)
    assert KEY not in all_text_of(caught.value)
    assert capfd.readouterr() == ("", "")


async def test_tools_do_not_import_mcp(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of this process may have imported it.
    monkeypatch.delitem(sys.modules, "mcp", raising=False)
    with LLMServer([Answer("ok")]) as server:
        await ask(litellm_client, server.url)
    assert "mcp" not in sys.modules


async def test_a_malformed_call_is_a_cut() -> None:
    malformed = Answer(tools=[Call("f", '{"cmd": "rm -rf /tmp/x')])
    with LLMServer([malformed]) as server, pytest.raises(StreamCut, match="incomplete"):
        await ask(litellm_client, server.url)


async def test_a_refusal_that_litellm_forgets_is_one() -> None:
    body = b'{"error": {"message": "Unprocessable"}}'
    with (
        raw(b"Content-Type: application/json\r\n", body, status=b"422 No") as server,
        pytest.raises(RequestRefused, match="answered 422"),
    ):
        await ask(litellm_client, server.url)


async def test_tokens_that_no_server_counted_are_unknown() -> None:
    with LLMServer([Answer("ok", usage=None)]) as server:
        assert (await ask(litellm_client, server.url)).usage == UsageChunk()


# --- a provider that speaks another format ----------------------------------------

LOOKS = Answer(
    "Let me look.", tools=[Call("read_file", {"path": "a.py"}, id="toolu_1")], usage=(25, 15, 0)
)
EVENTS = render_anthropic(LOOKS)


@asynccontextmanager
async def anthropic(*answers: Answer) -> AsyncIterator[tuple[LiteLLMClient, LLMServer]]:
    """The adapter for Anthropic, at a server of ours."""
    name = "anthropic/claude-sonnet-5-5"
    with LLMServer(answers) as server:
        endpoint = Endpoint(base_url=server.url.removesuffix("/v1"), model=name, api_key=KEY)
        llm = LiteLLMClient(ModelInfo(name=name), endpoint, retries=0)
        yield llm, server
        await llm.aclose()


async def test_anthropic_answers_whole() -> None:
    """It is told what to cache: rules and history are reread at a tenth of the price."""
    async with anthropic(LOOKS) as (llm, server):
        done = await complete(llm, asking(system("Be brief."), user("What is in a.py?")))
    assert done.text == "Let me look."
    (use,) = done.tool_uses
    assert (use.id, use.name, json.loads(use.arguments)) == (
        "toolu_1", "read_file", {"path": "a.py"},
    )  # fmt: skip
    assert done.end_reason == "tool_calls"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (25, 15)
    sent, marker = server.requests[0].body, {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": marker}]
    assert sent["messages"][-1]["content"][-1]["cache_control"] == marker


async def test_anthropic_cut_anywhere() -> None:
    """A body that ends properly before stop_reason is a cut, after any event."""
    counts = range(0, len(EVENTS) - 1, 2)
    ends = [len(b"".join(EVENTS[:count])) for count in counts]
    cut = [structs.replace(LOOKS, mode="cut_clean", cut_at=end) for end in ends]
    async with anthropic(*cut) as (llm, _):
        for count in counts:
            assembler = Assembler()
            with pytest.raises(LLMError) as caught:
                await feed(assembler, llm)
            assert not assembler.text or isinstance(caught.value, StreamCut), count
