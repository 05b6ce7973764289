"""The command line: parses, calls the App, says what came of it, exits."""

import os
import signal


def leave_at_once() -> None:
    """From now on Ctrl-C ends the process as it is: nothing is open while modules are imported.

    An exception in the middle of an import ends in a traceback, is lost, or crashes Python.
    """
    # What was ignored on purpose (nohup) stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def leave_in_order() -> None:
    """From now on Ctrl-C is KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, _: object) -> None:
    os._exit(128 + number)
