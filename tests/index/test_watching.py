"""The index follows the files while they change."""

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ragmem.errors import StoreError, StoreRefused
from ragmem.index import Refreshed, watch
from ragmem.index.index import CodeIndex
from ragmem.index.watch import folders_of, keep_current
from tests.fakes.patience import until
from tests.index.trees import CLOCK, Tree, held


@pytest.fixture
def tree(tree) -> Tree:
    """The small project, in which builds are ignored."""
    tree.write(".gitignore", "build/\n*.log\n")
    return tree


pytestmark = pytest.mark.usefixtures("quick_watch")


class Watched:
    def __init__(self, index: CodeIndex) -> None:
        self.index = index
        self.seen: list[Refreshed] = []
        self.ended = False

    async def run(self) -> None:
        async with contextlib.aclosing(self.index.watch()) as changes:
            async for refreshed in changes:
                if refreshed.changed or refreshed.removed:
                    self.seen.append(refreshed)
        self.ended = True

    async def until(self, path: str) -> Refreshed:
        """The refresh that found a change of this path."""

        def found() -> list[Refreshed]:
            return [each for each in self.seen if path in (*each.changed, *each.removed)]

        await until(found)
        return found()[0]


@contextlib.asynccontextmanager
async def _watching(tree: Tree) -> AsyncIterator[Watched]:
    async with tree.indexed() as index:
        # Nothing falls between a refresh and the watch that follows it: what came before it
        # listens is told once it does, and never again.
        tree.write("begun.py", "begun = 1\n")
        watched = Watched(index)
        task = asyncio.create_task(watched.run())
        await watched.until("begun.py")
        watched.seen.clear()
        try:
            yield watched
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_change_is_searchable_soon(tree):
    async with _watching(tree) as watched:
        started = time.monotonic()
        tree.write("app/clock.py", CLOCK.replace("parse_duration", "read_span"))
        await watched.until("app/clock.py")
        (hit, *_) = await watched.index.search("read_span", semantic=False)
        assert hit.name == "read_span"
        # A second where nobody else is at work; tests share their machine. Looked at now and then,
        # as where the system can't watch, it would take half a minute.
        assert time.monotonic() - started < 15
        tree.write("new/folder/late.py", "def late_function():\n    return 1\n")
        await watched.until("new/folder/late.py")
        (tree.root / "app/auth.py").unlink()
        assert (await watched.until("app/auth.py")).removed == ("app/auth.py",)


async def test_a_new_folder_is_watched_though_a_look_had_to_wait(tree, monkeypatch):
    """What is in it is known by then."""
    monkeypatch.setattr(watch, "_PAUSE_FACTOR", 40)
    async with _watching(tree) as watched:
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await watched.until("app/clock.py")
        for text in ("def late():\n    pass\n", "def later():\n    pass\n"):
            watched.seen.clear()
            tree.write("new/late.py", text)
            await watched.until("new/late.py")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_folder_that_comes_while_folders_are_sought_is_watched(tree, monkeypatch, moment):
    """In it is a file that no look has found yet, or it was not there to be found."""
    coming = iter(("def early():\n    pass\n",))

    def sought(*given: Any) -> list[Path]:
        if moment == "after":
            found = folders_of(*given)
        for text in coming:
            tree.write("come/early.py", text)
        return folders_of(*given) if moment == "before" else found

    async with _watching(tree) as watched:
        monkeypatch.setattr(watch, "folders_of", sought)
        (tree.root / "makes it look again").mkdir()
        await watched.until("come/early.py")
        watched.seen.clear()
        await asyncio.sleep(0.5)
        tree.write("come/late.py", "def late():\n    pass\n")
        await watched.until("come/late.py")


async def test_a_folder_that_goes_before_the_listening_is_no_trouble(tree, monkeypatch, caplog):
    """As with the checkout of another branch: the others are listened to at once."""
    gone = iter(("went",))

    def sought(*given: Any) -> list[Path]:
        return [*folders_of(*given), *(tree.root / name for name in gone)]

    monkeypatch.setattr(watch, "folders_of", sought)
    monkeypatch.setattr(watch, "_POLL_S", 60.0)
    async with _watching(tree) as watched:
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await watched.until("app/clock.py")
    assert list(gone) == []
    assert caplog.text == ""


async def test_what_is_ignored_stays_so(tree):
    """A build writes its outputs all the time; nothing comes of it, and others are seen."""
    async with _watching(tree) as watched:
        for number in range(12):
            tree.write(f"build/out-{number % 3}.py", f"x = {number}\n")
            tree.write("app/run.log", f"{number}\n")
            await asyncio.sleep(0.05)
        assert watched.seen == []
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await watched.until("app/clock.py")
        tree.write(".gitignore", "app/\n")
        assert await watched.until("app/auth.py")
    assert all(not path.startswith("build") for path, _ in tree.ids())


async def test_many_changes_at_once(tree):
    async with _watching(tree) as watched:
        started = time.monotonic()
        for number in range(40):
            tree.write(f"many/f{number}.py", f"def function_{number}():\n    pass\n")
        # Where they come slowly, each pause may end what is told together.
        pauses = (time.monotonic() - started) * 1000 / watch._STEP_MS
        await until(lambda: sum(len(each.changed) for each in watched.seen) == 40)
        assert len(watched.seen) <= 10 + pauses


def _watched_count() -> int:
    """Folders that this process watches just now."""
    count = 0
    for file in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            count += file.read_text().count("inotify wd:")
    return count


async def test_links_out_of_the_project_are_not_followed(tree, tmp_path):
    """A link to a large folder, and one in a circle: neither watched nor listed."""
    outside = tmp_path / "outside"
    for number in range(60):
        (outside / f"d{number}").mkdir(parents=True)
    (tree.root / "app" / "data").symlink_to(outside)
    (tree.root / "app" / "round").symlink_to(tree.root)
    async with _watching(tree) as watched:
        assert 0 < _watched_count() < 50
        (outside / "d1" / "more.py").write_text("def more():\n    pass\n")
        (outside / "out.py").write_text("def out():\n    pass\n")
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        assert (await watched.until("app/clock.py")).changed == ("app/clock.py",)
        # What comes beside the link, in new folders too, is seen all the same.
        tree.write("app/new/deep/late.py", "def late():\n    pass\n")
        await watched.until("app/new/deep/late.py")
        assert _watched_count() < 50
    assert {path for path, _ in tree.ids()} <= {
        "README.md", "app/auth.py", "app/clock.py", "app/new/deep/late.py", "begun.py",
    }  # fmt: skip


def test_what_is_watched(tmp_path):
    """What has indexed files or may get some; not git's own, nor what is ignored, nor links."""
    for path in ("a/x/y", "empty/inner", "pictures", ".git/refs", "build/lib/deep", ".ssh"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "pictures" / "a.png").write_text("")
    (tmp_path / "build" / "out.py").write_text("")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "build")
    single = ("", "/a", "/a/x", "/a/x/y", "/empty", "/empty/inner", "/pictures")
    assert sorted(folders_of(str(tmp_path), {"a/x"})) == [
        Path(f"{tmp_path}{path}") for path in single
    ]


@contextlib.asynccontextmanager
async def scribbled(file: Path | bytes) -> AsyncIterator[None]:
    """Meanwhile this file is written all the time."""
    stop = threading.Event()

    def scribble() -> None:
        while not stop.wait(0.02):
            with open(file, "ab") as log:
                log.write(b"x")

    writing = threading.Thread(target=scribble)
    writing.start()
    try:
        yield
    finally:
        stop.set()
        writing.join()


async def test_a_name_that_is_no_text_and_is_written_all_the_time(tree):
    """A log, say: the listening ends before it has begun, and changes are seen still."""
    async with _watching(tree) as watched, scribbled(os.fsencode(tree.root) + b"/app/\xff.log"):
        await asyncio.sleep(0.4)
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await watched.until("app/clock.py")


async def test_the_folder_goes(tree):
    async with _watching(tree) as watched:
        shutil.rmtree(tree.root)
        await until(lambda: watched.ended)


FOLLOWED = """
import asyncio, logging, sys
from pathlib import Path
from ragmem.index import Refreshed, watch

class Index:
    async def folders(self):
        return {""}
    async def refresh(self):
        return Refreshed(files=1, scopes=1, changed=("a.py",))

async def follow(folder):
    looks = 0
    async for _ in watch.keep_current(Index(), folder, followers=folder / "watch.lock"):
        looks += 1
        if looks == 3:
            return

watch._POLL_S = 0.05
logging.basicConfig()
asyncio.run(asyncio.wait_for(follow(Path(sys.argv[1])), 20))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="a limit of its own needs a namespace")
def test_where_the_system_watches_no_more_folders(tmp_path):
    """The limit of inotify: all are looked at now and then, with a line in the log."""
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
    script = 'echo 4 >/proc/sys/user/max_inotify_watches || exit 77; exec "$@"'
    command = [sys.executable, "-P", "-c", FOLLOWED, str(tmp_path)]
    done = subprocess.run(
        ["unshare", "-r", "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert "can't be watched (OS file watch limit reached" in done.stderr
    assert done.stderr.count("\n") == 1


class Failing:
    """An index that can't be asked or written for a while."""

    def __init__(self, *failures: StoreError) -> None:
        self._failures = list(failures)
        self.asked: list[float] = []

    async def folders(self) -> set[str]:
        return {""}

    async def refresh(self) -> Refreshed:
        self.asked.append(time.monotonic())
        if self._failures:
            raise self._failures.pop()
        return Refreshed(files=1, scopes=1, changed=("a.py",))


async def test_what_can_not_be_written_is_tried_less_and_less(tmp_path):
    """A home that can only be read, a full disk: no line in the log each second."""
    index = Failing(*[StoreRefused("The code index can't be used.")] * 3)
    kept = keep_current(index, tmp_path, followers=tmp_path / "watch.lock")
    async with contextlib.aclosing(kept) as changes, asyncio.timeout(60):
        assert (await anext(changes)).changed == ("a.py",)
    pauses = [after - before for before, after in itertools.pairwise(index.asked)]
    assert [pause >= least for pause, least in zip(pauses, [0.1, 0.2, 0.4], strict=True)] == [
        True
    ] * 3


class Idle(Failing):
    """An index in which looks find nothing."""

    async def refresh(self) -> Refreshed:
        self.asked.append(time.monotonic())
        await asyncio.sleep(0.01)
        return Refreshed(files=1, scopes=1)


async def test_a_log_that_is_written_all_the_time_is_looked_at_less_and_less(tmp_path):
    """It is not indexed, and its looks are to cost next to nothing."""
    index = Idle()
    kept = keep_current(index, tmp_path, followers=tmp_path / "watch.lock")
    async with contextlib.aclosing(kept) as looks, scribbled(tmp_path / "a.log"):
        async with asyncio.timeout(60):
            for _ in range(6):
                await anext(looks)
    first, *_, last = (after - before for before, after in itertools.pairwise(index.asked))
    assert (first >= 0.1, last >= 0.5) == (True, True)


async def test_another_process_is_at_it(tree):
    async with _watching(tree) as watched:
        with held(tree.database, "refresh"):
            tree.write("app/clock.py", CLOCK.replace("60", "61"))
            await asyncio.sleep(0.4)
            assert watched.seen == []
        await watched.until("app/clock.py")
