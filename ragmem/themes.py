"""The colours of a terminal: those that can be read on the background that it has.

Everything is painted in the terminal's sixteen colours and `dim`. A theme puts others in their
place, as far as the terminal has more: those of its palette are what its owner has made of them,
and yellow on white, or dim on dark blue, can often not be read.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

ThemeName = Literal["auto", "light", "dark", "plain"]
ColorMode = Literal["color", "mono", "none"]
"""Colours; bold and dim alone (NO_COLOR); no escape sequence at all (TERM=dumb, a pipe)."""

ASKS_BACKGROUND = "\x1b]11;?\x1b\\"
"""The sequence to which a terminal answers with the colour of its background (xterm's OSC 11)."""

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_ANSWER = re.compile(r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_NAMES = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")
"""Of SGR's 30 to 37 and 90 to 97; black and white are left to the terminal."""
_ROLES = {
    "accent": "cyan",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "mode": "blue",
    "quiet": "dim",
}
_LEVELS = (0, 95, 135, 175, 215, 255)
"""Of the cube of the 256 colours, for red, green and blue."""
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
"""By whether the background is light; all are among the 256 colours, and each has a contrast of at
least 4.5 to 1 (WCAG 2.1, 1.4.3) to the backgrounds of widespread schemes."""


class Theme(msgspec.Struct, frozen=True):
    """The colours that stand for the terminal's own, as `#rrggbb` by name; `dim` is one."""

    colors: Mapping[str, str] = {}
    exact: bool = False
    """The terminal has all colours, not just 256."""

    def code(self, name: str) -> str | None:
        """Return SGR's parameters for a colour; None where the terminal's own is to be used."""
        color = self.colors.get(name)
        if color is None:
            return None
        red, green, blue = _parts(color)
        return f"38;2;{red};{green};{blue}" if self.exact else f"38;5;{_nearest(color)}"

    def recolor(self, painted: str) -> str:
        """Return text of our own with the theme's colours in its escape sequences."""
        return _SGR.sub(self._sequence, painted) if self.colors else painted

    def _sequence(self, found: re.Match[str]) -> str:
        given = found[1].split(";")
        codes: list[str] = []
        is_dim = False
        while given:
            code = given.pop(0)
            if code in ("38", "48"):  # a colour of its own: by number, or by its three parts
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
    """The theme that holds now: it may change when the terminal tells its background."""

    def __init__(
        self,
        name: ThemeName = "plain",
        own: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with what the person has chosen, and what the environment tells of the terminal.

        `own` are colours of their own, `#rrggbb` or empty, by what they stand for: `accent`,
        `good`, `bad`, `warning`, `mode`, `quiet`.
        """
        self._own = {_ROLES[role]: color for role, color in (own or {}).items() if color}
        self.name = name
        self._depth = depth(environ or {})
        self._is_light = _told((environ or {}).get("COLORFGBG", ""))
        """Whether the terminal's background is; None where that is not known."""
        self.theme = self.of(name)

    @property
    def asks(self) -> bool:
        """Return whether it would help to know the terminal's background."""
        return bool(self._depth) and self.name == "auto"

    def answered(self, answer: str) -> None:
        """Take a terminal's answer to `ASKS_BACKGROUND`; what can't be read changes nothing."""
        if self.asks and (is_light := is_light_background(answer)) is not None:
            self._is_light = is_light
            self.theme = self.of(self.name)

    def choose(self, name: ThemeName) -> None:
        """Have another theme hold from now on."""
        self.name, self.theme = name, self.of(name)

    def of(self, name: ThemeName) -> Theme:
        """Return what a theme is on this terminal."""
        if not self._depth or name == "plain":
            return Theme()
        is_light = {"light": True, "dark": False}.get(name, self._is_light)
        palette = {} if is_light is None else _PALETTES[is_light]
        return Theme({**palette, **self._own}, exact=self._depth == "all")


def depth(environ: Mapping[str, str]) -> str:
    """Return `all`, `256`, or nothing: how many colours the terminal has beyond its sixteen."""
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "all"
    term = environ.get("TERM", "")
    return "256" if term.endswith(("256color", "-kitty", "-direct")) else ""


def is_light_background(answer: str) -> bool | None:
    """Return whether the colour that an answer to `ASKS_BACKGROUND` names is light; None for none.

    Relative luminance as WCAG 2.1 defines it; at 0.18 black and white can be read as well.
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


def _told(colorfgbg: str) -> bool | None:
    """Return what some terminals say in COLORFGBG, the colours of text and background: `15;0`."""
    last = colorfgbg.rpartition(";")[2]
    return int(last) in (7, *range(9, 16)) if last.isdecimal() and int(last) < 16 else None


def _parts(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _nearest(color: str) -> int:
    """Return which of the 256 colours is nearest, its cube and its greys compared."""
    parts = _parts(color)
    steps = [min(range(6), key=lambda step: abs(_LEVELS[step] - part)) for part in parts]
    grey = min(23, max(0, round((sum(parts) / 3 - 8) / 10)))
    cube = 16 + 36 * steps[0] + 6 * steps[1] + steps[2]
    of_cube = sum((_LEVELS[step] - part) ** 2 for step, part in zip(steps, parts, strict=True))
    of_grey = sum((8 + 10 * grey - part) ** 2 for part in parts)
    return cube if of_cube <= of_grey else 232 + grey
