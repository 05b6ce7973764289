"""The graph store's own promises: the shape of the graph, its schema, and hard values."""

import asyncio
import re
from pathlib import Path

import pytest

from ragmem.errors import StoreRefused
from ragmem.records import FileAccess
from ragmem.store.neo4j import Connection, Neo4jStore
from tests.fakes.neo4j import PATIENCE_S, ask, one
from tests.store.samples import at, begun, called, created, finished, project, summed

# --- the shape -------------------------------------------------------------------


async def test_files_are_shared_by_the_turns_of_a_project(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """ACCESSED {type, at} leads to one File for each project and path."""
    await graph.apply(
        [
            project("other"),
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


async def test_two_that_replay_a_stream_at_once_make_one_copy(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    other = await Neo4jStore.open(neo4j_server, timeout_s=PATIENCE_S)
    for n in range(4):
        ids = f"s{n}", f"t{n}"
        stream = [created(f"s{n}"), begun(*ids), called(*ids, 0, "a.py", tool_call_id=f"c{n}")]
        stream.append(finished(*ids))
        await asyncio.gather(graph.apply(stream), other.apply(stream), graph.apply(stream))
    await other.aclose()
    row = await one(
        neo4j_server,
        """
        RETURN COUNT { (:ConversationSession) } AS sessions, COUNT { (:ConversationTurn) } AS turns,
               COUNT { (:ToolCall) } AS calls,
               COUNT { ()-[:HAS_TURN|HAS_TOOL_CALL|ACCESSED]->() } AS links
        """,
    )
    assert row == {"sessions": 4, "turns": 4, "calls": 4, "links": 12}


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
    left = f"{first} RETURN duration.inSeconds(datetime.realtime(), o.leaseUntil).seconds AS s"
    assert 20 <= (await one(neo4j_server, left))["s"] <= 30

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


async def test_titles_and_paths_longer_than_an_index_takes(graph: Neo4jStore) -> None:
    """A long title is kept and found; a long path doesn't cost its call."""
    for size in (1700, 8200, 1_000_000):
        s, t, title = f"s{size}", f"t{size}", "É" * size
        await graph.apply([created(s, title=title), created(f"other{size}", title=title + "e")])
        await graph.apply([begun(s, t), called(s, t, 0, "ü" * size, "a.py")])
        assert [session.title for session in await graph.find_sessions("é" * size)] == [title]
        [turn] = await graph.turns(s)
        assert len(turn.tool_calls) == 1
        paths = [access.path for access in await graph.file_accesses(s, max_turn_chars=100)]
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
    as_one = {"checks.cypher", "recall_checks.cypher", "schema.cypher"}
    names = {
        name
        for path in folder.glob("*.cypher")
        if path.name not in as_one
        for name in named_statements(path.name)
    }
    assert len(names) > 150
    assert {name for name in names - asked if not name.startswith(begun_with)} == set()
