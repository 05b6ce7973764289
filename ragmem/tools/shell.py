"""Run shell commands that were approved, and those in the background, such as servers and watchers.

Jobs in the background end with the process that started them.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ragmem.config import ToolsConfig
from ragmem.errors import StoreError
from ragmem.memory.memory import Memory
from ragmem.messages import Json
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import Session
from ragmem.redact import ends_of, last_of
from ragmem.text import clean, counted, duration, first_line, one_line
from ragmem.tools.base import (
    ENDED,
    RUNNING,
    AgentTool,
    Arguments,
    ToolFailure,
    ToolOutput,
    arg,
    denial,
    interruptible,
    number,
)
from ragmem.tools.guarded import MAX_SHOWN_CHARS, CommandOutput, Ended, run_guarded
from ragmem.tools.permissions import Permissions
from ragmem.tools.workspace import Workspace

if TYPE_CHECKING:
    from ragmem.tools.sandbox import Sandbox

MAX_TIMEOUT_S = 600
MAX_COMMAND_BYTES = 100_000
_HINT_CHARS = 1000
_TREE = ", with everything it had started"
_PATIENCE_S = 1.0
MOST_RUNNING = 8
_FIRST_LOOK_S = 1.0
"""How long a new job is watched: what fails immediately has failed by then, and is reported."""
_LONGEST_WAIT_S = 120
_SHOWN_CHARS = 20_000
_TICK_S = 0.05
_STOP_WAIT_S = 4.0
_TITLE_CHARS = 80
_DISPLAYED = 5


class Job:
    """A background command and its output."""

    def __init__(self, number: int, command: str, outputs: Path) -> None:
        self.number = number
        self.command = command
        self.output = CommandOutput(outputs, lambda _: None)
        self.ended: Ended | None = None
        self.problem = ""
        """Why it could not be started."""
        self.is_alone = False
        """Whether it has a network of its own, so that its ports are not reachable from outside."""
        self.stop = threading.Event()
        self.thread: threading.Thread
        self._started_at = time.monotonic()
        self._ended_at: float | None = None
        self._read_to = 0
        """Where the last line begins that the agent has read at least in part."""
        self._seen = 0

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._ended_at is None

    @property
    def title(self) -> str:
        """Return its number and command, on one line."""
        return f"job {self.number}: {one_line(self.command, _TITLE_CHARS)}"

    @property
    def state(self) -> str:
        """Return whether it runs or how it ended, its duration, and the number of lines written."""
        lasted = duration(round(((self._ended_at or time.monotonic()) - self._started_at) * 1000))
        if self.is_running:
            how = f"running for {lasted}"
        elif self.ended is None:
            how = f"could not be started: {self.problem}"
        elif self.ended.status is None or self.ended.reason != "exit":
            how = f"stopped after {lasted}"
        elif self.ended.status < 0:
            how = f"killed by signal {-self.ended.status} after {lasted}"
        else:
            how = f"ended with exit code {self.ended.status} after {lasted}"
        return f"{how}, {counted(self.output.lines, 'line')}"

    @property
    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs, or if it was stopped."""
        return self.ended.status if self.ended and self.ended.reason == "exit" else None

    @property
    def has_news(self) -> bool:
        """Whether it has written anything that the agent has not read."""
        return self.output.total > self._seen

    def news(self) -> str:
        """Return the output since the last call; if it is long, only its beginning and end.

        A line that was unfinished then is repeated, since half of a secret is not recognized.
        """
        if not self.has_news:
            return ""
        text, self._read_to, self._seen = self.output.since(self._read_to)
        return ends_of(text, _SHOWN_CHARS)

    def tail(self) -> str:
        """Return the end of the whole output."""
        return last_of(self.output.since(0)[0], _SHOWN_CHARS)

    def run(self, workspace: Workspace, sandbox: "Sandbox | None") -> None:
        """Run it to its end; called in a thread of its own."""
        try:
            self.ended = run_guarded(self.command, workspace, inf, self.output, self.stop, sandbox)
        except OSError as error:
            self.problem = error.strerror or str(error)
        finally:
            self._ended_at = time.monotonic()


class Jobs:
    """The background commands that this process has started."""

    def __init__(self, outputs: Path, on_ended: Callable[[Job], None] = lambda _: None) -> None:
        self.all: list[Job] = []
        self._outputs = outputs
        self._on_ended = on_ended

    @property
    def running(self) -> list[Job]:
        """Return the jobs that have not ended."""
        return [job for job in self.all if job.is_running]

    def find(self, number: int) -> Job | None:
        """Return the job with that number."""
        return self.all[number - 1] if 0 < number <= len(self.all) else None

    async def start(
        self, command: str, workspace: Workspace, sandbox: "Sandbox | None" = None
    ) -> Job:
        """Start a job and watch it for a second, so that immediate failures are seen.

        Raises ToolFailure if too many are running. A cancellation only cuts the watching short,
        since the job has started; the caller handles it.
        """
        if len(self.running) >= MOST_RUNNING:
            raise ToolFailure(
                f"{MOST_RUNNING} commands are already running in the background. "
                "Stop one with read_job."
            )
        job = Job(len(self.all) + 1, command, self._outputs)
        job.is_alone = bool(sandbox and sandbox.keeps_ports)
        self.all.append(job)
        loop = asyncio.get_running_loop()

        def work() -> None:
            job.run(workspace, sandbox)
            # The event loop may be closed by now: a process that is exiting needs no notification.
            with suppress(RuntimeError):
                if not job.stop.is_set():
                    loop.call_soon_threadsafe(self._on_ended, job)

        job.thread = threading.Thread(target=work, name=job.title, daemon=True)
        job.thread.start()
        with suppress(asyncio.CancelledError):
            await wait_for(lambda: not job.is_running, _FIRST_LOOK_S)
        return job

    async def stop(self, *jobs: Job) -> None:
        """Stop jobs, with all the processes that they have started."""
        for job in jobs:
            job.stop.set()
        await wait_for(lambda: not any(job.is_running for job in jobs), _STOP_WAIT_S)


async def wait_for(condition: Callable[[], bool], longest_s: float) -> None:
    """Wait until the condition is true, or the time is up."""
    deadline = time.monotonic() + longest_s
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - threads write it
        await asyncio.sleep(_TICK_S)


class RunCommandParams(Arguments, frozen=True):
    """Arguments of run_command."""

    command: Annotated[str, arg("The command, for bash.", least=1)]
    timeout: (
        Annotated[
            float,
            msgspec.Meta(description=f"Seconds; at most {MAX_TIMEOUT_S}.", gt=0, le=MAX_TIMEOUT_S),
        ]
        | None
    ) = None
    background: Annotated[
        bool, arg("Keep it running, such as a server; read_job reads its output.")
    ] = False
    outside_sandbox: Annotated[
        str,
        arg(
            "Why it must run outside the sandbox, if the sandbox has refused it; the user is "
            "asked, and reads this.",
            500,
        ),
    ] = ""


class Commands(msgspec.Struct, frozen=True):
    """How commands are run."""

    timeout_s: float = ToolsConfig().command_timeout_s
    """Timeout of commands that set none."""
    failed_before: Callable[[str], Awaitable[str]] | None = None
    """Returns what is remembered of a command about to be run again, on one line; else empty."""
    sandbox: "Callable[[], Sandbox | None]" = lambda: None
    """Returns the sandbox to use, if the settings want one; called by the first command."""
    jobs: Jobs | None = None
    """Where background commands are started; None if that is not supported."""

    def of_person(self) -> "Commands":
        """Return the configuration for commands that the user types."""

        def own() -> "Sandbox | None":
            sandbox = self.sandbox()
            return sandbox if sandbox and sandbox.settings.own_commands else None

        return Commands(MAX_TIMEOUT_S, sandbox=own)


class RunCommand(AgentTool):
    """Run approved commands; each needs approval (see `Permissions`)."""

    name = RUN_COMMAND
    Params: type[msgspec.Struct] = RunCommandParams

    def __init__(
        self,
        workspace: Workspace,
        permissions: Permissions,
        *,
        outputs: Path,
        commands: Commands = Commands(),  # noqa: B008 - frozen
    ) -> None:
        self._workspace = workspace
        self._permissions = permissions
        self._outputs = outputs
        self._commands = commands
        self.description = (
            "Run a command with bash in the working directory; the user is asked first. Each "
            "call is a fresh shell without stdin or terminal: only files carry over, and what it "
            "leaves running is stopped when it ends. "
            f"It is stopped after {commands.timeout_s:g} s unless `timeout` says "
            f"otherwise. Output beyond {MAX_SHOWN_CHARS:,} characters goes to a file that the "
            "result names. Use read_file, grep_files, glob_files and edit_file, not cat, grep, "
            "find and sed."
        )

    def title(self, params: RunCommandParams) -> str:
        """Return the command's first line."""
        named = one_line(first_line(params.command), 160)
        return named + " (in the background)" * params.background

    async def run(self, params: RunCommandParams) -> ToolOutput:
        """Return exit code and output; raises ToolFailure if it is refused or times out."""
        command = params.command
        if "\0" in command or not command.strip() or command != clean(command):
            raise ToolFailure("The command is empty, or contains a NUL or half a character.")
        if len(command.encode()) > MAX_COMMAND_BYTES:
            raise ToolFailure(
                f"The command is longer than {MAX_COMMAND_BYTES:,} bytes. "
                "Write it to a file with create_file and run that."
            )
        failed_before = self._commands.failed_before
        known = await failed_before(command) if failed_before else ""
        sandbox, outside = await self._choose_sandbox(one_line(params.outside_sandbox, 500))
        unasked = sandbox is not None and sandbox.allows_unasked
        alone = sandbox.keeps_ports if params.background and sandbox else ""
        if await self._permissions.command(
            command,
            known=" ".join(filter(None, [known, alone])),
            outside=outside,
            unasked=unasked,
            goes_on=params.background,
            may_leave=bool(alone and sandbox and sandbox.settings.mode != "required"),
        ):
            sandbox = None
        if not self._workspace.cwd.is_dir():
            raise ToolFailure(f"The working directory {self._workspace.cwd} no longer exists.")
        if params.background:
            if self._commands.jobs is None:
                raise ToolFailure("Commands can't run in the background here.")
            job = await self._commands.jobs.start(command, self._workspace, sandbox)
            return as_result(job, alone if sandbox else "")
        timeout = params.timeout or self._commands.timeout_s
        output = CommandOutput(self._outputs, RUNNING.get().tell)
        ended: list[Ended] = []
        try:
            await interruptible(
                lambda stop: ended.append(
                    run_guarded(command, self._workspace, timeout, output, stop, sandbox)
                )
            )
        except asyncio.CancelledError as error:
            # Report what it had printed as its result; the caller handles the end of the turn.
            unknown = ", but not everything it started has ended yet"
            rest = _unstopped(ended[0]) if ended else unknown
            why = "Stopped as ragmem exited" if ENDED in error.args else "Stopped by the user"
            raise ToolFailure(f"{why}{rest}.\n{output.text().rstrip()}") from None
        except OSError as error:
            raise ToolFailure(f"The command could not be started: {error}.") from None
        return _report(ended[0], output, timeout, known, sandbox)

    async def _choose_sandbox(self, outside: str) -> "tuple[Sandbox | None, str]":
        """Return the sandbox to run in, if any; else None and the reason for running outside it."""
        sandbox = self._commands.sandbox()
        if sandbox is None or not (
            await asyncio.to_thread(lambda: sandbox.is_on) or sandbox.settings.mode == "required"
        ):
            return None, ""
        if not outside and sandbox.is_on:
            return sandbox, ""
        if sandbox.settings.mode == "required":
            why = "commands run only in it" if sandbox.is_on else sandbox.mechanism.why
            raise denial(f"sandbox.mode is `required`, and {why}: not run.")
        return None, outside


class ReadJob(AgentTool):
    """Report a background command's state, and its output since the last report."""

    name = "read_job"
    description = (
        "Read the state and the new output of a command that was started with `background`, or "
        "stop it."
    )
    may_repeat = True
    """The same call gives a different result each time."""

    class Params(Arguments, frozen=True):
        job: Annotated[int, number("The job's number.", 1)]
        wait: Annotated[
            float, number("Wait up to this many seconds for output or its end.", 0, _LONGEST_WAIT_S)
        ] = 0
        stop: Annotated[bool, arg("Stop it.")] = False

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def title(self, params: Params) -> str:
        """Return the command, and whether it is to be stopped."""
        job = self._jobs.find(params.job)
        return f"{'stop ' if params.stop else ''}{job.title if job else params.job}"

    def standing(self) -> str:
        """List the running jobs, for the beginning of a turn."""
        running = [f"{job.title} ({job.state})" for job in self._jobs.running]
        return f"In the background: {'; '.join(running)}. See read_job." if running else ""

    async def run(self, params: Params) -> ToolOutput:
        """Return the job's state and its new output; raises ToolFailure if there is no such job."""
        job = self._jobs.find(params.job)
        if job is None:
            numbers = ", ".join(str(each.number) for each in self._jobs.all) or "none"
            raise ToolFailure(f"There is no job {params.job}. Jobs: {numbers}.")
        if (params.stop or job.stop.is_set()) and job.is_running:
            await self._jobs.stop(job)
        else:
            await wait_for(lambda: job.has_news or not job.is_running, params.wait)
        return as_result(job)


def as_result(job: Job, alone: str = "") -> ToolOutput:
    """Return a job's state and its new output as a result.

    `alone` is the notice that its ports can't be reached from outside; empty if they can.
    """
    new = job.news().rstrip("\n")
    head = f"{job.title[0].upper()}{job.title[1:]}\n{job.state}"
    end = "\n".join(new.split("\n")[-_DISPLAYED:])
    data: dict[str, Json] = {"job": job.number}
    if job.exit_code is not None:
        data["exit_code"] = job.exit_code
    if job.output.file is not None:
        data["output_file"] = str(job.output.file)
    text, display = f"{head}\n{new or '(no new output)'}", f"{job.state}\n{end}".rstrip()
    if alone:
        way = "To make it reachable, start it again and say so in `outside_sandbox`."
        text, display = f"{text}\n[{alone} {way}]", f"{display}\n{alone}"
    return ToolOutput(text=text, display=display, data=data)


def _unstopped(ended: Ended) -> str:
    """Return what limits the claim that a command was stopped; empty if all of it was."""
    if ended.left is None:
        return ", with its process group: this system does not show what else it started"
    names = ", ".join(ended.left)
    return f", but these are still running and could not be stopped: {names}" if names else ""


def _report(
    ended: Ended, output: CommandOutput, timeout_s: float, known: str, sandbox: "Sandbox | None"
) -> ToolOutput:
    """Return the result; `known` is what is remembered of the command, shown if it fails again."""
    body = output.text().rstrip("\n")
    shown = body or "(no output)"
    if known and (ended.reason != "exit" or ended.status != 0):
        shown, body = f"{known}\n{shown}", f"{known}\n{body}"
    # A pipeline can succeed although its first command was refused.
    searched = body[-_HINT_CHARS if ended.status == 0 else 0 :]
    if sandbox and (hint := sandbox.hint(searched)):
        shown += f"\n{hint}"
    if ended.touched:
        runs = f"[Created or changed meanwhile, and can run by itself: {', '.join(ended.touched)}]"
        shown, body = f"{shown}\n{runs}", f"{body}\n{runs}"
    rest = _unstopped(ended)
    if ended.reason == "timeout":
        longer = f"Give a larger timeout (at most {MAX_TIMEOUT_S}), or make"
        advice = longer if timeout_s < MAX_TIMEOUT_S else "Make"
        raise ToolFailure(
            f"Stopped after {timeout_s:g} s{rest or _TREE}. {advice} it do less.\n{shown}"
        )
    if ended.reason == "endless":
        raise ToolFailure(
            f"Stopped after {output.total:,} bytes of output{rest or _TREE}. Make it write less.\n"
            f"{shown}"
        )
    if ended.status is None:
        did = "stopped" if ended.reason == "held" else "killed"
        raise ToolFailure(
            f"The process that watches the command was {did}, by the command or from outside, so "
            f"the command was stopped{rest or _TREE}. Its effects are unknown.\n{shown}"
        )
    if ended.status < 0:
        result = f"Killed by signal {-ended.status}"
    else:
        result = f"Exit code {ended.status}"
    if ended.leftovers:
        were = "was" if ended.leftovers == 1 else "were"
        left = f"{counted(ended.leftovers, 'process')} left in the background"
        result += f" ({left} {were} stopped{rest})"
    data: dict[str, Json] = {"exit_code": ended.status}
    if output.file is not None:
        data["output_file"] = str(output.file)
    return ToolOutput(text=f"{result}\n{shown}", display=f"{result}\n{body}".rstrip(), data=data)


def commands_of(
    memory: Memory,
    session: Session,
    timeout_s: float,
    sandbox: "Callable[[], Sandbox | None]" = lambda: None,
    jobs: Jobs | None = None,
) -> Commands:
    """Return how commands are run: with a reminder if one has failed before in this project."""

    async def known(command: str) -> str:
        if memory.facts is None:
            return ""
        from ragmem.memory.facts.failures import failed_before, reminder

        try:
            async with asyncio.timeout(_PATIENCE_S):
                memories = await memory.facts.current(session.project_id)
        except (StoreError, TimeoutError):
            # A reminder is optional: the command runs anyway.
            return ""
        found = failed_before(command, memories, Path(session.cwd))
        return reminder(found) if found else ""

    return Commands(timeout_s, known, sandbox, jobs)
