"""Prompts that were typed while Claude Code worked, as its log of the queue tells them."""

from collections import deque
from datetime import datetime

import msgspec


class Queued(msgspec.Struct, frozen=True):
    """A prompt that waits, or waited."""

    words: str
    key: str
    at: datetime


class Queue:
    """What was typed, until a record of its own tells it.

    Such a record comes before the next answer, or never: then these are the only words of it.
    What still waits at the end of the file may be told in what the file gets yet.
    """

    def __init__(self) -> None:
        self._waiting: deque[Queued] = deque()
        self._taken: list[Queued] = []
        self._told_early = 0
        """Records that came before the log says that their prompts were taken."""
        self._told_late: list[str] = []

    def put(self, prompt: Queued) -> None:
        """It was typed."""
        self._waiting.append(prompt)

    def take(self) -> None:
        """The first that waits goes to the model."""
        if self._told_early:
            self._told_early -= 1
        elif self._waiting:
            self._taken.append(self._waiting.popleft())

    def give_back(self) -> None:
        """All that waits is a draft again: it was not sent."""
        self._waiting.clear()

    def is_told(self, words: str) -> bool:
        """A record has these words; true when they are a turn already."""
        if words in self._told_late:
            self._told_late.remove(words)
            return True
        for queue, is_early in ((self._taken, False), (self._waiting, True)):
            for prompt in queue:
                if prompt.words == words:
                    queue.remove(prompt)
                    self._told_early += is_early
                    return False
        return False

    def overdue(self) -> list[Queued]:
        """What the model now answers to, and no record has told."""
        found, self._taken = self._taken, []
        self._told_late += [prompt.words for prompt in found]
        return found
