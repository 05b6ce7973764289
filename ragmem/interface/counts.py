"""Section B's message counts over the context's budgets: they bound, and promise nothing."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from ragmem.config import MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context import Context, ContextBuilder, Material, Place
from ragmem.memory.window import Window
from ragmem.records import Turn


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """None is no bound beside the budgets. A turn is two messages, and never cut in two."""

    at_most: int | None = None
    """Messages of the recent window: when there are more, half of them go at once, so that
    the beginning of the request stays the same for a while and providers' caches hit."""
    recent_messages: int | None = None
    """Exactly the latest so many."""
    relevant_messages: int | None = None
    """Hits: at most 16 are looked for."""
    includes_summary: bool = True


class CountedBuilder(ContextBuilder):
    """A context builder within counts; what it showed last stands in `shown`."""

    def __init__(
        self, config: MemoryConfig, info: ModelInfo, counts: Counts, *, max_chars: int = 0
    ) -> None:
        super().__init__(config, info, max_chars=max_chars)
        self._settings = config
        self._counts = counts
        self.most_hits = counts.relevant_messages
        self.shown: tuple[Turn, ...] = ()

    def window(self, turns: Sequence[Turn]) -> Window:
        """The recent window within the counts."""
        return super().window(self._counted(turns))

    def build(
        self, prompt: str, material: Material, place: Place, *, tag: str, now: datetime, **rest: Any
    ) -> Context:
        """The request, of what the counts leave."""
        counts = self._counts
        material = msgspec.structs.replace(
            material,
            turns=tuple(self._counted(material.turns)),
            hits=material.hits if self.most_hits != 0 else (),
            thread_summary=material.thread_summary if counts.includes_summary else "",
        )
        self.shown = material.window.turns if self._native else material.turns
        return super().build(prompt, material, place, tag=tag, now=now, **rest)

    def smaller(self) -> "CountedBuilder":
        """One with half the room."""
        half = self.max_chars // 2
        smaller = CountedBuilder(self._settings, self._info, self._counts, max_chars=half)
        smaller.pinned_chars = self.pinned_chars
        return smaller

    def _counted(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        exact, most = self._counts.recent_messages, self._counts.at_most
        if exact is not None:
            count = _turn_count(exact)
            return turns[-count:] if count else ()
        if most is None or not turns:
            return turns
        count = max(1, most // 2)
        step = max(1, count // 2)
        over = turns[-1].turn_index - count
        first = -(-over // step) * step if over > 0 else 0
        return [turn for turn in turns if turn.turn_index > first]


def _turn_count(messages: int) -> int:
    return -(-messages // 2)
