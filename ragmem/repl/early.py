"""The first prompt, shown before anything is imported.

What a chat is made of takes a third of a second to import; a person starts to
type at once. So the prompt is printed first and the terminal is left in its
ordinary mode, in which the kernel echoes and keeps what is typed. When the real
prompt is ready it takes the line over with `take`. Standard library only.
"""

import os
import signal
import sys
import termios
from types import FrameType

PROMPT = "› "
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"

_shown = False


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
    global _shown
    if not capable():
        return False
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What was ignored on purpose (nohup) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    # Bracketed paste tells a pasted line break from Enter, also before we read.
    sys.stdout.write(prompt() + _PASTE_ON)
    sys.stdout.flush()
    _shown = True
    return True


def take() -> str:
    """Erase the prompt; return what was typed at it, with Enter as a carriage return."""
    global _shown
    if not _shown:
        return ""
    _shown = False
    typed = _pending()
    rows = _rows(prompt() + typed, _columns())
    sys.stdout.write("\r\x1b[K" + "\x1b[A\x1b[K" * (rows - 1) + _PASTE_OFF)
    sys.stdout.flush()
    return _as_keys(typed)


def clear() -> None:
    """Erase the prompt and what was typed at it, which must not fall into the shell."""
    try:
        take()
    except (OSError, ValueError, termios.error):
        return


def _leave(number: int, _: FrameType | None) -> None:
    # Nothing is open yet; an exception in the middle of an import can crash the interpreter.
    clear()
    os._exit(128 + number)


def _pending() -> str:
    """Read all that the kernel has kept; in canonical mode it hands lines out after Enter only."""
    fd = sys.stdin.fileno()
    try:
        ordinary = termios.tcgetattr(fd)
    except termios.error:
        return ""
    reading = termios.tcgetattr(fd)
    reading[3] &= ~(termios.ICANON | termios.ECHO)
    reading[6][termios.VMIN] = reading[6][termios.VTIME] = 0
    chunks = []
    termios.tcsetattr(fd, termios.TCSANOW, reading)
    try:
        while chunk := os.read(fd, 4096):
            chunks.append(chunk)
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, ordinary)
    return b"".join(chunks).decode("utf-8", "replace")


def _as_keys(typed: str) -> str:
    # The kernel stored Enter as a line feed, and Ctrl-D as a NUL.
    keys = []
    rest = typed
    while rest:
        line, start, rest = rest.partition(_PASTE_START)
        keys.append(line.replace("\n", "\r").replace("\0", "\x04"))
        if start:
            # A paste longer than the kernel's buffer has lost its end mark.
            pasted, _, rest = rest.partition(_PASTE_END)
            keys += start, pasted, _PASTE_END
    return "".join(keys)


def _columns() -> int:
    try:
        return max(1, os.get_terminal_size(sys.stdout.fileno()).columns)
    except OSError:
        return 80


def _rows(echoed: str, columns: int) -> int:
    """Count the rows of the screen that the kernel's echo has filled."""
    rows, column = 1, 0
    for char in echoed:
        if char == "\n":
            rows, column = rows + 1, 0
            continue
        width = 8 - column % 8 if char == "\t" else _width(char)
        if column + width > columns:
            rows, column = rows + 1, 0
        column += width
    return rows


def _width(char: str) -> int:
    if char < " " or char == "\x7f":
        return 2  # echoed as ^X
    if char < "\x7f":
        return 1
    import unicodedata

    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
