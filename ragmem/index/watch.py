"""Watching a project's files, and refreshing the index when they change."""

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
from ragmem.index.database import watching
from ragmem.index.files import left_out_by_name
from ragmem.logs import LOGGER
from ragmem.text import one_line

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex

_DEBOUNCE_MS = 800
"""The longest time for which successive changes are reported together."""
_STEP_MS = 150
"""The time without changes after which those before it are reported."""
_TIMEOUT_MS = 1_000
"""The time without changes after which to check that the folder still exists."""
_POLL_S = 5.0
"""The pause between refreshes if the system can't watch the files."""
_RETRY_S = 0.5
"""The pause after a refresh that failed; it doubles with each further failure."""
_LONGEST_RETRY_S = 60.0
_PAUSE_FACTOR = 10
"""The pause after a refresh that found no change, as a multiple of its duration; after the second
in a row it is twice as long, after the third three times …"""
_MAX_PAUSE_FACTOR = 100
"""The limit of that multiple, reached for example where a log is written all the time."""
_WATCHES_TREES = sys.platform == "darwin"
"""Whether the system watches a whole tree at once, without following symbolic links."""


async def keep_current(
    index: "CodeIndex", root: Path, *, followers: Path
) -> AsyncGenerator[Refreshed, None]:
    """Refresh the index when files change, until the folder is removed; yields each outcome.

    Meanwhile it holds a lock on the file `followers`, so that other processes know.
    """
    not_before, again_s, idle = 0.0, _RETRY_S, 0
    with watching(followers):
        async with aclosing(_changes(index, root)) as changes:
            async for has_changed in changes:
                due = has_changed
                while due:
                    await asyncio.sleep(not_before - time.monotonic())
                    if not _is_folder(root):
                        return
                    started = time.monotonic()
                    try:
                        refreshed = await index.refresh()
                    except RagmemError as error:
                        text = "The code index is not current: %s"
                        logging.getLogger(LOGGER).warning(text, error)
                        not_before = time.monotonic() + again_s
                        again_s = min(2 * again_s, _LONGEST_RETRY_S)
                        continue
                    # Another process's refresh may have begun before this change.
                    due, again_s = refreshed.elsewhere, _RETRY_S
                    idle = 0 if refreshed.changed or refreshed.removed else idle + 1
                    factor = min(_PAUSE_FACTOR * idle, _MAX_PAUSE_FACTOR)
                    now = time.monotonic()
                    not_before = now + max(_RETRY_S * due, factor * (now - started))
                    yield refreshed


async def _changes(index: "CodeIndex", root: Path) -> AsyncGenerator[bool, None]:
    """Yield, about once a second, whether files may have changed, until the folder is removed.

    If the system can't watch them, it yields True every few seconds. The caller must refresh
    before asking for the next value, since the folders to watch depend on what is indexed.
    """
    is_known = False
    while _is_folder(root):
        folders: list[Path] = []
        try:
            folders = await _watchable(index, root)
            listening = watchfiles.awatch(
                *folders,
                watch_filter=lambda _, path: "/.git/" not in path,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                rust_timeout=_TIMEOUT_MS,
                yield_on_timeout=True,
                recursive=_WATCHES_TREES,
            )
            # Changes before it listens are not reported, nor folders added meanwhile.
            is_new = True
            async with aclosing(listening):
                async for changes in listening:
                    if not _is_folder(root):
                        return
                    yield is_new or bool(changes)
                    if not _WATCHES_TREES and any(
                        c == Change.added and _is_folder(p) for c, p in changes
                    ):
                        break  # A new folder has to be watched too.
                    if is_new and await _watchable(index, root) != folders:
                        break
                    is_new = False
            continue
        except Exception as error:  # OSError, or the library's own kind
            # A file name isn't UTF-8, say, or the system's limit of watched folders is reached.
            # The library could be told to ignore such errors, but then nobody would know.
            if not all(map(_is_folder, folders)):
                continue  # A folder was removed just then.
            if not is_known:
                text = "The files of %s can't be watched (%s); they are checked now and then."
                logging.getLogger(LOGGER).warning(text, root, one_line(str(error), 200))
            is_known = True
        yield True
        await asyncio.sleep(_POLL_S)


async def _watchable(index: "CodeIndex", root: Path) -> list[Path]:
    if _WATCHES_TREES:
        return [root]
    return await asyncio.to_thread(folders_of, str(root), await index.folders())


def _is_folder(path: str | Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def folders_of(root: str, indexed: Collection[str]) -> list[Path]:
    """Return the folders to watch below `root`: those with indexed files, or with no files yet.

    A folder with files but no indexed ones counts as ignored. Symbolic links are not followed.
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
