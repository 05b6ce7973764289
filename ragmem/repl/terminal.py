"""The interface between the chat and its terminal, and the terminal of plain lines."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ragmem.children import child_environment
from ragmem.config import environment
from ragmem.errors import RagmemError
from ragmem.repl import early
from ragmem.text import clean, clip_to_width, one_line, visible

if TYPE_CHECKING:
    from ragmem.repl.chat import ChatLoop

Line = tuple[tuple[str, str], ...]
"""A row of the live area: (style, text) pieces. `ragmem.repl.input` names the styles."""
T = TypeVar("T")
_MAX_ROWS = 20
_NUMBER_QUESTION = "Which one? Type a number, or nothing for none:"
_FOREGROUND_POLL_S = 0.1
"""Interval at which a process in the background checks whether it has the terminal again."""


class Submission(msgspec.Struct, frozen=True):
    """Input that the user has sent with Enter."""

    text: str
    shown: str
    """`text` with pasted text folded; empty for the command of a key, which is not shown."""


class ChatQuestion(msgspec.Struct, frozen=True):
    """A question that the user must answer before the work continues."""

    label: str
    choices: tuple[tuple[str, str], ...] = ()
    """(key, word) pairs; if empty, the answer is a line of text."""
    chosen: str = ""
    """Key of the choice that is selected at first, which Enter takes; empty for none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of each choice."""
        return tuple(key for key, _ in self.choices)


YES_NO = (("y", "yes"), ("n", "no"))
WORDS = {"yes": "y", "no": "n"}
"""Typed out, whatever the choice of that key is called."""


class PickRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that can be picked. Its texts are raw data, made safe where they are shown."""

    key: str
    text: str
    facts: tuple[str, ...] = ()
    """Columns beside the text, the most important first; those that do not fit are left out."""
    also: str = ""
    """More text that a search finds, but that is never shown."""
    is_current: bool = False


class PickList(msgspec.Struct, frozen=True):
    """A named list of rows, loaded when it is opened."""

    name: str
    load: Callable[[], Awaitable[Sequence[PickRow]]]
    """Raises RagmemError, which is shown, if the rows can't be loaded."""


Preview = Callable[[str], Awaitable[Sequence[str | Line]]]


class PickQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question answered by picking a row, from `rows` or from one of several lists."""

    title: str
    rows: Sequence[PickRow] = ()
    lists: tuple[PickList, ...] = ()
    """Used instead of `rows` where the rows have yet to be loaded."""
    nothing: str = "Nothing here."
    """Shown for an empty list."""
    preview: Preview | None = None
    """Returns the preview of a row, given its key."""
    on_marked: Callable[[str], object] = lambda _: None
    """Called with the key of each row that the user moves to."""

    async def load(self, place: int = 0) -> Sequence[PickRow]:
        """Return the rows of the list at an index; raises RagmemError if they can't be loaded."""
        return await self.lists[place].load() if self.lists else self.rows


class Terminal:
    """The terminal that shows the chat and takes input; used in the event loop's thread only."""

    @property
    def columns(self) -> int:
        """Return the width, in cells."""
        return shutil.get_terminal_size().columns

    @property
    def rows(self) -> int:
        """Return the height, in rows."""
        return shutil.get_terminal_size().lines

    async def run(self, ready: Callable[[], None]) -> None:
        """Take input until `close`; call `ready` as soon as the user can type."""

    def close(self) -> None:
        """End `run`, leaving nothing of the prompt on the screen."""

    def write(self, text: str) -> None:
        """Print above the prompt. The text may hold ragmem's own escape sequences, no others."""

    def clear(self) -> None:
        """Clear the screen, if the terminal can; the scrollback stays."""

    def recolor(self) -> None:
        """Redraw in the current theme; query the background colour if the theme depends on it."""

    def signal(self, sequence: str) -> None:
        """Send an escape sequence that prints nothing: the window's title, the bell."""

    def refresh(self) -> None:
        """Redraw the live area."""

    def offer(self) -> None:
        """Complete the draft again, since there are more completions to offer."""

    def idle(self) -> None:
        """Show that all input has been handled and that the chat waits for more."""
        self.refresh()

    def put_back(self, text: str) -> None:
        """Insert text, as it was shown, before the draft."""

    async def page(self, text: str) -> None:
        """Show a long text; return when the user has finished reading."""
        self.write(text)

    async def lend(self, work: Callable[[], T]) -> T:
        """Run work that needs the whole terminal in a thread, and return its result."""
        return await asyncio.to_thread(work)

    async def ask(self, question: ChatQuestion) -> str | None:
        """Return the key of a choice, or a line of text; None if the user cancels the question."""
        raise NotImplementedError

    async def pick(self, question: PickQuestion) -> str | None:
        """Return the key of the row that the user picks, here by its number; None for none."""
        try:
            rows = await question.load()
        except RagmemError as error:
            self.write(f"{visible(str(error))}\n")
            return None
        if not rows:
            self.write(f"{question.nothing}\n")
            return None
        for number, row in enumerate(rows[:_MAX_ROWS], 1):
            text = "  ".join(one_line(each, 400) for each in (row.text, *filter(None, row.facts)))
            mark = "●" if row.is_current else " "
            self.write(f"{clip_to_width(f'{number:>4} {mark} {text}', self.columns)}\n")
        if len(rows) > _MAX_ROWS:
            self.write(f"     and {len(rows) - _MAX_ROWS} more\n")
        while answer := (await self.ask(ChatQuestion(_NUMBER_QUESTION)) or "").strip():
            if answer.isdecimal() and 0 < int(answer) <= len(rows):
                return rows[int(answer) - 1].key
        return None


class PlainTerminal(Terminal):
    """A terminal of plain lines, for TERM=dumb and for output that is not a terminal.

    It has no live area and no completion, and sends no escape sequences. The terminal stays in
    its ordinary mode, so the kernel edits the line, and input typed while the agent works waits
    there or is queued.
    """

    def __init__(self, host: "ChatLoop") -> None:
        self._host = host
        self._bytes = b""
        self._lines: list[str] = []
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._closed = asyncio.Event()
        self._interrupted = False
        """Whether the last input was Ctrl-C, so that a second one leaves the chat."""
        self._is_paused = False

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
        """Print text; characters that the encoding lacks become `?`."""
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()

    def idle(self) -> None:
        self.write(early.prompt())

    def put_back(self, text: str) -> None:
        """Print the text to be copied: a line that has been read can't be put back."""
        self.write(f"\nnot sent: {visible(text)}\n")

    async def lend(self, work: Callable[[], T]) -> T:
        """Run the work in a thread, reading no input meanwhile."""
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.remove_reader(fd)
        self._is_paused = True
        try:
            return await asyncio.to_thread(work)
        finally:
            self._is_paused = False
            loop.add_reader(fd, self._read)

    async def ask(self, question: ChatQuestion) -> str | None:
        """Ask for a line: a choice by its key or its word; any other line is sent as a prompt."""
        async with self._asking:
            taken = {each: key for key, word in question.choices for each in (key, word)}
            taken |= {each: key for each, key in WORDS.items() if key in question.keys}
            words = "".join(f"  {key} {word}" for key, word in question.choices)
            while True:
                self.write(f"{visible(question.label)}{words}\n{early.prompt()}")
                self._answer = asyncio.get_running_loop().create_future()
                try:
                    answer = await self._answer
                finally:
                    self._answer = None
                if answer is None or not taken:
                    return answer
                if key := taken.get(answer.strip().casefold()):
                    return key
                self._send(answer)

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
        self._interrupted = False
        if self._reply(line):
            return
        if line.endswith("\\"):
            self._lines.append(line[:-1])
            return
        text = "\n".join([*self._lines, line])
        self._lines.clear()
        if not self._send(text):
            self.idle()

    def _send(self, text: str) -> bool:
        if text.strip():
            self._host.submit(Submission(text, text))
        return bool(text.strip())

    def _reply(self, answer: str | None) -> bool:
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(answer)
        return True

    def _interrupt(self) -> None:
        if self._is_paused or self._reply(None) or self._host.stop():
            return
        if self._interrupted:
            self._host.leave(130)
            return
        self._interrupted = True
        self._lines.clear()
        self.write("\nCtrl-C again to leave\n")
        self.idle()


# --- the window title and the bell --------------------------------------------

LONG_S = 10.0
"""Seconds after which a turn's end rings, because the user may have turned to something else."""
_TITLE_CHARS = 60
_PUSH_TITLE, _POP_TITLE = "\x1b[22;0t", "\x1b[23;0t"


class Attention:
    """Sets the window title and rings the bell, if enabled; `send` prints control sequences."""

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
        # The Linux console prints titles as text.
        self._has_title = title and environ.get("TERM") != "linux"
        self._has_bell = bell
        self._clock = clock
        self._seen_at = clock()
        self._shown = ""

    def attended(self) -> None:
        """Note that the user has just done something here."""
        self._seen_at = self._clock()

    def name(self, title: str) -> None:
        """Set the window title to the name of the chat."""
        self._show(f"ragmem: {one_line(visible(title), _TITLE_CHARS)}")

    def needs_person(self) -> None:
        """Set the title and ring, because the chat waits for the user's answer."""
        self._show("● ragmem: needs you")
        self._ring()

    def ended(self) -> None:
        """Ring if the turn that ended was a long one."""
        if self._clock() - self._seen_at >= LONG_S:
            self._ring()

    def close(self) -> None:
        """Restore the previous title."""
        if self._shown:
            self._send(f"{_title('')}{_POP_TITLE}")
            self._shown = ""

    def _show(self, title: str) -> None:
        if self._has_title and title != self._shown:
            self._send(("" if self._shown else _PUSH_TITLE) + _title(title))
            self._shown = title

    def _ring(self) -> None:
        if self._has_bell:
            self._send("\x07")


def _title(text: str) -> str:
    return f"\x1b]0;{text}\x1b\\"


# --- the process ----------------------------------------------------------------


def is_foreground() -> bool:
    """Return whether this process group has the terminal; True also if there is no terminal.

    It does not while its shell has the terminal, for example after Ctrl-Z.
    """
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True


async def suspend() -> None:
    """Stop this process group, as Ctrl-Z does; return once it has the terminal again.

    A shell may continue a stopped process without giving it the terminal (`bg`, or `kill`, so
    that the process can end): using the terminal would then stop the process once more.
    """
    os.kill(0, signal.SIGTSTP)
    while not is_foreground():  # noqa: ASYNC110 - no signal reports it
        await asyncio.sleep(_FOREGROUND_POLL_S)


# None of the PATH, in which a project's own programs may come first.
_EDITORS = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/pico", "/usr/bin/vi", "/usr/bin/emacs")
_PAGERS = ("less", "more")


def edited(text: str) -> str | None:
    """Return a text as the user's editor leaves it; None if that failed. Blocks.

    Raises RagmemError if no editor could be started.
    """
    named = [environment().get("VISUAL"), environment().get("EDITOR")]
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ragmem-"))
            file = Path(folder, "prompt.md")
            file.write_text(text, "utf-8", "surrogateescape")
        except OSError as error:
            raise RagmemError(f"No temporary file for the draft: {error.strerror}.") from None
        for command in filter(None, [*named, *_EDITORS]):
            try:
                argv = [*shlex.split(command), str(file)]
                ended = subprocess.run(argv, env=child_environment(interactive=True))
            except (OSError, ValueError):  # There is no such program.
                continue
            with contextlib.suppress(OSError):
                if not ended.returncode:
                    return file.read_text("utf-8", "replace").removesuffix("\n")
            return None
    raise RagmemError("No editor was found. Set VISUAL or EDITOR to one.")


def page(text: str) -> None:
    """Show a text in $MANPAGER, $PAGER or less; print it if there is no such program. Blocks."""
    named = environment().get("MANPAGER") or environment().get("PAGER") or ""
    command = named.strip() or next(filter(shutil.which, _PAGERS), "")
    if not command or not shutil.which(command.split()[0]):
        sys.stdout.write(text)
        return
    data, environ = text.encode("utf-8", "backslashreplace"), child_environment(interactive=True)
    with contextlib.suppress(OSError):
        subprocess.run(["/bin/sh", "-c", command], input=data, env=environ)


_restores: list[Callable[[], None]] = []


def abandon(exit_code: int) -> None:
    """Exit the process at once, from any thread, after restoring the terminal."""
    for restore in list(_restores):
        restore()
    os._exit(exit_code)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the terminal's echo, cursor, paste mode and colours when the block ends."""
    import termios

    try:
        fd = sys.stdin.fileno()
        before = early.ordinary_mode(fd)
    except (OSError, ValueError, AttributeError, termios.error):
        yield
        return

    def restore() -> None:
        if not is_foreground():
            return  # the terminal was given back when the process was stopped
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        with contextlib.suppress(ValueError):
            try:
                if early.capable():
                    sys.stdout.write("\x1b[0m\x1b[?25h\x1b[?2004l")
                sys.stdout.flush()
            except OSError:
                # The terminal is gone: flushing the buffer would make the exit fail.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)

    _restores.append(restore)
    try:
        yield
    finally:
        _restores.remove(restore)
        restore()
