"""The file of the index, and the threads that own its connections."""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from ragmem.errors import StoreError, StoreRefused, StoreUnavailable
from ragmem.index import database as index_database
from ragmem.index.database import (
    IndexThread,
    database_of,
    open_for_reading,
    open_for_writing,
    raise_epoch,
    reading,
    transaction,
)
from tests.index.trees import held


@pytest.fixture
def database(tmp_path) -> Path:
    return database_of(tmp_path / "data", "project")


@pytest.fixture
async def thread(database) -> AsyncIterator[Callable[..., IndexThread]]:
    """Threads with a connection of their own, closed at the end."""
    made: list[IndexThread] = []

    def start(opens: Callable[[Path], Any] = open_for_writing, **settings: Any) -> IndexThread:
        made.append(IndexThread(database, opens, **settings))
        return made[-1]

    yield start
    for each in made:
        await each.aclose()


def _epoch(connection: apsw.Connection) -> int:
    """How often it was raised since the file was made."""
    epoch, born = connection.execute("SELECT epoch, born FROM state").get
    return int(epoch - born)


def _raise(connection: apsw.Connection) -> int:
    raise_epoch(connection)
    return _epoch(connection)


async def test_a_new_one(database, thread):
    reader, writer = thread(open_for_reading), thread()
    assert await reader.run(_epoch, otherwise=-1) == -1
    assert not database.exists()
    assert await writer.run(_epoch, otherwise=-1) == 0
    assert await reader.run(_epoch, otherwise=-1) == 0
    assert await writer.run(_raise, otherwise=-1) == 1
    assert await reader.run(_epoch, otherwise=-1) == 1
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


async def test_who_only_reads_can_not_write(thread):
    reader, writer = thread(open_for_reading), thread()
    await writer.run(_epoch, otherwise=0)
    with pytest.raises(StoreRefused):
        await reader.run(_raise, otherwise=0)


async def test_a_read_sees_one_moment(thread):
    reader, writer = thread(open_for_reading), thread()
    writes = 0

    def twice(connection: apsw.Connection) -> tuple[int, int]:
        first = _epoch(connection)
        asyncio.run_coroutine_threadsafe(write(), loop).result(20)
        return first, _epoch(connection)

    async def write() -> None:
        nonlocal writes
        writes = await writer.run(_raise, otherwise=0)

    loop = asyncio.get_running_loop()
    await writer.run(_epoch, otherwise=0)
    first, second = await reader.run(
        lambda connection: reading(connection, twice), otherwise=(0, -1)
    )
    assert first == second < writes
    assert await reader.run(_epoch, otherwise=0) == writes


async def test_a_failed_transaction_leaves_nothing(thread):
    writer = thread()

    def fails(connection: apsw.Connection) -> None:
        with transaction(connection):
            raise_epoch(connection)
            raise KeyError("a bug")

    with pytest.raises(KeyError):
        await writer.run(fails, otherwise=None)
    assert await writer.run(_epoch, otherwise=-1) == 0


async def test_all_see_that_it_was_made_anew(database, thread):
    """In its place, for all that have it open; also where the file was removed by hand."""
    reader, old, new = thread(open_for_reading), thread(), thread()
    assert await old.run(_raise, otherwise=0) == 1
    assert await reader.run(_epoch, otherwise=-1) == 1
    assert await new.run(_epoch, otherwise=-1, anew=True) == 0
    assert await reader.run(_epoch, otherwise=-1) == 0
    assert await old.run(_raise, otherwise=0) == 1
    database.unlink()
    assert await new.run(_raise, otherwise=0) == 1
    assert await reader.run(_epoch, otherwise=-1) == 1
    for each in (old, new, reader):
        await each.aclose()
    connection = apsw.Connection(str(database))
    assert _epoch(connection) == 1
    connection.close()


async def test_one_that_can_not_be_made_anew_is_told(database, thread, monkeypatch):
    monkeypatch.setattr(index_database, "_ALONE_WITHIN_S", 0.05)
    writer = thread()
    assert await writer.run(_raise, otherwise=0) == 1
    with held(database, "open"), pytest.raises(StoreUnavailable):
        await writer.run(_raise, otherwise=0, anew=True)
    assert await writer.run(_epoch, otherwise=0) == 1
    assert await writer.run(_raise, otherwise=0, anew=True) == 1


async def test_many_open_a_new_one_at_once(thread):
    threads = [thread() for _ in range(8)]

    def job(connection: apsw.Connection) -> int:
        with transaction(connection):
            return _raise(connection)

    epochs = await asyncio.gather(*(each.run(job, otherwise=0) for each in threads))
    assert sorted(epochs) == list(range(1, 9))


async def test_plain_words(thread):
    writer = thread()

    def raising(error: Exception) -> object:
        def job(_: apsw.Connection) -> None:
            raise error

        return job

    for error, kind, part in (
        (apsw.BusyError("locked"), StoreUnavailable, "in use"),
        (apsw.FullError("full"), StoreUnavailable, "is full"),
        (apsw.ReadOnlyError("read only"), StoreRefused, "can't be used"),
        (apsw.IOError("disk I/O error"), StoreError, "disk I/O error"),
        (OSError(28, "No space left on device"), StoreUnavailable, "is full"),
        (PermissionError(13, "Permission denied"), StoreRefused, "Permission denied"),
    ):
        with pytest.raises(kind, match=part) as caught:
            await writer.run(raising(error), otherwise=None)
        assert caught.value.hint
    await writer.aclose()
    await writer.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await writer.run(_epoch, otherwise=0)


def _damage(database: Path) -> None:
    connection = open_for_writing(database)
    page = int(
        str(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'files'").get)
    )
    connection.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def _file_count(connection: apsw.Connection) -> int:
    return int(str(connection.execute("SELECT coalesce(sum(size), 0) FROM files").get))


async def test_a_damaged_one_is_made_anew(database, thread):
    for connect in (open_for_reading, open_for_writing):
        _damage(database)
        assert await thread(connect).run(_file_count, otherwise=-1) == 0
