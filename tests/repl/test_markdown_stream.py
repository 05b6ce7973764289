"""Streamed Markdown is cut into whole blocks, however its deltas split it."""

import sys
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, strategies as st

from ragmem.repl.streamed import MarkdownStream

TEXT = st.text(alphabet="ab `~#-*>1.)\n\t\r|", max_size=200)
LINE = st.sampled_from(
    ["text", "", "- item", "  more", "    code", "# not a heading", "`x`", "~~~x"]
)
FENCE = st.tuples(st.sampled_from(["```", "````", "```python"]), st.lists(LINE, max_size=6)).map(
    lambda made: "\n".join([made[0], *made[1], "`" * (3 + (made[0] == "````"))]) + "\n"
)
LISTS = ("- one\n- two\n", "1. one\n\n   more\n")
PROSE = st.sampled_from(["Words.\n", "\n", "# Heading\n", *LISTS, "> quote\n", "a\nb\n\n"])
DOCUMENT = st.lists(st.one_of(FENCE, PROSE), max_size=8)


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted({i % (len(text) + 1) for i in at}), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def blocks_of(pieces: list[str]) -> list[str]:
    stream = MarkdownStream()
    closed = [block for piece in pieces for block in stream.feed(piece)]
    assert "".join(closed) + stream.tail == "".join(pieces)
    rest = stream.finish()
    assert stream.tail == ""
    return [*closed, rest] if rest else closed


@given(text=TEXT, at=st.lists(st.integers(0, 1000), max_size=30))
def test_nothing_is_lost_whatever_comes(text: str, at: list[int]) -> None:
    """Blocks and tail are what was fed, in any pieces."""
    assert "".join(blocks_of(cut(text, at))) == text


@given(parts=DOCUMENT, at=st.lists(st.integers(0, 1000), max_size=30))
def test_fences_are_never_split_and_the_cuts_do_not_matter(parts: list[str], at: list[int]) -> None:
    """A whole fence lies in one block, wherever the deltas are cut: the blocks are the same."""
    text = "".join(parts)
    blocks = blocks_of([text])
    assert blocks_of(cut(text, at)) == blocks
    ends = set(accumulate(map(len, blocks)))
    position = 0
    for part in parts:
        inside = set(range(position + 1, position + len(part)))
        if part.startswith("```"):
            assert not ends & inside, (part, blocks)
        position += len(part)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        pytest.param("One.\n\nTwo", ["One.\n\n"], id="at a blank line"),
        pytest.param("One.\n\n", [], id="not before it is known what follows"),
        pytest.param("- one\n\n  more\n", [], id="not within an item of two paragraphs"),
        pytest.param("- one\n  - in\n- t", ["- one\n  - in\n"], id="before the next item"),
        pytest.param("- one\n-", [], id="not before it is known that it is one"),
        pytest.param("So:\n1. one\n2. t", ["So:\n", "1. one\n"], id="before a list's first item"),
        pytest.param("In the year\n1984. That was", [], id="not at a number in a paragraph"),
        pytest.param("```\n- a\n- b\n", [], id="not at what looks like an item in a fence"),
        pytest.param("# Title\n", ["# Title\n"], id="after a heading"),
        pytest.param("Text\n```\na\n\nb\n```\n", ["Text\n", "```\na\n\nb\n```\n"], id="a fence"),
        pytest.param("```\na\n\n    ```\nb", [], id="an indented mark closes no fence"),
        pytest.param("- x\n\n  ```\n  a\n\nb\n  ```\n", [], id="a fence in a list"),
        pytest.param("``` a`b\n\nx", ["``` a`b\n\n"], id="no fence: a backtick in its line"),
    ],
)
def test_where_blocks_close(text: str, closed: list[str]) -> None:
    """A block is printed once, when nothing can be added to it."""
    assert MarkdownStream().feed(text) == closed


@pytest.mark.parametrize("begin", ["```python\n", "| a | b |\n|---|---|\n", ""])
def test_what_is_shown_of_a_long_block_costs_as_much_at_its_end_as_at_its_beginning(
    begin: str,
) -> None:
    """Counted in characters that are looked at, by the calls that it takes."""
    stream = MarkdownStream()
    stream.feed(begin)
    calls: list[int] = []
    for _ in range(2):
        for _ in range(1_000):
            stream.feed("| x = y | 'z' |\n")
            stream.rows(80, 20)
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        stream.rows(80, 20)
        sys.setprofile(None)
        calls.append(count)
    assert calls[1] <= 1.5 * calls[0]


def test_a_long_answer_in_small_pieces_is_taken_in_linear_time() -> None:
    """A million characters in deltas of four cost no more than reading them."""
    stream = MarkdownStream()
    text = "x" * 1_000_000
    for i in range(0, len(text), 4):
        stream.feed(text[i : i + 4])
    assert stream.finish() == text
