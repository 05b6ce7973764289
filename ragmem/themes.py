"""Colour themes that are readable on the terminal's background.

Output is painted in the terminal's sixteen colours and `dim`. On terminals with more colours a
theme replaces them, since those sixteen are configurable, and yellow on white, or dim on dark
blue, is often unreadable.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

ThemeName = Literal["auto", "light", "dark", "plain"]
ColorMode = Literal["color", "mono", "none"]
"""Colours; bold and dim alone (NO_COLOR); no escape sequence at all (TERM=dumb, a pipe)."""

ASKS_BACKGROUND = "\x1b]11;?\x1b\\"
"""The sequence that asks a terminal for its background colour (xterm's OSC 11)."""

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_ANSWER = re.compile(r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_NAMES = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")
"""The names of SGR's colours 30 to 37 and 90 to 97; black and white are left to the terminal."""
_ROLES = {
    "accent": "cyan",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "mode": "blue",
    "quiet": "dim",
}
_LEVELS = (0, 95, 135, 175, 215, 255)
"""The levels of red, green and blue in the 256-colour cube."""
_PALETTES: dict[bool, dict[str, str]] = {
    False: {
        "red": "#ff8787",
        "green": "#87d787",
        "yellow": "#ffd75f",
        "blue": "#87afff",
        "magenta": "#d7afff",
        "cyan": "#5fd7d7",
        "dim": "#a8a8a8",
    },
    True: {
        "red": "#af0000",
        "green": "#005f00",
        "yellow": "#875f00",
        "blue": "#005faf",
        "magenta": "#870087",
        "cyan": "#005f87",
        "dim": "#585858",
    },
}
"""The colours by whether the background is light. All are among the 256 colours, with a contrast of
at least 4.5 to 1 (WCAG 2.1, 1.4.3) to the backgrounds of widespread schemes."""


class Theme(msgspec.Struct, frozen=True):
    """Replacements for the terminal's colours and `dim`, as `#rrggbb` by name."""

    colors: Mapping[str, str] = {}
    exact: bool = False
    """Whether the terminal has 24-bit colours, rather than 256."""

    def code(self, name: str) -> str | None:
        """Return the SGR parameters for a colour; None if it is not replaced."""
        color = self.colors.get(name)
        if color is None:
            return None
        red, green, blue = _parts(color)
        return f"38;2;{red};{green};{blue}" if self.exact else f"38;5;{_nearest(color)}"

    def recolor(self, painted: str) -> str:
        """Replace the colours in the escape sequences of our own output."""
        return _SGR.sub(self._sequence, painted) if self.colors else painted

    def _sequence(self, found: re.Match[str]) -> str:
        given = found[1].split(";")
        codes: list[str] = []
        is_dim = False
        while given:
            code = given.pop(0)
            if code in ("38", "48"):  # an explicit colour: `5;n` or `2;r;g;b`
                length = 2 if given[:1] == ["5"] else 4
                codes += [code, *given[:length]]
                del given[:length]
            elif code == "2":
                is_dim = True
            else:
                codes.append(self._code(code))
        if is_dim:
            colored = any(code.startswith("3") and len(code) > 1 for code in codes)
            dim = self.code("dim")
            codes += [] if colored else [dim or "2"]
        return f"\x1b[{';'.join(codes)}m"

    def _code(self, code: str) -> str:
        number = int(code or 0)
        if number // 10 in (3, 9) and number % 10 < len(_NAMES):
            return self.code(_NAMES[number % 10]) or code
        return code


class Colors:
    """The current theme, which may change when the terminal reports its background."""

    def __init__(
        self,
        name: ThemeName = "plain",
        own: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Start with the user's theme and what the environment says about the terminal.

        `own` are the user's colours, `#rrggbb` or empty, by role: `accent`, `good`, `bad`,
        `warning`, `mode`, `quiet`.
        """
        self._own = {_ROLES[role]: color for role, color in (own or {}).items() if color}
        self.name = name
        self._depth = depth(environ or {})
        self._is_light = _is_light_colorfgbg((environ or {}).get("COLORFGBG", ""))
        """Whether the terminal's background is light; None if unknown."""
        self.theme = self.of(name)

    @property
    def asks(self) -> bool:
        """Return whether to ask the terminal for its background: the theme depends on it."""
        return bool(self._depth) and self.name == "auto"

    def answered(self, answer: str) -> None:
        """Apply a terminal's answer to `ASKS_BACKGROUND`; an invalid one is ignored."""
        if self.asks and (is_light := is_light_background(answer)) is not None:
            self._is_light = is_light
            self.theme = self.of(self.name)

    def choose(self, name: ThemeName) -> None:
        """Switch to another theme."""
        self.name, self.theme = name, self.of(name)

    def of(self, name: ThemeName) -> Theme:
        """Return a theme's colours for this terminal."""
        if not self._depth or name == "plain":
            return Theme()
        is_light = {"light": True, "dark": False}.get(name, self._is_light)
        palette = {} if is_light is None else _PALETTES[is_light]
        return Theme({**palette, **self._own}, exact=self._depth == "all")


def depth(environ: Mapping[str, str]) -> str:
    """Return the terminal's colour depth: `all`, `256`, or empty for just sixteen."""
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "all"
    term = environ.get("TERM", "")
    return "256" if term.endswith(("256color", "-kitty", "-direct")) else ""


def is_light_background(answer: str) -> bool | None:
    """Return whether the background in an answer to `ASKS_BACKGROUND` is light; None if invalid.

    By relative luminance as in WCAG 2.1; at 0.18 black and white text are equally readable.
    """
    found = _ANSWER.search(answer)
    if found is None:
        return None
    parts = [int(part, 16) / (16 ** len(part) - 1) for part in found.groups()]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    red, green, blue = linear
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18)


def _is_light_colorfgbg(colorfgbg: str) -> bool | None:
    """Return whether COLORFGBG (`15;0`: text; background), set by some terminals, is light."""
    last = colorfgbg.rpartition(";")[2]
    return int(last) in (7, *range(9, 16)) if last.isdecimal() and int(last) < 16 else None


def _parts(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _nearest(color: str) -> int:
    """Return the nearest of the 256 colours, in the cube or among the greys."""
    parts = _parts(color)
    steps = [min(range(6), key=lambda step: abs(_LEVELS[step] - part)) for part in parts]
    grey = min(23, max(0, round((sum(parts) / 3 - 8) / 10)))
    cube = 16 + 36 * steps[0] + 6 * steps[1] + steps[2]
    of_cube = sum((_LEVELS[step] - part) ** 2 for step, part in zip(steps, parts, strict=True))
    of_grey = sum((8 + 10 * grey - part) ** 2 for part in parts)
    return cube if of_cube <= of_grey else 232 + grey
