"""Memories in the graph: its shape, older schemas, races."""

import asyncio

import pytest

from ragmem.records import (
    MEMORY_LEVEL,
    SESSION_LEVEL,
    MarkExtracted,
    MemoryQuery,
    MemoryRecord,
    PutProfile,
    UpdateSession,
    Write,
)
from ragmem.store.neo4j import Connection, Neo4jStore
from tests.fakes.neo4j import ask, one
from tests.store.opening import neo4j
from tests.store.samples import (
    at,
    called,
    created,
    insight,
    project,
    remembered,
    said,
    whole_turn,
)
from tests.store.test_contract_recall import EAST, MARK, NORTH, embedded

EVERYTHING = MemoryQuery(everywhere=True, with_superseded=True)


def known() -> list[Write]:
    """A session with two turns, and of each kind of memory's links one."""
    return [
        created("s", summary="All about ferns."),
        *whole_turn("s", "t1", "Which ferns?", started_at=at(1)),
        called("s", "t1", tool_call_id="c1"),
        *whole_turn("s", "t2", "And hostas?", started_at=at(2)),
        remembered("old", "Hostas need sun.", created_at=at(3), evidence=(said("s", "t1"),)),
        remembered(
            "new",
            "Hostas need shade.",
            created_at=at(4),
            supersedes=("old",),
            evidence=(
                said("s", "t2", "shade!"),
                said("", "", "a note"),
                said("s", "t1", "from a file", tool_call_id="c1", tool_name="read_file",
                     path="beds/north.txt"),
            ),
        ),
        PutProfile(key="name", value="Ana", at=at(5)),
        insight("s", created_at=at(9)),
    ]  # fmt: skip


# --- the shape ---------------------------------------------------------------


async def test_a_memory_hangs_on_its_turns(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """REMEMBERS from each turn, with the words and their place; SUPERSEDES to the old."""
    await graph.apply(known())
    rows = await ask(
        neo4j_server,
        """
        MATCH (t:ConversationTurn)-[r:REMEMBERS]->(:Memory {uuid: 'new'})
        RETURN t.uuid AS turn, properties(r) AS r ORDER BY r.position
        """,
    )
    empty = {"toolCallId": "", "toolName": "", "path": "", "sessionId": "s", "turnIndex": 1}
    assert rows == [
        {"turn": "t2", "r": {**empty, "position": 0, "quote": "shade!", "at": at(2)}},
        {
            "turn": "t1",
            "r": {
                **empty,
                "position": 2,
                "quote": "from a file",
                "at": at(2),
                "toolCallId": "c1",
                "toolName": "read_file",
                "path": "beds/north.txt",
            },
        },
    ]
    row = await one(
        neo4j_server,
        """
        MATCH (m:Memory)-[:SUPERSEDES]->(old)
        RETURN m.uuid AS new, m.sessionIds AS sessions, size(m.evidence) AS loose,
               old.uuid AS old, old.supersededBy AS by, old.validUntil AS until
        """,
    )
    assert row == {
        "new": "new", "sessions": ["s"], "loose": 1, "old": "old", "by": "new", "until": at(4),
    }  # fmt: skip


async def test_evidence_that_comes_later(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """It stands on the memory until it is put again when its turn is there."""
    put = remembered("m", evidence=(said("s", "t", "before"), said("", "", "a note")))
    await graph.apply([put])
    links = "MATCH (:ConversationTurn)-[r:REMEMBERS]->(:Memory) RETURN count(r) AS links"
    assert await one(neo4j_server, links) == {"links": 0}
    await graph.apply([created("s"), *whole_turn("s", "t")])
    assert await graph.memories(EVERYTHING) == [put.memory]
    await graph.apply([put])
    assert await one(neo4j_server, links) == {"links": 1}
    assert await graph.memories(EVERYTHING) == [put.memory]


async def test_a_sessions_summary_has_its_embedding(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """`summaryEmbedding`; who reads sessions does not read it."""
    await graph.apply([created("s", summary="Ferns.")])
    await graph.use_embedder(MARK)
    await graph.apply([embedded("s", NORTH, level=SESSION_LEVEL)])
    node = "MATCH (s:ConversationSession) RETURN s.summaryEmbedding AS vector"
    assert await one(neo4j_server, node) == {"vector": pytest.approx([0, 1, 0, 0])}
    assert (await graph.session("s")).summary == "Ferns."
    await graph.apply([UpdateSession(session_id="s", summary="", at=at(1))])
    assert await one(neo4j_server, node) == {"vector": None}
    assert await graph.pending("vectors", limit=9) == []
    assert await graph.check() == []


# --- from an older schema -----------------------------------------------------------------


# --- lost answers, and others at the same time --------------------------------------------


async def test_memories_while_their_sessions_go(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Evidence is put before or after its session went; none is half there."""
    other = await neo4j(neo4j_server)
    for number in range(12):
        name = f"s{number}"
        await graph.apply([created(name), *whole_turn(name, f"t{number}")])
        put = remembered(
            f"m{number}", evidence=(said(name, f"t{number}"), said("elsewhere", "", "too"))
        )
        await asyncio.gather(other.apply([put]), graph.delete_session(name))
        [held] = await graph.get(MemoryRecord, [f"m{number}"])
        assert held.evidence in (put.memory.evidence, put.memory.evidence[1:])
    assert await graph.check() == []


async def test_memories_while_projects_are_joined(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """A memory that is being written sees the join, or is seen by it."""
    other = await neo4j(neo4j_server)

    for number in range(12):
        name = f"p{number}"
        await graph.apply([project("root"), project(name)])
        await asyncio.gather(
            other.apply([remembered(f"m{number}", project_id=name)]),
            graph.apply([project(name, "root")]),
        )
    found = await graph.memories(MemoryQuery(project_ids=("root",)))
    assert len(found) == 12
    assert {memory.project_id for memory in found} == {"root"}


async def test_what_crosses_does_not_deadlock_for_good(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Turns that end, vectors and memories of the same sessions, in every order."""
    stores = [await neo4j(neo4j_server) for _ in range(4)]
    await graph.apply([created("a"), created("b"), remembered("old", created_at=at(0))])
    await graph.use_embedder(MARK)

    async def work(number: int, store: Neo4jStore) -> None:
        for i in range(6):
            here, there = ("a", "b") if (number + i) % 2 else ("b", "a")
            turn, name = f"{number}-{i}", f"m{number}-{i}"
            writes: list[Write] = [
                *whole_turn(here, turn),
                remembered(
                    name, evidence=(said(here, turn), said(there, turn)), supersedes=("old",)
                ),
                embedded(name, EAST, level=MEMORY_LEVEL),
                UpdateSession(session_id=there, summary=name, at=at(i)),
                MarkExtracted(turn_ids=(turn,)),
            ]
            await store.apply(writes if number % 2 else [*writes[:2], *writes[:1:-1]])

    await asyncio.gather(*(work(n, store) for n, store in enumerate(stores)))
    assert len(await graph.memories(EVERYTHING)) == 25
    assert await graph.pending("memories", limit=9) == []
    assert await graph.check() == []
    for store in stores:
        await store.aclose()


# --- damage ---------------------------------------------------------------------------


async def test_a_chain_of_which_a_part_is_elsewhere_is_whole(graph: Neo4jStore) -> None:
    """What was superseded stays so, whether or not what took its place was moved too."""
    await graph.apply([remembered("m", superseded_by="not-here", valid_until=at(9))])
    assert await graph.check() == []
    assert await graph.memories(MemoryQuery(everywhere=True)) == []
