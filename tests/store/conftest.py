"""Stores for the contract suite: each is real, and empty when a test starts."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ragmem.store import Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.spool import Patience, SpooledStore
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.neo4j import PATIENCE_S, empty_neo4j, in_thread, open_empty_neo4j_store
from tests.fakes.tcp_proxy import TcpProxy
from tests.store.opening import close_all, sqlite

OpenStore = Callable[[], Awaitable[Store]]

KINDS = ("sqlite", "neo4j", "spooled-sqlite", "spooled-neo4j")

# A busy machine must not make a write wait in the spool: here it is the store that is tested.
_BUSY_S = 30.0
_CALM = Patience(stall_s=60, read_s=60, left_s=60)


def mostly(kept: Sequence[object], every: Sequence[object]) -> list[object]:
    """All of them as parameters, tuples of several; those not among the kept are campaigns."""
    campaign = pytest.mark.campaign
    return [
        each
        if each in kept
        else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=campaign)
        for each in every
    ]


@cache
def _empty_home(folder: Path) -> Path:
    """A home in the folder, with a SQLite store in which nothing is.

    To copy it takes a tenth of making a store."""
    home = folder / "empty"

    async def make() -> None:
        await (await sqlite(home)).aclose()

    in_thread(make())
    return home


def made_once(fill: Callable[[Path], Coroutine[Any, Any, None]]) -> Any:
    """The fixture `kept`: a home that was filled, once for all tests of a module, to be copied."""

    @pytest.fixture(scope="module")
    def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
        home = tmp_path_factory.mktemp("kept") / "home"
        in_thread(fill(home))
        return home

    return kept


def opens(*usually: str) -> Any:
    """The fixture `open_store`, on these kinds of store; on the other ones under `--all`."""
    params = [
        kind if kind in usually else pytest.param(kind, marks=pytest.mark.campaign)
        for kind in KINDS
    ]

    @pytest.fixture(params=params)
    async def open_store(
        request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[OpenStore]:
        """Opens the store once more: each call is another handle on the same data."""
        async with _stores(request, tmp_path / "home") as open_one:
            yield open_one

    return open_store


@asynccontextmanager
async def _stores(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[OpenStore]:
    opened: list[Store] = []
    spooled, _, kind = request.param.rpartition("-")
    brief = _is_brief(request)

    async def sqlite() -> Store:
        return await SQLiteStore.open(
            home / "memory.db", locks_dir=home / "locks", timeout_s=_BUSY_S
        )

    async def neo4j() -> Store:
        return await Neo4jStore.open(server, timeout_s=PATIENCE_S, brief=brief)

    if kind == "neo4j":
        server = request.getfixturevalue("neo4j_server")
        await empty_neo4j(server)
    elif not home.exists():
        folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        shutil.copytree(_empty_home(folders.getbasetemp()), home)

    async def open_one() -> Store:
        open_kind = neo4j if kind == "neo4j" else sqlite
        if spooled:
            opened.append(SpooledStore(open_kind, home / "spool", patience=_CALM))
        else:
            opened.append(await open_kind())
        return opened[-1]

    try:
        yield open_one
    finally:
        for store in opened:
            await store.aclose()


open_store = opens("sqlite", "neo4j")


@pytest.fixture(autouse=True)
async def _closes_stores() -> AsyncIterator[None]:
    """Those of `opening`."""
    yield
    await close_all()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """An empty store."""
    return await open_store()


@pytest.fixture
async def proxy(neo4j_server: Connection) -> AsyncIterator[TcpProxy]:
    """Between a store and an empty database."""
    await empty_neo4j(neo4j_server)
    async with TcpProxy(neo4j_server.url) as proxy:
        yield proxy


def _is_brief(request: pytest.FixtureRequest) -> bool:
    """Whether no test before can have left a schema that lacks something."""
    return request.node.get_closest_marker("changes_schema") is None


@pytest.fixture
async def graph(
    neo4j_server: Connection, request: pytest.FixtureRequest
) -> AsyncIterator[Neo4jStore]:
    """An empty graph store."""
    store = await open_empty_neo4j_store(neo4j_server, brief=_is_brief(request))
    yield store
    await store.aclose()
