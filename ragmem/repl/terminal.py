"""What the chat and the terminal that it is shown on expect of each other."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ragmem.repl import early

Line = tuple[tuple[str, str], ...]
"""A row of the live area: (style, text) pieces. Styles are named in `ragmem.repl.input`."""


class Submission(msgspec.Struct, frozen=True):
    """What was sent off with Enter."""

    text: str
    shown: str
    """The same with pasted text folded."""


class Question(msgspec.Struct, frozen=True):
    """Something the person must answer before the work goes on."""

    label: str
    choices: tuple[tuple[str, str], ...] = ()
    """(key, word) each; without any, the answer is a line of text."""


class Host(Protocol):
    """What the person does at a terminal, and what is shown around the prompt."""

    def submit(self, submission: Submission) -> None:
        """Enter."""
        ...

    def stop(self) -> bool:
        """Esc, or the first Ctrl-C: end the answer; whether there was one."""
        ...

    def leave(self, exit_code: int) -> None:
        """Ctrl-D, Ctrl-C twice, the end of input."""
        ...

    def live(self, columns: int, rows: int) -> list[Line]:
        """What is going on, at most so many rows, shown above the prompt until it is done."""
        ...

    def toolbar(self) -> list[str]:
        """What is always shown below the prompt, the most important first."""
        ...

    @property
    def commands(self) -> Mapping[str, str]:
        """Slash commands that can be completed: name to what it is for."""
        ...

    @property
    def files(self) -> Sequence[str] | None:
        """Files that can be mentioned; None while they are listed for the first time."""
        ...


class Terminal(Protocol):
    """Where the chat is shown and typed. All of it belongs to the event loop's thread."""

    @property
    def columns(self) -> int:
        """Width, in cells."""
        ...

    async def run(self, ready: Callable[[], None]) -> None:
        """Take input until `close`; `ready` is called as soon as a person can type."""
        ...

    def close(self) -> None:
        """End `run`; nothing of the prompt is left on the screen."""
        ...

    def write(self, text: str) -> None:
        """Print above the prompt. The text may hold our own escape sequences, never others'."""
        ...

    def refresh(self) -> None:
        """Show what is live anew."""
        ...

    def offer(self) -> None:
        """Complete anew what is being typed: there is more to offer."""
        ...

    def idle(self) -> None:
        """All that was sent off is done; the next is waited for."""
        ...

    def put_back(self, text: str) -> None:
        """Put text, as it was shown, before what is being typed."""
        ...

    async def ask(self, question: Question) -> str | None:
        """The key of a choice, or a line; None when the person refuses to answer."""
        ...


def abandon(exit_code: int) -> None:
    """End the process now, from any thread, with the terminal as it was."""
    for restore in list(_restores):
        restore()
    os._exit(exit_code)


_restores: list[Callable[[], None]] = []


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Whatever happens inside: echo on, cursor shown, bracketed paste and colours off."""
    import termios

    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (OSError, ValueError, AttributeError, termios.error):
        yield
        return

    def restore() -> None:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        with contextlib.suppress(ValueError):
            try:
                if early.capable():
                    sys.stdout.write("\x1b[0m\x1b[?25h\x1b[?2004l")
                sys.stdout.flush()
            except OSError:
                # The terminal is gone: what waits in the buffer would fail the exit.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)

    _restores.append(restore)
    try:
        yield
    finally:
        _restores.remove(restore)
        restore()
