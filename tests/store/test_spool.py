"""The outage spool, over real stores that are locked, silent, cut off, refusing or not there."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from ragmem.errors import SessionNotFound, StoreError, StoreRefused, StoreUnavailable
from ragmem.failpoints import hits
from ragmem.records import Applied, Project, RegisterProject, SessionQuery, UpdateSession, Write
from ragmem.store import Store
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.spool.files import count_waiting
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.patience import held_at, until
from tests.store.samples import START, begun, called, created, finished, insight, texts, whole_turn

QUICK = Patience(retry_s=0.05, longest_retry_s=0.05)
CALM = Patience(stall_s=20, read_s=20, left_s=60, retry_s=0.05, longest_retry_s=0.05)
"""Of stores that are not slow, but may be on a busy machine: they are away, or they answer."""


class Home:
    """A database and its spool."""

    def __init__(self, folder: Path, address: str = "sqlite") -> None:
        self.database = folder / "memory.db"
        self.locks = folder / "locks"
        self.spool = folder / "spool" / address
        self.older: tuple[Path, ...] = ()
        self.opened: list[SpooledStore] = []
        self.error: StoreError | None = None
        """What opening the store fails with."""
        self.deleted = set[str]()
        self.looks = 0
        """How often it was asked which sessions were deleted."""
        """Ids of sessions."""

    def open(self, *, timeout_s: float = 5.0, patience: Patience = CALM) -> SpooledStore:
        """One more handle; each is as another process is."""

        async def inner() -> Store:
            if self.error is not None:
                raise self.error
            return await SQLiteStore.open(self.database, locks_dir=self.locks, timeout_s=timeout_s)

        store = SpooledStore(
            inner,
            self.spool,
            older=self.older,
            patience=patience,
            deleted=self.look,
        )
        self.opened.append(store)
        return store

    def look(self) -> set[str]:
        self.looks += 1
        return self.deleted

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Another program holds the database's write lock."""
        connection = apsw.Connection(str(self.database))
        connection.set_busy_timeout(10_000)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()

    @property
    def files(self) -> list[Path]:
        """Of the spool."""
        return sorted(self.spool.glob("*")) if self.spool.exists() else []


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    for store in home.opened:
        await store.aclose()


async def settled(store: SpooledStore, folder: Path) -> None:
    """Wait until nothing waits any more."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.sessions(SessionQuery())
                if not count_waiting(folder):
                    return
            except StoreError:
                pass
            await asyncio.sleep(0.02)


# --- away and back -------------------------------------------------------------------


async def test_that_it_is_kept_is_told_once_something_is(home: Home) -> None:
    """Where nothing is recorded it never is; what was told before the first write is told later."""
    store = home.open()
    home.error = StoreUnavailable("The server is away.")
    with pytest.raises(StoreUnavailable):
        await store.sessions(SessionQuery())
    assert store.take_notices() == ["Memory is unavailable: The server is away."]
    assert store.take_notices() == []
    assert isinstance(await store.apply([created("s")]), Waiting)
    assert store.take_notices() == ["Meanwhile, everything is kept on this disk."]
    await store.apply([begun("s", "t1")])
    assert store.take_notices() == []
    home.error = None


async def test_a_store_that_answers_needs_no_spool(home: Home) -> None:
    store = home.open()
    assert await store.apply([created("s"), begun("s", "t")]) == Applied({"t": 1})
    assert home.files == []
    assert store.take_notices() == []
    assert "waiting_writes" not in (await store.info()).counts


async def test_a_write_that_stalls_is_acknowledged_by_the_disk(home: Home) -> None:
    """Within moments, synced, for this user alone whatever the umask; then it arrives."""
    store = home.open(timeout_s=60, patience=QUICK)
    await store.apply([created("s")])
    await settled(store, home.spool)
    old = os.umask(0)
    try:
        with home.locked():
            began = time.monotonic()
            applied = await store.apply(whole_turn("s", "t", "Is it kept?"))
            took = time.monotonic() - began
            assert applied == Waiting()
            assert isinstance(applied, Waiting)
            assert 0.15 < took < 30
            (file,) = home.files
            assert [stat.S_IMODE(p.stat().st_mode) for p in (file, home.spool)] == [0o600, 0o700]
            assert stat.S_IMODE(home.spool.parent.stat().st_mode) == 0o700
            assert file.read_bytes().count(b"\n") == 2
            assert b"Is it kept?" in file.read_bytes()
    finally:
        os.umask(old)
    await settled(store, home.spool)
    (turn,) = await store.turns("s")
    assert (turn.turn_index, turn.user_message, turn.status) == (1, "Is it kept?", "completed")
    assert store.take_notices() == []


async def test_while_away_nothing_waits_for_the_store(home: Home) -> None:
    """Writes and reads are answered at once; the person hears it once, and once the end.

    What a lock kept out for longer than the timeout is retried, not lost.
    """
    patience = Patience(stall_s=1, retry_s=0.05, longest_retry_s=0.05)
    store = home.open(timeout_s=3, patience=patience)
    await store.apply([created("s"), *whole_turn("s", "t0", "zero")])
    await settled(store, home.spool)
    with home.locked():
        await store.apply(whole_turn("s", "t1", "one"))
        async with asyncio.timeout(60):
            while store._away is None:
                await asyncio.sleep(0.02)
        began = time.monotonic()
        for number in range(2, 30):
            assert isinstance(
                await store.apply(whole_turn("s", f"t{number}", f"{number}")), Waiting
            )
        with pytest.raises(StoreUnavailable, match="in use by another process"):
            await store.turns("s")
        # Each on its own would wait for the store 28 times: a second, or three.
        assert time.monotonic() - began < 20
        (notice,) = store.take_notices()
        assert notice.startswith("Memory is unavailable: The memory's database")
        assert notice.endswith("Meanwhile, everything is kept on this disk.")
        assert store.take_notices() == []
        assert count_waiting(home.spool) == 58
    await settled(store, home.spool)
    assert [turn.turn_index for turn in await store.turns("s")] == list(range(1, 31))
    assert texts(await store.turns("s")) == ["zero", "one", *(str(n) for n in range(2, 30))]
    assert store.take_notices() == ["Memory is back. 58 writes that waited are now stored."]
    assert [file.stat().st_size for file in home.files] == [0]
    await store.aclose()
    assert home.files == []


async def test_ten_flaps_with_many_writers(home: Home) -> None:
    """Everything once, each writer's turns in its own order."""
    store = home.open(timeout_s=0.1, patience=QUICK)
    await store.apply([created("s")])

    async def writer(name: str) -> None:
        for number in range(20):
            await store.apply(whole_turn("s", f"{name}-{number:02}", f"{name}-{number:02}"))
            await asyncio.sleep(0.01)

    writers = [asyncio.create_task(writer(name)) for name in "abc"]
    for _ in range(10):
        with home.locked():
            await asyncio.sleep(0.12)
        await asyncio.sleep(0.06)
    await asyncio.gather(*writers)
    await settled(store, home.spool)
    turns = await store.turns("s")
    assert [turn.turn_index for turn in turns] == list(range(1, 61))
    said = texts(turns)
    assert sorted(said) == [f"{name}-{number:02}" for name in "abc" for number in range(20)]
    for name in "abc":
        own = [text for text in said if text.startswith(name)]
        assert own == sorted(own)
    assert {turn.status for turn in turns} == {"completed"}


async def test_what_follows_an_interrupted_write_comes_after_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the store takes what nobody waits for any more: it goes on to its end."""
    store = home.open(patience=Patience(stall_s=20))
    await store.apply([created("s")])
    inner, may_go_on, has_begun = await store.inner(), asyncio.Event(), asyncio.Event()
    with monkeypatch.context() as patched:
        apply = inner.apply

        async def late(writes: Sequence[Write]) -> Applied:
            has_begun.set()
            await may_go_on.wait()
            return await apply(writes)

        patched.setattr(inner, "apply", late)
        first = asyncio.create_task(store.apply(whole_turn("s", "first", "interrupted")))
        await has_begun.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(store.apply(whole_turn("s", "second", "goes on")))
    await asyncio.wait({second}, timeout=0.3)
    may_go_on.set()
    assert await second == Applied({"second": 2})
    assert [turn.turn_id for turn in await store.turns("s")] == ["first", "second"]


async def test_a_store_that_takes_few_writes_in_time_gets_all_of_them(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is far away, say: what it had no time for is tried again in smaller portions."""
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    await store.apply([created("s"), *whole_turn("s", "t1"), *whole_turn("s", "t2")])
    home.error = None
    apply = SQLiteStore.apply

    async def slow(inner: SQLiteStore, writes: Sequence[Write]) -> Applied:
        if len(writes) > 2:
            raise StoreUnavailable("It did not answer within 5 s.")
        return await apply(inner, writes)

    monkeypatch.setattr(SQLiteStore, "apply", slow)
    await settled(store, home.spool)
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1", "t2"]


async def test_refusing_and_damaged_stores_are_away_too(home: Home) -> None:
    """Nothing is dropped, nothing is overwritten; put back, it is full."""
    store = home.open()
    await store.apply([created("s"), *whole_turn("s", "t1")])
    elsewhere = home.database.with_name("elsewhere.db")
    apsw.Connection(str(home.database)).pragma("wal_checkpoint(TRUNCATE)")
    home.database.rename(elsewhere)
    assert isinstance(await store.apply(whole_turn("s", "t2")), Waiting)
    (notice,) = store.take_notices()
    assert "moved or deleted while in use" in notice
    await asyncio.sleep(0.2)
    assert not home.database.exists()
    elsewhere.rename(home.database)
    await settled(store, home.spool)
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1", "t2"]


async def test_a_store_that_refuses_everything_keeps_everything_waiting(home: Home) -> None:
    home.error = StoreRefused("Wrong password.", hint="Set NEO4J_PASSWORD.")
    store = home.open()
    for writes, told in (
        ([created("s")], "1 write waits"),
        (whole_turn("s", "t"), "3 writes wait"),
    ):
        await store.apply(writes)
        await asyncio.sleep(0.3)
        with pytest.raises(StoreRefused, match="Wrong password") as caught:
            await store.info()
        assert caught.value.hint == f"Set NEO4J_PASSWORD. {told} on this disk."
    assert count_waiting(home.spool) == 3
    home.error = None
    await settled(store, home.spool)
    assert len(await store.turns("s")) == 1


async def test_folders_keep_their_project(home: Home) -> None:
    """Known before the outage, or new in it: the next process takes the same."""
    old = Project(project_id="old", path="/home/ana/old", created_at=START)
    new = Project(project_id="new", path="/home/ana/new", created_at=START)
    store = home.open()
    await store.apply([RegisterProject(project=old)])
    assert await store.projects() == [old]
    await store.aclose()
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    assert await store.projects() == [old]
    await store.apply([RegisterProject(project=new)])
    await store.aclose()
    assert await home.open().projects() == [old, new]
    (known,) = home.spool.parent.glob("*.json")
    assert stat.S_IMODE(known.stat().st_mode) == 0o600
    known.write_text("torn")
    with pytest.raises(StoreUnavailable):
        await home.open().projects()


# --- other processes -----------------------------------------------------------------

_CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from ragmem.errors import StoreUnavailable
from ragmem.store.spool import SpooledStore
from tests.store.samples import begun, created, whole_turn

async def away():
    raise StoreUnavailable("It is down.")

async def main():
    store = SpooledStore(away, Path(sys.argv[1]))
    for number in range(100):
        await store.apply(whole_turn("s", f"t{number:03}", f"{number}"))
        print(number, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_what_a_killed_process_left_is_written_by_the_next(home: Home) -> None:
    """All that was acknowledged before kill -9, in order, once; no turn is half."""
    first = home.open()
    await first.apply([created("s")])
    await first.aclose()
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(home.spool)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(37)]
    child.send_signal(signal.SIGKILL)
    with child:
        acknowledged += [int(line) for line in child.stdout]
    store = home.open()
    # What it had acknowledged is there for the first question that the next process asks.
    turns = await store.turns("s")
    assert texts(turns)[: len(acknowledged)] == [str(number) for number in acknowledged]
    assert len(turns) - len(acknowledged) in (0, 1)
    assert {turn.status for turn in turns[: len(acknowledged)]} == {"completed"}
    assert [turn.turn_index for turn in turns] == list(range(1, len(turns) + 1))
    assert home.files == []
    (notice,) = store.take_notices()
    assert notice.endswith("writes left by an earlier process are now stored.")


async def test_the_file_of_a_living_process_is_left_to_it(home: Home) -> None:
    """Its order is its own."""
    home.error = StoreUnavailable("It is down.")
    living = home.open(patience=Patience(retry_s=60))
    await living.apply([created("s")])
    home.error = None
    other = home.open()
    assert await other.sessions(SessionQuery()) == []
    assert (await other.info()).counts["waiting_writes"] == 1
    await living.aclose()
    await other.heartbeat("me")
    await settled(other, home.spool)
    assert [session.session_id for session in await other.sessions(SessionQuery())] == ["s"]
    await until(lambda: home.files == [])


async def test_closing_leaves_what_waits_and_is_quick(home: Home) -> None:
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    await store.apply([created("s")])
    began = time.monotonic()
    await store.aclose()
    await store.aclose()
    assert time.monotonic() - began < 10
    assert count_waiting(home.spool) == 1
    for call in (store.apply([created("t")]), store.sessions(SessionQuery())):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call
    home.error = None
    assert len(await home.open().sessions(SessionQuery())) == 1


async def test_what_a_process_closes_over_while_it_takes_it_over_is_left_to_the_next(
    home: Home,
) -> None:
    """Whoever closes just then holds its lock no longer, though the process lives on."""
    home.error = StoreUnavailable("It is down.")
    dead = home.open()
    await dead.apply([created("s")])
    await dead.aclose()
    home.error = None
    hasty = home.open()
    with held_at("spool.adopt") as goes_on:
        reads = asyncio.create_task(hasty.sessions(SessionQuery()))
        await until(lambda: hits("spool.adopt"))
        closes = asyncio.create_task(hasty.aclose())
        await asyncio.sleep(0)
        goes_on.set()
        await closes
    with pytest.raises(StoreUnavailable):
        await reads
    found = await home.open().sessions(SessionQuery())
    assert [session.session_id for session in found] == ["s"]


# --- odd lines -------------------------------------------------------------------------


async def test_a_torn_line_costs_itself_and_an_unknown_one_is_kept(home: Home) -> None:
    """Neither costs the rest; a newer version finds its own, what is damaged is set aside."""
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    await store.apply([created("s"), *whole_turn("s", "t1")])
    await store.aclose()
    (file,) = home.files
    lines = file.read_bytes().splitlines(keepends=True)
    newer = b'{"write":"hologram","colour":"blue"}\n'
    rest = b'{"write":"turn_begin","turn_id":"t9","sess'
    file.write_bytes(lines[0] + newer + b"\xff\x00 not JSON\n" + b"".join(lines[1:]) + rest)
    home.error = None
    for said in ("it is damaged", "by a newer version"):
        store = home.open()
        assert [turn.turn_id for turn in await store.turns("s")] == ["t1"]
        counts = (await store.info()).counts
        assert (counts["waiting_writes"], counts["set_aside"]) == (1, 1)
        (notice,) = store.take_notices()[-1:]
        assert said in notice
        (file,) = home.spool.glob("*.jsonl")
        (aside,) = home.spool.glob("set-aside/*")
        assert file.read_bytes() == newer
        assert aside.read_bytes() == b"\xff\x00 not JSON\n"
        assert {stat.S_IMODE(each.stat().st_mode) for each in (file, aside)} == {0o600}
        await store.aclose()


async def test_a_line_that_is_too_long_is_set_aside_and_what_follows_is_stored(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an earlier version has left, and one of this process."""
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    await store.apply([created("s"), begun("s", "t1")])
    await store.apply([finished("s", "t1", "x" * 3_000_000)])
    await store.apply([begun("s", "t2"), finished("s", "t2")])
    await store.aclose()
    monkeypatch.setattr("ragmem.store.spool.files.MOST_IN_A_LINE", 2_000_000)
    store = home.open()
    await store.apply([created("s2"), begun("s2", "t3", "y" * 3_000_000), *whole_turn("s2", "t4")])
    home.error = None
    async with asyncio.timeout(60):
        while count_waiting(home.spool):
            await asyncio.sleep(0.02)
    found = {turn.turn_id: turn.status for turn in await store.turns("s")}
    assert found == {"t1": "running", "t2": "completed"}
    assert [turn.turn_id for turn in await store.turns("s2")] == ["t4"]
    assert "larger than" in " ".join(store.take_notices())
    assert (await store.info()).counts["set_aside"] == 2
    sizes = sorted(each.stat().st_size for each in home.spool.glob("set-aside/*"))
    assert all(3_000_000 < size < 3_001_000 for size in sizes)


async def test_a_write_that_no_store_takes_does_not_hold_up_the_rest(home: Home) -> None:
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    await store.apply([created("s"), *whole_turn("gone", "t0"), *whole_turn("s", "t1")])
    home.error = None
    async with asyncio.timeout(60):
        while count_waiting(home.spool) != 2:
            await asyncio.sleep(0.02)
    assert [turn.turn_id for turn in await store.turns("s")] == ["t1"]
    notices = " ".join(store.take_notices())
    assert "There is no session gone" in notices
    assert str(home.spool) in notices
    with pytest.raises(SessionNotFound):
        await store.apply(whole_turn("gone", "t2"))


async def test_what_waits_for_a_session_that_was_deleted_is_dropped_and_said_once(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits for another that isn't there is kept: it may still come."""
    home.deleted = {"gone"}
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    renamed = UpdateSession(session_id="gone", title="Anew", at=START)
    await store.apply([*whole_turn("gone", "t0"), renamed, insight("gone")])
    await store.apply([created("s"), *whole_turn("s", "t1"), *whole_turn("late", "t2")])
    home.error = None
    async with asyncio.timeout(60):
        while count_waiting(home.spool) != 2:
            await asyncio.sleep(0.02)
    notices = " ".join(store.take_notices())
    dropped = "Dropped 4 writes that waited for a deleted session."
    assert dropped in notices
    assert dropped in caplog.messages
    assert "There is no session late" in notices
    assert home.looks == 1
    await store.aclose()
    later = home.open()
    assert [turn.turn_id for turn in await later.turns("s")] == ["t1"]
    (notice,) = later.take_notices()
    assert "There is no session late" in notice


async def test_text_that_json_can_not_hold_is_stored_as_the_store_would(home: Home) -> None:
    """Half characters, numbers out of range."""
    home.error = StoreUnavailable("It is down.")
    store = home.open()
    odd = called("s", "t", 0, "a\ud800.py", duration_ms=2**70)
    await store.apply([created("s"), begun("s", "t", "half \ud83d \0 nul"), odd])
    home.error = None
    await settled(store, home.spool)
    (turn,) = await store.turns("s")
    assert turn.user_message.startswith("half \ufffd")
    assert turn.tool_calls[0].duration_ms == 2**63 - 1
