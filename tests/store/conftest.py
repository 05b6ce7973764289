"""Stores for the contract suite: each is real, and empty when a test starts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ragmem.store.base import Store
from ragmem.store.sqlite import SQLiteStore

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "neo4j"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens the store once more: each call is another handle on the same data."""
    opened: list[Store] = []

    async def sqlite() -> Store:
        home = tmp_path / "home"
        return await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")

    async def neo4j() -> Store:
        from ragmem.store.neo4j import Neo4jStore
        from tests.fakes.neo4j import open_empty_neo4j_store

        if not opened:
            return await open_empty_neo4j_store(server)
        return await Neo4jStore.open(server)

    server = request.getfixturevalue("neo4j_server") if request.param == "neo4j" else None

    async def open_one() -> Store:
        opened.append(await (neo4j() if request.param == "neo4j" else sqlite()))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.aclose()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """An empty store."""
    return await open_store()
