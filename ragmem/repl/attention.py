"""How a chat is found among other windows: the terminal's title, and its bell."""

import time
from collections.abc import Callable, Mapping

from ragmem.text import one_line, visible

LONG_S = 10.0
"""Who has waited longer for the end of a turn may have gone elsewhere."""
_TITLE_CHARS = 60
_PUSH, _POP = "\x1b[22;0t", "\x1b[23;0t"
_BELL = "\x07"
_NOTIFYING = {"iTerm.app", "WezTerm", "ghostty"}
"""Values of TERM_PROGRAM whose terminals show a notification instead of ringing."""
_NOTIFYING_TERMS = {"xterm-kitty", "xterm-ghostty"}


class Attention:
    """Sets the title and rings, where the person wants that; `send` prints what shows nothing."""

    def __init__(
        self,
        send: Callable[[str], None],
        *,
        title: bool,
        bell: bool,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        # A bare console prints titles as text.
        self._has_title = title and environ.get("TERM") != "linux"
        self._has_bell = bell
        self._notifies = (
            environ.get("TERM_PROGRAM") in _NOTIFYING or environ.get("TERM") in _NOTIFYING_TERMS
        )
        self._clock = clock
        self._seen_at = clock()
        self._shown = ""

    def attended(self) -> None:
        """The person has just done something here."""
        self._seen_at = self._clock()

    def name(self, title: str) -> None:
        """Show what the chat is about."""
        self._show(f"ragmem: {one_line(visible(title), _TITLE_CHARS)}")

    def needs_person(self) -> None:
        """Show, and ring, that nothing goes on before the person has answered."""
        self._show("● ragmem: needs you")
        self._ring("ragmem needs you")

    def ended(self) -> None:
        """Ring where a turn that has ended was a long one."""
        if self._clock() - self._seen_at >= LONG_S:
            self._ring("ragmem has answered")

    def close(self) -> None:
        """Give the title back that was there before."""
        if self._shown:
            self._send(f"{_title('')}{_POP}")
            self._shown = ""

    def _show(self, title: str) -> None:
        if self._has_title and title != self._shown:
            self._send(("" if self._shown else _PUSH) + _title(title))
            self._shown = title

    def _ring(self, text: str) -> None:
        if self._has_bell:
            self._send(f"\x1b]9;{text}\x1b\\" if self._notifies else _BELL)


def _title(text: str) -> str:
    return f"\x1b]0;{text}\x1b\\"
