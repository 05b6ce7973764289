"""Background commands, such as servers and watchers, which end with the process that ran them."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ragmem.messages import Json
from ragmem.redact import ends_of, last_of
from ragmem.text import counted, duration, one_line
from ragmem.tools.base import AgentTool, Arguments, ToolFailure, ToolOutput, arg, number
from ragmem.tools.shell import CommandOutput, Ended, run_guarded
from ragmem.tools.workspace import Workspace

if TYPE_CHECKING:
    from ragmem.tools.sandbox import Sandbox

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
        return self.output.total > self._read_to

    def news(self) -> str:
        """Return the output since the last call; if it is long, only its beginning and end."""
        text, self._read_to = self.output.since(self._read_to)
        return ends_of(text, _SHOWN_CHARS)

    def tail(self) -> str:
        """Return the end of the whole output."""
        return last_of(self.output.since(0)[0], _SHOWN_CHARS)

    def run(self, workspace: Workspace, sandbox: "Sandbox | None") -> None:
        """Run it to its end; called in a thread of its own."""
        try:
            self.ended = run_guarded(
                self.command, workspace, float("inf"), self.output, self.stop, sandbox
            )
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
            float,
            number(
                "Wait up to this many seconds for output or its end.",
                0,
                _LONGEST_WAIT_S,
            ),
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
        if params.stop and job.is_running:
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
