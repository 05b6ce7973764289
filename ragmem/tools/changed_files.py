"""Which files others have changed since the agent read them: told once a change, before it edits.

An edit of such a file is refused anyway; told beforehand, it costs no vain call.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence

import msgspec

from ragmem.text import plain_or_quoted
from ragmem.tools.base import ToolFailure
from ragmem.tools.content import MAX_TEXT_BYTES, read_span
from ragmem.tools.seen import SeenFiles
from ragmem.tools.workspace import Workspace, open_file

_NAMED = 20
_MOST_FILES = 2_000
"""Of those that were seen, the last so many are looked at."""
_RACY_NS = 2_000_000_000
"""Written so shortly before it was read, it may have changed since without a sign of it: a file
system's clock ticks."""
_GONE = ""


class _Stat(msgspec.Struct, frozen=True):
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class ChangedFiles:
    """Compares what `seen` knows with what is on the disk; a file is read when its stat differs."""

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen
        self._hashes: dict[str, tuple[_Stat, str]] = {}
        self._told: dict[str, str] = {}

    async def news(self) -> str:
        """The files that changed since they were read or told of, as one line; empty for none.

        Nothing of it is said again.
        """
        changed = await asyncio.to_thread(self._changed, self._seen.latest(_MOST_FILES))
        self._told |= changed
        return _sentence(list(changed))

    async def look(self) -> str:
        """The same, without remembering that it was said."""
        return _sentence(
            list(await asyncio.to_thread(self._changed, self._seen.latest(_MOST_FILES)))
        )

    def _changed(self, known: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Path to the hash that it has now."""
        found = {}
        for path, seen in known:
            now = self._hash_of(path)
            if now is None or now == seen:
                self._told.pop(path, None)
            elif self._told.get(path) != now:
                found[path] = now
        return found

    def _hash_of(self, path: str) -> str | None:
        """Of what is there now, `_GONE` where nothing is; None where that can't be told."""
        try:
            target = self._workspace.resolve(path)
            if not target.exists:
                return _GONE
            before = self._hashes.get(path)
            if before and before[0] == _stat(os.stat(target.real, follow_symlinks=False)):
                return before[1]
            read_ns = time.time_ns()
            with open_file(target.real) as fd:
                stat = _stat(os.fstat(fd))
                data = read_span(fd, 0, MAX_TEXT_BYTES + 1)
        except (ToolFailure, OSError):
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        self._hashes.pop(path, None)
        if abs(read_ns - max(stat.mtime_ns, stat.ctime_ns)) >= _RACY_NS:
            self._hashes[path] = (stat, sha256)
        return sha256


def _stat(status: os.stat_result) -> _Stat:
    return _Stat(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _sentence(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = len(paths) - _NAMED
    named = ", ".join(map(plain_or_quoted, paths[:_NAMED]))
    named += f" and {more:,} more" if more > 0 else ""
    count = "" if len(paths) == 1 else f" ({len(paths):,} files)" if more > 0 else ""
    return (
        f"Changed on disk since you read them{count}: {named}. "
        "Read them again before you rely on them or edit them."
    )
