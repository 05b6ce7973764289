"""Standard input, output and error, with their faults.

Only the answer goes to stdout. A reader that went away is BrokenPipeError, which
ends the command quietly; stderr never fails anything.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ragmem.errors import RagmemError, UsageError
from ragmem.text import display_width, hanging, printable_json

STDIN_LIMIT = 10 * 1024 * 1024
_PATIENCE_S = 3.0
_NARROWEST = 20


def secure_standard_streams() -> None:
    """Give closed standard streams to /dev/null.

    Else the next file that is opened, the memory itself perhaps, would get their
    number and what is printed would go into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def write(text: str) -> None:
    """Print to stdout at once."""
    with _broken_output():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_json(text: str) -> None:
    """Print JSON to stdout: what is not printable in its strings stands there as an escape."""
    write_utf8(printable_json(text))


def write_utf8(text: str) -> None:
    """Print to stdout in UTF-8 whatever the locale."""
    with _broken_output():
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Print to stderr, cut between words on a terminal; whether anybody reads it changes nothing.

    What steers the terminal, or is to go on in its line, is printed as it is.
    """
    try:
        if text.endswith("\n") and "\r" not in text and "\x1b" not in text:
            text = _wrapped(text)
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _wrapped(text: str) -> str:
    """Lines that a terminal would break anywhere; those that are laid out stay as they are."""
    columns = _columns()
    if not columns:
        return text
    width = max(_NARROWEST, columns)
    lines: list[str] = []
    for line in text.split("\n"):
        laid_out = "  " in line or display_width(line) <= width
        lines += [line] if laid_out else hanging("", line, width)
    return "\n".join(lines)


def _columns() -> int:
    """Of the terminal that stderr is; 0 where it is none, or does not say."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return 0


@contextmanager
def _broken_output() -> Iterator[None]:
    try:
        with _heeding_ctrl_c():
            yield
    except (OSError, KeyboardInterrupt) as error:
        # What could not be written waits in Python's buffers: let it go nowhere at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        if isinstance(error, (BrokenPipeError, KeyboardInterrupt)):
            raise
        raise RagmemError(f"The output could not be written: {error.strerror}.") from None


@contextmanager
def _heeding_ctrl_c() -> Iterator[None]:
    """While a reader takes nothing, the loop that hears signals waits as well: leave the write."""
    number = signal.SIGINT
    before = signal.getsignal(number)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(number, _leave_what_is_stuck)
    try:
        yield
    finally:
        signal.signal(number, before)


def _leave_what_is_stuck(_number: int, _frame: object) -> None:
    if not select.select((), (sys.stdout,), (), 0)[1]:
        raise KeyboardInterrupt


def is_interactive() -> bool:
    """Whether a person can be asked: they see stderr and can type."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_prompt(prompt: str | None) -> str:
    """The prompt from the command line and stdin; UsageError without one.

    No prompt, or `-`: stdin is the prompt. Both: stdin follows in a block.
    """
    prompt = prompt and typed(prompt)
    if prompt in (None, "-"):
        if prompt is None and sys.stdin.isatty():
            raise UsageError(
                "There is no prompt.", hint='Try `ragmem ask "…"`, or `ragmem chat` to talk.'
            )
        text = _read_stdin()
    elif sys.stdin.isatty():
        text = prompt or ""
    else:
        text = join_prompt(prompt or "", _read_stdin())
    if not text.strip():
        raise UsageError("The prompt is empty.")
    return text


def typed(argument: str) -> str:
    """A word of the command line as it was typed, in a locale that has no name for its letters."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return argument


def join_prompt(prompt: str, piped: str) -> str:
    """A prompt with what was piped beside it; blank input adds nothing."""
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>"


def _read_stdin() -> str:
    try:
        data = read_limited(sys.stdin.fileno(), STDIN_LIMIT, waiting=_say_waiting)
    except OSError as error:
        raise UsageError(f"Standard input can't be read: {error.strerror}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "replace")
        say("warning: standard input is not valid UTF-8; what could not be read shows as \ufffd\n")
        return text


def read_limited(fd: int, limit: int, *, waiting: Callable[[], None]) -> bytes:
    """All bytes to the end; UsageError above `limit`. `waiting` is called when nothing comes."""
    parts, size = [], 0
    if not select.select([fd], [], [], _PATIENCE_S)[0]:
        waiting()
    while part := os.read(fd, 1 << 16):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise UsageError(
                f"Standard input is larger than {limit >> 20} MB, the most that is read.",
                hint="Write it to a file and let the agent search it.",
            )
    return b"".join(parts)


def _say_waiting() -> None:
    say("waiting for standard input to end (`< /dev/null` if there is none)\n")
