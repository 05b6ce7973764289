"""What stands at the bottom of the screen: what is live, the question, the draft, the toolbar."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
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
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from ragmem.repl import early
from ragmem.repl.terminal import Host, Question
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.repl.input import LiveTerminal

STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "question": "bold ansiyellow",
        "key": "bold underline",
        "dim": "ansibrightblack",
        "warning": "ansiyellow",
        "tool": "ansicyan",
    }
)
_MENU_ROWS = 8


def chat_layout(terminal: "LiveTerminal", host: Host) -> Layout:
    """The rows, from top to bottom; the draft has the focus."""
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


def _draft_height(terminal: "LiveTerminal") -> Dimension:
    most = max(3, terminal.rows // 2)
    wanted = _MENU_ROWS + 1 if terminal.buffer.complete_state else 1
    return Dimension(min=min(wanted, most), max=most)


def _prefix(number: int, wrapped: int) -> StyleAndTextTuples:
    return [("class:prompt", early.prompt() if number == wrapped == 0 else "  ")]


def _live(terminal: "LiveTerminal", host: Host) -> StyleAndTextTuples:
    pieces: StyleAndTextTuples = []
    for line in host.live(terminal.columns, max(1, terminal.rows // 2)):
        pieces += [(f"class:{style}" if style else "", text) for style, text in line]
        pieces.append(("", "\n"))
    return pieces[:-1]


def _asked(terminal: "LiveTerminal") -> StyleAndTextTuples:
    question = terminal.question or Question("")
    label = visible(question.label)
    length = len(label) + sum(len(key + word) + 3 for key, word in question.choices)
    gap = "  " if length <= terminal.columns else "\n  "
    pieces: StyleAndTextTuples = [("class:question", label)]
    for key, word in question.choices:
        pieces += [("", gap), ("class:key", key), ("", f" {word}")]
    return pieces


def _toolbar(terminal: "LiveTerminal", host: Host) -> StyleAndTextTuples:
    if terminal.about_to_leave:
        return [("class:warning", "  Ctrl-C again to leave")]
    room, shown = terminal.columns - 2, ""
    for part in map(visible, host.toolbar()):
        longer = f"{shown} · {part}" if shown else part
        if len(longer) <= room or not shown:
            shown = longer
    return [("class:dim", f"  {shown}")]
