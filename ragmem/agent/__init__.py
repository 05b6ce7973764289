"""The agent: its session, its tools, and its turns, one at a time. The loop is in turn.py."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.agent.calls import CallRunner
from ragmem.agent.turn import (
    Dependencies,
    Ending,
    TurnRun,
    Typed,
    interrupted_with,
    nothing_typed,
    reads_of_mentions,
)
from ragmem.config import Config, Effort, Paths, PermissionMode
from ragmem.errors import EXIT_DONE, LLMError
from ragmem.events import Event, TurnFinished
from ragmem.ids import new_id
from ragmem.index.codebase import Codebase
from ragmem.llm.base import LLM
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import Place, Strategy
from ragmem.memory.facts import Remembered
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Instructions, find_instructions, real_folder
from ragmem.memory.recording import settled
from ragmem.messages import Json, ToolUse
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import Project, Session, ToolCall, Turn, utc_now
from ragmem.tools.base import ENDED, Approver, CurrentMode, Tool, ToolOutcome, Toolset, deny_all
from ragmem.tools.files import ChangedFiles, CreateFile, EditFile, ReadFile, SeenFiles, WriteFile
from ragmem.tools.memory import SessionCode, memory_tools, written_event
from ragmem.tools.permissions import PermissionRules, Permissions
from ragmem.tools.planning import PresentPlan, UpdateTasks
from ragmem.tools.search import GlobFiles, GrepFiles, ListDirectory
from ragmem.tools.shell import Commands, Jobs, ReadJob, RunCommand, commands_of
from ragmem.tools.skills import ReadSkill, SkillSet
from ragmem.tools.workspace import Workspace
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.agent.schema import AnswerSchema
    from ragmem.tools.mcp_client import Servers
    from ragmem.tools.sandbox import Sandbox


class CommandRun(TurnRun):
    """A turn with one command of the user; the model sees its output with the next prompt."""

    async def _begin(self, prompt: str) -> None:
        await super()._begin(f"!{prompt}")
        self._calls = CallRunner(self._parts.toolset.of_person, self._recording, self._emit)

    async def _answer(self, prompt: str) -> Ending:
        arguments = msgspec.json.encode({"command": prompt}).decode()
        await self._calls.own(ToolUse(new_id(), RUN_COMMAND, arguments))
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The user stopped it: the output so far is recorded as interrupted.
            while task.uncancel():
                continue
            return interrupted_with("")
        return Ending(subtype="success", text="", exit_code=EXIT_DONE)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a whole turn; see `Agent.send`."""

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
        self.is_closed = False

    @property
    def model(self) -> str:
        """`provider/model`."""
        return self._parts.llm.info.name

    @property
    def effort(self) -> Effort | None:
        """How long the model may think; None for its provider's default."""
        return self._parts.effort

    @property
    def context_window(self) -> int | None:
        """The size of the model's context window in tokens; None if unknown."""
        return self._parts.llm.info.context_window

    @property
    def permission_mode(self) -> PermissionMode:
        """The current permission mode."""
        return self._parts.mode.value

    @property
    def rules(self) -> PermissionRules:
        """What the user has allowed and denied in advance."""
        return self._parts.rules

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Return the names of all tools that the model may call."""
        return self._parts.toolset.names

    def title(self, use: ToolUse) -> str:
        """Return a call's title, as shown when it runs; also for calls of earlier turns."""
        return self._parts.toolset.title(use)

    def use_mode(self, mode: PermissionMode) -> None:
        """Change the permission mode from the next tool call on, also in a running turn.

        Plan mode also refuses the edit or the command that the user is being asked about.
        """
        self._parts.mode.value = mode

    @property
    def turn(self) -> Turn | None:
        """The last turn, as recorded so far; None before the first."""
        return self._run.turn if self._run else None

    def ask(self, prompt: str, typed: Typed = nothing_typed) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events; the last one is always TurnFinished.

        `typed` is called before each further model call; what it returns is added to the turn. An
        error that is not a RagmemError is a bug: the turn is recorded as failed, then the error is
        raised here. Closing the iterator interrupts the turn.
        """
        return self._events(TurnRun, prompt, typed)

    def run_command(self, command: str) -> AsyncGenerator[Event, None]:
        """Run the user's own command, recorded as a turn, so that the model sees it in the next.

        The model is not called. Otherwise like `ask`.
        """
        return self._events(CommandRun, command)

    async def record(self, said: str, tool_name: str, result: Json) -> None:
        """Record an action of the user as a turn, so that the model sees it in the next.

        `result` is that of a call; the model is shown its `text`. The model is not called, and no
        events are emitted.
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
        """Run a turn and return its result, for callers who don't need the events of `ask`."""
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
        """Warm up the model in the background, while the user types."""

        async def warm_up() -> None:
            with suppress(LLMError):
                await self._parts.llm.prepare()

        self._preparing = asyncio.create_task(warm_up())

    def interrupt(self, *, by_person: bool = True) -> None:
        """End the running turn; its results so far are kept.

        `by_person` is false if ragmem itself ends, as by a hangup; a command's result then says so.
        """
        if self._task is None or self._run is None:
            return
        cancel = partial(self._task.cancel, None if by_person else ENDED)
        if self._run.has_begun:
            cancel()
        else:
            # After its first step: a task that is cancelled before never runs, and records nothing.
            self._task.get_loop().call_soon(cancel)

    def tell(self, event: Event) -> bool:
        """Add an event to those of the running turn; false if none is running."""
        return self._run is not None and self._run.tell(event)

    async def context(self, prompt: str, *, strategy: Strategy = "hybrid") -> Context:
        """Return exactly what would be sent with this prompt; nothing is sent or stored."""
        parts = self._parts
        changed = await parts.changed.look() if parts.changed and parts.offers_tools else ""
        toolset = parts.toolset.of_preview
        uses = await reads_of_mentions(prompt, parts, toolset)
        outcomes = [(use, await toolset.call(use)) for use in uses.values()]
        return await parts.memory.build_context(
            self.session,
            prompt,
            parts.builder.for_model(parts.llm.info),
            parts.place,
            mentions=[_as_mention(*each) for each in outcomes if each[1].success],
            strategy=strategy,
            changed=changed,
            find_code=parts.find_code,
        )

    async def aclose(self) -> None:
        """Interrupt the running turn, wait for it, and close the model."""
        self.interrupt(by_person=False)
        if self._preparing:
            self._preparing.cancel()
        running = [task for task in (self._task, self._preparing) if task]
        await asyncio.gather(*running, return_exceptions=True)
        if self._parts.owns_llm:
            await self._parts.llm.aclose()
        self.is_closed = True


def _as_mention(use: ToolUse, outcome: ToolOutcome) -> ToolCall:
    """Return the call by which a turn would have read a file."""
    return ToolCall(
        tool_call_id=use.id,
        turn_id=use.id,
        order=0,
        iteration=0,
        tool_name=use.name,
        arguments=use.arguments,
        result=outcome.result_json,
        success=True,
        started_at=outcome.started_at,
        origin="mention",
    )


def announce(remembered: Remembered, agents: Iterable[Agent]) -> list[str]:
    """Announce a learned memory in a running turn's events; else return the lines of a notice.

    Memories that a tool or the user wrote are shown elsewhere.
    """
    event = written_event(remembered)
    if event is None or not remembered.memory or remembered.memory.source != "conversation":
        return []
    return [] if any(agent.tell(event) for agent in agents) else [event.line]


# --- assembling an agent ----------------------------------------------------------------


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one agent, from the command line."""

    model: str = ""
    effort: Effort | None = None
    permission_mode: PermissionMode = "default"
    add_dirs: tuple[Path, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    allow: tuple[str, ...] = ()
    """Rules for what needs no approval, in addition to the settings."""
    no_tools: bool = False
    schema: "AnswerSchema | None" = None


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all agents of a process share."""

    config: Config
    paths: Paths
    work_dir: Path
    """The folder for outputs of commands and for files before edits."""
    cwd: Path
    memory: Memory
    codebase: Codebase
    rules: PermissionRules
    jobs: Jobs
    sandbox: "Callable[[], Sandbox]"
    """Creates the sandbox when the first command runs in it."""
    servers: "Servers | None"
    """MCP servers; None if the settings name none."""
    metrics: Metrics
    say: Callable[[str], None]
    """Adds a notice for the user."""
    notices: Callable[[], Sequence[str]]
    """Returns the notices, and clears them."""


def create_agent(
    shared: Shared,
    session: Session,
    project: Project,
    options: Options,
    *,
    llm: LLM,
    approver: Approver,
    skill_set: SkillSet,
    before: Iterable[ToolCall],
) -> Agent:
    """Create an agent for a session of this project; `before`: the calls made in it so far."""
    config, memory, cwd = shared.config, shared.memory, shared.cwd
    top = real_folder(project.path, cwd)
    seen, tasks = SeenFiles(shared.metrics), UpdateTasks()
    before = tuple(before)
    private = (*shared.paths.own_folders, shared.work_dir)
    session_cwd = real_folder(session.cwd, cwd)
    workspace = Workspace(cwd, options.add_dirs, private=private, session_cwd=session_cwd)
    seen.restore(before, workspace.recorded_path)
    tasks.restore(before)
    code = SessionCode(shared.codebase, project, cwd=cwd, top=top, seen=seen, rules=shared.rules)
    mode = CurrentMode(options.permission_mode)
    rules = shared.rules.for_session(options.allow)
    toolset = standard_toolset(
        workspace,
        mode=mode,
        approver=approver,
        seen=seen,
        data_dir=shared.work_dir,
        rules=rules,
        commands=commands_of(
            memory, session, config.tools.command_timeout_s, shared.sandbox, shared.jobs
        ),
        of_servers=shared.servers.tools if shared.servers else lambda _: (),
        more=[
            tasks,
            *([] if approver is deny_all else [PresentPlan(mode, approver, memory, session)]),
            *code.tools(memory, session, config.memory.scope),
            *memory_tools(memory, session, config.memory.scope),
            *([ReadSkill(skill_set.skills)] if skill_set.skills else []),
        ],
    )
    if strange := rules.for_unknown_tools(toolset.names):
        shared.say(f"Rules for unknown tools have no effect: {', '.join(strange)}")
    return Agent(
        session,
        Dependencies(
            llm=llm,
            memory=memory,
            toolset=toolset,
            builder=ContextBuilder(config.memory, llm.info),
            keeps_thoughts=config.memory.thoughts,
            place=Place(
                cwd=cwd,
                session_cwd=session_cwd,
                project=top,
                instructions=_instructions(shared, top),
                show_path=code.show,
                memory_tools=memory.facts is not None and not options.no_tools,
                code_tool=code.is_there and not options.no_tools,
                skills="" if options.no_tools else skill_set.listing,
            ),
            mode=mode,
            rules=rules,
            find_code=code.passages if code.is_there else None,
            project=project,
            max_iterations=options.max_turns or config.tools.max_iterations,
            max_budget_usd=options.max_budget_usd,
            retries=config.llm.retries,
            schema=options.schema,
            effort=options.effort,
            offers_tools=llm.info.supports_tools and not options.no_tools,
            notices=shared.notices,
            at_start=code.begin,
            changed=ChangedFiles(workspace, seen),
        ),
    )


def _instructions(shared: Shared, top: Path) -> Instructions:
    cwd, own = shared.cwd, shared.paths.config_dir / "AGENTS.md"
    found = find_instructions(cwd, top if cwd.is_relative_to(top) else cwd, own)
    yours = [file for file in found.files if file.is_relative_to(own.parent)]
    if names := [os.path.relpath(file, cwd) for file in found.files if file not in yours]:
        shared.say(f"Project instructions: {', '.join(names)}")
    if yours:
        shared.say(f"Your own instructions: {', '.join(map(str, yours))}")
    return found


def standard_toolset(  # noqa: PLR0913 - each by its name
    workspace: Workspace,
    *,
    data_dir: Path,
    mode: PermissionMode | CurrentMode = "default",
    approver: Approver = deny_all,
    seen: SeenFiles | None = None,
    rules: PermissionRules | None = None,
    commands: Commands = Commands(),  # noqa: B008 - frozen
    more: Sequence[Tool] = (),
    of_servers: Callable[[Permissions], Sequence[Tool]] = lambda _: (),
) -> Toolset:
    """Create the toolset of an agent: the standard tools for a workspace, and additional ones.

    `seen` has what a resumed session has read; `rules` are the user's. Below `data_dir`, long
    outputs of commands are kept in `outputs`, and copies of files before edits in `preimages`.
    `more`: tools that depend on the session, the memory or the project. `of_servers` returns the
    tools of MCP servers (`ragmem.tools.mcp_client`) that are available by now.
    """
    outputs = data_dir / "outputs"
    known = SeenFiles() if seen is None else seen
    permissions = Permissions(workspace, mode=mode, approver=approver, rules=rules, outputs=outputs)
    unasked = Permissions(workspace, mode=mode, rules=rules, outputs=outputs)
    preimages = data_dir / "preimages"
    return Toolset(
        [
            ReadFile(workspace, permissions, known),
            ListDirectory(workspace, permissions),
            GlobFiles(workspace, permissions),
            GrepFiles(workspace, permissions),
            CreateFile(workspace, permissions, known, preimages),
            WriteFile(workspace, permissions, known, preimages),
            EditFile(workspace, permissions, known, preimages),
            RunCommand(workspace, permissions, outputs=outputs, commands=commands),
            *([ReadJob(commands.jobs)] if commands.jobs else []),
            # They check no permissions: denied ones are left out here.
            *(tool for tool in more if not (rules and rules.denies(tool.name))),
        ],
        more=partial(of_servers, permissions),
        of_preview=[
            ReadFile(workspace, unasked, SeenFiles()),
            ListDirectory(workspace, unasked),
            GlobFiles(workspace, unasked),
        ],
        of_person=[
            RunCommand(
                workspace,
                Permissions(workspace, mode="bypassPermissions", outputs=outputs),
                outputs=outputs,
                commands=commands.of_person(),
            )
        ],
    )
