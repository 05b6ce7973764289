"""Disks that are not what SQLite would like: no shared memory, errors at any read or write."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from ragmem.errors import StoreError, StoreRefused
from ragmem.records import SessionQuery
from ragmem.store.sqlite import SQLiteStore
from ragmem.store.sqlite.schema import NETWORK_NOTICE
from tests.store.conftest import mostly
from tests.store.opening import by_hand, sqlite
from tests.store.samples import begun, called, created, finished, whole_turn


@contextmanager
def on_vfs(name: str) -> Iterator[None]:
    """While this lasts SQLite works through this layer."""
    apsw.set_default_vfs(name)
    try:
        yield
    finally:
        apsw.set_default_vfs("unix")


# --- no shared memory ---------------------------------------------------


async def test_an_ordinary_disk_needs_no_notice(tmp_path: Path) -> None:
    for _ in range(2):
        store = await sqlite(tmp_path)
        assert store.notice == ""
        await store.aclose()
    assert by_hand(tmp_path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("vfs", ["unix-dotfile", "unix-none"])
async def test_a_disk_without_shared_memory_gets_a_rollback_journal(
    tmp_path: Path, vfs: str
) -> None:
    """It works, and is said once."""
    with on_vfs(vfs):
        store = await sqlite(tmp_path)
        assert store.notice == NETWORK_NOTICE
        await store.apply([created("s"), *whole_turn("s", "t1")])
        assert [turn.turn_id for turn in await store.turns("s")] == ["t1"]
        assert await store.check() == []
        assert (await store.delete_session("s"))["turns"] == 1
        await store.apply([created("s2"), *whole_turn("s2", "t2")])
        await store.aclose()
        store = await sqlite(tmp_path)
        assert store.notice == ""
        await store.apply([created("s3")])
        assert {s.session_id for s in await store.sessions(SessionQuery())} == {"s2", "s3"}
        await store.aclose()
    assert by_hand(tmp_path, "PRAGMA journal_mode") == [("delete",)]
    assert not list(tmp_path.glob("*-wal")) + list(tmp_path.glob("*-shm"))


async def test_a_memory_that_was_moved_to_such_a_disk_is_read_and_not_written(
    tmp_path: Path,
) -> None:
    """It stays as it lies there, with what is in its log alone."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), *whole_turn("s", "t1")])
    # As it lies there while a process works: the turn is in the log alone.
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("memory.db", "memory.db-wal", "memory.db.initialised"):
        (moved / name).write_bytes((tmp_path / name).read_bytes())
    await store.aclose()
    files = [moved / "memory.db", moved / "memory.db-wal"]
    before = [file.read_bytes() for file in files]
    assert before[1]
    with on_vfs("unix-none"):
        store = await sqlite(moved)
        assert [turn.turn_id for turn in await store.turns("s")] == ["t1"]
        with pytest.raises(StoreRefused, match="can't be written"):
            await store.apply([created("s2")])
        assert await store.check() == []
        await store.aclose()
    assert [file.read_bytes() for file in files] == before
    store = await sqlite(moved)
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1"]


# --- errors of the disk -------------------------------------------------


class Faults:
    """Counts reads, writes and syncs; from the nth on they fail, once or for good."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = ()
        self.left = 0
        self.lasting = False
        self.hits = 0

    def arm(self, kinds: tuple[str, ...], nth: int, *, lasting: bool) -> None:
        """Let the nth from now fail."""
        self.kinds, self.left, self.lasting, self.hits = kinds, nth, lasting, 0

    def disarm(self) -> bool:
        """Whether anything failed."""
        self.kinds = ()
        return self.hits > 0

    def pass_by(self, kind: str) -> None:
        """An operation of this kind."""
        if kind not in self.kinds:
            return
        self.left -= 1
        if self.left == 0 or (self.left < 0 and self.lasting):
            self.hits += 1
            raise apsw.IOError("disk I/O error")


FAULTS = Faults()


class FaultyFile(apsw.VFSFile):
    """A file on a disk that fails."""

    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        """Read."""
        FAULTS.pass_by("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        """Write."""
        FAULTS.pass_by("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        """Sync."""
        FAULTS.pass_by("sync")
        super().xSync(flags)


class FaultyVFS(apsw.VFS):
    """The disk that they are on."""

    def __init__(self) -> None:
        super().__init__("faulty", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:
        """Open."""
        return FaultyFile(name, flags)


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    vfs = FaultyVFS()
    yield "faulty"
    vfs.unregister()


async def _story(store: SQLiteStore, acknowledged: list[str]) -> None:
    await store.apply([created("s")])
    for number in range(3):
        turn_id = f"t{number}"
        await store.apply([begun("s", turn_id, "x" * 20_000)])
        acknowledged.append(turn_id)
        await store.apply([called("s", turn_id, 0, f"{number}.py")])
        await store.apply([finished("s", turn_id, "y" * 20_000)])
        await store.turns("s")


FAILING = list(
    itertools.product([("read",), ("write",), ("sync",), ("read", "write", "sync")], [False, True])
)


@pytest.mark.parametrize(("kinds", "lasting"), mostly([FAILING[0], *FAILING[3:7:3]], FAILING))
async def test_an_error_at_any_moment_harms_nothing(
    tmp_path: Path, faulty: str, kinds: tuple[str, ...], lasting: bool
) -> None:
    """Plain words, and afterwards all that was acknowledged is there and whole."""
    failed = nth = 0
    while nth < 400:
        nth += 1 + nth // 8
        folder = tmp_path / str(nth)
        folder.mkdir()
        acknowledged: list[str] = []
        said: list[str] = []
        with on_vfs(faulty):
            FAULTS.arm(kinds, nth, lasting=lasting)
            store = None
            try:
                store = await sqlite(folder)
                await _story(store, acknowledged)
            except StoreError as error:
                said.append(f"{error} {error.hint}")
            happened = FAULTS.disarm()
            if store is not None:
                await store.aclose()
        failed += happened
        for text in said:
            assert "memory.db" in text, text
            assert "Traceback" not in text
        store = await sqlite(folder)
        assert await store.check() == []
        if acknowledged:
            turns = await store.turns("s")
            assert [turn.turn_id for turn in turns][: len(acknowledged)] == acknowledged
            assert [turn.turn_index for turn in turns] == list(range(1, len(turns) + 1))
        await store.apply([created("after")])
        await store.aclose()
        if not happened:
            break
    assert failed >= 3
