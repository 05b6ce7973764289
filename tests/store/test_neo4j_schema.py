"""The constraints and indexes of the graph: complete after each opening, whatever was before."""

import asyncio
import contextlib

import pytest
from neo4j.exceptions import ConstraintError

from ragmem.errors import StoreError, StoreRefused
from ragmem.records import EmbedderMark, SearchQuery, WeightedTerm
from ragmem.store.neo4j import Connection, Neo4jStore, schema
from ragmem.store.neo4j.gateway import Gateway, Transaction
from ragmem.store.neo4j.vectors import EMBEDDED
from tests.fakes.neo4j import PATIENCE_S, ask, one
from tests.store.opening import neo4j
from tests.store.samples import created, whole_turn

_WANTED = set(schema.missing(schema.Server("", 0, frozenset())))
_CONSTRAINTS = {
    name
    for name, statement in schema.missing(schema.Server("", 0, frozenset())).items()
    if statement.startswith("CREATE CONSTRAINT")
}


async def constraint_names(server: Connection) -> set[str]:
    rows = await ask(server, "SHOW CONSTRAINTS YIELD name RETURN name")
    return {row["name"] for row in rows}


async def names(server: Connection) -> list[str]:
    """Of our indexes, which the constraints' own are too."""
    rows = await ask(server, "SHOW INDEXES YIELD name RETURN name ORDER BY name")
    return [row["name"] for row in rows if row["name"] in _WANTED]


async def test_indexes_are_there_and_made_once(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """Indexes on sessionId, timestamp, level and cwd; opening again changes nothing."""
    before = await names(neo4j_server)
    assert set(before) == _WANTED
    again = await neo4j(neo4j_server)
    await again.aclose()
    assert await names(neo4j_server) == before
    rows = await ask(
        neo4j_server,
        """
        SHOW INDEXES YIELD labelsOrTypes, properties, state
        WHERE state = 'ONLINE' AND size(labelsOrTypes) = 1
        RETURN labelsOrTypes[0] AS label, properties AS properties
        """,
    )
    found = {(row["label"], *row["properties"]) for row in rows}
    assert found >= {
        ("ConversationSession", "sessionId"),
        ("ConversationSession", "cwd"),
        ("ConversationTurn", "uuid"),
        ("ConversationTurn", "sessionId"),
        ("ConversationTurn", "timestamp"),
        ("ConversationTurn", "level"),
        ("ConversationSummary", "uuid"),
        ("ConversationSummary", "sessionId"),
        ("ConversationSummary", "timestamp"),
        ("ConversationSummary", "level"),
        ("ToolCall", "uuid"),
        ("File", "projectId", "path"),
        ("Project", "projectId"),
    }


@pytest.mark.changes_schema
async def test_what_is_missing_or_was_cut_off_is_made_by_opening(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """A dropped constraint, dropped indexes, and a constraint whose index alone is there."""
    await ask(neo4j_server, "DROP CONSTRAINT turn_uuid")
    await ask(neo4j_server, "DROP INDEX session_cwd")
    await ask(neo4j_server, "DROP INDEX search_terms")
    await ask(neo4j_server, "DROP CONSTRAINT lease_key")
    await ask(neo4j_server, "CREATE INDEX lease_key FOR (n:Lease) ON (n.key)")
    # Who stays briefly does not look, and says what is missed.
    brief = await neo4j(neo4j_server, brief=True)
    with pytest.raises(StoreRefused, match=r"lacks the index search_terms\.") as caught:
        await brief.search(SearchQuery(terms=(WeightedTerm("pump"),)))
    await brief.aclose()
    assert "`ragmem store check`" in caught.value.hint
    dropped = {"turn_uuid", "session_cwd", "search_terms"}
    assert set(await names(neo4j_server)) == _WANTED - dropped
    # Two processes counted before the constraint was there: the larger count stays.
    await ask(neo4j_server, "DROP CONSTRAINT attempt_item")
    made = """
        UNWIND [1, 3] AS n
        CREATE (:Attempt {item: 'i', sessionId: 's', model: 'm', count: n,
                          notBefore: datetime(), problem: 'empty'})
        """
    await ask(neo4j_server, made)
    again = await neo4j(neo4j_server)
    assert set(await names(neo4j_server)) == _WANTED
    assert await constraint_names(neo4j_server) == _CONSTRAINTS
    assert [(each.model, each.count) for each in await again.attempts("i")] == [("m", 3)]


@pytest.mark.changes_schema
async def test_many_open_an_empty_database_at_once(neo4j_server: Connection) -> None:
    """Four that complete the schema at the same time all succeed."""
    for name in await names(neo4j_server):
        await ask(neo4j_server, f"DROP CONSTRAINT {name} IF EXISTS")
        await ask(neo4j_server, f"DROP INDEX {name} IF EXISTS")
    stores = await asyncio.gather(*(Neo4jStore.open(neo4j_server, timeout_s=30) for _ in range(4)))
    await asyncio.gather(*(store.aclose() for store in stores))
    assert set(await names(neo4j_server)) == _WANTED


# The driver leaves the socket of a connection that is cancelled while it is opened.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.changes_schema
@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.campaign)])
async def test_constraints_cut_off_while_others_write_are_made_later(
    graph: Neo4jStore, neo4j_server: Connection, rounds: int
) -> None:
    """The server lists no index meanwhile, and keeps what was begun."""
    for _ in range(rounds):
        await ask(neo4j_server, "DROP CONSTRAINT lease_key IF EXISTS")
        await asyncio.gather(
            *(_written_beside(neo4j_server, 0.02 * number) for number in range(12)),
            *(_opened_in_haste(neo4j_server, 0.2 * number) for number in range(1, 4)),
        )
        await ask(neo4j_server, "MATCH (l:Lease) DETACH DELETE l")
        await (await neo4j(neo4j_server)).aclose()
        assert await constraint_names(neo4j_server) == _CONSTRAINTS
        assert set(await names(neo4j_server)) == _WANTED


async def _written_beside(server: Connection, after_s: float) -> None:
    """One key, again and again, in a transaction that takes its time."""
    await asyncio.sleep(after_s)
    gateway = Gateway(server, timeout_s=PATIENCE_S)

    async def work(tx: Transaction) -> None:
        await tx.run("CREATE (:Lease {key: 'twice'})")
        await asyncio.sleep(0.3)

    with contextlib.suppress(StoreError, ConstraintError):
        await gateway.write(work)
    await gateway.aclose()


async def _opened_in_haste(server: Connection, timeout_s: float) -> None:
    """Cut off, refused, or in time."""
    with contextlib.suppress(StoreError):
        await (await Neo4jStore.open(server, timeout_s=timeout_s)).aclose()


@pytest.mark.changes_schema
async def test_foreign_data_in_the_way_is_said(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """Data that breaks a constraint is named, not overwritten."""
    await ask(neo4j_server, "DROP CONSTRAINT project_id")
    await ask(neo4j_server, "CREATE (:Project {projectId: 'x'}), (:Project {projectId: 'x'})")
    with pytest.raises(StoreRefused, match="project_id") as caught:
        await neo4j(neo4j_server)
    assert "database of its own" in caught.value.hint
    assert "store repair" in caught.value.hint
    assert (await one(neo4j_server, "MATCH (p:Project) RETURN count(p) AS n"))["n"] == 2


async def test_foreign_data_beside_ours_is_left_alone(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Other labels in the same database stay as they are."""
    await ask(neo4j_server, "CREATE (:Plant {name: 'fern'})-[:LIKES]->(:Place {name: 'shade'})")
    await graph.apply([created("s"), *whole_turn("s")])
    await (await neo4j(neo4j_server)).aclose()
    row = await one(neo4j_server, "MATCH (p:Plant)-[:LIKES]->(q) RETURN p.name AS p, q.name AS q")
    assert row == {"p": "fern", "q": "shade"}
    assert (await graph.info()).counts["turns"] == 1


@pytest.mark.changes_schema
async def test_vector_indexes_follow_the_embedder(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Made when one is used, made anew for another dimension, and by opening where they lack."""
    listed = """
        SHOW VECTOR INDEXES YIELD name, options
        RETURN name, options.indexConfig['vector.dimensions'] AS dimension
        """

    async def dimensions() -> dict[str, int]:
        rows = await ask(neo4j_server, listed)
        return {row["name"]: row["dimension"] for row in rows if row["name"] in EMBEDDED}

    for name in EMBEDDED:
        await ask(neo4j_server, f"DROP INDEX {name} IF EXISTS")
    await graph.use_embedder(EmbedderMark("small", 3))
    assert await dimensions() == dict.fromkeys(EMBEDDED, 3)
    await graph.use_embedder(EmbedderMark("other", 5))
    assert await dimensions() == dict.fromkeys(EMBEDDED, 5)
    await ask(neo4j_server, "DROP INDEX turn_embedding")
    # Of this embedder's indexes nobody has looked yet whether they are whole.
    brief = await neo4j(neo4j_server, brief=True)
    await brief.aclose()
    assert await dimensions() == dict.fromkeys(EMBEDDED, 5)
    # More than any index takes: the store works on, and nothing is told.
    await graph.use_embedder(EmbedderMark("vast", 100_000))
    await graph.apply([created("s"), *whole_turn("s", "t")])
    assert [each.record_id for each in await graph.pending("vectors", limit=9)] == ["t"]
    assert await graph.check() == []


@pytest.mark.parametrize(
    ("version", "old"),
    [("5.25.1", True), ("4.4.40", True), ("", True), ("5.26.0", False), ("2026.01.4", False)],
)
def test_old_servers_are_refused(version: str, old: bool) -> None:
    """A server without the vector indexes and subqueries used here is said to be too old."""
    found = schema.Server(version, 0, frozenset())
    if old:
        with pytest.raises(StoreRefused, match=r"5\.26"):
            schema.check(found, "bolt://host")
    else:
        schema.check(found, "bolt://host")
