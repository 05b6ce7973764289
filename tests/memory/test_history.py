"""The pruning fallback."""

import pytest

from ragmem.memory.history import (
    COMPRESSION_MARKER,
    HistoryMessage,
    build_history_context,
    prune_history,
)


def messages(count: int) -> list[HistoryMessage]:
    return [("user" if i % 2 == 0 else "assistant", f"message {i + 1}") for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 9, 10])
def test_short_history_is_whole(count: int) -> None:
    """C15, C20, C24: up to ten messages all are there, without a marker."""
    assert prune_history(messages(count)) == messages(count)
    assert COMPRESSION_MARKER not in build_history_context(messages(count))


@pytest.mark.parametrize("count", [11, 12, 50, 1000])
def test_long_history_keeps_first_marker_and_last_nine(count: int) -> None:
    """X29, C14, C16, C17, C18, C19, C20, C22, C25, C26: eleven entries; message 1 stays."""
    every = messages(count)
    assert prune_history(every) == [every[0], ("system", COMPRESSION_MARKER), *every[-9:]]


def test_format_is_the_same_for_both() -> None:
    """C21."""
    assert build_history_context(messages(2)) == "user: message 1\n\nassistant: message 2"
    assert build_history_context(messages(11)).startswith(
        f"user: message 1\n\nsystem: {COMPRESSION_MARKER}\n\nuser: message 3"
    )
