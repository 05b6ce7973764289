"""What is known beyond the conversations, as sections of the request: profile, facts, pinned."""

from datetime import timedelta

import msgspec
import pytest

from ragmem.memory import Hit
from ragmem.memory.context import Context
from ragmem.memory.facts import FactHit
from ragmem.memory.projects import Instructions
from ragmem.messages import prompt
from ragmem.records import Evidence
from ragmem.text import mark_for

from .builders import (
    NOW,
    PLACE,
    PROFILE,
    SMALL,
    T0,
    a_context as build,
    a_memory,
    a_turn,
    fact_hit,
    names,
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
    replaced = msgspec.structs.replace(hit, since="Replaced since by: Bo has them")
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
    context = build(pinned=(RULE,), profile=PROFILE, facts=(fact_hit(SHOULDER, why="its meaning"),))
    items = {s.name: s.items for s in context.sections}
    (fact,) = items["Remembered Facts"]
    assert (fact.label, fact.score, fact.why, fact.record_id) == (
        "Mickael broke his shoulder", 0.5, "its meaning", SHOULDER.memory_id,
    )  # fmt: skip
    (rule,) = items["Pinned"]
    assert (rule.label, rule.why, rule.record_id) == (
        "Never push to main", "a rule of the person", RULE.memory_id,
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
        "Pinned by the person, to be kept to in every answer:\n\n"
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
    pins = [a_memory(i, f"pin {i} " + "p" * 300, pinned=True) for i in range(20)]
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
    (notice,) = context.notices
    assert "18 pinned memories" in notice
    assert "memory.context.pinned_percent" in notice
    one = build(max_chars=20_000, pinned=(a_memory(1, "z" * 990, pinned=True),))
    assert names(one) == ["System", "Prompt"]
    assert one.notices[0].startswith("The model is not told of “zzz")


def test_the_tools_are_described_where_there_are_any() -> None:
    """One paragraph on when to use them; nothing of them elsewhere."""
    with_tools = msgspec.structs.replace(PLACE, memory_tools=True)
    text = build(place=with_tools).messages[0].text
    before = build().messages[0].text
    assert text.startswith(before)
    assert text.removeprefix(before).strip() == prompt("system_memory")
    assert build(place=with_tools, info=SMALL).text().count("search_memories") == 0
    assert "search_memories" not in build().messages[0].text
