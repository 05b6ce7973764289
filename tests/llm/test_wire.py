"""The format, both ways: pure."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.llm.base import Assembler, Chunk, EndChunk, ReasoningChunk, TextChunk, UsageChunk
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


def call(name: str | None, arguments: object, **more: object) -> dict[str, object]:
    """A piece of a call."""
    named = {"name": name} if name else {}
    return {"function": {**named, "arguments": arguments}, **more}


PIECES = {
    "all numbered zero": (
        [call("f", '{"x":1}', index=0, id="a"), call("f", '{"x":2}', index=0, id="b")],
        ['f{"x":1}', 'f{"x":2}'],
    ),
    "no numbers: an id or a name begins a call, a piece without either goes on": (
        [call("f", '{"x"', id="a"), call(None, ":1}"), call("g", "{}"), call(None, " ", id="a")],
        ['f{"x":1} ', "g{}"],
    ),
    "missing and doubled ids": (
        [call("f", "{}", index=0)] + [call("g", "{}", index=n, id="same") for n in (1, 2)],
        ["f{}", "g{}", "g{}"],
    ),
    "arguments as an object": (
        [call("f", {"x": 1}, index=0, id="a"), call("g", None, index=1, id="b")],
        ['f{"x":1}', "g"],
    ),
    "one number for two names": (
        [call("f", "", index=0), call("g", '{"x":1}', index=0)], ["f", 'g{"x":1}'],
    ),
    "one id for two names": (
        [call("f", "", id="a"), call("g", '{"x"', id="a"), call(None, ":1}", id="a")],
        ["f", 'g{"x":1}'],
    ),
    "a name that is told with each piece": (
        [call("f", '{"x"', index=0, id="a"), call("f", ":1}", index=0)], ['f{"x":1}'],
    ),
    "a name that comes late": (
        [call(None, "", index=0, id="a"), call("f", '{"x":1}', index=0)], ['f{"x":1}'],
    ),
    "500 in parallel": (
        [call("f", f'{{"x":{i}}}', index=i, id=f"c{i}") for i in range(500)],
        [f'f{{"x":{i}}}' for i in range(500)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "uses"), PIECES.values(), ids=PIECES)
def test_calls_are_put_together(pieces: list[dict[str, Any]], uses: list[str]) -> None:
    """With the ids that they came with, where those are unique."""
    _, assembler = read(*(call_event(**piece) for piece in pieces))
    found = assembler.completion().tool_uses
    assert [use.name + use.arguments for use in found] == uses
    ids = [use.id for use in found]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    given = [piece["id"] for piece in pieces if piece["function"].get("name") and "id" in piece]
    if len(set(given)) == len(uses):
        assert ids == given


def test_what_says_nothing_is_passed_over_and_no_end_is_made_up() -> None:
    for event in (
        '{"new": [1, {"x": 2}], "choices": [{"delta": {"audio": {}}}]}',
        '{"choices": [{"delta": {}, "finish_reason": ""}]}',
    ):
        reader = AnswerReader()
        assert isinstance(decoded := decode_chunk(event), WireChunk)
        assert (reader.feed(decoded), reader.closing()) == ([], [])


def test_half_characters_in_arguments_are_mended() -> None:
    r"""`\\ud800`, spelled out in JSON, bricks no provider that decodes it."""
    half = ToolUse("c", "f", '{"x": "a\\ud800", "y": "\\ud83d\\ude00", "z": "\\u0000"}')
    broken = ToolUse("d", "f", '{"x": "\\ud800')
    (message,) = messages_json((assistant("", (half, broken)),))
    calls: Any = message["tool_calls"]
    sent = [json.loads(call["function"]["arguments"]) for call in calls]
    assert sent[0] == {"x": "a\ufffd", "y": "\U0001f600", "z": "\0"}
    json.dumps(sent, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"content": "a", "reasoning_content": "b"}, [ReasoningChunk("b"), TextChunk("a")]),
        ({"reasoning": "b"}, [ReasoningChunk("b")]),
        ({"refusal": "I can't."}, [TextChunk("I can't.")]),
        ({"content": "No: ", "refusal": "I can't."}, [TextChunk("No: I can't.")]),
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
    ids=["both", "reasoning", "refusal", "words and refusal", "null", "empty", "parts"],
)
def test_words_in_every_shape(delta: object, expected: list[Chunk]) -> None:
    assert read(msgspec.json.encode({"choices": [{"delta": delta}]}).decode())[0] == expected


def test_usage_in_the_shapes_of_providers() -> None:
    """Cached tokens as OpenAI and as DeepSeek report them; absent stays unknown."""
    reader = AnswerReader()
    reader.feed(decode_chunk('{"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}'))
    assert reader.closing() == [UsageChunk(input_tokens=9, output_tokens=None, cached_tokens=4)]


@pytest.mark.parametrize(("total", "output"), [(1_109, 1_009), (109, 9), (None, 9)])
def test_reasoning_that_is_counted_beside_the_answer_is_output(
    total: int | None, output: int
) -> None:
    """As xAI counts it, which bills it as output; others count it within."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 9,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": 1_000},
    }
    reader = AnswerReader()
    reader.take(msgspec.json.encode({"usage": usage}).decode())
    assert reader.closing() == [UsageChunk(input_tokens=100, output_tokens=output)]


@pytest.mark.parametrize(
    "count", ["-1", "1000000000000000000000000000000", "12.5", '"12"', "true", "[]", "NaN"]
)
def test_tokens_that_nobody_can_have_used_are_unknown_and_cost_no_answer(count: str) -> None:
    reader = AnswerReader()
    end = '"choices": [{"delta": {"content": "Yes."}, "finish_reason": "stop"}]'
    for usage in (count, f'{{"prompt_tokens": {count}, "completion_tokens": 3}}'):
        assert reader.take(f'{{{end}, "usage": {usage}}}') == [TextChunk("Yes.")]
    assert reader.closing() == [EndChunk("stop")]


def test_nothing_counted_is_nothing_known() -> None:
    reader = AnswerReader()
    reader.feed(decode_chunk('{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}'))
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
