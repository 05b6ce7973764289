"""What failed before is told just before it is tried again."""

import json
from pathlib import Path

import msgspec
import pytest

from ragmem.agent import standard_toolset
from ragmem.errors import StoreUnavailable
from ragmem.ids import new_id, short_id
from ragmem.memory.facts.failures import failures
from ragmem.messages import ToolUse
from ragmem.records import MemoryRecord, Turn
from ragmem.tools.base import Decision, Proposal, ToolOutcome
from ragmem.tools.shell import commands_of
from ragmem.tools.workspace import Workspace
from tests.tools.conftest import recorded
from tests.tools.test_memory_tools import Desk, desk

__all__ = ["desk"]

FAILS = "grow-ferns --all"
WHY = "grow-ferns: command not found"


class Shell:
    """run_command over a desk's memory, with somebody who allows everything."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.cwd = Path(desk.session.cwd)
        self.proposals: list[Proposal] = []
        self.tools = standard_toolset(
            Workspace(self.cwd),
            data_dir=self.cwd.parent / "data",
            approver=self._allow,
            commands=commands_of(desk.memory, desk.session, 60),
        )

    async def _allow(self, proposal: Proposal) -> Decision:
        self.proposals.append(proposal)
        return Decision(True)

    async def run(self, command: str) -> ToolOutcome:
        use = ToolUse("call-1", "run_command", json.dumps({"command": command}))
        return await self.tools.call(use)

    async def learns(self, command: str, outcome: ToolOutcome) -> MemoryRecord:
        call = msgspec.structs.replace(
            recorded("run_command", outcome),
            arguments=json.dumps({"command": command}),
            error=outcome.error,
        )
        turn = Turn(
            turn_id=new_id(),
            session_id=self.desk.session.session_id,
            user_message="Go on",
            started_at=call.started_at,
            tool_calls=(call,),
        )
        [draft] = failures(turn, locate=str)
        done = await self.desk.facts.remember(draft, self.desk.project.project_id)
        assert done.memory is not None
        return done.memory

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.proposals[-1].warnings


async def test_the_same_command_again(desk: Desk) -> None:
    """In the question and in the result, in one line; the second time as well."""
    shell = Shell(desk)
    first = await shell.run(FAILS)
    assert shell.warnings == ()
    assert "This failed" not in first.text
    for _ in range(2):
        memory = await shell.learns(FAILS, first)
        first = await shell.run("  grow-ferns   --all ")
        day = (memory.at or memory.created_at).astimezone().date().isoformat()
        [line] = shell.warnings
        assert line.startswith(f"This failed on {day}: exit code 127: ")
        assert line.endswith(f"{WHY}; see memory {short_id(memory.memory_id)}.")
        assert first.text.split("\n")[:2] == ["Exit code 127", line]
        assert line in (first.display or "")


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("cd . && grow-ferns --all", True),
        ("cd {cwd} && grow-ferns --all", True),
        ("cd {cwd}; grow-ferns\t--all", True),
        ("cd elsewhere && grow-ferns --all", False),
        ("grow-ferns", False),
        ("grow-ferns --all --quick", False),
        ("grow-ferns --ALL", False),
        ("true", False),
    ],
)
async def test_only_that_very_command(desk: Desk, command: str, known: bool) -> None:
    """White space and `cd` to where one is make no difference, all else does."""
    shell = Shell(desk)
    await shell.learns(FAILS, await shell.run(FAILS))
    await shell.run(command.format(cwd=shell.cwd))
    assert bool(shell.warnings) is known


async def test_long_commands_may_go_on_differently(desk: Desk) -> None:
    shell = Shell(desk)
    long = f"grow-ferns {'x' * 300}"
    await shell.learns(long, await shell.run(long))
    await shell.run(long + "y")
    assert shell.warnings == ()


async def test_where_it_works_now_nothing_is_said_of_it(desk: Desk) -> None:
    """The result of what works is its output alone; the next is not warned."""
    shell = Shell(desk)
    command = "sh grow.sh"
    await shell.learns(command, await shell.run(command))
    (shell.cwd / "grow.sh").write_text("echo green\n")
    outcome = await shell.run(command)
    assert shell.warnings != ()
    assert outcome.text == "Exit code 0\ngreen"


async def test_what_it_printed_can_do_nothing(desk: Desk) -> None:
    shell = Shell(desk)
    command = "sh evil.sh"
    (shell.cwd / "evil.sh").write_text("printf 'error: \\033[2Jgone\\n'; exit 2\n")
    await shell.learns(command, await shell.run(command))
    await shell.run(command)
    assert "\x1b" not in shell.warnings[0]


async def test_a_memory_that_is_away_stops_no_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(desk)

    async def away(project_id: str | None) -> list[MemoryRecord]:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setattr(desk.facts, "current", away)
    assert (await shell.run("echo here")).text == "Exit code 0\nhere"


async def test_its_own_reminder_is_no_reason(desk: Desk) -> None:
    shell = Shell(desk)
    command = "sh quiet.sh"
    (shell.cwd / "quiet.sh").write_text("exit 4\n")
    for _ in range(3):
        memory = await shell.learns(command, await shell.run(command))
        assert memory.content == "`sh quiet.sh` failed: exit code 4: (no output)"
