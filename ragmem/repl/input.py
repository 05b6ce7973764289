"""The prompt of an interactive terminal: what its keys do, its pastes and its history.

The prompt stays at the bottom while output is printed above it. The terminal is
asked nothing but, once, the colour of its background; the answer never lands in
what is typed.
"""

import asyncio
import pydoc
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
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
    ChatQuestion,
    PickQuestion,
    Submission,
    T,
    Terminal,
    suspend,
)
from ragmem.text import clean
from ragmem.themes import ASKS_BACKGROUND, Colors

if TYPE_CHECKING:
    from ragmem.repl.chat import ChatLoop

# A key that was meant for the draft must not answer a question that just appeared.
_QUIET_S = 0.4
_READ_S = 1.0
"""So long after a question, or after an Enter that came before, Enter takes no choice that nobody
has gone to."""
_clock = time.monotonic
REDRAW_S = 0.03
"""What streams by is drawn so often; a key at once."""
_ALT_S, _SEQUENCE_S = 0.05, 1.0
"""So long after Esc a key is one with Alt, which terminals send at once; and after another key the
next of a sequence."""
_GO_BACK, _EXPAND = "/rewind", "/expand"
_LEAVE_HINT = "Ctrl-C again to leave"
_BACK_HINT = "Esc again to rewind to a prompt"
_ERASE_ROW = "\x1b[K"


class _ChatApplication(Application[None]):
    """One that goes on drawing where the machine's clock is set back."""

    drawn_at = 0.0
    """By that clock."""

    def invalidate(self) -> None:
        """Draw soon: where the clock was set back at once, else it would wait for the old time."""
        self.min_redraw_interval = REDRAW_S if time.time() >= self.drawn_at else None
        super().invalidate()
        self.min_redraw_interval = REDRAW_S

    def note_drawn(self, _: object) -> None:
        """Remember when it was drawn."""
        self.drawn_at = time.time()


class LiveTerminal(Terminal):
    """One whose prompt stays at the bottom of a real one."""

    def __init__(
        self, host: "ChatLoop", *, history: Path, colors: Colors | None, editing: EditingKeys
    ) -> None:
        """Show a chat; without `colors` in none."""
        self._host = host
        self._colors = colors or Colors()
        self._style = style_of(self._colors.theme)
        self._history = PromptHistory(history)
        self._pastes = Pastes()
        self.question: ChatQuestion | None = None
        self.marked: int | None = None
        """Which of its choices Enter takes: the one that the arrow keys have gone to, if any."""
        self._ripe_at = float("-inf")
        """When it does so, on the clock."""
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._deciding: asyncio.TimerHandle | None = None
        self._last_key_at = float("-inf")
        self._left: bool | None = None
        """Whether Esc has left the question that is about to come; None where none is."""
        self._first, self._before = "", ""
        """What the last key does if it is pressed once more, and the one before it."""
        self.picker: Picker | None = None
        self._searching: asyncio.Task[None] | None = None
        self._away: asyncio.Task[None] | None = None
        """While an editor or a pager has the screen."""
        self._held: list[str] = []
        """What was to be printed meanwhile."""
        self.buffer = Buffer(
            multiline=True,
            history=self._history,
            completer=ThreadedCompleter(ChatCompleter(host)),
            complete_while_typing=Condition(self.completes),
            on_text_changed=self._typed,
        )
        terminal_input = Vt100Input(sys.stdin)
        terminal_input.vt100_parser = KeyParser(
            terminal_input.vt100_parser.feed_key_callback, self._told
        )
        self._output = cast(ChatTerminal, ChatTerminal.from_pty(sys.stdout))
        self._output.enable_cpr = False
        self._app = _ChatApplication(
            layout=chat_layout(self, host),
            key_bindings=_key_bindings(self, host),
            style=DynamicStyle(lambda: self._style),
            color_depth=ColorDepth.DEPTH_1_BIT if colors is None else None,
            input=terminal_input,
            output=self._output,
            erase_when_done=True,
            min_redraw_interval=REDRAW_S,
            editing_mode=EditingMode.VI if editing == "vi" else EditingMode.EMACS,
        )
        self._app.before_render += self._app.note_drawn
        self._app.renderer = ChatRenderer(self._app, environment())
        self._app.ttimeoutlen = _ALT_S
        self._app.key_processor.before_key_press += self._note_key
        self._app.key_processor.after_key_press += self._show_key
        self._shows_key = False
        self._gone_to: int | None = None
        """Which row of the menu the arrow keys have gone to; None before they have."""

    # --- what the chat does with it -----------------------------------------

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
        except EOFError:  # the terminal went away
            self._host.leave(129)

    def close(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def write(self, text: str) -> None:
        if self._away:
            self._held.append(text)
            return
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

    def _told(self, answer: str) -> None:
        """Take what the terminal says of its background."""
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
        self._app.invalidate()

    def offer(self) -> None:
        state = self.buffer.complete_state
        if self.completes() and state is None:
            self.buffer.start_completion()
        elif self.completes() and state and not state.completions:
            # While it is still being made, nothing else would begin.
            asyncio.get_running_loop().call_later(0.1, self.offer)

    def put_back(self, text: str) -> None:
        self.buffer.set_document(Document(_joined(text, self.buffer.text)))

    async def ask(self, question: ChatQuestion) -> str | None:
        """Ask, one question at a time; the draft is kept meanwhile."""
        async with self._alone():
            if question.choices and not await self._quiet():
                return None
            draft = self._draft_beside(question)
            self.buffer.reset()
            self.question, self.marked = question, _chosen(question) if not draft else None
            self._ripe_at = _clock() + _READ_S
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

    def _draft_beside(self, question: ChatQuestion) -> str:
        """Return what is typed, but for a key that answers: it came too early, for no prompt."""
        draft = self.buffer.text
        pressed = set(draft.strip().lower())
        return "" if len(pressed) == 1 and pressed <= {*question.keys} else draft

    async def pick(self, question: PickQuestion) -> str | None:
        """Let a row be picked, in place of the draft, which comes back as it was."""
        async with self._alone():
            return await self._picked(self._picking(question))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Have what is typed for oneself: one at a time, and once no earlier prompt is sought."""
        async with self._asking:
            if self._searching:
                await asyncio.wait({self._searching})
            yield

    def _picking(self, question: PickQuestion) -> Picker:
        """Open a picker: the next key is typed there."""
        picker = self.picker = Picker(question, self._size, self.refresh)
        self._app.layout.focus(picker.filter)
        return picker

    async def _picked(self, picker: Picker) -> str | None:
        try:
            return await picker.picked()
        finally:
            self.picker = None
            self._app.layout.focus(self.buffer)
            self.write("")  # the rows below the prompt are given back

    def _size(self) -> tuple[int, int]:
        return self.columns, self.rows

    # --- what the keys do ---------------------------------------------------

    def _reply(self, text: str | None) -> None:
        """Answer the question, or refuse to."""
        if self._answer and not self._answer.done():
            self._answer.set_result(text)

    def _choice(self) -> str:
        """Return the choice whose letter alone was typed; a word that begins with it is none."""
        keys = self.question.keys if self.question else ()
        typed = self.buffer.text.strip().lower()
        return typed if typed in keys else ""

    def _word(self) -> str:
        """Return the choice that stands for the draft, where that is `yes` or `no` and no more."""
        keys = self.question.keys if self.question else ()
        meant = {"yes": "y", "no": "n"}.get(self.buffer.text.strip().lower(), "")
        return meant if meant in keys else ""

    def _typed(self, _: object) -> None:
        # A letter decides when nothing follows it: else it begins a word of the draft.
        self.marked = self._gone_to = None
        if self._deciding:
            self._deciding.cancel()
            self._deciding = None
        if choice := self._choice():
            loop = asyncio.get_running_loop()
            self._deciding = loop.call_later(_QUIET_S, self._reply, choice)

    def enter(self) -> None:
        """Do what the menu's marked row says, or add a line after a backslash, or send the draft.

        What is still to be gone on with, such as a file's name, is filled in and not sent.
        """
        if marked := self._offered():
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
        """Return which row of the menu is marked; None where none is, or there is no menu."""
        if self.buffer.complete_state is None:
            return None
        marks = self._gone_to is None and is_marked(self.buffer.document)
        return 0 if marks else self._gone_to

    def _offered(self) -> Completion | None:
        state, at = self.buffer.complete_state, self.offered
        return state.completions[at] if state and at is not None and state.completions else None

    def offer_next(self, by: int) -> None:
        """Go to another row of the menu, which goes round; what is typed stays as it is."""
        state = self.buffer.complete_state
        if state and state.completions:
            before = -1 if self.offered is None and by > 0 else self.offered or 0
            self._gone_to = (before + by) % len(state.completions)

    def add_line(self) -> None:
        """Break the line."""
        self.buffer.newline(copy_margin=False)

    def complete(self) -> None:
        """Insert the marked candidate, or the first where none is marked or the menu is to come."""
        asked = CompleteEvent(completion_requested=True)
        found = self._offered() or next(
            iter(self.buffer.completer.get_completions(self.buffer.document, asked)), None
        )
        if found:
            self.buffer.apply_completion(found)

    def paste(self, text: str) -> None:
        """Insert what was pasted, folded where it is long."""
        if self.question and self.question.choices:
            return  # a pasted letter is no decision
        if self.question:
            self.buffer.insert_text(" ".join(clean(text).split()))
        else:
            self.buffer.insert_text(self._pastes.fold(text))

    @property
    def paste_mark(self) -> str:
        """Return the mark of a folded paste that ends at the cursor, or nothing."""
        return self._pastes.mark_before(self.buffer.document.text_before_cursor)

    def delete_mark(self) -> None:
        """Delete that mark whole."""
        self.buffer.delete_before_cursor(len(self.paste_mark))

    def _send(self) -> None:
        """Send the draft off, or answer with it."""
        shown = self.buffer.text
        text = self._pastes.unfold(shown)
        if choice := self._choice() or self._word():
            self.buffer.reset()
            self._reply(choice)
            return
        if self.question and not self.question.choices:
            self._reply(text)
            return
        if self.question and self.marked is not None:
            now = _clock()
            if now >= self._ripe_at:
                self._reply(self.question.choices[self.marked][0])
            self._ripe_at = max(self._ripe_at, now + _READ_S)  # nor does a key that is held
            return
        if not text.strip():
            return
        self._history.remember(text, shown)
        self.buffer.reset()
        self._app.vi_state.input_mode = InputMode.INSERT
        self._host.submit(Submission(text, shown))

    def mark(self, by: int) -> None:
        """Go to the next choice of the question, or to the one before; Enter takes it at once."""
        last = len(self.question.choices) - 1 if self.question else 0
        self.marked = 0 if self.marked is None else min(max(0, self.marked + by), last)
        self._ripe_at = float("-inf")

    @property
    def marks(self) -> bool:
        """Return whether the arrow keys go through the choices of a question."""
        return self.question is not None and bool(self.question.choices) and not self.buffer.text

    def escape(self) -> None:
        """Refuse to answer, close the menu, stop the agent, or (twice) go back to a prompt."""
        if self.question:
            self._reply(None)
        elif self.buffer.complete_state:
            self.buffer.complete_state = None
        elif self._leaves_insertion():
            self._app.vi_state.input_mode = InputMode.NAVIGATION
        elif self._left is not None:
            self._left = True
        elif self._host.stop() or self.buffer.text:
            return
        elif self._before == _BACK_HINT:
            self._host.submit(Submission(_GO_BACK, ""))
        else:
            self._first = _BACK_HINT

    def escape_twice(self) -> None:
        """Do what two presses do that came so fast that they are one key."""
        self.escape()
        self._note_key(None)
        self.escape()

    def _leaves_insertion(self) -> bool:
        """Return whether Esc belongs to vi: with words typed, and first of all."""
        inserting = self._app.vi_state.input_mode != InputMode.NAVIGATION
        return self._app.editing_mode == EditingMode.VI and inserting and bool(self.buffer.text)

    def interrupt(self) -> None:
        """Refuse to answer at Ctrl-C; else interrupt, then clear, then (twice) leave."""
        if self._away:
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
        elif self._before == _LEAVE_HINT:
            self._host.leave(130)
        else:
            self._first = _LEAVE_HINT

    def end(self) -> None:
        """Leave, or refuse to answer, at Ctrl-D on an empty line."""
        if self.question:
            self._reply(None)
        else:
            self._host.leave(0)

    def earlier(self) -> None:
        """Take the last prompt that waits back into the draft; else go up, or to an earlier one."""
        at_top = not self.buffer.document.cursor_position_row
        waited = self._host.take_back() if at_top and not self.question else None
        if waited is None:
            self.buffer.auto_up()
        else:
            self.put_back(waited)

    def search_history(self) -> None:
        """Pick one of the earlier prompts into the draft, unless a question stands, or comes."""
        if not self._asking.locked() and not self.picker:
            picker = self._picking(earlier_prompts(self._history, self._pastes))
            self._searching = asyncio.create_task(self._take_earlier(picker))

    async def _take_earlier(self, picker: Picker) -> None:
        if (picked := await self._picked(picker)) is not None:
            self.buffer.set_document(Document(picked))

    def edit(self) -> None:
        """Open the draft in $VISUAL or $EDITOR."""
        if not self.question and not self._away:
            self._leave_screen(self.buffer.open_in_editor())

    def suspend(self) -> None:
        """Give the terminal to the shell, until it gives it back."""

        async def suspended() -> None:
            async with in_terminal():
                await suspend()

        if not self._away:
            self._leave_screen(suspended())

    async def page(self, text: str) -> None:
        """Open the text in $PAGER, or less; print it where that is no program."""
        named = (environment().get("MANPAGER") or environment().get("PAGER") or "").split()
        show = pydoc.pager if not named or shutil.which(named[0]) else sys.stdout.write
        await self.lend(lambda: show(text))

    async def lend(self, work: Callable[[], T]) -> T:
        while self._away:
            await asyncio.wait({self._away})
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def lent() -> None:
            done.set_result(await run_in_terminal(work, in_executor=True))

        await self._leave_screen(lent())
        return done.result()

    def _leave_screen(self, doing: Awaitable[None]) -> asyncio.Task[None]:
        """Let another program have the screen; what is printed meanwhile comes when it ends."""

        async def meanwhile() -> None:
            try:
                await doing
            finally:
                self._away = None
                held, self._held = "".join(self._held), []
                self.write(held)

        self._away = asyncio.create_task(meanwhile())
        return self._away

    def expand(self) -> None:
        """Offer what was shown in short, to be opened."""
        if not self.question and not self.picker and not self._away:
            self._host.submit(Submission(_EXPAND, ""))

    def completes(self) -> bool:
        """Return whether candidates are offered while one types."""
        before = self.buffer.document.text_before_cursor
        if self.question:
            return False
        if value := value_at(before):
            return self._host.values(value[0]) is not None
        return command_at(before) is not None or mention_at(before) is not None

    @property
    def hint(self) -> str:
        """Return what is to be known of the next key, where it does more than it usually does."""
        if self._first:
            return self._first
        is_key = not self.buffer.text or self._choice() or self._word()
        asks = self.question is not None and self.question.choices
        return "" if is_key or not asks else "text in the prompt · clear it to answer"

    # --- inner ways ---------------------------------------------------------

    def _show_key(self, _: object) -> None:
        """Draw what a key has done at once: what streams by may wait, who types may not."""
        pending = self._app.key_processor.key_buffer
        begins = bool(pending) and pending[0].key == Keys.Escape
        self._app.timeoutlen = _ALT_S if begins else _SEQUENCE_S
        if not self._shows_key:
            self._shows_key = True
            asyncio.get_running_loop().call_soon(self._draw)

    def _draw(self) -> None:
        self._shows_key = False
        if self._app.is_running and not self._app.is_done and not self._away:
            self._app._redraw()

    def _note_key(self, _: object) -> None:
        self._last_key_at = asyncio.get_running_loop().time()
        self._before, self._first = self._first, ""

    async def _quiet(self) -> bool:
        """Wait until no key is pressed; false where Esc was one: it answers what was to come."""
        loop = asyncio.get_running_loop()
        quiet_at, self._left = loop.time() + _QUIET_S, False
        try:
            while loop.time() < quiet_at and not self._left:
                await asyncio.sleep(quiet_at - loop.time())
                quiet_at = max(quiet_at, self._last_key_at + _QUIET_S)
            return not self._left
        finally:
            self._left = None


def _key_bindings(terminal: LiveTerminal, host: "ChatLoop") -> KeyBindings:
    """Return which keys do what; ours go before prompt-toolkit's own."""
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


def _chosen(question: ChatQuestion) -> int | None:
    """Return the place of the choice that is chosen beforehand, if there is one."""
    return question.keys.index(question.chosen) if question.chosen in question.keys else None


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))
