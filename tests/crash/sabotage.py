"""Bugs to plant in a warm ragmem: the crash tests must find them, or they are worth nothing."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ragmem.failpoints import failpoint
from ragmem.memory.recording import TurnRecording
from ragmem.records import Applied, RecordToolCall, ToolCall, Write
from ragmem.store.sqlite import SQLiteStore
from ragmem.tools import files, workspace
from ragmem.tools.base import Tell, ToolOutput
from ragmem.tools.shell import RunCommand, RunCommandParams


def forget_starts() -> None:
    """A call is recorded only when it has ended."""
    record = TurnRecording.call

    async def call(self: TurnRecording, call: ToolCall) -> None:
        if call.result:
            await record(self, call)

    TurnRecording.call = call  # type: ignore[method-assign]


def answer_early() -> None:
    """A tool call is acknowledged half a minute before it is committed: never, if it dies first."""
    apply = SQLiteStore.apply
    background = set()

    async def later(store: SQLiteStore, writes: Sequence[Write]) -> None:
        await asyncio.sleep(30)
        await apply(store, writes)

    async def apply_later(self: SQLiteStore, writes: Sequence[Write]) -> Applied:
        if not all(isinstance(write, RecordToolCall) for write in writes):
            return await apply(self, writes)
        background.add(asyncio.create_task(later(self, writes)))
        return Applied()

    SQLiteStore.apply = apply_later  # type: ignore[method-assign]


def write_in_place() -> None:
    """A file is emptied before its new content is written."""

    def replace(real: Path, data: bytes, *, expected_sha256: str, shown: str) -> None:
        real.write_bytes(b"")
        failpoint("file.written")
        real.write_bytes(data)

    workspace.replace = replace
    files.replace = replace


def run_twice() -> None:
    """A command is run again, for good measure."""
    run = RunCommand.run_telling

    async def twice(self: RunCommand, params: RunCommandParams, tell: Tell) -> ToolOutput:
        await run(self, params, tell)
        return await run(self, params, tell)

    RunCommand.run_telling = twice  # type: ignore[method-assign]


def leave_owners() -> None:
    """Nobody looks after the turns of dead processes."""

    async def attach(self: SQLiteStore, session_id: str, owner_id: str) -> list[str]:
        return []

    SQLiteStore.attach = attach  # type: ignore[method-assign]
