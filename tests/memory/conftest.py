"""Memory on a real store: SQLite, which stands for all that keep the contract of tests/store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragmem.store import Store
from tests.store.conftest import opens, store

from .working import Chat, a_memory

__all__ = ["open_store", "store"]

open_store = opens("sqlite")


@pytest.fixture
async def chat(store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    """Somebody who begins to work in an empty folder."""
    async with a_memory(store) as memory:
        begun = Chat(memory, store, tmp_path / "project")
        await begun.begin()
        yield begun
