"""What a prompt reads of a long conversation does not grow with it."""

from pathlib import Path

import apsw

from ragmem.files import OwnerLocks
from ragmem.ids import new_id
from ragmem.store.sqlite import SQLiteStore, read
from ragmem.store.sqlite.connection import Access, Database
from tests.store.samples import created, summed, whole_turn


async def test_what_is_not_rolled_up_is_found_without_the_rest(tmp_path: Path) -> None:
    """As many steps of the database with ten times as many summaries."""
    store = await SQLiteStore.open(tmp_path / "memory.db", locks_dir=tmp_path / "locks")
    steps = []
    for turns in (20, 200):
        session = created()
        session_id = session.session.session_id
        await store.apply([session])
        waiting: list[str] = []
        for start in range(0, turns, 20):
            ids = [new_id() for _ in range(20)]
            ones = [summed(session_id, turn_id) for turn_id in ids]
            await store.apply([w for turn_id in ids for w in whole_turn(session_id, turn_id)])
            await store.apply(ones)
            names = [one.summary.summary_id for one in ones]
            above = [
                summed(session_id, *names[i : i + 5], level=2, turn_count=5)
                for i in range(0, 15 if start == turns - 20 else 20, 5)
            ]
            await store.apply(above)
            waiting = names[15:]
        await store.apply([summed(session_id, *waiting[:2], level=2, turn_count=2)])
        steps.append(_steps(tmp_path / "memory.db", session_id, waiting[:1:-1]))
    await store.aclose()
    assert steps[1] < 3 * steps[0] + 100


def _steps(database: Path, session_id: str, newest: list[str]) -> int:
    """Of SQLite's machine, in tens."""
    count = 0

    def one_more() -> bool:
        nonlocal count
        count += 1
        return False

    access = Access(OwnerLocks(database.parent))
    connection = Database(str(database), apsw.SQLITE_OPEN_READONLY, access)
    connection.set_progress_handler(one_more, 10)
    found = read.summaries(connection, session_id, level=1, not_rolled_up=True, limit=10)
    connection.close()
    assert [summary.summary_id for summary in found][: len(newest)] == newest
    return count
