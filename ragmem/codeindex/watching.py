"""Changes of a project's files as they happen."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import watchfiles

from ragmem.logs import LOGGER

if TYPE_CHECKING:
    from watchfiles import Change

EVERYTHING: frozenset[str] = frozenset({""})
"""Stands for the whole project: what changed is not known."""
_TOGETHER_MS = 800
"""Changes that follow one another are one, up to this."""
_QUIET_MS = 150
"""Without a change, and what came before is told."""
_TIMEOUT_MS = 1_000
"""Without a change, and it is looked whether the folder is still there."""
_POLL_S = 30.0


async def changed_paths(root: Path) -> AsyncGenerator[frozenset[str], None]:
    """Paths below the folder that came, changed or went; until the folder is no more.

    `EVERYTHING` once it listens, for what changed until then. Where the system can't watch (too
    many folders for it), `EVERYTHING` every half minute.
    """
    heard: asyncio.Queue[frozenset[str] | Exception | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    stop = threading.Event()

    def tell(what: frozenset[str] | Exception | None) -> None:
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(heard.put_nowait, what)

    # To begin with a large folder takes seconds: not on the loop.
    threading.Thread(target=_listen, args=(root, stop, tell), daemon=True).start()
    try:
        while isinstance(paths := await heard.get(), frozenset):
            yield paths
    finally:
        stop.set()
    if paths is None or not _is_there(root):
        return
    logging.getLogger(LOGGER).warning(
        "The files of %s can't be watched (%s); they are looked at every %g s instead.",
        root,
        paths,
        _POLL_S,
    )
    while True:
        await asyncio.sleep(_POLL_S)
        if not _is_there(root):
            return
        yield EVERYTHING


def _listen(
    root: Path,
    stop: threading.Event,
    tell: Callable[[frozenset[str] | Exception | None], None],
) -> None:
    """In a thread of its own: paths, then None, or the error for which there are none."""
    top = os.path.join(root, "")
    listens = False
    try:
        for changes in watchfiles.watch(
            root,
            watch_filter=lambda _, path: not _is_gits(path.removeprefix(top)),
            debounce=_TOGETHER_MS,
            step=_QUIET_MS,
            rust_timeout=_TIMEOUT_MS,
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            if not _is_there(root):
                break
            if not listens:
                tell(EVERYTHING)
                listens = True
            if paths := _paths(changes, top):
                tell(paths)
    except Exception as error:  # the system's, or the library's own kind
        tell(error)
    else:
        tell(None)


def _is_there(root: Path) -> bool:
    return root.is_dir()


def _is_gits(path: str) -> bool:
    return path == ".git" or path.startswith(".git/") or "/.git/" in path


def _paths(changes: "set[tuple[Change, str]]", top: str) -> frozenset[str]:
    return frozenset(path.removeprefix(top) for _, path in changes if path.startswith(top))
