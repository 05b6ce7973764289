"""The file of the index: read at one moment, written, made anew."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from ragmem.errors import StoreError, StoreRefused, StoreUnavailable
from ragmem.index import database as index_database
from ragmem.index.database import database_of, raise_epoch, read, transaction, write
from tests.index.trees import held


@pytest.fixture
def database(tmp_path) -> Path:
    return database_of(tmp_path / "data", "project")


def _epoch(connection: apsw.Connection) -> int:
    """How often it was raised since the file was made."""
    epoch, born = connection.execute("SELECT epoch, born FROM state").get
    return int(epoch - born)


def _raise(connection: apsw.Connection) -> int:
    raise_epoch(connection)
    return _epoch(connection)


def test_a_new_one(database):
    assert read(database, _epoch, -1) == -1
    assert not database.exists()
    assert write(database, _epoch) == 0
    assert read(database, _epoch, -1) == 0
    assert write(database, _raise) == 1
    assert read(database, _epoch, -1) == 1
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


def test_who_only_reads_can_not_write(database):
    write(database, _epoch)
    with pytest.raises(StoreRefused):
        read(database, _raise, 0)


def test_a_read_sees_one_moment(database):
    def twice(connection: apsw.Connection) -> tuple[int, int, int]:
        first = _epoch(connection)
        return first, write(database, _raise), _epoch(connection)

    write(database, _epoch)
    first, writes, second = read(database, twice, (0, 0, -1))
    assert first == second < writes
    assert read(database, _epoch, 0) == writes


def test_of_one_whose_log_can_not_be_made_a_copy_is_read(database):
    shared = database.with_name(f"{database.name}-shm")
    for epoch, job in enumerate((_epoch, _raise)):
        write(database, job)
        shared.symlink_to("nowhere/at all")
        assert read(database, _epoch, -1) == epoch
        shared.unlink()


def test_a_failed_transaction_leaves_nothing(database):
    def fails(connection: apsw.Connection) -> None:
        with transaction(connection):
            raise_epoch(connection)
            raise KeyError("a bug")

    with pytest.raises(KeyError):
        write(database, fails)
    assert write(database, _epoch) == 0


def test_one_that_can_not_be_made_anew_is_told(database, monkeypatch):
    monkeypatch.setattr(index_database, "_RESET_LOCK_TIMEOUT_S", 0.05)
    assert write(database, _raise) == 1
    with held(database, "open"), pytest.raises(StoreUnavailable):
        write(database, _raise, anew=True)
    assert write(database, _epoch) == 1
    assert write(database, _raise, anew=True) == 1


def test_many_open_a_new_one_at_once(database):
    def job(connection: apsw.Connection) -> int:
        with transaction(connection):
            return _raise(connection)

    with ThreadPoolExecutor(8) as threads:
        epochs = list(threads.map(lambda _: write(database, job), range(8)))
    assert sorted(epochs) == list(range(1, 9))


@pytest.mark.parametrize(
    ("error", "kind", "part"),
    [
        (apsw.BusyError("locked"), StoreUnavailable, "in use"),
        (apsw.FullError("full"), StoreUnavailable, "is full"),
        (apsw.ReadOnlyError("read only"), StoreRefused, "can't be used"),
        (apsw.IOError("disk I/O error"), StoreError, "disk I/O error"),
        (OSError(28, "No space left on device"), StoreUnavailable, "is full"),
        (PermissionError(13, "Permission denied"), StoreRefused, "Permission denied"),
    ],
)
def test_plain_words(database, error, kind, part):
    def job(_: apsw.Connection) -> None:
        raise error

    with pytest.raises(kind, match=part) as caught:
        write(database, job)
    assert caught.value.hint


def test_a_damaged_one_is_made_anew(database):
    def file_count(connection: apsw.Connection) -> int:
        return int(str(connection.execute("SELECT coalesce(sum(size), 0) FROM files").get))

    def damage(connection: apsw.Connection) -> None:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'files'"
        page = int(str(connection.execute(query).get))
        connection.close()
        with database.open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)

    write(database, damage)
    assert read(database, file_count, -1) == -1
    assert read(database, file_count, -1) == 0
    write(database, damage)
    assert write(database, file_count) == 0
