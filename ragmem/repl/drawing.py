"""Additions to prompt_toolkit: rendering, key parsing, pastes, history and layout."""

import contextlib
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    DynamicContainer,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import Style

from ragmem.files import make_private
from ragmem.redact import redact
from ragmem.repl import early
from ragmem.repl.completion import menu_rows, text_window
from ragmem.repl.terminal import ChatQuestion, PickList, PickQuestion, PickRow
from ragmem.text import clean, count_hidden, counted, visible, visible_draft
from ragmem.themes import Theme

if TYPE_CHECKING:
    from ragmem.repl.chat import ChatLoop
    from ragmem.repl.input import LiveTerminal

_MENU_ROWS = 10
_LIVE_ROWS_BESIDE_PICKER = 2
"""Rows of the live area that are shown above a picker."""
_COLORS = ("red", "green", "yellow", "blue", "magenta", "cyan")
_STYLE = {
    "prompt": "bold ansicyan",
    "question": "bold ansiyellow",
    "key": "bold underline",
    "dim": "ansibrightblack",
    "warning": "ansiyellow",
    "tool": "ansicyan",
    "plan": "bold ansiblue",
    "danger": "bold ansired",
    "chosen": "bold",
    "argument": "ansicyan",
    **{name: name for name in ("bold", "italic", "underline")},
    **{name: f"ansi{name}" for name in _COLORS},
    **{f"bright_{name}": f"ansibright{name}" for name in _COLORS},
}


def style_of(theme: Theme) -> Style:
    """Return the prompt_toolkit style of the prompt and the live area in a theme's colours."""
    names = {f"ansi{name}": color for name, color in theme.colors.items()}
    names |= {f"ansibright{name}": color for name, color in theme.colors.items()}
    names["ansibrightblack"] = theme.colors.get("dim", "ansibrightblack")
    return Style.from_dict(
        {
            name: " ".join(names.get(word, word) for word in style.split())
            for name, style in _STYLE.items()
        }
    )


class ChatTerminal(Vt100_Output):
    """An output that, unless `erases`, lets its renderer move to its first row without erasing.

    Each write is a synchronized update; terminals that do not support these ignore the mark.
    """

    erases = True

    def flush(self) -> None:
        """Write the buffer, unless its renderer is only moving back to its first row."""
        if self._buffer and self.erases:
            self._buffer = ["\x1b[?2026h", *self._buffer, "\x1b[?2026l"]
            super().flush()

    def erase_down(self) -> None:
        """Erase from the cursor on, if `erases`."""
        if self.erases:
            super().erase_down()


class ChatRenderer(Renderer):
    """A renderer that finds its first row after the window has become narrower.

    Most terminals then wrap rows that no longer fit, so the first row is farther up than it was
    drawn; tmux also wraps cells that were erased at the end of a row.
    """

    def __init__(self, app: "Application[None]", environ: Mapping[str, str]) -> None:
        """Create the renderer of an application, for the terminal that `environ` describes."""
        self._folds = does_fold(environ)
        self._wraps_erased = bool(environ.get("TMUX"))
        self._widths: list[int] = []
        """Width of each drawn row, in cells."""
        self._columns = 0
        super().__init__(app._merged_style, app.output)

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        """Forget what was drawn."""
        self._widths = []
        super().reset(_scroll, leave_alternate_screen)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase all rows, even if resizing the window has moved them."""
        self._relocate_cursor()
        super().erase(leave_alternate_screen)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """Draw the changes, or everything if the width has changed."""
        self._relocate_cursor()
        super().render(app, layout, is_done)
        self._measure()

    def _relocate_cursor(self) -> None:
        columns = self.output.get_size().columns
        if self._folds and self._widths and columns != self._columns:
            self._cursor_pos = folded(self._widths, self._cursor_pos, columns)
            self._widths = []

    def _measure(self) -> None:
        self._columns = self.output.get_size().columns
        screen, shows = self.last_rendered_screen, self._style_string_has_style
        if screen is None or shows is None:
            return
        widths = [_cells(screen.data_buffer[y], shows) for y in range(screen.height)]
        if self._wraps_erased:
            before = [*self._widths, *[0] * len(widths)]
            kept = self._widths[len(widths) :]
            widths = [*map(max, widths, before), *kept]
        self._widths = widths


def does_fold(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal wraps long rows when it becomes narrower, as most do."""
    if environ.get("TMUX"):
        return True
    cuts = environ.get("XTERM_VERSION") or environ.get("STY") or environ.get("TERM") == "linux"
    return not cuts


def folded(widths: list[int], cursor: Point, columns: int) -> Point:
    """Return the cursor's position, relative to the first row, after rows of `widths` wrap."""
    above = sum(max(1, -(-width // columns)) for width in widths[: cursor.y])
    return Point(x=cursor.x % columns, y=above + cursor.x // columns)


def _cells(row: Mapping[int, Char], shows: Mapping[str, bool]) -> int:
    """Return the width of a row, with trailing blanks only if their style makes them visible."""
    drawn = [at for at, cell in row.items() if cell.char != " " or shows[cell.style]]
    return max((at + row[at].width for at in drawn), default=0)


# --- keys, pastes and prompts ------------------------------------------------

_REPLY_START = "\x1b]11;"
_REPLY = re.compile(r"\x1b\]11;([^\x07\x1b]{0,60})(?:\x07|\x1b\\)")
_PARTIAL_REPLY = re.compile(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]{0,60}\x1b?)?)?)?)?\Z")
_FOLD_LINES, _FOLD_CHARS = 5, 1_000
_MAX_STORED_CHARS = 20_000


class KeyParser(Vt100Parser):
    """Parses a terminal's input into keys, except for its replies about its background colour.

    `on_background` is called with the colour in each reply.
    """

    def __init__(
        self,
        take: Callable[[KeyPress], None],
        on_background: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(take)
        self._on_background = on_background
        self._held = ""
        """Input that may be the beginning of a reply."""

    def feed(self, data: str) -> None:
        """Parse more input of the terminal."""
        text = _REPLY.sub(self._reply, self._held + data)
        begun = _PARTIAL_REPLY.search(text)
        held, self._held = begun[0] if begun else "", ""
        super().feed(text.removesuffix(held))  # which calls `feed` again when a paste begins
        self._held += held

    def _reply(self, found: re.Match[str]) -> str:
        self._on_background(found[1])
        return ""

    def flush(self) -> None:
        """Parse the held input as keys, unless it is certain to be a reply."""
        if not self._held.startswith(_REPLY_START):
            held, self._held = self._held, ""
            super().feed(held)
            super().flush()


class Pastes:
    """Keeps long pasted texts by the mark that represents each in the draft."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """Return what to insert for a pasted text: itself if it is short, else its mark."""
        text = clean(text).replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines < _FOLD_LINES and len(text) <= _FOLD_CHARS:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        if hidden := count_hidden(text):
            size += f", {counted(hidden, 'hidden character')}"
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
        """Return the mark that the draft ends with; empty if it ends with none."""
        return next((mark for mark in self._texts if draft.endswith(mark)), "")


class PromptHistory(FileHistory):
    """Stores prompts in prompt_toolkit's file format, with mode 0600.

    If the file can't be written, or is not to be (`is_kept`), prompts are kept in memory only.
    """

    def __init__(self, file: Path, *, is_kept: bool = True) -> None:
        self._file = file
        self._is_kept = is_kept
        self._whole: dict[str, str] = {}
        """The text to store for the prompt being added, by its folded form."""
        super().__init__(file)

    def remember(self, text: str, shown: str) -> None:
        """Add a prompt, redacted: folded in memory; whole in the file unless it is very long."""
        kept = redact(clean(text if len(text) <= _MAX_STORED_CHARS else shown))
        folded = redact(clean(shown))
        if self.get_strings()[-1:] not in ([kept], [folded]):
            self._whole = {folded: kept}
            self.append_string(folded)

    def load_history_strings(self) -> Iterable[str]:
        """Return prompts, the newest first; none if the file can't be read."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Append a prompt to the file."""
        if not self._is_kept:
            return
        with contextlib.suppress(OSError):
            make_private(self._file.parent)
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            os.chmod(self._file, 0o600)
            super().store_string(self._whole.get(string, string))


def earlier_prompts(history: PromptHistory, pastes: Pastes) -> PickQuestion:
    """Return the question for an earlier prompt: each once, the newest first, its own key."""

    async def rows() -> list[PickRow]:
        found = dict.fromkeys([prompt async for prompt in history.load()])
        return [PickRow(key=each, text=each, also=pastes.unfold(each)) for each in found]

    async def beginning(prompt: str) -> list[str]:
        return [line for line in pastes.unfold(prompt).split("\n") if line.strip()]

    return PickQuestion(
        title="Earlier prompts",
        lists=(PickList("", rows),),
        nothing="No earlier prompts.",
        preview=beginning,
    )


# --- layout ----------------------------------------------------------------


def chat_layout(terminal: "LiveTerminal", host: "ChatLoop") -> Layout:
    """Return the layout: the live area, the draft or a picker, the toolbar. The draft has focus."""
    draft = Window(
        BufferControl(terminal.buffer, [_Visible()]),
        height=lambda: Dimension(min=1, max=max(3, terminal.rows // 2)),
        get_line_prefix=lambda line, wrapped: [
            ("class:prompt", "  " if line or wrapped else early.prompt())
        ],
        wrap_lines=True,
        dont_extend_height=True,
    )
    asking = Condition(lambda: terminal.question is not None)
    offering = Condition(lambda: terminal.buffer.complete_state is not None)
    typing = HSplit(
        [
            ConditionalContainer(text_window(lambda: _question_row(terminal), wraps=True), asking),
            draft,
            ConditionalContainer(text_window(lambda: _menu(terminal), wraps=True), offering),
        ]
    )

    def shown() -> Container:
        return terminal.picker.container if terminal.picker else typing

    rows = HSplit(
        [
            text_window(lambda: _live_area(terminal, host), wraps=True),
            DynamicContainer(shown),
            text_window(lambda: _toolbar(terminal, host), 1),
            Window(),
        ]
    )
    return Layout(rows, draft)


class _Visible(Processor):
    """Makes hidden characters of the draft visible, without changing the draft."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line as it is drawn, and the mappings between its positions and the draft's."""
        cells = explode_text_fragments(transformation_input.fragments)
        shown = visible_draft("".join(cell[1] for cell in cells))
        starts = list(accumulate(map(len, shown), initial=0))
        return Transformation(
            [(cell[0], text) for cell, text in zip(cells, shown, strict=True)],
            lambda at: starts[min(at, len(shown))],
            lambda at: bisect_right(starts, at) - 1,
        )


def _menu(terminal: "LiveTerminal") -> StyleAndTextTuples:
    state = terminal.buffer.complete_state
    if state is None:
        return []
    most = max(1, min(_MENU_ROWS, terminal.rows // 2 - 1))
    return menu_rows(state.completions, terminal.offered, terminal.columns, most)


def _live_area(terminal: "LiveTerminal", host: "ChatLoop") -> StyleAndTextTuples:
    pieces: StyleAndTextTuples = []
    most = _LIVE_ROWS_BESIDE_PICKER if terminal.picker else max(1, terminal.rows // 2)
    for line in host.live(terminal.columns, most):
        pieces += [(_classes(style), text) for style, text in line]
        pieces.append(("", "\n"))
    return pieces[:-1]


def _question_row(terminal: "LiveTerminal") -> StyleAndTextTuples:
    from ragmem.repl.output import wrap

    question = terminal.question or ChatQuestion("")
    label = visible(question.label)
    length = len(label) + sum(len(key + word) + 3 for key, word in question.choices)
    fits = length <= terminal.columns
    if not fits:
        label = "\n".join(wrap(label, terminal.columns))
    pieces: StyleAndTextTuples = [("class:question", label)]
    for at, (key, word) in enumerate(question.choices):
        text = word if fits else "\n    ".join(wrap(word, max(1, terminal.columns - 4)))
        chosen, mark = at == terminal.marked, early.sign("▸", ">")
        before = "  " if fits else "\n  "
        if chosen:
            before = f" {mark}" if fits else f"\n{mark} "
        style = "class:chosen" if chosen else ""
        pieces += [("class:prompt", before), ("class:key", key), (style, f" {text}")]
    return pieces


def _toolbar(terminal: "LiveTerminal", host: "ChatLoop") -> StyleAndTextTuples:
    if terminal.hint:
        return [("class:warning", f"  {terminal.hint}")]
    if terminal.picker:
        keys = "  Enter picks · Esc leaves · type to find"
        is_wide = terminal.columns > len(keys)
        return [("class:dim", keys if is_wide else keys.rpartition(" · ")[0])]
    return [(_classes(style), text) for style, text in host.toolbar(terminal.columns)]


def _classes(style: str) -> str:
    return " ".join(f"class:{name}" for name in style.split())
