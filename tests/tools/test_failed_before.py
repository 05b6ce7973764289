"""What failed before is told just before it is tried again."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ragmem.agent import standard_toolset
from ragmem.errors import StoreUnavailable
from ragmem.ids import short_id
from ragmem.memory.facts import Draft
from ragmem.memory.facts.failures import failed_before, failures, reminder
from ragmem.messages import ToolUse
from ragmem.records import MemoryRecord, ToolCall
from ragmem.tools.base import Decision, Proposal, ToolOutcome
from ragmem.tools.shell import commands_of
from ragmem.tools.workspace import Workspace
from tests.memory.builders import T0, a_call, a_turn
from tests.tools.conftest import recorded
from tests.tools.test_memory_tools import Desk, desk

__all__ = ["desk"]

FAILS = "grow-ferns --all"
WHY = "grow-ferns: command not found"

LONG = f"grow-ferns {'x' * 300}"


def learned(command: str, call: ToolCall) -> Draft:
    """What is learned of a turn with this call alone."""
    call = msgspec.structs.replace(call, arguments=json.dumps({"command": command}))
    [draft] = failures(a_turn(1, "Go on", "", (call,)), locate=str)
    return draft


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

    async def edit(self, tool: str, **arguments: str) -> Sequence[Draft]:
        """What is learned of a turn with this call of an editing tool alone, which fails."""
        use = ToolUse("call-1", tool, json.dumps({"path": "a.py", **arguments}))
        outcome = await self.tools.call(use)
        assert not outcome.success
        call = recorded(tool, outcome)
        call = msgspec.structs.replace(call, arguments=use.arguments, error=outcome.error)
        return failures(a_turn(1, "Go on", "", (call,)), locate=str)

    async def run(self, command: str) -> ToolOutcome:
        use = ToolUse("call-1", "run_command", json.dumps({"command": command}))
        return await self.tools.call(use)

    async def learns(self, command: str, outcome: ToolOutcome) -> MemoryRecord:
        call = msgspec.structs.replace(recorded("run_command", outcome), error=outcome.error)
        draft = learned(command, call)
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


async def test_nothing_is_learned_of_a_file_to_be_read_first(desk: Desk) -> None:
    """A slip of the model's, which says nothing of the project."""
    shell = Shell(desk)
    (shell.cwd / "a.py").write_text("x = 1\n")
    assert await shell.edit("edit_file", old="1", new="2") == []
    assert await shell.edit("write_file", content="x = 2\n") == []
    assert await shell.edit("create_file", content="x = 2\n") == []


@pytest.mark.parametrize(
    ("failed", "command", "known"),
    [
        (FAILS, "cd . && grow-ferns --all", True),
        (FAILS, "cd /w && grow-ferns --all", True),
        (FAILS, "cd /w; grow-ferns\t--all", True),
        (FAILS, "cd elsewhere && grow-ferns --all", False),
        (FAILS, "grow-ferns", False),
        (FAILS, "grow-ferns --all --quick", False),
        (FAILS, "grow-ferns --ALL", False),
        (FAILS, "true", False),
        (LONG, f"{LONG}y", False),
    ],
)
def test_only_that_very_command(failed: str, command: str, known: bool) -> None:
    """White space and `cd` to where one is make no difference, all else does."""
    draft = learned(failed, a_call(tool_name="run_command", success=False))
    memory = MemoryRecord(
        memory_id="m", kind="failure", content=draft.content, created_at=T0, updated_at=T0
    )
    assert (failed_before(command, [memory], Path("/w")) is memory) is known


def test_nothing_that_is_kept_of_a_failure_steers_a_terminal() -> None:
    memory = MemoryRecord(
        memory_id="m",
        kind="failure",
        content="`x` failed: \x1b[2Jgone",
        created_at=T0,
        updated_at=T0,
    )
    assert "\\e[2Jgone" in reminder(memory)


async def test_where_it_works_now_nothing_is_said_of_it(desk: Desk) -> None:
    """The result of what works is its output alone."""
    shell = Shell(desk)
    command, script = "sh grow.sh", shell.cwd / "grow.sh"
    script.write_text("exit 2\n")
    await shell.learns(command, await shell.run(command))
    script.write_text("echo green\n")
    outcome = await shell.run(command)
    assert shell.warnings != ()
    assert outcome.text == "Exit code 0\ngreen"


async def test_a_memory_away_stops_no_command(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
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
