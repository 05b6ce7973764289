"""The first prompt, shown before anything is imported.

Importing the chat takes a third of a second, but users start to type at once. So this
prompt is printed first, and the terminal buffers the keys, without echo, until the real
prompt replaces it and reads them. Uses the standard library only.
"""

import os
import signal
import sys
import termios
from types import FrameType

# Known to type checkers; importing `typing` itself would delay every start of the program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

    from ragmem.config import UiConfig
    from ragmem.themes import ColorMode

PROMPT = "› "
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"

_ordinary: "list[Any] | None" = None
"""The terminal's mode before the prompt was shown; None if no prompt is shown."""


def capable() -> bool:
    """Return whether stdin and stdout are a terminal that supports cursor movements."""
    return _are_capable(sys.stdin, sys.stdout)


def _are_capable(*streams: "TextIO") -> bool:
    try:
        ends = all(stream.isatty() for stream in streams)
    except (AttributeError, ValueError):  # closed, or not there at all
        return False
    return ends and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def color_mode(look: "UiConfig", *streams: "TextIO") -> "ColorMode":
    """Return how to colour what these streams show.

    `ui.color = always` overrides NO_COLOR; nothing overrides TERM=dumb.
    """
    if not _are_capable(*streams):
        return "none"
    plain = look.color == "never" or (look.color == "auto" and os.environ.get("NO_COLOR"))
    return "mono" if plain or look.theme == "plain" else "color"


def prompt() -> str:
    """Return the prompt, in characters of the terminal's encoding."""
    return sign(PROMPT, "> ")


def expand_key() -> str:
    """Return how to expand a shortened result: a key, or a command if keys can't be read singly."""
    return "Ctrl-O" if capable() else "/expand"


def sign(wanted: str, plain: str) -> str:
    """Return a sign if the terminal's encoding has it, else its plain replacement."""
    try:
        wanted.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain
    return wanted


def show() -> bool:
    """Print the prompt now, if this is a terminal; return whether it was."""
    global _ordinary
    if not capable():
        return False
    fd = sys.stdin.fileno()
    try:
        _ordinary, keeping = termios.tcgetattr(fd), termios.tcgetattr(fd)
    except termios.error:
        return False
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Keep a signal ignored that was ignored on purpose (nohup).
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    keeping[0] &= ~termios.ICRNL
    keeping[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(fd, termios.TCSANOW, keeping)
    # Bracketed paste tells a pasted line break from Enter, also before we read.
    _print(prompt() + _PASTE_ON)
    return True


def _print(text: str) -> None:
    # Bypass Python's buffer, which is locked if a signal arrives during a write.
    os.write(sys.stdout.fileno(), text.encode(sys.stdout.encoding or "ascii"))


def ordinary_mode(fd: int) -> "list[Any]":
    """Return the terminal's mode, as it was before the prompt was shown."""
    return _ordinary or termios.tcgetattr(fd)


def hand_over() -> None:
    """Erase the prompt; the one that replaces it reads what was typed."""
    global _ordinary
    if _ordinary is not None:
        _print("\r\x1b[K" + _PASTE_OFF)
        _ordinary = None


def clear() -> None:
    """Erase the prompt and discard what was typed, which must not reach the shell."""
    ordinary = _ordinary
    try:
        hand_over()
        if ordinary:
            fd = sys.stdin.fileno()
            termios.tcflush(fd, termios.TCIFLUSH)
            termios.tcsetattr(fd, termios.TCSANOW, ordinary)
    except (OSError, ValueError, termios.error):
        return


def _leave(number: int, _: FrameType | None) -> None:
    # Nothing is open yet, and an exception during an import can crash the interpreter.
    clear()
    os._exit(128 + number)
