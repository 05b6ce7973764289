"""The format, both ways: pure."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.llm.base import Assembler, Chunk, ReasoningChunk, TextChunk, UsageChunk
from ragmem.llm.wire import AnswerReader, WireChunk, call_id, decode_chunk, messages_json, tool_name
from ragmem.messages import Message, ToolUse, assistant, tool, user


def read(*events: str) -> tuple[list[Chunk], Assembler]:
    """The chunks of events, and the assembler that took them."""
    reader, assembler, found = AnswerReader(), Assembler(), list[Chunk]()
    for event in events:
        found += reader.feed(decode_chunk(event))
    reader.done()
    for chunk in [*found, *reader.closing()]:
        assembler.feed(chunk)
    return found, assembler


def call_event(**call: object) -> str:
    return msgspec.json.encode({"choices": [{"delta": {"tool_calls": [call]}}]}).decode()


def test_calls_that_are_all_numbered_zero() -> None:
    _, assembler = read(
        call_event(index=0, id="a", function={"name": "f", "arguments": '{"x":1}'}),
        call_event(index=0, id="b", function={"name": "f", "arguments": '{"x":2}'}),
    )
    uses = assembler.completion().tool_uses
    assert [(u.id, u.arguments) for u in uses] == [("a", '{"x":1}'), ("b", '{"x":2}')]


def test_calls_without_numbers() -> None:
    """No index: an id or a name begins a call, a piece without either goes on."""
    _, assembler = read(
        call_event(id="a", function={"name": "f", "arguments": '{"x"'}),
        call_event(function={"arguments": ":1}"}),
        call_event(function={"name": "g", "arguments": "{}"}),
        call_event(id="a", function={"arguments": " "}),
    )
    uses = assembler.completion().tool_uses
    assert [(u.name, u.arguments) for u in uses] == [("f", '{"x":1} '), ("g", "{}")]


def test_missing_and_doubled_ids_become_unique() -> None:
    _, assembler = read(
        call_event(index=0, function={"name": "f", "arguments": "{}"}),
        call_event(index=1, id="same", function={"name": "g", "arguments": "{}"}),
        call_event(index=2, id="same", function={"name": "h", "arguments": "{}"}),
    )
    ids = [u.id for u in assembler.completion().tool_uses]
    assert len(set(ids)) == 3
    assert all(ids)


def test_arguments_as_an_object() -> None:
    _, assembler = read(
        call_event(index=0, id="a", function={"name": "f", "arguments": {"x": 1}}),
        call_event(index=1, id="b", function={"name": "g", "arguments": None}),
    )
    assert [u.arguments for u in assembler.completion().tool_uses] == ['{"x":1}', ""]


def test_half_characters_in_arguments_are_mended() -> None:
    r"""`\\ud800`, spelled out in JSON, bricks no provider that decodes it."""
    half = ToolUse("c", "f", '{"x": "a\\ud800", "y": "\\ud83d\\ude00", "z": "\\u0000"}')
    broken = ToolUse("d", "f", '{"x": "\\ud800')
    (message,) = messages_json((assistant("", (half, broken)),))
    calls: Any = message["tool_calls"]
    sent = [json.loads(call["function"]["arguments"]) for call in calls]
    assert sent[0] == {"x": "a\ufffd", "y": "\U0001f600", "z": "\0"}
    json.dumps(sent, ensure_ascii=False).encode()


def test_500_parallel_calls() -> None:
    events = [
        call_event(index=i, id=f"c{i}", function={"name": "f", "arguments": f'{{"x":{i}}}'})
        for i in range(500)
    ]
    _, assembler = read(*events)
    assert [u.id for u in assembler.completion().tool_uses] == [f"c{i}" for i in range(500)]


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"content": "a", "reasoning_content": "b"}, [ReasoningChunk("b"), TextChunk("a")]),
        ({"reasoning": "b"}, [ReasoningChunk("b")]),
        ({"refusal": "I can't."}, [TextChunk("I can't.")]),
        ({"content": None}, []),
        ({"content": ""}, []),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "so"},
                    "odd",
                ]
            },
            [ReasoningChunk("hm"), TextChunk("so")],
        ),
    ],
    ids=["both", "reasoning", "refusal", "null", "empty", "parts"],
)
def test_words_in_every_shape(delta: object, expected: list[Chunk]) -> None:
    assert read(msgspec.json.encode({"choices": [{"delta": delta}]}).decode())[0] == expected


def test_usage_in_the_shapes_of_providers() -> None:
    """Cached tokens as OpenAI and as DeepSeek report them; absent stays unknown."""
    reader = AnswerReader()
    reader.feed(decode_chunk('{"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}'))
    assert reader.closing() == [UsageChunk(input_tokens=9, output_tokens=None, cached_tokens=4)]


def test_an_end_is_never_made_up() -> None:
    reader = AnswerReader()
    reader.feed(decode_chunk('{"choices": [{"delta": {"content": "hi"}, "finish_reason": ""}]}'))
    assert reader.closing() == []


@given(st.text(), st.sampled_from([0, 9]))
def test_ids_are_accepted_everywhere(original: str, length: int) -> None:
    sent = call_id(original, length)
    assert sent == call_id(original, length)
    assert sent.isascii()
    assert sent.replace("-", "").replace("_", "").isalnum() or set(sent) <= {"-", "_"}
    assert len(sent) == length if length else 1 <= len(sent) <= 40


@given(st.text())
def test_tool_names_are_accepted_everywhere(name: str) -> None:
    sent = tool_name(name)
    assert 1 <= len(sent) <= 64
    assert sent.isascii()


def test_a_call_and_its_answer_keep_one_id() -> None:
    use = ToolUse("01890000-0000-7000-8000-000000000000", "f", "{}")
    sent = messages_json((assistant("", (use,)), tool(use.id, "ok")), id_length=9)
    assert sent[0]["tool_calls"][0]["id"] == sent[1]["tool_call_id"]
    assert len(sent[1]["tool_call_id"]) == 9


def test_the_model_says_something_between_a_tools_answer_and_a_word_of_the_person() -> None:
    """Mistral's models refuse the request else; other servers take it as it is."""
    use = ToolUse("c", "f", "{}")
    sent = messages_json((assistant("", (use,)), tool("c", "ok"), tool("d", "ok"), user("Only f")))
    assert [each["role"] for each in sent] == ["assistant", "tool", "tool", "assistant", "user"]
    assert sent[-2]["content"]
    assert sent[-1]["content"] == "Only f"


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=())), max_size=5))
def test_any_text_can_be_encoded(texts: list[str]) -> None:
    messages: tuple[Message, ...] = tuple(user(t) for t in texts)
    messages += tuple(tool("id", t) for t in texts)
    assert msgspec.json.encode(messages_json(messages))


def test_unknown_fields_and_events_are_passed_over() -> None:
    event = decode_chunk('{"new": [1, {"x": 2}], "choices": [{"delta": {"audio": {}}}]}')
    assert isinstance(event, WireChunk)
    assert AnswerReader().feed(event) == []
