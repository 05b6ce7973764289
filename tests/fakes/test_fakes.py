"""The fakes do what they say: a test that trusts them can fail."""

import json

import httpcore
import pytest

from ragmem.errors import StreamCut
from ragmem.llm.base import Assembler, Request
from ragmem.messages import ToolUse, user
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.scripted_llm import Says, ScriptedLLM


def ask(url: str, model: str = "m") -> tuple[int, bytes]:
    body = json.dumps({"model": model}).encode()
    response = httpcore.request("POST", f"{url}/chat/completions", content=body)
    return response.status, response.content


def test_answers_in_order_then_refuses() -> None:
    """A request that the script does not expect is an error, not a repetition."""
    with LLMServer([Answer("for b", model="b"), Answer("one")]) as server:
        assert b"one" in ask(server.url)[1]
        assert server.left == 1
        status, body = ask(server.url)
        assert (status, b"the script is over" in body) == (400, True)
        assert b"for b" in ask(server.url, "b")[1]
    assert [r.body["model"] for r in server.requests] == ["m", "m", "b"]
    with pytest.raises(ValueError, match="no such mode"):
        Answer(mode="no such mode")


def test_as_a_process() -> None:
    with LLMServer.spawn([Answer("one"), Answer("done")], repeat=True) as url:
        first, *others = (ask(url)[1] for _ in range(3))
    assert b"one" in first
    assert all(b"done" in text for text in others)


async def test_the_scripted_llm() -> None:
    """Answers, errors and functions in order; then an AssertionError."""
    use = ToolUse("c1", "read_file", '{"path": "a.py"}')
    llm = ScriptedLLM(
        [
            Says("Let me look.", tools=(use,), reasoning="hm"),
            StreamCut("it broke off"),
            lambda request: Says(f"{len(request.messages)} message"),
            Says("half", cut=True),
        ]
    )

    async def complete() -> Assembler:
        assembler = Assembler()
        async for chunk in llm.stream(Request(messages=(user("hi"),))):
            assembler.feed(chunk)
        return assembler

    first = (await complete()).completion()
    assert (first.text, first.tool_uses, first.reasoning) == ("Let me look.", (use,), "hm")
    with pytest.raises(StreamCut, match="it broke off"):
        await complete()
    assert (await complete()).completion().text == "1 message"
    with pytest.raises(StreamCut):
        (await complete()).completion()
    with pytest.raises(AssertionError, match="script is over"):
        await complete()
