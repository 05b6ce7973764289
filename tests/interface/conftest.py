"""The Python interface on a real store."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from ragmem import OpenMemory, open_memory
from tests.fakes.neo4j import ALSO_NEO4J, empty_neo4j


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a test's memory is; each call opens it once more."""

    url: str | None
    home: Path
    folder: Path
    """A project."""

    def open(self) -> AbstractAsyncContextManager[OpenMemory]:
        return open_memory(self.url, self.home)


@pytest.fixture(params=["sqlite", ALSO_NEO4J])
async def spot(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Spot:
    """An empty memory. Work in the background is a test's own matter."""
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "off")
    monkeypatch.setenv("RAGMEM_MEMORY__EMBEDDINGS__IDLE_S", "0")
    # A busy machine is no outage, nor is its embedder away: it is the interface that is tested.
    monkeypatch.setenv("RAGMEM_STORE__TIMEOUT_S", "20")
    monkeypatch.setenv("RAGMEM_MEMORY__EMBEDDINGS__TIMEOUT_S", "60")
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    home = tmp_path / "home"
    if request.param == "sqlite":
        return Spot(url=f"sqlite:///{tmp_path}/here/memory.db", home=home, folder=folder)
    server = request.getfixturevalue("neo4j_server")
    await empty_neo4j(server)
    monkeypatch.setenv("NEO4J_USERNAME", server.username)
    monkeypatch.setenv("NEO4J_PASSWORD", server.password)
    return Spot(url=server.url, home=home, folder=folder)


@pytest.fixture
async def memory(spot: Spot) -> AsyncIterator[OpenMemory]:
    """That memory, open."""
    async with spot.open() as opened:
        yield opened
