"""Changes of a project's files as they happen, and the index kept current with them."""

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
from ragmem.index.files import left_out_by_name, says_what_is_ignored
from ragmem.logs import LOGGER

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex

_ALL = ""
"""The path that stands for the whole project: what changed is not known."""
_TOGETHER_MS = 800
"""How long changes that follow one another are told together."""
_QUIET_MS = 150
"""How long nothing changes before what came is told."""
_TICK_MS = 1_000
"""How long nothing changes before it is looked whether the folder is still there."""
_POLL_S = 30.0
"""The longest pause between looks where the system can't watch."""
_RETRY_S = 0.5
"""The pause where another process is at it, or it failed; each time that it fails twice as long."""
_LONGEST_AGAIN_S = 60.0
_REST = 10
"""A look that found nothing is followed by a pause of so many times its length, until the next one
for files that are not known yet."""
_MANY = 500
"""The most changes at once; for more the project is looked at as a whole."""


async def keep_current(
    index: "CodeIndex", root: Path, *, followers: Path
) -> AsyncGenerator[Refreshed, None]:
    """Refresh the index after each change that concerns it, until the folder goes.

    Others see by the file `followers` that it is done. Where the system can't watch, all is looked
    at now and then.
    """
    pause_s = _RETRY_S
    with following(followers):
        while _is_folder(root):
            try:
                async with aclosing(_followed(index, root)) as found:
                    async for refreshed in found:
                        pause_s = _RETRY_S
                        yield refreshed
                continue
            except Exception as error:  # the system's, or the library's own kind
                # A folder may have gone just then, and a file may have a strange name.
                if pause_s == _RETRY_S:
                    told = "The files of %s can't be watched (%s); they are looked at now and then."
                    logging.getLogger(LOGGER).warning(told, root, error)
            looked = await _refreshed(index, None) if _is_folder(root) else None
            if looked and (looked.changed or looked.removed):
                yield looked
            await asyncio.sleep(pause_s)
            pause_s = min(_POLL_S, 2 * pause_s)


async def _followed(index: "CodeIndex", root: Path) -> AsyncGenerator[Refreshed, None]:
    """Refresh until the folder goes, or others are to be watched."""
    # There a tree is watched at once, and without following links.
    whole = sys.platform == "darwin"
    indexed = await index.folders()
    folders = [root] if whole else await asyncio.to_thread(folders_of, str(root), indexed)
    # What changed until it listens is not told.
    due, waiting = set[str](), {_ALL}
    not_before, again_s, is_over = 0.0, _RETRY_S, False
    listening = watchfiles.awatch(
        *folders,
        watch_filter=lambda _, path: "/.git/" not in path,
        debounce=_TOGETHER_MS,
        step=_QUIET_MS,
        rust_timeout=_TICK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
        recursive=whole,
    )
    async with aclosing(listening):
        async for changes in listening:
            if not _is_folder(root):
                return
            came = {path for change, path in changes if change == Change.added}
            is_over = is_over or any(map(_is_folder, came))
            known, new = await _concerned(index, root, {path for _, path in changes}, came)
            due, waiting = due | known, waiting | new
            started = time.monotonic()
            if started >= not_before:
                due, waiting = due | waiting, set()
            if due:
                paths = None if _ALL in due or len(due) > _MANY else frozenset(due)
                refreshed = await _refreshed(index, paths)
                now = time.monotonic()
                if refreshed is None or refreshed.elsewhere:
                    due, waiting, not_before = set(), {_ALL}, now + again_s
                    again_s = _RETRY_S if refreshed else min(2 * again_s, _LONGEST_AGAIN_S)
                    continue
                due, again_s = set(), _RETRY_S
                if refreshed.changed or refreshed.removed:
                    yield refreshed
                else:
                    not_before = now + _REST * (now - started)
            if is_over and time.monotonic() >= not_before:
                return


async def _concerned(
    index: "CodeIndex", root: Path, paths: Collection[str], came: Collection[str]
) -> tuple[set[str], set[str]]:
    """Return those that the index has, and those that came: a listing tells whether it takes them.

    A log that is written all the time takes no look.
    """
    top = os.path.join(root, "")
    below = {path.removeprefix(top): path for path in paths if path.startswith(top)}
    try:
        known = await index.known_of(below) if below else set[str]()
    except RagmemError:  # It could not be asked just now.
        return set(), {_ALL}
    known |= set(filter(says_what_is_ignored, below))
    return known, {path for path, whole in below.items() if whole in came} - known


def _is_folder(path: str | Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


async def _refreshed(index: "CodeIndex", paths: frozenset[str] | None) -> Refreshed | None:
    """None where it failed."""
    try:
        return await index.refresh(paths=paths)
    except RagmemError as error:
        logging.getLogger(LOGGER).warning("The code index was not brought up to date: %s", error)
        return None


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
