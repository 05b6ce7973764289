"""The summariser: what it may cost, over all processes that work for a session or on a day."""

from pathlib import Path

import msgspec
import pytest

from ragmem.config import SummariesConfig
from ragmem.errors import ProviderUnavailable, StreamCut
from ragmem.llm.base import ModelInfo, UsageChunk
from ragmem.memory.summaries.summarizer import PROBLEM_CHARS, Summarizer, Tries
from ragmem.records import Attempts, utc_now
from ragmem.store import Store
from ragmem.usage import Spending, UsageLog
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .builders import a_turn
from .summarizing import GOOD, TURN, a_summarizer
from .working import DIGEST, a_session, a_worker, no_wait

PRICED = ModelInfo(
    name="openai/gpt-6-luna",
    context_window=128_000,
    input_usd_per_token=1e-6,
    output_usd_per_token=4e-6,
)


async def test_what_it_costs_is_counted() -> None:
    """Calls, tokens, dollars and failures by session, visible."""
    usage = UsageChunk(input_tokens=1_000, output_tokens=100)
    summarizer, _ = a_summarizer(Says("no", usage=usage), Says(GOOD, usage=usage), info=PRICED)
    await summarizer.summarize_turn(TURN)
    spent = summarizer.usage.spent("s")
    assert spent == Spending(
        calls=2,
        failed_calls=1,
        input_tokens=2_000,
        output_tokens=200,
        cost_usd=pytest.approx(0.0028),
    )
    assert summarizer.usage.spent("another") == Spending()
    # How long it took is measured, too.
    assert summarizer.usage.metrics.timings["summaries.turn"].count == 1


async def test_tokens_that_nobody_reports_are_estimated() -> None:
    """At four characters each."""
    summarizer, llm = a_summarizer(Says(GOOD, usage=None), info=PRICED)
    await summarizer.summarize_turn(TURN)
    sent = sum(m.char_count for m in llm.requests[0].messages)
    spent = summarizer.usage.spent("s")
    assert (spent.input_tokens, spent.output_tokens) == (-(-sent // 4), -(-len(GOOD) // 4))
    assert spent.cost_usd > 0


async def test_past_the_number_of_calls_the_turns_speak() -> None:
    """Per session; what an earlier process spent counts."""
    config = SummariesConfig(max_calls_per_session=3)
    llm = ScriptedLLM([Says(GOOD)] * 2, info=PRICED)
    usage = UsageLog()
    for session_id in ("s", "t"):
        usage.add(session_id, Spending(calls=2))
    summarizer = Summarizer(llm, config, usage=usage)
    assert summarizer.uses_model("s")
    made = [await summarizer.summarize_turn(TURN) for _ in range(3)]
    assert [m.extractive for m in made] == [False, True, True]
    assert not summarizer.uses_model("s")
    other = msgspec.structs.replace(TURN, session_id="t")
    assert not (await summarizer.summarize_turn(other)).extractive
    assert llm.left == 0


@pytest.mark.parametrize("config", [{"max_calls_per_session": 0}, {"max_cost_usd_per_session": 0}])
async def test_nought_means_no_calls(config: dict[str, int]) -> None:
    """The switch by which no model is paid for summaries."""
    summarizer, llm = a_summarizer(config=msgspec.convert(config, SummariesConfig), info=PRICED)
    assert (await summarizer.summarize_turn(TURN)).extractive
    assert llm.requests == []


async def test_a_model_of_ones_own_costs_nothing() -> None:
    """On the person's machine no limit holds; on an unknown server calls are counted."""
    config = SummariesConfig(max_calls_per_session=1, max_cost_usd_per_session=0.0)
    own, _ = a_summarizer(*[Says(GOOD)] * 3, config=config, info=ModelInfo(name="ollama/qwen3:8b"))
    for _ in range(3):
        assert not (await own.summarize_turn(TURN)).extractive
    assert (own.usage.spent("s").calls, own.usage.spent("s").cost_usd) == (3, 0.0)
    assert own.usage.spent("s").unpriced_calls == 0
    other, _ = a_summarizer(Says(GOOD), config=config, info=ModelInfo(name="openai/mine"))
    made = [await other.summarize_turn(TURN) for _ in range(2)]
    assert [m.extractive for m in made] == [False, True]
    assert other.usage.spent("s").unpriced_calls == 1


@pytest.mark.parametrize(("window", "asks"), [(1_200, False), (4_000, True), (None, True)])
async def test_a_very_small_model_is_not_asked(window: int | None, asks: bool) -> None:
    """Measured (see SMALLEST_WINDOW): its summaries are worse than the turn's own."""
    summarizer, llm = a_summarizer(Says(GOOD), info=ModelInfo(name="x/y", context_window=window))
    assert (await summarizer.summarize_turn(TURN)).extractive is not asks
    assert bool(llm.requests) is asks
    assert summarizer.uses_model("s") is asks


# --- over processes -----------------------------------------------------------------------


PRICEY = msgspec.structs.replace(PRICED, input_usd_per_token=1e-5, output_usd_per_token=1e-5)
USAGE = UsageChunk(input_tokens=600, output_tokens=100)


async def one_process(
    store: Store, llm: ScriptedLLM, config: SummariesConfig, folder: Path
) -> Summarizer:
    """Works until nothing is left to do; the next one knows no more than what is kept."""
    summarizer = Summarizer(llm, config, usage=UsageLog(folder), sleep=no_wait)
    assert await a_worker(store, summarizer=summarizer, config=config).drain()
    return summarizer


@pytest.mark.parametrize("answer", [Says("no JSON"), StreamCut("cut")])
async def test_a_model_that_fails_in_each_process(
    store: Store, tmp_path: Path, answer: Says | Exception
) -> None:
    """Calls that leave no summary count too; every turn has its summary all the same."""
    session_id = await a_session(store, 3)
    config = SummariesConfig(max_calls_per_session=8)
    llm = ScriptedLLM([answer], repeat=True)
    for _ in range(4):
        last = await one_process(store, llm, config, tmp_path)
    assert len(llm.requests) == last.usage.spent(session_id).calls == 8
    assert len(await store.summaries(session_id, level=1)) == 3


async def test_the_cost_is_that_of_all_processes(store: Store, tmp_path: Path) -> None:
    """A cent a session is a cent, however many processes spend it."""
    session_id = await a_session(store, 12, chars=60)
    another = await a_session(store, 1, chars=60, start_minute=100)
    config = SummariesConfig(max_cost_usd_per_session=0.03)
    asked = 0
    for _ in range(4):
        script = [*[Says(DIGEST.text, usage=USAGE)] * 2, ProviderUnavailable("gone")]
        llm = ScriptedLLM(script, info=PRICEY, repeat=True)
        last = await one_process(store, llm, config, tmp_path)
        asked += len(llm.requests)
    spent = last.usage.spent(session_id)
    assert 0.01 < spent.cost_usd <= 0.03
    assert spent.calls + last.usage.spent(another).calls == asked


async def test_a_day_may_cost_so_much_over_all_sessions(store: Store, tmp_path: Path) -> None:
    """A hundred imported sessions, each within its own limit, add up."""
    sessions = [await a_session(store, 2, chars=60, start_minute=100 * n) for n in range(5)]
    config = SummariesConfig(max_cost_usd_per_day=0.03)
    llm = ScriptedLLM([Says(DIGEST.text, usage=USAGE)], info=PRICEY, repeat=True)
    for _ in range(3):
        last = await one_process(store, llm, config, tmp_path)
    assert 0.01 < sum(last.usage.spent(each).cost_usd for each in sessions) <= 0.03
    made = [s for each in sessions for s in await store.summaries(each, level=1)]
    assert len(made) == 10
    assert {s.extractive for s in made} == {True, False}


@pytest.mark.parametrize(
    ("info", "said"), [(PRICEY, 1), (ModelInfo(name="ollama/mine", context_window=8_000), 0)]
)
async def test_that_a_day_is_spent_is_said_once(info: ModelInfo, said: int) -> None:
    """When the first summary is cut for it; a free model knows no limit."""
    told: list[str] = []
    config = SummariesConfig(max_cost_usd_per_day=0.0)
    summarizer, llm = a_summarizer(*[Says(GOOD)] * 2, config=config, info=info, say=told.append)
    for turn in (a_turn(1), a_turn(2)):
        await summarizer.summarize_turn(turn)
    assert (len(told), len(llm.requests)) == (said, 2 - 2 * said)
    assert all("max_cost_usd_per_day" in text for text in told)


async def test_a_key_at_the_cut_of_a_problem_leaves_no_part(store: Store) -> None:
    known = Attempts(item="a", session_id="s", model="m", count=0, not_before=utc_now())
    tries = Tries(kept=store, known=known, pause_s=0.0, clock=utc_now, sleep=no_wait)
    await tries.refused(f"{'x' * (PROBLEM_CHARS - 21)} OPENAI_API_KEY=zQ9mT4vX7kL2wR8nB5cY1pD6")
    [kept] = await store.attempts("a")
    assert "zQ9" not in kept.problem
