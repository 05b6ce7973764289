"""A damaged database: what can be read is saved, what is damaged stays as it is."""

import os
import random
import shutil
import stat
from datetime import datetime, timedelta
from pathlib import Path

import apsw
import pytest

from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.records import (
    DropCodeFiles,
    PutProfile,
    PutReferences,
    SessionQuery,
    Write,
    utc_now,
)
from ragmem.store.sqlite import SQLiteStore, repair, schema
from ragmem.store.sqlite.repair import DamagedDatabase, rebuild
from tests.store.code_samples import GARDEN, code_seen, put, refers, scopes_there
from tests.store.conftest import made_once, mostly
from tests.store.opening import by_hand, sqlite
from tests.store.samples import (
    at,
    begun,
    called,
    created,
    finished,
    garden,
    known,
    remembered,
    said,
    summed,
    whole_turn,
)
from tests.store.seen import seen

PAGE = 4096
TURNS = 300


async def filled(home: Path) -> None:
    """Make a database of some hundred pages."""
    store = await sqlite(home)
    writes: list[Write] = [*garden(), *known(), created("long")]
    for n in range(TURNS):
        turn = f"turn-{n:04}"
        writes += [
            begun("long", turn, f"question {n} " + "why " * 100, started_at=at(n)),
            called("long", turn, 0, f"src/{n}.py", tool_call_id=f"call-{n:04}"),
            finished("long", turn, f"answer {n} " + "so " * 100),
        ]
    writes += [
        summed("long", *(f"turn-{n:04}" for n in range(k, k + 10))) for k in range(0, 200, 10)
    ]
    writes += [
        remembered(f"m{n:03}", f"fact {n} " + "known " * 50, evidence=(
            said("long", f"turn-{n:04}"),), supersedes=(f"m{n - 1:03}",) if n % 3 else ())
        for n in range(150)
    ]  # fmt: skip
    writes += [put(f"src/{n}.py", f"own{n}", f"other{n}", imports=("0.py",)) for n in range(150)]
    writes += [put(f"src/{n}.py", f"own{n}") for n in range(140, 150)]
    writes += [
        refers(f"turn-{n:04}", **{f"own{n // 2}": "edited", f"other{n // 2}": "read"})
        for n in range(TURNS)
    ]
    writes += [put(f"src/{n}.py", f"own{n}", hash="2") for n in range(20)]
    writes += [DropCodeFiles(project_id=GARDEN, paths=("src/20.py", "src/21.py"))]
    await store.apply(writes)
    await store.aclose()


kept = made_once(filled)


@pytest.fixture
def database(tmp_path: Path, kept: Path) -> Path:
    """One of some hundred pages, in a home of its own."""
    return Path(shutil.copytree(kept, tmp_path / "home")) / "memory.db"


def roots_end(database: Path) -> int:
    """Where pages begin without which a table is not lost as a whole, counted from 0."""
    return int(by_hand(database, "SELECT max(rootpage) FROM sqlite_schema")[0][0])


async def rebuilt(
    database: Path, folder: Path, backup: Path | None = None
) -> tuple[SQLiteStore, int]:
    """What was saved, in a store of its own, and how many places were lost."""
    folder.mkdir()
    sources = [DamagedDatabase(each, folder) for each in (database, backup) if each]
    rebuild(sources, folder / "memory.db", folder / "locks", owner="")
    for source in sources:
        source.connection.close()
    return await sqlite(folder), sources[0].lost


async def test_of_a_whole_one_nothing_is_lost(tmp_path: Path, database: Path) -> None:
    store, lost = await rebuilt(database, tmp_path / "new")
    original = await sqlite(tmp_path / "home")
    assert lost == 0
    assert await seen(store) == await seen(original)
    turns = [f"turn-{n:04}" for n in range(TURNS)]
    assert await code_seen(store, *turns) == await code_seen(original, *turns)
    assert len((await scopes_there(store)).keys()) == 290
    assert len(await store.get(PutReferences, turns)) == TURNS


@pytest.mark.parametrize("seed", mostly(range(4), range(12)))
async def test_damaged_pages_cost_what_is_on_them(
    tmp_path: Path, database: Path, seed: int
) -> None:
    """The rest is saved, whole by every promise; the original is not touched."""
    content = bytearray(database.read_bytes())
    first = roots_end(database)
    chosen = random.Random(seed).sample(range(first, len(content) // PAGE), 3)
    for page in chosen:
        content[page * PAGE : (page + 1) * PAGE] = random.Random(seed).randbytes(PAGE)
    database.write_bytes(content)
    store, _ = await rebuilt(database, tmp_path / "new")
    assert await store.check() == []
    sessions = {each.session_id: each for each in await store.sessions(SessionQuery(limit=99))}
    assert sessions["long"].turn_count > TURNS * 0.8
    assert (await store.info()).counts["memories"] > 0.8 * 154
    assert (await store.info()).counts["scopes"] > 0.8 * 290
    assert database.read_bytes() == content


async def test_what_is_lost_comes_from_a_backup(tmp_path: Path, database: Path) -> None:
    """What was said since it was made is taken from what can be read, the rest from it."""
    assert repair.keep_copy(database, tmp_path / "home/locks", utc_now())
    [backup] = schema.daily_copies(database)
    store = await sqlite(tmp_path / "home")
    await store.apply(whole_turn("root", "late", "Said after the backup."))
    await store.aclose()
    content = bytearray(database.read_bytes())
    for page in range(roots_end(database), len(content) // PAGE, 5):
        content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    database.write_bytes(content)
    store, lost = await rebuilt(database, tmp_path / "new", backup)
    assert lost > 0
    assert await store.check() == []
    assert (await store.session("long")).turn_count == TURNS
    assert (await store.info()).counts["memories"] == 154
    assert len((await scopes_there(store)).keys()) == 290


async def test_what_was_removed_on_purpose_does_not_come_back(
    tmp_path: Path, database: Path
) -> None:
    """A backup fills the gaps of tables that have some, and of no other."""
    store = await sqlite(tmp_path / "home")
    await store.apply([PutProfile(key="employer", value="ACME", at=at(1))])
    assert repair.keep_copy(database, tmp_path / "home/locks", utc_now())
    [backup] = schema.daily_copies(database)
    await store.apply([PutProfile(key="employer", value=None, at=at(2))])
    await store.aclose()
    by_hand(
        database,
        "UPDATE sessions SET completed_count = 7",
        "DELETE FROM turns WHERE turn_id = 'turn-0007'",
        "DELETE FROM sessions WHERE session_id = 'root'",
    )
    store, lost = await rebuilt(database, tmp_path / "new", backup)
    assert lost == 0
    assert await store.check() == []
    assert (await store.session("long")).turn_count == TURNS
    assert (await store.session("root")).title != "Salvaged session"
    assert "employer" not in (await store.profile()).values


async def test_a_database_that_is_written_to_meanwhile_is_not_exchanged(
    tmp_path: Path, database: Path
) -> None:
    """Nothing that was acknowledged is lost: neither before the exchange nor during it."""
    new = tmp_path / "new.db"
    shutil.copyfile(database, new)
    state = schema.state_of(database)
    store = await sqlite(tmp_path / "home", timeout_s=1)
    await store.apply([created("late")])
    with pytest.raises(StoreUnavailable, match="written to during the repair"):
        schema.exchange(database, new, state)
    state = schema.state_of(database)
    other = apsw.Connection(str(database))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="written to during the repair"):
        schema.exchange(database, new, state)
    other.close()
    before = database.read_bytes()
    kept = schema.exchange(database, new, state)
    assert kept.read_bytes() == before
    with pytest.raises(StoreDamaged, match="was replaced while in use"):
        await store.apply([created("later")])
    assert {each.name for each in database.parent.glob("memory.db.d*")} == {
        kept.name,
        f"{kept.name}-wal",
    }


async def test_one_in_use_is_not_repaired(tmp_path: Path, database: Path) -> None:
    store = await sqlite(tmp_path / "home")
    await store.attach("root", "0a")
    copy = DamagedDatabase(database, tmp_path)
    with pytest.raises(StoreRefused, match="using one of its sessions"):
        copy.refuse_while_used(tmp_path / "home/locks")
    await store.detach("0a")
    copy.refuse_while_used(tmp_path / "home/locks")
    copy.connection.close()


async def test_without_its_first_page_nothing_is_read(tmp_path: Path, database: Path) -> None:
    """It is left as it is; a backup alone takes its place."""
    assert repair.keep_copy(database, tmp_path / "home/locks", utc_now())
    [backup] = schema.daily_copies(database)
    content = bytearray(database.read_bytes())
    content[:PAGE] = bytes(PAGE)
    database.write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"Nothing of .* can be read"):
        DamagedDatabase(database, tmp_path)
    folder = tmp_path / "new"
    folder.mkdir()
    rebuild([DamagedDatabase(backup, folder)], folder / "memory.db", folder / "locks", owner="")
    store = await sqlite(folder)
    assert (await store.session("long")).turn_count == TURNS
    assert await store.check() == []


async def test_backups_are_one_a_day_and_the_newest_three(tmp_path: Path, database: Path) -> None:
    """None where nothing has changed; private; with a deletion all of them go."""
    now = utc_now()
    days = [now + timedelta(days=each, minutes=each) for each in range(-6, 0)]

    def keep(at: datetime) -> bool:
        return repair.keep_copy(database, tmp_path / "home/locks", at)

    os.utime(database, (days[0].timestamp(), days[0].timestamp()))
    assert keep(days[0])
    assert not keep(days[0] + timedelta(hours=23))
    assert not keep(days[1]), "nothing has changed"
    for day in days[1:]:
        os.utime(database, (day.timestamp(), day.timestamp()))
        assert keep(day)
    there = schema.daily_copies(database)
    assert len(there) == 3
    assert {stat.S_IMODE(each.stat().st_mode) for each in there} == {0o600}
    assert not list(there[0].parent.glob(".*"))
    store = await sqlite(tmp_path / "home")
    await store.delete_session("deep")
    assert schema.daily_copies(database) == []


async def test_a_copy_from_the_future_stops_no_other(tmp_path: Path, database: Path) -> None:
    """The clock was wrong when it was made: it is the first to go, and never the newest."""
    locks = tmp_path / "home/locks"
    now = utc_now()
    assert repair.keep_copy(database, locks, now + timedelta(days=3650))
    [wrong] = schema.daily_copies(database)
    for day in range(3):
        assert wrong in schema.daily_copies(database)
        assert repair.keep_copy(database, locks, now + timedelta(days=day, minutes=day))
        changed = now + timedelta(days=day, hours=1)
        os.utime(database, (changed.timestamp(), changed.timestamp()))
    assert wrong not in schema.daily_copies(database)
    assert len(schema.daily_copies(database)) == 3


async def test_a_damaged_database_takes_no_backups_place(tmp_path: Path, database: Path) -> None:
    assert repair.keep_copy(database, tmp_path / "home/locks", utc_now())
    before = schema.daily_copies(database)
    content = bytearray(database.read_bytes())
    at = roots_end(database) * PAGE
    content[at : at + 40 * PAGE] = random.Random(1).randbytes(40 * PAGE)
    database.write_bytes(content)
    with pytest.raises(apsw.Error):
        repair.keep_copy(database, tmp_path / "home/locks", utc_now() + timedelta(days=2))
    assert schema.daily_copies(database) == before


async def test_cut_in_the_middle(tmp_path: Path, database: Path) -> None:
    """What stood before the cut is saved."""
    content = database.read_bytes()
    database.write_bytes(content[: len(content) * 2 // 3 + 100])
    store, lost = await rebuilt(database, tmp_path / "new")
    assert lost > 0
    assert await store.check() == []
    assert (await store.info()).counts["turns"] > 20


async def test_turns_of_a_lost_session_are_kept(tmp_path: Path, database: Path) -> None:
    """A session is made up for them, so that they can be found."""
    by_hand(
        database,
        "DELETE FROM sessions WHERE session_id IN ('long', 'fork')",
        "DELETE FROM turns WHERE turn_id = 'r1'",
    )
    store, _ = await rebuilt(database, tmp_path / "new")
    assert await store.check() == []
    session = await store.session("long")
    assert (session.title, session.turn_count) == ("Salvaged session", TURNS)
    assert [turn.turn_id for turn in await store.turns("root")] == ["r2", "r3", "r4"]
    assert [turn.turn_id for turn in await store.turns("fork")] == ["f3"]
