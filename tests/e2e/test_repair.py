"""`ragmem store repair` on Neo4j, by the person's own commands; see tests/store for each kind."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragmem.store.neo4j import Connection
from tests.cli.coding import recorded
from tests.cli.process import Ragmem
from tests.fakes.neo4j import ask, in_thread, neo4j_env


@pytest.fixture
def ragmem(tmp_path: Path, neo4j_server: Connection) -> Iterator[Ragmem]:
    """Two turns in Neo4j, one of them with a tool call."""
    with recorded(tmp_path, **neo4j_env(neo4j_server)) as one:
        yield one


@pytest.mark.changes_schema
def test_a_server_that_is_up_has_looked_at_the_memory_once(
    tmp_path: Path, neo4j_server: Connection
) -> None:
    """The first answers of one that has just started take seconds: no command waits for them."""
    ragmem = Ragmem(tmp_path, neo4j_env(neo4j_server))
    in_thread(ask(neo4j_server, "MATCH (v:RagmemSchema) DELETE v"))
    assert " answers." in ragmem.ok("neo4j", "up").out
    assert in_thread(ask(neo4j_server, "MATCH (v:RagmemSchema) RETURN v.version"))


def test_a_damaged_graph_is_mended(ragmem: Ragmem, neo4j_server: Connection) -> None:
    """Named, kept as it was, written anew; then work goes on."""
    (session,) = ragmem.sessions()
    before = ragmem.shown(session["session_id"])
    assert ragmem.run("store", "repair").out == "Nothing to repair.\n"
    for damage in (
        "MATCH (s:ConversationSession) SET s.turnCount = 7",
        "MATCH ()-[h:HAS_TURN]->(t {turnIndex: 1}) DELETE h",
    ):
        in_thread(ask(neo4j_server, damage))
    done = ragmem.run("store", "check")
    assert done.code == 1
    assert [line.split(" (")[0] for line in done.out.splitlines()] == [
        "violated: turns are counted from 1 without gaps",
        "violated: the newest turn of a session is known",
        "violated: a turn belongs to its session",
    ]

    done = ragmem.run("store", "repair")
    assert (done.code, done.out) == (0, "Recovered: 1 session, 2 turns.\n"), done.err
    *found, kept = done.err.splitlines()
    assert len(found) == 3
    assert session["session_id"] in found[0]
    file = Path(kept.removeprefix("The original graph is kept in ").partition(" (")[0])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    counted = [row["properties"].get("turnCount") for row in rows if "node" in row]
    assert 7 in counted

    assert ragmem.run("store", "check").out == "No problems found: 1 session, 2 turns.\n"
    assert ragmem.run("store", "repair").out == "Nothing to repair.\n"
    assert ragmem.shown(session["session_id"]) == before
    assert ragmem.run("ask", "-c", "Still there?").code == 0
    (saved,) = file.parent.glob("graph-*.saved.db")
    done = ragmem.run("store", "migrate", "--from", str(saved), "--yes")
    assert done.code == 0, done.err
    in_thread(ask(neo4j_server, "MATCH (n) DETACH DELETE n"))
