"""How far a move is: a bar on a terminal, a line for each tenth elsewhere; on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from ragmem.cli.streams import say

Phase = Literal["copying", "comparing", "embedding", "reading"]
Show = Callable[[Phase, int], None]
"""Is told how many more records have come so far."""


@contextmanager
def progress(total: int) -> Iterator[Show]:
    """Shows what it is told, of `total` records."""
    if sys.stderr.isatty():
        with _bars(total) as show:
            yield show
    else:
        yield _lines(total)


@contextmanager
def _bars(total: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    counts = TextColumn("{task.completed:,.0f} of {task.total:,.0f}")
    columns = (TextColumn("{task.description:<9}"), BarColumn(), counts, Remaining())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[Phase, TaskID] = {}

        def show(phase: Phase, count: int) -> None:
            if phase not in tasks:
                tasks[phase] = shown.add_task(phase, total=total)
            # Vectors and the like are not counted beforehand.
            shown.advance(tasks[phase], min(count, shown.tasks[tasks[phase]].remaining or 0))

        yield show


def _lines(total: int) -> Show:
    done: dict[Phase, int] = {}

    def show(phase: Phase, count: int) -> None:
        before = done.get(phase, 0)
        done[phase] = min(before + count, total)
        tenth = 10 * done[phase] // max(1, total)
        if tenth > 10 * before // max(1, total):
            say(f"{phase}: {done[phase]:,} of {total:,}\n")

    return show
