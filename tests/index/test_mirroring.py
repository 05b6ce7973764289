"""What a store is told of the index."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ragmem.errors import StoreUnavailable
from ragmem.index import mirror
from ragmem.index.index import CodeIndex
from ragmem.records import (
    CodeReference,
    PutCodeFile,
    PutReferences,
    ScopeQuery,
    TurnsQuery,
)
from ragmem.store import Store
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.patience import until
from tests.index.trees import AUTH, CLOCK, PROJECT_ID, Tree, held
from tests.memory.working import opening
from tests.store.samples import created, whole_turn

Opened = Callable[[], Awaitable[Store]]


@pytest.fixture
def open_store(store: Store) -> Opened:
    return opening(store)


@pytest.fixture
def tree(tree) -> Tree:
    """The small project, with a file that imports another."""
    tree.write("app/__init__.py", "")
    tree.write("app/main.py", "from app.auth import login\n\nPERSON = login('a')\n")
    return tree


async def _told(index: CodeIndex) -> None:
    await index.refresh()
    assert await index.mirror()


async def _stored(store: Store) -> dict[tuple[str, str], str]:
    return {
        (file.path, scope.qualified_name): scope.scope_id
        for file in await store.code_files(PROJECT_ID)
        for scope in file.scopes
        if scope.kind not in ("block", "text")
    }


async def _refer(store: Store, scope_id: str) -> str:
    session = created(project_id=PROJECT_ID)
    turn, *rest = whole_turn(session.session.session_id)
    references = (CodeReference(scope_id=scope_id, how="edited"),)
    put = PutReferences(turn_id=turn.turn_id, references=references)
    await store.apply([session, turn, *rest, put])
    return turn.turn_id


async def test_files_scopes_and_imports(tree, store, open_store):
    """File DEFINES Scope, IMPORTS; what changes, what goes, and nothing twice."""
    async with tree.indexed(open_store=open_store) as index:
        assert await _stored(store) == tree.ids()
        main = next(f for f in await store.code_files(PROJECT_ID) if f.path == "app/main.py")
        assert main.imports == ("app/auth.py",)
        assert main.language == "python"
        (tree.root / "app/clock.py").unlink()
        tree.write("app/auth.py", AUTH.replace("def login", "def enter"))
        await _told(index)
        assert await _stored(store) == tree.ids()
        assert tree.rows("SELECT 1 FROM gone") == []
        assert tree.rows("SELECT 1 FROM files WHERE to_mirror") == []


async def test_values_of_constants_stay_here(tree, store, open_store):
    tree.write("a.h", '#define API_BASE "hidden=1"\n#  define LIMIT 77\n')
    tree.write("app/limits.py", 'API_BASE: str = "hidden"\n')
    tree.write("app/limits.ts", 'export const API_BASE = "hidden";\n')
    async with tree.indexed(open_store=open_store):
        pass
    found = {
        (file.path, scope.name): scope.signature
        for file in await store.code_files(PROJECT_ID)
        for scope in file.scopes
        if scope.kind == "constant"
    }
    assert found == {
        ("a.h", "API_BASE"): "#define API_BASE",
        ("a.h", "LIMIT"): "# define LIMIT",
        ("app/limits.py", "API_BASE"): "API_BASE: str",
        ("app/limits.ts", "API_BASE"): "export const API_BASE",
        ("app/main.py", "PERSON"): "PERSON",
    }


async def test_references_survive(tree, store, open_store):
    """An edit, another name of its file, and an index that was lost."""
    async with tree.indexed(open_store=open_store) as index:
        scope_id = tree.ids()["app/clock.py", "parse_duration"]
        turn_id = await _refer(store, scope_id)
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await _told(index)
        (tree.root / "app/clock.py").rename(tree.root / "app/time.py")
        await _told(index)
        assert tree.ids()["app/time.py", "parse_duration"] == scope_id
    tree.database.unlink()
    (tree.root / "app/time.py").rename(tree.root / "app/late.py")
    tree.write("app/clock.py", "def parse_duration(text):\n    return 'another'\n")
    async with tree.indexed(open_store=open_store):
        pass
    assert await _stored(store) == tree.ids()
    assert tree.ids()["app/late.py", "parse_duration"] == scope_id
    (tree.root / "app/clock.py").unlink()
    async with tree.indexed(open_store=open_store):
        pass
    query = ScopeQuery(project_ids=(PROJECT_ID,), name="parse_duration", defined=True)
    (found,) = await store.find_scopes(query)
    assert (found.scope.scope_id, found.path, found.defined) == (scope_id, "app/late.py", True)
    (references,) = await store.get(PutReferences, [turn_id])
    assert references.references == (CodeReference(scope_id=scope_id, how="edited"),)
    (turn,) = await store.code_turns(TurnsQuery(scope_ids=(scope_id,)))
    assert turn.turn_id == turn_id
    tree.sound()


async def test_a_store_that_is_away(tree, store):
    away = True

    async def open_store() -> Store:
        if away:
            raise StoreUnavailable("The store is away.")
        return store

    async with tree.index(open_store=open_store) as index:
        await index.refresh()
        assert not await index.mirror()
        assert await index.search("parse_duration", semantic=False)
        away = False
        await index.refresh()
        await until(lambda: not tree.rows("SELECT 1 FROM files WHERE to_mirror"))
        assert await _stored(store) == tree.ids()


async def test_each_refresh_is_told_of(tree, store, open_store):
    """Also one that ends while the store is being told of the one before."""
    async with tree.index(open_store=open_store) as index:
        for number in range(8):
            tree.write("app/clock.py", CLOCK.replace("60", f"{number}00"))
            await index.refresh()
            await asyncio.sleep(number / 50)
        await until(lambda: not tree.rows("SELECT 1 FROM files WHERE to_mirror"))
        assert await _stored(store) == tree.ids()


async def test_an_index_that_is_not_whole_tells_nothing(tree, store, open_store):
    async with tree.indexed(open_store=open_store) as index:
        before = await _stored(store)
    tree.database.unlink()
    async with tree.index(open_store=open_store) as index:
        assert not await index.mirror()
        await index._write(lambda connection: connection.execute("SELECT 1"))
        assert not await index.mirror()
    assert await _stored(store) == before


async def test_another_store_is_told_all(tree, tmp_path):
    for name in ("first", "second"):
        store = await SQLiteStore.open(tmp_path / name / "m.db", locks_dir=tmp_path / name / "l")
        try:
            async with tree.indexed(open_store=opening(store)):
                assert await _stored(store) == tree.ids()
        finally:
            await store.aclose()


async def test_a_store_that_was_restored_is_told_what_it_lacks(tree, store, open_store):
    async with tree.indexed(open_store=open_store) as index:
        before = await store.code_files(PROJECT_ID)
        tree.write("app/clock.py", CLOCK + "\n\ndef parse_date(text):\n    return text\n")
        await _told(index)
        await store.apply([PutCodeFile(file=file) for file in before])
        assert await _stored(store) != tree.ids()
        await _told(index)
        assert await _stored(store) == tree.ids()


async def test_only_one_process_tells(tree, open_store):
    async with tree.index(open_store=open_store) as index:
        await index.refresh()
        await index.mirror()
        with held(tree.database, "mirror"):
            assert not await index.mirror()
        assert await index.mirror()


async def test_a_change_while_the_store_is_told_stays_marked(tree):
    async with tree.indexed() as index:
        batch = await index._read(
            lambda connection: mirror.next_batch(connection, PROJECT_ID), mirror.MirrorBatch()
        )
        assert {file.path for file in batch.files} == {
            "README.md", "app/__init__.py", "app/auth.py", "app/clock.py", "app/main.py",
        }  # fmt: skip
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await index.refresh()
        await index._write(lambda connection: mirror.mark_mirrored(connection, batch))
    assert tree.rows("SELECT path FROM files WHERE to_mirror") == [("app/clock.py",)]
