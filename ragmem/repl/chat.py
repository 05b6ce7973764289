"""The chat: connects the terminal, the submitted input and the agent.

`run_chat` returns the process's exit code. The prompt is shown first; slow imports
run while the user reads and types, and the first prompt can be sent before they
finish.
"""

import asyncio
import errno
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem import repl
from ragmem.children import child_environment
from ragmem.config import Config, environment
from ragmem.errors import EXIT_DONE, EXIT_SIGINT, UsageError
from ragmem.events import Event, ToolFinished, TurnFinished
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import Usage
from ragmem.redact import know, secrets_among
from ragmem.repl import early
from ragmem.repl.terminal import (
    Attention,
    Line,
    PlainTerminal,
    Submission,
    Terminal,
    abandon,
    is_foreground,
    restored,
)
from ragmem.text import one_line
from ragmem.themes import Colors

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ragmem.agent import Options
    from ragmem.app import App
    from ragmem.repl.choices import Values
    from ragmem.repl.output import ChatOutput, Kind
    from ragmem.repl.session import ChatSession
    from ragmem.repl.turn import TurnView
    from ragmem.tools.base import Decision, Proposal

Start = Callable[[Callable[[str], None]], "tuple[App, Options]"]
"""Creates the App; called in a thread while the user types."""
_EXIT_SIGHUP = 129
_TERMINAL_GONE = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)
_NORMAL_EXITS = (EXIT_DONE, EXIT_SIGINT)
_EXIT_WITHIN_S, _KILLED_WITHIN_S = 10.0, 1.8
_TICK_S = 0.5
_NOTICE_INTERVAL_S = 1.0
_OTHERS_INTERVAL_S = 3.0
"""How often an idle chat checks for turns that other processes added to its session."""
_STOP_WITHIN_S = 1.0
_MAX_QUEUE_ROWS = 3


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Which session a chat begins with; by default a new one."""

    resume: str | None = None
    """An id, the end of one, or a name; empty to choose from the sessions of this folder."""
    continue_last: bool = False
    """Continue the newest chat in this folder or, if there is none, the newest session."""
    fork: bool = False
    """Continue in a copy."""
    title: str = ""
    """Name of the session."""
    prompt: str = ""
    """The first prompt, sent at once."""
    keeps_prompts: bool = True
    """Whether the history of prompts is written."""


def run_chat(start: Start, *, opening: Opening, cwd: Path, history: Path, config: Config) -> int:
    """Chat until the user leaves, and return the exit code.

    Raises RagmemError if the chat can't start; the terminal is restored first.
    """

    know(secrets_among(environment()))  # a prompt may be stored before the App is created

    async def chat() -> int:
        left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        loop = ChatLoop(start, opening, cwd, history, config, partial(_leave, left))
        _listen(left)
        return await _chat(loop, left)

    try:
        with restored():
            return asyncio.run(chat())
    except OSError as error:
        if error.errno in _TERMINAL_GONE:  # the terminal was closed
            return _EXIT_SIGHUP
        raise
    finally:
        early.clear()


async def _chat(loop: "ChatLoop", left: asyncio.Future[int]) -> int:
    ready = asyncio.Event()

    async def work() -> None:
        await ready.wait()
        await loop.run()

    typing = asyncio.create_task(loop.terminal.run(ready.set))
    working = asyncio.create_task(work())
    try:
        ends: list[asyncio.Future[Any]] = [left, typing, working]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await loop.settle()
        working.cancel()
        await asyncio.wait({working})
        if left.done() and not left.exception() and not is_foreground():
            abandon(left.result())  # ended by a signal while the shell has the terminal
        loop.terminal.close()
        await asyncio.wait({typing})
    for task in (working, typing):
        if not task.cancelled() and (error := task.exception()):
            raise error
    loop.say_farewell()
    return left.result()


def _leave(left: asyncio.Future[int], exit_code: int) -> None:
    """End the chat; exit forcibly if it does not end in time."""
    if left.done():
        return
    left.set_result(exit_code)
    within = _EXIT_WITHIN_S if exit_code in _NORMAL_EXITS else _KILLED_WITHIN_S
    watch = threading.Timer(within, abandon, (exit_code,))
    watch.daemon = True
    watch.start()


def _listen(left: asyncio.Future[int]) -> None:
    """Let signals, and errors of callbacks, end the chat."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Keep a signal ignored that was ignored on purpose (nohup).
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, _leave, left, 128 + number)

    def broken(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Only callbacks are ours or the terminal's; a library's lost task must not end the chat.
        error = context.get("exception")
        if "handle" in context and isinstance(error, BaseException) and not left.done():
            left.set_exception(error)

    loop.set_exception_handler(broken)


class ChatLoop:
    """Processes submissions in order: prompts, slash commands, `!command`s.

    The terminal calls it when the user does something, and for what to show around the prompt.
    """

    def __init__(
        self,
        start: Start,
        opening: Opening,
        cwd: Path,
        history: Path,
        config: Config,
        leave: Callable[[int], None],
    ) -> None:
        self._start = start
        self._opening = opening
        self._cwd = cwd
        look = config.ui
        self._mode, self._colors = early.color_mode(look, sys.stdin, sys.stdout), Colors()
        if self._mode == "color":
            own = msgspec.structs.asdict(look.colors)
            self._colors = Colors(look.theme, own, environment())
        self.leave = leave
        first = [Submission(opening.prompt, opening.prompt)] if opening.prompt else []
        self._queue: deque[Submission] = deque(first)
        self._arrived = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._stopped_at: float | None = None
        self._seen_to_end = False
        """Whether the running turn has shown its last line, so that keys apply to what follows."""
        self._view: TurnView | None = None
        self._held: list[tuple[Kind, RenderableType]] | None = None
        """Output of the turn that is held back while a question is shown; None without one."""
        # These are set once everything is loaded.
        self._chat: ChatSession | None = None
        self._readers: set[asyncio.Task[None]] = set()
        """Read-only commands, which run beside a turn."""
        self._background_state = ("", Usage())
        """The current background work, and what it has spent for the session."""
        self._values: Values | None = None
        self.commands: Mapping[str, str] = {}
        """The descriptions of the slash commands that can be completed, by name."""
        self.terminal: Terminal = PlainTerminal(self)
        if self._mode != "none":
            from ragmem.repl.drawing import PromptHistory
            from ragmem.repl.input import LiveTerminal

            drawn, editing = (
                self._colors if self._mode == "color" else None,
                config.chat.editing_mode,
            )
            past = PromptHistory(history, is_kept=opening.keeps_prompts)
            self.terminal = LiveTerminal(self, history=past, colors=drawn, editing=editing)
        shown = config.chat
        self._attention = Attention(
            self.terminal.signal, title=shown.title, bell=shown.bell, environ=environment()
        )

    async def settle(self) -> None:
        """Interrupt a running turn, so that its end is recorded before anything is closed."""
        if self._values:
            self._values.close()
        for task in self._readers:
            task.cancel()
        if self._running and self._chat:
            self._chat.agent.interrupt(by_person=False)
            await asyncio.wait({self._running}, timeout=_STOP_WITHIN_S)

    def say_farewell(self) -> None:
        """Restore the window title and print the session's farewell."""
        self._attention.close()
        if self._chat:
            self._chat.say_farewell()

    # --- called by the terminal -----------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Queue a submission; a read-only command during a turn runs at once, beside it."""
        # Not beside another command: a command sent after /new applies to the new session.
        if self._view and repl.commands.only_reads(submission.text):
            task = asyncio.create_task(self._run_beside(submission))
            self._readers.add(task)
            task.add_done_callback(self._read)
            return
        runs = self._running is not None and not self._running.done() and not self._seen_to_end
        if not submission.shown and (self._chat is None or self._queue or runs):
            return  # a key's command runs now or not at all
        self._queue.append(submission)
        self._arrived.set()
        self.terminal.refresh()

    async def _run_beside(self, submission: Submission) -> None:
        if self._chat:
            self._show_prompt(submission, self._chat)
            await repl.commands.run_command(submission.text, self._chat)

    def _show_prompt(self, submission: Submission, chat: "ChatSession") -> None:
        if self._mode != "none" and submission.shown:
            chat.output.prompt(submission.shown)

    def _read(self, task: asyncio.Task[None]) -> None:
        self._readers.discard(task)
        if not task.cancelled():
            task.result()  # an exception is a bug, and ends the chat

    def stop(self) -> bool:
        """Stop what runs; move queued prompts back into the input, so that none runs unasked."""
        waited = bool(self._queue)
        if waited:
            shown = "\n".join(each.shown for each in self._queue)
            self._queue.clear()
            self.terminal.put_back(shown)
        if self._running is None or self._running.done() or self._seen_to_end:
            return waited
        now = time.monotonic()
        if self._view and self._chat and self._stopped_at is None:
            self._stopped_at = now
            self._chat.agent.interrupt()
        elif self._stopped_at is None or now - self._stopped_at > _STOP_WITHIN_S:
            self._running.cancel()
        return True

    def _take_queued(self, room: int) -> list[str]:
        """Return queued prompts for the running turn, of `room` characters at most.

        Prompts behind a command or behind one that is too long stay in the queue.
        """
        taken: list[str] = []
        while self._queue and repl.commands.is_prompt(text := self._queue[0].text):
            if (room := room - len(text)) < 0:
                break
            taken.append(self._queue.popleft().text)
        return taken

    def take_back(self) -> str | None:
        """Remove the last prompt from the queue and return it; None if the queue is empty."""
        return self._queue.pop().shown if self._queue else None

    def values(self, command: str) -> Sequence[tuple[str, str]] | None:
        """Return the completions after a slash command or `@`; None if anything may follow.

        May be called in any thread. `Terminal.offer` is called when more become known.
        """
        return self._values.of(command) if self._values else None

    def live(self, columns: int, rows: int) -> list[Line]:
        """Return the rows of the running turn, with queued prompts below them."""
        waiting = [f"queued: {each.shown}" for each in list(self._queue)[:_MAX_QUEUE_ROWS]]
        if more := len(self._queue) - len(waiting):
            waiting.append(f"and {more} more")
        if waiting and rows > len(waiting):
            waiting.append("Up edits the last one")
        queued: list[Line] = [(("dim", one_line(each, columns)),) for each in waiting]
        if self._view:
            return self._view.live(columns, max(1, rows - len(queued))) + queued
        if self._queue and self._chat is None:
            return [(("dim", "loading …"),), *queued]
        return queued

    def toolbar(self, columns: int) -> Line:
        """Return the status line: model, session, mode, context, cost and background work."""
        chat = self._chat
        if chat is None:
            return (("dim", "  loading …"),)
        doing, spent = self._background_state
        status = repl.about.Status(
            model=chat.agent.model,
            session=chat.called,
            is_named=chat.is_named,
            mode=chat.options.permission_mode,
            always_count=len(chat.agent.rules.remembered),
            tokens=chat.context_tokens,
            window=chat.agent.context_window,
            cost_usd=repl.session.with_more(chat.cost_usd, spent),
            doing=doing,
            jobs=len(chat.app.jobs.running),
            keeps=chat.app.memory.records,
            sandboxed=chat.app.sandbox.is_on if chat.app.sandbox.is_known else None,
            branch=chat.branch,
        )
        return repl.about.toolbar(status, columns)

    def next_mode(self) -> None:
        """Switch to the next permission mode, which holds as `Agent.use_mode` says."""
        if self._chat:
            self._chat.use_mode(repl.about.next_mode(self._chat.options.permission_mode))
            self.terminal.refresh()

    # --- processing -------------------------------------------------------------

    async def run(self) -> None:
        """Load everything, then process submissions until cancelled."""
        output, (app, options) = await asyncio.to_thread(self._load)
        async with app:
            chat = self._chat = await self._open(app, options, output)
            self._values = repl.choices.Values(app, self.terminal.offer)
            self.terminal.offer()  # for text typed before completions were known
            app.start_background(model=options.model)
            try:
                while True:
                    self.terminal.idle()
                    await self._handle(await self._next(chat), chat)
                    self._values.forget()
            finally:
                await app.leave_background(model=options.model)

    def _load(self) -> "tuple[ChatOutput, tuple[App, Options]]":
        """Import the rest of the chat, from then on there as `repl.…`, and create the App."""
        from ragmem.repl import commands, turn  # noqa: F401 - they import the others

        self.commands = commands.COMMANDS
        output = repl.output.ChatOutput(self.terminal, mode=self._mode, colors=self._colors)
        return output, self._start(output.say)

    async def _open(self, app: "App", options: "Options", output: "ChatOutput") -> "ChatSession":
        opening = await repl.session.choose_opening(app, self._opening, output)
        if opening is None:
            self.leave(EXIT_DONE)
            await asyncio.Event().wait()
            raise AssertionError("unreachable: leaving cancels this")
        await repl.session.offer_to_join(app, output)
        self._approvals = repl.turn.Approvals(output, self.stop, self._keep_rules)
        chat = await repl.session.ChatSession.open(app, options, self._approve, output, opening)
        own = {name: each.description for name, each in chat.commands.items()}
        self.commands = {**own, **self.commands}
        await chat.greet(opening)
        self._update_title(chat)
        return chat

    def _update_title(self, chat: "ChatSession") -> None:
        """Set the window title to the session's name or the folder's."""
        self._attention.name(chat.called if chat.is_named else self._cwd.name)

    async def _next(self, chat: "ChatSession") -> Submission:
        looked_at = time.monotonic()
        while not self._queue:
            self._arrived.clear()
            # Not `wait_for`, which swallows a cancellation if the event is set at the same time.
            with suppress(TimeoutError):
                async with asyncio.timeout(_NOTICE_INTERVAL_S):
                    await self._arrived.wait()
            told = chat.tell_notices()
            self._update_background()
            if not self._queue and time.monotonic() - looked_at >= _OTHERS_INTERVAL_S:
                looked_at = time.monotonic()
                told |= await chat.tell_of_others()
            if told:
                self.terminal.idle()
        return self._queue.popleft()

    async def _handle(self, submission: Submission, chat: "ChatSession") -> None:
        self._stopped_at, self._seen_to_end = None, False
        self._attention.attended()
        self._show_prompt(submission, chat)
        self._running = asyncio.create_task(self._process(submission.text, chat))
        try:
            await asyncio.wait({self._running})
        finally:
            if not self._running.done():
                self._running.cancel()
                await asyncio.wait({self._running})
        if self._running.cancelled():
            chat.output.say("interrupted", "warning")
        else:
            self._running.result()
        self._update_title(chat)
        chat.see_branch()

    async def _process(self, text: str, chat: "ChatSession") -> None:
        if repl.commands.is_own_command(text):
            try:
                command = repl.commands.own_command(text)
            except UsageError as error:
                return chat.output.show(repl.output.failure(str(error), error.hint))
            if repl.commands.needs_terminal(text) and not chat.app.config.sandbox.own_commands:
                await self._lend_terminal(command, chat)
            else:
                await self._show(chat.agent.run_command(command), repl.turn.CommandView(), chat)
        elif repl.commands.is_command(text):
            match await repl.commands.run_command(text, chat):
                case "exit":
                    self._queue.clear()
                    self.leave(EXIT_DONE)
                case "session":
                    await chat.introduce()
                case repl.commands.Ask(prompt):
                    await self._ask(prompt, chat)
        else:
            await self._ask(text, chat)
        chat.tell_notices()
        return None

    async def _lend_terminal(self, command: str, chat: "ChatSession") -> None:
        """Run a user's own command with the terminal to itself; nothing of it is recorded."""
        began = time.monotonic()
        argv = ["/bin/bash", "--noprofile", "--norc", "-c", command]
        try:
            environ = child_environment(interactive=True)
            run = partial(subprocess.run, argv, cwd=chat.app.cwd, env=environ)
            ran = await self.terminal.lend(run)
        except OSError as error:
            return chat.output.say(f"Can't start it: {error.strerror}.", "warning")
        ended = ToolFinished(
            tool_call_id="",
            name=RUN_COMMAND,
            success=True,
            text="",
            display="",
            exit_code=ran.returncode,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
        return chat.output.show(repl.output.command_result(ended), "closing")

    async def _ask(self, prompt: str, chat: "ChatSession") -> None:
        await chat.claim()
        reminder = repl.session.Reminder(chat, prompt)
        config = chat.app.config
        view = repl.turn.TurnView(
            shows_live=self._mode != "none",
            shows_recall=config.chat.memory_line,
            tasks=chat.tasks,
            shows_thoughts=config.memory.thoughts and chat.app.memory.records,
        )
        try:
            await self._show(chat.agent.ask(prompt, self._take_queued), view, chat, reminder.see)
            if view.ends_without_plan and chat.options.permission_mode == "plan":
                await self._settle_plan(view.plan_in_words, chat)
        finally:
            chat.tasks = view.tasks
            reminder.close()

    async def _settle_plan(self, told: str, chat: "ChatSession") -> None:
        """Let the user decide on a plan given in an answer, unless submissions are queued.

        Without a plan, a note is shown.
        """
        if not told:
            chat.output.say(repl.turn.NO_PLAN)
        elif not self._queue:
            decision = await self._approvals.plan_in_words(told)
            if decision.mode:
                chat.use_mode(decision.mode)
            if decision.allowed or decision.changes:
                said = repl.turn.CARRY_OUT if decision.allowed else decision.reason
                self._queue.append(Submission(said, said))

    async def _show(
        self,
        events: AsyncGenerator[Event, None],
        view: "TurnView",
        chat: "ChatSession",
        see: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Print a turn's events and show it live; `see` is called with each event shown."""
        self._view = view
        ticking = asyncio.create_task(self._tick())
        try:
            async with aclosing(events):
                async for event in events:
                    chat.see(event)
                    if isinstance(event, TurnFinished):
                        self._attention.ended()
                        self._view, self._seen_to_end = None, True
                    self._print(view.show(event), chat)
                    see(event)
                    self.terminal.refresh()
        finally:
            ticking.cancel()
            self._view = None
            self.terminal.refresh()

    def _print(self, parts: "Sequence[tuple[Kind, RenderableType]]", chat: "ChatSession") -> None:
        """Print parts of a turn; held back while a question is shown, so that it stays last."""
        if self._held is not None:
            self._held += parts
            return
        chat.output.show_all(parts)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._update_background()
            self.terminal.refresh()

    def _update_background(self) -> None:
        """Update the status of background work, and refresh the terminal if it changed."""
        if self._chat is None:
            return
        background = self._chat.app.background
        beside = (background.doing, background.spent(self._chat.session.session_id))
        if beside != self._background_state:
            self._background_state = beside
            self.terminal.refresh()

    async def _approve(self, proposal: "Proposal") -> "Decision":
        """Let the user decide on a proposal; the turn's clock is paused meanwhile."""
        view = self._view
        if view:
            view.pause()
        self._attention.needs_person()
        self._held = []
        try:
            decision = await self._approvals(proposal)
        finally:
            held, self._held = self._held, None
            self._attention.attended()
            if self._chat:
                self._print(held, self._chat)
                self._update_title(self._chat)
            if view:
                view.go_on()
        # A command's denial is shown anyway, and an allowed one gets a block of its own.
        is_told = proposal.kind in ("diff", "plan") or not decision.allowed
        # If several files are read at once, the tool's name does not tell which one was decided.
        names_it = proposal.kind != "path" or decision.reason == repl.turn.STOPPED
        if view and is_told and names_it:
            view.decided(proposal.tool_name, allowed=decision.allowed)
        if decision.mode and self._chat:
            self._chat.use_mode(decision.mode)
        return decision

    def _keep_rules(self, rules: Sequence[str], place: str) -> None:
        if self._chat:
            repl.permissions.keep_rules(rules, self._chat, "allow", place)
