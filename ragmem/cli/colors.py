"""Colour on stdout, where a person reads it: a pipe gets none."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ragmem.config import UiConfig, environment
from ragmem.themes import Colors, Theme

Mode = Literal["color", "mono", "none"]
"""Colours; bold and dim alone (NO_COLOR); no escape sequence at all (TERM=dumb)."""
_CODES = {
    "bold": "1",
    "dim": "2",
    "underline": "4",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_COLORS = {"red", "green", "yellow", "cyan"}
Part = tuple[str, str]
"""A text that is harmless to a terminal, and its style: `bold red`, or nothing."""


class Paint:
    """Gives texts their style, as far as the terminal and the person want any."""

    def __init__(self, mode: Mode, theme: Theme = Theme()) -> None:  # noqa: B008 - it is frozen
        self.mode = mode
        self._theme = theme

    def __call__(self, *parts: Part) -> str:
        """Return the texts one after the other, each in its style."""
        return "".join(self._styled(text, style) for text, style in parts if text)

    def _styled(self, text: str, style: str) -> str:
        wanted = [
            self._theme.code(name) or _CODES[name]
            for name in style.split()
            if self.mode == "color" or (self.mode == "mono" and name not in _COLORS)
        ]
        return f"\x1b[{';'.join(wanted)}m{text}\x1b[0m" if wanted else text


def paint_for(ui: UiConfig) -> Paint | None:
    """How stdout is painted; None where it is no terminal: what is printed is for a program.

    `ui.color` says whether: `always` outdoes NO_COLOR, nothing outdoes TERM=dumb.
    """
    try:
        if not sys.stdout.isatty():
            return None
    except (AttributeError, ValueError):
        return None
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return Paint("none")
    environ = environment()
    plain = ui.color == "never" or (ui.color == "auto" and environ.get("NO_COLOR"))
    if plain or ui.theme == "plain":
        return Paint("mono")
    return Paint("color", Colors(ui.theme, msgspec.structs.asdict(ui.colors), environ).theme)


def drawn(
    ui: UiConfig, plain: Callable[[int], str], painted: Callable[[int, Paint], str]
) -> Callable[[int], str]:
    """Return what makes a text of so many columns: `painted` on a terminal, else `plain`."""
    paint = paint_for(ui)
    return plain if paint is None else lambda width: painted(width, paint)


def joined(rows: Sequence[str]) -> str:
    """Return rows as text; none ends in blanks, which a terminal made narrower would wrap."""
    return "".join(f"{row.rstrip()}\n" for row in rows)
