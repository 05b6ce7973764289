"""Streams that drip, or hold what is no text."""

import asyncio

import pytest

from ragmem.errors import LLMError, StreamCut
from ragmem.llm.base import Assembler
from ragmem.text import clean
from tests.attack.torrent import HEAD, Torrent, event, raw
from tests.llm.adapters import Connect, ask, complete, feed, litellm_client, openai_client, warm

_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
_ERROR = b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\n\r\n"
_EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.mark.parametrize(
    ("connect", "head", "block"),
    [
        pytest.param(openai_client, HEAD, b": keep-alive\n\n", id="comments"),
        pytest.param(openai_client, HEAD, b"x", id="half a line"),
        pytest.param(openai_client, HEAD, b"\n", id="empty lines"),
        pytest.param(openai_client, b"HTTP/1.1 200 OK\r\n", b"X-Drip: 1\r\n", id="a head"),
        pytest.param(litellm_client, _EARLY, _EARLY, id="a head of litellm's"),
        pytest.param(openai_client, _JSON, b" ", id="a body"),
        pytest.param(openai_client, _ERROR, b" ", id="an error"),
    ],
)
async def test_a_server_that_drips_without_an_event_has_timed_out(
    connect: Connect, head: bytes, block: bytes
) -> None:
    await warm(connect)
    with Torrent(block, head=head, pause_s=0.1) as server:
        llm = connect(server.url, timeout_s=1.5, retries=3)
        with pytest.raises(LLMError, match=r"sent nothing for 1\.5 s"):
            await complete(llm)
        await llm.aclose()
        assert server.requests == 1


@pytest.mark.parametrize("connect", [openai_client, litellm_client])
async def test_a_stream_that_drips_after_words_has_timed_out(connect: Connect) -> None:
    await warm(connect)
    with Torrent(b": keep-alive\n\n", head=HEAD + event({"content": "Well, "}), pause_s=0.1) as s:
        llm = connect(s.url, timeout_s=3.0)
        assembler = Assembler()
        with pytest.raises(StreamCut, match="sent nothing for 3 s"):
            await feed(assembler, llm)
        await llm.aclose()
    assert assembler.text == "Well, "


@pytest.mark.parametrize("pause_s", [0.1, 600], ids=["all the time", "never"])
async def test_events_after_the_end_hold_nobody_up(pause_s: float) -> None:
    """Whether they go on or are waited for, as where a server tells no usage."""
    end = b'data: {"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}\n\n'
    with Torrent(event({}), head=HEAD + end, pause_s=pause_s) as server:
        llm = openai_client(server.url, timeout_s=120)
        async with asyncio.timeout(60):
            assert (await complete(llm)).text == "ok"
        await llm.aclose()


def said(text: bytes, end: bytes = b"null") -> bytes:
    """An event with this text, as it stands in the JSON."""
    return b'data: {"choices": [{"delta": {"content": "%s"}, "finish_reason": %s}]}\n\n' % (
        text,
        end,
    )


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (said(rb"one \ud800 two") + said(b", three."), "one \ufffd two, three."),
        (said(b"one \xff two") + said(b", three."), "one \ufffd two, three."),
        (said(rb"one \ud83d") + said(rb"\ude00 two"), "one \U0001f600 two"),
    ],
    ids=["half of a pair", "bytes", "a character in two events"],
)
async def test_a_bad_event_spoils_its_own_place_in_the_answer(stream: bytes, text: str) -> None:
    with raw(b"Content-Type: text/event-stream\r\n", stream + said(b"", b'"stop"')) as server:
        assert clean((await ask(openai_client, server.url)).text) == text


async def test_a_bad_event_in_a_tool_call_is_no_other_call() -> None:
    call = (
        rb'data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": '
        rb'{"name": "run_command", "arguments": "{\"command\": \"rm \ud800\"}"}}]}}]}' + b"\n\n"
        b'data: {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}\n\n'
    )
    with raw(b"Content-Type: text/event-stream\r\n", call) as server, pytest.raises(LLMError):
        await ask(openai_client, server.url)
