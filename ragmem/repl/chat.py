"""The chat: a terminal, what is typed there, and the agent that answers.

`run_chat` returns a process' exit code. The prompt comes first; all that is
heavy is loaded while the person reads and types, and the first prompt can be
sent before that is done.
"""

import asyncio
import errno
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragmem.config import environment
from ragmem.errors import EXIT_DONE, EXIT_SIGINT
from ragmem.redact import know, secrets_among
from ragmem.repl import early
from ragmem.repl.talk import Opening
from ragmem.repl.terminal import Terminal, abandon, restored
from ragmem.repl.worker import Start, Worker

if TYPE_CHECKING:
    from ragmem.repl.render import Ink

__all__ = ["Opening", "Start", "run_chat"]

Color = Literal["auto", "always", "never"]
EXIT_SIGHUP = 129
_GONE = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)
_BY_CHOICE = (EXIT_DONE, EXIT_SIGINT)
_EXIT_WITHIN_S, _KILLED_WITHIN_S = 10.0, 1.8


def run_chat(
    start: Start, *, opening: Opening, cwd: Path, history: Path, color: Color = "auto"
) -> int:
    """Chat until the person leaves; the exit code.

    Raises RagmemError when the chat could not begin; the terminal is then as it
    was before.
    """

    know(secrets_among(environment()))  # a prompt may be sent, and kept, before the app is there

    async def chat() -> int:
        left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ink = _ink(color)
        worker = Worker(start, opening, cwd=cwd, ink=ink, leave=lambda code: _leave(left, code))
        worker.terminal = _terminal(worker, history, ink)
        _listen(left)
        return await _chat(worker, left)

    try:
        with restored():
            return asyncio.run(chat())
    except OSError as error:
        if error.errno in _GONE:  # the terminal was closed
            return EXIT_SIGHUP
        raise
    finally:
        early.clear()


async def _chat(worker: Worker, left: asyncio.Future[int]) -> int:
    ready = asyncio.Event()

    async def work() -> None:
        await ready.wait()
        await worker.run()

    typing = asyncio.create_task(worker.terminal.run(ready.set))
    working = asyncio.create_task(work())
    try:
        ends: list[asyncio.Future[Any]] = [left, typing, working]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await worker.settle()
        working.cancel()
        await asyncio.wait({working})
        worker.terminal.close()
        await asyncio.wait({typing})
    for task in (working, typing):
        if not task.cancelled() and (error := task.exception()):
            raise error
    worker.farewell()
    return left.result()


def _terminal(worker: Worker, history: Path, ink: "Ink") -> Terminal:
    if ink == "none":
        from ragmem.repl.plain import PlainTerminal

        return PlainTerminal(worker)
    from ragmem.repl.input import LiveTerminal

    return LiveTerminal(worker, history=history, color=ink == "color")


def _ink(color: Color) -> "Ink":
    if not early.capable():
        return "none"
    plain = color == "never" or (color == "auto" and environment().get("NO_COLOR"))
    return "mono" if plain else "color"


def _leave(left: asyncio.Future[int], exit_code: int) -> None:
    """End the chat; if it can't be ended in order within its time, end it anyhow."""
    if left.done():
        return
    left.set_result(exit_code)
    within = _EXIT_WITHIN_S if exit_code in _BY_CHOICE else _KILLED_WITHIN_S
    watch = threading.Timer(within, abandon, (exit_code,))
    watch.daemon = True
    watch.start()


def _listen(left: asyncio.Future[int]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What was ignored on purpose (nohup) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, _leave, left, 128 + number)

    def broken(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Callbacks are ours and the terminal's; forgotten tasks of libraries end no chat.
        error = context.get("exception")
        if "handle" in context and isinstance(error, BaseException) and not left.done():
            left.set_exception(error)

    loop.set_exception_handler(broken)
