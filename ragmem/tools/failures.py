"""What failed before is told just before it is tried again: by the memory, of one command."""

import asyncio
from pathlib import Path

from ragmem.errors import StoreError
from ragmem.memory.memory import Memory
from ragmem.records import Session
from ragmem.tools.shell import Commands

_PATIENCE_S = 1.0


def commands_of(memory: Memory, session: Session, timeout_s: float) -> Commands:
    """How commands are run: one that failed before in this project is known again."""

    async def known(command: str) -> str:
        if memory.facts is None:
            return ""
        from ragmem.memory.facts.failures import failed_before, reminder

        try:
            async with asyncio.timeout(_PATIENCE_S):
                memories = await memory.facts.current(session.project_id)
        except (StoreError, TimeoutError):
            # An extra: the command is run all the same.
            return ""
        found = failed_before(command, memories, Path(session.cwd))
        return reminder(found) if found else ""

    return Commands(timeout_s, known)
