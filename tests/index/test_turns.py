"""Turns linked with code: early ones, folders that went, other people's projects."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragmem.agent import standard_toolset
from ragmem.index import links
from ragmem.index.codebase import Codebase
from ragmem.records import Project, PutReferences, RegisterProject, Turn, utc_now
from ragmem.store import Store
from ragmem.tools.files import SeenFiles
from ragmem.tools.workspace import Workspace
from ragmem.usage import Metrics
from tests.fakes.frail_store import FrailStore, Line
from tests.fakes.hash_embedder import HashEmbedder
from tests.index.trees import held_up

from .conftest import CLOCK, Desk
from .test_codebase import a_worker, linked


class Counting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._store, name)


async def pending(desk: Desk) -> int:
    return len(await desk.store.pending("references", limit=99))


async def test_what_is_edited_elsewhere_takes_no_listing(
    desk: Desk, tmp_path: Path, codebase: Codebase
) -> None:
    """Files outside of the project are not looked at, and nothing is listed for them."""
    outside = str(tmp_path / "beside" / "outside.py")
    (tmp_path / "beside").mkdir()
    desk.tools = standard_toolset(
        Workspace(desk.folder, (tmp_path / "beside",)),
        data_dir=desk.paths.data_dir,
        mode="bypassPermissions",
        seen=SeenFiles(),
    )
    turn = await desk.turn(
        "See `login`.", "ok", ("create_file", {"path": outside, "content": "x = 1\n"})
    )
    (desk.folder / "unlisted.py").write_text("def unlisted():\n    return 1\n")
    assert await linked(desk, codebase, turn) == {"login": "named"}
    index = desk.index(codebase)
    assert not await index.scopes_named(["unlisted"])
    inside = str(desk.folder / "src" / "inside.py")
    turn = await desk.turn(
        "Go.", "ok", ("create_file", {"path": inside, "content": "def here():\n    pass\n"})
    )
    assert await linked(desk, codebase, turn) == {"here": "edited"}


async def test_files_are_looked_at_once_for_all_turns_that_are_linked_together(
    desk: Desk,
) -> None:
    metrics = Metrics()
    async with desk.codebase(metrics=metrics) as codebase:
        await desk.indexed(codebase)
        for name in ("one", "two"):
            content = f"def {name}():\n    pass\n"
            made = ("create_file", {"path": f"src/{name}.py", "content": content})
            turn = await desk.turn("Go.", "ok", made)
        items = await desk.store.pending("references", limit=9)
        metrics.timings.clear()
        assert len(await codebase.look_through(desk.store, items, "me")) == 2
        assert metrics.timings["code.refresh"].count == 1
        assert await hows(desk, turn) == {"edited"}


async def test_a_folder_that_is_gone(desk: Desk) -> None:
    """What the index knew last counts; nothing is tried again, nothing fails."""
    metrics = Metrics()
    async with desk.codebase(metrics=metrics) as codebase:
        await desk.indexed(codebase)
        turn = await desk.turn(
            "Make `login` strict.",
            "ok",
            ("read_file", {"path": "src/clock.py"}),
            ("edit_file", {"path": "src/clock.py", "old": "* 60", "new": "* 61"}),
        )
        shutil.rmtree(desk.folder)
        found = await linked(desk, codebase, turn)
        assert found == {"parse_duration": "edited", "login": "named"}
        assert await pending(desk) == 0
    assert not metrics.counts["code.failures"]


async def test_what_has_no_index_here_costs_nothing(desk: Desk) -> None:
    """Another machine's turns stay pending for it, at the price of one look."""
    async with desk.codebase() as codebase:
        await desk.indexed(codebase)
    for file in desk.paths.data_dir.glob("code/*"):
        file.unlink()
    for n in range(3):
        await desk.turn(f"Make `login` strict {n}.", "ok")
    store = Counting(desk.store)
    async with desk.codebase() as codebase:
        items = await desk.store.pending("references", limit=9)
        for item in items:
            seen = await codebase.look_through(store, [item], "me")
            assert seen == {item.key}
    assert store.asked.count("session") == 1
    assert store.asked.count("claim") == 1
    assert await pending(desk) == 3


def nine_files(desk: Desk) -> None:
    for n in range(9):
        (desk.folder / f"f{n}.py").write_text(f"def function_{n}():\n    return {n}\n" * 3)


async def hows(desk: Desk, turn: Turn) -> set[str]:
    found = await desk.store.get(PutReferences, [turn.turn_id])
    return {reference.how for each in found for reference in each.references}


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_look_that_goes_on_is_waited_for(
    desk: Desk, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short process links its turn before it ends, also the one that began the index."""
    monkeypatch.setattr(links, "_REFRESH_TIMEOUT_S", 90.0)  # a busy machine's
    async with desk.codebase() as codebase:
        if is_known:
            await desk.indexed(codebase)
        nine_files(desk)
        with held_up(monkeypatch, after=0) as goes_on:
            codebase.begin(desk.project)
            turn = await desk.turn("What does `parse_duration` or function_7 do?", "ok")
            asyncio.get_running_loop().call_later(0.3, goes_on.set)
            assert await a_worker(desk, codebase, everywhere=False).drain(90)
        assert await hows(desk, turn) == {"named"}


async def test_a_turn_that_is_too_early(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at many changes takes longer than a turn; the next process links it."""
    monkeypatch.setattr(links, "_REFRESH_TIMEOUT_S", 0.01)
    async with desk.codebase() as codebase:
        await desk.indexed(codebase)
        nine_files(desk)
        with held_up(monkeypatch, after=0):
            codebase.begin(desk.project)
            turn = await desk.turn("What does function_7 do?", "ok")
            assert await a_worker(desk, codebase, everywhere=None).drain(90)
            assert await pending(desk) == 1
    async with desk.codebase() as codebase:
        await desk.indexed(codebase)
        assert await a_worker(desk, codebase, everywhere=None).drain(90)
    assert await hows(desk, turn) == {"named"}


@pytest.mark.parametrize("everywhere", [False, True])
async def test_whose_code_gets_vectors(desk: Desk, tmp_path: Path, everywhere: bool) -> None:
    """`memory.worker = inline` embeds the own project's; the detached process anybody's."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "b.py").write_text(CLOCK)
    other = Project(project_id=desk.project.project_id[:-4] + "0000", path=str(folder),
                    created_at=utc_now())  # fmt: skip
    await desk.store.apply([RegisterProject(project=p) for p in (desk.project, other)])
    embedder = HashEmbedder(16)
    settings = {"embedder": embedder, "config": {"vectors": True}}
    async with desk.codebase(**settings) as codebase:
        for project in (desk.project, other):
            await desk.index(codebase, project).refresh()
    async with desk.codebase(**settings) as codebase:
        assert codebase.index_of(desk.project)
        while await codebase.catch_up(desk.store, everywhere=everywhere):
            pass
    async with desk.codebase(**settings) as codebase:
        without = []
        for project in (desk.project, other):
            without.append((await desk.index(codebase, project).status()).without_vectors)
    assert without[0] == 0
    assert (without[1] == 0) is everywhere


async def test_a_store_that_hangs_keeps_nobody(desk: Desk) -> None:
    """A prompt does not come later because the store is slow; it is told the next time."""
    line = Line()
    frail = FrailStore(desk.store, line)

    asked = asyncio.Event()

    async def open_store() -> Store:
        asked.set()
        return frail

    loop = asyncio.get_running_loop()
    async with desk.codebase(open_store=open_store) as codebase:
        line.set("silent")
        codebase.begin(desk.project)
        assert await codebase.search(desk.project, "parse_duration", 5)
        await asked.wait()
        await asyncio.sleep(0.2)
        started = loop.time()
        await codebase.aclose()
        assert 0.1 < loop.time() - started < 30
    line.set("fine")
    assert await desk.store.code_files(desk.project.project_id) == []
    async with desk.codebase() as codebase:
        index = desk.index(codebase)
        assert await index.mirror()
    assert len(await desk.store.code_files(desk.project.project_id)) == 2


@pytest.mark.parametrize("edits", [True, False])
async def test_an_index_that_can_not_be_written(
    desk: Desk, edits: bool, codebase: Codebase
) -> None:
    """Its turns wait; what else there is to do in the background is done."""
    edit = ("edit_file", {"path": "src/clock.py", "old": "* 60", "new": "* 61"})
    turn = await desk.turn(
        "Make `login` strict.",
        "ok",
        ("read_file", {"path": "src/clock.py"}),
        *([edit] if edits else []),
    )
    database = next(desk.paths.data_dir.glob("code/*.sqlite"))
    locks = [database.with_suffix(f".{what}.lock") for what in ("refresh", "mirror")]
    for lock in locks:
        lock.unlink()
        lock.mkdir()
    [item] = await desk.store.pending("references", limit=9)
    assert await codebase.look_through(desk.store, [item], "me") == {item.key}
    assert await pending(desk) == 1
    for lock in locks:
        lock.rmdir()
    await codebase.look_through(desk.store, [item], "me")
    assert await hows(desk, turn) == ({"edited", "named"} if edits else {"read", "named"})
