"""The summariser: what it may cost."""

import msgspec
import pytest

from ragmem.config import SummariesConfig
from ragmem.llm.base import ModelInfo, UsageChunk
from ragmem.memory.summaries import Ledger, Spending, Summarizer
from ragmem.metrics import Metrics
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .summarizing import GOOD, TURN, a_summarizer

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
    metrics = Metrics()
    summarizer._metrics = metrics
    await summarizer.summarize_turn(TURN)
    spent = summarizer.spent("s")
    assert spent == Spending(
        calls=2,
        failed_calls=1,
        input_tokens=2_000,
        output_tokens=200,
        cost_usd=pytest.approx(0.0028),
        summaries=1,
        problem="it holds no JSON object",
    )
    assert summarizer.spent("another") == Spending()
    # How long it took is measured, too.
    assert len(metrics.timings_ms["summaries.turn"]) == 1


async def test_tokens_that_nobody_reports_are_estimated() -> None:
    """At four characters each."""
    summarizer, llm = a_summarizer(Says(GOOD, usage=None), info=PRICED)
    await summarizer.summarize_turn(TURN)
    sent = sum(m.char_count for m in llm.requests[0].messages)
    spent = summarizer.spent("s")
    assert (spent.input_tokens, spent.output_tokens) == (-(-sent // 4), -(-len(GOOD) // 4))
    assert spent.cost_usd > 0


async def test_past_the_number_of_calls_the_turns_speak() -> None:
    """Per session; what an earlier process spent counts."""
    config = SummariesConfig(max_calls_per_session=3)
    llm = ScriptedLLM([Says(GOOD)] * 2, info=PRICED)
    ledger = Ledger()
    for session_id in ("s", "t"):
        ledger.add(session_id, Spending(calls=2))
    summarizer = Summarizer(llm, config, ledger=ledger)
    assert summarizer.uses_model("s")
    made = [await summarizer.summarize_turn(TURN) for _ in range(3)]
    assert [m.extractive for m in made] == [False, True, True]
    assert not summarizer.uses_model("s")
    other = msgspec.structs.replace(TURN, session_id="t")
    assert not (await summarizer.summarize_turn(other)).extractive
    assert llm.left == 0
    assert (summarizer.spent("s").summaries, summarizer.spent("s").extractive) == (3, 2)


async def test_the_cost_is_never_passed() -> None:
    """A call that would pass it is not made."""
    usage = UsageChunk(input_tokens=1_000, output_tokens=300)
    config = SummariesConfig(max_cost_usd_per_session=0.01)
    summarizer, llm = a_summarizer(*[Says(GOOD, usage=usage)] * 20, config=config, info=PRICED)
    for _ in range(20):
        await summarizer.summarize_turn(TURN)
    assert 0.006 < summarizer.spent("s").cost_usd <= 0.01
    assert 0 < llm.left < 20


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
    assert (own.spent("s").calls, own.spent("s").cost_usd) == (3, 0.0)
    assert own.spent("s").unpriced_calls == 0
    other, _ = a_summarizer(Says(GOOD), config=config, info=ModelInfo(name="openai/mine"))
    made = [await other.summarize_turn(TURN) for _ in range(2)]
    assert [m.extractive for m in made] == [False, True]
    assert other.spent("s").unpriced_calls == 1


@pytest.mark.parametrize(("window", "asks"), [(1_200, False), (4_000, True), (None, True)])
async def test_a_very_small_model_is_not_asked(window: int | None, asks: bool) -> None:
    """Measured (test_summaries_local.py): its summaries are worse than the turn's own."""
    summarizer, llm = a_summarizer(Says(GOOD), info=ModelInfo(name="x/y", context_window=window))
    assert (await summarizer.summarize_turn(TURN)).extractive is not asks
    assert bool(llm.requests) is asks
    assert summarizer.uses_model("s") is asks
