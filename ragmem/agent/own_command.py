"""`!command`: what the person runs by themself, recorded as a turn that nobody answers."""

import asyncio

import msgspec

from ragmem.agent.calls import CallRunner
from ragmem.agent.turn import Ending, TurnRun
from ragmem.errors import EXIT_DONE, EXIT_SIGINT
from ragmem.ids import new_id
from ragmem.messages import ToolUse


class CommandRun(TurnRun):
    """A turn of one command; what it printed goes to the model with the next prompt."""

    async def _begin(self, prompt: str) -> None:
        await super()._begin(f"!{prompt}")
        self._calls = CallRunner(self._desk.toolset.of_person, self._recording, self._emit)

    async def _answer(self, prompt: str) -> Ending:
        arguments = msgspec.json.encode({"command": prompt}).decode()
        await self._calls.own(ToolUse(new_id(), "run_command", arguments))
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The person stopped it: what it had printed by then is recorded with that.
            while task.uncancel():
                continue
            return Ending(
                subtype="interrupted", text="", error="interrupted", exit_code=EXIT_SIGINT
            )
        return Ending(subtype="success", text="", exit_code=EXIT_DONE)
