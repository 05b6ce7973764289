"""run_command: real processes under a guard."""

import asyncio
import os
import re
import stat
import time
from pathlib import Path

import pytest

from ragmem.redact import know, redact
from ragmem.tools.base import ENDED
from tests.fakes.patience import until
from tests.tools.conftest import gone, running


@pytest.fixture
def shell(make_desk):
    return make_desk(mode="bypassPermissions")


async def test_exit_code_and_output(shell):
    outcome = await shell.do("run_command", command="echo out; echo err >&2; exit 3")
    assert (outcome.text, outcome.data) == ("Exit code 3\nout\nerr", {"exit_code": 3})
    assert await shell.ran("true") == "Exit code 0\n(no output)"
    await shell.ran("export PAGER=evil; cd /; alias ls=evil")
    assert await shell.ran("echo $PAGER; pwd") == f"Exit code 0\ncat\n{shell.cwd}"
    assert (await shell.ran("kill -9 $$")).startswith("Killed by signal 9")


async def test_quoting_reaches_bash_as_it_is(shell):
    text = await shell.ran("printf '%s|' \"a b\" '$x' *; echo \"$0\"")
    assert text == "Exit code 0\na b|$x|*|bash"


async def test_no_input_no_terminal(shell):
    """Standard input is empty, /dev/tty can't be opened, `read` ends at once."""
    looks = "read x; echo read=$?; cat; (exec </dev/tty) || echo no tty; tty; ps -o tty= $$"
    text = await shell.ran(looks)
    assert all(told in text for told in ("read=1", "no tty", "not a tty"))
    assert text.rstrip().endswith("?")


async def test_environment_has_no_secrets(shell, monkeypatch):
    """Built from an allow-list; BASH_ENV and the like don't reach the shell either."""
    canary = "canary-4711"
    for name in ("OPENAI_API_KEY", "GH_TOKEN", "MY_SECRET", "DB_PASSWORD", "NEO4J_PASSWORD"):
        monkeypatch.setenv(name, canary)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{canary}@proxy:1")
    monkeypatch.setenv("LC_TOKEN", canary)
    shell.file("evil.sh", "echo evil")
    monkeypatch.setenv("BASH_ENV", str(shell.cwd / "evil.sh"))
    monkeypatch.setenv("PROMPT_COMMAND", "echo evil")
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    monkeypatch.setenv("PYTHONPATH", "/evil")
    for name, value in (("LC_ALL", "C"), ("HTTP_PROXY", "http://p:1")):
        monkeypatch.setenv(name, value)
    text = await shell.ran("env; cat /proc/self/environ /proc/$PPID/environ")
    assert canary not in text
    assert "evil" not in text
    path = f"PATH={os.environ['PATH']}"
    assert all(it in text for it in ("GIT_PAGER=cat", path, "LC_ALL=C", "HTTP_PROXY=http://p:1"))


def test_children_cannot_read_our_keys(tmp_path, in_a_process):
    """GMO Flatt: /proc/PARENT/environ is closed after protect_process, open before."""
    read = {
        "tool": "run_command",
        "command": "p=$(ps -o ppid= $PPID | tr -d ' '); grep -c API_KEY /proc/$p/environ",
    }
    outcomes, _ = in_a_process(
        tmp_path,
        dict(read),
        {"tool": "protect_process"},
        dict(read),
        {"tool": "create_file", "path": "a.txt", "content": "x"},
        {"tool": "edit_file", "path": "a.txt", "old": "x", "new": "y"},
        {"tool": "grep_files", "pattern": "y"},
        env={**os.environ, "SOME_API_KEY": "canary"},
    )
    assert (outcomes[0], outcomes[1]) == ([True, "Exit code 0\n1"], [True, ""])
    assert "ermi" in outcomes[2][1] or "ermission denied" in outcomes[2][1]
    assert "Exit code 0" not in outcomes[2][1]
    # The tools themselves go on working without access through /proc from outside.
    assert [success for success, _ in outcomes[3:]] == [True, True, True]


# --- ending ------------------------------------------------------------------


async def test_background_child_does_not_block(shell, mark):
    """Opencode #47350: the shell is done, a child still holds the pipe."""
    started = time.monotonic()
    outcome = await shell.do("run_command", command=f"sleep {mark} & echo done")
    assert time.monotonic() - started < 60
    assert "1 process left in the background was stopped" in outcome.text
    assert outcome.text.endswith("done")
    await gone(mark)


async def test_a_command_that_ends_with_ragmem_was_not_stopped_by_the_person(shell, mark):
    task = asyncio.create_task(shell.call("run_command", command=f"sleep {mark}"))
    await until(lambda: running(mark))
    task.cancel(ENDED)
    assert (await task).text.startswith("Stopped as ragmem exited")


async def test_the_output_of_a_stopped_command_is_in_the_file_that_its_result_names(shell, mark):
    descriptors = len(os.listdir("/proc/self/fd"))
    line = f"seq 20000; touch ready; sleep {mark}"
    task = asyncio.create_task(shell.call("run_command", command=line))
    while not (shell.cwd / "ready").exists():
        await asyncio.sleep(0.02)
    task.cancel()
    named = re.search(r"The whole output is in (\S+):", (await task).text)
    assert named
    assert Path(named[1]).read_text().splitlines() == [str(n) for n in range(1, 20_001)]
    await gone(mark)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_zombies_and_many_children(shell):
    text = await shell.ran("for i in $(seq 50); do (setsid true &) ; done; sleep 0.3; echo ok")
    assert text.endswith("ok")


async def test_timeout_argument(shell):
    for bad in (0, -1, 601, "x"):
        outcome = await shell.fails("run_command", command="true", timeout=bad)
        assert "invalid arguments" in outcome.text
    outcome = await shell.fails("run_command", command="echo partial; sleep 301.5", timeout=1.5)
    assert "partial" in outcome.text


async def test_bad_commands(shell):
    for command in (" ", "a\0b", "echo \ud800", "echo " + "x" * 200_000):
        await shell.fails("run_command", command=command)


# --- output ------------------------------------------------------------------


async def test_long_output_is_kept_in_a_file(shell):
    outcome = await shell.do("run_command", command="seq 1 200000")
    head, marker, tail = outcome.text.split("…")
    assert head.startswith("Exit code 0\n1\n2\n")
    assert tail.rstrip().endswith("200000")
    assert len(outcome.text) < 31_000
    file = Path(outcome.data["output_file"])
    assert str(file) in marker
    assert file.read_text() == "".join(f"{n}\n" for n in range(1, 200_001))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    read = await shell.do("read_file", path=str(file), offset=100_000, limit=1)
    assert read.text.startswith("100000\t100000")
    found = await shell.do("grep_files", pattern="^123456$", path=str(file))
    assert "123456:123456" in found.text


async def test_kept_output_is_read_without_asking(make_desk):
    """The file that an answer names can be read; the rest of ragmem's folder can't."""
    desk = make_desk(allow=("run_command",))
    desk.deny()
    outcome = await desk.do("run_command", command="seq 1 20000")
    file = outcome.data["output_file"]
    await desk.do("read_file", path=file)
    assert (await desk.fails("write_file", path=file, content="x")).denied
    assert (await desk.fails("read_file", path=str(Path(file).parent.parent / "x"))).denied
    # What other chats have kept beside it has names that nobody here knows.
    folder = str(Path(file).parent)
    assert (await desk.fails("list_directory", path=folder)).denied
    assert (await desk.fails("grep_files", path=folder, pattern="20000")).denied


async def test_a_full_disk_costs_the_file_alone(shell):
    """Claude #35442: where the output can't be kept, the answer says so and is there."""
    (shell.home / "data").mkdir(parents=True)
    (shell.home / "data" / "outputs").write_text("in the way")
    outcome = await shell.do("run_command", command="seq 1 200000")
    assert "could not be kept" in outcome.text
    assert outcome.text.rstrip().endswith("200000")


def test_endless_output_in_bounded_memory(tmp_path, in_a_process):
    """12 MB without a newline, 8 on the other stream, and `yes`: in some 5 MB."""
    outcomes, taken_mb = in_a_process(
        tmp_path,
        {"tool": "run_command", "command": "head -c 12000000 /dev/zero | tr '\\0' 'a'"},
        {"tool": "run_command", "command": "head -c 8000000 /dev/zero >&2"},
        {"tool": "run_command", "command": "yes", "timeout": 20},
    )
    assert [success for success, _ in outcomes] == [True, True, False]
    assert all(len(text) < 31_000 for _, text in outcomes)
    assert taken_mb < 10
    sizes = [p.stat().st_size for p in (tmp_path / "d" / "outputs").iterdir()]
    assert max(sizes) == 12_000_000


async def test_output_is_plain_text(shell):
    """Colours, progress bars, split characters, invalid bytes."""
    odd = r"printf '\033[31mred\033[0m 10%%\r100%%\n\xff\xc3'; sleep 0.1; printf '\xa9\n'"
    assert await shell.ran(odd) == "Exit code 0\n100%\n\ufffdé"


async def test_a_long_line_beside_a_progress_bar_takes_linear_time(shell):
    """A minified file, say, which has no carriage return of its own."""
    long = "head -c 200000 /dev/zero | tr '\\0' a"
    began = time.process_time()
    text = await shell.ran(f"printf '10%%\\r100%%\\n'; {long}")
    assert text.startswith("Exit code 0\n100%\naaa")
    assert time.process_time() - began < 5


def test_the_outputs_kept_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragmem.tools.guarded import _make_room

    monkeypatch.setattr("ragmem.tools.guarded.MAX_SPILLED_BYTES", 100)
    monkeypatch.setattr("ragmem.tools.guarded.MAX_KEPT_BYTES", 300)
    for name in "abcd":
        (tmp_path / f"command-{name}.txt").write_text(name * 100)
    (tmp_path / "other.txt").write_text("x" * 1000)
    # As one that another process removes just then: it is named, and not there.
    (tmp_path / "command-e.txt").symlink_to(tmp_path / "gone")
    _make_room(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir() if path.exists())
    assert left == ["command-c.txt", "command-d.txt", "other.txt"]


async def test_a_secret_across_a_cut_is_not_left_over_in_part(make_desk) -> None:
    """Whoever has half of a key knows most of it, and no pattern finds the rest any more."""
    key = "zQ9mT4vX7kL2wR8nB5cY1pD6"
    know({"MY_KEY": key})
    desk = make_desk(mode="bypassPermissions")
    desk.file("long", "a " * 7_494 + key + "b" * 14_990)
    desk.file("line", "x " * 994 + key + "y" * 3_000)
    for name, arguments in (
        ("run_command", {"command": "cat long"}),
        ("read_file", {"path": "line"}),
        ("grep_files", {"pattern": "xy*", "path": "line"}),
    ):
        outcome = await desk.do(name, **arguments)
        for text in (redact(outcome.text), redact(outcome.result_json)):
            assert key[:10] not in text
            assert key[-10:] not in text
