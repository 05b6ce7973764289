"""Summaries as a program asks for them: made, checked and stored."""

import asyncio
from collections.abc import Callable

import msgspec

from ragmem.background import summary_model
from ragmem.errors import StoreUnavailable, UsageError
from ragmem.ids import new_id
from ragmem.interface import shapes
from ragmem.interface.values import Parts
from ragmem.llm.base import LLM
from ragmem.memory.leases import leased
from ragmem.memory.recording import kept, redacted
from ragmem.memory.summaries import summary_id
from ragmem.memory.summaries.plan import to_roll_up
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.records import AddSummary, Summary, Turn, utc_now

_LEASE_S = 60.0
_AGAIN_S = 0.2


class Digests:
    """The summariser of one open memory, made when it is first needed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._owner_id = new_id()
        self._llm: LLM | None = None
        self._made: Summarizer | None = None

    @property
    def _summarizer(self) -> Summarizer:
        if self._made is None:
            parts = self._parts
            named = parts.config.model.summary or parts.config.model.main
            # A key alone names no model.
            self._llm = summary_model(parts.config, parts.paths) if named else None
            self._made = Summarizer(
                self._llm,
                parts.config.memory.summaries,
                usage=parts.usage,
                open_attempts=parts.open_store,
            )
        return self._made

    @property
    def by_model(self) -> Summarizer | None:
        """For work that nobody asked for: None where no model is named."""
        made = self._summarizer
        return made if self._llm is not None else None

    async def of_turn(self, turn: Turn, locate: Callable[[str], str]) -> Summary:
        """The level 1 summary of a turn, not stored."""
        if turn.status != "completed":
            raise UsageError(f"The turn {turn.turn_id} is {turn.status}: only complete ones are.")
        return await self._summarizer.summarize_turn(turn, locate=locate)

    async def roll_up(self, session_id: str, level: int) -> Summary:
        """One of the next level over all that wait, stored; no two processes at once."""
        store = await self._parts.open_store()
        key = f"roll_up:{session_id}"
        while True:
            async with leased(store, [key], self._owner_id, seconds=_LEASE_S) as mine:
                if mine:
                    waiting = await to_roll_up(store, session_id, level) if level >= 1 else []
                    if not waiting:
                        raise UsageError(f"No summary of level {level} waits to be summed up.")
                    made = await self._summarizer.summarize_summaries(session_id, waiting)
                    return await self.store(made)
            await asyncio.sleep(_AGAIN_S)

    async def checked(
        self, session_id: str, summary: Summary | str, level: int | None, covers: tuple[str, ...]
    ) -> Summary:
        """A whole summary of what a program gives; UsageError for one that hangs in the air."""
        if isinstance(summary, str):
            bare = Summary(
                summary_id="",
                session_id=session_id,
                text=shapes.text(summary, "summary"),
                level=1 if level is None else level,
                turn_count=0,
                created_at=utc_now(),
                covers=covers,
            )
        elif isinstance(summary, Summary):
            bare = msgspec.structs.replace(
                summary,
                level=summary.level if level is None else level,
                covers=covers or summary.covers,
            )
        else:
            raise UsageError(f"A summary is a text or a Summary, not a {type(summary).__name__}.")
        count = await self._count_turns(bare)
        same = isinstance(summary, Summary) and (
            (bare.session_id, bare.level, bare.covers)
            == (session_id, summary.level, summary.covers)
        )
        return msgspec.structs.replace(
            bare,
            session_id=session_id,
            turn_count=count,
            summary_id=bare.summary_id if same else summary_id(session_id, bare.level, bare.covers),
        )

    async def store(self, summary: Summary) -> Summary:
        """Write it, without secrets; what is stored."""
        write = AddSummary(summary=summary)
        applied = await self._parts.memory.record([write])
        if applied is None or not kept(applied):
            raise StoreUnavailable("The memory is away: the summary is not stored.")
        clean = redacted(write)
        assert isinstance(clean, AddSummary)
        return clean.summary

    async def aclose(self) -> None:
        """Close the model."""
        if self._llm:
            await self._llm.aclose()

    async def _count_turns(self, summary: Summary) -> int:
        """Turns behind it; UsageError where something that it covers is not there."""
        if not isinstance(summary.level, int) or summary.level < 1:
            raise UsageError(f"A summary has a level of 1 or more, not {summary.level!r}.")
        if not summary.covers:
            raise UsageError(
                "A summary covers something.",
                hint="Give parent_ids: of turns for level 1, else of summaries of the level below.",
            )
        store = await self._parts.open_store()
        if summary.level == 1:
            counts = {turn.turn_id: 1 for turn in await store.turns_by_id(summary.covers)}
            what = "turn"
        else:
            below = await store.summaries_by_id(summary.covers)
            counts = {s.summary_id: s.turn_count for s in below if s.level == summary.level - 1}
            what = f"summary of level {summary.level - 1}"
        if missing := [each for each in summary.covers if each not in counts]:
            raise UsageError(f"There is no {what} {missing[0]}.")
        return sum(counts.values())
