"""Files that are not what they were: refused in plain words, and left byte for byte."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.records import SessionQuery
from tests.store.conftest import made_once
from tests.store.opening import by_hand, sqlite
from tests.store.samples import begun, created, texts, whole_turn


async def filled(home: Path) -> None:
    store = await sqlite(home)
    await store.apply([created("s")])
    for i in range(50):
        await store.apply(whole_turn("s", f"t{i}", f"question {i} " + "x" * 2000))
    await store.aclose()


kept = made_once(filled)


@pytest.fixture
def home(tmp_path: Path, kept: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(kept, tmp_path / "home"))


def snapshot(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in sorted(home.glob("memory.db*")) if path.is_file()
    }


def root_page(database: Path, table: str) -> int:
    of_table = f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'"
    return int(by_hand(database, of_table)[0][0])


def overwrite(database: Path, offset: int, content: bytes) -> None:
    with database.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def emptied(database: Path) -> None:
    database.write_bytes(b"")


def removed(database: Path) -> None:
    database.unlink()


def garbage(database: Path) -> None:
    database.write_bytes(os.urandom(8192))


def a_text(database: Path) -> None:
    database.write_text("dear diary")


def halved(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)


def cut_within_the_header(database: Path) -> None:
    os.truncate(database, 50)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty": (emptied, "is empty, but it was in use"),
    "missing": (removed, "is missing, but it was in use"),
    "garbage": (garbage, "is not a SQLite database"),
    "text": (a_text, "is not a SQLite database"),
    "halved": (halved, "bytes are left of"),
    "header": (cut_within_the_header, "is not a SQLite database"),
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_lost_memory_is_no_fresh_one(home: Path, kind: str) -> None:
    """Seen at once, with the path and what to do; nothing is made anew."""
    damage, message = DAMAGE[kind]
    damage(home / "memory.db")
    before = snapshot(home)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=message) as raised:
            await sqlite(home)
        assert str(home / "memory.db") in str(raised.value)
        assert raised.value.hint.endswith(".")
        assert str(raised.value).endswith(".")
        assert snapshot(home) == before


async def test_starting_anew_takes_a_decision(home: Path) -> None:
    """The hint names what to remove; then the store is a fresh one."""
    removed(home / "memory.db")
    with pytest.raises(StoreDamaged) as raised:
        await sqlite(home)
    marker = home / "memory.db.initialised"
    assert f"({home / 'memory.db'}*)" in raised.value.hint
    marker.unlink()
    store = await sqlite(home)
    assert await store.sessions(SessionQuery()) == []
    assert marker.exists()


async def test_a_marker_that_is_gone_comes_back(home: Path) -> None:
    """Such as when only the database was restored from a backup."""
    (home / "memory.db.initialised").unlink()
    store = await sqlite(home)
    assert len(await store.turns("s")) == 50
    await store.aclose()
    emptied(home / "memory.db")
    with pytest.raises(StoreDamaged):
        await sqlite(home)


async def test_a_torn_page_is_damage(home: Path) -> None:
    """Found when touched; then nothing is written any more."""
    database = home / "memory.db"
    overwrite(database, (root_page(database, "turns") - 1) * 4096, os.urandom(4096))
    before = snapshot(home)
    store = await sqlite(home)
    with pytest.raises(StoreDamaged, match="It was left as it is") as raised:
        await store.turns("s")
    assert "`ragmem store repair`" in raised.value.hint
    for _ in range(2):
        with pytest.raises(StoreDamaged):
            await store.apply([created("new")])
    await store.aclose()
    assert snapshot(home).items() >= before.items()


async def test_damage_that_a_write_meets(home: Path) -> None:
    """The write fails, and closing moves no log over the damaged pages."""
    database = home / "memory.db"
    overwrite(database, (root_page(database, "turns") - 1) * 4096, os.urandom(4096))
    before = database.read_bytes()
    store = await sqlite(home)
    with pytest.raises(StoreDamaged):
        await store.apply([begun("s")])
    with pytest.raises(StoreDamaged):
        await store.attach("s", "me")
    await store.aclose()
    assert database.read_bytes() == before


async def test_a_log_left_by_a_crash_is_replayed(home: Path) -> None:
    """What was acknowledged is there, whatever the log's index holds."""
    store = await sqlite(home)
    await store.apply(whole_turn("s", user="in the log"))
    files = snapshot(home)
    await store.aclose()
    for name, content in files.items():
        (home / name).write_bytes(content)
    (home / "memory.db-shm").write_bytes(os.urandom(32768))
    store = await sqlite(home)
    assert texts(await store.turns("s"))[-1] == "in the log"


async def test_a_torn_log_loses_only_what_is_torn(home: Path) -> None:
    """A half-written last transaction was never acknowledged; all before it stays."""
    store = await sqlite(home)
    await store.apply(whole_turn("s", user="whole"))
    size = (home / "memory.db-wal").stat().st_size
    await store.apply(whole_turn("s", user="torn"))
    files = snapshot(home)
    await store.aclose()
    for name, content in files.items():
        (home / name).write_bytes(content)
    (home / "memory.db-shm").unlink()
    os.truncate(home / "memory.db-wal", size + 2000)
    store = await sqlite(home)
    turns = await store.turns("s")
    assert [turn.turn_index for turn in turns] == list(range(1, 52))
    assert turns[-1].user_message == "whole"


async def test_a_memory_that_vanishes_while_in_use(home: Path) -> None:
    """SQLite would acknowledge writes to a file that nobody finds again."""
    store = await sqlite(home)
    (home / "memory.db").rename(home / "elsewhere.db")
    with pytest.raises(StoreDamaged, match="moved or deleted"):
        await store.apply([begun("s")])


async def test_a_memory_that_is_replaced_while_in_use(home: Path) -> None:
    """The one that came in its place is not written by mistake."""
    store = await sqlite(home)
    copy = home / "copy"
    copy.write_bytes((home / "memory.db").read_bytes())
    copy.rename(home / "memory.db")
    before = (home / "memory.db").read_bytes()
    with pytest.raises(StoreDamaged, match="replaced"):
        await store.apply([begun("s")])
    await store.aclose()
    assert (home / "memory.db").read_bytes() == before


# --- things in the way -------------------------------------------------------


def a_folder(path: Path) -> None:
    path.mkdir()


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        # From the folder the test runs in: an address holds no long path.
        listening.bind(path.name)


@pytest.mark.parametrize(
    ("put", "message"),
    [(a_folder, "is a folder"), (a_fifo, "not a regular file"), (a_socket, "not a regular file")],
)
async def test_something_else_in_its_place(
    tmp_path: Path,
    put: Callable[[Path], None],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused at once; a FIFO does not hang."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "memory.db")
    with pytest.raises(StoreRefused, match=message) as raised:
        await sqlite(tmp_path)
    assert "RAGMEM_HOME" in raised.value.hint


async def test_another_programs_database(tmp_path: Path) -> None:
    """Its tables are not mixed with ours."""
    database = tmp_path / "memory.db"
    by_hand(database, "CREATE TABLE bookmarks (url)")
    before = database.read_bytes()
    with pytest.raises(StoreRefused, match="another program's"):
        await sqlite(tmp_path)
    assert database.read_bytes() == before


async def test_a_link_to_the_database_is_followed(home: Path, tmp_path: Path) -> None:
    """A person may keep it on another disk."""
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    (home / "memory.db").rename(elsewhere / "memory.db")
    (home / "memory.db").symlink_to(elsewhere / "memory.db")
    store = await sqlite(home)
    await store.apply(whole_turn("s"))
    assert len(await store.turns("s")) == 51
    await store.aclose()
    assert (home / "memory.db").is_symlink()


async def test_a_file_where_the_home_should_be(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(StoreRefused, match="a file stands where a folder") as raised:
        await sqlite(tmp_path / "home")
    assert "RAGMEM_HOME" in raised.value.hint


# Root may write everywhere: without its capabilities the child is as any person.
UNPRIVILEGED = """
import asyncio, ctypes, struct, sys
from pathlib import Path
from ragmem.errors import RagmemError, StoreRefused
from ragmem.records import UpdateSession, utc_now
from ragmem.records import SessionQuery
from ragmem.store.sqlite import SQLiteStore
libc = ctypes.CDLL(None, use_errno=True)
header = struct.pack("Ii", 0x20080522, 0)
assert libc.capset(header, bytes(24)) == 0, ctypes.get_errno()
home = Path(sys.argv[1])
async def main():
    read = False
    try:
        store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks", timeout_s=1)
        read = len(await store.sessions(SessionQuery())) > 0
        await store.apply([UpdateSession(session_id="root", title="x", at=utc_now())])
    except RagmemError as error:
        print(read, isinstance(error, StoreRefused), error, error.hint, sep="|")
asyncio.run(main())
"""


def without_privileges(home: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(home)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.strip().split("|")


@pytest.mark.parametrize("what", ["folder", "file", "both", "parent"])
async def test_a_home_that_can_not_be_written(home: Path, what: str) -> None:
    """A write is refused with the reason and a hint; what can be read without one is read."""
    target = home / "new" if what == "parent" else home
    before = snapshot(home)
    if what != "folder":
        (home / "memory.db").chmod(0o400)
    if what != "file":
        (home / "locks").chmod(0o500)
        home.chmod(0o500)
    try:
        read, refused, message, hint = without_privileges(target)
    finally:
        home.chmod(0o700)
        (home / "locks").chmod(0o700)
    assert (read, refused) == (str(what == "file"), "True")
    assert str(target) in message
    assert "RAGMEM_HOME" in hint
    assert {name: data for name, data in snapshot(home).items() if name in before} == before


# --- a full disk -------------------------------------------------------------


async def test_a_full_disk_names_its_file_system(home: Path) -> None:
    """Nothing of the turn stays, what was there is safe, later it goes on."""
    store = await sqlite(home)
    pages = await store._writer.run(lambda db: db.pragma("page_count"))
    await store._writer.run(lambda db: db.pragma("max_page_count", pages))
    with pytest.raises(StoreUnavailable, match="full") as raised:
        await store.apply(whole_turn("s", user="x" * 500_000))
    mount = str(raised.value).split("The file system ")[1].split(" is full")[0]
    assert Path(mount).is_mount()
    assert len(await store.turns("s")) == 50
    await store._writer.run(lambda db: db.pragma("max_page_count", pages + 1000))
    await store.apply(whole_turn("s", user="x" * 500_000))
    assert len(await store.turns("s")) == 51
