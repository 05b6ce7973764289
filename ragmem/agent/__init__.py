"""The agent, in a session, asked one prompt at a time; its loop is in turn.py."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress

import msgspec

from ragmem.agent.calls import CallRunner
from ragmem.agent.turn import Dependencies, Ending, TurnRun, Typed, interrupted_with, nothing_typed
from ragmem.config import PermissionMode
from ragmem.errors import EXIT_DONE, LLMError
from ragmem.events import Event, TurnFinished
from ragmem.ids import new_id
from ragmem.llm.base import Effort
from ragmem.memory.context import Context, Strategy
from ragmem.memory.facts import Remembered
from ragmem.memory.leases import settled
from ragmem.messages import Json, ToolUse
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import Session, ToolCall, Turn, utc_now
from ragmem.tools.base import ENDED
from ragmem.tools.patterns import PermissionRules


class CommandRun(TurnRun):
    """A turn of one command; what it printed goes to the model with the next prompt."""

    async def _begin(self, prompt: str) -> None:
        await super()._begin(f"!{prompt}")
        self._calls = CallRunner(self._parts.toolset.of_person, self._recording, self._emit)

    async def _answer(self, prompt: str) -> Ending:
        arguments = msgspec.json.encode({"command": prompt}).decode()
        await self._calls.own(ToolUse(new_id(), RUN_COMMAND, arguments))
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The person stopped it: what it had printed by then is recorded with that.
            while task.uncancel():
                continue
            return interrupted_with("")
        return Ending(subtype="success", text="", exit_code=EXIT_DONE)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole turn at once."""

    content: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    context_used: dict[str, int]
    finished: TurnFinished


class Agent:
    """One agent in one session. Turns run one at a time."""

    def __init__(self, session: Session, parts: Dependencies) -> None:
        self.session = session
        self._parts = parts
        self._run: TurnRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None

    @property
    def model(self) -> str:
        """`provider/model`."""
        return self._parts.llm.info.name

    @property
    def effort(self) -> Effort | None:
        """How long the model may think; None: as its provider has it."""
        return self._parts.effort

    @property
    def context_window(self) -> int | None:
        """Tokens that the model can take in; None where that is not known."""
        return self._parts.llm.info.context_window

    @property
    def permission_mode(self) -> PermissionMode:
        """Who may do what at the moment."""
        return self._parts.mode.value

    @property
    def rules(self) -> PermissionRules:
        """What the person has allowed and denied in advance."""
        return self._parts.rules

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Of all that the model may call."""
        return self._parts.toolset.names

    def title(self, use: ToolUse) -> str:
        """Name a call as it is named when it runs, also one of an earlier turn."""
        return self._parts.toolset.title(use)

    def use_mode(self, mode: PermissionMode) -> None:
        """Let another mode hold from the next tool call on, also in a running turn."""
        self._parts.mode.value = mode

    @property
    def turn(self) -> Turn | None:
        """The last one, as it is recorded so far; None before the first."""
        return self._run.turn if self._run else None

    def ask(self, prompt: str, typed: Typed = nothing_typed) -> AsyncGenerator[Event, None]:
        """Answer; the last event is always TurnFinished.

        `typed` is called before each further call of the model: what it returns enters the turn.
        An error that is not a RagmemError is a bug: the turn is recorded as
        failed, then it is raised here. Closing the iterator interrupts the turn.
        """
        return self._events(TurnRun, prompt, typed)

    def run_command(self, command: str) -> AsyncGenerator[Event, None]:
        """Run a command of the person's own: recorded as a turn, so that the next one knows of it.

        The model is not asked. Otherwise as `ask`.
        """
        return self._events(CommandRun, command)

    async def record(self, said: str, tool_name: str, result: Json) -> None:
        """Record as a turn what the person has done by themself, so that the next one knows of it.

        `result` is that of a call, whose `text` the model is shown. Nothing is asked, and there
        are no events of it.
        """
        memory, project = self._parts.memory, self._parts.project

        async def record() -> None:
            recording = await memory.begin_turn(self.session, project, said, model=self.model)
            call = ToolCall(
                tool_call_id=new_id(),
                turn_id=recording.turn.turn_id,
                order=0,
                tool_name=tool_name,
                arguments="{}",
                result=msgspec.json.encode(result).decode(),
                success=True,
                started_at=utc_now(),
                origin="person",
            )
            await recording.call(call)
            await recording.finish("completed", "")
            memory.finished(self.session, recording.turn)

        if await settled(record()):
            raise asyncio.CancelledError

    async def _events(
        self, kind: type[TurnRun], text: str, typed: Typed = nothing_typed
    ) -> AsyncGenerator[Event, None]:
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._run = kind(self.session, self._parts, events.put_nowait, typed)
        task = self._task = asyncio.create_task(self._run.run(text))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def send(self, prompt: str) -> Reply:
        """`ask` for callers who want the answer as a whole."""
        events = [event async for event in self.ask(prompt)]
        finished = events[-1]
        if self._run is None or not isinstance(finished, TurnFinished):
            raise AssertionError("a turn always ends with TurnFinished")
        turn = self._run.turn
        return Reply(
            content=finished.result,
            reasoning=turn.reasoning,
            tool_calls=turn.tool_calls,
            context_used=finished.context,
            finished=finished,
        )

    def prepare(self) -> None:
        """Warm the model up in the background, while the person types."""

        async def warm_up() -> None:
            with suppress(LLMError):
                await self._parts.llm.prepare()

        self._preparing = asyncio.create_task(warm_up())

    def interrupt(self, *, by_person: bool = True) -> None:
        """End the running turn; what came is kept.

        Not `by_person`: ragmem is ended, by a hangup say, and a command is told of as stopped so.
        """
        if self._task:
            self._task.cancel(None if by_person else ENDED)

    def tell(self, event: Event) -> bool:
        """Let an event be among those of the running turn; false where none is running."""
        return self._run is not None and self._run.tell(event)

    async def context(self, prompt: str, *, strategy: Strategy = "hybrid") -> Context:
        """Exactly what would be sent with this prompt; nothing is sent or stored."""
        parts = self._parts
        changed = await parts.changed.look() if parts.changed and parts.offers_tools else ""
        return await parts.memory.build_context(
            self.session,
            prompt,
            parts.builder,
            parts.place,
            strategy=strategy,
            changed=changed,
            find_code=parts.find_code,
        )

    async def aclose(self) -> None:
        """End the running turn and close the model."""
        self.interrupt(by_person=False)
        if self._preparing:
            self._preparing.cancel()
        running = [task for task in (self._task, self._preparing) if task]
        await asyncio.gather(*running, return_exceptions=True)
        await self._parts.llm.aclose()


def shown(remembered: Remembered, agents: Iterable[Agent]) -> list[str]:
    """Tell it among the events of an answer that is being made; else the lines of a notice.

    What a tool or the person wrote is shown where that was done.
    """
    from ragmem.tools.memory import written_event

    event = written_event(remembered)
    if event is None or not remembered.memory or remembered.memory.source != "conversation":
        return []
    return [] if any(agent.tell(event) for agent in agents) else [event.line]
