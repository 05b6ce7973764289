"""The graph store's connection, broken before, during and after each commit; beyond test_spool."""

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from ragmem.errors import StoreUnavailable
from ragmem.records import (
    MemoryQuery,
    PutSession,
    PutTurn,
    SessionQuery,
    Turn,
    UpdateSession,
    Write,
)
from ragmem.store import Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.spool import Patience, SpooledStore, Waiting
from tests.fakes.neo4j import PATIENCE_S
from tests.fakes.tcp_proxy import Cut, TcpProxy
from tests.store.code_samples import code_seen
from tests.store.conftest import mostly
from tests.store.haste import hurried, limit
from tests.store.opening import sqlite
from tests.store.samples import (
    START,
    a_session,
    at,
    begun,
    called,
    created,
    finished,
    summed,
    whole_turn,
)
from tests.store.seen import difference, everything
from tests.store.test_contract import a_story
from tests.store.test_spool import settled

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
    "before_run", "after_run", "before_commit", "in_commit", "after_commit", "in_answer",
    "half_close", "deadlock",
]  # fmt: skip


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


async def there(server: Connection, steps: Sequence[Sequence[Write]], home: Path) -> None:
    """What is on the server, past the proxy: all of it, once, as in a store without cuts."""
    store, uncut = await Neo4jStore.open(server, timeout_s=PATIENCE_S), await sqlite(home)
    try:
        for step in steps:
            await uncut.apply(step)
        assert difference(await everything(store), await everything(uncut)) == []
        assert await store.check() == []
    finally:
        await store.aclose()
        await uncut.aclose()


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


async def test_a_cut_of_any_kind_is_ridden_over(graph: Neo4jStore, proxy: TcpProxy) -> None:
    """Wherever the bytes break off, what was to be written is there once."""
    await graph.apply([created("s")])
    for number, cut in enumerate(CUTS, 1):
        proxy.cuts = [cut]
        applied = await prompt(graph.apply([begun("s", cut)]), ITSELF_S)
        assert (applied.turn_indexes, proxy.cuts) == ({cut: number}, []), cut


@pytest.mark.parametrize("cut", mostly(["after_commit"], CUTS))
async def test_a_cut_at_each_write_leaves_one_copy(
    cut: Cut, graph: Neo4jStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Each call rides over it, and all is as in a store without cuts."""
    uncut, story = await sqlite(tmp_path), a_story()
    for write in story:
        proxy.cuts = [cut]
        applied = await prompt(graph.apply([write]), ITSELF_S)
        assert not proxy.cuts
        assert applied == await uncut.apply([write])
    proxy.cuts = [cut]
    await graph.apply(story)
    plain = await Neo4jStore.open(neo4j_server, timeout_s=PATIENCE_S)
    assert difference(await everything(plain), await everything(uncut)) == []
    turns = ("t1", "t2", "t3")
    assert await code_seen(plain, *turns) == await code_seen(uncut, *turns)
    proxy.cuts = [cut]
    # The answer may have been lost after they went.
    assert (await graph.forget_memories(["m2"]))["memories"] in (0, 2)
    assert await plain.memories(MemoryQuery(everywhere=True, with_superseded=True)) == []
    assert await plain.check() == []
    await plain.aclose()


@pytest.mark.parametrize("cut", mostly(["in_answer"], CUTS))
async def test_a_cut_in_each_step_is_not_felt(
    cut: Cut, spooled: SpooledStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Acknowledged at once, there once, without anybody's doing."""
    for step in STEPS:
        proxy.cuts = [cut, cut]
        await prompt(spooled.apply(step))
    await settled(spooled, tmp_path / "spool")
    await there(neo4j_server, STEPS, tmp_path / "uncut")


@pytest.mark.parametrize("cut", mostly(["in_answer"], CUTS[:-1]))
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
async def test_a_firewall_is_not_felt(
    spooled: SpooledStore, proxy: TcpProxy, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Kept at once, there within seconds."""
    await spooled.apply(STEPS[0])
    proxy.swallow_all()
    for step in STEPS[1:]:
        assert isinstance(await prompt(spooled.apply(step)), Waiting)
    began = time.monotonic()
    await settled(spooled, tmp_path / "spool")
    assert time.monotonic() - began < 40
    await there(neo4j_server, STEPS, tmp_path / "uncut")
