"""What the agent has seen of a project: files read, those changed since, code near them.

An edit of a file that others have changed is refused anyway; announcing each change beforehand,
once, saves a futile call.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from ragmem.config import ScopeName
from ragmem.index import CodeHit
from ragmem.index.codebase import Codebase
from ragmem.memory.context.collect import ProjectCode
from ragmem.memory.memory import Memory
from ragmem.memory.turns import shown_path, stored_path
from ragmem.messages import fields_in
from ragmem.own_tools import EDITING_TOOLS, READ_FILE
from ragmem.records import Project, Session, ToolCall
from ragmem.text import plain_or_quoted
from ragmem.tools.base import Tool, ToolFailure
from ragmem.tools.content import MAX_TEXT_BYTES, read_span, sha256_of
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.workspace import Workspace, identity, open_file
from ragmem.usage import Metrics


class SeenFiles:
    """Maps paths, as results show them, to the SHA-256 of what was last read or written."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._hashes: dict[str, str] = {}
        self._shown: dict[str, list[tuple[int, int]]] = {}
        """The line ranges read of each file's current content."""

    def read(self, path: str, sha256: str, first: int, last: int) -> None:
        """Record that the agent reads these lines; counts whether it had them before, unchanged."""
        again = self._record_read(path, sha256, first, last)
        self._metrics.count("files.reads")
        self._metrics.count("files.reads_again", again)

    def _record_read(self, path: str, sha256: str, first: int, last: int) -> bool:
        self.note(path, sha256)
        shown = self._shown.setdefault(path, [])
        again = any(start <= first and last <= end for start, end in shown)
        shown.append((first, last))
        return again

    def note(self, path: str, sha256: str) -> None:
        """Record that the agent has seen this content."""
        if self._hashes.pop(path, None) != sha256:
            self._shown.pop(path, None)
        self._hashes[path] = sha256

    def hash_of(self, path: str) -> str | None:
        """Return the hash of what was seen of a file; None if it was not."""
        return self._hashes.get(path)

    def latest(self, limit: int) -> list[tuple[str, str]]:
        """Return the last files seen with their hashes, latest first."""
        return list(islice(reversed(self._hashes.items()), limit))

    def restore(self, calls: Iterable[ToolCall]) -> None:
        """Restore the state of a recorded session; `calls` are in the order they were made."""
        for call in calls:
            if not call.success or call.tool_name not in {READ_FILE, *EDITING_TOOLS}:
                continue
            match fields_in(call.result):
                case {
                    "path": str(path),
                    "sha256": str(sha256),
                    "first_line": int(first),
                    "last_line": int(last),
                }:
                    self._record_read(path, sha256, first, last)
                case {"path": str(path), "sha256": str(sha256)}:
                    self.note(path, sha256)


_MAX_NAMED = 20
_MOST_FILES = 2_000
"""How many of the last files seen are checked."""
_RACY_NS = 2_000_000_000
"""A file modified so shortly before it was read may have changed again unnoticed, because file
timestamps have a limited resolution."""
_GONE = ""


class ChangedFiles:
    """Compares `seen` with the files on disk; a file is read only if its stat differs."""

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}
        self._reported: dict[str, str] = {}

    async def news(self) -> str:
        """Return the files that changed since they were read, on one line; empty if there are none.

        Each change is reported once.
        """
        changed = await asyncio.to_thread(self._changed)
        self._reported |= changed
        return _sentence(list(changed))

    async def look(self) -> str:
        """Return what `news` would, without marking the changes as reported."""
        return _sentence(list(await asyncio.to_thread(self._changed)))

    def _changed(self) -> dict[str, str]:
        """Map each changed path to its current hash."""
        found = {}
        for path, seen in self._seen.latest(_MOST_FILES):
            now = self._hash_of(path)
            if now is None or now == seen:
                self._reported.pop(path, None)
            elif self._reported.get(path) != now:
                found[path] = now
        return found

    def _hash_of(self, path: str) -> str | None:
        """Return a file's current hash, `_GONE` if it does not exist; None if that is unknown."""
        try:
            target = self._workspace.resolve(path)
            if not target.exists:
                return _GONE
            before = self._hashes.get(path)
            if before and before[0] == identity(os.stat(target.real, follow_symlinks=False)):
                return before[1]
            read_ns = time.time_ns()
            with open_file(target.real) as fd:
                stat = os.fstat(fd)
                data = read_span(fd, 0, MAX_TEXT_BYTES + 1)
        except (ToolFailure, OSError):
            return None
        sha256 = sha256_of(data)
        self._hashes.pop(path, None)
        if abs(read_ns - max(stat.st_mtime_ns, stat.st_ctime_ns)) >= _RACY_NS:
            self._hashes[path] = (identity(stat), sha256)
        return sha256


def _sentence(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = len(paths) - _MAX_NAMED
    named = ", ".join(map(plain_or_quoted, paths[:_MAX_NAMED]))
    named += f" and {more:,} more" if more > 0 else ""
    count = f" ({len(paths):,} files)" if more > 0 else ""
    return (
        f"Changed on disk since you read them{count}: {named}. "
        "Read them again before you rely on them or edit them."
    )


_MAX_NEAR = 20
"""How many of the files last touched by the session slightly raise the rank of hits in them."""


class SessionCode(msgspec.Struct):
    """Finds code for an agent: with paths as it writes them, favouring files that it has seen.

    `top` is the project's folder on this machine. Files that `rules` forbid to read are left out.
    """

    codebase: Codebase
    project: Project
    cwd: Path
    top: Path
    seen: SeenFiles
    rules: PermissionRules
    is_there: bool = False

    def __post_init__(self) -> None:
        self.is_there = self.codebase.has(self.top)
        if self.is_there:
            self.codebase.meet(self.project)

    def show(self, path: str) -> str:
        """Return a stored path as the agent writes it."""
        return shown_path(path, cwd=self.cwd, project=self.top)

    def begin(self) -> None:
        """Begin a turn: look for changes."""
        if self.is_there:
            self.codebase.begin(self.project)

    async def passages(self, prompt: str) -> ProjectCode:
        """Return the passages that are relevant to the prompt, for the request."""
        found = await self.codebase.passages(self.project, prompt, near=self._near())
        hides = self.rules.hides
        shown = (e for e in found.passages if not hides(self.top / e.path, self.cwd))
        return msgspec.structs.replace(found, passages=tuple(shown))

    async def search(self, text: str, limit: int) -> list[CodeHit]:
        """Search on behalf of brain_search."""
        found = await self.codebase.search(self.project, text, limit, near=self._near())
        return [each for each in found if not self.rules.hides(self.top / each.path, self.cwd)]

    def tools(self, memory: Memory, session: Session, scope: ScopeName) -> list[Tool]:
        """Return brain_search, if there is an index to search."""
        from ragmem.tools.memory import BrainSearch

        if not self.is_there:
            return []
        recalls = memory if memory.recalls else None
        return [BrainSearch(self.search, recalls, session, scope, show=self.show)]

    def _near(self) -> list[str]:
        """Return the files that the session last read or changed, as stored."""
        paths = [path for path, _ in self.seen.latest(_MAX_NEAR)]
        return [stored_path(path, cwd=self.cwd, project=self.top) for path in paths]
