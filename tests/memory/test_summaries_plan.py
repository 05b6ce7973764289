"""When a level is due, and what it covers."""

import uuid

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.ids import new_id
from ragmem.memory.summaries import next_roll_up, summary_id, thread_summary_due
from ragmem.records import Session, Summary
from tests.store.samples import created

from .builders import a_summary

LIMIT = 5_000


class Made(msgspec.Struct):
    """A conversation's summaries as the planner had them made."""

    waiting: list[Summary] = []
    raw: dict[str, int] = {}
    below: dict[str, tuple[str, ...]] = {}
    all: dict[str, Summary] = {}

    def add(self, summary: Summary) -> None:
        self.all[summary.summary_id] = summary
        self.waiting.append(summary)

    def add_turn(self, index: int, raw_chars: int) -> None:
        self.raw[f"turn-{index:05}"] = raw_chars
        self.add(of(f"of-{index:05}", 1, (f"turn-{index:05}",)))

    def roll_up(self, own_chars: int) -> int:
        """Make what is due until nothing is; returns how many were made."""
        count = 0
        while due := next_roll_up(self.waiting, self.raw, rollup_chars=LIMIT):
            count += 1
            level, covers = due[0].level + 1, tuple(s.summary_id for s in due)
            name = summary_id("s", level, covers)
            self.below[name] = covers
            self.waiting = [w for w in self.waiting if w not in due]
            self.add(of(name, level, covers, own_chars, sum(s.turn_count for s in due)))
        return count


def of(
    name: str, level: int, covers: tuple[str, ...] = (), chars: int = 300, turn_count: int = 1
) -> Summary:
    text = "x" * chars
    return a_summary(0, *covers, summary_id=name, text=text, level=level, turn_count=turn_count)


def waiting(raw: list[int]) -> Made:
    made = Made()
    for index, chars in enumerate(raw):
        made.add_turn(index, chars)
    return made


def along_the_way(raw: list[int], own_chars: int = 900) -> Made:
    """Each turn summed up as it ends."""
    made = Made()
    for index, chars in enumerate(raw):
        made.add_turn(index, chars)
        made.roll_up(own_chars)
    return made


def levels(made: Made) -> dict[int, int]:
    counts: dict[int, int] = {}
    for summary in made.all.values():
        counts[summary.level] = counts.get(summary.level, 0) + 1
    return counts


@pytest.mark.parametrize(
    ("raw", "due"),
    [
        ([2_500, 2_500], False),
        ([2_500, 2_501], True),
        ([5_001], False),
        ([90_000], False),
        ([90_000, 1], True),
        ([1_000] * 5, False),
        ([1_000] * 6, True),
        ([], False),
    ],
)
def test_level_one_goes_by_the_characters_of_its_turns(raw: list[int], due: bool) -> None:
    """5,000 no, 5,001 yes; at least two, however long."""
    made = waiting(raw)
    expected = made.waiting if due else []
    assert next_roll_up(made.waiting, made.raw, rollup_chars=LIMIT) == expected


@pytest.mark.parametrize(
    ("own", "due"),
    [
        ([100, 100, 100], False),
        ([100, 100, 100, 100], True),
        ([5_001], False),
        ([2_500, 2_500], False),
        ([2_500, 2_501], True),
    ],
)
@pytest.mark.parametrize("level", [2, 3, 7])
def test_higher_levels_go_by_number_or_own_length(level: int, own: list[int], due: bool) -> None:
    """Four wait, or two whose text is long; the same at any level."""
    found = [of(str(i), level, chars=chars) for i, chars in enumerate(own)]
    assert next_roll_up(found, {}, rollup_chars=LIMIT) == (found if due else [])


def test_a_backlog_is_taken_from_its_oldest_end() -> None:
    """What a process left is rolled up as it would have been along the way."""
    made = waiting([1_000] * 40)
    assert next_roll_up(made.waiting, made.raw, rollup_chars=LIMIT) == made.waiting[:6]


def test_there_is_no_highest_level() -> None:
    """3,000 long turns go up and up."""
    made = along_the_way([3_000] * 3_000)
    assert max(levels(made)) >= 6
    assert len(made.waiting) <= 1 + 3 * max(levels(made))


@given(st.lists(st.integers(0, 9_000), max_size=120), st.integers(1, 4_000))
def test_a_conversation_of_any_length_is_covered(raw: list[int], own_chars: int) -> None:
    """Each summary is below one other at most, all turns are below what waits, in order."""
    made = along_the_way(raw, own_chars)
    covered = [name for below in made.below.values() for name in below]
    assert len(covered) == len(set(covered))
    tops = {w.summary_id for w in made.waiting}
    assert tops.isdisjoint(covered)
    assert tops | set(covered) == set(made.all)

    def turns(name: str) -> list[str]:
        return [t for below in made.below.get(name, ()) for t in turns(below)] or [name]

    for name, below in made.below.items():
        assert len(below) >= 2
        assert {made.all[b].level for b in below} == {made.all[name].level - 1}
        assert made.all[name].turn_count == len(turns(name))
        # What it covers is one stretch of the conversation.
        first = int(turns(name)[0][-5:])
        assert turns(name) == [f"of-{i:05}" for i in range(first, first + len(turns(name)))]
    assert sum(w.turn_count for w in made.waiting) == len(raw)


@given(st.lists(st.integers(0, 9_000), max_size=80), st.integers(1, 4_000), st.integers(0, 80))
def test_late_work_comes_to_the_same_summaries(raw: list[int], own_chars: int, stop: int) -> None:
    """Whoever does it and when, ids included: what two do at once is stored once."""
    late = Made()
    for index, chars in enumerate(raw):
        late.add_turn(index, chars)
        if index == stop:
            late.roll_up(own_chars)
    late.roll_up(own_chars)
    assert late.below == along_the_way(raw, own_chars).below


def a_session(messages: int, summarized: int) -> Session:
    return created(message_count=messages, summarized_count=summarized).session


@pytest.mark.parametrize(
    ("before", "now", "due"),
    [(0, 0, False), (0, 8, False), (8, 10, True), (10, 18, False), (18, 20, True), (0, 34, True)],
)
def test_the_session_is_summed_up_at_each_multiple(before: int, now: int, due: bool) -> None:
    """At 10, 20, 30 …, also when the count jumps over one; not at 0."""
    assert thread_summary_due(a_session(now, before), every=10) is due


def test_ids_tell_the_work() -> None:
    """Made by the client; the same for the same turns, and in time's order."""
    turns = [new_id() for _ in range(3)]
    one = summary_id("s", 1, turns[:1])
    assert one == summary_id("s", 1, turns[:1])
    others = [
        summary_id("s", 1, turns[1:2]),
        summary_id("s", 2, turns[:1]),
        summary_id("t", 1, turns[:1]),
        summary_id("s", 2, turns),
        summary_id("s", 2, turns[:2]),
        summary_id("s", 1, ["not a uuid"]),
    ]
    assert len({one, *others}) == 7
    for name in (one, *others):
        assert (uuid.UUID(name).version, uuid.UUID(name).variant) == (7, uuid.RFC_4122)
    assert one[:13] == turns[0][:13]
