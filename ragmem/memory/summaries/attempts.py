"""The tries of one question to a model, counted with what it is about over all processes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from ragmem.records import Attempts, utc_now
from ragmem.redact import redact
from ragmem.store.base import Store
from ragmem.text import counted, one_line

TRIES = 3
PROBLEM_CHARS = 200
PAUSES = (1, 3, 0)
"""After each answer that could not be used, until any process asks about the item again: each so
many times as long as the settings' first."""
_KINDS = {
    "thread": "session summary",
    "memories": "fact extraction",
    "judge": "fact comparison",
}
"""What an item is called whose name does not begin with that."""

Sleep = Callable[[float], Awaitable[object]]


def given_up_text(found: Sequence[Attempts]) -> str:
    """What a model was asked often enough about; the latest last."""
    begins = (each.item.partition(":")[0] for each in found)
    kinds = Counter(_KINDS.get(begin, begin) for begin in begins)
    counts = ", ".join(counted(count, kind) for kind, count in kinds.most_common())
    last = found[-1]
    return (
        f"Not asked about again, after {TRIES} answers that could not be used: {counts}. The last "
        f"of {one_line(last.model, PROBLEM_CHARS)}: {one_line(last.problem, PROBLEM_CHARS)}"
    )


class Tries:
    """Those of one question. Where they are not kept, no other process counts them."""

    def __init__(
        self,
        kept: Store | None,
        *,
        item: str,
        session_id: str,
        model: str,
        pause_s: float,
        clock: Callable[[], datetime] = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.kept = kept
        """Where other processes count them too."""
        self._item = item
        self._session_id = session_id
        self._model = model
        self._pauses = [timedelta(seconds=each * pause_s) for each in PAUSES]
        self._clock = clock
        self._sleep = sleep
        self._is_known = False
        self._refused = 0
        self._not_before: datetime | None = None
        self.made = 0
        """How many there were, by this process and others."""
        self.problem = ""
        """What was wrong with the last answer."""

    @property
    def are_over(self) -> bool:
        """Whether it is not asked again."""
        return self.made >= TRIES

    async def begin(self) -> None:
        """Take up what other processes have tried with this model, and what is left of a pause."""
        for known in await self.kept.attempts(self._item) if self.kept else ():
            self._is_known = True
            if known.model == self._model:
                self.made = self._refused = known.count
                self.problem, self._not_before = known.problem, known.not_before
        if not self.are_over:
            await self.pause()

    def failed(self) -> None:
        """It was asked in vain, by no fault of the item: others do not count it."""
        self.made += 1

    def give_up(self) -> None:
        """This process asks no more."""
        self.made = TRIES

    async def refused(self, problem: str) -> None:
        """An answer came that could not be used."""
        self.made += 1
        self._refused += 1
        if self.kept:
            self._is_known = True
            self._not_before = self._clock() + self._pauses[self._refused - 1]
            await self.kept.keep_attempts(
                Attempts(
                    item=self._item,
                    session_id=self._session_id,
                    model=self._model,
                    count=self._refused,
                    not_before=self._not_before,
                    problem=redact(one_line(problem, PROBLEM_CHARS)),
                )
            )

    async def answered(self) -> None:
        """An answer was of use: what was refused before counts no more."""
        if self.kept and self._is_known:
            await self.kept.forget_attempts(self._session_id, self._item)

    async def pause(self) -> None:
        """Let pass what is left of a pause: never more than the longest, whatever a clock says."""
        if self._not_before is not None:
            left = min(self._not_before - self._clock(), max(self._pauses))
            if left > timedelta():
                await self._sleep(left.total_seconds())
