"""Schema 2, joined projects: stores of schema 1 open, keep what they hold, and can be joined."""

from pathlib import Path

import apsw

from ragmem.records import Project, RegisterProject
from ragmem.store.base import SessionQuery, Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.sqlite import SQLiteStore, schema
from tests.fakes.neo4j import PATIENCE_S, open_empty_neo4j_store
from tests.store.samples import START, created


def project(name: str, joined_into: str | None = None) -> RegisterProject:
    return RegisterProject(
        project=Project(project_id=name, path=f"/{name}", created_at=START, joined_into=joined_into)
    )


async def joins(store: Store) -> None:
    """The session of `old` becomes one of `new`."""
    assert [p.project_id for p in await store.projects()] == ["old"]
    assert [s.session_id for s in await store.sessions(SessionQuery(project_ids=("old",)))] == ["s"]
    await store.apply([project("new"), project("old", "new")])
    assert [s.session_id for s in await store.sessions(SessionQuery(project_ids=("new",)))] == ["s"]


async def test_a_database_of_schema_1(tmp_path: Path) -> None:
    database = tmp_path / "memory.db"
    first = next(schema.migrations())
    connection = apsw.Connection(str(database))
    connection.pragma("journal_mode", "wal")
    connection.execute(first[2])
    connection.execute("INSERT INTO migrations VALUES (1, 'first', '2026-01-02T03:04:05.000000')")
    connection.execute("INSERT INTO projects VALUES ('old', '/old', NULL, ?)", (START.isoformat(),))
    connection.execute(
        "INSERT INTO sessions (session_id, cwd, project_id, title, title_key, tags, status,"
        " started_at, updated_at, last_activity_at, turn_count)"
        " VALUES ('s', '/old', 'old', 'T', 't', '[]', 'active', :at, :at, :at, 0)",
        {"at": START.isoformat(timespec="microseconds")},
    )
    connection.pragma("user_version", 1)
    connection.close()
    for _ in range(2):
        store = await SQLiteStore.open(database, locks_dir=tmp_path / "locks")
        assert (await store.info()).schema_version == schema.VERSION
        await store.aclose()
    store = await SQLiteStore.open(database, locks_dir=tmp_path / "locks")
    await joins(store)
    await store.aclose()


async def test_a_graph_of_schema_1(neo4j_server: Connection) -> None:
    store = await open_empty_neo4j_store(neo4j_server)
    await store.apply([project("old"), created("s", project_id="old")])
    await store._gateway.write(  # as an earlier version has left it
        lambda tx: tx.run(
            "MATCH (v:RagmemSchema) SET v.version = 1 WITH v MATCH (p:Project) REMOVE p.joinedInto"
        )
    )
    await store.aclose()
    store = await Neo4jStore.open(neo4j_server, timeout_s=PATIENCE_S)
    assert (await store.info()).schema_version >= 2
    await joins(store)
    await store.aclose()
