"""What was found on the prompt, as sections of the request."""

import time
from datetime import datetime, timedelta

import msgspec
import pytest

from ragmem.memory.context.sections import choose
from ragmem.text import ago

from .builders import NOW, a_call, a_context, a_summary, a_turn, names, summary_hit, turn_hit


def test_a_recalled_turn_is_one_block_that_begins_with_what_became_of_it() -> None:
    turn = a_turn(2, "Use JWT?\n\nOr sessions?", "JWT.\n \n\nThey live an hour.")
    hit = msgspec.structs.replace(turn_hit(turn), since="As it was on 2026-01-10; said since: “No”")
    [block] = [b for b in a_context(hits=(hit,)).messages[-1].text.split("\n\n") if "[Turn 2" in b]
    assert block.split("\n")[2:7] == [
        "As it was on 2026-01-10; said since: “No”",
        "User: Use JWT?",
        "  Or sessions?",
        "Assistant: JWT.",
        "  They live an hour.",
    ]


def test_nothing_is_shown_twice() -> None:
    """Not what the window shows, nor a summary of it, nor a summary that is listed."""
    turns = (a_turn(1), a_turn(2))
    shown_one = a_summary(1, turns[0].turn_id)
    listed = a_summary(2, "elsewhere")
    other = a_summary(3, "other", level=2)
    context = a_context(
        turns=turns,
        hits=(
            turn_hit(turns[1]), summary_hit(shown_one), summary_hit(listed), summary_hit(other),
        ),
        level1=(listed, shown_one),
    )  # fmt: skip
    text = context.messages[-1].text
    assert "Relevant Turns" not in names(context)
    assert text.count("summary 2\n") == 1
    assert "summary 1" not in text
    assert "summary 3" in text


def test_a_summary_of_a_turn_that_is_a_hit_is_dropped() -> None:
    """The turn says it better."""
    turn = a_turn(4)
    hits = [turn_hit(turn), summary_hit(a_summary(1, turn.turn_id))]
    assert choose(hits, ()) == hits[:1]
    assert choose(hits[::-1], ()) == hits[:1]


def test_the_best_five_at_most_three_turns() -> None:
    """The limits bound what is shown; the order is the rank's."""
    turns = [turn_hit(a_turn(i), 9 - i) for i in range(6)]
    summaries = [summary_hit(a_summary(i, f"c{i}"), 0.1) for i in range(6)]
    chosen = choose([*turns, *summaries], ())
    assert chosen == [*turns[:3], *summaries[:2]]
    assert len(choose(summaries, ())) == 5


def test_a_long_turn_is_shown_around_what_was_asked() -> None:
    """The passage that answers, not the beginning, when there is no room for all."""
    answer = "\n".join(f"line {i} about other things" for i in range(3_000))
    answer += "\nThe flux capacitor needs 1.21 gigawatts.\n" + "and so on\n" * 3_000
    hits = (turn_hit(a_turn(3, "How much power?", answer)),)
    context = a_context("What did the flux capacitor need?", max_chars=20_000, hits=hits)
    text = context.messages[-1].text
    assert "1.21 gigawatts" in text
    assert len(text) < 4_000


def test_the_result_of_a_tool_is_quoted_when_it_holds_the_answer() -> None:
    """What was found out by a command is memory too."""
    call = a_call(
        text="collected 3 items\nE   KeyError: 'tenant_id' in middleware.py line 88\n1 failed",
        tool_name="run_command", arguments='{"command": "pytest"}',
    )  # fmt: skip
    turn = a_turn(3, "Run the tests.", "One fails.", (call,))
    text = a_context("Where did the KeyError tenant_id come from?", hits=(turn_hit(turn),))
    assert (
        'Result of run_command {"command": "pytest"}: collected 3 items\n'
        "  E   KeyError: 'tenant_id' in middleware.py line 88"
    ) in text.messages[-1].text


@pytest.mark.parametrize(("max_chars", "shown"), [(1_000, 0), (2_000, 1), (4_000, 1), (12_000, 5)])
def test_where_there_is_little_room_the_best_are_shown(max_chars: int, shown: int) -> None:
    """Fewer of them, rather than none; the small local model has 360."""
    hits = [turn_hit(a_turn(i, f"asked {i} " * 40, "said " * 40), 9 - i) for i in range(3)]
    hits += [summary_hit(a_summary(i, f"c{i}", text="told " * 40), 1 - i) for i in range(2)]
    context = a_context(max_chars=max_chars, hits=tuple(hits))
    sections = [s for s in context.sections if s.name.startswith("Relevant")]
    assert sum(len(section.items) for section in sections) == shown
    if shown:
        assert "asked 0" in context.messages[-1].text
        assert sum(section.dropped for section in sections) <= 5 - shown
        assert sum(section.chars for section in sections) <= max_chars * 15 // 100


def test_ages_in_words() -> None:
    """A clock that went back makes nothing come from the future."""
    ages = [
        ago(NOW - timedelta(seconds=seconds), NOW)
        for seconds in (-90_000, 0, 60, 120, 3_600, 172_800, 86_400 * 31, 86_400 * 800)
    ]
    assert ages == [
        "just now", "just now", "1 minute ago", "2 minutes ago", "1 hour ago", "2 days ago",
        "1 month ago", "2 years ago",
    ]  # fmt: skip


def test_days_are_told_by_the_calendar() -> None:
    at, now = (datetime(2026, 11, *when).astimezone() for when in ((24, 9, 2), (26, 4, 43)))
    assert ago(at, now) == "2 days ago"


def test_the_day_that_has_an_hour_more_is_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        at = datetime(2026, 10, 25, 0, 5).astimezone()
        assert ago(at, at + timedelta(hours=24, minutes=45)) == "1 day ago"
    finally:
        monkeypatch.undo()
        time.tzset()
