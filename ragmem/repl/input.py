"""The prompt of an interactive terminal: prompt-toolkit's one adapter, with the completer.

The prompt stays at the bottom while output is printed above it. No question is
ever sent to the terminal (no cursor position requests), so no answer of it can
land in what is typed.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from ragmem.repl import early
from ragmem.repl.completion import ChatCompleter, command_at, mention_at
from ragmem.repl.key_parser import KeyParser
from ragmem.repl.keys import key_bindings
from ragmem.repl.layout import STYLE, chat_layout
from ragmem.repl.paste import Pastes
from ragmem.repl.prompt_history import PromptHistory
from ragmem.repl.terminal import Host, Question, Submission

# A key that was meant for the draft must not answer a question that just appeared.
_QUIET_S = 0.4
_LEAVE_WITHIN_S = 2.0
_ERASE_ROW = "\x1b[K"


class _Output(Vt100_Output):
    """An output whose renderer moves back to its first row without erasing, where told so."""

    erases = True

    def erase_down(self) -> None:
        if self.erases:
            super().erase_down()


class LiveTerminal:
    """A `ragmem.repl.terminal.Terminal` on a real one."""

    def __init__(self, host: Host, *, history: Path, color: bool) -> None:
        self._host = host
        self._history = PromptHistory(history)
        self.pastes = Pastes()
        self.question: Question | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._deciding: asyncio.TimerHandle | None = None
        self._last_key_at = self._leave_asked_at = float("-inf")
        self.buffer = Buffer(
            multiline=True,
            history=self._history,
            completer=ThreadedCompleter(ChatCompleter(host)),
            complete_while_typing=Condition(self.completes),
            on_text_changed=self._typed,
        )
        terminal_input = Vt100Input(sys.stdin)
        terminal_input.vt100_parser = KeyParser(terminal_input.vt100_parser.feed_key_callback)
        self._output = cast(_Output, _Output.from_pty(sys.stdout))
        self._output.enable_cpr = False
        self._app: Application[None] = Application(
            layout=chat_layout(self, host),
            key_bindings=key_bindings(self),
            style=STYLE,
            color_depth=None if color else ColorDepth.DEPTH_1_BIT,
            input=terminal_input,
            output=self._output,
            erase_when_done=True,
            min_redraw_interval=0.03,
        )
        self._app.timeoutlen, self._app.ttimeoutlen = 0.3, 0.05
        self._app.key_processor.before_key_press += self._note_key

    # --- what the chat does with it -----------------------------------------

    @property
    def columns(self) -> int:
        """Width, in cells."""
        return self._app.output.get_size().columns

    @property
    def rows(self) -> int:
        """Height, in cells."""
        return self._app.output.get_size().rows

    async def run(self, ready: Callable[[], None]) -> None:
        """Take input until `close`."""

        def first_render(_: object) -> None:
            self._app.after_render -= first_render
            ready()

        self._app.after_render += first_render
        try:
            await self._app.run_async(pre_run=self._take_over, set_exception_handler=False)
        except EOFError:  # the terminal went away
            self._host.leave(129)

    def close(self) -> None:
        """End `run`."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def write(self, text: str) -> None:
        """Print above the prompt."""
        app, output = self._app, self._output
        if not app.is_running or app.is_done:
            output.write_raw(text)
            output.flush()
            return
        # Row by row over what is drawn: nothing blinks, and at the top of a window
        # no multiplexer takes it for a cleared screen, to be kept in its scrollback.
        output.erases = False
        app.renderer.erase()
        output.erases = True
        output.write_raw(_ERASE_ROW + text.replace("\n", "\n" + _ERASE_ROW))
        output.erase_down()
        app.renderer.render(app, app.layout)

    def refresh(self) -> None:
        """Show what is live anew."""
        self._app.invalidate()

    def offer(self) -> None:
        """Complete anew what is being typed, unless one of what is offered was chosen."""
        state = self.buffer.complete_state
        if self.completes() and not (state and state.current_completion):
            self.buffer.start_completion()

    def idle(self) -> None:
        """All is done: the prompt is there already."""
        self.refresh()

    def put_back(self, text: str) -> None:
        """Put text before the draft."""
        self.buffer.set_document(Document(_joined(text, self.buffer.text)))

    async def ask(self, question: Question) -> str | None:
        """Ask, one question at a time; the draft is kept meanwhile."""
        async with self._asking:
            if question.choices:
                await self._quiet()
            draft = self.buffer.text
            self.buffer.reset()
            self.question = question
            self._answer = asyncio.get_running_loop().create_future()
            self.refresh()
            try:
                return await self._answer
            finally:
                typed = "" if self._choice() else self.buffer.text
                typed = typed if question.choices else ""
                self.question = self._answer = None
                self.buffer.set_document(Document(_joined(draft, typed)))
                self.refresh()

    # --- what the keys do ---------------------------------------------------

    @property
    def choosing(self) -> bool:
        """Whether one of some letters is waited for."""
        return bool(self.question and self.question.choices)

    def answer(self, text: str | None) -> None:
        """Answer the question, or refuse to."""
        if self._answer and not self._answer.done():
            self._answer.set_result(text)

    def _choice(self) -> str:
        """The choice whose letter alone was typed; a word that begins with it is none."""
        keys = [key for key, _ in self.question.choices] if self.question else []
        typed = self.buffer.text.strip().lower()
        return typed if typed in keys else ""

    def _typed(self, _: object) -> None:
        # A letter decides when nothing follows it: else it begins a word of the draft.
        if self._deciding:
            self._deciding.cancel()
            self._deciding = None
        if choice := self._choice():
            loop = asyncio.get_running_loop()
            self._deciding = loop.call_later(_QUIET_S, self.answer, choice)

    def enter(self) -> None:
        """Send the draft off, or answer with it."""
        shown = self.buffer.text
        text = self.pastes.unfold(shown)
        if choice := self._choice():
            self.answer(choice)
            return
        if self.question and not self.question.choices:
            self.answer(text)
            return
        if not text.strip():
            return
        self._history.remember(text, shown)
        self.buffer.reset()
        self._host.submit(Submission(text, shown))

    def escape(self) -> None:
        """Refuse to answer, or close the menu, or stop the agent."""
        if self.question:
            self.answer(None)
        elif self.buffer.complete_state:
            self.buffer.cancel_completion()
        else:
            self._host.stop()

    def interrupt(self) -> None:
        """Ctrl-C: refuses to answer; else interrupts, then clears, then (twice) leaves."""
        now = asyncio.get_running_loop().time()
        if self.question:
            self.answer(None)
        elif self._host.stop():
            return
        elif self.buffer.text:
            self.buffer.reset()
        elif now - self._leave_asked_at < _LEAVE_WITHIN_S:
            self._host.leave(130)
        else:
            self._leave_asked_at = now
            asyncio.get_running_loop().call_later(_LEAVE_WITHIN_S, self.refresh)

    def end(self) -> None:
        """Ctrl-D on an empty line."""
        if self.question:
            self.answer(None)
        else:
            self._host.leave(0)

    def completes(self) -> bool:
        """Whether candidates are offered while one types."""
        before = self.buffer.document.text_before_cursor
        return not self.question and (
            command_at(before) is not None or mention_at(before) is not None
        )

    @property
    def about_to_leave(self) -> bool:
        """Whether Ctrl-C was pressed a moment ago, with nothing to interrupt or to clear."""
        since = asyncio.get_running_loop().time() - self._leave_asked_at
        return since < _LEAVE_WITHIN_S and not self.buffer.text

    # --- inner ways ---------------------------------------------------------

    def _note_key(self, _: object) -> None:
        self._last_key_at = asyncio.get_running_loop().time()

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        quiet_at = loop.time() + _QUIET_S
        while loop.time() < quiet_at:
            await asyncio.sleep(quiet_at - loop.time())
            quiet_at = max(quiet_at, self._last_key_at + _QUIET_S)

    def _take_over(self) -> None:
        keys: list[KeyPress] = []
        parser = KeyParser(keys.append)
        parser.feed(early.take())
        parser.flush()
        self._app.key_processor.feed_multiple(keys)


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))
