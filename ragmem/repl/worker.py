"""What the chat does with what is sent off: the queue, the commands and the turns."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ragmem.errors import EXIT_DONE
from ragmem.events import TurnFinished
from ragmem.repl.project_files import FileListing
from ragmem.repl.talk import Opening, Talk
from ragmem.repl.terminal import Line, Submission, Terminal
from ragmem.text import one_line

if TYPE_CHECKING:
    from ragmem.app import App, Options
    from ragmem.events import Event
    from ragmem.repl.page import Page
    from ragmem.repl.render import Ink
    from ragmem.repl.turn_view import TurnView
    from ragmem.tools.base import Proposal

Start = Callable[[], "tuple[App, Options]"]
"""Makes the app; called in a thread while the person types."""

_TICK_S = 0.5
_TOLD_WITHIN_S = 1.0
_STOP_WITHIN_S = 1.0
_SHOWN_QUEUE = 3


class Worker:
    """A `ragmem.repl.terminal.Host`: what the person does at the terminal comes in here."""

    terminal: Terminal
    """Set before anything else is used."""

    def __init__(
        self,
        start: Start,
        opening: Opening,
        *,
        cwd: Path,
        ink: "Ink",
        leave: Callable[[int], None],
    ) -> None:
        self._start = start
        self._opening = opening
        self._ink = ink
        self.leave = leave
        self._queue: deque[Submission] = deque()
        self._arrived = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._stopped_at: float | None = None
        self._seen_to_end = False
        """The turn that runs has shown its last line: keys are meant for what comes after it."""
        self._view: TurnView | None = None
        # These are there once all is loaded.
        self._talk: Talk | None = None
        self._page: Page | None = None
        self._files = FileListing(cwd)
        self.commands: Mapping[str, str] = {}

    @property
    def files(self) -> Sequence[str] | None:
        """Those of the folder; None until they are known."""
        return self._files.paths

    async def settle(self) -> None:
        """A running turn is recorded as interrupted, before anything is closed."""
        self._files.close()
        if self._running and self._talk:
            self._talk.agent.interrupt()
            await asyncio.wait({self._running}, timeout=_STOP_WITHIN_S)

    def farewell(self) -> None:
        """The last words."""
        if self._talk and self._page:
            from ragmem.repl.greeting import farewell

            farewell(self._talk, self._page)

    # --- what the terminal tells ----------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Queue a prompt."""
        self._queue.append(submission)
        self._arrived.set()
        self.terminal.refresh()

    def stop(self) -> bool:
        """End what runs; prompts that wait come back into the draft, so that none runs unasked."""
        waited = self._recall()
        if self._running is None or self._running.done() or self._seen_to_end:
            return waited
        now = time.monotonic()
        if self._view and self._talk and self._stopped_at is None:
            self._stopped_at = now
            self._talk.agent.interrupt()
        elif self._stopped_at is None or now - self._stopped_at > _STOP_WITHIN_S:
            self._running.cancel()
        return True

    def live(self, columns: int, rows: int) -> list[Line]:
        """The turn, and below it what is queued."""
        queued: list[Line] = [
            (("dim", one_line(f"queued: {each.shown}", columns)),)
            for each in list(self._queue)[:_SHOWN_QUEUE]
        ]
        if more := len(self._queue) - len(queued):
            queued.append((("dim", f"and {more} more"),))
        if self._view:
            return self._view.live(columns, max(1, rows - len(queued))) + queued
        if self._queue and self._talk is None:
            return [(("dim", "loading …"),), *queued]
        return queued

    def toolbar(self) -> list[str]:
        """Model, session, permissions, size of the context."""
        talk = self._talk
        if talk is None:
            return ["loading …"]
        chars = (self._view and self._view.context_chars) or talk.context_chars
        context = [f"context {chars:,} characters"] if chars else []
        return [talk.agent.model, talk.short_id, talk.options.permission_mode, *context]

    def _recall(self) -> bool:
        if not self._queue:
            return False
        shown = "\n".join(each.shown for each in self._queue)
        self._queue.clear()
        self.terminal.put_back(shown)
        return True

    # --- the work ---------------------------------------------------------------

    async def run(self) -> None:
        """Load, then do what is sent off, one after the other; until it is cancelled."""
        page, (app, options) = await asyncio.to_thread(self._load)
        app.say = page.say
        async with app:
            talk = await self._open(app, options, page)
            self._talk, self._page = talk, page
            self._files.on_listed = self.terminal.offer
            self._files.renew()
            app.start_background(model=options.model)
            try:
                while True:
                    self.terminal.idle()
                    await self._handle(await self._next(talk, page), talk, page)
            finally:
                await app.leave_background(model=options.model)

    def _load(self) -> "tuple[Page, tuple[App, Options]]":
        from ragmem.repl import commands, greeting, reminder, turn_view  # noqa: F401 - when needed
        from ragmem.repl.page import Page

        self.commands = commands.COMMANDS
        return Page(self.terminal, ink=self._ink), self._start()

    async def _open(self, app: "App", options: "Options", page: "Page") -> Talk:
        from ragmem.repl.approval import Approvals
        from ragmem.repl.greeting import choose_opening, greet

        opening = await choose_opening(app, self._opening, page)
        if opening is None:
            self.leave(EXIT_DONE)
            await asyncio.Event().wait()
            raise AssertionError("unreachable: leaving cancels this")
        approvals = Approvals(page, self._asked, self.stop)
        talk = await Talk.open(app, options, approvals, opening)
        await greet(talk, opening, page)
        return talk

    async def _next(self, talk: Talk, page: "Page") -> Submission:
        while not self._queue:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), _TOLD_WITHIN_S)
            self._tell(talk, page)
        return self._queue.popleft()

    def _tell(self, talk: Talk, page: "Page") -> None:
        """What comes up while nothing goes on, such as that memory is back."""
        notices = talk.app.notices()
        if notices and self._ink == "none":
            self.terminal.write("\n")  # the prompt's line is left as it is
        for text in notices:
            page.say(text)
        if notices:
            self.terminal.idle()

    async def _handle(self, submission: Submission, talk: Talk, page: "Page") -> None:
        self._stopped_at, self._seen_to_end = None, False
        if self._ink != "none":
            page.prompt(submission.shown)
        self._running = asyncio.create_task(self._do(submission.text, talk, page))
        try:
            await asyncio.wait({self._running})
        finally:
            if not self._running.done():
                self._running.cancel()
                await asyncio.wait({self._running})
        if self._running.cancelled():
            page.say("interrupted", "warning")
        else:
            self._running.result()

    async def _do(self, text: str, talk: Talk, page: "Page") -> None:
        from ragmem.repl.commands import is_command, run_command
        from ragmem.repl.greeting import introduce, notices
        from ragmem.repl.own_commands import is_own_command

        if is_own_command(text):
            await self._own_command(text, talk, page)
            self._files.renew()
        elif not is_command(text):
            await self._turn(text, talk, page)
            self._files.renew()
        else:
            match await run_command(text, talk, page):
                case "exit":
                    self._queue.clear()
                    self.leave(EXIT_DONE)
                case "session":
                    await introduce(talk, page)
        notices(talk, page)

    async def _turn(self, text: str, talk: Talk, page: "Page") -> None:
        from ragmem.repl.reminder import Reminder
        from ragmem.repl.turn_view import TurnView

        reminder = Reminder(talk, page, text)
        view = TurnView(shows_live=self._ink != "none")
        try:
            await self._show(talk.agent.ask(text), view, talk, page, reminder.see)
        finally:
            reminder.close()

    async def _own_command(self, text: str, talk: Talk, page: "Page") -> None:
        from ragmem.repl.own_commands import CommandView, own_command

        if command := own_command(text, page):
            await self._show(talk.agent.run_command(command), CommandView(), talk, page)

    async def _show(
        self,
        events: "AsyncGenerator[Event, None]",
        view: "TurnView",
        talk: Talk,
        page: "Page",
        see: "Callable[[Event], None]" = lambda _: None,
    ) -> None:
        """The events of a turn, on the page and live; `see` is told of each that is shown."""
        self._view = view
        ticking = asyncio.create_task(self._tick())
        try:
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, TurnFinished):
                        talk.finished(event, view.context_chars or talk.context_chars)
                        self._view, self._seen_to_end = None, True
                    for kind, part in view.show(event, page.width):
                        page.show(part, kind)
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
