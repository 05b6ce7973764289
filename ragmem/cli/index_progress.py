"""How far the index is: a bar on a terminal, a line for each quarter elsewhere; on stderr.

Nothing is shown of what is done at once.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ragmem.cli.streams import say

Show = Callable[[int, int], None]
"""Is told how many are done, and of how many."""

_FEW = 200
"""Of fewer it is not worth telling."""
_PARTS = 4


@contextmanager
def progress(what: str) -> Iterator[Show]:
    """Shows what it is told."""
    with ExitStack() as stack:
        yield _bar(what, stack) if sys.stderr.isatty() else _lines(what)


def _bar(what: str, stack: ExitStack) -> Show:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    counts = TextColumn("{task.completed:,.0f} of {task.total:,.0f}")
    columns = (TextColumn("{task.description}"), BarColumn(), counts, Remaining())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    tasks: list[TaskID] = []

    def show(done: int, of: int) -> None:
        if of < _FEW:
            return
        if not tasks:
            stack.enter_context(shown)
            tasks.append(shown.add_task(what, total=of))
        shown.update(tasks[0], completed=done, total=of)

    return show


def _lines(what: str) -> Show:
    told = [0]

    def show(done: int, of: int) -> None:
        part = _PARTS * done // max(1, of)
        if of >= _FEW and part > told[0]:
            told[0] = part
            say(f"{what}: {done:,} of {of:,}\n")

    return show
