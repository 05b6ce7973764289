"""Summaries as each real store keeps them: planned from what waits there, stored, redone."""

import json
from datetime import datetime, timedelta

from ragmem.config import SummariesConfig
from ragmem.ids import new_id
from ragmem.memory.summaries import Summarizer, next_roll_up
from ragmem.records import AddSummary
from ragmem.store.base import Store
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.store.samples import START, called, created, whole_turn

ANSWER = json.dumps({"text": "Beds were planned.", "key_findings": ["ferns like shade"]})


class Clock:
    """A minute a look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


async def sum_up(store: Store, session_id: str, summarizer: Summarizer) -> None:
    """What a worker does: an L1 for each turn that has none, then what is due above."""
    ones = await store.summaries(session_id, level=1)
    done = {turn_id for summary in ones for turn_id in summary.covers}
    for turn in await store.turns(session_id):
        if turn.turn_id not in done:
            await store.apply([AddSummary(summary=await summarizer.summarize_turn(turn))])
    while True:
        raw = {turn.turn_id: turn.char_count for turn in await store.turns(session_id)}
        waiting = (await store.summaries(session_id, not_rolled_up=True))[::-1]
        due = next_roll_up(waiting, raw, rollup_chars=5_000)
        if not due:
            return
        above = await summarizer.summarize_summaries(session_id, due)
        await store.apply([AddSummary(summary=above)])


async def a_session(store: Store, turns: int, *, chars: int = 960) -> str:
    first = created()
    await store.apply([first])
    session_id = first.session.session_id
    for number in range(turns):
        turn_id = new_id()
        begin, finish = whole_turn(
            session_id, turn_id, f"Question {number}?", "shade " * (chars // 6)
        )
        call = called(session_id, turn_id, 0, arguments=json.dumps({"path": f"bed{number}.txt"}))
        await store.apply([begin, call, finish])
    return session_id


async def test_ten_turns_give_a_second_level_and_thirty_a_third(store: Store) -> None:
    """From what the store says waits."""
    llm = ScriptedLLM([Says(ANSWER)], repeat=True)
    summarizer = Summarizer(llm, SummariesConfig(), clock=Clock())
    session_id = await a_session(store, 10)
    assert await store.raw_history_chars(session_id) > 9_000
    await sum_up(store, session_id, summarizer)
    assert await store.raw_history_chars(session_id) == 0
    (second,) = await store.summaries(session_id, level=2)
    turns = await store.turns(session_id)
    ones = (await store.summaries(session_id, level=1))[::-1]
    assert [s.covers for s in ones] == [(turn.turn_id,) for turn in turns]
    assert second.covers == tuple(s.summary_id for s in ones[: second.turn_count])
    assert set(second.files_mentioned) == {f"bed{i}.txt" for i in range(second.turn_count)}
    assert (second.text, second.extractive) == ("Beds were planned.", False)

    longer = await a_session(store, 30)
    await sum_up(store, longer, summarizer)
    (third,) = await store.summaries(longer, level=3)
    seconds = {s.summary_id: s for s in await store.summaries(longer, level=2)}
    assert third.turn_count == sum(seconds[name].turn_count for name in third.covers)
    # Once more changes nothing, and asks nobody.
    asked = len(llm.requests)
    await sum_up(store, longer, summarizer)
    assert len(llm.requests) == asked


async def test_two_that_do_the_same_work_store_it_once(store: Store) -> None:
    """A lease that ran out costs a second call, never a second summary."""
    session_id = await a_session(store, 7)
    turns = await store.turns(session_id)
    for _ in range(2):
        summarizer = Summarizer(None, SummariesConfig(), clock=Clock())
        ones = [await summarizer.summarize_turn(turn) for turn in turns]
        above = await summarizer.summarize_summaries(session_id, ones)
        await store.apply([AddSummary(summary=s) for s in (*ones, above)])
    assert len(await store.summaries(session_id)) == 8
    assert await store.summaries(session_id, not_rolled_up=True) == [above]


async def test_a_stand_in_is_redone_in_its_place(store: Store) -> None:
    """The model's words replace the turn's own; what lies above it stays linked."""
    session_id = await a_session(store, 7)
    await sum_up(store, session_id, Summarizer(None, SummariesConfig(), clock=Clock()))
    before = await store.summaries(session_id)
    assert all(summary.extractive for summary in before)
    summarizer = Summarizer(ScriptedLLM([Says(ANSWER)], repeat=True), SummariesConfig())
    turns = {turn.turn_id: turn for turn in await store.turns(session_id)}
    for old in await store.summaries(session_id, level=1):
        again = await summarizer.summarize_turn(turns[old.covers[0]], instead_of=old)
        await store.apply([AddSummary(summary=again)])
    after = await store.summaries(session_id)
    assert [s.summary_id for s in after] == [s.summary_id for s in before]
    assert [s.extractive for s in after if s.level == 1] == [False] * 7
    assert {s.text for s in after if s.level == 1} == {"Beds were planned."}
    assert len(await store.summaries(session_id, not_rolled_up=True)) == len(
        [s for s in before if s.level == 2]
    ) + 7 - sum(s.turn_count for s in before if s.level == 2)
