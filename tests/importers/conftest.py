"""Stores that sessions are imported into."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragmem.store import Archive
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.neo4j import ALSO_NEO4J, open_empty_neo4j_store


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Archive]:
    """An empty SQLite store."""
    home = tmp_path / "home"
    store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
    yield store
    await store.aclose()


@pytest.fixture(params=["sqlite", ALSO_NEO4J])
async def archive(request: pytest.FixtureRequest, small: Archive) -> AsyncIterator[Archive]:
    """An empty store of either kind."""
    if request.param == "sqlite":
        yield small
        return
    store = await open_empty_neo4j_store(request.getfixturevalue("neo4j_server"))
    yield store
    await store.aclose()
