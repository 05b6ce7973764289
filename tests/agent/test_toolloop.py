"""The messages of a long tool loop stay within a limit, and nothing is lost."""

import re
from itertools import pairwise

from hypothesis import given, strategies as st

from ragmem.agent.calls import ToolLoop
from ragmem.messages import Message, ToolAnswer, ToolUse, assistant, system, tool, user
from tests.memory.test_window import assert_valid

HEAD = (system("rules"), user("do it"))


def a_round(number: int, *sizes: int, said: str = "") -> list[Message]:
    uses = tuple(
        ToolUse(f"call{number:03}{i:02}", "read_file", f'{{"path":"f{number}_{i}.py"}}')
        for i in range(len(sizes))
    )
    answers = [tool(use.id, f"{use.id} " + "x" * n) for use, n in zip(uses, sizes, strict=True)]
    return [assistant(said, uses), *answers]


def size(loop: ToolLoop) -> int:
    return sum(message.char_count for message in loop.messages)


def test_nothing_changes_within_the_limit() -> None:
    loop = ToolLoop(HEAD, limit=10_000)
    rounds = [a_round(i, 1000) for i in range(5)]
    for each in rounds:
        loop.add(each)
    assert loop.messages == (*HEAD, *(m for each in rounds for m in each))


def test_the_oldest_results_become_one_line_with_what_size_and_id() -> None:
    """In batches, newest whole."""
    loop = ToolLoop(HEAD, limit=8_000)
    for i in range(10):
        loop.add(a_round(i, 1000))
    assert size(loop) <= 8_000
    assert_valid(loop.messages)
    first = loop.messages[3].parts[0]
    assert isinstance(first, ToolAnswer)
    assert first.text == (
        '[read_file {"path":"f0_0.py"}: 1,010 characters left out to save room; '
        "recall_result brings them back: id call00000]"
    )
    assert loop.messages[-1] == a_round(9, 1000)[-1]
    for i in range(10, 20):
        loop.add(a_round(i, 1000))
    assert all(
        "1,010 characters" in m.parts[0].text
        for m in loop.messages
        if m.role == "tool" and m != loop.messages[-1] and "left out" in m.parts[0].text
    )  # type: ignore[union-attr]


def test_the_prefix_changes_in_batches_only() -> None:
    loop = ToolLoop(HEAD, limit=20_000)
    changes = 0
    before: tuple[Message, ...] = ()
    for i in range(40):
        loop.add(a_round(i, 1000))
        changes += loop.messages[: len(before)] != before
        before = loop.messages
    assert 1 <= changes <= 10


def test_the_list_of_what_is_gone_is_bounded_too() -> None:
    loop = ToolLoop(HEAD, limit=8_000)
    for i in range(300):
        loop.add(a_round(i, 500, said="so that this is a longer line " * 3))
        assert size(loop) <= 8_000
    note = loop.messages[1].text
    assert re.search(r"- \d+ more before these", note)
    assert len(note) < 1_300
    assert "read_file" in note


def test_a_newest_round_too_large_alone_is_clipped_with_its_ids() -> None:
    loop = ToolLoop(HEAD, limit=10_000)
    loop.add(a_round(0, *[5_000] * 10))
    assert size(loop) <= 10_000
    assert_valid(loop.messages)
    last = loop.messages[-1].parts[0]
    assert isinstance(last, ToolAnswer)
    assert last.text.endswith("[recall_result brings all of it back: id call00009]")


def test_shrinking_halves_what_was_sent_until_nothing_can_be_made_smaller() -> None:
    """However far below the limit it was: a model's window may be smaller than thought."""
    loop, same = ToolLoop(HEAD, limit=500_000), ToolLoop(HEAD, limit=500_000)
    for i in range(3):
        loop.add(a_round(i, 3_000))
    sizes = [size(loop)]
    while loop.shrink(same):
        sizes.append(size(loop))
        assert_valid(loop.messages)
    assert all(later <= (earlier + 40) // 2 for earlier, later in pairwise(sizes[:4]))
    assert sizes[-1] < 600
    assert not ToolLoop(HEAD, limit=10_000).shrink(same)


def test_what_a_smaller_context_gives_up_is_room_for_rounds() -> None:
    loop = ToolLoop((*HEAD, user("x" * 8_000)), limit=20_000)
    loop.add(a_round(0, 2_000))
    before = size(loop)
    assert loop.shrink(ToolLoop(HEAD, limit=20_000))
    assert size(loop) == before - 8_000
    loop.add(a_round(1, 1_500))
    assert "x" * 1_500 in loop.messages[-1].parts[0].text  # type: ignore[union-attr]


@given(st.lists(st.lists(st.integers(0, 4_000), min_size=1, max_size=5), max_size=30))
def test_whatever_comes_it_stays_valid_and_within_the_limit(sizes: list[list[int]]) -> None:
    """A limit that the arguments of one round leave room for is kept."""
    loop = ToolLoop(HEAD, limit=6_000)
    for i, each in enumerate(sizes):
        loop.add(a_round(i, *each))
        assert_valid(loop.messages)
        assert size(loop) <= 6_000
