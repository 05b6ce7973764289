"""How the prompt and what is live above it are drawn, where prompt_toolkit alone would not do."""

from collections.abc import Mapping
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import Style

from ragmem.themes import Theme

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
    "match": "bold underline ansicyan",
    "argument": "ansicyan",
}


def style_of(theme: Theme) -> Style:
    """Return the style of what is drawn around the prompt, in a theme's colours."""
    names = {
        ("ansibrightblack" if name == "dim" else f"ansi{name}"): color
        for name, color in theme.colors.items()
    }
    return Style.from_dict(
        {
            of: " ".join(names.get(word, word) for word in said.split())
            for of, said in _STYLE.items()
        }
    )


class ChatTerminal(Vt100_Output):
    """An output whose renderer moves back to its first row without erasing, where told to."""

    erases = True

    def erase_down(self) -> None:
        """Erase from the cursor on, unless told not to."""
        if self.erases:
            super().erase_down()


class ChatRenderer(Renderer):
    """A renderer that finds its first row again when the window has become narrower.

    Most terminals fold rows that have no room any more, so that the first is farther up than it
    was drawn; tmux folds what was erased at the end of a row too.
    """

    def __init__(self, app: "Application[None]", environ: Mapping[str, str]) -> None:
        """Draw for an application, on the terminal that the environment tells of."""
        self._folds = does_fold(environ)
        self._keeps_erased = bool(environ.get("TMUX"))
        self._widths: list[int] = []
        """Of the rows, in cells."""
        self._columns = 0
        super().__init__(app._merged_style, app.output)

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        """Forget what was drawn."""
        self._widths = []
        super().reset(_scroll, leave_alternate_screen)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase all rows, wherever they are by now."""
        self._fit()
        super().erase(leave_alternate_screen)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """Draw what has changed, or all where the width has."""
        self._fit()
        super().render(app, layout, is_done)
        self._measure()

    def _fit(self) -> None:
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
        if self._keeps_erased:
            before = [*self._widths, *[0] * len(widths)]
            kept = self._widths[len(widths) :]
            widths = [*map(max, widths, before), *kept]
        self._widths = widths


def does_fold(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal folds long rows when it becomes narrower, as most do."""
    if environ.get("TMUX"):
        return True
    cuts = environ.get("XTERM_VERSION") or environ.get("STY") or environ.get("TERM") == "linux"
    return not cuts


def folded(widths: list[int], cursor: Point, columns: int) -> Point:
    """Return where the cursor is from the first row on, when each row is folded at the width."""
    above = sum(max(1, -(-width // columns)) for width in widths[: cursor.y])
    return Point(x=cursor.x % columns, y=above + cursor.x // columns)


def _cells(row: Mapping[int, Char], shows: Mapping[str, bool]) -> int:
    """Return how far a row was drawn: blanks at its end are where their style shows."""
    drawn = [at for at, cell in row.items() if cell.char != " " or shows[cell.style]]
    return max((at + row[at].width for at in drawn), default=0)
