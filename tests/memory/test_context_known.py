"""What was found on a prompt and what is known, as sections of the request."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

from ragmem.memory.context.builder import Context
from ragmem.memory.context.sections import choose
from ragmem.memory.facts import FactHit
from ragmem.memory.projects import Instructions
from ragmem.memory.recall import Hit
from ragmem.messages import prompt
from ragmem.records import Evidence
from ragmem.text import ago, mark_for

from .builders import (
    NOW,
    PLACE,
    PROFILE,
    SMALL,
    T0,
    a_call,
    a_context as build,
    a_memory,
    a_summary,
    a_turn,
    fact_hit,
    names,
    summary_hit,
    turn_hit,
)

SHOULDER = a_memory(1, "Mickael broke his shoulder", at=T0)
RULE = a_memory(7, "Never push to main", kind="rule", project_id="p")
PIN = a_memory(8, "Answer in French", pinned=True)


def facts_of(context: Context) -> list[str]:
    text = context.messages[-1].text
    if "## Remembered Facts" not in text:
        return []
    return text.split("## Remembered Facts\n")[1].split("\n\n")[0].split("\n")


def test_a_fact_that_is_visible_is_not_injected_twice() -> None:
    """Not what the prompt, the window, the summary or the system message says already."""
    facts = [fact_hit(a_memory(i, text)) for i, text in enumerate([
        "Mickael likes skiing.", "Paul has a cat", "The port is 5439", "Ann lives in Oslo",
        "Bo has a dog",
    ])]  # fmt: skip
    context = build(
        "By the way, mickael LIKES skiing!",
        turns=(a_turn(1, "And Paul?", "Paul has a cat, you know."),),
        thread_summary="Among others: the port is 5439.",
        pinned=(a_memory(3, "Ann lives in Oslo", pinned=True),),
        facts=tuple(facts),
    )
    assert [line.rsplit("] ")[1] for line in facts_of(context)] == ["Bo has a dog"]
    assert context.messages[0].text.count("Ann lives in Oslo") == 1
    # Words, not letters: a part of a longer word is another word.
    assert facts_of(build("Mickael likes skiings", facts=tuple(facts[:1])))
    assert facts_of(build("Mickael likes", thread_summary="skiing", facts=tuple(facts[:1])))


def test_a_fact_that_a_recalled_turn_tells_is_not_told_twice() -> None:
    """Learned from that turn, which still holds; one of which the turn does not tell stands."""
    turn = a_turn(3, "Where is the hall?", "The hall opens at 7, Ann has the keys.")
    told = (Evidence(session_id=turn.session_id, turn_id=turn.turn_id, at=T0),)
    keys = fact_hit(a_memory(1, "Ann has the keys of the hall", evidence=told))
    rent = fact_hit(a_memory(2, "The rent of the hall is 40 francs", evidence=told))
    other = fact_hit(a_memory(3, "Ann has the keys of the hall"))
    hit = turn_hit(turn, similarity=0.7)

    def shown(*facts: FactHit, hit: Hit = hit) -> list[str]:
        return [line.rsplit("] ")[1] for line in facts_of(build(facts=facts, hits=(hit,)))]

    assert shown(keys, rent) == [rent.memory.content]
    assert shown(other) == [other.memory.content]
    replaced = msgspec.structs.replace(hit, since="Since replaced by: Bo has them")
    assert shown(keys, hit=replaced) == [keys.memory.content]


def test_a_fact_that_is_much_farther_than_a_recalled_turn_is_not_told() -> None:
    hit = turn_hit(a_turn(3, "Where is the hall?", "The hall opens at 7."), similarity=0.7)
    near, far = (
        fact_hit(SHOULDER, similarity=0.5),
        fact_hit(a_memory(2, "The login uses JWT"), similarity=0.4),
    )
    assert len(facts_of(build(facts=(near, far)))) == 2
    [line] = facts_of(build(facts=(near, far), hits=(hit,)))
    assert line.endswith(SHOULDER.content)


def test_what_is_not_current_is_never_shown() -> None:
    """Neither expired nor superseded, whatever hands it in."""
    over = NOW - timedelta(seconds=1)
    gone = (
        a_memory(1, "expired", expires_at=over, pinned=True),
        a_memory(2, "superseded", superseded_by="x", pinned=True),
    )
    context = build(facts=tuple(map(fact_hit, gone)), pinned=gone)
    assert names(context) == ["System", "Prompt"]
    alive = a_memory(1, "for an hour", expires_at=NOW + timedelta(hours=1))
    assert len(facts_of(build(facts=(fact_hit(alive),)))) == 1


def test_at_most_so_many() -> None:
    """Five, unless configured otherwise; those shown anyway do not count."""
    facts = tuple(fact_hit(a_memory(i, f"fact number {i}")) for i in range(9))
    assert len(facts_of(build(facts=facts))) == 5
    assert len(facts_of(build(facts=facts, shown=2))) == 2
    lines = facts_of(build("fact number 0, fact number 1", facts=facts, shown=2))
    assert [line[-1] for line in lines] == ["2", "3"]


def test_items_say_why_they_are_there() -> None:
    """`context` and `memory_recall`: label, score, why, and the id that `memory why` takes."""
    hits = (fact_hit(SHOULDER, why=("its meaning",)),)
    context = build(pinned=(RULE,), profile=PROFILE, facts=hits)
    items = {s.name: s.items for s in context.sections}
    (fact,) = items["Remembered Facts"]
    assert (fact.label, fact.score, fact.why, fact.record_id) == (
        "Mickael broke his shoulder", 0.5, "its meaning", SHOULDER.memory_id,
    )  # fmt: skip
    (rule,) = items["Pinned"]
    assert (rule.label, rule.why, rule.record_id) == (
        "Never push to main", "a rule of the user", RULE.memory_id,
    )  # fmt: skip
    assert [item.label for item in items["User Profile"]] == ["language=French", "name=Mickael"]


# --- the system message --------------------------------------------------------


def test_pinned_memories_stand_behind_the_instructions() -> None:
    """Base prompt, project instructions, pinned rules; oldest first."""
    place = msgspec.structs.replace(PLACE, instructions=Instructions("Use tabs.", ()))
    text = build(place=place, pinned=(RULE, PIN)).messages[0].text
    tag = f"instructions-{mark_for('Use tabs.')}"
    assert text.endswith(
        f"The project's instructions:\n\n<{tag}>\nUse tabs.\n</{tag}>\n\n"
        "The user's rules, to be followed in every answer:\n\n"
        "- Never push to main\n- Answer in French"
    )


def test_the_system_message_changes_with_them_alone() -> None:
    """The same to the byte, whatever is asked, said or found, and whenever."""
    first = build(pinned=(RULE, PIN)).messages[0]
    again = build(
        "other",
        pinned=(RULE, PIN),
        turns=(a_turn(1),),
        facts=(fact_hit(SHOULDER),),
        profile=PROFILE,
    )
    assert again.messages[0] == first
    assert build(pinned=(RULE,)).messages[0] != first
    assert build().messages[0] == build("other", profile=PROFILE).messages[0]


@pytest.mark.parametrize("trust", ["model", "tool"])
def test_only_the_person_speaks_with_the_systems_voice(trust: str) -> None:
    """No file and no model makes a rule, whatever was stored."""
    forged = a_memory(1, "Always run X", kind="rule", trust=trust, pinned=True)
    context = build(pinned=(forged,))
    assert names(context) == ["System", "Prompt"]
    assert "Always run X" not in context.text()


def test_pinned_memories_are_capped_with_a_notice() -> None:
    """5% of the maximum; rules go first, then the oldest, and what is left out is named."""
    pins = [a_memory(i, f"pin {i} " + "p" * 301, pinned=True) for i in range(20)]
    rule = a_memory(30, "Never push to main", kind="rule")
    context = build(max_chars=20_000, pinned=(*pins, rule))
    section = next(s for s in context.sections if s.name == "Pinned")
    assert section.chars <= section.budget == 1_000
    assert section.dropped == 18
    text = context.messages[0].text
    assert "- pin 0 " in text
    assert "- pin 1 " in text
    assert "- pin 2 " not in text
    assert text.index("- pin 1 ") < text.index("- Never push to main")
    (notice,) = context.over_limits
    assert "18 pinned memories" in notice
    assert "memory.context.pinned_percent" in notice
    one = build(max_chars=20_000, pinned=(a_memory(1, "z" * 990, pinned=True),))
    assert names(one) == ["System", "Prompt"]
    assert one.over_limits[0].startswith("“zzz")


def test_the_tools_are_described_where_there_are_any() -> None:
    """One paragraph on when to use them; nothing of them elsewhere."""
    with_tools = msgspec.structs.replace(PLACE, memory_tools=True)
    text = build(place=with_tools).messages[0].text
    before = build().messages[0].text
    assert text.startswith(before)
    assert text.removeprefix(before).strip() == prompt("system_memory")
    assert build(place=with_tools, info=SMALL).text().count("search_memories") == 0
    assert "search_memories" not in build().messages[0].text


# --- what was found on the prompt ----------------------------------------------------


def test_a_recalled_turn_is_one_block_that_begins_with_what_became_of_it() -> None:
    turn = a_turn(2, "Use JWT?\n\nOr sessions?", "JWT.\n \n\nThey live an hour.")
    hit = msgspec.structs.replace(turn_hit(turn), since="As it was on 2026-01-10; said later: “No”")
    [block] = [b for b in build(hits=(hit,)).messages[-1].text.split("\n\n") if "[Turn 2" in b]
    assert block.split("\n")[2:7] == [
        "As it was on 2026-01-10; said later: “No”",
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
    context = build(
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


def test_a_turn_that_is_recalled_is_told_once() -> None:
    """Its summary is not told beside it, nor what was asked in it."""
    older = (a_turn(1, "Where are the ferns?", "In the shed."), a_turn(2, "And the moss?", "No."))
    level1 = (a_summary(1, older[0].turn_id), a_summary(2, older[1].turn_id))
    context = build(hits=(turn_hit(older[0]),), level1=level1, older=older, older_count=5)
    text = context.messages[-1].text
    assert text.count("Where are the ferns?") == 1
    assert "summary 1" not in text
    assert "[Turn 2] And the moss?" in text
    assert "summary 2" in text
    [queries] = [part for part in context.sections if part.name == "Last User Queries"]
    assert (len(queries.items), queries.dropped) == (1, 3)


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
    context = build("What did the flux capacitor need?", max_chars=20_000, hits=hits)
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
    text = build("Where did the KeyError tenant_id come from?", hits=(turn_hit(turn),))
    assert (
        'Result of run_command {"command": "pytest"}: collected 3 items\n'
        "  E   KeyError: 'tenant_id' in middleware.py line 88"
    ) in text.messages[-1].text


@pytest.mark.parametrize(("max_chars", "shown"), [(1_000, 0), (2_000, 1), (4_000, 1), (12_000, 5)])
def test_where_there_is_little_room_the_best_are_shown(max_chars: int, shown: int) -> None:
    """Fewer of them, rather than none; the small local model has 360."""
    hits = [turn_hit(a_turn(i, f"asked {i} " * 40, "said " * 40), 9 - i) for i in range(3)]
    hits += [summary_hit(a_summary(i, f"c{i}", text="told " * 40), 1 - i) for i in range(2)]
    context = build(max_chars=max_chars, hits=tuple(hits))
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


@pytest.mark.parametrize(
    ("zone", "hour", "due", "said"),
    [("Pacific/Auckland", 23, "11-27", "11-25"), ("America/Los_Angeles", 1, "11-25", "11-23")],
)
def test_days_are_the_persons_own(zone: str, hour: int, due: str, said: str) -> None:
    """Of deadlines and preferences, wherever the times are stored as those of another day."""
    noon, at = (datetime(2026, 11, day, hour, tzinfo=UTC) for day in (26, 24))
    context = build(
        now=at.astimezone(ZoneInfo(zone)),
        pinned=(a_memory(1, "The fair", kind="deadline", at=noon, pinned=True),),
        preferences=(a_memory(2, "I like tea", kind="preference", created_at=at),),
    )
    text = "\n".join(message.text for message in context.messages)
    assert f"- The fair (due 2026-{due})\n" in text
    assert f"- [2026-{said}] I like tea" in text


def test_the_day_that_has_an_hour_more_is_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        at = datetime(2026, 10, 25, 0, 5).astimezone()
        assert ago(at, at + timedelta(hours=24, minutes=45)) == "1 day ago"
    finally:
        monkeypatch.undo()
        time.tzset()
