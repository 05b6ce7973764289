"""The embedded store's own: its files, its schema, its threads."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import apsw
import pytest

from ragmem.errors import SessionNotFound, StoreError, StoreUnavailable
from ragmem.failpoints import arm
from ragmem.files import OwnerLocks, lock
from ragmem.records import MemoryQuery, SessionQuery, Write
from ragmem.store.sqlite import schema
from ragmem.store.sqlite.connection import Access, Database
from tests.store.opening import by_hand, sqlite
from tests.store.samples import (
    at,
    begun,
    called,
    created,
    finished,
    remembered,
    said,
    texts,
    whole_turn,
)
from tests.store.seen import seen
from tests.store.test_contract_recall import MARK, embedded


def modes(home: Path) -> dict[str, str]:
    return {
        str(path.relative_to(home.parent)): f"{stat.S_IMODE(path.stat().st_mode):o}"
        for path in (home, *sorted(home.rglob("*")))
    }


# --- files -------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
async def test_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Folders 0700, files 0600, the log and its index among them."""
    before = os.umask(umask)
    try:
        store = await sqlite(tmp_path / "home")
        await store.apply([created("s"), *whole_turn("s")])
        await store.attach("s", "me")
        found = modes(tmp_path / "home")
        await store.aclose()
    finally:
        os.umask(before)
    lock = b"me".hex()
    assert found == {
        "home": "700",
        "home/locks": "700",
        f"home/locks/{lock}.lock": "600",
        "home/locks/schema.lock": "600",
        "home/memory.db": "600",
        "home/memory.db-shm": "600",
        "home/memory.db-wal": "600",
        "home/memory.db.initialised": "600",
    }


async def test_loose_modes_are_repaired(tmp_path: Path) -> None:
    """Also those of a log that a crash left behind."""
    home = tmp_path / "home"
    store = await sqlite(home)
    await store.apply([created("s")])
    copies = {path: path.read_bytes() for path in home.glob("memory.db-*")}
    await store.aclose()
    for path, content in copies.items():
        path.write_bytes(content)
    for path in (home, home / "locks", *home.glob("memory.db*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    store = await sqlite(home)
    assert set(modes(home).values()) == {"700", "600"}


async def test_closing_leaves_one_file_and_no_locks(tmp_path: Path) -> None:
    store = await sqlite(tmp_path / "home")
    await store.apply([created("s")])
    await store.attach("s", "me")
    await store.aclose()
    assert sorted(path.name for path in (tmp_path / "home").rglob("*")) == [
        "locks",
        "memory.db",
        "memory.db.initialised",
        "schema.lock",
    ]


async def test_children_inherit_no_file_of_the_store(tmp_path: Path) -> None:
    """Not even those that ask for every descriptor."""
    store = await sqlite(tmp_path / "home")
    await store.apply([created("s")])
    await store.attach("s", "me")
    await store.sessions(SessionQuery())
    listing = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
    )
    assert str(tmp_path) not in listing.stdout
    assert any(
        str(tmp_path) in os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    )


async def test_no_descriptor_and_no_thread_stays(tmp_path: Path) -> None:
    """Opened and closed many times."""
    fds, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        store = await sqlite(tmp_path)
        await store.apply([created("s")])
        await store.attach("s", "me")
        await store.session("s")
        await store.aclose()
    deadline = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert threading.active_count() <= threads
    # The event loop's own may come or go.
    assert len(os.listdir("/proc/self/fd")) <= fds + 2


def test_starting_imports_nothing_heavy() -> None:
    script = "import sys, ragmem.store.sqlite; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"numpy", "neo4j", "httpcore", "rich", "typer", "litellm", "prompt_toolkit"}
    assert "apsw" in found.stdout.split()
    assert not heavy & set(found.stdout.split())


# --- schema ------------------------------------------------------------------


async def test_migrations_are_numbered_and_recorded(tmp_path: Path) -> None:
    await (await sqlite(tmp_path)).aclose()
    known = [(number, name) for number, name, _ in schema.migrations()]
    assert [number for number, _ in known] == list(range(1, schema.VERSION + 1))
    assert by_hand(tmp_path, "SELECT version, name FROM migrations") == known
    assert by_hand(tmp_path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert by_hand(tmp_path, "PRAGMA journal_mode") == [("wal",)]


async def test_settings_of_the_connection_that_writes(tmp_path: Path) -> None:
    """What was acknowledged survives a power cut (synchronous=FULL is 2)."""
    store = await sqlite(tmp_path)
    names = ("synchronous", "foreign_keys", "journal_mode")
    found = await store._writer.run(lambda db: [db.pragma(name) for name in names])
    assert found == [2, 1, "wal"]


async def test_a_next_version_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await sqlite(tmp_path)
    await store.apply([created("s"), *whole_turn("s", user="kept")])
    await store.aclose()

    shipped = list(schema.migrations())
    following = (schema.VERSION + 1, "more", "CREATE TABLE more (x)")
    monkeypatch.setattr(schema, "migrations", lambda: iter([*shipped, following]))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    store = await sqlite(tmp_path)
    assert texts(await store.turns("s")) == ["kept"]
    assert (await store.info()).schema_version == schema.VERSION
    await store.aclose()
    assert by_hand(tmp_path, "SELECT version, name FROM migrations")[-1] == following[:2]


async def test_a_migration_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one transaction with its record."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    await store.aclose()

    shipped = list(schema.migrations())
    broken = (schema.VERSION + 1, "broken", "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(schema, "migrations", lambda: iter([*shipped, broken]))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(apsw.SQLError, match="nowhere"):
        await sqlite(tmp_path)
    monkeypatch.undo()

    assert by_hand(tmp_path, "SELECT name FROM sqlite_schema WHERE name = 'half'") == []
    store = await sqlite(tmp_path)
    assert (await store.session("s")).session_id == "s"


async def test_storing_a_turn_takes_less_than_a_tenth_of_a_second(tmp_path: Path) -> None:
    """In the middle of thirty, which take two milliseconds each."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    took: list[float] = []
    for turn_id in (f"t{number}" for number in range(30)):
        began = time.perf_counter()
        for step in (begun("s", turn_id), called("s", turn_id), finished("s", turn_id)):
            await store.apply([step])
        took.append(time.perf_counter() - began)
    assert median(took) < 0.1


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT * FROM sessions WHERE cwd = '' ORDER BY last_activity_at DESC, session_id DESC",
         "sessions_by_cwd"),
        ("SELECT * FROM sessions WHERE project_id = ''", "sessions_by_project"),
        ("SELECT * FROM sessions ORDER BY last_activity_at DESC, session_id DESC",
         "sessions_by_activity"),
        ("SELECT * FROM turns WHERE session_id = '' ORDER BY turn_index DESC",
         "sqlite_autoindex_turns_2"),
        ("SELECT * FROM turns WHERE status = 'running' AND owner_id = ''", "turns_running"),
        ("SELECT * FROM summaries WHERE session_id = '' AND level = 1 ORDER BY created_at",
         "summaries_by_session"),
    ],
)  # fmt: skip
async def test_frequent_queries_have_their_index(tmp_path: Path, sql: str, index: str) -> None:
    """SessionId, timestamp, level, cwd; no query of these sorts."""
    await (await sqlite(tmp_path)).aclose()
    plan = " ".join(str(row[3]) for row in by_hand(tmp_path, f"EXPLAIN QUERY PLAN {sql}"))
    assert index in plan
    assert "TEMP B-TREE" not in plan


async def test_text_rows_hold_what_was_asked(tmp_path: Path) -> None:
    """The size of each result is stored beside it, in bytes of UTF-8."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), begun("s", "t"), called("s", "t", result='{"text": "é🌱\0"}')])
    await store.aclose()
    stored = by_hand(tmp_path, "SELECT result, result_size_bytes FROM tool_calls")
    assert stored == [('{"text": "é🌱"}', len('{"text": "é🌱"}'.encode()))]


# --- threads and locks -------------------------------------------------------


async def test_reading_waits_for_no_write(tmp_path: Path) -> None:
    """Design 7: a reader has its own thread and connection."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    let_go = threading.Event()
    busy = asyncio.create_task(store._writer.run(lambda _: let_go.wait(60)))
    waiting = asyncio.create_task(store.apply([begun("s", "t")]))
    assert (await store.session("s")).turn_count == 0
    assert not busy.done()
    assert not waiting.done()
    let_go.set()
    await asyncio.gather(busy, waiting)
    assert (await store.session("s")).turn_count == 1


async def test_a_database_that_another_holds_is_busy_not_broken(tmp_path: Path) -> None:
    """Within the time given; afterwards the same write succeeds."""
    store = await sqlite(tmp_path, timeout_s=0.3)
    await store.apply([created("s")])
    other = apsw.Connection(str(tmp_path / "memory.db"))
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="in use by another process") as busy:
        await store.apply(whole_turn("s"))
    assert time.monotonic() - started < 20
    assert "Nothing is damaged" in busy.value.hint
    with pytest.raises(StoreUnavailable):
        await store.attach("s", "me")
    assert (await store.session("s")).turn_count == 0
    second = await sqlite(tmp_path, timeout_s=0.3)
    assert len(await second.sessions(SessionQuery())) == 1
    await second.aclose()
    other.execute("ROLLBACK")
    other.close()
    await store.apply(whole_turn("s"))
    assert (await store.session("s")).turn_count == 1


async def test_waiting_writers_share_the_time(tmp_path: Path) -> None:
    """Five writes of this process wait for another's lock together, not one after the other."""
    store = await sqlite(tmp_path, timeout_s=3)
    await store.apply([created("s")])
    other = apsw.Connection(str(tmp_path / "memory.db"))
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    results = await asyncio.gather(
        *(store.apply([begun("s")]) for _ in range(5)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreUnavailable] * 5
    assert time.monotonic() - started < 12
    other.close()


async def test_a_schema_that_another_makes_is_waited_for(tmp_path: Path) -> None:
    """A fresh home whose maker hangs ends in an error, not in a hang."""
    locks = tmp_path / "locks"
    locks.mkdir()
    handle = lock(locks / "schema.lock", timeout_s=1)
    with pytest.raises(StoreUnavailable, match=r"schema\.lock"):
        await sqlite(tmp_path, timeout_s=0.2)
    os.close(handle)
    await (await sqlite(tmp_path, timeout_s=0.2)).aclose()


@pytest.mark.parametrize("after_ms", [0, 0.1, 0.3, 1])
async def test_a_cancelled_write_is_whole_or_absent(tmp_path: Path, after_ms: float) -> None:
    """Esc in the middle of a write."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    for i in range(20):
        writes: list[Write] = [begun("s", f"t{i}"), called("s", f"t{i}"), finished("s", f"t{i}")]
        task = asyncio.create_task(store.apply(writes))
        await asyncio.sleep(after_ms / 1000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    # A write that has begun ends: later ones wait their turn behind it.
    await store.apply(whole_turn("s", user="last"))
    turns = await store.turns("s")
    assert [turn.turn_index for turn in turns] == list(range(1, len(turns) + 1))
    assert {(turn.status, len(turn.tool_calls)) for turn in turns[:-1]} <= {("completed", 1)}
    assert turns[-1].user_message == "last"


async def test_owner_ids_are_no_paths(tmp_path: Path) -> None:
    """An imported file may hold any id; no file outside the locks' folder is touched."""
    canary = tmp_path / "canary.lock"
    canary.write_text("here")
    store = await sqlite(tmp_path / "home")
    await store.apply([created("s")])
    for i, owner_id in enumerate(("../../canary", str(tmp_path / "canary"), "x" * 5000, "é\ud800")):
        await store.apply([begun("s", f"t{i}", owner_id=owner_id)])
    await store.attach("s", "me")
    assert {turn.status for turn in await store.turns("s")} == {"interrupted"}
    assert canary.read_text() == "here"


async def test_an_owner_is_held_once(tmp_path: Path) -> None:
    """Two handles with one owner id: the second is refused, not left hanging."""
    first, second = await sqlite(tmp_path), await sqlite(tmp_path)
    await first.apply([created("s")])
    await first.attach("s", "me")
    with pytest.raises(StoreUnavailable, match="holds"):
        await second.attach("s", "me")
    await first.detach("me")
    assert await second.attach("s", "me") == []


# --- what is deleted ---------------------------------------------------------


def pages(home: Path) -> bytes:
    return b"".join(file.read_bytes() for file in home.iterdir() if file.is_file())


async def test_deleted_text_is_in_no_page_of_the_file(tmp_path: Path) -> None:
    """Not even where a page that was split long ago kept a copy of it."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), created("kept")])
    for number in range(150):
        long = " ".join(["qqsecret"] * (7 * number % 150))
        await store.apply(whole_turn("s", f"t{number:03}", f"qqsecret {long}", long))
        await store.apply(whole_turn("kept", f"k{149 - number:03}", "leaf " * (number % 40), "x"))
    await store.delete_session("s")
    assert len(await store.turns("kept")) == 150
    assert b"leaf" in pages(tmp_path)
    assert b"qqsec" not in pages(tmp_path)
    assert await store.check() == []


async def test_forgotten_text_is_in_no_page_of_the_file(tmp_path: Path) -> None:
    """Nor what it took the place of, its subjects and quotes; what is kept stays."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), *whole_turn("s", "t"), created("gone")])
    forgotten = []
    for number in range(150):
        secret = "qqsecret " * (7 * number % 40 + 1)
        name, before = f"f{149 - number:03}", f"f{150 - number:03}"
        if number % 3:
            forgotten.append(name)
        await store.apply(
            [
                remembered(
                    name, secret, subjects=("qqsecret",), supersedes=(before,),
                    evidence=(said("s" if number % 3 else "gone", "t", secret, path="qqsecret"),),
                    created_at=at(number),
                ),
                remembered(f"k{number:03}", "leaf " * (number % 40), evidence=(said("s", "t"),)),
            ]
        )  # fmt: skip
    await store.use_embedder(MARK)
    await store.apply([embedded("f000", b"qqsecretqqsecret", level=-1)])
    await store.forget_memories(forgotten)
    assert (await store.delete_session("gone"))["memories"] == 0
    assert (await store.info()).counts["memories"] == 150
    assert b"leaf" in pages(tmp_path)
    assert b"qqsec" not in pages(tmp_path)
    assert await store.check() == []


async def test_a_memory_is_forgotten_whole_or_not_at_all(tmp_path: Path) -> None:
    """An error in the middle leaves all of it, and its vector."""
    store = await sqlite(tmp_path)
    await store.apply([remembered("old"), remembered("new", supersedes=("old",))])
    await store.use_embedder(MARK)
    await store.apply([embedded("new", b"qqsecretqqsecret", level=-1)])
    before = await seen(store)
    arm("sqlite.delete:eio@2")
    try:
        with pytest.raises(StoreError):
            await store.forget_memories(["new"])
    finally:
        arm("")
    assert await seen(store) == before
    assert await store.small_vectors(["new"], -1, "model-a") != {}
    assert await store.forget_memories(["new"]) == {"memories": 2}


async def test_a_copy_that_stays_keeps_nothing_in_the_database(tmp_path: Path) -> None:
    """One that was made meanwhile and can't be removed: it is said, and the rest is done."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), *whole_turn("s", "t", "qqsecret", "x")])
    copy = tmp_path / schema.BACKUPS / "daily-20260101-000000.db"
    gone = await store.delete_session("s", first=lambda _: copy.mkdir(parents=True))
    assert gone["traces"] == 1
    assert b"qqsec" not in pages(tmp_path)


@pytest.mark.parametrize("what", ["a session", "a memory"])
async def test_a_deletion_says_when_another_process_still_reads_the_old_pages(
    tmp_path: Path, what: str
) -> None:
    """It is deleted all the same, and the next deletion clears the file."""
    store = await sqlite(tmp_path, timeout_s=0.3)
    await store.apply([created("s"), *whole_turn("s", "t", "qqsecret", "x"), created("empty")])
    await store.apply([remembered("m", "qqsecret", evidence=(said("s", "t"),))])
    reader = apsw.Connection(str(tmp_path / "memory.db"))
    reading = reader.execute("SELECT user_message FROM turns UNION ALL SELECT 'more'")
    next(reading)
    if what == "a memory":
        assert await store.forget_memories(["m"]) == {"memories": 1, "traces": 1}
        assert await store.memories(MemoryQuery(everywhere=True)) == []
    else:
        assert (await store.delete_session("s"))["traces"] == 1
        with pytest.raises(SessionNotFound):
            await store.session("s")
    reader.close(force=True)
    if what == "a memory":
        await store.delete_session("s")
    assert "traces" not in await store.delete_session("empty")
    assert b"qqsec" not in pages(tmp_path)


def test_who_looks_while_another_makes_it_sees_one_moment(tmp_path: Path) -> None:
    """A new file gets its schema between two looks, and is nobody else's."""
    database, locks = tmp_path / "memory.db", tmp_path / "locks"
    access = Access(OwnerLocks(locks))
    schema.prepare(database, locks)

    def make() -> None:
        schema.open_for_writing(database, access, locks_dir=locks, timeout_s=60).close()

    makes = threading.Thread(target=make)
    statements: list[str] = []

    def between(event: dict[str, object]) -> None:
        statements.append(str(event["sql"]))
        if event["trigger"] and "user_version" in str(event["sql"]):
            # It ends at once, or as soon as nobody reads any more.
            makes.start()
            makes.join(1)

    connection = Database(str(database), apsw.SQLITE_OPEN_READWRITE, access)
    connection.trace_v2(apsw.SQLITE_TRACE_STMT, between)
    assert schema.version_of(connection, database) == 0
    makes.join(60)
    connection.trace_v2(0)
    assert schema.version_of(connection, database) == schema.VERSION
    connection.close()
    assert any("user_version" in each for each in statements)
