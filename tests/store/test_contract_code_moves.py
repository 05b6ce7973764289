"""Code on its way: moved, backed up, waiting in the spool, cut off in the middle."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ragmem.errors import StoreUnavailable
from ragmem.records import DropCodeFiles, Project, RegisterProject, Write
from ragmem.store.base import Archive, Store
from ragmem.store.code import ScopeQuery, TurnsQuery
from ragmem.store.neo4j import Connection
from ragmem.store.spool import Waiting, count_waiting
from ragmem.store.transfer import compare, copy, stream_of
from ragmem.store.transfer.document import document_of, encoded, import_document
from ragmem.store.transfer.lines import stream_of_lines, write_lines
from ragmem.store.transfer.stream import Stream
from tests.fakes.neo4j import open_empty_neo4j_store
from tests.store.code_samples import (
    GARDEN,
    KITCHEN,
    SHED,
    a_scope,
    code_seen,
    conversation,
    put,
    refers,
    scopes_there,
)
from tests.store.samples import at, known, whole_turn
from tests.store.test_contract_recall import waiting
from tests.store.test_recall_moves import quietly
from tests.store.test_spool import Home, home, settled
from tests.store.test_transfer import garden, moved, pair, source, sqlite, target

__all__ = ["home", "pair", "source", "target"]

ROOT = Path(__file__).parents[2]
TURNS = ("r1", "r2", "r3", "r4", "f3", "d4", "d5")
THERE = {
    "one": "a.py",
    "two": "(a.py)",
    "three": "(gone.py)",
    "four": "b.py",
    "kitchen": "a.py",
    "shed": "(shed.py)",
}


async def filled(store: Archive) -> None:
    """Files, scopes that no file defines any more, and turns that have to do with both."""
    shed = Project(project_id=SHED, path="/home/ana/shed", created_at=at(40))
    await store.apply([*garden(), *known(), RegisterProject(project=shed)])
    await store.apply(
        [
            put("a.py", "one", a_scope("two", "Bed.two", 9), imports=("b.py", "gone.py")),
            put("b.py", "four"),
            put("empty.py", imports=("a.py",)),
            put("gone.py", "three"),
            put("a.py", "kitchen", project_id=KITCHEN),
            put("shed.py", "shed", project_id=SHED),
            refers("r1", one="edited", two="read"),
            refers("r3", two="named", three="found", shed="read"),
            refers("r4", four="read"),
            refers("d4", kitchen="named"),
            refers("f3"),
            put("a.py", a_scope("one", line=30), imports=("b.py",), hash="later"),
            DropCodeFiles(project_id=GARDEN, paths=("gone.py",)),
            DropCodeFiles(project_id=SHED, paths=("shed.py",)),
        ]
    )
    assert await scopes_there(store) == THERE


async def stopped(stream: Stream, after: int) -> AsyncIterator[Sequence[Write]]:
    """The beginning of a stream."""
    async for batch in stream():
        if not after:
            return
        after -= 1
        yield batch


# --- moving ---------------------------------------------------------------------------------


async def test_code_is_moved(source: Archive, target: Archive) -> None:
    """Files, the identity of scopes, also of lost ones, and references; twice is once."""
    await filled(source)
    before = await code_seen(source, *TURNS)
    for _ in range(2):
        counts = await moved(source, target)
        assert (counts["code_files"], counts["scopes"], counts["references"]) == (4, 3, 4)
        assert await code_seen(target, *TURNS) == before
        assert await target.code_projects() == await source.code_projects() == [GARDEN, KITCHEN]
        query = TurnsQuery(scope_ids=("two", "shed"), project_ids=(GARDEN,), paths=("plants.txt",))
        assert await target.code_turns(query) == await source.code_turns(query) != []
        # What was looked at and has to do with nothing is looked at again.
        assert await waiting(target, "references") == ["f3", "r2"]
        assert await source.check() == await target.check() == []
    assert await code_seen(source, *TURNS) == before


async def test_there_and_back_and_through_a_file(
    source: Archive, target: Archive, tmp_path: Path
) -> None:
    """It is the same, by whichever way it comes."""
    await filled(source)
    await moved(source, target)
    file = tmp_path / "backup.jsonl"
    with file.open("wb") as out:
        await write_lines(stream_of(target, batch=2), out, quietly)
    third = await sqlite(tmp_path / "third")
    await copy(stream_of_lines(file), third, quietly)
    assert await code_seen(third, *TURNS) == await code_seen(source, *TURNS)
    assert (await compare(stream_of(source), third, quietly)).equal
    assert await third.check() == []
    await third.aclose()


async def test_a_move_that_was_stopped_is_made_again(source: Archive, target: Archive) -> None:
    """Wherever it was stopped, in the end it is the same."""
    await filled(source)
    stream = stream_of(source, batch=2)
    batches = [batch async for batch in stream()]
    for stop in range(1, len(batches)):
        async for batch in stopped(stream, stop):
            await target.apply(batch)
        await copy(stream, target, quietly)
        assert await code_seen(target, *TURNS) == await code_seen(source, *TURNS)
    assert (await compare(stream, target, quietly)).equal
    assert await target.check() == []


async def test_what_was_changed_in_the_source_comes_along(source: Archive, target: Archive) -> None:
    """A second move brings what is so now, and takes back what is so no more."""
    await filled(source)
    await moved(source, target)
    await source.apply(
        [
            put("b.py", "five", hash="b2"),
            put("a.py", "one", "two", project_id=GARDEN),
            refers("r3", five="edited", three="read"),
            refers("r2", one="found"),
        ]
    )
    await moved(source, target)
    assert await code_seen(target, *TURNS) == await code_seen(source, *TURNS)
    assert await target.check() == await source.check() == []


async def test_what_is_missing_or_different_is_told(source: Archive, target: Archive) -> None:
    """The comparison looks at every file and every turn's references."""
    await filled(source)
    await moved(source, target)
    await target.apply(
        [
            DropCodeFiles(project_id=KITCHEN, paths=("a.py",)),
            put("b.py", a_scope("four", line=2)),
            refers("r1", one="edited", two="edited"),
            refers("r4"),
        ]
    )
    compared = await compare(stream_of(source), target, quietly)
    assert not compared.equal
    assert compared.differing_count == 4
    assert sorted(compared.differing) == [
        "file a.py of project-kitchen is missing",
        "file b.py of project-garden is different",
        "references of r1 is different",
        "references of r4 is missing",
    ]


async def test_a_project_joined_there_is_not_mixed_up(source: Archive, target: Archive) -> None:
    """Each folder's files stay its own."""
    await filled(source)
    kitchen = Project(
        project_id=KITCHEN, path="/home/ana/kitchen", created_at=at(0), joined_into=GARDEN
    )
    await target.apply([RegisterProject(project=kitchen)])
    await moved(source, target)
    assert await code_seen(target, *TURNS) == await code_seen(source, *TURNS)
    found = await target.find_scopes(ScopeQuery(name="kitchen", project_ids=(GARDEN,)))
    assert [each.project_id for each in found] == [KITCHEN]


async def test_a_document_has_no_references(source: Archive) -> None:
    """They are derived: an imported turn waits to be linked where it is now."""
    await filled(source)
    document = await document_of(source, "root")
    assert b"scope" not in encoded(document)
    session = await import_document(source, document, as_new=True)
    turns = [turn.turn_id for turn in await source.turns(session.session_id)]
    assert await source.references_of(turns) == []
    due = [each for each in await waiting(source, "references") if each in turns]
    assert due == turns[2::-1]


# --- the spool ------------------------------------------------------------------------------


async def test_code_waits_and_arrives(home: Home) -> None:
    """While the store is away, also odd text; in order, and once."""
    store = home.open()
    await store.apply([*conversation("t1", "t2"), put("a.py", "one", "two")])
    await store.aclose()
    writes: list[Write] = [
        put("b.py", a_scope("three", "half \ud83d\0"), "one"),
        refers("t1", one="edited", three="read"),
        put("a.py", "four"),
        *whole_turn("s", "t3", started_at=at(9)),
        refers("t3", two="read", four="named"),
        DropCodeFiles(project_id=GARDEN, paths=("b.py",)),
    ]
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    for write in writes:
        assert isinstance(await store.apply([write]), Waiting)
    assert count_waiting(home.spool) == len(writes)
    home.error = None
    await settled(store, home.spool)
    assert await scopes_there(store) == {"one": "(b.py)", "three": "(b.py)", "four": "a.py"}
    (lost,) = await store.find_scopes(ScopeQuery(name="HALF �"))
    assert lost.scope.name == "half �"
    assert await store.references_of(["t1", "t3"]) == [
        refers("t1", one="edited", three="read"), refers("t3", four="named"),
    ]  # fmt: skip
    assert await waiting(store, "references") == ["t2"]
    before = await code_seen(store, "t1", "t2", "t3")
    await store.apply(writes)
    assert await code_seen(store, "t1", "t2", "t3") == before
    assert await (await store.inner()).check() == []  # type: ignore[attr-defined]


async def test_code_is_not_told_while_the_store_is_away(home: Home) -> None:
    """No answer is better than an old one."""
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    for ask in (
        lambda: store.code_files(GARDEN),
        lambda: store.find_scopes(ScopeQuery()),
        lambda: store.code_turns(TurnsQuery()),
        lambda: store.changed_with([GARDEN], "a.py"),
        lambda: store.references_of(["t"]),
        lambda: store.pending("references", limit=1),
    ):
        with pytest.raises(StoreUnavailable, match="away"):
            await ask()  # type: ignore[no-untyped-call]


# --- killed ---------------------------------------------------------------------------------

_APPLY = """
import asyncio, sys
from pathlib import Path
from ragmem.failpoints import arm
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.sqlite import SQLiteStore
from tests.store.test_contract_code_moves import change

async def main(kind, point, *where):
    if kind == "sqlite":
        home = Path(where[0])
        store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
    else:
        store = await Neo4jStore.open(Connection(where[0], password=where[1]), timeout_s=50)
    arm(f"{point}:kill9@1")
    await store.apply(change())

asyncio.run(main(*sys.argv[1:]))
"""


def change() -> list[Write]:
    """All that can happen to files, scopes and references, at once."""
    return [
        put("a.py", a_scope("one", line=3), "new", hash="2"),
        put("b.py", "two"),
        refers("t1", two="edited", new="read"),
        refers("t2", one="found"),
        DropCodeFiles(project_id=GARDEN, paths=("c.py",)),
    ]


async def killed_at(point: str, *where: str) -> None:
    arguments = [sys.executable, "-c", _APPLY, point.partition(".")[0], point, *where]
    done = await asyncio.to_thread(
        subprocess.run,
        arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=110,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


async def before(store: Store) -> dict[str, object]:
    await store.apply(
        [
            *conversation("t1", "t2"),
            put("a.py", "one", "two", imports=("c.py",)),
            put("c.py", "three"),
            refers("t1", one="read", two="read"),
        ]
    )
    return await code_seen(store, "t1", "t2")


async def as_it_was_or_will_be(store: Store, was: dict[str, object], *, done: bool) -> None:
    found = await code_seen(store, "t1", "t2")
    expected_due = [] if done else ["t2"]
    assert await waiting(store, "references") == expected_due
    if not done:
        assert found == was
        await store.apply(change())
        found = await code_seen(store, "t1", "t2")
    assert found != was
    assert await scopes_there(store) == {"one": "a.py", "new": "a.py", "two": "b.py"}
    assert await store.references_of(["t1", "t2"]) == [
        refers("t1", two="edited", new="read"), refers("t2", one="found"),
    ]  # fmt: skip
    assert await store.check() == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("point", ["sqlite.begun", "sqlite.commit", "sqlite.committed"])
async def test_killed_while_code_is_written(tmp_path: Path, point: str) -> None:
    """Kill -9 leaves all of it or nothing, and what was said to be kept is."""
    store = await sqlite(tmp_path)
    was = await before(store)
    await store.aclose()
    await killed_at(point, str(tmp_path))
    again = await sqlite(tmp_path)
    await as_it_was_or_will_be(again, was, done=point == "sqlite.committed")
    await again.aclose()


@pytest.mark.parametrize("point", ["neo4j.begin", "neo4j.commit", "neo4j.committed"])
async def test_killed_while_code_is_written_to_the_graph(
    neo4j_server: Connection, point: str
) -> None:
    """The same on Neo4j."""
    store = await open_empty_neo4j_store(neo4j_server)
    was = await before(store)
    await killed_at(point, neo4j_server.url, neo4j_server.password)
    await as_it_was_or_will_be(store, was, done=point == "neo4j.committed")
    await store.aclose()
