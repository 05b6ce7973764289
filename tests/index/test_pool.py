"""Many files in child processes, refreshes that end early, and a file that is not what it was."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from ragmem import redact
from ragmem.errors import RagmemError, StoreError, StoreRefused, StoreUnavailable, UsageError
from ragmem.index import Refreshed, rows
from ragmem.index.index import CodeIndex
from tests.fakes.patience import until
from tests.index.trees import AUTH, PROJECT_ID, Tree, children, held, held_up, names_found

SOURCE = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("small_batches")


async def test_many_files_go_through_children(tmp_path, monkeypatch):
    """They give what one thread gives, and none is left behind."""
    tree = Tree(tmp_path)
    monkeypatch.setattr(rows, "row_of", None)  # None is cut here.
    tree.many(80)
    redact.know({"TEST_SECRET": "hunter2-hunter2"})
    tree.write("leak.py", 'def leak():\n    """The word is hunter2-hunter2."""\n')
    async with tree.index() as index:
        done = await index.refresh()
        assert done.files == 81
        assert children() == []
        assert (await names_found(index, "function_77"))[0] == "function_77"
    assert len(tree.ids()) == 81
    tree.sound()
    assert b"hunter2" not in tree.database.read_bytes()


@pytest.mark.skipif(sys.platform == "darwin", reason="it enforces no limit of memory")
async def test_a_file_that_takes_too_much_memory_is_left_out(tmp_path):
    """Parsers of some languages take gigabytes for a few lines that were made for that."""
    tree = Tree(tmp_path)
    tree.write("Fine.java", "class Fine { int ease() { return 1; } }\n")
    made = "".join(f"v{number * 7 % 300}=>\n" for number in range(3_000))
    for path in ("Made.java", "made.c", "made.h"):
        tree.write(path, made)
    async with tree.index() as index:
        done = await index.refresh()
        assert done.changed == ("Fine.java",)
        assert done.left_out == {"unreadable": 3}
        assert children() == []


async def test_refreshes_that_are_cancelled_or_closed_leave_a_sound_index(tmp_path, monkeypatch):
    """What each has done stays, and the next one does the rest."""
    tree = Tree(tmp_path)
    tree.many(90)

    async def begun(index: CodeIndex) -> "asyncio.Task[Refreshed]":
        done = asyncio.Event()
        running = asyncio.create_task(index.refresh(show=lambda files, _: files and done.set()))
        await done.wait()
        return running

    async with tree.index() as index:
        with held_up(monkeypatch, after=3):
            running = await begun(index)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert children() == []
        tree.sound()
        with held_up(monkeypatch, after=2):
            running = await begun(index)
            await index.aclose()
            with pytest.raises(StoreError, match="closed"):
                await running
        tree.sound()
        await index.aclose()
        with pytest.raises(StoreError, match="closed"):
            await index.refresh()
    async with tree.index() as index:
        done = await index.refresh()
    assert done.files == 90
    assert 0 < len(done.changed) < 90
    tree.sound()


_REFRESH = """
import asyncio, sys
from pathlib import Path
from ragmem.index import rows
from ragmem.index.index import CodeIndex
from ragmem.records import Project, utc_now
rows._BATCH = 10
project = Project(project_id=sys.argv[1], path=sys.argv[2], created_at=utc_now())
asyncio.run(CodeIndex(project, Path(sys.argv[3])).refresh(show=lambda *n: print(*n, flush=True)))
"""


async def test_killed_in_the_middle(tmp_path):
    """Kill -9; its children end with it, and the next refresh does the rest."""
    tree = Tree(tmp_path)
    tree.many(200, times=5)
    with subprocess.Popen(
        [sys.executable, "-c", _REFRESH, PROJECT_ID, str(tree.root), str(tree.database)],
        cwd=SOURCE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while not int((process.stdout.readline() or "1").split()[0]):
            pass
        process.send_signal(signal.SIGKILL)
    await until(lambda: not _cutting_in(tree))
    tree.sound()
    async with tree.index() as index:
        done = await index.refresh()
    assert (done.files, done.elsewhere) == (200, False)
    tree.sound()


def _cutting_in(tree: Tree) -> list[str]:
    """Processes that have the project's folder open."""
    found = []
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(handle) == str(tree.root):
                found.append(str(handle))
        except OSError:
            continue
    return [each for each in found if f"/{os.getpid()}/" not in each]


async def test_one_process_at_a_time(tree):
    async with tree.index() as index, tree.index() as other:
        first = await index.refresh()
        with held(tree.database, "refresh"):
            done = await other.refresh()
        assert done == Refreshed(files=3, scopes=first.scopes, elsewhere=True)
        assert not (await other.refresh()).elsewhere


@pytest.mark.parametrize("damage", ["text", "empty", "middle", "foreign", "version"])
async def test_what_is_no_index_of_this_version_is_made_anew(tree, damage):
    async with tree.indexed() as index:
        before = tree.ids()
    if damage == "text":
        tree.database.write_text("This is no database, but a text that is long enough. " * 20)
    elif damage == "empty":
        tree.database.write_bytes(b"")
    elif damage == "middle":
        data = bytearray(tree.database.read_bytes())
        data[4096:-4096] = b"\x55" * (len(data) - 8192)
        tree.database.write_bytes(data)
    else:
        what = "UPDATE state SET version = 1" if damage == "version" else "PRAGMA application_id=7"
        tree.rows(what)
    async with tree.index() as index:
        if damage != "middle":
            assert not await index.exists()
        assert await index.search("token", semantic=False) == []
        assert (await index.refresh()).files == 3
        assert tree.ids() == before
        assert "AuthService.validate" in await names_found(index, "is a token good")
    tree.sound()


async def test_that_of_a_newer_version_is_left_until_it_is_rebuilt(tree):
    """An open chat and an updated one don't empty it in turns."""
    async with tree.indexed() as index:
        tree.rows("UPDATE state SET version = version + 1")
        (version,) = tree.rows("SELECT version FROM state")
        with pytest.raises(RagmemError, match="newer ragmem"):
            await index.refresh()
        assert tree.rows("SELECT version FROM state") == [version]
        assert await index.search("token", semantic=False) == []
        assert (await index.refresh(rebuild=True)).files == 3
    tree.sound()


async def test_rebuilding(tree):
    """`ragmem index --rebuild`: all is made anew, under the eyes of who reads it."""
    async with tree.index() as index, tree.index() as other:
        await index.refresh()
        before = tree.ids()
        assert await names_found(other, "login")
        born = tree.rows("SELECT born FROM state")
        done = await index.refresh(rebuild=True)
        assert len(done.changed) == 3
        assert tree.rows("SELECT born FROM state") != born
        assert tree.ids() == before
        tree.write("app/new.py", "def blossom():\n    pass\n")
        await index.refresh()
        assert await names_found(other, "blossom") == ["blossom"]


async def test_a_full_disk_loses_nothing(tree, monkeypatch):
    async with tree.indexed() as index:
        for number in range(40):
            tree.write(f"more/f{number}.py", AUTH.replace("login", f"login_{number}"))
        room = tree.database.stat().st_size // 4096 + 2
        with monkeypatch.context() as patched:
            bound = [lambda connection: connection.pragma("max_page_count", room)]
            patched.setattr(apsw, "connection_hooks", bound)
            with pytest.raises(StoreUnavailable, match="full") as caught:
                await index.refresh()
        assert "Nothing is lost" in str(caught.value)
        assert caught.value.hint
        tree.sound()
        assert await names_found(index, "parse_duration")
        assert (await index.refresh()).files == 43
    tree.sound()


async def test_a_folder_that_can_not_be_used(tree):
    tree.data_dir.mkdir()
    (tree.data_dir / "code").write_text("in the way")
    async with tree.index() as index:
        with pytest.raises(StoreRefused, match="can't be used") as caught:
            await index.refresh()
        assert caught.value.hint
        assert await index.search("token") == []
        assert not await index.exists()


async def test_the_home_folder_is_refused(tree, monkeypatch):
    monkeypatch.setenv("HOME", str(tree.root))
    async with tree.index() as index:
        assert index.refusal == "it is your home folder"
        with pytest.raises(UsageError, match="home folder"):
            await index.refresh()
        with pytest.raises(UsageError, match="home folder"):
            index.watch()
        assert await index.search("token") == []
        assert (await index.status()).files == 0


async def test_a_project_that_is_gone(tree):
    """The folder was removed: nothing is shown of it, and the refresh says so."""
    async with tree.indexed() as index:
        tree.root.rename(tree.root.with_name("elsewhere"))
        with pytest.raises(UsageError, match="can't be indexed"):
            await index.refresh()
        assert await index.search("token", semantic=False) == []
    assert tree.ids()
