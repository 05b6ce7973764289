"""What is said to be stopped is stopped, whatever a command does to get away."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragmem.tools import subprocess_guard
from tests.fakes.patience import until
from tests.tools.conftest import Desk, gone, mark, running

__all__ = ["mark"]

# Each ends its shell, or sleeps on; MARK is in the command line of all that must be gone.
KILLS_ITS_GUARD = {
    "kills it and sleeps": "kill -9 $PPID; sleep MARK",
    "kills it from a session of its own": (
        "setsid bash -c 'kill -9 $0; sleep MARK' $PPID & sleep MARK"
    ),
    "kills it, forks twice, clears all": (
        "g=$PPID; (setsid bash -c 'env -i setsid /bin/sleep MARK & disown' &); "
        "exec env -i /bin/kill -9 $g"
    ),
    "stops it": "kill -STOP $PPID; sleep MARK",
    "stops it and runs away": (
        "kill -STOP $PPID; (env -i setsid setsid bash -c '/bin/sleep MARK' &); exec sleep MARK"
    ),
}
STAYS = {
    "two forks and a session": "(setsid setsid bash -c 'sleep MARK & sleep MARK' &) ; sleep MARK",
    "deaf to everything that can be ignored": (
        "trap '' TERM HUP INT QUIT; bash -c 'trap \"\" TERM; while :; do sleep MARK; done'"
    ),
    "stops its guard when asked to end": "trap 'kill -STOP $PPID' TERM; sleep MARK & wait",
    "kills its guard when asked to end": "trap 'kill -9 $PPID' TERM; sleep MARK & wait",
    "forks for ever": "f() { setsid sleep MARK & sleep 0.02; f; }; f",
    "a new one again and again": "while :; do (sleep 0.02); setsid sleep MARK & done",
    "lowers its mark": "ulimit -R 1000000; setsid sleep MARK & sleep MARK",
    "is disowned": "nohup sleep MARK >/dev/null 2>&1 & disown; sleep MARK",
    "clears its environment": "env -i setsid /bin/sleep MARK & sleep MARK",
    "stops itself": "sleep MARK & kill -STOP $!; kill -STOP $$",
    "closes its output": "exec >&- 2>&-; sleep MARK",
    "works on": "yes >/dev/null & sleep MARK",
}


_ROOT = Path(__file__).parents[2]
_RUNS = """
import asyncio, sys
from pathlib import Path
from tests.tools.conftest import Desk
desk = Desk(Path(sys.argv[1]).resolve(), mode="bypassPermissions")
asyncio.run(desk.call("run_command", command=sys.argv[2]))
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, mode="bypassPermissions")


@pytest.mark.parametrize("name", KILLS_ITS_GUARD)
async def test_a_command_without_its_guard_is_ended(desk: Desk, mark: str, name: str) -> None:
    command = KILLS_ITS_GUARD[name].replace("MARK", mark)
    outcome = await desk.fails("run_command", command=command, timeout=30)
    assert not running(mark), outcome.text
    assert "The process that watches the command was" in outcome.text
    assert "the command was stopped, with everything it had started." in outcome.text


@pytest.mark.parametrize("name", STAYS)
async def test_nothing_is_left_after_a_timeout(desk: Desk, mark: str, name: str) -> None:
    command = STAYS[name].replace("MARK", mark)
    outcome = await desk.fails("run_command", command=command, timeout=1)
    assert not running(mark), outcome.text
    assert "Stopped after 1 s, with everything it had started." in outcome.text


@pytest.mark.parametrize(
    "command",
    [
        "kill -STOP $PPID; setsid sleep MARK",
        "trap '' TERM; setsid sleep MARK & sleep MARK",
        "sleep MARK & while :; do echo MARK; done",
    ],
)
async def test_nothing_is_left_after_ctrl_c(desk: Desk, mark: str, command: str) -> None:
    call = desk.call("run_command", command=command.replace("MARK", mark))
    task = asyncio.create_task(call)
    await until(lambda: running(mark))
    task.cancel()
    outcome = await task
    assert outcome.text.startswith("Stopped by the user")
    if "yet" not in outcome.text:  # a machine that is too slow for that second says so
        assert not running(mark)
    await gone(mark)


async def test_survivors_are_named(desk: Desk, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process of another user can't be: here the kernel is asked in vain."""
    reached: list[int] = []
    monkeypatch.setattr(subprocess_guard, "send", lambda pids, _: reached.extend(pids))
    monkeypatch.setattr(subprocess_guard, "_KILL_S", 0.1)
    command = f"(env -i setsid /bin/sleep {mark} &); kill -9 $PPID"
    outcome = await desk.fails("run_command", command=command, timeout=30)
    (line,) = [line for line in running(mark) if "/bin/sleep" in line and "env" not in line]
    pid = int(line.split()[0])
    os.kill(pid, signal.SIGKILL)
    assert pid in reached
    assert f"but these are still running and could not be stopped: {pid} (sleep)" in outcome.text
    assert "with everything" not in outcome.text


async def test_the_kill_of_ragmem_ends_what_it_ran(tmp_path: Path, mark: str) -> None:
    """Also what has left its session, its parents and its environment."""
    command = f"(env -i setsid /bin/sleep {mark} &); trap '' TERM; sleep {mark}; sleep {mark}"
    process = subprocess.Popen([sys.executable, "-c", _RUNS, str(tmp_path), command], cwd=_ROOT)
    await until(lambda: len([line for line in running(mark) if "sleep 301" in line]) >= 4)
    process.kill()
    process.wait()
    await gone(mark)


async def test_a_command_within_a_command_is_ended_with_it(desk: Desk, mark: str) -> None:
    """An agent may run another one: each has marks of its own."""
    inner = f"env -i setsid sleep {mark} & touch began; sleep {mark}"
    command = f"PYTHONPATH={_ROOT} {sys.executable} {desk.file('inner.py', _RUNS)} . '{inner}'"
    task = asyncio.create_task(desk.call("run_command", command=command))
    await until(lambda: task.done() or (desk.cwd / "w" / "began").exists())
    assert not task.done(), task.result().text
    task.cancel()
    await task
    await gone(mark)


async def test_a_quiet_command_is_none_the_slower_for_it(desk: Desk) -> None:
    """What others run is not taken for the command's: neither ours nor a service's."""
    other = subprocess.Popen(["sleep", "301"])
    try:
        outcome = await desk.do("run_command", command="echo done")
        assert outcome.text == "Exit code 0\ndone"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
