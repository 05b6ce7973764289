"""The prompt of an interactive terminal: its keys, its layout, its pastes and its history.

The prompt stays at the bottom while output is printed above it. No question is
ever sent to the terminal (no cursor position requests), so no answer of it can
land in what is typed.
"""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import cast

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, FilterOrBool, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import HighlightIncrementalSearchProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from ragmem.redact import redact
from ragmem.repl import early
from ragmem.repl.completion import ChatCompleter, command_at, mention_at
from ragmem.repl.terminal import LEAVE_WITHIN_S, ChatQuestion, Host, LeaveRequest, Submission
from ragmem.text import clean, visible

# A key that was meant for the draft must not answer a question that just appeared.
_QUIET_S = 0.4
_ERASE_ROW = "\x1b[K"
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
_FOLD_LINES, _FOLD_CHARS = 5, 1_000
_KEPT_WHOLE = 20_000
_LOADED_BYTES = 4_000_000
_MENU_ROWS = 8
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "question": "bold ansiyellow",
        "key": "bold underline",
        "dim": "ansibrightblack",
        "warning": "ansiyellow",
        "tool": "ansicyan",
    }
)


class _Output(Vt100_Output):
    """An output whose renderer moves back to its first row without erasing, where told to."""

    erases = True

    def erase_down(self) -> None:
        if self.erases:
            super().erase_down()


class LiveTerminal:
    """A `ragmem.repl.terminal.Terminal` whose prompt stays at the bottom of a real one."""

    def __init__(self, host: Host, *, history: Path, color: bool) -> None:
        self._host = host
        self._history = PromptHistory(history)
        self._pastes = Pastes()
        self.question: ChatQuestion | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._deciding: asyncio.TimerHandle | None = None
        self._last_key_at = float("-inf")
        self._leaving = LeaveRequest()
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
            style=_STYLE,
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
        """Return the width, in cells."""
        return self._app.output.get_size().columns

    @property
    def rows(self) -> int:
        """Return the height, in cells."""
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
            # Where something is offered already, nothing would begin.
            self.buffer.complete_state = None
            self.buffer.start_completion()

    def idle(self) -> None:
        """Draw anew; the prompt is there already."""
        self.refresh()

    def put_back(self, text: str) -> None:
        """Put text before the draft."""
        self.buffer.set_document(Document(_joined(text, self.buffer.text)))

    async def ask(self, question: ChatQuestion) -> str | None:
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

    def _reply(self, text: str | None) -> None:
        """Answer the question, or refuse to."""
        if self._answer and not self._answer.done():
            self._answer.set_result(text)

    def _choice(self) -> str:
        """Return the choice whose letter alone was typed; a word that begins with it is none."""
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
            self._deciding = loop.call_later(_QUIET_S, self._reply, choice)

    def enter(self) -> None:
        """Take the chosen completion, or add a line after a backslash, or send the draft off."""
        state = self.buffer.complete_state
        if state and state.current_completion:
            self.buffer.complete_state = None
        elif self.buffer.document.is_cursor_at_the_end and self.buffer.text.endswith("\\"):
            self.buffer.delete_before_cursor()
            self.add_line()
        else:
            self._send()

    def add_line(self) -> None:
        """Break the line."""
        self.buffer.newline(copy_margin=False)

    def complete(self) -> None:
        """Insert the only candidate, or the next; show the menu where there are several."""
        state = self.buffer.complete_state
        if state and state.current_completion:
            self.buffer.complete_next()
            return
        # Asked here, since the menu may not have come yet.
        asked = CompleteEvent(completion_requested=True)
        candidates = self.buffer.completer.get_completions(self.buffer.document, asked)
        found = list(islice(candidates, 2))
        if len(found) == 1:
            self.buffer.apply_completion(found[0])
        elif self.buffer.complete_state:
            self.buffer.complete_next()
        elif found:
            self.buffer.start_completion(select_first=True)

    def paste(self, text: str) -> None:
        """Insert what was pasted, folded where it is long."""
        if self.question and self.question.choices:
            return  # a pasted letter is no decision
        if self.question:
            self.buffer.insert_text(" ".join(clean(text).split()))
        else:
            self.buffer.insert_text(self._pastes.fold(text))

    @property
    def mark(self) -> str:
        """Return the mark of a folded paste that ends at the cursor, or nothing."""
        return self._pastes.mark_before(self.buffer.document.text_before_cursor)

    def delete_mark(self) -> None:
        """Delete that mark whole."""
        self.buffer.delete_before_cursor(len(self.mark))

    def _send(self) -> None:
        """Send the draft off, or answer with it."""
        shown = self.buffer.text
        text = self._pastes.unfold(shown)
        if choice := self._choice():
            self._reply(choice)
            return
        if self.question and not self.question.choices:
            self._reply(text)
            return
        if not text.strip():
            return
        self._history.remember(text, shown)
        self.buffer.reset()
        self._host.submit(Submission(text, shown))

    def escape(self) -> None:
        """Refuse to answer, or close the menu, or stop the agent."""
        if self.question:
            self._reply(None)
        elif self.buffer.complete_state:
            self.buffer.cancel_completion()
        else:
            self._host.stop()

    def interrupt(self) -> None:
        """Refuse to answer at Ctrl-C; else interrupt, then clear, then (twice) leave."""
        if self.question:
            self._reply(None)
        elif self._host.stop():
            return
        elif self.buffer.text:
            self.buffer.reset()
        elif self._leaving.repeated():
            self._host.leave(130)
        else:
            asyncio.get_running_loop().call_later(LEAVE_WITHIN_S, self.refresh)

    def end(self) -> None:
        """Leave, or refuse to answer, at Ctrl-D on an empty line."""
        if self.question:
            self._reply(None)
        else:
            self._host.leave(0)

    def completes(self) -> bool:
        """Return whether candidates are offered while one types."""
        before = self.buffer.document.text_before_cursor
        return not self.question and (
            command_at(before) is not None or mention_at(before) is not None
        )

    @property
    def about_to_leave(self) -> bool:
        """Return whether Ctrl-C was pressed a moment ago, with nothing to interrupt or clear."""
        return self._leaving.is_pending and not self.buffer.text

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


# --- keys ------------------------------------------------------------------


def key_bindings(terminal: LiveTerminal) -> KeyBindings:
    """Return our bindings, which go before prompt-toolkit's own."""
    keys = KeyBindings()
    typing = has_focus(terminal.buffer)

    def add(act: Callable[[], None], *names: str, when: FilterOrBool = typing) -> None:
        keys.add(*names, filter=when)(lambda _: act())

    for enter in ("enter", "c-j"):
        add(terminal.enter, enter)
        add(terminal.add_line, "escape", enter)
    add(terminal.complete, "tab")
    add(terminal.escape, "escape")
    add(terminal.interrupt, "c-c")
    add(terminal.interrupt, "<sigint>", when=True)
    add(terminal.end, "c-d", when=typing & Condition(lambda: not terminal.buffer.text))
    add(terminal.delete_mark, "backspace", when=typing & Condition(lambda: terminal.mark != ""))
    keys.add("c-z")(lambda event: event.app.suspend_to_background())
    keys.add(Keys.BracketedPaste, filter=typing)(lambda event: terminal.paste(event.data))
    return keys


class KeyParser(Vt100Parser):
    """Makes keys of what a terminal sends, with pastes of megabytes in linear time.

    prompt-toolkit's own parser looks for a paste's end in all of the paste, each
    time that more of it comes; so pastes are taken out before it.
    """

    def __init__(self, take: Callable[[KeyPress], None]) -> None:
        super().__init__(take)
        self._pasted: list[str] | None = None
        """Pieces of a paste that has begun."""
        self._held = ""
        """What may be the beginning of a paste's mark."""

    def feed(self, data: str) -> None:
        """Take more of what the terminal sent."""
        data, found = self._held + data, "yes"
        while found:
            mark = _PASTE_START if self._pasted is None else _PASTE_END
            text, found, data = data.partition(mark)
            self._held = "" if found else _begun(mark, text)
            text = text.removesuffix(self._held)
            if self._pasted is not None:
                self._pasted.append(text)
                if found:
                    pasted, self._pasted = "".join(self._pasted), None
                    self.feed_key_callback(KeyPress(Keys.BracketedPaste, pasted))
            else:
                super().feed(text)
                if found:
                    super().flush()
                    self._pasted = []

    def flush(self) -> None:
        """Take what is held as keys: nothing follows that could belong to it."""
        if self._pasted is None:
            held, self._held = self._held, ""
            super().feed(held)
            super().flush()


def _begun(mark: str, text: str) -> str:
    """Return as much of a mark's beginning as a text ends with."""
    sizes = range(len(mark) - 1, 0, -1)
    return next((mark[:size] for size in sizes if text.endswith(mark[:size])), "")


# --- layout ----------------------------------------------------------------


def chat_layout(terminal: LiveTerminal, host: Host) -> Layout:
    """Return the rows, from top to bottom; the draft has the focus."""
    search = SearchToolbar()
    draft = Window(
        BufferControl(
            terminal.buffer,
            input_processors=[HighlightIncrementalSearchProcessor()],
            search_buffer_control=search.control,
            preview_search=True,
        ),
        height=lambda: _draft_height(terminal),
        get_line_prefix=_prefix,
        wrap_lines=True,
        dont_extend_height=True,
    )
    menu = Float(CompletionsMenu(_MENU_ROWS), xcursor=True, ycursor=True)
    asking = Condition(lambda: terminal.question is not None)
    rows = HSplit(
        [
            _text(lambda: _live(terminal, host)),
            ConditionalContainer(_text(lambda: _asked(terminal)), asking),
            FloatContainer(draft, [menu]),
            search,
            _text(lambda: _toolbar(terminal, host), height=1),
            Window(),
        ]
    )
    return Layout(rows, draft)


def _text(of: Callable[[], StyleAndTextTuples], height: int | None = None) -> Window:
    control = FormattedTextControl(of)
    return Window(control, height=height, wrap_lines=height is None, dont_extend_height=True)


def _draft_height(terminal: LiveTerminal) -> Dimension:
    most = max(3, terminal.rows // 2)
    wanted = _MENU_ROWS + 1 if terminal.buffer.complete_state else 1
    return Dimension(min=min(wanted, most), max=most)


def _prefix(number: int, wrapped: int) -> StyleAndTextTuples:
    return [("class:prompt", early.prompt() if number == wrapped == 0 else "  ")]


def _live(terminal: LiveTerminal, host: Host) -> StyleAndTextTuples:
    pieces: StyleAndTextTuples = []
    for line in host.live(terminal.columns, max(1, terminal.rows // 2)):
        pieces += [(f"class:{style}" if style else "", text) for style, text in line]
        pieces.append(("", "\n"))
    return pieces[:-1]


def _asked(terminal: LiveTerminal) -> StyleAndTextTuples:
    question = terminal.question or ChatQuestion("")
    label = visible(question.label)
    length = len(label) + sum(len(key + word) + 3 for key, word in question.choices)
    gap = "  " if length <= terminal.columns else "\n  "
    pieces: StyleAndTextTuples = [("class:question", label)]
    for key, word in question.choices:
        pieces += [("", gap), ("class:key", key), ("", f" {word}")]
    return pieces


def _toolbar(terminal: LiveTerminal, host: Host) -> StyleAndTextTuples:
    if terminal.about_to_leave:
        return [("class:warning", "  Ctrl-C again to leave")]
    room, shown = terminal.columns - 2, ""
    for part in map(visible, host.toolbar()):
        longer = f"{shown} · {part}" if shown else part
        if len(longer) <= room or not shown:
            shown = longer
    return [("class:dim", f"  {shown}")]


# --- what was typed --------------------------------------------------------


class Pastes:
    """Keeps the long texts that were pasted, by the mark that stands for each in the prompt."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """Return what to insert for a pasted text: itself if it is short, else its mark."""
        text = clean(text).replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines < _FOLD_LINES and len(text) <= _FOLD_CHARS:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark, number = f"[pasted {size}]", 1
        while self._texts.get(mark, text) != text:
            number += 1
            mark = f"[pasted {size} #{number}]"
        self._texts[mark] = text
        return mark

    def unfold(self, draft: str) -> str:
        """Return the draft with each whole mark replaced by its text."""
        if not self._texts:
            return draft
        marks = re.compile("|".join(map(re.escape, self._texts)))
        return marks.sub(lambda mark: self._texts[mark[0]], draft)

    def mark_before(self, draft: str) -> str:
        """Return the mark that the draft ends with, or nothing."""
        return next((mark for mark in self._texts if draft.endswith(mark)), "")


class PromptHistory(FileHistory):
    """Keeps prompts in prompt-toolkit's file format, mode 0600.

    A file that can't be written costs no prompt.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        super().__init__(file)

    def remember(self, text: str, shown: str) -> None:
        """Keep a prompt; one with a huge paste is kept as it was shown."""
        kept = redact(clean(text if len(text) <= _KEPT_WHOLE else shown))
        if self.get_strings()[-1:] != [kept]:
            self.append_string(kept)

    def load_history_strings(self) -> list[str]:
        """Return prompts, the newest first; none where there is no file or it can't be read."""
        try:
            with self._file.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - _LOADED_BYTES))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return []
        prompts: list[list[str]] = [[]]
        for line in lines:
            if line.startswith("+"):
                prompts[-1].append(line[1:])
            elif prompts[-1]:
                prompts.append([])
        return ["\n".join(prompt) for prompt in reversed(prompts) if prompt]

    def store_string(self, string: str) -> None:
        """Append a prompt to the file."""
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            os.chmod(self._file, 0o600)
            super().store_string(string)
