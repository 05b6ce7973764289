"""The index kept current with a project's files: they are looked at now and then."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from ragmem.errors import RagmemError
from ragmem.index import Refreshed
from ragmem.index.database import following
from ragmem.logs import LOGGER

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex

_PAUSE_S = 0.5
"""The pause after a look that found something; twice as long after each that did not."""
_LONGEST_S = 5.0
_LONGEST_AGAIN_S = 60.0
"""The longest pause where it fails."""
_REST = 100
"""A pause is at least so many times as long as the look."""


async def keep_current(
    index: "CodeIndex", root: Path, *, followers: Path
) -> AsyncGenerator[Refreshed, None]:
    """Refresh the index now and then until the folder goes; yields what each look found.

    Others see by the file `followers` that it is done.
    """
    pause_s = _PAUSE_S
    with following(followers):
        while _is_folder(root):
            longest_s, spent_s = _LONGEST_S, 0.0
            try:
                looked = await index.refresh()
            except RagmemError as error:
                logging.getLogger(LOGGER).warning("The code index is not current: %s", error)
                longest_s = _LONGEST_AGAIN_S
            else:
                spent_s = looked.seconds
                if looked.changed or looked.removed:
                    pause_s = _PAUSE_S
                yield looked
            await asyncio.sleep(max(pause_s, _REST * spent_s))
            pause_s = min(longest_s, 2 * pause_s)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
