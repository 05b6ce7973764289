"""The graph store's own promises: the shape of the graph, its schema, and hard values."""

import asyncio
import re
from pathlib import Path

import pytest

from ragmem.errors import StoreRefused
from ragmem.ids import new_id
from ragmem.records import BeginTurn, FileAccess, Project, RegisterProject, Usage
from ragmem.store.neo4j import Connection, Neo4jStore
from tests.fakes.neo4j import ask, one
from tests.store.samples import START, at, begun, called, created, finished, summed, whole_turn

# --- the shape (A.5 to A.9) ------------------------------------------------


async def test_session_node(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """Label, camelCase names, native times and lists."""
    await graph.apply([created("s", project_path="/home/ana/garden", tags=("shade", "ferns"))])
    row = await one(
        neo4j_server,
        """
        MATCH (s:ConversationSession) RETURN labels(s) AS labels, properties(s) AS p,
        valueType(s.startTime) AS startTime, valueType(s.lastActivity) AS lastActivity,
        valueType(s.updatedAt) AS updatedAt, valueType(s.tags) AS tags
        """,
    )
    assert row["labels"] == ["ConversationSession"]
    assert row["p"] == {
        "sessionId": "s",
        "cwd": "/home/ana/garden",
        "projectId": "project-garden",
        "projectPath": "/home/ana/garden",
        "title": "New Conversation",
        "titleFolded": "new conversation",
        "tags": ["shade", "ferns"],
        "status": "active",
        "startTime": START,
        "updatedAt": START,
        "lastActivity": START,
        "turnCount": 0,
        "messageCount": 0,
        "summarizedCount": 0,
    }
    assert {row["startTime"], row["lastActivity"], row["updatedAt"]} == {"ZONED DATETIME NOT NULL"}
    assert row["tags"] == "LIST<STRING NOT NULL> NOT NULL"


async def test_turn_node_and_its_place(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """A turn hangs on its session by HAS_TURN {index}."""
    await graph.apply(
        [
            created("s"),
            begun("s", "t", "Who?"),
            finished(
                "s",
                "t",
                "Ana. é",
                reasoning="hm",
                usage=Usage(
                    input_tokens=120,
                    output_tokens=30,
                    cached_tokens=7,
                    cost_usd=0.25,
                    model_calls=2,
                    api_ms=90,
                ),
            ),
        ]
    )
    row = await one(
        neo4j_server,
        """
        MATCH (:ConversationSession {sessionId: 's'})-[r]->(t:ConversationTurn)
        RETURN type(r) AS type, properties(r) AS r, properties(t) AS t, labels(t) AS labels
        """,
    )
    assert (row["type"], row["r"], row["labels"]) == (
        "HAS_TURN",
        {"index": 1},
        ["ConversationTurn"],
    )
    assert row["t"] == {
        "uuid": "t",
        "sessionId": "s",
        "userMessage": "Who?",
        "assistantMessage": "Ana. é",
        "reasoning": "hm",
        "timestamp": START,
        "finishedAt": at(2),
        "turnIndex": 1,
        "level": 0,
        "status": "completed",
        "memoriesDue": START,
        "userCharCount": 4,
        "charCount": 10,
        "model": "fake/one",
        "inputTokens": 120,
        "outputTokens": 30,
        "cachedTokens": 7,
        "tokenCount": 150,
        "cost": 0.25,
        "modelCalls": 2,
        "apiMs": 90,
    }


async def test_tool_call_node(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """HAS_TOOL_CALL {order}; arguments and result as JSON."""
    failure = called("s", "t", 1, tool_call_id="c", success=False, error="no such file")
    await graph.apply([created("s"), begun("s", "t"), failure])
    row = await one(
        neo4j_server,
        """
        MATCH (:ConversationTurn {uuid: 't'})-[r]->(c:ToolCall)
        RETURN type(r) AS type, properties(r) AS r, properties(c) AS c
        """,
    )
    assert (row["type"], row["r"]) == ("HAS_TOOL_CALL", {"order": 1})
    assert row["c"] == {
        "uuid": "c",
        "toolName": "read_file",
        "toolArgs": failure.call.arguments,
        "toolResult": failure.call.result,
        "success": False,
        "error": "no such file",
        "durationMs": 12,
        "timestamp": at(1),
        "iteration": 0,
        "resultSizeBytes": len(failure.call.result.encode()),
        "origin": "model",
        "preamble": "",
    }


async def test_files_are_shared_by_the_turns_of_a_project(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """ACCESSED {type, at} leads to one File for each project and path."""
    await graph.apply(
        [
            RegisterProject(project=Project(project_id="other", path="/o", created_at=START)),
            created("s"),
            created("o", project_id="other"),
            begun("s", "t1"),
            called("s", "t1", 0, "a.py", "b.py", tool_call_id="c1"),
            begun("s", "t2"),
            called("s", "t2", 0, "a.py", tool_call_id="c2"),
            begun("o", "t3"),
            called("o", "t3", 0, "a.py", tool_call_id="c3"),
        ]
    )
    rows = await ask(
        neo4j_server,
        """
        MATCH (t:ConversationTurn)-[r:ACCESSED]->(f:File)
        RETURN t.uuid AS turn, r.type AS type, r.at AS at, f.projectId AS project, f.path AS path
        ORDER BY turn, path
        """,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("t1", "read", at(1), "project-garden", "a.py"),
        ("t1", "read", at(1), "project-garden", "b.py"),
        ("t2", "read", at(1), "project-garden", "a.py"),
        ("t3", "read", at(1), "other", "a.py"),
    ]
    assert (await one(neo4j_server, "MATCH (f:File) RETURN count(f) AS n"))["n"] == 3
    assert (await graph.info()).counts["files"] == 3


async def test_one_call_may_read_and_write_a_file(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Two kinds of access of one call are two, and each again is once."""
    call = called("s", "t", 0)
    both = tuple(
        FileAccess(path="a.py", tool_name="edit_file", access_type=kind, accessed_at=at(1))
        for kind in ("read", "write")
    )
    write = type(call)(session_id="s", call=call.call, accesses=both)
    await graph.apply([created("s"), begun("s", "t"), write])
    await graph.apply([write, write])
    row = await one(neo4j_server, "MATCH ()-[r:ACCESSED]->() RETURN collect(r.type) AS types")
    assert sorted(row["types"]) == ["read", "write"]


async def test_summary_nodes(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """HAS_SUMMARY and SUMMARIZES carry the level."""
    await graph.apply(
        [
            created("s"),
            *whole_turn("s", "t1"),
            *whole_turn("s", "t2"),
            summed("s", "t1", summary_id="one"),
            summed("s", "t2", summary_id="two"),
            summed("s", "one", "two", level=2, summary_id="high", turn_count=2),
            summed("s", "high", level=3, summary_id="higher", turn_count=2),
        ]
    )
    held = await ask(
        neo4j_server,
        """
        MATCH (:ConversationSession {sessionId: 's'})-[r:HAS_SUMMARY]->(m:ConversationSummary)
        RETURN m.uuid AS uuid, r.level AS level, m.level AS own ORDER BY uuid
        """,
    )
    assert [tuple(row.values()) for row in held] == [
        ("high", 2, 2),
        ("higher", 3, 3),
        ("one", 1, 1),
        ("two", 1, 1),
    ]
    covered = await ask(
        neo4j_server,
        """
        MATCH (m:ConversationSummary)-[r:SUMMARIZES]->(x)
        RETURN m.uuid AS m, r.level AS level, labels(x) AS labels, x.uuid AS x ORDER BY m, x
        """,
    )
    assert [tuple(row.values()) for row in covered] == [
        ("high", 2, ["ConversationSummary"], "one"),
        ("high", 2, ["ConversationSummary"], "two"),
        ("higher", 3, ["ConversationSummary"], "high"),
        ("one", 1, ["ConversationTurn"], "t1"),
        ("two", 1, ["ConversationTurn"], "t2"),
    ]
    row = await one(
        neo4j_server, "MATCH (m:ConversationSummary {uuid: 'one'}) RETURN properties(m) AS p"
    )
    assert row["p"] == {
        "uuid": "one",
        "sessionId": "s",
        "summary": "Shade plants were discussed.",
        "level": 1,
        "charCount": 28,
        "turnCount": 1,
        "filesMentioned": ["plants.txt", "beds/north.txt"],
        "keyFindings": ["ferns like shade"],
        "toolsUsed": ["read_file"],
        "topics": ["shade", "plants"],
        "timestamp": at(5),
        "extractive": False,
    }


async def test_a_fork_branches_and_copies_nothing(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """HAS_BRANCH leads from the parent to the fork; shared turns exist once."""
    await graph.apply(
        [
            created("s"),
            *whole_turn("s", "t1"),
            *whole_turn("s", "t2"),
            created("f", parent_session_id="s", forked_at_index=1),
            *whole_turn("f", "t3"),
        ]
    )
    row = await one(
        neo4j_server,
        """
        MATCH (p:ConversationSession)-[:HAS_BRANCH]->(f:ConversationSession)
        MATCH (f)-[h:HAS_TURN]->(t)
        RETURN p.sessionId AS p, f.sessionId AS f, collect([t.uuid, h.index]) AS turns
        """,
    )
    assert row == {"p": "s", "f": "f", "turns": [["t3", 2]]}
    assert [turn.turn_id for turn in await graph.turns("f")] == ["t1", "t3"]


async def test_a_stream_twice_makes_no_second_relationship(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Each relationship is there once, however often it is written."""
    writes = [
        created("s"),
        begun("s", "t"),
        called("s", "t", 0, "a.py"),
        finished("s", "t"),
        summed("s", "t"),
        created("f", parent_session_id="s", forked_at_index=1),
    ]
    for _ in range(3):
        await graph.apply(writes)
    rows = await ask(
        neo4j_server, "MATCH ()-[r]->() RETURN type(r) AS type, count(r) AS n ORDER BY type"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("ACCESSED", 1),
        ("FINDS", 2),
        ("HAS_BRANCH", 1),
        ("HAS_SUMMARY", 1),
        ("HAS_TOOL_CALL", 1),
        ("HAS_TURN", 1),
        ("SUMMARIZES", 1),
    ]


# --- times, numbers, order ---------------------------------------------------------


async def test_a_lease_that_ran_out_frees_the_turn(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """30 s on the server's clock; an owner that was not heard of since lives no more."""
    await graph.apply([created("s")])
    assert await graph.attach("s", "first") == []
    await graph.apply([begun("s", "t", owner_id="first")])
    assert await graph.attach("s", "second") == ["first"]
    assert (await graph.turns("s"))[0].status == "running"
    first = "MATCH (o:Process {ownerId: 'first'})"
    lease = f"{first} RETURN o.leaseUntil > datetime.realtime() AS holds"
    assert (await one(neo4j_server, lease))["holds"]

    expire = "MATCH (o:Process {ownerId: 'first'}) SET o.leaseUntil = datetime.realtime()"
    await ask(neo4j_server, expire)
    await graph.heartbeat("first")
    assert (await one(neo4j_server, lease))["holds"]
    assert await graph.attach("s", "second") == ["first"]
    assert (await graph.turns("s"))[0].status == "running"

    await ask(neo4j_server, expire)
    assert await graph.attach("s", "second") == []
    [turn] = await graph.turns("s")
    assert (turn.status, turn.owner_id) == ("interrupted", None)


async def test_the_lease_is_thirty_seconds(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """Counted from the server's clock."""
    await graph.apply([created("s")])
    await graph.attach("s", "me")
    row = await one(
        neo4j_server,
        "MATCH (o:Process)"
        " RETURN duration.inSeconds(datetime.realtime(), o.leaseUntil).seconds AS s",
    )
    assert 20 <= row["s"] <= 30


async def test_a_dead_owner_of_long_ago_is_forgotten(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Owners don't pile up."""
    await graph.apply([created("s")])
    await graph.attach("s", "old")
    await ask(
        neo4j_server,
        "MATCH (o:Process) SET o.leaseUntil = datetime.realtime() - duration({days: 2})",
    )
    await graph.attach("s", "new")
    rows = await ask(neo4j_server, "MATCH (o:Process) RETURN o.ownerId AS id")
    assert [row["id"] for row in rows] == ["new"]


async def test_writers_that_cross_do_not_deadlock_for_good(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Batches that lock two sessions in opposite order are run again."""
    await graph.apply([created("a"), created("b")])

    async def write(first: str, second: str) -> None:
        for _ in range(15):
            await graph.apply([begun(first), begun(second)])

    await asyncio.gather(write("a", "b"), write("b", "a"))
    for session_id in ("a", "b"):
        indexes = [turn.turn_index for turn in await graph.turns(session_id)]
        assert indexes == list(range(1, 31))


@pytest.mark.parametrize("size", [1700, 8200, 1_000_000])
async def test_titles_and_paths_longer_than_an_index_takes(
    graph: Neo4jStore, neo4j_server: Connection, size: int
) -> None:
    """A long title is kept and found; a long path doesn't cost its call."""
    title = "É" * size
    await graph.apply([created("s", title=title), created("other", title=title + "e")])
    await graph.apply([begun("s", "t"), called("s", "t", 0, "ü" * size, "a.py")])
    assert [session.title for session in await graph.find_sessions("é" * size)] == [title]
    [turn] = await graph.turns("s")
    assert len(turn.tool_calls) == 1
    paths = [access.path for access in await graph.file_accesses("s", max_turn_chars=100)]
    assert paths[0] == "a.py"
    assert paths[1] == "ü" * size if size == 1700 else "characters left out" in paths[1]


async def test_a_folder_longer_than_an_index_takes(graph: Neo4jStore) -> None:
    """Refused for good, not "try again"."""
    with pytest.raises(StoreRefused, match="longer than its index"):
        await graph.apply([created("s", cwd="/" + "x" * 9000)])


# --- nothing secret, nothing heavy -------------------------------------------------


def test_a_connection_never_shows_its_password() -> None:
    """Neither printed nor formatted."""
    connection = Connection("bolt://host:7687", password="hunter2")
    assert "hunter2" not in repr(connection)
    assert "hunter2" not in f"{connection}"
    assert Connection("bolt://ana:hunter2@host").location == "bolt://host"


@pytest.mark.parametrize(
    "url",
    [
        "bolt://host",
        "bolt+s://host:7687",
        "bolt+ssc://127.0.0.1:7687",
        "neo4j://host",
        "neo4j+s://name.example.org",
        "neo4j+ssc://[::1]:7687",
    ],
)
def test_addresses_of_all_six_kinds(url: str) -> None:
    """Plain, routed, and both with TLS."""
    assert Connection(url).check().url == url


@pytest.mark.parametrize(
    "url",
    ["", "host:7687", "http://host:7474", "bolt://", "bolt://h:99999", "bolt://u:hunter2@host"],
)
def test_wrong_addresses_are_refused(url: str) -> None:
    """With what a right one looks like, and without a password in the message."""
    with pytest.raises(StoreRefused) as caught:
        Connection(url).check()
    assert caught.value.hint
    assert "hunter2" not in str(caught.value) + caught.value.hint


def test_every_statement_is_used() -> None:
    """No dead Cypher: each named statement is asked for somewhere, by its name or its beginning."""
    from ragmem.store import neo4j
    from ragmem.store.neo4j.gateway import named_statements

    folder = Path(neo4j.__file__).parent
    code = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    asked, begun_with = (
        set(re.findall(r'"(\w+)"', code)),
        ("pending_", "small_vectors_of_", "vectors_of_"),
    )
    as_one = {"checks.cypher", "recall_checks.cypher", "repair.cypher", "schema.cypher"}
    names = {
        name
        for path in folder.glob("*.cypher")
        if path.name not in as_one
        for name in named_statements(path.name)
    }
    assert len(names) > 150
    assert {name for name in names - asked if not name.startswith(begun_with)} == set()


async def test_ids_are_the_callers_own(graph: Neo4jStore) -> None:
    """The id that the client made is the id in the graph."""
    session_id, turn_id = new_id(), new_id()
    write = BeginTurn(turn_id=turn_id, session_id=session_id, user_message="Hi", started_at=START)
    applied = await graph.apply([created(session_id), write])
    assert applied.turn_indexes == {turn_id: 1}
    assert [turn.turn_id for turn in await graph.turns(session_id)] == [turn_id]
