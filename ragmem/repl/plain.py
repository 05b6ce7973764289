"""Lines in, lines out: for TERM=dumb and for output that is not a terminal.

The terminal stays in its ordinary mode, so the kernel edits the line, and what
is typed while the agent works waits there or is queued.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable

from ragmem.repl import early
from ragmem.repl.terminal import Host, Question, Submission
from ragmem.text import clean, visible

_LEAVE_WITHIN_S = 2.0


class PlainTerminal:
    """A `ragmem.repl.terminal.Terminal` that never moves the cursor."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._bytes = b""
        self._lines: list[str] = []
        self._question: Question | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._asking = asyncio.Lock()
        self._closed = asyncio.Event()
        self._leave_asked_at = float("-inf")

    @property
    def columns(self) -> int:
        """Width, in cells."""
        return shutil.get_terminal_size().columns

    async def run(self, ready: Callable[[], None]) -> None:
        """Take input until `close`."""
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
        """End `run`."""
        self._closed.set()

    def write(self, text: str) -> None:
        """Print; characters that the encoding lacks become `?`."""
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()

    def refresh(self) -> None:
        """Nothing is live here."""

    def offer(self) -> None:
        """Nothing is completed here."""

    def idle(self) -> None:
        """Print the prompt."""
        self.write(early.prompt())

    def put_back(self, text: str) -> None:
        """A line once read can't be put back: show it, to be copied."""
        self.write(f"\nnot sent: {visible(text)}\n")

    async def ask(self, question: Question) -> str | None:
        """The answer is a line; a choice goes by its first letter, asked until it is one."""
        async with self._asking:
            keys = {key for key, _ in question.choices}
            words = "".join(f"  {key} {word}" for key, word in question.choices)
            while True:
                self.write(f"{visible(question.label)}{words}\n{early.prompt()}")
                answer = await self._next_line(question)
                if answer is None or not keys:
                    return answer
                if (key := answer.strip().lower()[:1]) in keys:
                    return key

    async def _next_line(self, question: Question) -> str | None:
        self._question = question
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._question = self._answer = None

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
        now = asyncio.get_running_loop().time()
        if self._reply(None) or self._host.stop():
            return
        if now - self._leave_asked_at < _LEAVE_WITHIN_S:
            self._host.leave(130)
            return
        self._leave_asked_at = now
        self._lines.clear()
        self.write("\nCtrl-C again to leave\n")
        self.idle()
