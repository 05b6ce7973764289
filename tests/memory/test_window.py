"""The recent window: native messages, hysteresis, text."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmem.memory.window import (
    UNKNOWN_EFFECTS,
    recent_text,
    recent_window,
    turn_messages,
    window_limit,
)
from ragmem.messages import Message, ToolAnswer, ToolUse
from ragmem.records import Turn

from .builders import a_call, a_turn


def assert_valid(messages: Sequence[Message]) -> None:
    """What every provider demands of the messages after the system message."""
    waiting: list[str] = []
    before = "assistant"
    for message in messages:
        assert message.parts
        if message.role == "tool":
            (part,) = message.parts
            assert isinstance(part, ToolAnswer)
            assert part.tool_use_id == waiting.pop(0)
        else:
            assert not waiting, "a call without an answer"
            assert message.text or message.tool_uses
            if message.role == "user":
                assert before != "user"
            waiting = [use.id for use in message.tool_uses]
            assert len(set(waiting)) == len(waiting)
        before = message.role
    assert not waiting


def test_a_turn_is_replayed_as_it_was() -> None:
    """Calls with their results as native messages, what was said between them in place."""
    calls = (
        a_call(0, preamble="I look.", text="one"),
        a_call(1, text="two"),
        a_call(2, iteration=1, text="three", success=False),
    )
    messages = turn_messages(a_turn(1, calls=calls), result_limit=1000)
    assert [m.role for m in messages] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert messages[1].text == "I look."
    first, second = messages[1].tool_uses
    assert isinstance(first, ToolUse)
    assert first.id != second.id
    assert all(len(use.id) == 9 and use.id.isalnum() for use in (first, second))
    assert messages[5].parts == (ToolAnswer(messages[4].tool_uses[0].id, "three", is_error=True),)
    assert_valid(messages)


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
@pytest.mark.parametrize("answer", ["", "half an answ"])
def test_unfinished_turns_are_marked_and_valid(status: str, answer: str) -> None:
    """A call that never ended is answered when the request is built."""
    turn = a_turn(1, answer=answer, calls=(a_call(0, result="", success=False),), status=status)  # type: ignore[arg-type]
    messages = turn_messages(turn, result_limit=1000)
    assert messages[2].parts[0].text == UNKNOWN_EFFECTS  # type: ignore[union-attr]
    assert answer in messages[-1].text
    assert "turn" in messages[-1].text
    assert_valid(messages)


def test_long_results_are_clipped_in_their_middle() -> None:
    call = a_call(text="A" * 600 + "B" * 600)
    (answer,) = turn_messages(a_turn(1, calls=(call,)), result_limit=500)[2].parts
    assert len(answer.text) <= 500  # type: ignore[union-attr]
    assert answer.text.startswith("AAAA")  # type: ignore[union-attr]
    assert answer.text.endswith("BBBB")  # type: ignore[union-attr]


def test_mentions_stand_in_the_persons_message() -> None:
    """A resolved @file is a call with origin `mention`, not one of the model."""
    call = a_call(text="print(1)", origin="mention")
    messages = turn_messages(a_turn(1, "what is @a.py?", calls=(call,)), result_limit=1000)
    assert [m.role for m in messages] == ["user", "assistant"]
    assert messages[0].text.startswith("what is @a.py?\n\n<file-")
    assert "print(1)" in messages[0].text


def start_of(turns: Sequence[Turn], high: int, low: int) -> int:
    window = recent_window(turns, high=high, low=low, result_limit=10_000)
    return window.turns[0].turn_index


def test_window_drops_whole_turns_with_hysteresis() -> None:
    """Past 40% down to 25%, then the start stays until it is passed again."""
    turns = [a_turn(i, "u" * 50, "a" * 50) for i in range(1, 60)]
    starts = [start_of(turns[:n], high=1000, low=600) for n in range(1, 60)]
    assert starts[:10] == [1] * 10
    assert starts[10] == 6
    # Moves rarely, and never back: between moves the prefix is the same to the byte.
    assert starts == sorted(starts)
    assert len(set(starts)) <= 12


def test_prefix_is_the_same_to_the_byte_between_moves() -> None:
    """Providers' caches hit."""
    turns = [a_turn(i, f"u{i}" * 20, "a" * 50, (a_call(i, text="r" * 30),)) for i in range(1, 40)]
    before: tuple[Message, ...] = ()
    moves = 0
    for n in range(1, 40):
        messages = recent_window(turns[:n], high=2000, low=1250, result_limit=500).messages
        if messages[: len(before)] != before:
            moves += 1
        before = messages
    assert 1 <= moves <= 8


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(0, 5)), min_size=1),
    st.integers(300, 3000),
)
def test_window_is_bounded_valid_and_has_the_newest(
    shapes: list[tuple[int, int, int]], high: int
) -> None:
    """Whatever the turns are."""
    turns = [
        a_turn(
            i + 1,
            "u" * asked,
            "a" * said,
            tuple(a_call(n, iteration=n // 2, text="r" * said) for n in range(calls)),
        )
        for i, (asked, said, calls) in enumerate(shapes)
    ]
    window = recent_window(turns, high=high, low=high * 25 // 40, result_limit=high // 4)
    assert window.turns[-1] is turns[-1]
    assert window.char_count <= high
    assert_valid(window.messages)


@given(st.integers(0, 5000))
def test_planning_starts_at_the_same_turn_for_long(count: int) -> None:
    """Every process plans from the same turn, reading a bounded number of them."""
    start = count - window_limit(count)
    assert start % 50 == 0
    assert window_limit(count) <= max(99, min(count, 99))
    assert window_limit(count) >= min(count, 50)


def test_raw_text_format() -> None:
    """Three lines a turn; no `Tools:` line without tools."""
    calls = (a_call(0, tool_name="grep_files"), a_call(1, tool_name="read_file"))
    text, count = recent_text(
        [a_turn(1, "one", "1"), a_turn(2, "two", "2", calls)], limit=3, max_chars=5000
    )
    assert count == 2
    assert text == (
        "## Recent Conversation (Raw)\n"
        "User: one\nAssistant: 1\n\n"
        "User: two\nAssistant: 2\nTools: grep_files, read_file\n"
    )


def test_raw_text_keeps_both_bounds() -> None:
    """Three turns and so many characters; the newest is always there, clipped."""
    turns = [a_turn(i, f"q{i}", "x" * 100) for i in range(1, 9)]
    text, count = recent_text(turns, limit=3, max_chars=5000)
    assert count == 3
    assert "q6" in text
    assert "q5" not in text
    assert recent_text(turns, limit=3, max_chars=300)[1] == 2
    text, count = recent_text([a_turn(1, "q", "y" * 9000)], limit=3, max_chars=500)
    assert count == 1
    assert len(text) <= 500
    assert recent_text([], limit=3, max_chars=500) == ("", 0)
