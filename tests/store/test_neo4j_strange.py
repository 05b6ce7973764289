"""What other hands did to the graph, and what a server refuses in the middle of the work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from neo4j import AsyncDriver, AsyncGraphDatabase

from ragmem.errors import StoreRefused
from ragmem.records import (
    ALL_TURNS,
    Insight,
    Interval,
    MemoryQuery,
    SearchQuery,
    SessionQuery,
    WeightedTerm,
)
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.repair import Repair
from ragmem.store.transfer import stream_of
from tests.fakes.neo4j import PATIENCE_S, ask, open_empty_neo4j_store
from tests.store.fixtures.make import content
from tests.store.samples import at, begun, finished

BY_HAND = {
    "ConversationSession root (turnCount)":
        "MATCH (n:ConversationSession {sessionId: 'root'}) SET n.turnCount = 'x'",
    "ConversationSession fork (tags)":
        "MATCH (n:ConversationSession {sessionId: 'fork'}) SET n.tags = 'one'",
    "ConversationTurn r1 (timestamp)":
        "MATCH (n:ConversationTurn {uuid: 'r1'}) SET n.timestamp = 'yesterday'",
    "ConversationTurn r3 (userMessage)":
        "MATCH (n:ConversationTurn {uuid: 'r3'}) SET n.userMessage = 5",
    "ConversationTurn r2 (status)":
        "MATCH (n:ConversationTurn {uuid: 'r2'}) SET n.status = 'done'",
    "ToolCall c1 (success)": "MATCH (n:ToolCall {uuid: 'c1'}) SET n.success = 'true'",
    "ConversationSummary s1 (timestamp)":
        "MATCH (n:ConversationSummary {uuid: 's1'}) SET n.timestamp = '2026-01-02T03:09:05Z'",
    "SearchEntry s2 (at)": "MATCH (n:SearchEntry {recordId: 's2'}) SET n.at = 7",
    "Memory m-new (createdAt)": "MATCH (n:Memory {uuid: 'm-new'}) SET n.createdAt = 'then'",
    "Memory m-due (evidence)": "MATCH (n:Memory {uuid: 'm-due'}) SET n.evidence = 3",
    "Insight root (keyFindings)": "MATCH (n:Insight {sessionId: 'root'}) SET n.keyFindings = 1",
    "Attempt tried (count)": "CREATE (:Attempt {item: 'tried', sessionId: 'root', count: '2'})",
    "RagmemSchema ragmem (sequence)": "MATCH (n:RagmemSchema) SET n.sequence = '0'",
}  # fmt: skip


@pytest.fixture
async def garden(neo4j_server: Connection) -> Connection:
    """Every kind of record."""
    store = await open_empty_neo4j_store(neo4j_server)
    await store.apply(content())
    await store.aclose()
    return neo4j_server


async def read_all(store: Neo4jStore) -> None:
    """As a turn and a move read it; only a refusal that names the way out may end one of these."""
    for session in await store.sessions(SessionQuery(limit=99)):
        await store.turns(session.session_id, ALL_TURNS)
        await store.summaries(session.session_id)
    terms = tuple(map(WeightedTerm, ("plants", "shade", "one", "three")))
    await store.search(SearchQuery(terms=terms))
    await store.search(SearchQuery(intervals=(Interval(start_at=at(0), end_at=at(99)),)))
    await store.get(Insight, ["root"])
    with suppress(StoreRefused):  # Of a list that is a number Cypher counts nothing.
        await store.memories(MemoryQuery(everywhere=True, with_superseded=True))


async def moved(store: Neo4jStore) -> int:
    """How much a move takes along."""
    return sum([len(batch) async for batch in stream_of(store)()])


async def test_what_is_of_another_type_is_left_out_named_and_mended(garden: Connection) -> None:
    """By hand, in any property: reading goes on with one notice, and nothing is deleted."""
    for statement in BY_HAND.values():
        await ask(garden, statement)
    said: list[str] = []
    store = await Neo4jStore.open(garden, timeout_s=PATIENCE_S, say=said.append)
    await read_all(store)
    assert {each.session_id for each in await store.sessions(SessionQuery())} == {"deep", "empty"}
    [notice] = said
    assert "left out" in notice
    assert "ragmem store repair" in notice
    strict = await Neo4jStore.open(garden, timeout_s=PATIENCE_S)
    with pytest.raises(StoreRefused, match="not as it was written") as caught:
        await moved(strict)
    await strict.aclose()
    assert "ragmem store repair" in caught.value.hint
    repair = await Repair.open(garden, timeout_s=PATIENCE_S)
    [finding] = await repair.findings()
    assert (finding.what, finding.count) == ("properties are of their types", len(BY_HAND))
    done = await repair.mend(at(99))
    assert set(done[0].where.split(", ")) >= set(BY_HAND)
    assert await repair.findings() == []
    assert await repair.mend(at(99)) == []
    await repair.aclose()
    await store.aclose()
    again = await Neo4jStore.open(garden, timeout_s=PATIENCE_S, say=said.append)
    await read_all(again)
    assert await moved(again) > 20
    assert len(await again.sessions(SessionQuery())) == 4
    assert [turn.user_message for turn in await again.turns("root")] == ["one", "two", "5", "four"]
    assert said == [notice]
    await again.aclose()
    [kept] = await ask(garden, "MATCH (n {salvagedTimestamp: 'yesterday'}) RETURN n.uuid AS uuid")
    assert kept == {"uuid": "r1"}


@asynccontextmanager
async def administered(server: Connection) -> AsyncIterator[AsyncDriver]:
    async with AsyncGraphDatabase.driver(
        server.url, auth=(server.username, server.password)
    ) as driver:
        yield driver


async def test_an_expired_password_says_how_to_set_a_new_one(neo4j_server: Connection) -> None:
    """It is no wrong password: nothing but a new one helps."""
    async with administered(neo4j_server) as driver:
        await driver.execute_query(
            "CREATE USER guest IF NOT EXISTS SET PASSWORD 'long-enough' CHANGE REQUIRED",
            database_="system",
        )
        try:
            guest = Connection(neo4j_server.url, username="guest", password="long-enough")
            with pytest.raises(StoreRefused, match="expired") as caught:
                await Neo4jStore.open(guest, timeout_s=PATIENCE_S)
        finally:
            await driver.execute_query("DROP USER guest", database_="system")
    assert "ALTER CURRENT USER SET PASSWORD" in caught.value.hint
    assert "long-enough" not in f"{caught.value} {caught.value.hint}"


async def test_a_transaction_that_somebody_ends_is_run_again(garden: Connection) -> None:
    """TERMINATE TRANSACTION while the write waits for a lock: it is stored once."""
    store = await Neo4jStore.open(garden, timeout_s=PATIENCE_S)
    async with administered(garden) as driver, driver.session() as session:
        blocking = await session.begin_transaction()
        await blocking.run("MATCH (s:ConversationSession {sessionId: 'root'}) SET s.held = true")
        writing = asyncio.create_task(
            store.apply([begun("root", "next", "and now?"), finished("root", "next", "This.")])
        )
        ended: set[str] = set()
        while len(ended) < 3:
            name = await _waiting(driver, ended)
            await driver.execute_query(f"TERMINATE TRANSACTIONS '{name}'")
            ended.add(name)
        await blocking.rollback()
        await writing
    turns = await store.turns("root")
    assert [turn.turn_id for turn in turns].count("next") == 1
    assert await store.check() == []
    await store.aclose()


async def _waiting(driver: AsyncDriver, ended: set[str]) -> str:
    """The transaction that waits for a lock, another one than those."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await driver.execute_query(
                "SHOW TRANSACTIONS YIELD transactionId, currentQuery, status, waitTime "
                "WHERE currentQuery CONTAINS 'revision' AND status STARTS WITH 'Blocked' "
                "RETURN transactionId AS name"
            )
            names = {str(record["name"]) for record in found.records}
            if names - ended:
                return min(names - ended)
            await asyncio.sleep(0.02)
