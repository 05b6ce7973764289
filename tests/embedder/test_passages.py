"""How a turn is cut into passages."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from ragmem.embedder import passages, tool_lines, turn_passages, turn_text
from ragmem.embedder.models import INFO, OnnxEmbedder
from ragmem.records import ToolCall, Turn

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def words(text: str) -> int:
    """A tokenizer that is easy to follow: a token a word, long words one for 8 characters."""
    return sum(-(-len(word) // 8) for word in text.split())


def call(name: str, arguments: object, text: str = "", **fields: object) -> ToolCall:
    """A finished call."""
    return ToolCall(
        tool_call_id="c",
        turn_id="t",
        order=0,
        tool_name=name,
        arguments=json.dumps(arguments),
        result=json.dumps({"text": text}),
        started_at=NOW,
        **fields,
    )


def turn(user: str, assistant: str, *calls: ToolCall) -> Turn:
    """A completed turn."""
    return Turn(
        turn_id="t",
        session_id="s",
        user_message=user,
        assistant_message=assistant,
        tool_calls=calls,
        started_at=NOW,
    )


def test_a_short_turn_is_one_text_with_all_three() -> None:
    """User message, tool results and answer are in the text given to the embedder."""
    said = turn("Why?", "Because.", call("read_file", {"path": "a.py"}, "\nimport os\nimport sys"))
    assert turn_passages(said, words, INFO) == ["Why?\n\nread_file a.py: import os\n\nBecause."]
    assert turn_text(turn("Why?", "")) == "Why?"


def test_tools_are_condensed_to_a_line() -> None:
    """Name, argument, size and first line; failures say so; repetitions once."""
    calls = [
        call("read_file", {"path": "/home/me/project/src/auth/login.py"}, "x = 1\n" * 2000),
        call("run_command", {"command": "pytest -q"}, "2 failed", success=False, error="exit 1"),
        call("run_command", {"command": "pytest -q"}, "2 failed", success=False, error="exit 1"),
        call("list_files", {"depth": 2}, ""),
        call("grep_files", ["not an object"], "a.py:3: b"),
    ]
    assert tool_lines(calls).split("\n") == [
        "read_file src/auth/login.py (12 KB): x = 1",
        "run_command pytest -q failed: exit 1",
        "list_files",
        "grep_files: a.py:3: b",
    ]
    many = [call("read_file", {"path": f"{i}.py"}, "x") for i in range(300)]
    assert len(tool_lines(many).split("\n")) == 41


def test_unfinished_and_odd_results_are_no_trouble() -> None:
    """A call that never ended, or whose result is not JSON."""
    odd = structs.replace(call("x", {}), arguments="{", result="")
    assert tool_lines([odd]) == "x"


def test_a_long_turn_has_whole_and_short_passages() -> None:
    """First as much as the embedder reads, then the short ones, none longer than it may be."""
    answer = "\n\n".join(f"Paragraph {i} says something of its own." * 5 for i in range(40))
    found = turn_passages(turn("What changed?", answer), words, INFO)
    assert all(words(text) <= INFO.max_tokens - 2 for text in found)
    long = [text for text in found if words(text) > INFO.passage_tokens]
    assert found[: len(long)] == long
    assert len(found) - len(long) > 20
    for i in range(40):
        assert any(f"Paragraph {i} says" in text for text in found[len(long) :])


def test_a_turn_of_megabytes_has_a_bounded_number() -> None:
    """A pasted log does not keep the background busy for minutes; both its ends are read."""
    found = turn_passages(
        turn("Look at this log", "first\n" + "noise\n" * 500_000 + "last"), words, INFO
    )
    assert "first" in found[0]
    assert "last" in found[-1]
    assert len(found) < 1000


def test_headings_and_the_question_are_carried() -> None:
    """A passage out of the middle says what it is about."""
    text = "How does login work?\n\n# Tokens\n\n" + "\n\n".join(
        f"Point {i} about it with a few more words to fill." for i in range(12)
    )
    _, *later = passages(text, words, max_tokens=40, title="How does login work?")
    assert len(later) > 2
    assert all(p.startswith("How does login work?\n# Tokens\n") for p in later)


def test_code_stays_whole_where_it_fits() -> None:
    """A fenced block is not cut at its blank lines."""
    code = "```python\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n```"
    text = ("Some words before it. " * 8) + "\n\n" + code + "\n\n" + ("And words after. " * 8)
    assert sum(code in p for p in passages(text, words, max_tokens=40)) == 1


@given(
    st.text(alphabet="ab .\n#`~é漢\t", max_size=1500),
    st.integers(10, 60),
    st.text(alphabet="xy z\n", max_size=60),
)
def test_nothing_is_lost_and_nothing_is_too_long(text: str, size: int, title: str) -> None:
    """Every letter stands in a passage, in order, and each passage is read whole."""
    found = passages(text, words, max_tokens=size, title=title)
    assert found
    assert all(words(p) <= size - 2 for p in found)
    joined = iter("".join(found))
    assert all(char in joined for char in text if not char.isspace())


@pytest.mark.parametrize(
    "text",
    ["x" * 200_000, "a\n" * 40_000, "word " * 30_000, "```\n" * 30_000],
    ids=lambda text: text[:5],
)
def test_huge_texts_are_cut_in_time(text: str) -> None:
    """A turn of megabytes is cut in seconds, whatever its shape (the test's own limit)."""
    assert len(passages(text, words, max_tokens=256)) > 100


async def test_by_the_real_tokenizer() -> None:
    """Lengths are those of the model's own tokens, in code, in French and in Chinese."""
    embedder = OnnxEmbedder()
    text = "\n\n".join(
        ["def f(x): return x['clé']" * 3, "Où est-ce ? " * 20, "构建失败。" * 40] * 6
    )
    found = passages(text, embedder.count_tokens, max_tokens=48)
    await embedder.aclose()
    assert max(embedder.count_tokens(p) for p in found) <= 46
    assert len(found) > 10
