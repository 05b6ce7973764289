"""What is said to Anthropic and to Gemini in their own protocols, and what they say."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ragmem.config import Effort
from ragmem.llm.anthropic_client import MessageReader
from ragmem.llm.base import (
    Assembler,
    Chunk,
    EndChunk,
    ReasoningChunk,
    Request,
    TextChunk,
    ToolChunk,
    UsageChunk,
)
from ragmem.llm.gemini_client import ContentReader
from ragmem.llm.http_client import EventReader, ResponseReader
from ragmem.llm.wire import Refusal
from ragmem.messages import Message, ToolUse, assistant, system, tool, user
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.llm.adapters import (
    KEY,
    READ_FILE,
    anthropic_client,
    ask,
    asking,
    complete,
    gemini_client,
    openai_client,
    responses_client,
)

USE = ToolUse("call_1", "read_file", '{"path": "a.py"}')
TALK = (
    system("Be brief."),
    user("What is in a.py?"),
    assistant("Let me look.", (USE,)),
    tool("call_1", "print('hello')"),
    assistant("A program."),
    user("And in b.py?"),
    assistant("", (ToolUse("call_2", "read_file", '{"path": "b.py"}'),)),
    tool("call_2", "no such file", is_error=True),
)
STRANGE = (
    user("half an emoji: \ud83d, a nul: \0"),
    assistant("", (ToolUse("id with spaces " * 9, "no such\ntool" * 20, '{"path": "/etc/pa'),)),
    tool("id with spaces " * 9, ""),
    assistant("   "),
    user(""),
)


def sent_by(make: Any, *messages: Message, **fields: Any) -> Any:
    """The body and headers of a request."""

    with LLMServer([Answer("ok")]) as server:
        request = Request(messages=messages, tools=(READ_FILE,), **fields)
        asyncio.run(ask(make, server.url, request))
        return server.requests[0]


def marks(value: Any) -> Iterator[Any]:
    """Whatever bears a mark for the cache."""
    if isinstance(value, dict):
        if "cache_control" in value:
            yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from marks(each)


def test_anthropic_is_sent_blocks() -> None:
    sent = sent_by(anthropic_client, *TALK)
    assert sent.path == "/v1/messages"
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in sent.headers
    body = sent.body
    assert (body["model"], body["stream"], body["max_tokens"]) == ("scripted", True, 8_192)
    assert body["tools"][0]["input_schema"] == READ_FILE.parameters
    assert [m["role"] for m in body["messages"]] == [
        "user", "assistant", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    used = body["messages"][1]["content"]
    assert used[0] == {"type": "text", "text": "Let me look."}
    assert used[1] == {
        "type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "a.py"},
    }  # fmt: skip
    assert body["messages"][-1]["content"][0] | {"cache_control": 0} == {
        "type": "tool_result", "tool_use_id": "call_2", "content": "no such file",
        "is_error": True, "cache_control": 0,
    }  # fmt: skip


def test_anthropic_is_told_what_to_read_from_its_cache() -> None:
    """The rules with the tools, the end of the history, and what the next call begins with."""
    marked = [
        each.get("text") or each["content"] for each in marks(sent_by(anthropic_client, *TALK).body)
    ]
    assert sorted(marked) == ["A program.", "Be brief.", "no such file"]


def test_gemini_is_sent_parts() -> None:
    sent = sent_by(gemini_client, *TALK, max_output_tokens=99)
    assert sent.path == "/v1/models/scripted:streamGenerateContent?alt=sse"
    assert sent.headers["x-goog-api-key"] == KEY
    assert KEY not in sent.path
    body = sent.body
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["generationConfig"] == {"maxOutputTokens": 99}
    [declared] = body["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["parametersJsonSchema"]) == (
        "read_file",
        READ_FILE.parameters,
    )
    assert [c["role"] for c in body["contents"]] == [
        "user", "model", "user", "model", "user", "model", "user",
    ]  # fmt: skip
    call = body["contents"][1]["parts"][1]
    assert call["functionCall"] == {"name": "read_file", "args": {"path": "a.py"}}
    # Made by who knows whom: the provider is told not to look for a signature of its own.
    assert call["thoughtSignature"]
    assert body["contents"][-1]["parts"] == [
        {"functionResponse": {"name": "read_file", "response": {"error": "no such file"}}}
    ]


def test_openai_is_sent_items() -> None:
    sent = sent_by(responses_client, *TALK, max_output_tokens=99, effort="low", cache_key="s1")
    assert sent.path == "/v1/responses"
    body = sent.body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["instructions"], body["max_output_tokens"]) == ("Be brief.", 99)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["prompt_cache_key"] == "s1"
    [declared] = body["tools"]
    assert (declared["name"], declared["parameters"]) == ("read_file", READ_FILE.parameters)
    assert [item.get("type") or item["role"] for item in body["input"]] == [
        "user", "assistant", "function_call", "function_call_output", "assistant", "user",
        "function_call", "function_call_output",
    ]  # fmt: skip
    assert body["input"][2] == {
        "type": "function_call", "call_id": "call_1", "name": "read_file",
        "arguments": '{"path":"a.py"}',
    }  # fmt: skip


def test_words_behind_an_answer_stand_where_each_protocol_takes_them() -> None:
    """What the person says in the midst of a turn moves no mark of the cache."""
    talk = (*TALK, user("Only b.py!"))
    body = sent_by(anthropic_client, *talk).body
    assert [each["type"] for each in body["messages"][-1]["content"]] == ["tool_result", "text"]
    marked = [each["text"] for each in marks(body)]
    assert sorted(marked) == ["A program.", "Be brief.", "Only b.py!"]
    last = sent_by(gemini_client, *talk).body["contents"][-1]
    assert last["role"] == "user"
    assert "functionResponse" in last["parts"][0]
    assert last["parts"][1] == {"text": "Only b.py!"}
    answer, said = sent_by(responses_client, *talk).body["input"][-2:]
    assert answer["type"] == "function_call_output"
    assert said == {"role": "user", "content": [{"type": "input_text", "text": "Only b.py!"}]}


@pytest.mark.parametrize("make", [openai_client, anthropic_client, gemini_client, responses_client])
def test_history_of_any_kind_can_be_sent(make: Any) -> None:
    """No empty words, no invalid ids, names or arguments, no halves of characters."""
    text = json.dumps(sent_by(make, *STRANGE).body)
    assert "\\ud83d" not in text
    assert "\\u0000" not in text
    assert '"text": ""' not in text
    assert "invalid_arguments" in text
    assert "id with spaces" not in text


async def test_what_was_thought_goes_back_with_its_calls() -> None:
    """To the provider that thought it, and as it was."""
    thinking = Answer(tools=[Call("read_file", {"path": "a.py"})], reasoning="They want a.py.")
    for make in (anthropic_client, gemini_client, responses_client):
        with LLMServer([thinking, Answer("Done.")]) as server:
            llm = make(server.url)
            done = await complete(llm)
            (use,) = done.tool_uses
            await complete(llm, asking(user("Go."), assistant("", (use,)), tool(use.id, "x")))
            body = server.requests[1].body
            await llm.aclose()
        if "contents" in body:
            assert body["contents"][1]["parts"][0]["thoughtSignature"] == "signed"
        elif "input" in body:
            assert body["input"][1] == {
                "type": "reasoning", "id": "rs_1", "encrypted_content": "sealed",
            }  # fmt: skip
        else:
            assert body["messages"][1]["content"][0] == {
                "type": "thinking", "thinking": "They want a.py.", "signature": "signed",
            }  # fmt: skip


# --- events -----------------------------------------------------------------------


def fed(reader: EventReader, *events: dict[str, Any]) -> list[Chunk]:
    """The chunks of these events, the end with them."""
    found = [chunk for event in events for chunk in reader.take(json.dumps(event))]
    return [*found, *reader.closing()]


def test_what_anthropic_adds_says_nothing_and_what_it_writes_to_its_cache_counts() -> None:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000,
    }
    text, call = {"type": "text_delta", "text": "Yes."}, {"type": "tool_use", "id": "t"}
    ended = {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}
    chunks = fed(
        MessageReader({}),
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "something_new", "index": 7},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": text},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta"}},
        {"type": "content_block_start", "index": 2, "content_block": {**call, "name": "now"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", **ended},
        {"type": "message_stop"},
    )
    assert chunks == [
        TextChunk("Yes."),
        ToolChunk(0, "t", "now"),
        ToolChunk(0, "", "", "{}"),
        UsageChunk(input_tokens=3210, output_tokens=5, cached_tokens=3000, written_tokens=200),
        EndChunk("tool_calls"),
    ]


@pytest.mark.parametrize("reader", [MessageReader, ContentReader, ResponseReader])
def test_an_event_that_is_nested_too_deeply_is_none(reader: Any) -> None:
    with pytest.raises(ValueError, match="recursion"):
        reader({}).take(f'{{"usage": {"[" * 9_000}{"]" * 9_000}}}')


def anthropic_end(reason: str) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def gemini_end(reason: str, *parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"candidates": [{"finishReason": reason, "content": {"parts": list(parts)}}]}]


WHOLE = {"type": "response.completed", "response": {}}
REFUSED = {"type": "response.refusal.delta", "delta": "No."}
LONG = {"incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    ("kind", "events", "end"),
    [
        (MessageReader, anthropic_end("end_turn"), "stop"),
        (MessageReader, anthropic_end("max_tokens"), "length"),
        (MessageReader, anthropic_end("model_context_window_exceeded"), "length"),
        (MessageReader, anthropic_end("refusal"), "content_filter"),
        (MessageReader, anthropic_end("pause_turn"), "pause_turn"),
        (ContentReader, gemini_end("STOP"), "stop"),
        (ContentReader, gemini_end("MAX_TOKENS"), "length"),
        (ContentReader, gemini_end("SAFETY"), "content_filter"),
        (ContentReader, gemini_end("PROHIBITED_CONTENT"), "content_filter"),
        (ContentReader, gemini_end("STOP", {"functionCall": {"name": "now"}}), "tool_calls"),
        (ContentReader, gemini_end("LANGUAGE"), "language"),
        (ContentReader, [{"promptFeedback": {"blockReason": "SAFETY"}}], "content_filter"),
        (ResponseReader, [WHOLE], "stop"),
        (ResponseReader, [REFUSED, WHOLE], "content_filter"),
        (ResponseReader, [{"type": "response.incomplete", "response": LONG}], "length"),
    ],
)
def test_why_each_stopped(kind: Any, events: list[dict[str, Any]], end: str) -> None:
    assert fed(kind({}), *events)[-1] == EndChunk(end)


@pytest.mark.parametrize("is_announced", [True, False])
def test_arguments_that_openai_sends_whole(is_announced: bool) -> None:
    """Some calls it tells of only then."""
    call = {"type": "function_call", "call_id": "c", "name": "now", "arguments": ""}
    whole = {**call, "arguments": '{"a": 1}'}
    added = {"type": "response.output_item.added", "output_index": 0, "item": call}
    done = {"type": "response.output_item.done", "output_index": 0, "item": whole}
    ended = {"type": "response.completed", "response": {"usage": {"input_tokens": 3}}}
    chunks = fed(ResponseReader({}), *[added] * is_announced, done, ended)
    calls = [ToolChunk(0, "c", "now"), ToolChunk(0, "", "", '{"a": 1}')]
    assert chunks == [*calls, UsageChunk(input_tokens=3), EndChunk("tool_calls")]


def anthropic_call(index: int, name: str, *pieces: str, **more: Any) -> list[dict[str, Any]]:
    """The events of a call, which its server does not say the end of."""
    head = {"type": "tool_use", "id": name, "name": name, **more}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        {"type": "content_block_start", "index": index, "content_block": head},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
    ]


def test_calls_at_one_place_never_take_each_others_arguments() -> None:
    at_once = [
        *anthropic_call(0, "f"),
        *anthropic_call(0, "g"),
        *anthropic_call(1, "h", '{"x": 1}'),
    ]
    assembler = Assembler()
    for chunk in fed(MessageReader({}), *at_once, *anthropic_end("tool_use")):
        assembler.feed(chunk)
    found = [(use.name, use.arguments) for use in assembler.completion().tool_uses]
    assert found == [("f", ""), ("g", ""), ("h", '{"x": 1}')]


def test_arguments_that_stand_in_the_head_of_a_call_are_its_own() -> None:
    """Where none come in pieces; those hold else."""
    given = anthropic_call(0, "f", input={"x": 1})
    told = anthropic_call(1, "g", '{"y": 2}', input={"x": 1})
    stops = [{"type": "content_block_stop", "index": index} for index in (0, 1)]
    chunks = fed(MessageReader({}), *given, *told, *stops, *anthropic_end("tool_use"))
    found = [(c.index, c.arguments) for c in chunks if isinstance(c, ToolChunk) and c.arguments]
    assert found == [(1, '{"y": 2}'), (0, '{"x":1}')]


SEALED = {"type": "redacted_thinking", "data": "sealed"}
THOUGHT = {"type": "thinking_delta", "thinking": "hm"}
NO_ITEM = {"type": "response.output_item.done", "output_index": 0, "item": None}
NO_NAME = {"type": "mcp_call", "name": None, "arguments": None}
NULL_TEXT = {"type": "text", "text": None}


@pytest.mark.parametrize(
    ("reader", "events"),
    [
        (MessageReader, [{"type": "content_block_start", "content_block": SEALED}]),
        (MessageReader, [{"type": "content_block_start", "content_block": NULL_TEXT}]),
        (ContentReader, [{"candidates": None, "promptFeedback": {"blockReason": None}}]),
        (ContentReader, [{"candidates": [{"content": {"parts": None}, "finishReason": None}]}]),
        (ResponseReader, [NO_ITEM, {"type": "response.output_item.added", "item": NO_NAME}]),
    ],
)
def test_what_says_nothing_ends_no_answer(reader: Any, events: list[dict[str, Any]]) -> None:
    thought = {"type": "content_block_delta", "delta": THOUGHT}
    sealed = [thought] if reader is MessageReader else []
    chunks = fed(reader({}), *events, *sealed)
    assert [chunk for chunk in chunks if not isinstance(chunk, ReasoningChunk)] == []


COUNTS = {"usage": {"input_tokens": "12", "output_tokens": 3}}


@pytest.mark.parametrize(
    ("reader", "events"),
    [
        (MessageReader, [{"type": "message_start", "message": COUNTS}, *anthropic_end("end_turn")]),
        (ContentReader, [gemini_end("STOP")[0] | {"usageMetadata": {"promptTokenCount": -1}}]),
        (ResponseReader, [{"type": "response.completed", "response": COUNTS}]),
    ],
)
def test_tokens_that_can_not_be_are_unknown(reader: Any, events: list[dict[str, Any]]) -> None:
    assert fed(reader({}), *events) == [EndChunk("stop")]


def test_what_gemini_thinks_counts_as_written() -> None:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 7}
    event = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    assert fed(ContentReader({}), event)[0] == UsageChunk(input_tokens=9, output_tokens=12)


OVERLOADED = {"type": "overloaded_error", "message": "Busy"}

FAILED = {"error": {"code": "server_error", "message": "The model is overloaded."}}


@pytest.mark.parametrize(
    ("reader", "event"),
    [
        (MessageReader({}), {"type": "error", "error": OVERLOADED}),
        (ContentReader({}), {"type": "error", "error": OVERLOADED}),
        (ResponseReader({}), {"type": "error", "error": OVERLOADED}),
        (ResponseReader({}), {"type": "response.failed", "response": FAILED}),
    ],
)
def test_an_error_inside_of_an_answer_is_one(reader: EventReader, event: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        reader.take(json.dumps(event))
    with pytest.raises(ValueError, match="truncated"):
        reader.take('{"type": "content_block_del')


# --- effort ------------------------------------------------------------------

BY_TOKENS = {"efforts": ("none", "low", "medium", "high"), "effort_by_name": False}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
BUDGET = {"type": "enabled", "budget_tokens": 8_192}


def thinking(**config: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": config}}


@pytest.mark.parametrize(
    ("make", "info", "effort", "told"),
    [
        (anthropic_client, {}, None, {}),
        (anthropic_client, {}, "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
        (anthropic_client, {}, "none", {}),
        (anthropic_client, BY_TOKENS, "medium", {"thinking": BUDGET, "max_tokens": 16_384}),
        (gemini_client, {}, "low", thinking(thinkingLevel="low", includeThoughts=True)),
        (gemini_client, BY_TOKENS, "none", thinking(thinkingBudget=0, includeThoughts=False)),
        (openai_client, {}, "low", {"reasoning_effort": "low"}),
    ],
)
def test_each_is_told_how_long_to_think_in_its_own_words(
    make: Any, info: dict[str, Any], effort: Effort | None, told: dict[str, Any]
) -> None:
    body = sent_by(partial(make, **info), user("Why?"), effort=effort).body
    words = ("thinking", "output_config", "generationConfig", "reasoning_effort")
    assert {name: body[name] for name in words if name in body} == {
        name: each for name, each in told.items() if name in words
    }
    assert body.get("max_tokens") == told.get("max_tokens", body.get("max_tokens"))


def test_a_turn_that_began_with_calls_of_others_goes_on_without_thinking() -> None:
    """Anthropic refuses calls without the thoughts before them; files that were named are such."""
    make = partial(anthropic_client, **BY_TOKENS)
    assert "thinking" not in sent_by(make, *TALK, effort="high").body
    assert "thinking" in sent_by(make, *TALK[:-3], user("And now?"), effort="high").body


SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (openai_client, ("response_format", "json_schema", "schema")),
        (responses_client, ("text", "format", "schema")),
        (anthropic_client, ("output_config", "format", "schema")),
        (gemini_client, ("generationConfig", "responseJsonSchema")),
    ],
)
async def test_a_schema_is_told_where_a_protocol_has_it(make: Any, place: tuple[str, ...]) -> None:
    """A server that refuses it is asked without, then and from then on."""
    refused = Answer(mode="400", message="response_format is not supported")
    with LLMServer([Answer("{}"), refused, Answer("{}"), Answer("{}")]) as server:
        request = Request(messages=(user("What is it?"),), answer_schema=SCHEMA)
        client = make(server.url)
        try:
            for _ in range(3):
                assert (await complete(client, request)).text == "{}"
        finally:
            await client.aclose()
        bodies = [each.body for each in server.requests]
    told: Any = bodies[0]
    for key in place:
        told = told[key]
    assert told == SCHEMA
    assert place[0] in bodies[1]
    assert [place[0] in body for body in bodies[2:]] == [False, False]
