"""A chat on a pty, with a terminal emulator that shows what a person would see."""

import json
import os
import re
import select
import shlex
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyte
from pyte.screens import StaticDefaultDict

from tests.fakes.forks import FAKE_APP, start_on_terminal
from tests.repl.fake_app import gate

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
CUTS = {"XTERM_VERSION": "XTerm(390)", "TMUX": ""}
"""The emulator cuts what has no room any more off, and folds nothing."""


LOADED = r"openai/scripted · \S"
"""In the toolbar of a chat that has its session."""


class _Screen(pyte.HistoryScreen):
    """One of which nobody pages through the history: then its attributes need no looking after."""

    __getattribute__ = object.__getattribute__


class PtyChat:
    """A process on a pty. `raw` is every byte it wrote; `text` is scrollback and screen."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        columns: int = 80,
        rows: int = 24,
        ready: str = "",
    ) -> None:
        """`ready`: what its screen shows once it can be used."""
        self.raw = b""
        self._ready = ready
        self._shown: str | None = None
        """What the screen shows, until that changes."""
        self._screen = _Screen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        own = ("NO_COLOR", "COLORTERM")
        kept = {k: v for k, v in os.environ.items() if k not in own and k[:6] != "PYTHON"}
        its_own = {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **CUTS}
        self._terminal, theirs = os.openpty()
        self._is_over = False
        try:
            self.resize(columns, rows)
            given = {**kept, **its_own, **(env or {})}
            self.process = start_on_terminal(command, env=given, cwd=cwd, terminal=theirs)
        finally:
            os.close(theirs)

    def __enter__(self) -> Self:
        with ExitStack() as unless_ready:
            unless_ready.push(self.__exit__)
            self.wait_for_screen(self._ready)
            unless_ready.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    # --- what a person does -----------------------------------------------------

    def send(
        self,
        keys: str,
        *,
        shows: str = "",
        prints: str = "",
        ends: str = "",
        until: Callable[[], Any] = lambda: True,
    ) -> None:
        """Press keys, and wait for what they do: by pattern, on the screen, or for what is true.

        `shows` is on the screen now, `prints` above the prompt, `ends` the answer of a turn.
        """
        os.write(self._terminal, keys.encode())
        if shows:
            self.wait_for_screen(shows)
        if prints:
            self.wait_for(prints)
        if ends:
            self.wait_for_turn(ends)
        self.until(until, f"what {keys!r} does")

    def send_much(self, text: str) -> None:
        """The same for more than the terminal's buffer holds, while the process reads."""
        writer = threading.Thread(target=self._write_all, args=(text.encode(),))
        writer.start()
        self.until(lambda: not writer.is_alive(), "the text to be taken")
        writer.join()

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._terminal, data[:4096]) :]

    def resize(self, columns: int, rows: int) -> None:
        """Change the window."""
        termios.tcsetwinsize(self._terminal, (rows, columns))
        self._screen.resize(rows, columns)
        self._shown = None

    def fold(self, columns: int) -> None:
        """Make the window narrower, or wider, on a terminal that folds rows without room."""
        self.pump()
        screen, at, across = self._screen, 0, 0
        folded: list[list[pyte.screens.Char]] = []
        for y in range(screen.lines):
            row = [screen.buffer[y][x] for x in range(screen.columns)]
            while row and row[-1].data == " ":
                row.pop()
            if y == screen.cursor.y:
                at = len(folded) + screen.cursor.x // columns
                across = screen.cursor.x % columns
            folded += [row[x : x + columns] for x in range(0, max(1, len(row)), columns)]
        while not folded[-1] and len(folded) - 1 > at:
            folded.pop()
        termios.tcsetwinsize(self._terminal, (screen.lines, columns))
        screen.resize(screen.lines, columns)
        self._shown = None
        lines = [StaticDefaultDict(screen.default_char) for _ in folded]
        for line, row in zip(lines, folded, strict=True):
            line.update(enumerate(row))
        top = max(0, len(lines) - screen.lines)
        screen.history.top.extend(lines[:top])
        screen.buffer.clear()
        screen.buffer.update(enumerate(lines[top:]))
        screen.cursor.y, screen.cursor.x = at - top, across

    # --- what a person sees -------------------------------------------------------

    def pump(self, seconds: float = 0.05) -> None:
        """Take in what has been written."""
        if self._is_over:
            self.process.ends_within(seconds)
            return
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._terminal], [], [], left)[0]:
                return
            try:
                data = os.read(self._terminal, 65_536)
            except OSError:  # Nobody has the terminal any more.
                self._is_over = True
                return
            self.raw += data
            self._stream.feed(data)
            self._shown = None

    @property
    def screen(self) -> str:
        """The window's rows, without trailing blanks."""
        if self._shown is None:
            self._shown = "\n".join(row.rstrip() for row in self._screen.display).rstrip()
        return self._shown

    @property
    def _is_whole(self) -> bool:
        """Whether nothing is being drawn: the cursor is hidden meanwhile."""
        return self._is_over or not self._screen.cursor.hidden

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the window."""
        return self._screen.columns, self._screen.lines

    @property
    def column(self) -> int:
        """Where in its row the cursor stands."""
        return self._screen.cursor.x

    def cell(self, row: int, column: int) -> pyte.screens.Char:
        """What stands there, and how it looks."""
        return self._screen.buffer[row][column]

    @property
    def text(self) -> str:
        """All that was ever shown and not erased."""
        width = self._screen.columns
        past = [
            "".join(row[column].data for column in range(width)).rstrip()
            for row in self._screen.history.top
        ]
        return "\n".join([*past, self.screen])

    def until(self, condition: Callable[[], Any], what: str = "") -> None:
        """Wait for it; what is on the screen when it does not come is the failure's text."""
        deadline = time.monotonic() + PATIENCE_S
        while not (self._is_whole and condition()):
            self.pump()
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for {what or condition}; the screen is:\n{self.text}")

    def wait_for(self, pattern: str) -> None:
        """Wait until the text matches the regular expression."""
        self.until(lambda: re.search(pattern, self.text, re.MULTILINE), pattern)

    def wait_for_turn(self, pattern: str) -> None:
        """The same for the answer of a turn that is over: what is sent next finds it kept."""
        self.wait_for(rf"{pattern}[\s\S]*?\d model calls?\b")

    def wait_for_screen(self, pattern: str) -> None:
        """The same for what is on the screen now."""
        self.until(lambda: re.search(pattern, self.screen, re.MULTILINE), pattern)

    # --- its end --------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self.process.ends_within(0)

    def exit_code(self) -> int:
        """Wait for the end, and for all that was written before it."""
        self.until(lambda: not self.is_alive, "the end")
        self.until(lambda: self._is_over, "the last words")
        return self.process.wait()

    def leave(self) -> None:
        """Say so; all is well."""
        self.send("/exit\r")
        assert self.exit_code() == 0

    def hang_up(self) -> int:
        """Close the window; the exit code of what ran in it."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, self._terminal)
        os.close(nowhere)
        return self.process.wait(PATIENCE_S)

    def is_restored(self) -> bool:
        """Echo and line mode on, cursor shown, bracketed paste off, no mouse, no other screen."""
        flags = termios.tcgetattr(self._terminal)[3]
        modes = re.findall(rb"\x1b\[\?(25|2004|1049|100[0-6])([hl])", self.raw)
        left_on = {name for name, state in dict(modes).items() if state == b"h"}
        return bool(flags & termios.ECHO and flags & termios.ICANON) and left_on <= {b"25"}


class FakeChat(PtyChat):
    """The chat on `fake_app`."""

    def __init__(
        self,
        folder: Path,
        *settings: str,
        through: str = "",
        jobs: bool = False,
        files: Mapping[str, str] | None = None,
        ready: str = "openai/scripted",
        **options: Any,
    ) -> None:
        """`files` are in its folder from the beginning; `ready` is the model in the toolbar."""
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        self.log_file = folder / "log"
        self.history = folder / "history"
        self.log_file.touch()
        command = [*FAKE_APP, str(self.log_file), *settings]
        if through:
            # Only the jobs of a shell that controls them are stopped by Ctrl-Z.
            shell = ["/bin/bash", "--norc", *["-m"] * jobs, "-c"]
            command = [*shell, f"{shlex.join(command)} {through}"]
        super().__init__(command, cwd=folder, ready=ready, **options)

    def log(self, what: str) -> list[dict[str, Any]]:
        """What reached the app."""
        # The last line may still be on its way: ten megabytes take several writes.
        whole = self.log_file.read_text().split("\n")[:-1]
        lines = map(json.loads, whole)
        return [line for line in lines if line["what"] == what]

    @property
    def prompts(self) -> list[str]:
        """What was asked."""
        return [line["prompt"] for line in self.log("ask")]

    def decides(self, keys: str) -> dict[str, Any]:
        """What the agent is told once a question is answered with these keys."""
        asked = len(self.log("decided"))
        self.send(keys, until=lambda: len(self.log("decided")) > asked)
        return self.log("decided")[-1]

    def let(self, name: str) -> None:
        """Let the app go on that waits for this; see `fake_app.gate`."""
        gate(self.log_file, name).touch()
