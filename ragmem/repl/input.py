"""The prompt of an interactive terminal: its keys, pastes and history.

The prompt stays at the bottom while output is printed above it. The only query sent to the
terminal is for its background colour; the reply never ends up in the draft.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from prompt_toolkit.application import Application, in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, FilterOrBool, has_focus
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import DynamicStyle

from ragmem.config import EditingKeys, environment
from ragmem.errors import RagmemError
from ragmem.repl import early
from ragmem.repl.completion import (
    ChatCompleter,
    Picker,
    command_at,
    is_marked,
    mention_at,
    value_at,
)
from ragmem.repl.drawing import (
    ChatRenderer,
    ChatTerminal,
    KeyParser,
    Pastes,
    PromptHistory,
    chat_layout,
    earlier_prompts,
    style_of,
)
from ragmem.repl.terminal import (
    WORDS,
    ChatQuestion,
    PickQuestion,
    Submission,
    T,
    Terminal,
    edited,
    page,
    suspend,
)
from ragmem.text import clean
from ragmem.themes import ASKS_BACKGROUND, Colors

if TYPE_CHECKING:
    from ragmem.repl.chat import ChatLoop

_QUIET_S = 0.4
"""Time without keys before a question appears, so that no key meant for the draft answers it."""
_ENTER_DELAY_S = 1.0
"""Time after a question appears, or after an Enter that came too early, in which Enter does not
take the preselected choice."""
_clock = time.monotonic
REDRAW_S = 0.03
"""Interval between redraws of streamed output; keys are drawn at once."""
_ALT_S, _SEQUENCE_S = 0.05, 1.0
"""Time after Esc in which a key is read as Alt with that key, which terminals send at once; and
time after another key in which the next one belongs to the same sequence."""
_REWIND, _EXPAND = "/rewind", "/expand"
_QUIT_HINT = "Ctrl-C again to leave"
_REWIND_HINT = "Esc again to rewind to a prompt"
_ERASE_ROW = "\x1b[K"


class LiveTerminal(Terminal):
    """A terminal that keeps the prompt at the bottom, below what is printed."""

    def __init__(
        self,
        host: "ChatLoop",
        *,
        history: PromptHistory,
        colors: Colors | None,
        editing: EditingKeys,
    ) -> None:
        """Create the terminal of a chat; without `colors`, it is monochrome."""
        self._host = host
        self._colors = colors or Colors()
        self._style = style_of(self._colors.theme)
        self._history = history
        self._pastes = Pastes()
        self.question: ChatQuestion | None = None
        self.marked: int | None = None
        """Index of the choice that Enter takes; None if no choice is selected."""
        self._enter_from = float("-inf")
        """Clock time from which on Enter takes it."""
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._deciding: asyncio.TimerHandle | None = None
        self._last_key_at = float("-inf")
        self._cancelled_early: bool | None = None
        """Whether Esc has cancelled the question that is about to appear; None if none is."""
        self._armed, self._armed_before = "", ""
        """Hints of what the last key, and the one before it, do if pressed a second time; or why
        the last one did nothing."""
        self.picker: Picker | None = None
        self._searching: asyncio.Task[None] | None = None
        self._lending: asyncio.Task[None] | None = None
        """Task that runs while another program, such as an editor or a pager, has the screen."""
        self._held: list[str] = []
        """Output to be printed after `_lending`."""
        self.buffer = Buffer(
            multiline=True,
            history=self._history,
            completer=ThreadedCompleter(ChatCompleter(host)),
            complete_while_typing=Condition(self.completes),
            on_text_changed=self._text_changed,
        )
        terminal_input = Vt100Input(sys.stdin)
        terminal_input.vt100_parser = KeyParser(
            terminal_input.vt100_parser.feed_key_callback, self._background_answered
        )
        self._output = cast(ChatTerminal, ChatTerminal.from_pty(sys.stdout))
        self._output.enable_cpr = False
        self._app: Application[None] = Application(
            layout=chat_layout(self, host),
            key_bindings=_key_bindings(self, host),
            style=DynamicStyle(lambda: self._style),
            color_depth=ColorDepth.DEPTH_1_BIT if colors is None else None,
            input=terminal_input,
            output=self._output,
            erase_when_done=True,
            editing_mode=EditingMode.VI if editing == "vi" else EditingMode.EMACS,
        )
        self._app.renderer = ChatRenderer(self._app, environment())
        self._app.ttimeoutlen = _ALT_S
        self._app.key_processor.before_key_press += self._note_key
        self._app.key_processor.after_key_press += self._after_key
        self._refreshing: asyncio.TimerHandle | None = None
        self._selected_row: int | None = None
        """Index of the menu row selected with the arrow keys; None before they are used."""

    # --- the interface for the chat -----------------------------------------

    @property
    def columns(self) -> int:
        return self._app.output.get_size().columns

    @property
    def rows(self) -> int:
        return self._app.output.get_size().rows

    async def run(self, ready: Callable[[], None]) -> None:
        def first_render(_: object) -> None:
            self._app.after_render -= first_render
            if self._colors.asks:
                self.signal(ASKS_BACKGROUND)
            ready()

        self._app.after_render += first_render
        try:
            await self._app.run_async(pre_run=early.hand_over, set_exception_handler=False)
        except EOFError:  # the terminal was closed
            self._host.leave(129)

    def close(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def write(self, text: str) -> None:
        if self._lending:
            self._held.append(text)
            return
        app, output = self._app, self._output
        if not app.is_running or app.is_done:
            output.write_raw(text)
            output.flush()
            return
        # Overwrite the drawn rows one by one: nothing flickers, and no multiplexer takes it for a
        # cleared screen, which it would keep in its scrollback.
        output.erases = False
        app.renderer.erase()
        output.erases = True
        output.write_raw(_ERASE_ROW + text.replace("\n", "\n" + _ERASE_ROW))
        output.erase_down()
        app.renderer.render(app, app.layout)

    def _background_answered(self, answer: str) -> None:
        self._colors.answered(answer)
        self._restyle()

    def recolor(self) -> None:
        self._restyle()
        if self._colors.asks:
            self.signal(ASKS_BACKGROUND)

    def _restyle(self) -> None:
        self._style = style_of(self._colors.theme)
        self.refresh()

    def clear(self) -> None:
        self._app.renderer.clear()

    def signal(self, sequence: str) -> None:
        self._output.write_raw(sequence)
        self._output.flush()

    def refresh(self) -> None:
        # prompt_toolkit's own limit goes by the system clock, which may be set back.
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().call_later(REDRAW_S, self._refreshed)

    def _refreshed(self) -> None:
        self._refreshing = None
        self._app.invalidate()

    def offer(self) -> None:
        state = self.buffer.complete_state
        if self.completes() and state is None:
            self.buffer.start_completion()
        elif self.completes() and state and not state.completions:
            # A completion is still being computed; another can't start until it is done.
            asyncio.get_running_loop().call_later(0.1, self.offer)

    def put_back(self, text: str) -> None:
        self.buffer.set_document(Document(_joined(text, self.buffer.text)))

    async def ask(self, question: ChatQuestion) -> str | None:
        """Ask one question at a time, keeping the draft."""
        async with self._exclusive():
            if question.choices and not await self._wait_until_quiet():
                return None
            draft = self._draft_to_keep(question)
            self.buffer.reset()
            self.question, self.marked = question, None
            if question.chosen and not draft:
                self.marked = question.keys.index(question.chosen)
            self._enter_from = _clock() + _ENTER_DELAY_S
            self._answer = asyncio.get_running_loop().create_future()
            self.refresh()
            try:
                return await self._answer
            finally:
                typed = self.buffer.text if question.choices and not self._choice() else ""
                self.question = self._answer = None
                self.buffer.set_document(Document(_joined(draft, typed)))
                self.refresh()

    def _draft_to_keep(self, question: ChatQuestion) -> str:
        """Return the draft to keep; empty if it is a key of the question, pressed too early."""
        draft = self.buffer.text
        pressed = set(draft.strip().lower())
        return "" if len(pressed) == 1 and pressed <= {*question.keys} else draft

    async def pick(self, question: PickQuestion) -> str | None:
        """Show a picker in place of the draft, which is restored afterwards."""
        async with self._exclusive():
            return await self._await_pick(self._open_picker(question))

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Take exclusive input: wait for other questions and for a search of the history."""
        async with self._asking:
            if self._searching:
                await asyncio.wait({self._searching})
            yield

    def _open_picker(self, question: PickQuestion) -> Picker:
        picker = self.picker = Picker(question, self._size, self.refresh)
        self._app.layout.focus(picker.filter)
        return picker

    async def _await_pick(self, picker: Picker) -> str | None:
        try:
            return await picker.picked()
        finally:
            self.picker = None
            self._app.layout.focus(self.buffer)
            self.write("")  # releases the rows below the prompt

    def _size(self) -> tuple[int, int]:
        return self.columns, self.rows

    # --- what the keys do ---------------------------------------------------

    def _reply(self, text: str | None) -> None:
        """Answer the question; None cancels it."""
        if self._answer and not self._answer.done():
            self._answer.set_result(text)

    def _choice(self, **words: str) -> str:
        """Return the choice whose key, or one of these words for a key, is the whole draft."""
        typed = self.buffer.text.strip().lower()
        key = words.get(typed, typed)
        return key if self.question and key in self.question.keys else ""

    def _text_changed(self, _: object) -> None:
        # A key answers only after a pause: otherwise it is the first letter of a word.
        self.marked = self._selected_row = None
        if self._deciding:
            self._deciding.cancel()
            self._deciding = None
        if choice := self._choice():
            loop = asyncio.get_running_loop()
            self._deciding = loop.call_later(_QUIET_S, self._reply, choice)

    def enter(self) -> None:
        """Apply the marked completion, break the line after a backslash, or send the draft.

        A completion that expects more input, such as a file's name, is inserted without sending.
        """
        if marked := self._marked_completion():
            typed = self.buffer.document.text_before_cursor[marked.start_position :]
            if marked.text.rstrip() != typed:
                self.buffer.apply_completion(marked)
                if marked.text[-1].isspace():
                    return
        if self.buffer.document.is_cursor_at_the_end and self.buffer.text.endswith("\\"):
            self.buffer.delete_before_cursor()
            self.add_line()
        else:
            self._send()

    @property
    def offered(self) -> int | None:
        """Return the index of the marked menu row; None if none is marked or no menu is open."""
        if self.buffer.complete_state is None:
            return None
        marks = self._selected_row is None and is_marked(self.buffer.document)
        return 0 if marks else self._selected_row

    def _marked_completion(self) -> Completion | None:
        state, at = self.buffer.complete_state, self.offered
        return state.completions[at] if state and at is not None and state.completions else None

    def offer_next(self, by: int) -> None:
        """Select another row of the menu, wrapping around; the draft does not change."""
        state = self.buffer.complete_state
        if state and state.completions:
            before = -1 if self.offered is None and by > 0 else self.offered or 0
            self._selected_row = (before + by) % len(state.completions)

    def add_line(self) -> None:
        """Insert a line break."""
        self.buffer.newline(copy_margin=False)

    def complete(self) -> None:
        """Insert the marked completion; the first if none is marked or the menu is not open yet."""
        asked = CompleteEvent(completion_requested=True)
        found = self._marked_completion() or next(
            iter(self.buffer.completer.get_completions(self.buffer.document, asked)), None
        )
        if found:
            self.buffer.apply_completion(found)

    def paste(self, text: str) -> None:
        """Insert pasted text, folded if it is long."""
        if self.question and self.question.choices:
            return  # a pasted letter must not answer
        if self.question:
            self.buffer.insert_text(" ".join(clean(text).split()))
        else:
            self.buffer.insert_text(self._pastes.fold(text))

    @property
    def paste_mark(self) -> str:
        """Return the mark of a folded paste that ends at the cursor; empty if there is none."""
        return self._pastes.mark_before(self.buffer.document.text_before_cursor)

    def delete_mark(self) -> None:
        """Delete all of the mark before the cursor."""
        self.buffer.delete_before_cursor(len(self.paste_mark))

    def _send(self) -> None:
        """Send the draft, or answer the question with it."""
        shown = self.buffer.text
        text = self._pastes.unfold(shown)
        if choice := self._choice(**WORDS):
            self.buffer.reset()
            self._reply(choice)
            return
        if self.question and not self.question.choices:
            self._reply(text)
            return
        if self.question and self.marked is not None:
            now = _clock()
            if now >= self._enter_from:
                self._reply(self.question.choices[self.marked][0])
            self._enter_from = max(self._enter_from, now + _ENTER_DELAY_S)  # for Enter held down
            return
        if not text.strip():
            return
        self._history.remember(text, shown)
        self.buffer.reset()
        self._app.vi_state.input_mode = InputMode.INSERT
        self._host.submit(Submission(text, shown))

    def mark(self, by: int) -> None:
        """Select the next or previous choice of the question; Enter then takes it at once."""
        last = len(self.question.choices) - 1 if self.question else 0
        self.marked = 0 if self.marked is None else min(max(0, self.marked + by), last)
        self._enter_from = float("-inf")

    @property
    def marks(self) -> bool:
        """Return whether the arrow keys move through the choices of a question."""
        return self.question is not None and bool(self.question.choices) and not self.buffer.text

    def escape(self) -> None:
        """Handle Esc: cancel the question, close the menu, stop the agent, or (twice) rewind."""
        if self.question:
            self._reply(None)
        elif self.buffer.complete_state:
            self.buffer.complete_state = None
        elif self._ends_vi_insertion():
            self._app.vi_state.input_mode = InputMode.NAVIGATION
        elif self._cancelled_early is not None:
            self._cancelled_early = True
        elif self._host.stop() or self.buffer.text:
            return
        elif self._armed_before == _REWIND_HINT:
            self._host.submit(Submission(_REWIND, ""))
        else:
            self._armed = _REWIND_HINT

    def escape_twice(self) -> None:
        """Handle Esc pressed twice so fast that both are read as one key."""
        self.escape()
        self._note_key(None)
        self.escape()

    def _ends_vi_insertion(self) -> bool:
        """Return whether Esc ends vi's insert mode, as it does first in a draft with text."""
        inserting = self._app.vi_state.input_mode != InputMode.NAVIGATION
        return self._app.editing_mode == EditingMode.VI and inserting and bool(self.buffer.text)

    def interrupt(self) -> None:
        """Handle Ctrl-C: cancel the question, stop the agent, clear the draft, or (twice) leave."""
        if self._lending:
            return
        if self.picker:
            self.picker.leave()
        elif self.question:
            self._reply(None)
        elif self._host.stop():
            return
        elif self.buffer.text:
            self.buffer.reset()
            self._app.vi_state.input_mode = InputMode.INSERT
        elif self._armed_before == _QUIT_HINT:
            self._host.leave(130)
        else:
            self._armed = _QUIT_HINT

    def end(self) -> None:
        """Handle Ctrl-D on an empty draft: cancel the question, or leave."""
        if self.question:
            self._reply(None)
        else:
            self._host.leave(0)

    def earlier(self) -> None:
        """Put the last queued prompt back into the draft; else move up, or back in the history."""
        at_top = not self.buffer.document.cursor_position_row
        waited = self._host.take_back() if at_top and not self.question else None
        if waited is None:
            self.buffer.auto_up()
        else:
            self.put_back(waited)

    def search_history(self) -> None:
        """Let the user pick an earlier prompt as the draft, unless a question is open or due."""
        if not self._asking.locked() and not self.picker:
            picker = self._open_picker(earlier_prompts(self._history, self._pastes))
            self._searching = asyncio.create_task(self._take_earlier(picker))

    async def _take_earlier(self, picker: Picker) -> None:
        if (picked := await self._await_pick(picker)) is not None:
            self.buffer.set_document(Document(picked))

    def edit(self) -> None:
        """Open the draft in $VISUAL or $EDITOR."""
        if not self.question and not self._lending:
            self._lend_screen(self._edit_draft())

    async def _edit_draft(self) -> None:
        try:
            text = await run_in_terminal(partial(edited, self.buffer.text), in_executor=True)
        except RagmemError as error:
            self._armed = str(error)
            return
        if text is not None:
            self.buffer.set_document(Document(text))

    def suspend(self) -> None:
        """Suspend the process, as Ctrl-Z does, until the shell continues it."""

        async def suspended() -> None:
            async with in_terminal():
                await suspend()

        if not self._lending:
            self._lend_screen(suspended())

    async def page(self, text: str) -> None:
        """Show the text in the user's pager."""
        await self.lend(partial(page, text))

    async def lend(self, work: Callable[[], T]) -> T:
        while self._lending:
            await asyncio.wait({self._lending})
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def lent() -> None:
            done.set_result(await run_in_terminal(work, in_executor=True))

        await self._lend_screen(lent())
        return done.result()

    def _lend_screen(self, doing: Awaitable[None]) -> asyncio.Task[None]:
        """Give the screen to other work, and hold output back until that ends."""

        async def meanwhile() -> None:
            try:
                await doing
            finally:
                self._lending = None
                held, self._held = "".join(self._held), []
                self.write(held)

        self._lending = asyncio.create_task(meanwhile())
        return self._lending

    def expand(self) -> None:
        """Run `/expand`, which lists the shortened items."""
        if not self.question and not self.picker and not self._lending:
            self._host.submit(Submission(_EXPAND, ""))

    def completes(self) -> bool:
        """Return whether the draft is completed while the user types."""
        before = self.buffer.document.text_before_cursor
        if self.question:
            return False
        if value := value_at(before):
            return self._host.values(value[0]) is not None
        return command_at(before) is not None or mention_at(before) is not None

    @property
    def hint(self) -> str:
        """Return the hint about a key that does something unusual next; empty for none."""
        if self._armed:
            return self._armed
        is_key = not self.buffer.text or self._choice(**WORDS)
        asks = self.question is not None and self.question.choices
        return "" if is_key or not asks else "text in the prompt · clear it to answer"

    # --- helpers ------------------------------------------------------------

    def _after_key(self, _: object) -> None:
        """Redraw at once, unlike for streamed output; set the timeout for the next key."""
        pending = self._app.key_processor.key_buffer
        begins = bool(pending) and pending[0].key == Keys.Escape
        self._app.timeoutlen = _ALT_S if begins else _SEQUENCE_S
        self._app.invalidate()

    def _note_key(self, _: object) -> None:
        self._last_key_at = asyncio.get_running_loop().time()
        self._armed_before, self._armed = self._armed, ""

    async def _wait_until_quiet(self) -> bool:
        """Wait until no key is pressed for a while; return False if Esc cancelled the question."""
        loop = asyncio.get_running_loop()
        quiet_at, self._cancelled_early = loop.time() + _QUIET_S, False
        try:
            while loop.time() < quiet_at and not self._cancelled_early:
                await asyncio.sleep(quiet_at - loop.time())
                quiet_at = max(quiet_at, self._last_key_at + _QUIET_S)
            return not self._cancelled_early
        finally:
            self._cancelled_early = None


def _key_bindings(terminal: LiveTerminal, host: "ChatLoop") -> KeyBindings:
    """Return the chat's key bindings, which take precedence over prompt_toolkit's own."""
    keys = KeyBindings()
    typing = has_focus(terminal.buffer)

    def add(act: Callable[[], None], *names: str, when: FilterOrBool = typing) -> None:
        keys.add(*names, filter=when)(lambda _: act())

    for enter in ("enter", "c-j"):
        add(terminal.enter, enter)
        add(terminal.add_line, "escape", enter)
    add(terminal.complete, "tab")
    menu = Condition(lambda: terminal.buffer.complete_state is not None)
    add(host.next_mode, "s-tab", when=typing & ~menu)
    add(terminal.earlier, "up", when=typing & ~menu)
    for name, by in (("up", -1), ("c-p", -1), ("s-tab", -1), ("down", 1), ("c-n", 1)):
        add(partial(terminal.offer_next, by), name, when=typing & menu)
    marks = Condition(lambda: terminal.marks)
    for name, by in (("up", -1), ("left", -1), ("down", 1), ("right", 1)):
        add(partial(terminal.mark, by), name, when=typing & marks)
    add(terminal.search_history, "c-r")
    add(terminal.edit, "c-g")
    add(terminal.edit, "c-x", "c-e")
    add(terminal.expand, "c-o")
    add(terminal.escape, "escape")
    add(terminal.escape_twice, "escape", "escape")
    add(terminal.interrupt, "c-c")
    add(terminal.interrupt, "<sigint>", when=True)
    add(terminal.end, "c-d", when=typing & Condition(lambda: not terminal.buffer.text))
    ends_with_paste = Condition(lambda: terminal.paste_mark != "")
    add(terminal.delete_mark, "backspace", when=typing & ends_with_paste)
    add(terminal.suspend, "c-z", when=True)
    keys.add(Keys.BracketedPaste, filter=typing)(lambda event: terminal.paste(event.data))
    return keys


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))
