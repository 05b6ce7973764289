"""The pruning fallback."""

import pytest
from hypothesis import given, strategies as st

from ragmem.memory.window import (
    COMPRESSION_MARKER,
    WHOLE_LIMIT,
    HistoryMessage,
    build_history_context,
    format_history,
)


def messages(count: int) -> list[HistoryMessage]:
    return [("user" if i % 2 == 0 else "assistant", f"message {i + 1}") for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 9, 10])
def test_short_history_is_whole(count: int) -> None:
    """Up to ten messages all are there, without a marker."""
    assert build_history_context(messages(count)) == format_history(messages(count))
    assert COMPRESSION_MARKER not in build_history_context(messages(count))


@pytest.mark.parametrize("count", [11, 12, 50, 1000])
def test_long_history_keeps_first_marker_and_last_nine(count: int) -> None:
    """Eleven entries; message 1 stays."""
    every = messages(count)
    kept = [every[0], ("system", COMPRESSION_MARKER), *every[-9:]]
    assert build_history_context(every) == format_history(kept)


def test_format_is_the_same_for_both() -> None:
    assert build_history_context(messages(2)) == "user: message 1\n\nassistant: message 2"
    assert build_history_context(messages(11)).startswith(
        f"user: message 1\n\nsystem: {COMPRESSION_MARKER}\n\nuser: message 3"
    )


def test_summaries_of_what_is_hidden_follow_the_marker() -> None:
    """None of what is shown, in the conversation's order."""
    digests = {2 * i + 1: f"summary\nof turn {i + 1}" for i in range(10)}
    text = build_history_context(messages(20), so_far="Beds are planned.", digests=digests)
    assert text.startswith(
        "user: message 1\n\n"
        f"system: {COMPRESSION_MARKER}\n"
        "So far: Beds are planned.\n"
        "- summary of turn 1\n"
    )
    assert "- summary of turn 5\n\nassistant: message 12\n\n" in text
    assert "turn 6" not in text
    assert text.endswith("assistant: message 20")
    assert build_history_context(messages(10), so_far="x", digests=digests) == (
        build_history_context(messages(10))
    )


def test_rules_and_decisions_among_the_hidden_stay_in_their_own_words() -> None:
    """Of the person; of the agent what it calls a decision."""
    said = messages(30)
    said[4] = ("user", "Thanks. Never touch the table `invoices`!\nAnd what of the tests?")
    said[6] = ("user", "Il faut toujours répondre en français. Où est le fichier ?")
    said[9] = ("assistant", "You must know that it is fast.\nDecision: amounts are integer cents.")
    text = build_history_context(said)
    bridge = text.split("\n\n")[1]
    assert bridge.split("\n") == [
        f"system: {COMPRESSION_MARKER}",
        "- user: Never touch the table `invoices`!",
        "- user: Il faut toujours répondre en français.",
        "- assistant: Decision: amounts are integer cents.",
    ]
    # What is shown whole is not said twice.
    said = messages(12)
    said[-1] = ("user", "Always use tabs.")
    assert build_history_context(said).count("Always use tabs.") == 1


def test_how_many_of_the_latest_depends_on_the_room() -> None:
    """Nine where they fit, fewer of longer ones; the first and the last always."""

    def latest(chars: int, max_chars: int) -> int:
        said = [(role, f"{text} " + "x" * chars) for role, text in messages(40)]
        text = build_history_context(said, so_far="so far " * 9, max_chars=max_chars)
        assert len(text) <= max_chars
        assert text.startswith("user: message 1 ")
        assert COMPRESSION_MARKER in text
        assert "assistant: message 40 " in text
        return text.count("x\n\n") + text.endswith("x") - 1

    assert [latest(chars, 8_000) for chars in (10, 400, 900, 1_400, 2_000)] == [9, 9, 5, 3, 1]
    assert latest(5_000, 1_000_000) == 9


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=300)), max_size=40),
    st.integers(0, 3_000),
    st.text(max_size=200),
)
def test_whatever_was_said_it_keeps_its_budget(
    said: list[HistoryMessage], max_chars: int, so_far: str
) -> None:
    """Also where a single message is longer."""
    digests = {i: f"digest {i}" for i in range(0, len(said), 2)}
    text = build_history_context(said, so_far=so_far, digests=digests, max_chars=max_chars)
    assert len(text) <= max_chars
    whole = build_history_context(said)
    assert (text == whole) or len(said) > WHOLE_LIMIT or len(whole) > max_chars
