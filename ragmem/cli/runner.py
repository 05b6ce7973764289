"""One event loop for one command, and what signals do to it."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from ragmem.errors import EXIT_SIGINT, EXIT_SIGTERM

_EXIT_SIGHUP = 129
_CODES = {
    signal.SIGINT: EXIT_SIGINT,
    signal.SIGTERM: EXIT_SIGTERM,
    signal.SIGHUP: _EXIT_SIGHUP,
}


class Interruption:
    """SIGINT, SIGTERM and SIGHUP: the first asks what runs to stop, the next insists."""

    def __init__(self) -> None:
        self.exit_code = 0
        """0 until a signal came."""
        self._stop: Callable[[], None] | None = None

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this lasts the first signal calls `stop`, so that a turn ends recorded."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def listen(self, task: asyncio.Task[int]) -> None:
        """Take the signals, on behalf of a task of the running loop."""
        loop = asyncio.get_running_loop()
        for number in _CODES:
            # What was ignored on purpose (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._receive, number, task)

    def _receive(self, number: signal.Signals, task: asyncio.Task[int]) -> None:
        first = not self.exit_code
        self.exit_code = _CODES[number]
        if first and self._stop is not None:
            self._stop()
        else:
            task.cancel()


def run_async(main: Callable[[Interruption], Awaitable[int]]) -> int:
    """Run a command's coroutine; its exit code, or the signal's that stopped it."""
    interruption = Interruption()

    async def listening() -> int:
        task = asyncio.current_task()
        assert task is not None
        interruption.listen(task)
        return await main(interruption)

    try:
        code = asyncio.run(listening())
    except asyncio.CancelledError:
        if not interruption.exit_code:
            raise
        return interruption.exit_code
    return interruption.exit_code or code
