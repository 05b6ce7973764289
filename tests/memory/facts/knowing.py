"""Engines of facts for tests, short to make."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ragmem.embedder import Embedder, Kind
from ragmem.ids import new_id
from ragmem.memory.facts import Draft, Remembered
from ragmem.memory.facts.facts import Facts
from ragmem.records import Evidence, MemoryQuery, MemoryRecord
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.memory.working import opening

NOW = datetime(2026, 1, 14, 9, 30, tzinfo=UTC)
"""A Wednesday."""
HERE = "project-garden"
EVERYTHING = MemoryQuery(everywhere=True)


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Forward."""
        self.now += timedelta(**by)


class Alike(HashEmbedder):
    """An embedder of few texts: the cosine of any two is as told."""

    def __init__(self, cosine: float) -> None:
        super().__init__()
        self._cosine = cosine
        self._known: dict[str, int] = {}

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        """What all have in common, and what each has for itself."""
        rows = np.zeros((len(texts), self.info.dimension), dtype=np.float32)
        rows[:, 0] = np.sqrt(self._cosine)
        for row, text in zip(rows, texts, strict=True):
            row[self._known.setdefault(text, len(self._known) + 1)] = np.sqrt(1 - self._cosine)
        return rows


def facts_of(
    store: Store,
    *,
    embedder: Embedder | None = None,
    clock: Callable[[], datetime] | None = None,
    owner_id: str = "",
) -> Facts:
    """What one process has."""
    owner_id = owner_id or new_id()
    return Facts(opening(store), owner_id, embedder=embedder, clock=clock or Clock())


async def told(facts: Facts, content: str, *subjects: str, **more: object) -> Remembered:
    """What becomes of something that the person said in the garden project."""
    draft = Draft(content=content, subjects=subjects, **more)  # type: ignore[arg-type]
    return await facts.remember(draft, HERE)


async def kept(store: Store, query: MemoryQuery = EVERYTHING) -> list[str]:
    """What is current, oldest first."""
    return [memory.content for memory in reversed(await store.memories(query))]


def put(remembered: Remembered) -> MemoryRecord:
    """The memory of one that was kept."""
    assert remembered.memory is not None, remembered.note
    return remembered.memory


def evidence(quote: str = "", **more: object) -> Evidence:
    """From some turn."""
    fields: dict[str, object] = {"turn_id": "t-1", "session_id": "s-1", "turn_index": 1, "at": NOW}
    return Evidence(quote=quote, **fields | more)  # type: ignore[arg-type]
