"""The file of the index, and the threads that own its connections."""

import asyncio
import stat
from pathlib import Path

import apsw
import pytest

from ragmem.codeindex.database import (
    Lane,
    database_of,
    open_for_reading,
    open_for_writing,
    raise_epoch,
    reading,
    transaction,
    version,
)
from ragmem.errors import StoreError, StoreRefused, StoreUnavailable


@pytest.fixture
def database(tmp_path) -> Path:
    """Where an index may be."""
    return database_of(tmp_path / "data", "project")


def _epoch(connection: apsw.Connection) -> int:
    return int(str(connection.execute("SELECT epoch FROM state").get))


async def test_a_new_one(database):
    """Private; nothing is there for who only reads."""
    reader, writer = Lane(database, open_for_reading), Lane(database, open_for_writing)
    try:
        assert await reader.run(_epoch, otherwise=-1) == -1
        assert not database.exists()
        assert await writer.run(_epoch, otherwise=-1) == 1
        assert await reader.run(_epoch, otherwise=-1) == 1
        assert await writer.run(raise_epoch, otherwise=-1) == 2
        assert await reader.run(_epoch, otherwise=-1) == 2
        assert stat.S_IMODE(database.stat().st_mode) == 0o600
        assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    finally:
        await reader.aclose()
        await writer.aclose()


async def test_who_only_reads_can_not_write(database):
    """A reader changes nothing."""
    reader, writer = Lane(database, open_for_reading), Lane(database, open_for_writing)
    try:
        await writer.run(_epoch, otherwise=0)
        with pytest.raises(StoreRefused):
            await reader.run(raise_epoch, otherwise=0)
    finally:
        await reader.aclose()
        await writer.aclose()


async def test_a_read_sees_one_moment(database):
    """Also while somebody writes."""
    reader, writer = Lane(database, open_for_reading), Lane(database, open_for_writing)
    writes = 0

    def twice(connection: apsw.Connection) -> tuple[int, int]:
        first = _epoch(connection)
        asyncio.run_coroutine_threadsafe(write(), loop).result(20)
        return first, _epoch(connection)

    async def write() -> None:
        nonlocal writes
        writes = await writer.run(raise_epoch, otherwise=0)

    loop = asyncio.get_running_loop()
    try:
        await writer.run(_epoch, otherwise=0)
        first, second = await reader.run(
            lambda connection: reading(connection, twice), otherwise=(0, -1)
        )
        assert first == second < writes
        assert await reader.run(_epoch, otherwise=0) == writes
    finally:
        await reader.aclose()
        await writer.aclose()


async def test_a_failed_transaction_leaves_nothing(database):
    """All or none."""
    writer = Lane(database, open_for_writing)

    def fails(connection: apsw.Connection) -> None:
        with transaction(connection):
            raise_epoch(connection)
            raise KeyError("a bug")

    try:
        with pytest.raises(KeyError):
            await writer.run(fails, otherwise=None)
        assert await writer.run(_epoch, otherwise=0) == 1
    finally:
        await writer.aclose()


async def test_who_held_a_replaced_file_does_no_harm(database):
    """Closing the old one must not take the new one's log away."""
    readers = [Lane(database, open_for_reading) for _ in range(2)]
    old, new = Lane(database, open_for_writing), Lane(database, open_for_writing)
    await old.run(raise_epoch, otherwise=0)
    for reader in readers:
        assert await reader.run(_epoch, otherwise=0) == 2
    new.throw_away()
    for expected in (2, 3, 4):
        assert await new.run(raise_epoch, otherwise=0) == expected
    await readers[0].aclose()
    await old.aclose()
    assert await readers[1].run(_epoch, otherwise=0) == 4
    other = Lane(database, open_for_writing)
    assert await other.run(raise_epoch, otherwise=0) == 5
    for lane in (other, new, readers[1]):
        await lane.aclose()
    connection = apsw.Connection(str(database))
    assert _epoch(connection) == 5
    connection.close()


async def test_many_open_a_new_one_at_once(database):
    """None finds it half made."""
    lanes = [Lane(database, open_for_writing) for _ in range(8)]

    def job(connection: apsw.Connection) -> int:
        with transaction(connection):
            return raise_epoch(connection)

    try:
        epochs = await asyncio.gather(*(lane.run(job, otherwise=0) for lane in lanes))
        assert sorted(epochs) == list(range(2, 10))
    finally:
        for lane in lanes:
            await lane.aclose()


async def test_plain_words(database):
    """What, why, what to do; nobody is told of SQLite's own words alone."""
    writer, other = Lane(database, open_for_writing), Lane(database, open_for_writing)

    def raising(error: Exception) -> object:
        def job(_: apsw.Connection) -> None:
            raise error

        return job

    try:
        for error, kind, part in (
            (apsw.BusyError("locked"), StoreUnavailable, "in use"),
            (apsw.FullError("full"), StoreUnavailable, "is full"),
            (apsw.ReadOnlyError("read only"), StoreRefused, "can't be used"),
            (apsw.IOError("disk I/O error"), StoreError, "disk I/O error"),
            (OSError(28, "No space left on device"), StoreUnavailable, "is full"),
            (PermissionError(13, "Permission denied"), StoreRefused, "Permission denied"),
        ):
            with pytest.raises(kind, match=part) as caught:
                await writer.run(raising(error), otherwise=None)  # type: ignore[arg-type]
            assert caught.value.hint
    finally:
        await writer.aclose()
        await writer.aclose()
        await other.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await writer.run(_epoch, otherwise=0)


def test_the_version_is_of_all_parts():
    """Schema, cutting, wording, terms: a change of any makes the index anew."""
    from ragmem.codeindex import versions
    from ragmem.terms import TERMS_VERSION

    assert version() == versions.SCHEMA * 1_000_000_000 + (
        versions.CUTTING * 1_000_000 + versions.WORDING * 1000 + TERMS_VERSION
    )
