"""Standard input, output and error, with their faults.

Only the answer goes to stdout. A reader that went away is BrokenPipeError, which
ends the command quietly; stderr never fails anything.
"""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ragmem.errors import RagmemError, UsageError

STDIN_LIMIT = 10 * 1024 * 1024
_PATIENCE_S = 3.0


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


def write_utf8(text: str) -> None:
    """Print to stdout in UTF-8 whatever the locale: for JSON."""
    with _broken_output():
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Print to stderr; whether anybody reads it changes nothing."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return


@contextmanager
def _broken_output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # What could not be written waits in Python's buffers: let it go nowhere at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        if isinstance(error, BrokenPipeError):
            raise
        raise RagmemError(f"The output could not be written: {error.strerror}.") from None


def is_interactive() -> bool:
    """Whether a person can be asked: they see stderr and can type."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_prompt(prompt: str | None) -> str:
    """The prompt from the command line and stdin, by cli.md's rules; UsageError without one.

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
