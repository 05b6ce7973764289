"""What holds for every test of facts."""

import pytest


@pytest.fixture(autouse=True)
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine too: who has waited for long goes on without its turn."""
    monkeypatch.setattr("ragmem.memory.facts.facts._PATIENCE_S", 60.0)
