"""The chat: a terminal, what is typed there, and the agent that answers.

`run_chat` returns a process' exit code. The prompt comes first; all that is
heavy is loaded while the person reads and types, and the first prompt can be
sent before that is done.
"""

import asyncio
import errno
import signal
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragmem.config import environment
from ragmem.errors import EXIT_DONE, EXIT_SIGINT
from ragmem.events import Event, TurnFinished
from ragmem.redact import know, secrets_among
from ragmem.repl import early
from ragmem.repl.session import ChatSession, Opening, Reminder, choose_opening
from ragmem.repl.terminal import Line, PlainTerminal, Submission, Terminal, abandon, restored
from ragmem.text import one_line

if TYPE_CHECKING:
    from ragmem.app import App, Options
    from ragmem.repl.completion import FileListing
    from ragmem.repl.output import ChatOutput, ColorMode
    from ragmem.repl.turn import TurnView
    from ragmem.tools.base import Proposal

__all__ = ["Opening", "Start", "run_chat"]

Start = Callable[[Callable[[str], None]], "tuple[App, Options]"]
"""Makes the app; called in a thread while the person types."""
Color = Literal["auto", "always", "never"]

_EXIT_SIGHUP = 129
_GONE = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)
_BY_CHOICE = (EXIT_DONE, EXIT_SIGINT)
_EXIT_WITHIN_S, _KILLED_WITHIN_S = 10.0, 1.8
_TICK_S = 0.5
_TOLD_WITHIN_S = 1.0
_STOP_WITHIN_S = 1.0
_SHOWN_QUEUE = 3


def run_chat(
    start: Start, *, opening: Opening, cwd: Path, history: Path, color: Color = "auto"
) -> int:
    """Chat until the person leaves, and return the exit code.

    Raises RagmemError when the chat could not begin; the terminal is then as it
    was before.
    """

    know(secrets_among(environment()))  # a prompt may be sent, and kept, before the app is there

    async def chat() -> int:
        left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        mode = _color_mode(color)
        loop = ChatLoop(
            start, opening, cwd=cwd, history=history, mode=mode, leave=lambda c: _leave(left, c)
        )
        _listen(left)
        return await _chat(loop, left)

    try:
        with restored():
            return asyncio.run(chat())
    except OSError as error:
        if error.errno in _GONE:  # the terminal was closed
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
        loop.terminal.close()
        await asyncio.wait({typing})
    for task in (working, typing):
        if not task.cancelled() and (error := task.exception()):
            raise error
    loop.say_farewell()
    return left.result()


def _color_mode(color: Color) -> "ColorMode":
    if not early.capable():
        return "none"
    plain = color == "never" or (color == "auto" and environment().get("NO_COLOR"))
    return "mono" if plain else "color"


def _leave(left: asyncio.Future[int], exit_code: int) -> None:
    """End the chat; if it can't be ended in order within its time, end it anyhow."""
    if left.done():
        return
    left.set_result(exit_code)
    within = _EXIT_WITHIN_S if exit_code in _BY_CHOICE else _KILLED_WITHIN_S
    watch = threading.Timer(within, abandon, (exit_code,))
    watch.daemon = True
    watch.start()


def _listen(left: asyncio.Future[int]) -> None:
    """Let signals, and errors of callbacks, end the chat."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What was ignored on purpose (nohup) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, _leave, left, 128 + number)

    def broken(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Callbacks are ours and the terminal's; forgotten tasks of libraries end no chat.
        error = context.get("exception")
        if "handle" in context and isinstance(error, BaseException) and not left.done():
            left.set_exception(error)

    loop.set_exception_handler(broken)


class ChatLoop:
    """Does what is sent off, one after the other: prompts, slash commands, `!command`s.

    It is the `ragmem.repl.terminal.Host` of its terminal: what the person does there comes in here.
    """

    def __init__(
        self,
        start: Start,
        opening: Opening,
        *,
        cwd: Path,
        history: Path,
        mode: "ColorMode",
        leave: Callable[[int], None],
    ) -> None:
        self._start = start
        self._opening = opening
        self._cwd = cwd
        self._mode = mode
        self.leave = leave
        self._queue: deque[Submission] = deque()
        self._arrived = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._stopped_at: float | None = None
        self._seen_to_end = False
        """The turn that runs has shown its last line: keys are meant for what comes after it."""
        self._view: TurnView | None = None
        # These are there once all is loaded.
        self._chat: ChatSession | None = None
        self._files: FileListing | None = None
        self.commands: Mapping[str, str] = {}
        self.terminal = self._terminal(history)

    def _terminal(self, history: Path) -> Terminal:
        if self._mode == "none":
            return PlainTerminal(self)
        from ragmem.repl.input import LiveTerminal

        return LiveTerminal(self, history=history, color=self._mode == "color")

    @property
    def files(self) -> Sequence[str] | None:
        """Return the files of the folder; None until they are known."""
        return self._files.paths if self._files else None

    async def settle(self) -> None:
        """Have a running turn recorded as interrupted, before anything is closed."""
        if self._files:
            self._files.close()
        if self._running and self._chat:
            self._chat.agent.interrupt()
            await asyncio.wait({self._running}, timeout=_STOP_WITHIN_S)

    def say_farewell(self) -> None:
        """Say the last words."""
        if self._chat:
            self._chat.say_farewell()

    # --- what the terminal tells ----------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Queue a prompt."""
        self._queue.append(submission)
        self._arrived.set()
        self.terminal.refresh()

    def stop(self) -> bool:
        """End what runs; prompts that wait come back into the draft, so that none runs unasked."""
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

    def live(self, columns: int, rows: int) -> list[Line]:
        """Return the turn's rows, and below them what is queued."""
        queued: list[Line] = [
            (("dim", one_line(f"queued: {each.shown}", columns)),)
            for each in list(self._queue)[:_SHOWN_QUEUE]
        ]
        if more := len(self._queue) - len(queued):
            queued.append((("dim", f"and {more} more"),))
        if self._view:
            return self._view.live(columns, max(1, rows - len(queued))) + queued
        if self._queue and self._chat is None:
            return [(("dim", "loading …"),), *queued]
        return queued

    def toolbar(self) -> list[str]:
        """Return model, session, permissions, size of the context."""
        chat = self._chat
        if chat is None:
            return ["loading …"]
        chars = (self._view and self._view.context_chars) or chat.context_chars
        context = [f"context {chars:,} characters"] if chars else []
        return [chat.agent.model, chat.short_id, chat.options.permission_mode, *context]

    # --- the work ---------------------------------------------------------------

    async def run(self) -> None:
        """Load, then do what is sent off, until it is cancelled."""
        output, (app, options) = await asyncio.to_thread(self._load)
        async with app:
            chat = self._chat = await self._open(app, options, output)
            from ragmem.repl.completion import FileListing

            files = self._files = FileListing(self._cwd, self.terminal.offer)
            files.renew()
            app.start_background(model=options.model)
            try:
                while True:
                    self.terminal.idle()
                    if await self._handle(await self._next(chat), chat):
                        files.renew()
            finally:
                await app.leave_background(model=options.model)

    def _load(self) -> "tuple[ChatOutput, tuple[App, Options]]":
        from ragmem.repl import commands, completion, turn  # noqa: F401 - when needed
        from ragmem.repl.output import ChatOutput

        self.commands = commands.COMMANDS
        output = ChatOutput(self.terminal, mode=self._mode)
        return output, self._start(output.say)

    async def _open(self, app: "App", options: "Options", output: "ChatOutput") -> ChatSession:
        from ragmem.repl.turn import Approvals

        opening = await choose_opening(app, self._opening, output)
        if opening is None:
            self.leave(EXIT_DONE)
            await asyncio.Event().wait()
            raise AssertionError("unreachable: leaving cancels this")
        approvals = Approvals(output, self._asked, self.stop)
        chat = await ChatSession.open(app, options, approvals, output, opening)
        await chat.greet(opening)
        return chat

    async def _next(self, chat: ChatSession) -> Submission:
        while not self._queue:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), _TOLD_WITHIN_S)
            self._tell(chat)
        return self._queue.popleft()

    def _tell(self, chat: ChatSession) -> None:
        """Say what comes up while nothing goes on, such as that memory is back."""
        notices = chat.app.notices()
        if notices and self._mode == "none":
            self.terminal.write("\n")  # the prompt's line is left as it is
        for text in notices:
            chat.output.say(text)
        if notices:
            self.terminal.idle()

    async def _handle(self, submission: Submission, chat: ChatSession) -> bool:
        """Do one thing; whether files may have changed by it."""
        from ragmem.repl.commands import is_command

        self._stopped_at, self._seen_to_end = None, False
        if self._mode != "none":
            chat.output.prompt(submission.shown)
        self._running = asyncio.create_task(self._do(submission.text, chat))
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
        return not is_command(submission.text)

    async def _do(self, text: str, chat: ChatSession) -> None:
        from ragmem.repl.commands import is_command, is_own_command, own_command, run_command
        from ragmem.repl.turn import CommandView, TurnView

        if is_own_command(text):
            if command := own_command(text, chat.output):
                await self._show(chat.agent.run_command(command), CommandView(), chat)
        elif is_command(text):
            match await run_command(text, chat):
                case "exit":
                    self._queue.clear()
                    self.leave(EXIT_DONE)
                case "session":
                    await chat.introduce()
        else:
            reminder = Reminder(chat, text)
            view = TurnView(shows_live=self._mode != "none")
            try:
                await self._show(chat.agent.ask(text), view, chat, reminder.see)
            finally:
                reminder.close()
        chat.tell_notices()

    async def _show(
        self,
        events: AsyncGenerator[Event, None],
        view: "TurnView",
        chat: ChatSession,
        see: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Print the events of a turn, and show it live; `see` is told of each that is shown."""
        self._view = view
        ticking = asyncio.create_task(self._tick())
        try:
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, TurnFinished):
                        chat.finished(event, view.context_chars)
                        self._view, self._seen_to_end = None, True
                    for kind, part in view.show(event):
                        chat.output.show(part, kind)
                    see(event)
                    self.terminal.refresh()
        finally:
            ticking.cancel()
            self._view = None
            self.terminal.refresh()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.terminal.refresh()

    def _asked(self, proposal: "Proposal") -> None:
        if self._view:
            self._view.was_asked(proposal.tool_name)
