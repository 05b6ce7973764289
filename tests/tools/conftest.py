"""A desk: tools over a real folder, with a person who answers as a test says."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ragmem.agent import standard_toolset
from ragmem.config import PermissionMode
from ragmem.messages import ToolUse
from ragmem.records import ToolCall, utc_now
from ragmem.tools.base import Decision, Proposal, ToolOutcome
from ragmem.tools.files import SeenFiles
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.sandbox import Sandbox
from ragmem.tools.shell import Commands, Jobs
from ragmem.tools.workspace import Workspace
from tests.fakes.patience import until

LOOKING = {
    "read_file": {},
    "list_directory": {},
    "glob_files": {"pattern": "*"},
    "grep_files": {"pattern": "SECRET"},
}
"""Each tool that looks at a path, with what it takes beside that."""
EDITING = {
    "create_file": {"content": "x"},
    "write_file": {"content": "x"},
    "edit_file": {"old": "SECRET", "new": "x"},
}


class Desk:
    """A toolset, the folder it works in, and what the person was asked."""

    def __init__(
        self,
        root: Path,
        *,
        mode: PermissionMode = "default",
        allow: tuple[str, ...] = (),
        rules: tuple[str, ...] = (),
        deny: tuple[str, ...] = (),
        jobs: Jobs | None = None,
        extra: tuple[Path, ...] = (),
        home: Path | None = None,
        timeout_s: float = 120,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.cwd = root / "w"
        self.cwd.mkdir(exist_ok=True)
        self.home = home or root / "home"
        self.seen = SeenFiles()
        self.proposals: list[Proposal] = []
        self.answer = Decision(True)
        self.meanwhile: Callable[[], object] = lambda: None
        self.workspace = Workspace(self.cwd, extra, private=(self.home,))
        self.toolset = standard_toolset(
            self.workspace,
            data_dir=self.home / "data",
            mode=mode,
            approver=self.approve,
            seen=self.seen,
            rules=PermissionRules(rules, deny, flags=allow),
            commands=Commands(timeout_s, sandbox=lambda: sandbox, jobs=jobs),
        )

    async def approve(self, proposal: Proposal) -> Decision:
        self.proposals.append(proposal)
        self.meanwhile()
        return self.answer

    def deny(self, reason: str = "") -> None:
        self.answer = Decision(False, reason=reason)

    async def call(self, name: str, **arguments: object) -> ToolOutcome:
        return await self.toolset.call(ToolUse("1", name, json.dumps(arguments)))

    async def do(self, name: str, **arguments: object) -> ToolOutcome:
        """A call that has to succeed."""
        outcome = await self.call(name, **arguments)
        assert outcome.success, outcome.text
        return outcome

    async def ran(self, command: str, **arguments: object) -> str:
        """What is told of a command that can be run."""
        return (await self.do("run_command", command=command, **arguments)).text

    async def fails(self, name: str, **arguments: object) -> ToolOutcome:
        """A call that has to fail, with a text that the model can read."""
        outcome = await self.call(name, **arguments)
        assert not outcome.success, outcome.text
        assert outcome.text
        return outcome

    def file(self, name: str, content: str | bytes = "") -> Path:
        """A file in the working directory."""
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def recorded(name: str, outcome: ToolOutcome, order: int = 0) -> ToolCall:
    """A call as the store keeps it."""
    return ToolCall(
        tool_call_id=f"c{order}",
        turn_id="t",
        order=order,
        tool_name=name,
        result=outcome.result_json,
        success=outcome.success,
        started_at=utc_now(),
    )


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On the disk: below /dev, where tests have their memory, tools take files for devices."""
    with TemporaryDirectory(prefix="ragmem-tools-") as folder:
        yield Path(folder).resolve()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def make_desk(tmp_path: Path) -> Callable[..., Desk]:
    return partial(Desk, tmp_path)


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    held = Jobs(tmp_path / "outputs")
    yield held
    await held.stop(*held.running)


@pytest.fixture
def mark() -> str:
    """A long time to sleep for, that no other process' is like."""
    return f"301.{int.from_bytes(os.urandom(5), 'big')}"


def running(mark: str) -> list[str]:
    """The command lines that hold the mark, of processes that are not dead."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if mark in line and int(name) != os.getpid():
            found.append(f"{name} {line}")
    return found


async def gone(mark: str) -> None:
    """Wait until nothing that bears the mark runs any more."""
    await until(lambda: not running(mark))


_REPOSITORY = Path(__file__).parents[2]
_CALLS = """
import asyncio, json, sys
from pathlib import Path
from ragmem.messages import ToolUse
from ragmem.redact import protect_process
from ragmem.tools import content, guarded
from ragmem.agent import standard_toolset
from ragmem.tools.workspace import Workspace

# To read and write all that may be takes seconds.
content.MAX_TEXT_BYTES, content.MAX_SCAN_BYTES = 2_000_000, 24_000_000
guarded.MAX_OUTPUT_BYTES, guarded.MAX_SPILLED_BYTES = 16_000_000, 12_000_000

def most_mb():
    # Not ru_maxrss: that begins with what the parent held when it forked.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

async def main():
    cwd = Path(sys.argv[1])
    tools = standard_toolset(
        Workspace(cwd),
        data_dir=cwd / "d",
        mode="bypassPermissions",
    )
    before = most_mb()
    for use in json.loads(sys.argv[2]):
        if use["tool"] == "protect_process":
            print(json.dumps([protect_process(), ""]))
            continue
        outcome = await tools.call(ToolUse("1", use.pop("tool"), json.dumps(use)))
        print(json.dumps([outcome.success, outcome.text]))
    print(most_mb() - before)

asyncio.run(main())
"""
# Root without the rights to read anyone's files and memory: CAP_DAC_*, CAP_SYS_PTRACE,
# CAP_SYS_ADMIN, CAP_PERFMON.
_AS_ANYONE = """
import ctypes, os, sys
for capability in (1, 2, 19, 21, 38):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""


@pytest.fixture
def in_a_process() -> Callable[..., tuple[list, int]]:
    """Calls in a process of its own, without root's rights: [success, text] each, and MB taken."""

    def run(cwd: Path, *uses: dict, env: dict[str, str] | None = None) -> tuple[list, int]:
        done = subprocess.run(
            [sys.executable, "-c", _AS_ANYONE, _CALLS, str(cwd), json.dumps(uses)],
            capture_output=True,
            text=True,
            timeout=280,
            cwd=_REPOSITORY,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        *lines, taken = done.stdout.splitlines()
        return [json.loads(line) for line in lines], int(taken)

    return run
