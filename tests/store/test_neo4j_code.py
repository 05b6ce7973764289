"""Code in the graph: its shape, older schemas, races, size."""

import asyncio
import time

from neo4j import AsyncGraphDatabase

from ragmem.records import DropCodeFiles, PutReferences, ScopeQuery, TurnsQuery, Write
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.code import STATEMENTS
from tests.fakes.neo4j import PATIENCE_S, ask, one
from tests.store.code_samples import GARDEN, a_scope, put, refers
from tests.store.opening import neo4j
from tests.store.samples import at, begun, called, created, finished, project, whole_turn


def known() -> list[Write]:
    """Two files of which one imports the other, a turn that has to do with both, one due."""
    return [
        created("s"),
        begun("s", "t1", "Why is it dry?", started_at=at(1)),
        called("s", "t1", 0, "beds.py", "list.txt", tool_call_id="c1"),
        finished("s", "t1"),
        *whole_turn("s", "t2", "And now?", started_at=at(2)),
        put("beds.py", "water", a_scope("Bed", line=9, kind="class")),
        put("main.py", "main", imports=("beds.py", "gone.py")),
        refers("t1", water="edited", main="named"),
    ]


# --- the shape ---------------------------------------------------------------


async def test_how_code_hangs_together(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """DEFINES, IMPORTS, REFERENCES_CODE, and the File that a tool touched."""
    await graph.apply(known())
    rows = await ask(
        neo4j_server,
        """
        MATCH (n)-[r:DEFINES|IMPORTS|REFERENCES_CODE|ACCESSED]->(m)
        WITH coalesce(n.path, n.uuid) AS start, type(r) AS link, coalesce(r.how, r.type, '') AS how,
             coalesce(m.path + ':' + m.name, m.path) AS end
        RETURN start, link, how, end ORDER BY link, start, end
        """,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("t1", "ACCESSED", "read", "beds.py"),
        ("t1", "ACCESSED", "read", "list.txt"),
        ("beds.py", "DEFINES", "", "beds.py:Bed"),
        ("beds.py", "DEFINES", "", "beds.py:water"),
        ("main.py", "DEFINES", "", "main.py:main"),
        ("main.py", "IMPORTS", "", "beds.py"),
        ("main.py", "IMPORTS", "", "gone.py"),
        ("t1", "REFERENCES_CODE", "edited", "beds.py:water"),
        ("t1", "REFERENCES_CODE", "named", "main.py:main"),
    ]
    # What is only imported is not of the index; what tools touched is counted as before.
    assert [file.path for file in await graph.code_files(GARDEN)] == ["beds.py", "main.py"]
    counts = (await graph.info()).counts
    assert (counts["files"], counts["scopes"]) == (2, 3)
    assert await graph.check() == []


async def test_a_file_goes_when_nothing_has_to_do_with_it(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """The node stays while a turn touched it or a file imports it, and not longer."""
    await graph.apply(known())
    paths = "MATCH (f:File) WITH f ORDER BY f.path RETURN collect(f.path) AS paths"
    await graph.apply([DropCodeFiles(project_id=GARDEN, paths=("beds.py", "main.py", "never.py"))])
    assert await one(neo4j_server, paths) == {"paths": ["beds.py", "list.txt"]}
    assert await graph.code_projects() == []
    left = await graph.find_scopes(ScopeQuery())
    assert [(each.scope.name, each.defined) for each in left] == [("water", False), ("main", False)]
    assert await graph.check() == []
    await graph.delete_session("s")
    assert await one(neo4j_server, "MATCH (n:Scope|File) RETURN count(n) AS n") == {"n": 0}
    assert await graph.check() == []


async def test_a_session_that_goes_leaves_the_index(graph: Neo4jStore) -> None:
    """Files that are of the index, or imported by them, are not the session's."""
    await graph.apply(known())
    before = await graph.code_files(GARDEN)
    await graph.delete_session("s")
    assert await graph.code_files(GARDEN) == before
    assert (await graph.info()).counts["files"] == 0
    assert await graph.check() == []


async def test_a_joined_folder_keeps_its_files(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """Accesses go to the project that it was joined to, what is defined stays."""
    await graph.apply([project(GARDEN), project("root"), *known()])
    before = await graph.code_files(GARDEN)
    await graph.apply([project(GARDEN, "root")])
    assert await graph.code_files(GARDEN) == before
    assert await graph.code_files("root") == []
    rows = await ask(
        neo4j_server,
        "MATCH (f:File)<-[:ACCESSED]-() RETURN f.projectId AS id, f.path AS path ORDER BY path",
    )
    assert [tuple(row.values()) for row in rows] == [("root", "beds.py"), ("root", "list.txt")]
    for project_id in (GARDEN, "root"):
        found = await graph.find_scopes(ScopeQuery(project_ids=(project_id,), name="water"))
        assert [each.project_id for each in found] == [GARDEN]
        asked = TurnsQuery(project_ids=(project_id,), paths=("beds.py",))
        assert [turn.turn_id for turn in await graph.code_turns(asked)] == ["t1"]
    assert [each.record_id for each in await graph.pending("references", limit=9)] == ["t2"]
    assert await graph.check() == []


async def test_names_longer_than_an_index_takes(graph: Neo4jStore) -> None:
    """A name or a path that no index holds is stored and found all the same."""
    name = "é" * 9000
    long = a_scope("long", name, qualified_name=f"A.{name}")
    await graph.apply([put("a" * 9000, long, hash="h")])
    for asked in (name, name.upper(), f"a.{name}"):
        [found] = await graph.find_scopes(ScopeQuery(name=asked))
        assert found.scope == long
    [file] = await graph.code_files(GARDEN)
    assert await graph.code_files(GARDEN, ["a" * 9000]) == [file]


# --- from an older schema -----------------------------------------------------------------


# --- lost answers, and others at the same time --------------------------------------------


async def test_two_who_put_the_same_files(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """Scopes that wander between files while turns are linked and sessions go; none is lost
    that something holds, and none stays that nothing holds."""
    other = await neo4j(neo4j_server)
    here = [a_scope(f"x{n}", line=n + 1) for n in range(20)]

    async def wander(store: Neo4jStore, first: str, second: str) -> None:
        for n in range(8):
            part = here[n : n + 10]
            await store.apply([put(first, *part, imports=(second,)), put(second)])
            await store.apply([put(first), put(second, *part, imports=(first,))])

    async def link(store: Neo4jStore) -> None:
        for n in range(8):
            await store.apply([created(f"s{n}"), *whole_turn(f"s{n}", f"t{n}")])
            await store.apply([refers(f"t{n}", **{f"x{n}": "read", f"x{n + 8}": "edited"})])
            if n % 2:
                await store.delete_session(f"s{n}")

    async def touch(store: Neo4jStore) -> None:
        await store.apply([created("r"), begun("r", "u")])
        for n in range(8):
            await store.apply([called("r", "u", n, "b.py", "a.py")])

    await asyncio.gather(
        wander(graph, "a.py", "b.py"), wander(other, "b.py", "a.py"), link(other), touch(graph)
    )
    assert await graph.check() == []
    # A scope that went while nothing held it can't have been referred to.
    for reference in await graph.get(PutReferences, [f"t{n}" for n in range(0, 8, 2)]):
        ids = {each.scope_id for each in reference.references}
        held = {each.scope.scope_id for each in await graph.find_scopes(ScopeQuery(limit=999))}
        assert ids <= held


async def test_a_conversation_goes_on_while_files_come_in(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Who waits to link a turn holds nothing that its session needs."""
    await graph.apply(known())
    other = await neo4j(neo4j_server)
    driver = AsyncGraphDatabase.driver(neo4j_server.url, auth=("neo4j", neo4j_server.password))
    async with driver, driver.session() as session:
        files = await session.begin_transaction()
        await (await files.run(STATEMENTS["lock_code"], ids=[GARDEN])).consume()
        linking = asyncio.create_task(other.apply([refers("t2", Bed="read")]))
        await asyncio.sleep(0.5)
        async with asyncio.timeout(PATIENCE_S / 2):
            await graph.apply([begun("s", "t3"), called("s", "t3", 0, "beds.py")])
            await graph.apply([finished("s", "t3")])
        assert not linking.done()
        await files.commit()
        await linking
    assert [each.turn_id for each in await graph.get(PutReferences, ["t2"])] == ["t2"]


# --- size ---------------------------------------------------------------------------------


async def test_many_files_are_put_in_short_transactions(graph: Neo4jStore) -> None:
    """Nobody waits long for a store that takes in an index, or throws it away."""
    slowest = 0.0
    for start in range(0, 100, 50):
        writes = [
            put(
                f"pkg/m{n:04}.py",
                *(a_scope(f"{n}-{k}", f"f{k}", 10 * k + 1) for k in range(10)),
                imports=(f"pkg/m{n // 2:04}.py",),
            )
            for n in range(start, start + 50)
        ]
        began = time.monotonic()
        await graph.apply(writes)
        slowest = max(slowest, time.monotonic() - began)
    # Below 0.3 s on a machine that does nothing else.
    assert slowest < 20
    files = await graph.code_files(GARDEN)
    assert len(files) == 100
    assert [file.path for file in files] == sorted(file.path for file in files)
    assert [file.path for file in await graph.code_files(GARDEN, ["pkg/m0007.py", "no"])] == [
        "pkg/m0007.py"
    ]
    assert len(await graph.find_scopes(ScopeQuery(limit=2**31 - 1))) == 1000
    assert await graph.check() == []
    paths = tuple(file.path for file in files)
    await graph.apply([DropCodeFiles(project_id=GARDEN, paths=paths)])
    assert (await graph.info()).counts["scopes"] == 0
