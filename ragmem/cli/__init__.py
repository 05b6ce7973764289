"""The command line: parse the arguments, call the App, report the result, exit."""

import os
import signal


def leave_at_once() -> None:
    """Make Ctrl-C end the process immediately, while modules are imported and nothing is open.

    A KeyboardInterrupt during an import would end in a traceback, get lost, or crash Python.
    """
    # Keep a signal ignored that was ignored on purpose (nohup).
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def leave_in_order() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, _: object) -> None:
    os._exit(128 + number)
