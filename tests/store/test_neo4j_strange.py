"""What other hands did to the graph, and what a server refuses in the middle of the work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from neo4j import AsyncDriver, AsyncGraphDatabase

from ragmem.errors import StoreRefused
from ragmem.store.neo4j import Connection, Neo4jStore
from tests.fakes.neo4j import PATIENCE_S, open_empty_neo4j_store
from tests.store.fixtures.make import content
from tests.store.opening import neo4j
from tests.store.samples import begun, finished


@pytest.fixture
async def garden(neo4j_server: Connection) -> Connection:
    """Every kind of record."""
    store = await open_empty_neo4j_store(neo4j_server)
    await store.apply(content())
    await store.aclose()
    return neo4j_server


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
    store = await neo4j(garden)
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
