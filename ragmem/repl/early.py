"""The first prompt, shown before anything is imported.

What a chat is made of takes a third of a second to import; a person starts to
type at once. So the prompt is printed first, and the terminal keeps the keys,
unseen, until the real prompt takes its place and reads them. Standard library only.
"""

import os
import signal
import sys
import termios
from types import FrameType

# Known to type checkers; importing `typing` itself would delay every start of the program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROMPT = "› "
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"

_ordinary: "list[Any] | None" = None
"""The terminal's mode before the prompt was shown; None where none is shown."""


def capable() -> bool:
    """Return whether this is a terminal on both sides that understands cursor movements."""
    try:
        ends = sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # closed, or not there at all
        return False
    return ends and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def prompt() -> str:
    """Return the prompt, in characters that the terminal's encoding has."""
    return sign(PROMPT, "> ")


def expand_key() -> str:
    """Return what opens a result that is shown in short: a key where keys are read one by one."""
    return "Ctrl-O" if capable() else "/expand"


def sign(wanted: str, plain: str) -> str:
    """Return a sign where the terminal's encoding has it, else what stands for it."""
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
        # What was ignored on purpose (nohup) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    keeping[0] &= ~termios.ICRNL
    keeping[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(fd, termios.TCSANOW, keeping)
    # Bracketed paste tells a pasted line break from Enter, also before we read.
    _print(prompt() + _PASTE_ON)
    return True


def _print(text: str) -> None:
    # Past Python's buffer, which is locked while a signal comes in the middle of a write.
    os.write(sys.stdout.fileno(), text.encode(sys.stdout.encoding or "ascii"))


def ordinary_mode(fd: int) -> "list[Any]":
    """Return the terminal's mode, as it was before the prompt was shown."""
    return _ordinary or termios.tcgetattr(fd)


def hand_over() -> None:
    """Erase the prompt; what was typed at it is read by the one that takes its place."""
    global _ordinary
    if _ordinary is not None:
        _print("\r\x1b[K" + _PASTE_OFF)
        _ordinary = None


def clear() -> None:
    """Erase the prompt and what was typed at it, which must not fall into the shell."""
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
    # Nothing is open yet; an exception in the middle of an import can crash the interpreter.
    clear()
    os._exit(128 + number)
