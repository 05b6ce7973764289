"""Titles of sessions that nobody named, and insights into sessions."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from inline_snapshot import snapshot

from ragmem.config import SummariesConfig
from ragmem.llm.base import Chunk, ModelInfo, Request
from ragmem.memory.recording import redacted
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.titles import (
    MAX_LINES,
    TITLE_CHARS,
    TOPIC_CHARS,
    due,
    insight_into,
    look,
    title_from_words,
)
from ragmem.records import (
    DEFAULT_TITLE,
    Applied,
    Insight,
    PutInsight,
    SessionQuery,
    UpdateSession,
    Write,
    utc_now,
)
from ragmem.store import Store
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.memory.summarizing import Naps, a_summarizer, asked
from tests.store.samples import at, begun, called, created, finished, summed, whole_turn

GOOD = Says(json.dumps({"title": "Ferns need shade"}))


async def named(store: Store, summarizer: Summarizer | None = None) -> bool:
    return await due(store, summarizer, "me", passed=set(), now=at(9))


async def title(store: Store, session_id: str = "s") -> str:
    return (await store.session(session_id)).title


async def test_the_model_names_a_session_after_its_first_turn(store: Store) -> None:
    """One call, once; not before a turn was completed."""
    summarizer, llm = a_summarizer(GOOD, info=ModelInfo(name="fake/small", context_window=8_000))
    await store.apply([created("s"), begun("s", "t", "Where do ferns grow?")])
    assert not await named(store, summarizer)
    await store.apply([finished("s", "t", "In shade.")])
    assert await named(store, summarizer)
    assert await title(store) == "Ferns need shade"
    assert not await named(store, summarizer)
    assert len(llm.requests) == 1
    rules, data = asked(llm.requests[0]).split("\n=====\n")
    assert "At most 60 characters, on one line" in rules
    assert data == snapshot("""\
<records-TAG>
Person: Where do ferns grow?

Agent: In shade.
</records-TAG>

That was the quoted data. Answer with the JSON object.\
""")


async def test_a_name_by_the_person_wins_for_ever(store: Store) -> None:
    """Also one that is given while the model thinks."""
    turns = [*whole_turn("s", user="Where?"), *whole_turn("own", user="Where?")]
    await store.apply([created("s"), created("own", title="Mine"), *turns])

    class Slow(ScriptedLLM):
        async def stream(self, request: Request) -> AsyncIterator[Chunk]:
            await store.apply([UpdateSession(session_id="s", title="Also mine", at=at(8))])
            async for chunk in super().stream(request):
                yield chunk

    summarizer = Summarizer(Slow([GOOD]), SummariesConfig(), sleep=Naps())
    assert not await named(store, summarizer)
    assert [await title(store, name) for name in ("s", "own")] == ["Also mine", "Mine"]


async def test_without_a_model_the_first_words_are_the_title(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s", user="\n# `Where` do ferns grow?\nAnd?")])
    assert await named(store)
    assert await title(store) == "Where do ferns grow?"


async def test_a_model_that_fails_leaves_the_first_words(store: Store) -> None:
    """Past three tries, or past the session's limits."""
    await store.apply([created("s"), *whole_turn("s", user="Where do ferns grow?")])
    summarizer, llm = a_summarizer(Says("no JSON"), Says('{"title": ""}'), Says('{"title": 1}'))
    assert await named(store, summarizer)
    assert len(llm.requests) == 3
    assert await title(store) == "Where do ferns grow?"


async def test_a_fork_is_named_after_its_own_first_turn(store: Store) -> None:
    await store.apply(
        [
            created("s", title="Whole"),
            *whole_turn("s", user="Where?"),
            created("f", parent_session_id="s", forked_at_index=1),
        ]
    )
    assert not await named(store)
    await store.apply(whole_turn("f", user="And when?"))
    assert await named(store)
    assert await title(store, "f") == "And when?"


async def test_a_session_whose_first_turns_broke_off(store: Store) -> None:
    """The first of which anything came names it, however late."""
    await store.apply([created("s")])
    for number in range(8):
        turn_id = f"t{number}"
        await store.apply([begun("s", turn_id, "Never answered?")])
        await store.apply([finished("s", turn_id, "", status="interrupted")])
    assert not await named(store)
    await store.apply(whole_turn("s", user="Where?"))
    assert await named(store)
    assert await title(store) == "Where?"


async def test_a_turn_that_was_stopped_with_a_result_names_its_session(store: Store) -> None:
    begins = begun("s", "t0", "The test fails, fix it.")
    ends = finished("s", "t0", "", status="interrupted")
    await store.apply([created("s"), begins, called("s", "t0"), ends])
    assert not await named(store)
    await store.apply(whole_turn("s", user="I prefer tabs."))
    assert await named(store)
    assert await title(store) == "The test fails, fix it."


async def test_a_command_of_the_persons_own_names_no_session(store: Store) -> None:
    """Nor is one called by it that has no name yet: by the first prompt that is none."""
    await store.apply([created("s"), begun("s", "t", "!echo beside")])
    await store.apply([called("s", "t", origin="person"), finished("s", "t")])
    assert not await named(store)
    await store.apply([begun("s", "u", "Where do ferns grow?"), finished("s", "u")])
    await store.apply([begun("s", "v", "And hostas?"), finished("s", "v")])
    (listed,) = await store.sessions(SessionQuery())
    assert listed.called == (await store.session("s")).called == "Where do ferns grow?"
    assert await named(store)
    assert await title(store) == "Where do ferns grow?"
    assert (await store.session("s")).first_message is None


async def test_two_processes_name_a_session_once(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s", user="Where?")])
    one, first = a_summarizer(GOOD)
    two, second = a_summarizer(GOOD)
    done = await asyncio.gather(
        due(store, one, "one", passed=set(), now=at(9)),
        due(store, two, "two", passed=set(), now=at(9)),
    )
    assert sorted(done) == [False, True]
    assert len(first.requests) + len(second.requests) == 1


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('**Ferns** need "shade".', 'Ferns need "shade"'),
        ("«Les fougères.»", "Les fougères"),
        ("Line one\nline two", "Line one line two"),
        ("\x1b[31mred", "\\e[31mred"),
        ("sk-ant-api03-" + "a" * 40, None),
        ("word " * 30, None),
    ],
)
async def test_a_title_is_one_plain_line(store: Store, said: str, shown: str | None) -> None:
    """It is shown in lists, to people and to models: no escape, no secret, at most 60 letters."""
    await store.apply([created("s"), *whole_turn("s", user="Where?")])
    summarizer, _ = a_summarizer(Says(json.dumps({"title": said})))
    assert await named(store, summarizer)
    made = await title(store)
    assert made != DEFAULT_TITLE
    assert len(made) <= TITLE_CHARS
    assert "\x1b" not in made
    assert "aaaa" not in made
    if shown is not None:
        assert made == shown


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix it", "Fix it"),
        ("\n\n```py\nx = 1", "x = 1"),
        ("???", ""),
        ("", ""),
        ("<stdin>\nan error\n</stdin>", "an error"),
        ("x" * 70, "x" * 59 + "…"),
        ("one two three four five six seven eight nine ten eleven twelve thirteen", None),
    ],
)
def test_words_as_a_title(text: str, title: str | None) -> None:
    made = title_from_words(text)
    assert len(made) <= TITLE_CHARS
    if title is None:
        assert made == "one two three four five six seven eight nine ten eleven…"
    else:
        assert made == title


INSIGHT = Says(
    json.dumps(
        {
            "main_topic": "Where ferns grow",
            "key_findings": ["Ferns like shade."],
            "action_items": ["Move the north bed."],
        }
    )
)


async def into(store: Store, summarizer: Summarizer, session_id: str = "s") -> Insight | None:
    async def record(writes: Sequence[Write]) -> Applied:
        return await store.apply([redacted(write) for write in writes])

    session = await store.session(session_id)
    return await insight_into(store, summarizer, session, record, clock=lambda: at(60))


async def test_a_session_is_asked_about_once_and_stored(store: Store) -> None:
    """Main topic, key findings, action items."""
    turn = (
        begun("s", "t", "Where do ferns grow?"),
        called("s", "t"),
        finished("s", "t", "In shade."),
    )
    await store.apply([created("s"), *turn])
    summarizer, llm = a_summarizer(INSIGHT)
    made = await into(store, summarizer)
    assert made == Insight(
        session_id="s",
        main_topic="Where ferns grow",
        key_findings=("Ferns like shade.",),
        action_items=("Move the north bed.",),
        created_at=at(60),
    )
    assert await store.get(Insight, ["s", "other"]) == [made]
    [request] = llm.requests
    rules, data = asked(request).split("\n=====\n")
    for limit in ("at most 120 characters", "0 to 8 things", "At most 200 characters each"):
        assert limit in rules
    assert data == snapshot("""\
<records-TAG>
Person: Where do ferns grow?

Tool calls:
- read_file plants.txt -> ferns, hostas — 🌿

Agent: In shade.
</records-TAG>

That was the quoted data. Answer with the JSON object.\
""")


async def test_only_sessions_that_went_on_wait(store: Store) -> None:
    """The latest so many with an answer; what is known stays known until another turn."""
    for number, name in enumerate(("old", "done", "grown", "empty")):
        await store.apply([created(name)])
        if name != "empty":
            await store.apply(whole_turn(name, started_at=at(number)))
    summarizer, _ = a_summarizer(INSIGHT, INSIGHT)
    await into(store, summarizer, "done")
    await into(store, summarizer, "grown")
    seen = await look(store, last=50)
    assert [s.session_id for s in seen.waiting] == ["old"]
    assert sorted(s.session_id for s, _ in seen.known) == ["done", "grown"]
    await store.apply(whole_turn("grown", started_at=at(90)))
    seen = await look(store, last=50)
    assert sorted(s.session_id for s in seen.waiting) == ["grown", "old"]
    assert [s.session_id for s, _ in seen.known] == ["done"]
    assert [s.session_id for s in (await look(store, last=1)).waiting] == ["grown"]


async def test_an_insight_of_a_clock_that_was_ahead_is_made_again(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s")])
    ahead = utc_now() + timedelta(days=365)
    await store.apply(
        [PutInsight(insight=Insight(session_id="s", main_topic="x", created_at=ahead))]
    )
    assert [s.session_id for s in (await look(store, last=50)).waiting] == ["s"]
    await into(store, a_summarizer(INSIGHT)[0])
    assert not (await look(store, last=50)).waiting


async def test_an_answer_is_believed_little(store: Store) -> None:
    """Wrong shapes are asked for again; lines are bounded, plain and without secrets."""
    await store.apply([created("s"), *whole_turn("s")])
    wordy = {
        "main_topic": "x" * 500,
        "key_findings": [f"# finding {n} \x1b[31m" for n in range(20)] + ["", "…"],
        "action_items": ["use sk-ant-api03-" + "a" * 40],
        "run": "rm -rf /",
    }
    summarizer, llm = a_summarizer(
        Says('{"key_findings": []}'), Says('{"main_topic": " "}'), Says(json.dumps(wordy))
    )
    made = await into(store, summarizer)
    assert made is not None
    assert len(made.main_topic) == TOPIC_CHARS
    assert len(made.key_findings) == MAX_LINES
    assert "\x1b" not in "".join(made.key_findings)
    [stored] = await store.get(Insight, ["s"])
    assert "aaaa" not in stored.action_items[0]
    assert "main_topic is empty" in asked(llm.requests[2])


async def test_nothing_is_stored_where_nothing_came(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s")])
    summarizer, _ = a_summarizer(*[Says("no JSON")] * 3)
    assert await into(store, summarizer) is None
    assert await store.get(Insight, ["s"]) == []
    assert summarizer.problem == "the answer could not be used: it contains no JSON object"


async def test_a_long_session_is_told_by_its_summaries(store: Store) -> None:
    """What does not fit is neither left out nor sent: the summaries stand for it."""
    await store.apply([created("s")])
    for name in ("one", "two"):
        await store.apply(whole_turn("s", name, assistant="shade " * 2_000))
    await store.apply([summed("s", "one", text="First."), summed("s", "two", text="Second.")])
    summarizer, llm = a_summarizer(INSIGHT, info=ModelInfo(name="f/s", context_window=8_000))
    assert await into(store, summarizer)
    sent = asked(llm.requests[0])
    assert "Summary: First." in sent
    assert "Summary: Second." in sent
    assert "shade shade" not in sent
