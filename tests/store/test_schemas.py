"""Every schema that was released opens in this version; a newer one is left as it is.

The fixtures were written by the version that had the schema: see `fixtures/make.py`.
"""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import apsw
import msgspec
import pytest

from ragmem.errors import StoreError, StoreRefused
from ragmem.failpoints import arm
from ragmem.records import (
    CodeFile,
    PutCodeFile,
    PutMemory,
    PutSession,
    PutTurn,
    RegisterProject,
    SessionQuery,
    Write,
    write_decoder,
)
from ragmem.store import Archive
from ragmem.store.neo4j import Connection, Neo4jStore, schema as graph_schema
from ragmem.store.neo4j.gateway import Row
from ragmem.store.neo4j.repair import Repair
from ragmem.store.sqlite import schema
from ragmem.store.transfer import stream_of
from tests.fakes.neo4j import PATIENCE_S, ask, open_empty_neo4j_store
from tests.store.conftest import mostly
from tests.store.fixtures.make import GRAPH, LINKS
from tests.store.opening import by_hand, neo4j, sqlite
from tests.store.samples import begun, finished, remembered, said
from tests.store.test_contract_recall import by_words
from tests.store.test_sqlite_rebuild import rebuilt
from tests.store.test_times import NAMED_ZONE, OTHER_FORMS

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
_WITH_MEMORIES, _WITH_CODE = 4, 5
KEPT = sorted(int(file.stem.split("-")[1]) for file in FIXTURES.glob("schema-*.sql"))
"""The schemas of which there is a fixture: this one, and those of each release before."""
TOGETHER = sorted(set(range(1, KEPT[-1])) - set(KEPT))
"""Came out together with the next: no database of a release has them alone."""
TIMES = {
    "at", "createdAt", "finishedAt", "lastActivity", "leaseUntil", "startTime", "timestamp",
    "updatedAt", "expiresAt", "memoriesDue", "referencesDue", "summaryDue", "summaryVectorsDue",
    "validUntil", "vectorsDue",
}  # fmt: skip


def content(version: int) -> list[Write]:
    """What was in it, as the version that had the schema told it."""
    lines = (FIXTURES / f"schema-{version}.writes.jsonl").read_bytes().splitlines()
    return stored([write_decoder.decode(line) for line in lines])


async def held(store: Archive) -> list[Write]:
    """All that it holds."""
    return stored([write async for batch in stream_of(store)() for write in batch])


def stored(writes: list[Write]) -> list[Write]:
    """Without what is derived (a session's first message is its turn's), nor what is to be done:
    earlier versions told nothing of that."""
    return [
        PutSession(session=msgspec.structs.replace(write.session, first_message=None))
        if isinstance(write, PutSession)
        else msgspec.structs.replace(write, to_extract=False)
        if isinstance(write, PutTurn)
        else write
        for write in writes
    ]


def old_database(home: Path, version: int) -> Path:
    """A database of that schema, as it lay on a disk."""
    home.mkdir(mode=0o700)
    database = apsw.Connection(str(home / "memory.db"))
    database.pragma("journal_mode", "wal")
    database.execute((FIXTURES / f"schema-{version}.sql").read_text("utf-8"))
    database.close()
    return home / "memory.db"


def between(home: Path, version: int) -> Path:
    """A database of a schema that came out together with the next."""
    before = max(each for each in KEPT if each < version)
    path = old_database(home, before)
    database = apsw.Connection(str(path))
    for number, _, sql in schema.migrations():
        if before < number <= version:
            database.execute(sql)
    database.pragma("user_version", version)
    database.close()
    return path


async def old_graph(server: Connection, version: int) -> None:
    """The graph of that schema, in a database that holds nothing else."""
    await (await open_empty_neo4j_store(server, brief=False)).aclose()
    await ask(server, "MATCH (n) DETACH DELETE n")
    lines = (FIXTURES / f"schema-{version}.graph.jsonl").read_bytes().splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    for row in rows:
        properties = row["properties"]
        for name in TIMES & properties.keys():
            properties[name] = datetime.fromisoformat(properties[name])
    await ask(
        server,
        """
        UNWIND $nodes AS row
        CREATE (n:$(row.labels)) SET n = row.properties, n.fixtureNode = row.node
        """,
        nodes=[row for row in rows if "node" in row],
    )
    await ask(
        server,
        """
        UNWIND $links AS row
        MATCH (n {fixtureNode: row.start})
        MATCH (m {fixtureNode: row.end})
        CREATE (n)-[r:$(row.relationship)]->(m) SET r = row.properties
        """,
        links=[row for row in rows if "relationship" in row],
    )
    await ask(server, "MATCH (n) REMOVE n.fixtureNode")


async def graph_as_it_is(server: Connection) -> list[Row]:
    indexes = "SHOW INDEXES YIELD name, type, labelsOrTypes, properties ORDER BY name"
    return [*await ask(server, GRAPH), *await ask(server, LINKS), *await ask(server, indexes)]


async def is_whole_and_goes_on(store: Archive, version: int) -> None:
    assert await held(store) == content(version)
    assert await store.check() == []
    await store.apply([begun("root", "next", "and now?"), finished("root", "next", "Now this.")])
    assert (await store.turns("root"))[-1].assistant_message == "Now this."
    # What was complete before memories were known is not looked through for them.
    complete = ["next", "r1", "r2", "f3", "r3", "d4"]
    to_look_through = complete[:1] if version < _WITH_MEMORIES else complete
    found = await store.pending("memories", limit=9)
    assert [work.record_id for work in found] == to_look_through
    memories = sum(isinstance(each, PutMemory) for each in content(version))
    await store.apply([remembered("m", evidence=(said("root", "next"),))])
    assert (await store.info()).counts["memories"] == memories + 1
    # Whatever was complete is linked with code, as soon as there is some.
    to_link = [each for each in complete[::-1] if version < _WITH_CODE or each != "r1"]
    found = await store.pending("references", limit=9)
    assert [work.record_id for work in found] == ([] if version < _WITH_CODE else to_link)
    file = CodeFile(project_id="project-garden", path="a.py", language="python", hash="1")
    await store.apply([PutCodeFile(file=file)])
    found = await store.pending("references", limit=9)
    assert [work.record_id for work in found] == to_link
    # A project of before can be joined to another.
    known = (await store.projects())[0]
    joined = msgspec.structs.replace(known, joined_into="new")
    whole = len(await store.sessions(SessionQuery(project_ids=(known.project_id,))))
    other = msgspec.structs.replace(known, project_id="new", path="/new")
    await store.apply([RegisterProject(project=other), RegisterProject(project=joined)])
    assert len(await store.sessions(SessionQuery(project_ids=("new",)))) == whole > 0
    assert await store.check() == []


# --- older ------------------------------------------------------------------------


def test_this_schema_has_its_fixture_and_both_stores_count_alike(tmp_path: Path) -> None:
    """Whoever changes it makes one by `fixtures/make.py`, and keeps those of releases."""
    assert schema.VERSION == graph_schema.VERSION == KEPT[-1]
    for version in KEPT:
        assert sum(file.stat().st_size for file in FIXTURES.glob(f"schema-{version}.*")) < 60_000
    made = apsw.Connection(str(tmp_path / "made.db"))
    for _, _, sql in schema.migrations():
        made.execute(sql)
    statements = "SELECT name, sql FROM sqlite_schema WHERE name <> 'identity' ORDER BY name"
    kept = apsw.Connection(str(old_database(tmp_path / "kept", KEPT[-1])))
    assert made.execute(statements).fetchall() == kept.execute(statements).fetchall()


@pytest.mark.parametrize("version", KEPT)
async def test_an_old_database_opens(tmp_path: Path, version: int) -> None:
    """All of it is there, it is whole, and work goes on."""
    database = old_database(tmp_path / "home", version)
    store = await sqlite(tmp_path / "home")
    assert (await store.info()).schema_version == schema.VERSION
    await is_whole_and_goes_on(store, version)
    await store.aclose()
    recorded = by_hand(database, "SELECT version, name FROM migrations ORDER BY version")
    assert recorded == [(number, name) for number, name, _ in schema.migrations()]


@pytest.mark.parametrize("version", [each for each in KEPT if each < _WITH_MEMORIES])
async def test_what_an_older_version_goes_on_to_write_is_found_from_the_next_chat_on(
    tmp_path: Path, version: int
) -> None:
    """By a chat that stayed open when a newer one opened its memory: it keeps no index of words."""
    database = old_database(tmp_path / "home", version)
    await (await sqlite(tmp_path / "home")).aclose()
    by_hand(
        database,
        "UPDATE sessions SET turn_count = 5, completed_count = 4 WHERE session_id = 'root'",
        "INSERT INTO turns (turn_id, session_id, turn_index, status, char_count, started_at,"
        " finished_at, usage, user_message) SELECT 'late', 'root', 5, 'completed', 7, started_at,"
        " finished_at, usage, 'thistle' FROM turns WHERE turn_id = 'r3'",
    )
    store = await sqlite(tmp_path / "home")
    assert await by_words(store, "thistle") == set()
    await store.attach("root", "me")
    assert await by_words(store, "thistle") == {"late"}
    await store.detach("me")
    assert await store.check() == []


@pytest.mark.parametrize("version", mostly([KEPT[0], KEPT[-2]], KEPT))
async def test_an_old_graph_opens(neo4j_server: Connection, version: int) -> None:
    """The same on Neo4j, with times as they were written of old."""
    await old_graph(neo4j_server, version)
    if version < graph_schema.VERSION:
        await ask(neo4j_server, NAMED_ZONE)
    store = await neo4j(neo4j_server)
    assert (await store.info()).schema_version == graph_schema.VERSION
    await is_whole_and_goes_on(store, version)
    await store.aclose()
    rows = await ask(neo4j_server, "MATCH (v:RagmemSchema) RETURN v.version AS version")
    assert rows == [{"version": graph_schema.VERSION}]
    assert await ask(neo4j_server, OTHER_FORMS) == [{"found": []}]


@pytest.mark.parametrize("version", KEPT)
async def test_an_old_database_is_rebuilt_too(tmp_path: Path, version: int) -> None:
    """A damaged database need not be of this version to be saved."""
    database = old_database(tmp_path / "home", version)
    before = database.read_bytes()
    store, lost = await rebuilt(database, tmp_path / "new")
    assert lost == 0
    assert sorted(map(repr, await held(store))) == sorted(map(repr, content(version)))
    assert database.read_bytes() == before


@pytest.mark.parametrize(("action", "why"), [("enospc", "is full"), ("erofs", "can't be written")])
@pytest.mark.parametrize("version", mostly([KEPT[0], KEPT[-2]], KEPT[:-1]))
async def test_an_old_database_that_can_not_be_brought_up_to_date_is_not_read_as_a_new_one(
    tmp_path: Path, version: int, action: str, why: str
) -> None:
    """The reason is told, and it opens as soon as there is none."""
    database = old_database(tmp_path / "home", version)
    schema.marker(database).touch()
    before = schema_of(database)
    arm(f"sqlite.migrate:{action}")
    try:
        with pytest.raises(StoreError, match=why):
            await sqlite(tmp_path / "home")
    finally:
        arm("")
    assert schema_of(database) == before
    store = await sqlite(tmp_path / "home")
    await is_whole_and_goes_on(store, version)


# --- newer ------------------------------------------------------------------------


async def test_a_newer_database_is_left_as_it_is(tmp_path: Path) -> None:
    """Refused politely; byte for byte as before."""
    database = old_database(tmp_path / "home", KEPT[-1])
    by_hand(database, "PRAGMA user_version = 99")
    before = database.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreRefused, match="schema 99") as caught:
            await sqlite(tmp_path / "home")
        assert caught.value.hint == "Update ragmem; nothing was changed."
    assert database.read_bytes() == before
    # SQLite's own files for whoever reads: no page of the database may be in them.
    assert {file.name for file in database.parent.iterdir()} <= {
        "locks", "memory.db", "memory.db-wal", "memory.db-shm",
    }  # fmt: skip
    log = database.with_name("memory.db-wal")
    assert not log.exists() or log.read_bytes() == b""


@pytest.mark.changes_schema
async def test_a_newer_graph_is_left_as_it_is(neo4j_server: Connection) -> None:
    """No node, relationship, constraint or index is touched, nor mended."""
    await old_graph(neo4j_server, KEPT[-1])
    await ask(neo4j_server, "MATCH (v:RagmemSchema) SET v.version = 99")
    await ask(neo4j_server, "DROP INDEX session_cwd")
    before = await graph_as_it_is(neo4j_server)
    for opening in (Neo4jStore.open, Repair.open):
        with pytest.raises(StoreRefused, match="schema 99") as caught:
            await opening(neo4j_server, timeout_s=PATIENCE_S)
        assert "newer ragmem" in str(caught.value)
        assert "Upgrade ragmem" in caught.value.hint
    assert await graph_as_it_is(neo4j_server) == before


# --- killed in the middle ------------------------------------------------------------

_OPEN_SQLITE = """
import asyncio, sys
from pathlib import Path
from ragmem.failpoints import arm
from ragmem.store.sqlite import SQLiteStore
arm(sys.argv[2])
home = Path(sys.argv[1])
asyncio.run(SQLiteStore.open(home / "memory.db", locks_dir=home / "locks"))
"""
_OPEN_NEO4J = """
import asyncio, sys
from ragmem.failpoints import arm
from ragmem.store.neo4j import Connection, Neo4jStore
arm(sys.argv[3])
asyncio.run(Neo4jStore.open(Connection(sys.argv[1], password=sys.argv[2]), timeout_s=50))
"""


def killed(script: str, *arguments: str) -> bool:
    """Whether the process died at its failpoint; else it came to its end."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=110,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def schema_of(database: Path) -> tuple[object, object]:
    """The version that the file says, and the statements that its tables were made by."""
    tables = "SELECT sql FROM sqlite_schema ORDER BY name"
    return by_hand(database, "PRAGMA user_version"), by_hand(database, tables)


MOMENTS = [
    f"{point}:kill9@{hit}"
    for point in ("sqlite.migrate", "sqlite.migrated", "sqlite.mark")
    for hit in range(1, schema.VERSION + 1)
]
USUALLY = [MOMENTS[0], MOMENTS[4], *MOMENTS[schema.VERSION + 2 :: schema.VERSION - 3]]
"""Before the first and the last steps, and after some of them."""


@pytest.mark.parametrize("moment", mostly(USUALLY, MOMENTS))
async def test_killed_while_a_database_is_brought_up_to_date(tmp_path: Path, moment: str) -> None:
    """A whole schema, the old, the new or one that was between
    them, and all that was in it."""
    database = old_database(tmp_path / "home", 1)
    known = [schema_of(old_database(tmp_path / str(each), each)) for each in KEPT]
    known += [schema_of(between(tmp_path / str(each), each)) for each in TOGETHER]
    reference = old_database(tmp_path / "reference", 1)
    await (await sqlite(tmp_path / "reference")).aclose()
    died = killed(_OPEN_SQLITE, str(tmp_path / "home"), moment)
    assert died or moment.startswith("sqlite.mark")
    assert schema_of(database) in (*known, schema_of(reference))
    store = await sqlite(tmp_path / "home")
    await is_whole_and_goes_on(store, 1)
    await store.aclose()
    assert schema_of(database) == schema_of(reference)


@pytest.mark.changes_schema
@pytest.mark.parametrize(
    "point",
    mostly(["neo4j.schema"], [f"neo4j.{at}" for at in ("schema", "begin", "commit", "committed")]),
)
async def test_killed_while_a_graph_is_brought_up_to_date(
    neo4j_server: Connection, point: str
) -> None:
    """Whatever is made by then, the next process completes it."""
    await old_graph(neo4j_server, 1)
    complete = await graph_as_it_is(neo4j_server)
    for name in ("DROP INDEX session_cwd", "DROP INDEX turn_order", "DROP CONSTRAINT summary_uuid"):
        await ask(neo4j_server, name)
    arguments = (neo4j_server.url, neo4j_server.password)
    deaths = 0
    for hit in range(1, 30):
        if not await asyncio.to_thread(killed, _OPEN_NEO4J, *arguments, f"{point}:kill9@{hit}"):
            break
        deaths += 1
        if point == "neo4j.committed":
            continue  # One further each time.
        store = await neo4j(neo4j_server)
        if point == "neo4j.schema":
            # Nothing was made: it is an old graph that opens.
            assert await held(store) == content(1)
        else:
            await is_whole_and_goes_on(store, 1)
        await store.aclose()
        break
    assert deaths
    store = await neo4j(neo4j_server)
    rows = await ask(neo4j_server, "MATCH (v:RagmemSchema) RETURN v.version AS version")
    assert rows == [{"version": graph_schema.VERSION}]
    indexes = [row["name"] for row in await graph_as_it_is(neo4j_server) if "name" in row]
    assert indexes == [row["name"] for row in complete if "name" in row]
    if point == "neo4j.committed":
        await is_whole_and_goes_on(store, 1)
