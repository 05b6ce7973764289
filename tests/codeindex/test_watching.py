"""The index follows the files while they change."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from ragmem.codeindex.index import CodeIndex
from ragmem.codeindex.values import Refreshed
from tests.codeindex.trees import AUTH, CLOCK, Tree


@pytest.fixture
def tree(tmp_path) -> Tree:
    """A small project, in which builds are ignored."""
    made = Tree(tmp_path)
    made.write("app/auth.py", AUTH)
    made.write("app/clock.py", CLOCK)
    made.write(".gitignore", "build/\n*.log\n")
    return made


class Watched:
    """What a watch came to so far."""

    def __init__(self, index: CodeIndex) -> None:
        self.index = index
        self.seen: list[Refreshed] = []
        self.ended = False

    async def run(self) -> None:
        """Until it ends by itself."""
        async with contextlib.aclosing(self.index.watch()) as changes:
            async for refreshed in changes:
                self.seen.append(refreshed)
        self.ended = True

    async def until(self, path: str, *, patience_s: float = 20) -> Refreshed:
        """The refresh that found a change of this path."""
        async with asyncio.timeout(patience_s):
            while True:
                for refreshed in self.seen:
                    if path in refreshed.changed or path in refreshed.removed:
                        return refreshed
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def _watching(tree: Tree) -> AsyncIterator[Watched]:
    async with tree.index() as index:
        await index.refresh()
        watched = Watched(index)
        task = asyncio.create_task(watched.run())
        # It has begun once it sees something.
        for number in range(200):
            tree.write("begun.py", f"begun = {number}\n")
            with contextlib.suppress(TimeoutError):
                await watched.until("begun.py", patience_s=0.5)
                break
        await asyncio.sleep(0.5)
        watched.seen.clear()
        try:
            yield watched
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_change_is_searchable_soon(tree):
    """Issue 7: a file that changes, comes, goes."""
    async with _watching(tree) as watched:
        started = time.monotonic()
        tree.write("app/clock.py", CLOCK.replace("parse_duration", "read_span"))
        await watched.until("app/clock.py")
        (hit, *_) = await watched.index.search("read_span", semantic=False)
        assert hit.name == "read_span"
        # A second where nobody else is at work; tests share their machine.
        assert time.monotonic() - started < 5
        tree.write("new/folder/late.py", "def late_function():\n    return 1\n")
        await watched.until("new/folder/late.py")
        (tree.root / "app/auth.py").unlink()
        assert (await watched.until("app/auth.py")).removed == ("app/auth.py",)


async def test_what_changes_before_it_listens_is_seen(tree):
    """Nothing falls between a refresh and the watch that follows it."""
    async with tree.index() as index:
        await index.refresh()
        tree.write("app/early.py", "def early():\n    pass\n")
        watched = Watched(index)
        task = asyncio.create_task(watched.run())
        await watched.until("app/early.py")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_is_ignored_stays_so(tree):
    """A build writes its outputs all the time; nothing comes of it, and others are seen."""
    async with _watching(tree) as watched:
        for number in range(30):
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
    """Issue 7: a branch is switched: one refresh, or a few."""
    async with _watching(tree) as watched:
        for number in range(100):
            tree.write(f"many/f{number}.py", f"def function_{number}():\n    pass\n")
        async with asyncio.timeout(20):
            while sum(len(each.changed) for each in watched.seen) < 100:
                await asyncio.sleep(0.05)
        assert len(watched.seen) <= 10


async def test_the_folder_goes(tree):
    """Quietly, that is the end of it."""
    async with _watching(tree) as watched:
        shutil.rmtree(tree.root)
        async with asyncio.timeout(30):
            while not watched.ended:
                await asyncio.sleep(0.05)


async def test_where_the_system_can_not_watch(tree, monkeypatch, caplog):
    """Issue 7: the limit of inotify: looked at now and then, with a line in the log."""
    import watchfiles

    from ragmem.codeindex import watching

    def watch(*_: object, **__: object) -> Iterator[set[tuple[object, str]]]:
        raise OSError("OS file watch limit reached.")
        yield set()

    monkeypatch.setattr(watchfiles, "watch", watch)
    monkeypatch.setattr(watching, "_POLL_S", 0.1)
    async with tree.index() as index:
        await index.refresh()
        watched = Watched(index)
        task = asyncio.create_task(watched.run())
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await watched.until("app/clock.py")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert "can't be watched" in caplog.text


async def test_another_process_is_at_it(tree):
    """A change is not lost because somebody else refreshes just then."""
    import fcntl
    import os

    async with _watching(tree) as watched:
        lock = os.open(tree.database.with_suffix(".refresh.lock"), os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree.write("app/clock.py", CLOCK.replace("60", "61"))
        await asyncio.sleep(1.5)
        assert watched.seen == []
        os.close(lock)
        await watched.until("app/clock.py")
