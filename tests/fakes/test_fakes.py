"""The fakes do what they say: a test that trusts them can fail."""

import http.client
import json
import time
from urllib.parse import urlsplit

import numpy as np
import pytest

from ragmem.embedder import Embedder
from ragmem.errors import EmbedderError, StreamCut
from ragmem.llm.base import Assembler, Request
from ragmem.messages import ToolUse, user
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.fakes.scripted_llm import Says, ScriptedLLM


def ask(port: int | None, body: dict[str, object]) -> tuple[int, bytes]:
    """One POST."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_answers_in_order_then_refuses() -> None:
    """A request that the script does not expect is an error, not a repetition."""
    with LLMServer([Answer("one")]) as server:
        assert ask(server.port, {"model": "m"})[0] == 200
        status, body = ask(server.port, {"model": "m"})
    assert status == 400
    assert b"the script is over" in body
    assert [r.body["model"] for r in server.requests] == ["m", "m"]


def test_answers_for_a_model_wait_for_it() -> None:
    """A summary model and a main model share one server."""
    with LLMServer([Answer("for b", model="b"), Answer("for any")]) as server:
        assert b"for any" in ask(server.port, {"model": "a"})[1]
        assert server.left == 1
        assert b"for b" in ask(server.port, {"model": "b"})[1]


def test_answers_made_from_the_request() -> None:
    """A function of what was received."""
    with LLMServer([lambda r: Answer(f"{len(r.body['messages'])} sent")]) as server:
        assert b"3 sent" in ask(server.port, {"messages": [1, 2, 3]})[1]


def test_a_delay_is_as_long_as_it_says() -> None:
    """Also one in which the server looks whether the client has left."""
    with LLMServer([Answer("late", delay_s=1.0)]) as server:
        started = time.monotonic()
        assert b"late" in ask(server.port, {"model": "m"})[1]
        assert 1.0 <= time.monotonic() - started < 30


def test_as_a_process() -> None:
    script = [Answer(tools=[Call("f", {"x": 1})]), Answer("done")]
    with LLMServer.spawn(script, repeat=True) as url:
        first, *others = (ask(urlsplit(url).port, {"model": "m"})[1] for _ in range(3))
    assert b'"name": "f"' in first
    assert all(b"done" in text for text in others)


def test_an_answer_of_no_mode_is_none() -> None:
    with pytest.raises(ValueError, match="no such mode"):
        Answer(mode="no such mode")


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
    request = Request(messages=(user("hi"),))

    async def complete() -> Assembler:
        assembler = Assembler()
        async for chunk in llm.stream(request):
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
    assert len(llm.requests) == 5


async def test_texts_that_share_words_have_vectors_that_are_near() -> None:
    """Unit rows, the same each time; what shares words is closer; failing when told."""
    fake = HashEmbedder()
    embedder: Embedder = fake
    rows = await embedder.embed(["the login fails", "login fails again", "billing report"])
    assert rows.shape == (3, 64)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > fake.info.thresholds.history > rows[0] @ rows[2]
    assert np.array_equal(rows, await HashEmbedder().embed([text for _, text in fake.seen]))
    fake.failing = True
    with pytest.raises(EmbedderError):
        await embedder.embed(["x"])
