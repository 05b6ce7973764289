"""Engines of facts for tests, short to make."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ragmem.embedder import Embedder
from ragmem.ids import new_id
from ragmem.memory.facts import Draft, Remembered
from ragmem.memory.facts.facts import Facts
from ragmem.records import Evidence, MemoryQuery, MemoryRecord
from ragmem.store import Store
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
