"""Damage of every kind, made by raw Cypher: `check` names it, repair mends it and loses nothing."""

from collections import Counter

import msgspec
import pytest

from ragmem.errors import StoreRefused
from ragmem.records import ALL_TURNS, Finding, PutProfile, SessionQuery
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.gateway import Row
from ragmem.store.neo4j.repair import PROMISES, Repair
from tests.fakes.neo4j import PATIENCE_S, ask, open_empty_neo4j_store
from tests.store.code_samples import GARDEN, put
from tests.store.damage import Damage, at_once
from tests.store.samples import at, garden, insight, remembered
from tests.store.seen import seen
from tests.store.test_neo4j_code import DAMAGE as DAMAGE_OF_CODE
from tests.store.test_neo4j_memories import DAMAGE as DAMAGE_OF_MEMORIES
from tests.store.test_neo4j_schema import constraint_names


@pytest.fixture
async def server(neo4j_server: Connection) -> Connection:
    """It holds the garden."""
    store = await open_empty_neo4j_store(neo4j_server)
    await store.apply(garden())
    await store.aclose()
    return neo4j_server


async def mended(server: Connection) -> tuple[list[str], list[Finding], list[Finding]]:
    """What was found, what was done, and what is left afterwards."""
    repair = await Repair.open(server, timeout_s=60)
    try:
        found = await repair.findings()
        done = await repair.mend(at(99))
        return [each.what for each in found], done, await repair.findings()
    finally:
        await repair.aclose()


async def everything(server: Connection) -> Counter[str]:
    """Every text that a person or a model wrote, however often."""
    rows = await ask(
        server,
        """
        MATCH (n) WHERE NOT n:RagmemSchema
        UNWIND [n.userMessage, n.assistantMessage, n.toolResult, n.error, n.reasoning, n.summary,
                n.path] AS text
        WITH text WHERE text IS NOT NULL AND text <> '' AND text <> '{}'
        RETURN text
        """,
    )
    return Counter(row["text"] for row in rows)


async def damage(server: Connection, *statements: str) -> Counter[str]:
    for statement in statements:
        await ask(server, statement)
    return await everything(server)


CAMPAIGN = pytest.mark.campaign
# The kinds of which a repair gives back exactly what was there.
EXACT = [
    (
        "turns are counted from 1 without gaps",
        "MATCH (s:ConversationSession {sessionId: 'root'}) SET s.turnCount = 9",
    ),
    (
        "turns are counted from 1 without gaps",
        "MATCH (t:ConversationTurn {sessionId: 'root'}) SET t.turnIndex = 10 * t.turnIndex",
    ),
    (
        "completed turns are counted",
        "MATCH (s:ConversationSession {sessionId: 'root'}) SET s.messageCount = 99",
    ),
    (
        "completed turns are counted",
        "MATCH (s:ConversationSession {sessionId: 'deep'}) SET s.messageCount = 0",
    ),
    (
        "the newest turn of a session is known",
        "MATCH (s:ConversationSession) WHERE s.turnCount > 0 REMOVE s.lastTurnId",
    ),
    (
        "the place of a turn is on its relationship too",
        "MATCH ()-[h:HAS_TURN]->() SET h.index = 7",
    ),
    (
        "a turn belongs to its session",
        "MATCH (:ConversationSession {sessionId: 'root'})-[h:HAS_TURN]->() DELETE h",
    ),
    (
        "a summary belongs to its session",
        "MATCH ()-[h:HAS_SUMMARY]->() DELETE h",
    ),
    (
        "a fork shares turns that exist",
        "MATCH (:ConversationSession {sessionId: 'root'})-[h:HAS_BRANCH]->() DELETE h",
    ),
    (
        "characters of turns are counted",
        "MATCH (t:ConversationTurn) SET t.charCount = 0",
    ),
    ("a turn has all of its fields", "MATCH (t:ConversationTurn) REMOVE t.userCharCount, t.level"),
    ("a turn has all of its fields", "MATCH (t:ConversationTurn) REMOVE t.charCount"),
    ("a session has all of its fields", "MATCH (s:ConversationSession) REMOVE s.titleFolded"),
    (
        "a session has all of its fields",
        "MATCH (s:ConversationSession) REMOVE s.messageCount, s.turnCount",
    ),
]
# To make constraints anew costs the server all of its plans; `test_what_is_there_twice…` does.
TWICE = "no id is there twice"
BY_CONSTRAINTS = [
    [
        (TWICE, "DROP CONSTRAINT attempt_item"),
        (TWICE, "UNWIND [1, 3] AS n CREATE (:Attempt {item: 'r1', model: 'm', count: n})"),
        (TWICE, "DROP CONSTRAINT file_path"),
        (
            TWICE,
            """
            MATCH (t:ConversationTurn {uuid: 'r2'})-[a:ACCESSED {toolCallId: 'c2'}]->(f)
            CREATE (t)-[b:ACCESSED]->(:File {projectId: f.projectId, path: f.path})
            SET b = properties(a) DELETE a
            """,
        ),
    ],
    [("constraints and indexes are there", "DROP CONSTRAINT turn_uuid")],
    [("constraints and indexes are there", "DROP INDEX session_cwd")],
]


@pytest.mark.parametrize(
    "damages",
    [
        *at_once(EXACT),
        *(pytest.param(each, marks=CAMPAIGN) for each in BY_CONSTRAINTS),
    ],
)
async def test_what_can_be_derived_is_as_it_was(server: Connection, damages: list[Damage]) -> None:
    """Counters, indexes and links, from what they are derived from."""
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    before = await seen(store)
    await damage(server, *(how for _, how in damages))
    found, done, left = await mended(server)
    assert {what for what, _ in damages} <= set(found)
    assert done
    assert left == []
    assert await seen(store) == before
    again = await mended(server)
    assert again == ([], [], [])
    await store.aclose()


# The kinds that leave something over: (found, damage, where it is afterwards).
SALVAGED = [
    pytest.param(
        "a turn belongs to its session",
        "MATCH (s:ConversationSession {sessionId: 'root'}) DETACH DELETE s",
        "root: r1 r2 r3 r4",
        id="lost-session",
    ),
    pytest.param(
        "a turn belongs to its session",
        """
        CREATE (:ConversationTurn {uuid: 'stray', sessionId: 'nowhere', turnIndex: 4,
          userMessage: 'lost', assistantMessage: 'and found', status: 'completed',
          timestamp: datetime('2026-01-03'), finishedAt: datetime('2026-01-03'), charCount: 13,
          userCharCount: 4, modelCalls: 0, apiMs: 0, level: 0})
        """,
        "nowhere: stray",
        id="stray-turn",
    ),
    pytest.param(
        "a turn has all of its fields",
        "CREATE (:ConversationTurn {uuid: 'bare', userMessage: 'only this'})",
        "*: bare",
        id="bare-turn",
    ),
    pytest.param(
        "a tool call belongs to a turn",
        "MATCH (t:ConversationTurn {uuid: 'r2'}) DETACH DELETE t",
        "root: r1 r3 r4",
        id="lost-turn",
    ),
    pytest.param(
        "a tool call belongs to a turn",
        """
        MATCH (c:ToolCall {uuid: 'c1'}), (t:ConversationTurn {uuid: 'r3'})
        CREATE (t)-[:HAS_TOOL_CALL {order: 0}]->(c)
        """,
        "root: r1 r2 r3 r4",
        id="call-of-two-turns",
    ),
    pytest.param(
        "a tool call has all of its fields",
        "MATCH (c:ToolCall {uuid: 'c1'})<-[h:HAS_TOOL_CALL]-() REMOVE c.preamble, h.order",
        "root: r1 r2 r3 r4",
        id="bare-call",
    ),
    pytest.param(
        "a file was touched by a tool call",
        "MATCH (c:ToolCall {uuid: 'c1'}) DETACH DELETE c",
        "root: r1 r2 r3 r4",
        id="lost-call",
    ),
    pytest.param(
        "a summary belongs to its session",
        "MATCH (m:ConversationSummary {uuid: 's1'}) SET m.sessionId = 'nowhere'",
        "nowhere:",
        id="stray-summary",
    ),
    pytest.param(
        "a summary belongs to its session",
        "MATCH (s:ConversationSession {sessionId: 'fork'}), (m:ConversationSummary {uuid: 's1'})"
        " CREATE (s)-[:HAS_SUMMARY {level: 1}]->(m)",
        "root: r1 r2 r3 r4",
        id="summary-of-two-sessions",
    ),
    pytest.param(
        "a turn belongs to its session",
        "MATCH (s {sessionId: 'fork'}), (t:ConversationTurn {uuid: 'r2'})"
        " CREATE (s)-[:HAS_TURN {index: 9}]->(t)  // its search entries too",
        "root: r1 r2 r3 r4",
        id="turn-of-two-sessions",
    ),
    pytest.param(
        "a summary has all of its fields",
        "MATCH (m:ConversationSummary {uuid: 's1'}) REMOVE m.topics, m.level, m.timestamp",
        "root: r1 r2 r3 r4",
        id="bare-summary",
    ),
    pytest.param(
        "a fork shares turns that exist",
        "MATCH (s:ConversationSession {sessionId: 'fork'}) SET s.parentSessionId = 'nowhere'"
        " WITH s MATCH ()-[h:HAS_BRANCH]->(s) DELETE h",
        "fork: f3",
        id="lost-parent",
    ),
    pytest.param(
        "a fork shares turns that exist",
        "MATCH (s:ConversationSession {sessionId: 'fork'}) SET s.forkedAtIndex = 40",
        "fork: r1 r2 r3 r4 f3",
        id="fork-beyond-its-parent",
    ),
    pytest.param(
        "turns are counted from 1 without gaps",
        "MATCH (t:ConversationTurn {uuid: 'r1'}) DETACH DELETE t",
        "fork: r2 f3",
        id="gap-before-a-fork",
    ),
    pytest.param(
        "turns are counted from 1 without gaps",
        "MATCH (t:ConversationTurn {uuid: 'r3'}) SET t.turnIndex = 4",
        "root: r1 r2 r3 r4",
        id="one-place-two-turns",
    ),
    pytest.param(
        "a turn that has ended says when",
        "MATCH (t:ConversationTurn {uuid: 'r4'}) REMOVE t.finishedAt",
        "root: r1 r2 r3 r4",
        id="no-end",
    ),
    pytest.param(
        "a turn that runs has not ended",
        "MATCH (t:ConversationTurn {uuid: 'd5'}) SET t.finishedAt = datetime('2026-01-03')",
        "deep: r1 r2 f3 d4 d5",
        id="half-a-turn",
    ),
]


IN_SHORT = {"lost-session", "bare-turn", "call-of-two-turns", "gap-before-a-fork"}
"""Those that are tried by themselves too; see `test_all_kinds_at_once`."""


@pytest.mark.parametrize(
    ("what", "statement", "expected"),
    [
        each if each.id in IN_SHORT else pytest.param(*each.values, id=each.id, marks=CAMPAIGN)
        for each in SALVAGED
    ],
)
async def test_what_belongs_to_nothing_gets_a_place(
    server: Connection, what: str, statement: str, expected: str
) -> None:
    """Every text that is left in the graph can be read in a session afterwards."""
    texts = await damage(server, statement)
    found, done, left = await mended(server)
    assert what in found
    assert done
    assert left == []
    assert await everything(server) >= texts
    await reads_as(server, expected)
    await all_is_read(server)


async def reads_as(server: Connection, expected: str) -> None:
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    session_id, _, wanted = expected.partition(":")
    sessions = await store.sessions(SessionQuery(limit=99))
    if session_id == "*":
        [session_id] = [each.session_id for each in sessions if each.title == "Salvaged session"]
    turns = await store.turns(session_id)
    assert [turn.turn_id for turn in turns] == wanted.split()
    assert (await store.session(session_id)).turn_count == len(turns)
    await store.aclose()


async def all_is_read(server: Connection) -> None:
    """Through the store, every turn, call and summary that the graph holds."""
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    ids: set[str] = set()
    for session in await store.sessions(SessionQuery(limit=99)):
        for turn in await store.turns(session.session_id, ALL_TURNS):
            ids |= {turn.turn_id, *(call.tool_call_id for call in turn.tool_calls)}
        ids |= {each.summary_id for each in await store.summaries(session.session_id)}
    await store.aclose()
    rows = await ask(
        server,
        "MATCH (n:ConversationTurn|ToolCall|ConversationSummary) RETURN collect(n.uuid) AS ids",
    )
    assert ids == set(rows[0]["ids"])


async def test_orphan_calls_are_found_under_a_salvaged_session(server: Connection) -> None:
    """As salvage does on SQLite; a call keeps its id and its result."""
    await damage(server, "MATCH (t:ConversationTurn {uuid: 'r2'}) DETACH DELETE t")
    _, done, left = await mended(server)
    assert left == []
    [change] = [each for each in done if "tool calls whose own is lost" in each.what]
    assert (change.where, change.count) == ("c1, c2", 2)
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    [session] = await store.find_sessions("Salvaged session")
    [turn] = await store.turns(session.session_id)
    assert [call.tool_call_id for call in turn.tool_calls] == ["c1", "c2"]
    assert turn.status == "interrupted"
    assert turn.tool_calls[1].error == "gone"
    await store.aclose()


async def test_a_summary_of_nothing_is_said_and_left(server: Connection) -> None:
    """What it digested can't be known; it stays, and is named."""
    await damage(server, "MATCH (:ConversationSummary {uuid: 's1'})-[r:SUMMARIZES]->() DELETE r")
    found, done, left = await mended(server)
    assert found[0] == "a summary says what it digests"
    # The turns have no summary any more: it is to be made.
    assert [each.where for each in done] == ["r1, r2"]
    assert left == [Finding("a summary says what it digests", "s1")]


async def test_all_kinds_at_once(server: Connection) -> None:
    """Damage upon damage is mended too, by and by."""
    texts = await damage(
        server, *(how for _, how in EXACT), *(str(param.values[1]) for param in SALVAGED)
    )
    _, _, left = await mended(server)
    assert [each.what for each in left] in ([], ["a summary says what it digests"])
    assert await everything(server) >= texts


async def test_what_was_there_before_is_kept_to_the_last_property(server: Connection) -> None:
    """The graph of before has every node and relationship, broken ones too."""
    await damage(server, "CREATE (:ConversationTurn {uuid: 'bare', userMessage: 'only this'})")
    await ask(server, "CREATE (:Plant {name: 'not ours'})")
    repair = await Repair.open(server, timeout_s=60)
    rows: list[Row] = [row async for portion in repair.graph() for row in portion]
    await repair.aclose()
    nodes = [row for row in rows if "node" in row]
    links = [row for row in rows if "relationship" in row]
    [counted] = await ask(
        server,
        "MATCH (n) WHERE NOT n:Plant WITH count(n) AS nodes"
        " MATCH ()-[r]->() RETURN nodes, count(r) AS links",
    )
    assert (len(nodes), len(links)) == (counted["nodes"], counted["links"])
    assert {"uuid": "bare", "userMessage": "only this"} in [node["properties"] for node in nodes]
    assert msgspec.json.encode(rows)
    await ask(server, "MATCH (n:Plant) DELETE n")


DOUBLED = {
    "turn_uuid": "ConversationTurn",
    "tool_call_uuid": "ToolCall",
    "summary_uuid": "ConversationSummary",
    "project_id": "Project",
    "memory_uuid": "Memory",
    "insight_session": "Insight",
    "user_profile_id": "UserProfile",
    "scope_id": "Scope",
    "code_project_id": "CodeProject",
}
"""Labels by the constraint that lets one of them in once."""


@pytest.mark.changes_schema
async def test_what_is_there_twice_gets_an_id_of_its_own(server: Connection) -> None:
    """Lost constraints let a second one of each in; the store opens again, with all of them.

    All at once: a change of the schema costs the server all of its plans. Two sessions under one
    id are two again, each with what hung on it. To look for damage changes nothing.
    """
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    await store.apply(
        [
            put("a.py", "x"),
            put("b.py", imports=("a.py",)),
            remembered("m"),
            PutProfile(key="name", value="Ana", at=at(1)),
            insight("deep", "Ferns", created_at=at(1)),
        ]
    )
    await store.aclose()
    dropped = {"session_id", "file_path", *DOUBLED}
    await ask(server, *(f"DROP CONSTRAINT {each}" for each in sorted(dropped)))
    second = "MATCH (n:{0}) WITH n LIMIT 1 CREATE (m:{0}) SET m = properties(n)"
    await ask(server, *(second.format(label) for label in DOUBLED.values()))
    await ask(
        server,
        """
        MATCH (e:ConversationSession {sessionId: 'empty'})
        MATCH (:ConversationSession)-[h:HAS_TURN]->(t:ConversationTurn {uuid: 'r4'})
        SET e.sessionId = 'root' CREATE (e)-[:HAS_TURN {index: 4}]->(t) DELETE h
        """,
    )
    # What hangs on a file is shared out between the two.
    await ask(
        server,
        """
        MATCH (f:File {path: 'a.py'})-[d:DEFINES]->(s), (g)-[r:IMPORTS]->(f)
        CREATE (n:File)-[:DEFINES]->(s), (g)-[:IMPORTS {order: 0}]->(n)
        SET n = properties(f) DELETE d, r REMOVE f.hash, f.language
        """,
    )
    [nodes] = await ask(server, "MATCH (n) RETURN count(n) AS nodes")
    before = await everything(server)
    with pytest.raises(StoreRefused) as caught:
        await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    assert "`ragmem store repair`" in caught.value.hint
    repair = await Repair.open(server, timeout_s=60)
    found = await repair.findings()
    assert "no id is there twice" in {each.what for each in found}
    [lacking] = [each for each in found if each.what == "constraints and indexes are there"]
    assert (set(lacking.where.split(", ")), lacking.count) == (dropped, len(dropped))
    assert not dropped & set(await constraint_names(server))
    assert await ask(server, "MATCH (n) RETURN count(n) AS nodes") == [nodes]
    done, left = await repair.mend(at(99)), await repair.findings()
    await repair.aclose()
    assert {
        "made the constraints and indexes that were missing",
        "gave a memory an id of its own",
        "gave a scope an id of its own",
        "set a double insight aside",
        "set a double profile aside",
        "set a double project with code aside",
        "brought together a file that was there twice",
    } < {each.what for each in done}
    assert left == []
    assert await everything(server) >= before
    [held] = await ask(server, "MATCH (n) RETURN count(n) AS nodes")
    assert held["nodes"] >= nodes["nodes"]
    await all_is_read(server)
    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S)
    [other] = await store.sessions(SessionQuery(cwd="/elsewhere"))
    assert [turn.turn_id for turn in await store.turns(other.session_id)] == ["r4"]
    [file] = await store.code_files(GARDEN, ["a.py"])
    assert (file.hash, "x" in [each.scope_id for each in file.scopes]) == ("hash of a.py", True)
    assert (await store.profile()).values == {"name": "Ana"}
    await store.aclose()


def test_every_finding_has_its_test() -> None:
    """No kind of damage is only believed to be found and mended."""
    exact = [*EXACT, *(each for damages in BY_CONSTRAINTS for each in damages)]
    tested = {what for what, _ in exact} | {str(param.values[0]) for param in SALVAGED}
    tested.add("a summary says what it digests")
    tested |= {what for what, _ in [*DAMAGE_OF_MEMORIES, *DAMAGE_OF_CODE]}
    assert tested == set(PROMISES) | {"constraints and indexes are there"}
