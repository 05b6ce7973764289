"""The embedded store under several real processes, and under kill -9."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ragmem.errors import StoreUnavailable
from ragmem.records import SessionQuery
from ragmem.store.sqlite import schema
from tests.store.opening import by_hand, sqlite
from tests.store.samples import begun, created, whole_turn

ROOT = Path(__file__).parents[2]
PRELUDE = """
import asyncio, os, sys
from pathlib import Path
from ragmem.store.sqlite import SQLiteStore
from tests.store.samples import begun, called, created, finished, whole_turn
home, name = Path(sys.argv[1]), sys.argv[2]
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def opened():
    return SQLiteStore.open(home / "memory.db", locks_dir=home / "locks", timeout_s=60)
"""

# Says what the store has acknowledged, and nothing before.
WRITES_UNTIL_KILLED = """
async def main():
    store = await opened()
    await store.attach("s", name)
    for i in range(100_000):
        turn = f"{name}-{i}"
        await store.apply([begun("s", turn, owner_id=name)])
        say("begun", turn)
        await store.apply([called("s", turn, 0, "a.py")])
        say("called", turn)
        await store.apply([called("s", turn, 1), finished("s", turn)])
        say("finished", turn)
asyncio.run(main())
"""

WRITES_SOME = """
async def main():
    store = await opened()
    say("others", *await store.attach("s", name))
    sys.stdin.readline()
    for i in range(25):
        turn = f"{name}-{i}"
        applied = await store.apply([begun("s", turn, name, owner_id=name)])
        await store.apply([called("s", turn, 0), finished("s", turn, name)])
        say(applied.turn_indexes[turn])
    await store.detach(name)
    await store.aclose()
asyncio.run(main())
"""

STARTS_ON_A_FRESH_HOME = """
async def main():
    store = await opened()
    await store.apply([created(name), *whole_turn(name)])
    say(len(await store.turns(name)))
    await store.aclose()
asyncio.run(main())
"""

HOLDS_A_TURN = """
async def main():
    store = await opened()
    await store.attach("s", name)
    await store.apply([begun("s", "held", owner_id=name)])
    say("ready")
    sys.stdin.readline()
asyncio.run(main())
"""

COPIES = """
from ragmem.failpoints import arm
from ragmem.records import utc_now
from ragmem.store.sqlite import repair
arm("sqlite.backed_up:stop")
say(repair.keep_copy(home / "memory.db", home / "locks", utc_now()))
"""


Start = Callable[[str, Path, str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with a script, a home and a name; none outlives its test."""
    with ExitStack() as stack:

        def start_one(script: str, home: Path, name: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", PRELUDE + script, str(home), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start_one


def end(process: subprocess.Popen[str], answer: str = "") -> str:
    out, err = process.communicate(answer, timeout=300)
    assert err == ""
    assert process.returncode == 0
    return out


def kill(process: subprocess.Popen[str]) -> str:
    process.kill()
    out, _ = process.communicate(timeout=60)
    return out


def check(home: Path) -> None:
    """The database is sound, by SQLite's own judgement."""
    database = home / "memory.db"
    assert by_hand(database, "PRAGMA integrity_check") == [("ok",)]
    assert by_hand(database, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("times", [9, pytest.param(60, marks=pytest.mark.campaign)])
async def test_kill_9_loses_nothing_that_was_acknowledged(
    tmp_path: Path, start: Start, times: int
) -> None:
    """Kills at random steps; no half turn, no gap, nothing lost."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    await store.aclose()
    dice = random.Random(20260101)
    acknowledged: dict[str, set[str]] = {"begun": set(), "called": set(), "finished": set()}
    for round_number in range(times):
        process = start(WRITES_UNTIL_KILLED, tmp_path, f"p{round_number}")
        if round_number % 6:
            # Some steps after its start, within the next one; else while it starts.
            assert process.stdout is not None
            began = time.monotonic()
            steps = 1 + dice.randrange(20)
            for _ in range(steps):
                what, turn = process.stdout.readline().split()
                acknowledged[what].add(turn)
            time.sleep(dice.random() * min(0.04, (time.monotonic() - began) / steps))
        else:
            time.sleep(dice.random() * 0.04)
        for line in kill(process).splitlines():
            what, turn = line.split()
            acknowledged[what].add(turn)

    check(tmp_path)
    store = await sqlite(tmp_path)
    await store.attach("s", "judge")
    turns = await store.turns("s")
    await store.aclose()
    assert len(acknowledged["finished"]) > times
    assert [turn.turn_index for turn in turns] == list(range(1, len(turns) + 1))
    by_id = {turn.turn_id: turn for turn in turns}
    assert acknowledged["begun"] <= by_id.keys()
    assert all(by_id[turn_id].tool_calls for turn_id in acknowledged["called"])
    assert all(by_id[turn_id].status == "completed" for turn_id in acknowledged["finished"])
    for turn in turns:
        if turn.status == "completed":
            assert len(turn.tool_calls) == 2
            assert turn.assistant_message
        else:
            assert turn.status == "interrupted"
            assert len(turn.tool_calls) < 2
            assert turn.assistant_message == ""
    assert any(turn.status == "interrupted" for turn in turns)


async def test_eight_processes_on_a_fresh_home(tmp_path: Path, start: Start) -> None:
    """One makes the schema, none fails."""
    home = tmp_path / "home"
    processes = [start(STARTS_ON_A_FRESH_HOME, home, f"s{i}") for i in range(8)]
    assert [end(process) for process in processes] == ["1\n"] * 8
    store = await sqlite(home)
    assert len(await store.sessions(SessionQuery())) == 8
    await store.aclose()
    check(home)


async def test_two_processes_on_one_session(tmp_path: Path, start: Start) -> None:
    """The second is told; both append; turns never mix."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    first = start(WRITES_SOME, tmp_path, "ana")
    assert first.stdout is not None
    assert first.stdout.readline() == "others\n"
    second = start(WRITES_SOME, tmp_path, "ben")
    assert second.stdout is not None
    assert second.stdout.readline() == "others ana\n"
    for process in (first, second):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    indexes = [int(line) for process in (first, second) for line in end(process).split()]
    assert sorted(indexes) == list(range(1, 51))
    turns = await store.turns("s")
    assert [turn.turn_index for turn in turns] == list(range(1, 51))
    for turn in turns:
        assert turn.turn_id.startswith(turn.user_message)
        assert turn.user_message == turn.assistant_message
        assert len(turn.tool_calls) == 1
    assert await store.attach("s", "judge") == []


async def test_a_killed_owner_is_dead_at_once(tmp_path: Path, start: Start) -> None:
    """Its lock is the kernel's; no lease, no pid file."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    await store.attach("s", "judge")
    await store.apply([begun("s", "mine", owner_id="judge")])
    process = start(HOLDS_A_TURN, tmp_path, "ana")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert await store.attach("s", "judge") == ["ana"]
    assert [turn.status for turn in await store.turns("s")] == ["running", "running"]

    # Stopped is not dead: its turn may go on.
    os.kill(process.pid, signal.SIGSTOP)
    assert await store.attach("s", "judge") == ["ana"]
    assert [turn.status for turn in await store.turns("s")] == ["running", "running"]

    kill(process)
    assert await store.attach("s", "judge") == []
    mine, held = await store.turns("s")
    assert (mine.status, mine.owner_id) == ("running", "judge")
    assert (held.status, held.owner_id) == ("interrupted", None)
    assert sorted(path.stem for path in (tmp_path / "locks").iterdir()) == sorted(
        ["schema", b"judge".hex()]
    )


# As SQLite asks, of whatever version, when it closes a database: is it the last that has it open?
IS_THE_LAST = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except BlockingIOError:
        print("no")
    else:
        print("yes")
"""


async def test_no_other_program_takes_itself_for_the_last(tmp_path: Path) -> None:
    """The last to close a database moves its log into it and removes that: never from
    under a process that goes on writing there."""
    store = await sqlite(tmp_path)
    for step in ("opened", "written", "read", "opened twice"):
        if step == "written":
            await store.apply([created("s"), *whole_turn("s")])
        elif step == "read":
            assert len(await store.turns("s")) == 1
        elif step == "opened twice":
            await (await sqlite(tmp_path)).aclose()
        asked = subprocess.run(
            [sys.executable, "-c", IS_THE_LAST, str(tmp_path / "memory.db")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (asked.stdout, asked.stderr) == ("no\n", ""), step


async def test_an_owner_that_ends_without_a_word(tmp_path: Path, start: Start) -> None:
    """A process that ends without detaching leaves no running turn behind."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    process = start(HOLDS_A_TURN, tmp_path, "ana")
    end(process, "done\n")
    assert await store.attach("s", "judge") == []
    assert [turn.status for turn in await store.turns("s")] == ["interrupted"]


async def test_a_daily_copy_made_during_a_deletion_is_dropped(tmp_path: Path, start: Start) -> None:
    """It has what was deleted; neither does one that was killed remain."""
    store = await sqlite(tmp_path)
    for name, goes_on in (("s1", True), ("s2", False)):
        await store.apply([created(name), *whole_turn(name)])
        copying = start(COPIES, tmp_path, "copying")
        os.waitpid(copying.pid, os.WUNTRACED)
        if goes_on:
            await store.delete_session(name)
            copying.send_signal(signal.SIGCONT)
            assert end(copying) == "False\n"
        else:
            kill(copying)
            await store.delete_session(name)
        assert list((tmp_path / "backups").iterdir()) == []


@pytest.mark.parametrize("has_shared_memory", [True, False])
async def test_a_copy_of_a_linked_database_has_what_is_in_its_log(
    tmp_path: Path, has_shared_memory: bool
) -> None:
    """The log is beside the database, not beside the link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "copy").mkdir()
    store = await sqlite(tmp_path / "real")
    await store.apply([created("s"), *whole_turn("s", "t1")])
    if not has_shared_memory:  # As another machine has left it.
        (tmp_path / "real" / "memory.db-shm").unlink()
    link = tmp_path / "memory.db"
    link.symlink_to(tmp_path / "real" / "memory.db")
    schema.copy_in_use(link, tmp_path / "copy" / "memory.db")
    copied = await sqlite(tmp_path / "copy")
    assert [turn.turn_id for turn in await copied.turns("s")] == ["t1"]


async def test_a_copy_of_a_database_in_use_is_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may go into it, and another be begun, between the copies of its two files."""
    store = await sqlite(tmp_path)
    database, copy = tmp_path / "memory.db", tmp_path / "copy" / "memory.db"
    copy.parent.mkdir()
    await store.apply([created("s"), *whole_turn("s", "t1", "word " * 20_000)])

    def copyfile(source: Path, to: Path) -> None:
        to.write_bytes(source.read_bytes())
        if source == database:
            by_hand(tmp_path, "PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE turns SET model = 'x'")

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    schema.copy_in_use(database, copy)
    copied = await sqlite(copy.parent)
    assert await copied.check() == []
    assert len((await copied.turns("s"))[0].user_message) > 90_000
    # That of a process that has ended, from another machine: there is no shared memory beside it.
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{database}{suffix}").read_bytes())
    Path(f"{copy}-shm").unlink()

    def copy_while_written(source: Path, to: Path) -> None:
        to.write_bytes(source.read_bytes())
        with source.open("ab") as file:
            file.write(bytes(4096))

    monkeypatch.setattr(shutil, "copyfile", copy_while_written)
    with pytest.raises(StoreUnavailable, match="was written to while it was copied"):
        schema.copy_in_use(copy, tmp_path / "another.db")
