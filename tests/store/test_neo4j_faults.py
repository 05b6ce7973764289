"""The graph store when its server is away, silent, or refuses; when connections break."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest

from ragmem.config import find_paths
from ragmem.deletion import delete_session
from ragmem.errors import SessionNotFound, StoreError, StoreRefused, StoreUnavailable
from ragmem.ids import new_id
from ragmem.records import Write
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.gateway import Gateway, Transaction
from tests.fakes.neo4j import PATIENCE_S, ask, empty_neo4j
from tests.fakes.tcp_proxy import TcpProxy
from tests.store.haste import hurried
from tests.store.samples import begun, called, created, finished, summed, whole_turn

SECRET = "correct-horse-battery"
# The driver leaves the socket of an attempt that a timeout has cut off to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)

SHORT_S = 3.0
"""Patience with a server that does not answer."""


@pytest.fixture
async def store(neo4j_server: Connection, proxy: TcpProxy) -> AsyncIterator[Neo4jStore]:
    """A store that reaches its server through the proxy."""
    store = await Neo4jStore.open(through(neo4j_server, proxy), timeout_s=PATIENCE_S)
    yield store
    await store.aclose()


def through(server: Connection, proxy: TcpProxy) -> Connection:
    """The same server, by way of the proxy."""
    return msgspec.structs.replace(server, url=proxy.url)


async def refused(
    connection: Connection, kind: type[StoreError], timeout_s: float = 2.0
) -> StoreError:
    """The error of an opening that fails in time, says what to do, and hides the password."""
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        await Neo4jStore.open(connection, timeout_s=timeout_s)
    assert time.monotonic() - began < timeout_s + 20
    assert caught.value.hint
    assert SECRET not in str(caught.value) + caught.value.hint
    assert caught.value.__cause__ is None
    return caught.value


# --- at the start ---------------------------------------------------


async def test_nothing_listens() -> None:
    """Down at start is said at once, not after the timeout."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"bolt://127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        error = await refused(Connection(url, password=SECRET), StoreUnavailable, timeout_s=60)
    assert time.monotonic() - began < 20
    assert url in str(error)
    assert "ragmem neo4j up" in error.hint


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[Connection]:
    """Something that accepts connections and is no Neo4j."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await answer(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Connection(f"bolt://127.0.0.1:{port}", password=SECRET)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.05)


async def swallow(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Take everything, answer nothing."""
    while await reader.read(4096):
        continue


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close at once."""
    writer.close()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a web server does that does not understand."""
    await reader.read(20)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(swallow, StoreUnavailable), (hang_up, StoreUnavailable), (web, StoreError)],
)
async def test_what_listens_is_no_neo4j(answer: Answer, kind: type[StoreError]) -> None:
    """Silent, hanging up, or speaking another protocol: said in time."""
    async with listening(answer) as connection:
        await refused(connection, kind, timeout_s=1.5)


@pytest.mark.parametrize(
    ("wrong", "said", "hint"),
    [
        ({"username": "nobody", "password": SECRET}, "", "NEO4J_PASSWORD"),
        ({"is_local": True, "password": SECRET}, "", "`neo4j/password` of ragmem's data folder"),
        ({"database": "garden"}, "garden", "NEO4J_DATABASE"),
        ({"database": "system"}, "can't store data", "NEO4J_DATABASE"),
    ],
    ids=["password", "that of the local one", "database", "the system's own"],
)
async def test_what_is_wrong_is_refused_with_what_to_set(
    neo4j_server: Connection, wrong: dict[str, str], said: str, hint: str
) -> None:
    connection = msgspec.structs.replace(neo4j_server, **wrong)
    error = await refused(connection, StoreRefused, timeout_s=PATIENCE_S)
    assert said in str(error)
    assert hint in error.hint


# --- in the middle ----------------------------------------------


STEPS: list[Write] = [
    created("s"),
    begun("s", "t"),
    called("s", "t", 0, "a.py", "b.py"),
    finished("s", "t"),
    summed("s", "t"),
]


async def test_a_server_that_comes_and_goes(store: Neo4jStore, proxy: TcpProxy) -> None:
    """Five flaps; each call rides over one or fails clearly, and can be repeated."""
    await store.apply([created("s")])
    for number in range(5):
        port = await proxy.stop_listening()
        writing = asyncio.create_task(store.apply([begun("s", f"t{number}")]))
        await asyncio.sleep(0.2)
        await proxy.listen(port)
        await writing
    assert [turn.turn_index for turn in await store.turns("s")] == list(range(1, 6))


async def test_a_server_that_stays_away(neo4j_server: Connection, proxy: TcpProxy) -> None:
    """Every call says so in time, and works again once it is back."""
    store = await Neo4jStore.open(through(neo4j_server, proxy), timeout_s=PATIENCE_S)
    await store.apply(STEPS)
    port = await proxy.stop_listening()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.apply([begun("s", "late")]),
        lambda: store.session("s"),
        lambda: store.turns("s"),
        store.projects,
        store.info,
        lambda: store.attach("s", "me"),
        lambda: store.heartbeat("me"),
    ]
    began = time.monotonic()
    with hurried(store, SHORT_S):
        said = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    assert time.monotonic() - began < SHORT_S + 20
    for each in said:
        assert isinstance(each, StoreUnavailable)
        assert each.hint
    await proxy.listen(port)
    applied = await store.apply([begun("s", "late")])
    assert applied.turn_indexes == {"late": 2}
    await store.aclose()


async def test_a_server_that_falls_silent(neo4j_server: Connection, proxy: TcpProxy) -> None:
    """No answer is an error within the timeout; the loop stays free."""
    store = await Neo4jStore.open(through(neo4j_server, proxy), timeout_s=PATIENCE_S)
    await store.apply([created("s")])
    proxy.silent = True
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    with (
        pytest.raises(StoreUnavailable, match="did not answer within 3 s"),
        hurried(store, SHORT_S),
    ):
        await store.apply([begun("s", "t")])
    assert time.monotonic() - began < SHORT_S + 20
    assert ticks > 5
    ticking.cancel()
    proxy.silent = False
    assert (await store.apply([begun("s", "t")])).turn_indexes == {"t": 1}
    await store.aclose()


async def test_a_timeout_during_which_the_driver_asks_for_one_more_cancellation(
    neo4j_server: Connection,
) -> None:
    """It does so where one comes while it can't stop, and the second is nobody's own."""

    async def work(_: Transaction) -> None:
        task = asyncio.current_task()
        assert task
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            task.cancel()
            raise

    gateway = Gateway(neo4j_server, timeout_s=0.5)
    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.5 s"):
        await gateway.read(work)
    await asyncio.sleep(0)
    await gateway.aclose()


async def test_closing_when_the_server_is_silent(neo4j_server: Connection, proxy: TcpProxy) -> None:
    """Closing never waits for a dead server, and twice is once."""
    store = await Neo4jStore.open(through(neo4j_server, proxy), timeout_s=PATIENCE_S)
    proxy.silent = True
    began = time.monotonic()
    await store.aclose()
    await store.aclose()
    assert time.monotonic() - began < 20


async def test_idle_connections_that_a_firewall_dropped(store: Neo4jStore, proxy: TcpProxy) -> None:
    """Broken while idle, replaced when used."""
    await store.apply([created("s")])
    for number in range(3):
        await proxy.drop_all()
        applied = await store.apply([begun("s", f"t{number}")])
        assert applied.turn_indexes == {f"t{number}": number + 1}
        await proxy.drop_all()
        assert len(await store.turns("s")) == number + 1


async def test_cancelling_a_call_leaves_the_store_usable(
    store: Neo4jStore, proxy: TcpProxy
) -> None:
    """Ctrl-C in the middle of a write ends it at once; the next call works."""
    await store.apply([created("s")])
    for number in range(10):
        writing = asyncio.create_task(store.apply([begun("s", f"t{number}")]))
        await asyncio.sleep(0.001 * number)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.apply([begun("s", f"t{number}")])
    assert [turn.turn_index for turn in await store.turns("s")] == list(range(1, 11))


def test_the_driver_writes_nothing_on_the_terminal() -> None:
    """What it logs is no part of the answer, on no stream."""
    script = """
import asyncio
from ragmem.errors import StoreUnavailable
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.gateway import Gateway, Transaction
for url in ("bolt://127.0.0.1:9", "neo4j://127.0.0.1:9"):
    try:
        asyncio.run(Neo4jStore.open(Connection(url), timeout_s=2))
    except StoreUnavailable:
        continue
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_the_store_is_cheap() -> None:
    """The driver (a quarter of a second) is imported when a store is opened, not before."""
    script = (
        "import sys, ragmem.store.neo4j, ragmem.store.neo4j_server;"
        "print({'neo4j', 'httpcore', 'rich', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "set()\n", done.stderr


async def test_what_needs_more_memory_than_a_transaction_may_take_says_which_limit(
    neo4j_server: Connection,
) -> None:
    """Nothing of it stands, and the next one works."""
    await empty_neo4j(neo4j_server)
    too_much = "UNWIND range(1, 200000) AS i WITH collect($x + i) AS t CREATE (:Big {n: size(t)})"
    with pytest.raises(StoreUnavailable) as caught:
        await ask(neo4j_server, too_much, x="x" * 10_000)
    assert "does not have enough memory" in str(caught.value)
    assert "db.memory.transaction.max" in caught.value.hint
    [left] = await ask(neo4j_server, "MATCH (b:Big) RETURN count(b) AS n")
    assert left["n"] == 0


@pytest.mark.parametrize("repeated", ["the transaction", "all of it"])
async def test_a_deletion_that_is_repeated_is_logged_once(
    store: Neo4jStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated: str
) -> None:
    """Its transaction failed for a moment, or the answer was lost that it had been done."""
    from neo4j.exceptions import TransientError

    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")}).make()
    paths.prompt_history.write_text("\n# 2026-11-27 10:00:00\n+Why so?\n")
    name, delete, tries = new_id(), store.delete_session, count()
    await store.apply([created(name), *whole_turn(name, new_id(), "Why so?", "So.")])

    async def delete_again(
        session_id: str, *, first: Callable[[dict[str, int]], None]
    ) -> dict[str, int]:
        def removing(gone: dict[str, int]) -> None:
            first(gone)
            if repeated == "the transaction" and not next(tries):
                raise TransientError

        gone = await delete(session_id, first=removing)
        return gone if repeated == "the transaction" else await delete(session_id, first=removing)

    monkeypatch.setattr(store, "delete_session", delete_again)
    gone = await delete_session(store, await store.session(name), paths=paths, kind="neo4j")
    assert gone["turns"] == 1
    (line,) = (paths.log_dir / "deletions.log").read_text().splitlines()
    assert json.loads(line)["session_id"] == name
    assert paths.prompt_history.read_text() == ""
    with pytest.raises(SessionNotFound):
        await store.session(name)
