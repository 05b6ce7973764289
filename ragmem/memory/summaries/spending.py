"""What background calls cost a session, and when it is enough."""

import msgspec

from ragmem.config import SummariesConfig
from ragmem.llm.base import ModelInfo, UsageChunk
from ragmem.llm.providers import BY_NAME
from ragmem.text import estimate_tokens

_EXPECTED_OUTPUT_TOKENS = 300


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Background calls made for one session's summaries, and what came of them."""

    calls: int = 0
    failed_calls: int = 0
    """Nothing came, or nothing that could be used."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    """Estimated where the provider reports no tokens."""
    unpriced_calls: int = 0
    """Of models whose price is not known: not in `cost_usd`."""
    summaries: int = 0
    extractive: int = 0
    """Of `summaries`: those that were cut from the turns."""
    problem: str = ""
    """Why the last failed call failed."""

    def __add__(self, other: "Spending") -> "Spending":
        """Both together; the other one's problem is the newer."""
        return Spending(
            calls=self.calls + other.calls,
            failed_calls=self.failed_calls + other.failed_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            summaries=self.summaries + other.summaries,
            extractive=self.extractive + other.extractive,
            problem=other.problem or self.problem,
        )


def is_free(info: ModelInfo) -> bool:
    """Whether the model costs nothing: it runs on the person's own machine."""
    prefix = info.name.partition("/")[0]
    provider = BY_NAME.get(prefix)
    return prefix == "local" or (provider is not None and provider.local)


def one_call(
    info: ModelInfo, sent_chars: int, said_chars: int, usage: UsageChunk, *, problem: str = ""
) -> Spending:
    """What a call cost, as reported or else estimated by characters."""
    into, out = usage.input_tokens, usage.output_tokens
    into = estimate_tokens(sent_chars) if into is None else into
    out = estimate_tokens(said_chars) if out is None else out
    cost = 0.0 if is_free(info) else info.cost_usd(into, out, usage.cached_tokens)
    return Spending(
        calls=1,
        failed_calls=1 if problem else 0,
        input_tokens=into,
        output_tokens=out,
        cost_usd=cost or 0.0,
        unpriced_calls=1 if cost is None else 0,
        problem=problem,
    )


def is_day_spent(
    today_usd: float, config: SummariesConfig, info: ModelInfo, sent_chars: int
) -> bool:
    """Whether one more call would be more than all sessions together may cost in a day."""
    if is_free(info):
        return False
    return today_usd + _expected(info, sent_chars) > config.max_cost_usd_per_day


def day_spent_text(config: SummariesConfig) -> str:
    """For the person."""
    return (
        f"Background work has cost today what it may (${config.max_cost_usd_per_day:,.2f}): until "
        "tomorrow summaries are cut from the turns, and no facts are looked for. "
        "memory.summaries.max_cost_usd_per_day sets it."
    )


def _expected(info: ModelInfo, sent_chars: int) -> float:
    return info.cost_usd(estimate_tokens(sent_chars), _EXPECTED_OUTPUT_TOKENS) or 0.0


def may_call(spent: Spending, config: SummariesConfig, info: ModelInfo, sent_chars: int) -> bool:
    """Whether one more call stays within the session's limits."""
    if is_free(info):
        return True
    expected = _expected(info, sent_chars)
    return (
        spent.calls < config.max_calls_per_session
        and spent.cost_usd + expected <= config.max_cost_usd_per_session
    )
