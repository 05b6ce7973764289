"""One contract for all adapters, over real HTTP: answers, faults, retries, keys."""

import asyncio
import json
import re
import socket
import time
from contextlib import aclosing
from itertools import product

import pytest

from ragmem.errors import ContextTooLong, LLMError, ProviderRefused, ProviderUnavailable, StreamCut
from ragmem.llm.base import Assembler, EndChunk, ReasoningChunk, TextChunk, UsageChunk
from ragmem.messages import ImagePart, Message, TextPart, ToolUse, assistant, system, tool, user
from tests.fakes.llm_server import Answer, Call, LLMServer, Mode
from tests.fakes.patience import until
from tests.llm.adapters import (
    ADAPTERS,
    KEY,
    Connect,
    all_text_of,
    asking,
    chunks_of,
    complete,
    feed,
)

WORDS = "The file prints hello, wörld 🎉, and nothing else."
SHORT_S = 3.0
"""The time limit where a server says nothing more: an answer of a busy machine comes before it."""
CHAT_COMPLETIONS = pytest.mark.parametrize("connect", ["litellm", "openai"], indirect=True)
"""What hangs on no protocol, but on who speaks HTTP: litellm, or ragmem for all others."""
OF_PROTOCOLS: list[Mode] = ["cut_rst", "cut_clean", "cut_noend", "badjson", "utf8", "errevent"]


def holds_no_key(error: LLMError) -> None:
    assert KEY not in all_text_of(error)
    assert (error.__context__, error.__cause__) == (None, None)


# --- answers -------------------------------------------------------------------


async def test_words_arrive_whole_and_in_pieces(connect: Connect) -> None:
    with LLMServer([Answer(WORDS, usage=(120, 30, 100))]) as server:
        chunks = await chunks_of(connect(server.url))
    texts = [c.text for c in chunks if isinstance(c, TextChunk)]
    assert "".join(texts) == WORDS
    assert len(texts) > 2
    assert chunks[-2:] == [
        UsageChunk(input_tokens=120, output_tokens=30, cached_tokens=100),
        EndChunk("stop"),
    ]


async def test_a_picture_is_sent_beside_the_prompt(connect: Connect) -> None:
    """Whole, once, behind the words, with its type."""
    image = ImagePart("image/png", bytes(range(256)))
    prompt = Message("user", (TextPart("What is this?"), image))
    with LLMServer([Answer("A ramp.")]) as server:
        done = await complete(connect(server.url), asking(system("Be brief."), prompt))
    assert done.text == "A ramp."
    (request,) = server.requests
    sent = json.dumps(request.body)
    assert sent.count(image.base64) == 1
    assert sent.index("What is this?") < sent.index(image.base64)
    assert sent.count("image/png") == 1


async def test_tool_calls_arrive_whole(connect: Connect) -> None:
    calls = [Call("read_file", {"path": "ä.py"}), Call("read_file", {"path": "b.py"}, id="b")]
    with LLMServer([Answer("Let me look.", tools=calls, chunk_chars=3)]) as server:
        done = await complete(connect(server.url))
    assert (done.text, done.end_reason) == ("Let me look.", "tool_calls")
    assert [u.name for u in done.tool_uses] == ["read_file", "read_file"]
    assert [json.loads(u.arguments)["path"] for u in done.tool_uses] == ["ä.py", "b.py"]
    if server.requests[0].path.startswith("/v1/models/"):
        # Gemini gives its calls no ids: they get one each.
        assert len({u.id for u in done.tool_uses}) == 2
    else:
        assert [u.id for u in done.tool_uses] == ["call_read_file_0", "b"]


async def test_reasoning_is_kept_apart(connect: Connect) -> None:
    with LLMServer([Answer("Yes.", reasoning="They ask whether it is so.")]) as server:
        chunks = await chunks_of(connect(server.url))
    thought = "".join(c.text for c in chunks if isinstance(c, ReasoningChunk))
    assert thought == "They ask whether it is so."
    assert "".join(c.text for c in chunks if isinstance(c, TextChunk)) == "Yes."


@CHAT_COMPLETIONS
async def test_what_is_sent(connect: Connect) -> None:
    use = ToolUse("call_1", "read_file", '{"path": "a.py"}')
    request = asking(
        system("Be brief."),
        user("What is in a.py?"),
        assistant("", (use,)),
        tool("call_1", "print('hello')"),
        user("And?"),
    )
    with LLMServer([Answer("ok")]) as server:
        await complete(connect(server.url), request)
    sent = server.requests[0]
    assert sent.path == "/v1/chat/completions"
    assert (sent.headers["authorization"], sent.body["model"]) == (f"Bearer {KEY}", "scripted")
    assert sent.body["stream_options"] == {"include_usage": True}
    roles = [m["role"] for m in sent.body["messages"]]
    # Mistral's models take no word of the person right behind a tool's answer.
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert sent.body["messages"][2]["tool_calls"] == [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path":"a.py"}'},
        }
    ]
    assert sent.body["messages"][3]["tool_call_id"] == "call_1"
    assert sent.body["messages"][3]["content"] == "print('hello')"
    assert sent.body["tools"][0]["function"]["name"] == "read_file"


@CHAT_COMPLETIONS
async def test_several_answers_over_one_adapter(connect: Connect) -> None:
    with LLMServer([Answer(f"answer {i}") for i in range(4)]) as server:
        llm = connect(server.url)
        first = await complete(llm)
        both = await asyncio.gather(complete(llm), complete(llm))
        last = await complete(llm)
    texts = [first.text, *(c.text for c in both), last.text]
    assert sorted(texts) == ["answer 0", "answer 1", "answer 2", "answer 3"]


@CHAT_COMPLETIONS
async def test_an_answer_can_be_left_in_the_middle(connect: Connect) -> None:
    """Interrupted by the person: the connection ends with it, the next answer comes."""
    with LLMServer([Answer("word " * 2_000, chunk_delay_s=0.05), Answer("next")]) as server:
        llm = connect(server.url, retries=3)
        async with aclosing(llm.stream(asking())) as stream:
            assert isinstance(await anext(stream), TextChunk)
            started = time.monotonic()
        assert time.monotonic() - started < 30
        assert (await complete(llm)).text == "next"
        assert len(server.requests) == 2


@CHAT_COMPLETIONS
async def test_a_task_can_be_cancelled_in_the_middle(connect: Connect) -> None:
    with LLMServer([Answer(mode="silent")]) as server:
        llm = connect(server.url, timeout_s=60, retries=3)
        task = asyncio.create_task(complete(llm))
        await until(lambda: server.requests)
        task.cancel()
        started = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - started < 30


async def test_length_and_filter_are_ends(connect: Connect) -> None:
    """Finish=length and content_filter end an answer, and are told apart."""
    with LLMServer([Answer("cut sho", finish="length"), Answer(finish="content_filter")]) as s:
        llm = connect(s.url)
        assert (await complete(llm)).end_reason == "length"
        assert (await complete(llm)).end_reason == "content_filter"


# --- faults ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connect", "mode"),
    [*product(sorted(ADAPTERS), OF_PROTOCOLS), ("litellm", "stall"), ("openai", "stall")],
    indirect=["connect"],
)
async def test_a_cut_after_words_is_told_and_not_retried(connect: Connect, mode: Mode) -> None:
    with LLMServer([Answer(WORDS, mode=mode), Answer("never asked")]) as server:
        llm = connect(server.url, timeout_s=SHORT_S, retries=3)
        assembler = Assembler()
        with pytest.raises(StreamCut) as caught:
            await feed(assembler, llm)
        assert len(server.requests) == 1
    assert assembler.text
    # Bytes that are not UTF-8 spoil their own place; here the line is cut behind them.
    assert WORDS.startswith(assembler.text.partition("\udcff")[0])
    assert caught.value.hint
    assert caught.value.exit_code == 75
    holds_no_key(caught.value)


@pytest.mark.parametrize("mode", ["badjson", "errevent"])
async def test_a_cut_tool_call_is_never_a_completion(connect: Connect, mode: Mode) -> None:
    """Other cuts of one are tried at each place of a stream, in test_cuts.py."""
    call = Call("run_command", {"command": "rm -rf ./build/cache && make all"})
    with LLMServer([Answer(tools=[call], mode=mode, chunk_chars=4)]) as server:
        llm = connect(server.url, timeout_s=SHORT_S)
        with pytest.raises((StreamCut, ProviderUnavailable)):
            await complete(llm)


@pytest.mark.parametrize("mode", ["nothing", "html", "json_error", "empty"])
async def test_a_200_that_is_no_answer(connect: Connect, mode: Mode) -> None:
    with LLMServer([Answer(WORDS, mode=mode)], repeat=True) as server:
        llm = connect(server.url)
        with pytest.raises((StreamCut, ProviderUnavailable)) as caught:
            await complete(llm)
    assert "<html" not in str(caught.value)
    holds_no_key(caught.value)


@CHAT_COMPLETIONS
@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        ("401", ProviderRefused, "RAGMEM_API_KEY"),
        ("403", ProviderRefused, "403"),
        ("404", ProviderRefused, "does not exist"),
        ("400", ProviderRefused, "Invalid value"),
        ("400_context", ContextTooLong, "larger than the context window"),
        ("429", ProviderUnavailable, "Rate limit.*tried 3 times"),
        ("502", ProviderUnavailable, "a web page"),
    ],
)
async def test_statuses_become_errors_that_help(
    connect: Connect, mode: Mode, kind: type[LLMError], said: str
) -> None:
    """What does not pass is asked once, what may is tried again, and not for ever."""
    with LLMServer([Answer(mode=mode)], repeat=True) as server:
        with pytest.raises(kind) as caught:
            await complete(connect(server.url, retries=2))
        assert len(server.requests) == (3 if kind is ProviderUnavailable else 1)
    assert caught.value.hint
    assert re.search(said, f"{caught.value} {caught.value.hint}")
    assert "<html" not in str(caught.value)


@CHAT_COMPLETIONS
async def test_who_can_not_be_reached_is_told(connect: Connect) -> None:
    """Nobody listens, there is no such host, or TLS is spoken to who knows none."""
    with LLMServer([Answer("never")]) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        # Bound and not listened at: nobody else gets the port meanwhile.
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        over_tls = server.url.replace("http:", "https:")
        for url in (nobody, "http://ragmem-test.invalid/v1", over_tls):
            with pytest.raises(ProviderUnavailable) as caught:
                await complete(connect(url, retries=1))
            assert caught.value.hint
            assert url != nobody or "can't be reached" in str(caught.value)
            # A person is told in the system's words, not in those of a library.
            assert "Connect call" not in str(caught.value)
        assert server.requests == []


@CHAT_COMPLETIONS
async def test_silence_is_a_timeout(connect: Connect) -> None:
    with LLMServer([Answer(mode="silent")], repeat=True) as server:
        with pytest.raises(ProviderUnavailable, match="sent nothing") as caught:
            await complete(connect(server.url, timeout_s=SHORT_S, retries=3))
        assert len(server.requests) == 1
    assert caught.value.exit_code == 75
    holds_no_key(caught.value)


# --- retries -----------------------------------------------------------------------


@CHAT_COMPLETIONS
@pytest.mark.parametrize("mode", ["429", "502", "nothing"])
async def test_what_passes_is_retried(connect: Connect, mode: Mode) -> None:
    with LLMServer([Answer(mode=mode), Answer(mode=mode), Answer("at last")]) as server:
        done = await complete(connect(server.url, retries=2))
        assert len(server.requests) == 3
    assert done.text == "at last"


@CHAT_COMPLETIONS
async def test_retry_after_is_waited_for(connect: Connect) -> None:
    with LLMServer([Answer(mode="429", retry_after="0.4"), Answer("ok")]) as server:
        started = time.monotonic()
        assert (await complete(connect(server.url, retries=1))).text == "ok"
        assert time.monotonic() - started >= 0.4


@CHAT_COMPLETIONS
async def test_retry_after_an_hour_is_not_waited_for(connect: Connect) -> None:
    """More than a minute is the person's decision; they are told how long."""
    with LLMServer([Answer(mode="429", retry_after="3600")], repeat=True) as server:
        started = time.monotonic()
        with pytest.raises(ProviderUnavailable) as caught:
            await complete(connect(server.url, retries=3))
        assert time.monotonic() - started < 20
        assert len(server.requests) == 1
    assert caught.value.retry_after_s == 3600
    assert "1 h 0 min" in caught.value.hint


# --- keys ---------------------------------------------------------------------------


@CHAT_COMPLETIONS
@pytest.mark.parametrize("mode", ["401", "400", "429", "500", "html", "json_error", "errevent"])
async def test_no_error_holds_the_key(connect: Connect, mode: Mode) -> None:
    answer = Answer(WORDS, mode=mode, message=f"You sent {KEY} of sk-proj-abcdef123456, no good.")
    with LLMServer([answer], repeat=True) as server, pytest.raises(LLMError) as caught:
        await complete(connect(server.url, timeout_s=SHORT_S))
    assert "sk-proj-abcdef123456" not in all_text_of(caught.value)
    holds_no_key(caught.value)


@CHAT_COMPLETIONS
async def test_nothing_is_printed(connect: Connect, capfd: pytest.CaptureFixture[str]) -> None:
    with LLMServer([Answer("ok"), Answer(mode="500"), Answer("x", mode="cut_rst")]) as server:
        llm = connect(server.url)
        await complete(llm)
        for _ in range(2):
            with pytest.raises(LLMError):
                await complete(llm)
    assert capfd.readouterr() == ("", "")
