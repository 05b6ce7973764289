"""The graph store's connection, broken before, during and after each commit; beyond test_spool."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from ragmem.errors import StoreUnavailable
from ragmem.records import PutSession, PutTurn, SessionQuery, Turn, UpdateSession, Usage, Write
from ragmem.store import Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.spool.files import count_waiting
from tests.fakes.neo4j import PATIENCE_S, ask, empty_neo4j
from tests.fakes.tcp_proxy import Cut, TcpProxy
from tests.store.damage import mostly
from tests.store.haste import hurried, limit
from tests.store.model import Model, difference, everything
from tests.store.samples import (
    START,
    a_session,
    at,
    begun,
    called,
    created,
    finished,
    summed,
    texts,
    whole_turn,
)

T = TypeVar("T")

QUICK = Patience(retry_s=0.05, longest_retry_s=0.1)
LONGEST_S = 5.0
"""A call that a prompt waits for: a write takes 0.2 s at most, but the machine may be busy."""
OWN_S = 7.0
"""Patience of a store behind its spool: who waited for it would wait for longer than that."""
SHORT_S = 3.0
"""Patience with a server that does not answer."""
ITSELF_S = PATIENCE_S + 10
"""A call to the store itself, which is allowed its own limit."""
CUTS: list[Cut] = [
    "before_run",
    "after_run",
    "before_commit",
    "in_commit",
    "after_commit",
    "in_answer",
    "half_close",
]


@pytest.fixture
async def proxy(neo4j_server: Connection) -> AsyncIterator[TcpProxy]:
    """Between a store and an empty database."""
    await empty_neo4j(neo4j_server)
    async with TcpProxy(neo4j_server.url) as proxy:
        yield proxy


@pytest.fixture
def way(neo4j_server: Connection, proxy: TcpProxy) -> Connection:
    """To the server, through the proxy."""
    return msgspec.structs.replace(neo4j_server, url=proxy.url)


@pytest.fixture
async def graph(way: Connection) -> AsyncIterator[Neo4jStore]:
    store = await Neo4jStore.open(way, timeout_s=PATIENCE_S)
    yield store
    await store.aclose()


@pytest.fixture
async def spooled(way: Connection, tmp_path: Path) -> AsyncIterator[SpooledStore]:
    """As a process has it; opened already."""
    itself = await Neo4jStore.open(way, timeout_s=PATIENCE_S)

    async def opened() -> Store:
        return itself

    store = SpooledStore(opened, tmp_path / "spool", patience=QUICK)
    await store.sessions(SessionQuery(limit=1))
    limit(itself, OWN_S)
    yield store
    await store.aclose()


async def prompt(call: Awaitable[T], limit_s: float = LONGEST_S) -> T:
    """Its answer, which must not take longer than a person waits for a prompt."""
    began = time.monotonic()
    try:
        return await call
    finally:
        assert time.monotonic() - began < limit_s


async def settled(store: SpooledStore, spool: Path) -> None:
    """Wait until all is in the store, by itself."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.sessions(SessionQuery(limit=1))
                if not count_waiting(spool):
                    return
            except StoreUnavailable:
                pass
            await asyncio.sleep(0.02)


async def there(server: Connection, expected: Model) -> None:
    """What is on the server, past the proxy: all of it, once."""
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    try:
        assert difference(await everything(store), expected.everything()) == []
        assert await store.check() == []
    finally:
        await store.aclose()


STEPS: list[list[Write]] = [
    [created("s")],
    [begun("s", "t1", "one")],
    [called("s", "t1", 0, tool_call_id="c1", result="", success=False)],
    [called("s", "t1", 0, "a.py", "b.py", tool_call_id="c1")],
    [finished("s", "t1")],
    [UpdateSession(session_id="s", title="Shade", tags=("x",), at=at(3))],
    [summed("s", "t1", summary_id="m1"), summed("s", "m1", level=2, summary_id="m2")],
    [begun("s", "t2", "two"), called("s", "t2", 0, "a.py", tool_call_id="c2")],
    [finished("s", "t2", "", "interrupted")],
    [created("f", parent_session_id="s", forked_at_index=1), *whole_turn("f", "t3")],
]


@pytest.mark.parametrize("cut", mostly(["before_commit", "after_commit"], CUTS))
async def test_a_cut_in_each_step_leaves_one_copy(
    cut: Cut, graph: Neo4jStore, proxy: TcpProxy, neo4j_server: Connection
) -> None:
    """Wherever the bytes break off, the call rides over it."""
    model = Model()
    for step in STEPS:
        model = model.after(step)
        proxy.cuts = [cut]
        applied = await prompt(graph.apply(step), ITSELF_S)
        assert not proxy.cuts
        for turn_id, index in applied.turn_indexes.items():
            assert index == model.turns[turn_id].turn_index
    await there(neo4j_server, model)


@pytest.mark.parametrize("cut", mostly(["in_answer", "deadlock"], [*CUTS, "deadlock"]))
async def test_a_cut_in_each_step_is_not_felt(
    cut: Cut, spooled: SpooledStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Acknowledged at once, there once, without anybody's doing."""
    model = Model()
    for step in STEPS:
        model = model.after(step)
        proxy.cuts = [cut, cut]
        await prompt(spooled.apply(step))
    await settled(spooled, tmp_path / "spool")
    await there(neo4j_server, model)


@pytest.mark.parametrize("cut", mostly(["in_answer"], CUTS))
async def test_a_cut_while_turns_are_moved(
    cut: Cut, graph: Neo4jStore, proxy: TcpProxy, neo4j_server: Connection
) -> None:
    """A batch of whole turns, put twice over, is there once."""
    turns = [
        Turn(
            turn_id=f"t{number}",
            session_id="s",
            turn_index=number,
            user_message=str(number),
            status="completed",
            started_at=START,
            finished_at=START,
            tool_calls=(called("s", f"t{number}", tool_call_id=f"c{number}").call,),
        )
        for number in range(1, 41)
    ]
    batch = [PutSession(session=a_session("s")), *(PutTurn(turn=turn) for turn in turns)]
    for chunk in (batch[:20], batch[10:30], batch[20:]):
        proxy.cuts = [cut]
        await graph.apply(chunk)
        assert not proxy.cuts
    other = await Neo4jStore.open(neo4j_server, timeout_s=PATIENCE_S)
    assert await other.turns("s") == turns
    assert await other.check() == []
    await other.aclose()


async def test_three_deadlocks_in_a_row(
    graph: Neo4jStore, proxy: TcpProxy, neo4j_server: Connection
) -> None:
    """A transient error is tried again, and again."""
    await graph.apply([created("s")])
    proxy.cuts = ["deadlock"] * 3
    assert (await prompt(graph.apply([begun("s", "t")]), ITSELF_S)).turn_indexes == {"t": 1}
    assert not proxy.cuts
    await there(neo4j_server, Model().after([created("s"), begun("s", "t")]))


async def test_deadlocks_without_end(way: Connection, proxy: TcpProxy) -> None:
    """They are given up in time, with words; what comes next works."""
    store = await Neo4jStore.open(way, timeout_s=PATIENCE_S)
    await store.apply([created("s")])
    proxy.cuts = ["deadlock"] * 1000
    with pytest.raises(StoreUnavailable, match="could not do it now"), hurried(store, SHORT_S):
        await prompt(store.apply([begun("s", "t")]), ITSELF_S)
    proxy.cuts = []
    assert (await store.apply([begun("s", "t")])).turn_indexes == {"t": 1}
    await store.aclose()


@pytest.mark.campaign
async def test_an_answer_later_than_anyone_waits(
    way: Connection, proxy: TcpProxy, neo4j_server: Connection
) -> None:
    """The commit's answer is late: said in time; written again it is one."""
    store = await Neo4jStore.open(way, timeout_s=PATIENCE_S)
    model = Model()
    proxy.late_s = 2 * SHORT_S
    for step in STEPS:
        model = model.after(step)
    await store.apply(STEPS[0])
    for step in STEPS[1:4]:
        proxy.cuts = ["late_answer"]
        with (
            pytest.raises(StoreUnavailable, match="did not answer within 3 s"),
            hurried(store, SHORT_S),
        ):
            await prompt(store.apply(step), ITSELF_S)
        await store.apply(step)
    for step in STEPS[4:]:
        await store.apply(step)
    await store.aclose()
    await there(neo4j_server, model)


async def test_a_server_that_falls_silent(
    spooled: SpooledStore, proxy: TcpProxy, tmp_path: Path
) -> None:
    """No write takes longer than the stall, no read more than 2 s; then all arrives."""
    await spooled.apply([created("s"), *whole_turn("s", "t0")])
    proxy.silent = True
    for number in range(1, 3):
        assert isinstance(await prompt(spooled.apply(whole_turn("s", f"t{number}"))), Waiting)
        with pytest.raises(StoreUnavailable):
            await prompt(spooled.turns("s"))
    assert [text[:14] for text in spooled.take_notices()] == ["Memory is away"]
    proxy.silent = False
    await settled(spooled, tmp_path / "spool")
    assert [turn.turn_id for turn in await spooled.turns("s")] == [f"t{n}" for n in range(3)]
    assert [text[:15] for text in spooled.take_notices()] == ["Memory is back."]


@pytest.mark.campaign
async def test_a_firewall_that_swallows_what_was_open(
    way: Connection, proxy: TcpProxy, neo4j_server: Connection
) -> None:
    """No reset comes; one call fails in its time, the next has a new connection."""
    store = await Neo4jStore.open(way, timeout_s=PATIENCE_S)
    await store.apply([created("s")])
    for number in range(1, 4):
        proxy.swallow_all()
        with pytest.raises(StoreUnavailable), hurried(store, SHORT_S):
            await prompt(store.apply([begun("s", f"t{number}")]), ITSELF_S)
        applied = await prompt(store.apply([begun("s", f"t{number}")]), ITSELF_S)
        assert applied.turn_indexes == {f"t{number}": number}
    # Several connections at once: each costs one call at most.
    await asyncio.gather(*(store.turns("s") for _ in range(5)))
    proxy.swallow_all()
    with hurried(store, SHORT_S):
        reads = (store.turns("s") for _ in range(5))
        done = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable | list) for each in done)
    assert len(await prompt(store.turns("s"), ITSELF_S)) == 3
    await store.aclose()


async def test_a_firewall_is_not_felt(
    spooled: SpooledStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Kept at once, there within seconds."""
    model = Model().after(STEPS[0])
    await spooled.apply(STEPS[0])
    proxy.swallow_all()
    for step in STEPS[1:]:
        model = model.after(step)
        assert isinstance(await prompt(spooled.apply(step)), Waiting)
    began = time.monotonic()
    await settled(spooled, tmp_path / "spool")
    assert time.monotonic() - began < 40
    await there(neo4j_server, model)


async def test_connections_that_break_all_the_time(
    spooled: SpooledStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Through forty flaps, in replay too; in order, once, never felt."""
    model = Model().after([created("s")])
    await spooled.apply([created("s")])

    async def flap() -> None:
        for _ in range(40):
            await asyncio.sleep(0.03)
            await proxy.drop_all()

    flapping = asyncio.create_task(flap())
    for number in range(100):
        turn = whole_turn("s", f"t{number:03}", str(number))
        model = model.after(turn)
        await prompt(spooled.apply(turn))
    await flapping
    await settled(spooled, tmp_path / "spool")
    assert texts(await spooled.turns("s")) == [str(number) for number in range(100)]
    await there(neo4j_server, model)


# --- what should not be there, and what no database likes -----------------


@pytest.mark.campaign
async def test_a_constraint_that_went_missing_makes_no_second_copy(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Written without it and replayed; the next process makes it anew."""
    model = Model()
    for name in ("session_id", "turn_uuid", "tool_call_uuid", "summary_uuid"):
        await ask(neo4j_server, f"DROP CONSTRAINT {name}")
    for step in STEPS:
        model = model.after(step)
        for _ in range(2):
            await graph.apply(step)
    other = await Neo4jStore.open(neo4j_server, timeout_s=PATIENCE_S)
    rows = await ask(neo4j_server, "SHOW CONSTRAINTS YIELD name RETURN collect(name) AS names")
    assert {"session_id", "turn_uuid", "tool_call_uuid", "summary_uuid"} <= set(rows[0]["names"])
    await other.aclose()
    await there(neo4j_server, model)


async def test_hard_text_waits_and_arrives(
    spooled: SpooledStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Kept while the server is away, through a cut commit, once."""
    port = await proxy.stop_listening()
    text = "a\0b, half \ud83d of it, Ünïcödé 🌱"
    writes = [created("s"), begun("s", "t", text), finished("s", "t", text, reasoning="Short.")]
    assert isinstance(await prompt(spooled.apply(writes)), Waiting)
    itself = await spooled.inner()
    assert isinstance(itself, Neo4jStore)
    limit(itself, PATIENCE_S)
    proxy.cuts = ["after_commit"]
    await proxy.listen(port)
    await settled(spooled, tmp_path / "spool")
    await there(neo4j_server, Model().after(writes))


async def test_numbers_past_64_bits(store: Store) -> None:
    """The nearest number that every store holds."""
    await store.apply([created("s")])
    for number in (2**63 - 1, 2**63, 2**64, -(2**63) - 1, 2**200):
        kept, t = max(-(2**63), min(2**63 - 1, number)), str(number)
        usage = Usage(input_tokens=number, output_tokens=number, api_ms=number)
        await store.apply([begun("s", t), called("s", t, 0, duration_ms=number)])
        await store.apply([finished("s", t, usage=usage)])
        turn = (await store.turns("s"))[-1]
        assert turn.tool_calls[0].duration_ms == kept
        assert turn.usage == Usage(input_tokens=kept, output_tokens=kept, api_ms=kept)
