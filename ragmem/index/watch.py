"""The index kept current: a project's files are looked at when the system tells of changes."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import watchfiles
from watchfiles import Change

from ragmem.errors import RagmemError
from ragmem.index import Refreshed
from ragmem.index.database import following
from ragmem.index.files import left_out_by_name
from ragmem.logs import LOGGER
from ragmem.text import one_line

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex

_TOGETHER_MS = 800
"""How long changes that follow one another are told together."""
_QUIET_MS = 150
"""How long nothing changes before what came is told."""
_TICK_MS = 1_000
"""How long nothing changes before it is looked whether the folder is still there."""
_POLL_S = 5.0
"""The pause between looks where the system can't watch."""
_RETRY_S = 0.5
"""The pause after a look that failed; each time that it fails again twice as long."""
_LONGEST_AGAIN_S = 60.0
_REST = 10
"""A look that finds nothing is followed by a pause of so many times its length; the second in turn
by twice as long a pause, the third by three times as long …"""
_LONGEST_REST = 100
"""So it becomes, where a log is written all the time."""
_WHOLE = sys.platform == "darwin"
"""Whether a tree is watched at once, and without following links."""


async def keep_current(
    index: "CodeIndex", root: Path, *, followers: Path
) -> AsyncGenerator[Refreshed, None]:
    """Refresh the index when files have changed, until the folder goes; yields what a look found.

    Others see by the file `followers` that it is done.
    """
    not_before, again_s, idle = 0.0, _RETRY_S, 0
    with following(followers):
        async with aclosing(_told(index, root)) as told:
            async for has_changed in told:
                due = has_changed
                while due:
                    await asyncio.sleep(not_before - time.monotonic())
                    if not _is_folder(root):
                        return
                    started = time.monotonic()
                    try:
                        looked = await index.refresh()
                    except RagmemError as error:
                        text = "The code index is not current: %s"
                        logging.getLogger(LOGGER).warning(text, error)
                        not_before = time.monotonic() + again_s
                        again_s = min(2 * again_s, _LONGEST_AGAIN_S)
                        continue
                    # Another process may have begun its look before what is told of.
                    due, again_s = looked.elsewhere, _RETRY_S
                    idle = 0 if looked.changed or looked.removed else idle + 1
                    rest = min(_REST * idle, _LONGEST_REST)
                    now = time.monotonic()
                    not_before = now + max(_RETRY_S * due, rest * (now - started))
                    yield looked


async def _told(index: "CodeIndex", root: Path) -> AsyncGenerator[bool, None]:
    """Yield, about once a second, whether files may have changed, until the folder goes.

    Where the system can't watch, they may have whenever it is asked. Files are to be looked at
    before it is asked again: what is to be watched follows from what is indexed.
    """
    is_known = False
    while _is_folder(root):
        folders: list[Path] = []
        try:
            folders = await _watchable(index, root)
            listening = watchfiles.awatch(
                *folders,
                watch_filter=lambda _, path: "/.git/" not in path,
                debounce=_TOGETHER_MS,
                step=_QUIET_MS,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                recursive=_WHOLE,
            )
            # What changed until it listens is not told, folders that came meanwhile neither.
            is_new = True
            async with aclosing(listening):
                async for changes in listening:
                    if not _is_folder(root):
                        return
                    yield is_new or bool(changes)
                    if not _WHOLE and any(c == Change.added and _is_folder(p) for c, p in changes):
                        break  # It is to be watched too.
                    if is_new and await _watchable(index, root) != folders:
                        break
                    is_new = False
            continue
        except Exception as error:  # the system's, or the library's own kind
            # A file may have a strange name, and the system may watch no more folders: what the
            # library passes over as asked to would be passed over in silence.
            if not all(map(_is_folder, folders)):
                continue  # One has gone just then.
            if not is_known:
                told = "The files of %s can't be watched (%s); they are looked at now and then."
                logging.getLogger(LOGGER).warning(told, root, one_line(str(error), 200))
            is_known = True
        yield True
        await asyncio.sleep(_POLL_S)


async def _watchable(index: "CodeIndex", root: Path) -> list[Path]:
    if _WHOLE:
        return [root]
    return await asyncio.to_thread(folders_of, str(root), await index.folders())


def _is_folder(path: str | Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def folders_of(root: str, indexed: Collection[str]) -> list[Path]:
    """Find what to watch of a folder, without following links: what has indexed files, or none yet.

    A folder is ignored where it has files, and none that is in it is indexed.
    """
    around = {""}
    for folder in indexed:
        while folder not in around:
            around.add(folder)
            folder = os.path.dirname(folder)
    found = []
    for path, names, files in os.walk(root):
        folder = path[len(root) + 1 :]
        if folder in around or all(map(left_out_by_name, files)):
            found.append(Path(path))
            names[:] = [n for n in names if n != ".git" and not left_out_by_name(f"{n}/")]
        else:
            names.clear()
    return found
