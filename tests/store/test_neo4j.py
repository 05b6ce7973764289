"""The graph store's own promises: the shape of the graph, hard values, and listing."""

import asyncio
import logging
import re
from pathlib import Path

import pytest

from ragmem.errors import StoreError, StoreRefused
from ragmem.records import FileAccess, SessionQuery, Turn, UpdateSession
from ragmem.store.neo4j import Connection, Neo4jStore
from tests.fakes.neo4j import ask, one
from tests.store.opening import neo4j
from tests.store.samples import at, begun, called, created, finished, project, summed, whole_turn

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


async def test_two_that_replay_a_stream_at_once_make_one_copy(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Each relationship is there once, however often it is written."""
    other = await neo4j(neo4j_server)
    for n in range(4):
        ids = f"s{n}", f"t{n}"
        stream = [
            created(f"s{n}"),
            begun(*ids),
            called(*ids, 0, "a.py", tool_call_id=f"c{n}"),
            finished(*ids),
            summed(*ids, summary_id=f"m{n}"),
            created(f"f{n}", parent_session_id=f"s{n}", forked_at_index=1),
        ]
        await asyncio.gather(graph.apply(stream), other.apply(stream), graph.apply(stream))
    await other.aclose()
    rows = await ask(neo4j_server, "MATCH ()-[r]->() RETURN type(r) AS type, count(r) AS n")
    assert {row["type"]: row["n"] for row in rows} == {
        "ACCESSED": 4, "FINDS": 8, "HAS_BRANCH": 4, "HAS_SUMMARY": 4, "HAS_TOOL_CALL": 4,
        "HAS_TURN": 4, "SUMMARIZES": 4,
    }  # fmt: skip


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


@pytest.mark.campaign
async def test_a_huge_turn_of_an_older_version_is_cut_when_it_is_read(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """By every way to it; what the server holds is left as it is."""
    await graph.apply([created("s"), begun("s", "t"), called("s", "t"), finished("s", "t")])
    await ask(
        neo4j_server,
        """
        MATCH (t:ConversationTurn {uuid: 't'})-[:HAS_TOOL_CALL]->(c:ToolCall)
        SET t.reasoning = $long, t.userMessage = $long, c.toolResult = $long
        """,
        long="words " * 3_000_000,
    )
    [call] = next(iter(await graph.turns("s"))).tool_calls
    found = await graph.find_tool_call("s", call.tool_call_id)
    [known], [listed] = await graph.get(Turn, ["t"]), await graph.sessions(SessionQuery())
    assert found
    assert listed.last_message
    for turn in (next(iter(await graph.turns("s"))), known):
        texts = (turn.reasoning, turn.user_message, turn.tool_calls[0].result, found.result)
        for text in texts:
            assert text
            assert 4_000_000 < len(text) < 4_300_000
            assert text.endswith("characters: the rest is left out]")
    assert len(listed.last_message) == 16 << 20
    [size] = await ask(neo4j_server, "MATCH (t:ConversationTurn) RETURN size(t.reasoning) AS n")
    assert size["n"] == 18_000_000


# --- what a cluster asks of a client, seen on a single server ------------------------


def bookmarks_sent(caplog: pytest.LogCaptureFixture) -> list[set[str]]:
    """The bookmarks of each statement that was read with, as the driver sent them."""
    read = [each for each in caplog.messages if "C: RUN" in each]
    return [set(re.findall(r"'(FB:[^']+)'", each)) for each in read]


async def test_a_read_waits_for_what_was_written(
    graph: Neo4jStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each statement carries the bookmark of the last write, so that any member
    of a cluster answers from a state that has it: one reads what one wrote."""
    caplog.set_level(logging.DEBUG, logger="neo4j.io")
    await graph.apply([created("s")])
    after_first = set(await graph._gateway._bookmarks.get_bookmarks())
    assert after_first
    caplog.clear()
    await graph.turns("s")
    assert bookmarks_sent(caplog) == [after_first]

    await graph.apply([*whole_turn("s")])
    after_second = set(await graph._gateway._bookmarks.get_bookmarks())
    assert after_second
    assert after_second != after_first
    caplog.clear()
    await graph.sessions(SessionQuery(cwd="/home/ana/garden"))
    assert bookmarks_sent(caplog) == [after_second]


async def test_a_bookmark_that_is_not_known_is_no_stale_answer(graph: Neo4jStore) -> None:
    """The server looks at the bookmark: one that it can't place is an error, in words."""
    await graph.apply([created("s")])
    kept = await graph._gateway._bookmarks.get_bookmarks()
    await graph._gateway._bookmarks.update_bookmarks(kept, ["FB:unheard-of"])
    with pytest.raises(StoreError):
        await graph.session("s")


async def test_listing_goes_over_what_a_wrong_clock_has_put_ahead(graph: Neo4jStore) -> None:
    """Sessions of the future come last, and all are there, none twice."""
    for number in range(6):
        await graph.apply([created(f"s{number}", started_at=at(number), updated_at=at(number))])
    await graph.apply([UpdateSession(session_id="s3", title="x", at=at(3))])
    server_side = "MATCH (s:ConversationSession {sessionId: 's2'}) SET s.lastActivity = $at"
    await graph._gateway.write(lambda tx: tx.run(server_side, at=at(10**7)))
    for limit in (1, 3, 5, 6, 9):
        listed = await graph.sessions(SessionQuery(limit=limit))
        wanted = ["s5", "s4", "s3", "s1", "s0", "s2"]
        assert [each.session_id for each in listed] == wanted[:limit]


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
