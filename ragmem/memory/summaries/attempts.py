"""The tries of one question to a model, counted with what it is about over all processes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from ragmem.records import Attempts, utc_now
from ragmem.redact import redact
from ragmem.text import counted, one_line

TRIES = 3
PROBLEM_CHARS = 200
PAUSES = (1, 3, 0)
"""After each answer that could not be used, until any process asks about the item again: each so
many times as long as the settings' first."""
_KINDS = {
    "summary": "summary",
    "thread": "session summary",
    "title": "title",
    "memories": "fact extraction",
    "judge": "fact comparison",
    "insight": "insight",
}
"""What an item is, by how its name begins."""

Sleep = Callable[[float], Awaitable[object]]


class Kept(Protocol):
    """Where attempts are kept: the store."""

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Those of an item, by all processes."""
        ...

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Keep these in place of what was known of their item."""
        ...

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Forget those of an item."""
        ...


def given_up_text(found: Sequence[Attempts]) -> str:
    """What a model was asked often enough about; the latest last."""
    kinds = Counter(_KINDS.get(each.item.partition(":")[0], "item") for each in found)
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
        kept: Kept | None,
        *,
        item: str,
        session_id: str,
        model: str,
        pause_s: float,
        clock: Callable[[], datetime] = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._kept = kept
        self._item = item
        self._session_id = session_id
        self._model = model
        self._pauses = [timedelta(seconds=each * pause_s) for each in PAUSES]
        self._clock = clock
        self._sleep = sleep
        self._is_known = False
        self._refused = 0
        self._not_before: datetime | None = None
        self._made = 0
        self.problem = ""
        """What was wrong with the last answer."""

    @property
    def is_kept(self) -> bool:
        """Whether other processes count them too."""
        return self._kept is not None

    @property
    def are_over(self) -> bool:
        """Whether it is not asked again."""
        return self._made >= TRIES

    async def begin(self) -> None:
        """Take up what other processes have tried with this model, and what is left of a pause."""
        for known in await self._kept.attempts(self._item) if self._kept else ():
            self._is_known = True
            if known.model == self._model:
                self._made = self._refused = known.count
                self.problem, self._not_before = known.problem, known.not_before
        if not self.are_over:
            await self.pause()

    @property
    def made(self) -> int:
        """How many there were, by this process and others."""
        return self._made

    def unheard(self) -> None:
        """No answer came, which is no fault of the item: others do not count it."""
        self._made += 1

    def give_up(self) -> None:
        """Say that the next try could come to nothing either."""
        self._made = TRIES

    async def refused(self, problem: str) -> None:
        """An answer came that could not be used."""
        self._made += 1
        self._refused += 1
        if self._kept:
            self._is_known = True
            self._not_before = self._clock() + self._pauses[self._refused - 1]
            await self._kept.keep_attempts(
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
        if self._kept and self._is_known:
            await self._kept.forget_attempts(self._session_id, self._item)

    async def pause(self) -> None:
        """Let pass what is left of a pause: never more than the longest, whatever a clock says."""
        if self._not_before is not None:
            left = min(self._not_before - self._clock(), max(self._pauses))
            if left > timedelta():
                await self._sleep(left.total_seconds())
