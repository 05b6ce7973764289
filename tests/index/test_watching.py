"""The index follows the files while they change."""

import asyncio
import contextlib
import itertools
import shutil
import time
from collections.abc import AsyncIterator

import pytest

from ragmem.errors import StoreError, StoreRefused
from ragmem.index import Refreshed
from ragmem.index.index import CodeIndex
from ragmem.index.watch import keep_current
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


async def test_a_change_is_found(tree):
    async with _watching(tree) as watched:
        tree.write("app/clock.py", CLOCK.replace("parse_duration", "read_span"))
        await watched.until("app/clock.py")
        (hit, *_) = await watched.index.search("read_span", semantic=False)
        assert hit.name == "read_span"
        tree.write("new/folder/late.py", "def late_function():\n    return 1\n")
        await watched.until("new/folder/late.py")
        (tree.root / "app/auth.py").unlink()
        assert (await watched.until("app/auth.py")).removed == ("app/auth.py",)


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


async def test_the_folder_goes(tree):
    async with _watching(tree) as watched:
        shutil.rmtree(tree.root)
        await until(lambda: watched.ended)


class Failing:
    """An index that can't be asked or written for a while."""

    def __init__(self, *failures: StoreError) -> None:
        self._failures = list(failures)
        self.asked: list[float] = []

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


async def test_another_process_is_at_it(tree):
    async with _watching(tree) as watched:
        with held(tree.database, "refresh"):
            tree.write("app/clock.py", CLOCK.replace("60", "61"))
            await asyncio.sleep(0.4)
            assert watched.seen == []
        await watched.until("app/clock.py")
