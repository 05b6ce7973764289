"""What holds for every test of facts."""

import pytest

from ragmem.memory.facts.facts import Facts
from ragmem.store import Store

from .knowing import Clock, facts_of


@pytest.fixture(autouse=True)
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine too: who has waited for long goes on without its turn."""
    monkeypatch.setattr("ragmem.memory.facts.facts._PATIENCE_S", 60.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def facts(store: Store, clock: Clock) -> Facts:
    """What one process knows, without an embedder."""
    return facts_of(store, clock=clock)
