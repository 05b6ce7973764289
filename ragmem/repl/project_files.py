"""The files that `@` completes, listed by ripgrep (never by git, which runs what a folder says)."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

_MOST = 100_000
_TIMEOUT_S = 5.0


class FileListing:
    """The list, renewed in the background."""

    def __init__(self, cwd: Path) -> None:
        self.paths: Sequence[str] | None = None
        """None until they were listed once."""
        self.on_listed: Callable[[], None] = lambda: None
        self._cwd = cwd
        self._stop = threading.Event()
        self._renewing: asyncio.Task[None] | None = None

    def renew(self) -> None:
        """Begin to list anew, unless that is going on."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        self.paths = await asyncio.to_thread(project_files, self._cwd, self._stop)
        self.on_listed()

    def close(self) -> None:
        """Stop."""
        self._stop.set()


def project_files(cwd: Path, stop: threading.Event) -> list[str]:
    """Paths below the folder that .gitignore leaves; empty where they can't be had. Blocks.

    Names that hide or steer are left out: they could not be shown as they are.
    """
    from ragmem.tools.search import find_ripgrep, list_files

    program = find_ripgrep([cwd])
    if program is None:
        return []
    try:
        folder = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        found = list_files(program, folder, timeout_s=_TIMEOUT_S, stop=stop)
        return sorted(islice((path for path in found if path.isprintable()), _MOST))
    except OSError:
        return []
    finally:
        os.close(folder)
