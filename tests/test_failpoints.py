"""Failpoints: the form of what arms them, each action, and that the list of them is true."""

import ast
import errno
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragmem.children import child_environment
from ragmem.cli.main import run
from ragmem.failpoints import POINTS, arm, failpoint, hits

PACKAGE = Path(__file__).parents[1] / "ragmem"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def _points_in_the_source() -> set[str]:
    found = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "failpoint(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "failpoint":
                # The name is written there: one, or one of two.
                name = node.args[0]
                parts = [name.body, name.orelse] if isinstance(name, ast.IfExp) else [name]
                found |= {ast.literal_eval(part) for part in parts}
    return found


def test_the_list_of_points_is_that_of_the_source() -> None:
    """No point that is not listed, none listed that is nowhere."""
    assert set(POINTS) == _points_in_the_source()
    assert len(set(POINTS)) == len(POINTS)


@pytest.mark.parametrize("action", ["enospc", "eio", "erofs"])
def test_errors_are_those_of_a_disk(action: str) -> None:
    """What is raised is the system's own error."""
    arm(f"sqlite.commit:{action}")
    with pytest.raises(OSError, match=r"sqlite\.commit") as caught:
        failpoint("sqlite.commit")
    assert caught.value.errno == getattr(errno, action.upper())


def _failures(count: int) -> list[int]:
    failed = []
    for number in range(1, count + 1):
        try:
            failpoint("spool.write")
        except OSError:
            failed.append(number)
    return failed


def test_which_hits_fail() -> None:
    """The Nth alone, from the Nth on, or every one."""
    arm("spool.write:eio@3")
    assert _failures(5) == [3]
    assert hits("spool.write") == 5
    arm("spool.write:eio@3+")
    assert _failures(5) == [3, 4, 5]
    arm("spool.write:eio")
    assert _failures(3) == [1, 2, 3]
    arm("spool.write:eio@2, sqlite.read:enospc")
    assert _failures(3) == [2]
    assert hits("sqlite.read") == 0
    arm("")
    assert _failures(3) == []
    assert hits("spool.write") == 0


def test_any_point() -> None:
    """`*` counts them all; a disk error can't strike where no disk is touched."""
    arm("*:eio@2")
    failpoint("turn.begin")
    failpoint("sqlite.begun")
    with pytest.raises(OSError, match=r"failpoint sqlite\.commit"):
        failpoint("sqlite.commit")
    assert hits("*") == 2


@pytest.mark.parametrize(
    "text",
    [
        "sqlite.commit",
        "sqlite.commit:explode",
        "nowhere.at_all:kill9",
        "sqlite.commit:kill9@",
        "sqlite.commit:kill9@-1",
        "sqlite.commit:sleep=soon",
        "turn.begin:eio",
        "sqlite.commit:eio@1;spool.write:eio",
    ],
)
def test_text_of_another_form_arms_nothing(text: str) -> None:
    """A typing error must not make a test of crashes pass on silence."""
    arm("sqlite.read:eio")
    with pytest.raises(ValueError, match=r"point|disk|ACTION"):
        arm(text)
    with pytest.raises(OSError, match=r"sqlite\.read"):
        failpoint("sqlite.read")


_DIES = """
import sys
from ragmem.failpoints import arm, failpoint
arm(sys.argv[1])
failpoint("tool.run")
print("alive", flush=True)
failpoint("tool.ran")
print("still alive")
"""


def test_kill9_ends_the_process_there() -> None:
    """SIGKILL, so that nothing is tidied up."""
    done = subprocess.run(
        [sys.executable, "-c", _DIES, "tool.ran:kill9"],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "alive\n")


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ragmem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """A command in this process, in a home of its own: its exit code, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGMEM_HOME", str(tmp_path / "home"))

    def run_with(*arguments: str, failpoint: str = "") -> tuple[int, str, str]:
        arm("")
        monkeypatch.setenv("RAGMEM_FAILPOINT", failpoint)
        return run(arguments), *capfd.readouterr()

    return run_with


def test_a_wrong_failpoint_is_a_usage_error(ragmem: Run) -> None:
    """Plain words and exit code 2; it is no setting, so `config show` does not know it."""
    assert ragmem("store", "info", failpoint="sqlite.comit:kill9") == (
        2,
        "",
        "error: RAGMEM_FAILPOINT: there is no point 'sqlite.comit'.\n"
        "RAGMEM_FAILPOINT is for tests only; unset it.\n",
    )
    code, shown, _ = ragmem("config", "show", failpoint="sqlite.commit:kill9")
    assert (code, "failpoint" in shown.lower()) == (0, False)


def test_commands_of_the_agent_do_not_inherit_it() -> None:
    """What the agent runs may be ragmem too: it must not fail for our sake."""
    given = {"PATH": "/bin", "RAGMEM_FAILPOINT": "sqlite.commit:kill9"}
    assert "RAGMEM_FAILPOINT" not in child_environment(given)


def test_a_failing_disk_is_told_in_plain_words(ragmem: Run) -> None:
    """Exit code 75 and what to do; never a traceback, nothing damaged."""
    full, broken = ("enospc", "is full"), ("eio", "Input/output error")
    for point, (action, words) in {
        "sqlite.open": full,
        "sqlite.migrate": broken,
        "sqlite.migrated": full,
        "sqlite.mark": broken,
        "sqlite.read": full,
    }.items():
        code, _, said = ragmem("store", "info", failpoint=f"{point}:{action}")
        assert code == 75, (point, action, said)
        assert words in said
        assert "Traceback" not in said
        assert "bug" not in said
    assert ragmem("store", "check")[1] == "No problems found: 0 sessions, 0 turns.\n"
