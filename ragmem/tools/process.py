"""This process and its children: what they may see of it, and how waiting for them ends."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from ragmem.children import child_environment as child_environment

T = TypeVar("T")

_PR_SET_DUMPABLE = 4


def protect_process() -> bool:
    """Keep this process's memory and environment, keys among them, from its own children.

    True where the system can do it (Linux; it holds for everyone but root).
    Core dumps and debuggers are off from then on.
    """
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


async def interruptible(work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; when cancelled, tell it to stop and give it a second.

    The work looks at the event it is given at least every tenth of a second.
    """
    stop = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running], timeout=1)
        if running.done() and not running.cancelled():
            # Looked at, so that asyncio does not report it as forgotten.
            running.exception()
        raise
