"""What the chat and its terminal expect of each other, and the terminal of plain lines."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ragmem.errors import RagmemError
from ragmem.repl import early
from ragmem.text import clean, clip_to_width, one_line, visible

if TYPE_CHECKING:
    from ragmem.repl.chat import ChatLoop

Line = tuple[tuple[str, str], ...]
"""A row of the live area: (style, text) pieces. `ragmem.repl.input` names the styles."""
T = TypeVar("T")
_LISTED = 20
_WHICH = "Which one? Type a number, or nothing for none:"
_LOOK_S = 0.1
"""So often one in the background looks whether the terminal is its own again."""


class Submission(msgspec.Struct, frozen=True):
    """What was sent off with Enter."""

    text: str
    shown: str
    """The same with pasted text folded; empty for a key's command, which is not shown."""


class ChatQuestion(msgspec.Struct, frozen=True):
    """Something the person must answer before the work goes on."""

    label: str
    choices: tuple[tuple[str, str], ...] = ()
    """(key, word) each; without any, the answer is a line of text."""
    chosen: str = ""
    """The key of the choice that Enter takes unless another is gone to; empty for none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of each choice."""
        return tuple(key for key, _ in self.choices)


YES_NO = (("y", "yes"), ("n", "no"))


class PickRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of what can be picked; its texts are data, made harmless where they are shown."""

    key: str
    text: str
    facts: tuple[str, ...] = ()
    """Beside it in columns, the most telling first; what has no room is left out."""
    also: str = ""
    """What it is found by too, but never shown."""
    is_current: bool = False


class PickList(msgspec.Struct, frozen=True):
    """Some of what can be picked."""

    name: str
    load: Callable[[], Awaitable[Sequence[PickRow]]]
    """Raises RagmemError where they can't be had, which is shown."""


Preview = Callable[[str], Awaitable[Sequence[str | Line]]]


class PickQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be picked from rows, or from one of several lists of them."""

    title: str
    rows: Sequence[PickRow] = ()
    lists: tuple[PickList, ...] = ()
    """Where the rows are still to be had."""
    nothing: str = "Nothing here."
    """Shown where a list is empty."""
    preview: Preview | None = None
    """What is told of a row, by its key, before it is picked."""
    on_marked: Callable[[str], object] = lambda _: None
    """Told the key of each row that the person goes to."""

    async def load(self, place: int = 0) -> Sequence[PickRow]:
        """Return the rows of the list at a place; raises RagmemError where they can't be had."""
        return await self.lists[place].load() if self.lists else self.rows


class Terminal:
    """The place where the chat is shown and typed. All of it belongs to the event loop's thread."""

    @property
    def columns(self) -> int:
        """Return the width, in cells."""
        return shutil.get_terminal_size().columns

    @property
    def rows(self) -> int:
        """Return the height, in cells."""
        return shutil.get_terminal_size().lines

    async def run(self, ready: Callable[[], None]) -> None:
        """Take input until `close`; `ready` is called as soon as a person can type."""

    def close(self) -> None:
        """End `run`; nothing of the prompt is left on the screen."""

    def write(self, text: str) -> None:
        """Print above the prompt. The text may hold our own escape sequences, never others'."""

    def clear(self) -> None:
        """Clear the screen, where that can be; what has scrolled away stays."""

    def recolor(self) -> None:
        """Draw in the theme that holds now, and ask for the background where it depends on it."""

    def signal(self, sequence: str) -> None:
        """Send a sequence of our own that shows nothing in the window: its title, the bell."""

    def refresh(self) -> None:
        """Show what is live anew."""

    def offer(self) -> None:
        """Complete anew what is being typed: there is more to offer."""

    def idle(self) -> None:
        """Show that all that was sent off is done, and that the next is waited for."""
        self.refresh()

    def put_back(self, text: str) -> None:
        """Put text, as it was shown, before what is being typed."""

    async def page(self, text: str) -> None:
        """Let a long text be read, until the person has done so."""
        self.write(text)

    async def lend(self, work: Callable[[], T]) -> T:
        """Have work that needs the whole terminal done in a thread; return what it returns."""
        return await asyncio.to_thread(work)

    async def ask(self, question: ChatQuestion) -> str | None:
        """Return the key of a choice, or a line; None when the person refuses to answer."""
        raise NotImplementedError

    async def pick(self, question: PickQuestion) -> str | None:
        """Return the key of the row that is picked, here by its number; None for none."""
        try:
            rows = await question.load()
        except RagmemError as error:
            self.write(f"{visible(str(error))}\n")
            return None
        if not rows:
            self.write(f"{question.nothing}\n")
            return None
        for number, row in enumerate(rows[:_LISTED], 1):
            told = "  ".join(one_line(each, 400) for each in (row.text, *filter(None, row.facts)))
            mark = "●" if row.is_current else " "
            self.write(f"{clip_to_width(f'{number:>4} {mark} {told}', self.columns)}\n")
        if len(rows) > _LISTED:
            self.write(f"     and {len(rows) - _LISTED} more\n")
        while said := (await self.ask(ChatQuestion(_WHICH)) or "").strip():
            if said.isdecimal() and 0 < int(said) <= len(rows):
                return rows[int(said) - 1].key
        return None


class PlainTerminal(Terminal):
    """One of lines, for TERM=dumb and for output that is not a terminal.

    The cursor is never moved, nothing is live or completed, no sequence is sent. The terminal
    stays in its ordinary mode, so the kernel edits the line, and what is typed while the agent
    works waits there or is queued.
    """

    def __init__(self, host: "ChatLoop") -> None:
        self._host = host
        self._bytes = b""
        self._lines: list[str] = []
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._closed = asyncio.Event()
        self._leaving = False
        """Whether Ctrl-C was the last that was pressed."""
        self._is_lent = False

    async def run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        fd = sys.stdin.fileno()
        loop.add_reader(fd, self._read)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            ready()
            await self._closed.wait()
        finally:
            loop.remove_reader(fd)
            loop.remove_signal_handler(signal.SIGINT)

    def close(self) -> None:
        self._closed.set()

    def write(self, text: str) -> None:
        """Print; characters that the encoding lacks become `?`."""
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()

    def idle(self) -> None:
        self.write(early.prompt())

    def put_back(self, text: str) -> None:
        """Show the text, to be copied: a line once read can't be put back."""
        self.write(f"\nnot sent: {visible(text)}\n")

    async def lend(self, work: Callable[[], T]) -> T:
        """Have it done, and read nothing of what is typed meanwhile."""
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.remove_reader(fd)
        self._is_lent = True
        try:
            return await asyncio.to_thread(work)
        finally:
            self._is_lent = False
            loop.add_reader(fd, self._read)

    async def ask(self, question: ChatQuestion) -> str | None:
        """Ask for a line; a choice goes by its first letter, asked until it is one."""
        async with self._asking:
            keys = question.keys
            words = "".join(f"  {key} {word}" for key, word in question.choices)
            while True:
                self.write(f"{visible(question.label)}{words}\n{early.prompt()}")
                self._answer = asyncio.get_running_loop().create_future()
                try:
                    answer = await self._answer
                finally:
                    self._answer = None
                if answer is None or not keys:
                    return answer
                if (key := answer.strip().lower()[:1]) in keys:
                    return key

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65_536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._reply(None)
            self._host.leave(0)
            return
        *lines, self._bytes = (self._bytes + data).split(b"\n")
        for line in lines:
            self._line(clean(line.decode("utf-8", "surrogateescape")).rstrip("\r"))

    def _line(self, line: str) -> None:
        self._leaving = False
        if self._reply(line):
            return
        if line.endswith("\\"):
            self._lines.append(line[:-1])
            return
        text = "\n".join([*self._lines, line])
        self._lines.clear()
        if text.strip():
            self._host.submit(Submission(text, text))
        else:
            self.idle()

    def _reply(self, answer: str | None) -> bool:
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(answer)
        return True

    def _interrupt(self) -> None:
        if self._is_lent or self._reply(None) or self._host.stop():
            return
        if self._leaving:
            self._host.leave(130)
            return
        self._leaving = True
        self._lines.clear()
        self.write("\nCtrl-C again to leave\n")
        self.idle()


def is_foreground() -> bool:
    """Return whether the terminal is ours: its shell may have it, or there may be none."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True


async def suspend() -> None:
    """Stop our process group, as Ctrl-Z asks; return once the terminal is ours again.

    A shell lets what is stopped go on without its terminal (`bg`, and `kill`, that it may end):
    whoever touches the terminal then is stopped once more.
    """
    os.kill(0, signal.SIGTSTP)
    while not is_foreground():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(_LOOK_S)


_restores: list[Callable[[], None]] = []


def abandon(exit_code: int) -> None:
    """End the process now, from any thread, with the terminal as it was."""
    for restore in list(_restores):
        restore()
    os._exit(exit_code)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Leave the terminal as it was, whatever happens inside: echo, cursor, paste mode, colours."""
    import termios

    try:
        fd = sys.stdin.fileno()
        before = early.ordinary_mode(fd)
    except (OSError, ValueError, AttributeError, termios.error):
        yield
        return

    def restore() -> None:
        if not is_foreground():
            return  # it was given back when we were stopped
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
