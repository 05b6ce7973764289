"""A real Neo4j for tests: one for the worker that needs it, or the one that is given.

No server, no skip: the tests that need one fail and say why.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

from ragmem.config import Config, find_paths
from ragmem.records import EmbedderMark
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.gateway import Gateway, Row, Transaction
from ragmem.store.neo4j_server import LocalNeo4j, start, start_stop_lock
from ragmem.store.neo4j_server.ways import Jars, Layout, Ports, find_java
from tests.fakes.forks import PATIENCE
from tests.store.samples import created, whole_turn

T = TypeVar("T")

PATIENCE_S = 30.0
"""Of stores whose patience is not what is tested: machines that run tests are busy."""
_PLANNING_S = 300.0
"""Of the first store on a server that has planned nothing: 20 of the processor's."""
ALSO_NEO4J = pytest.param("neo4j", marks=pytest.mark.campaign)
"""A parameter beside "sqlite" for tests that see only what the stores' contract promises."""
CACHE = Path(__file__).parents[2] / ".test-env" / "neo4j"
"""Keeps the server's jars between runs; ignored by git."""


@pytest.fixture(scope="session")
def neo4j_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A running server that the tests may empty."""
    if url := os.environ.get("RAGMEM_TEST_NEO4J_URI"):
        with asked(
            Connection(url, password=os.environ.get("RAGMEM_TEST_NEO4J_PASSWORD", ""))
        ) as it:
            yield it
        return
    paths = find_paths({"RAGMEM_HOME": str(tmp_path_factory.mktemp("neo4j"))}).make()
    layout = Steady(paths.neo4j_dir)
    layout.make()
    try:
        running = in_thread(_start(layout))
        with asked(Connection(running, password=layout.password())) as server:
            yield server
    finally:
        in_thread(LocalNeo4j(paths, Config(), os.environ).down())


class Steady(Layout):
    """One whose server keeps its plans, which take it longer to make than most tests.

    They outlive the emptying of the graph, and serve lists and texts of any size: otherwise one
    without items, with one and with ten had a plan each.
    """

    def write_settings(self, ports: Ports, more: Mapping[str, str] = MappingProxyType({})) -> None:
        own = {
            "dbms.cypher.min_replan_interval": "1h",
            "internal.cypher.use_parameter_size": "false",
            "server.http.enabled": "false",
            "db.memory.transaction.max": "256m",
        }
        super().write_settings(ports, {**more, **own})


async def _start(layout: Layout) -> str:
    await use_cached_jars(layout)
    running = await start(jars(), layout, os.environ, print)
    return running.url


def jars() -> Jars:
    """The way in which tests run a server: it makes more plans than there were room for."""
    java = find_java(os.environ)
    if java is None:
        pytest.fail("Tests of the graph store need Java 17 and Maven, or RAGMEM_TEST_NEO4J_URI.")
    return Jars(java, {**os.environ, "JDK_JAVA_OPTIONS": "-XX:ReservedCodeCacheSize=256m"})


async def use_cached_jars(layout: Layout) -> None:
    """Give a new folder the jars that were fetched before, or fetch them for the next time too."""
    cache = Layout(CACHE)
    cache.make()
    way = jars()
    async with start_stop_lock(cache, print):
        await way.prepare(cache, print)
    name = f"server-{way.version}"
    (layout.folder / name).symlink_to(cache.folder / name, target_is_directory=True)


_EMPTY = "MATCH (n) WHERE NOT n:RagmemSchema OR $mark IS NULL DETACH DELETE n"
_MARK_ANEW = """
MATCH (v:RagmemSchema)
WHERE $mark IS NOT NULL
WITH collect(v) AS marks
FOREACH (v IN marks[..1] | SET v = $mark, v.storeId = randomUUID())
FOREACH (v IN marks[1..] | DETACH DELETE v)
"""
_marks: dict[str, Row] = {}
"""What a new store writes of itself on each server, so that it need not be made each time."""


async def empty_neo4j(server: Connection) -> None:
    """Leave nothing on the server but what a store has that was just made."""
    if server.url not in _marks:
        await ask(server, _EMPTY, mark=None)
        await _make(server)
    await ask(server, _EMPTY, _MARK_ANEW, mark=_marks[server.url])


async def _make(server: Connection) -> None:
    """A store whose statements the server has planned, with all the time that this takes.

    The vector indexes are those of most tests: to make them anew costs the server its plans.
    """
    await (await Neo4jStore.open(server, timeout_s=_PLANNING_S)).aclose()
    # Who opens it again finds it whole, and says so.
    store = await Neo4jStore.open(server, timeout_s=_PLANNING_S)
    [made] = await ask(server, "MATCH (v:RagmemSchema) RETURN properties(v) AS mark")
    _marks[server.url] = made["mark"]
    await store.use_embedder(EmbedderMark("model-a", 4))
    await store.apply([created("s"), *whole_turn("s", "t")])
    await store.check()
    await store.aclose()


async def open_empty_neo4j_store(server: Connection, *, brief: bool = True) -> Neo4jStore:
    """A store on the server, emptied first; one that is not `brief` looks for all of its schema."""
    await empty_neo4j(server)
    return await Neo4jStore.open(server, timeout_s=PATIENCE_S, brief=brief)


# --- past the store -------------------------------------------------------------------


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Runs beside those of all tests: what asks the server needs not connect in each of them."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    return loop


@cache
def _gateway(server: Connection) -> Gateway:
    return Gateway(server, timeout_s=PATIENCE_S)


@contextmanager
def asked(server: Connection) -> Iterator[Connection]:
    """The server, whose connections are closed afterwards."""
    yield server
    asyncio.run_coroutine_threadsafe(_gateway(server).aclose(), _loop()).result()
    _gateway.cache_clear()


async def _beside(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


async def ask(server: Connection, *statements: str, **parameters: Any) -> list[Row]:
    """Rows of the last of these statements, past the store, in one transaction."""

    async def run(tx: Transaction) -> list[Row]:
        rows: list[Row] = []
        for statement in statements:
            rows = await tx.run(statement, **parameters)
        return rows

    return await _beside(_gateway(server).write(run))


async def one(server: Connection, statement: str, **parameters: Any) -> Row:
    [row] = await ask(server, statement, **parameters)
    return row


async def plan_of(server: Connection, statement: str, **given: Any) -> list[tuple[str, str]]:
    """Its steps as the server plans them: what each does, and with what."""
    driver = _gateway(server)._driver
    _, summary, _ = await _beside(driver.execute_query(f"EXPLAIN {statement}", **given))
    steps, waiting = [], [summary.plan]
    while waiting:
        step = waiting.pop()
        details = step.get("args", {}).get("Details", "")
        steps.append((step["operatorType"].partition("@")[0], details))
        waiting += step.get("children", [])
    return steps


def neo4j_env(server: Connection) -> dict[str, str]:
    """What names the server, emptied, to a process that has patience with a busy machine."""

    in_thread(empty_neo4j(server))
    return {
        "RAGMEM_STORE": "neo4j",
        "RAGMEM_STORE__TIMEOUT_S": "30",
        PATIENCE: "30",
        "NEO4J_URI": server.url,
        "NEO4J_USERNAME": server.username,
        "NEO4J_PASSWORD": server.password,
    }


def store_env(request: pytest.FixtureRequest, kind: str) -> dict[str, str]:
    """What names an empty store of this kind to a process."""
    if kind == "neo4j":
        return neo4j_env(request.getfixturevalue("neo4j_server"))
    return {"RAGMEM_STORE": kind}


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, also where a loop runs already: session fixtures are made inside tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
