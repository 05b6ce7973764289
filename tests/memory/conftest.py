"""Memory on a real store: SQLite, which stands for all that keep the contract of tests/store."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragmem.store import Store
from ragmem.store.sqlite import SQLiteStore
from tests.store.conftest import opens, store

from .working import Chat, a_memory

__all__ = ["open_store", "store"]

open_store = opens("sqlite")


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in which nothing is."""
    home = tmp_path_factory.mktemp("empty")

    async def make() -> None:
        await (await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")).aclose()

    with ThreadPoolExecutor(1) as aside:
        aside.submit(asyncio.run, make()).result()
    return home


@pytest.fixture(autouse=True)
def begins_empty(request: pytest.FixtureRequest) -> None:
    """A store that a test opens need not be made from its first schema on: it is a copy."""
    if "open_store" in request.fixturenames and "neo4j" not in request.node.name:
        home = request.getfixturevalue("tmp_path") / "home"
        shutil.copytree(request.getfixturevalue("empty_home"), home)


@pytest.fixture
async def chat(store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    """Somebody who begins to work in an empty folder."""
    async with a_memory(store) as memory:
        begun = Chat(memory, store, tmp_path / "project")
        await begun.begin()
        yield begun
