"""The Python interface on a real store."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from ragmem import OpenMemory, open_memory


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a test's memory is; each call opens it once more."""

    url: str
    home: Path
    folder: Path
    """A project."""

    def open(self) -> AbstractAsyncContextManager[OpenMemory]:
        return open_memory(self.url, self.home)


@pytest.fixture
def spot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spot:
    """An empty memory. Work in the background is a test's own matter."""
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "off")
    monkeypatch.setenv("RAGMEM_MEMORY__EMBEDDINGS__IDLE_S", "0")
    # A busy machine is no outage, nor is its embedder away: it is the interface that is tested.
    monkeypatch.setenv("RAGMEM_STORE__TIMEOUT_S", "20")
    monkeypatch.setenv("RAGMEM_MEMORY__EMBEDDINGS__TIMEOUT_S", "60")
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    url = f"sqlite:///{tmp_path}/here/memory.db"
    return Spot(url=url, home=tmp_path / "home", folder=folder)


@pytest.fixture
async def memory(spot: Spot) -> AsyncIterator[OpenMemory]:
    """That memory, open."""
    async with spot.open() as opened:
        yield opened
