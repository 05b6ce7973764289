"""What the agent has seen of a project: files read, those changed since, code near them.

An edit of a file that others have changed is refused anyway; told beforehand, once a change, it
costs no vain call.
"""

import asyncio
import hashlib
import json
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
from ragmem.own_tools import EDITING_TOOLS, READ_FILE
from ragmem.records import Project, Session, ToolCall
from ragmem.text import plain_or_quoted
from ragmem.tools.base import Tool, ToolFailure
from ragmem.tools.content import MAX_TEXT_BYTES, read_span
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.workspace import Workspace, identity, open_file
from ragmem.usage import Metrics


class SeenFiles:
    """Path, as results record it, to the SHA-256 of what was read or written last."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._hashes: dict[str, str] = {}
        self._shown: dict[str, list[tuple[int, int]]] = {}
        """The lines of each that were read, as it stands now."""

    def read(self, path: str, sha256: str, first: int, last: int) -> None:
        """The agent reads these lines; it is counted whether it had them before, unchanged."""
        again = self._reads(path, sha256, first, last)
        self._metrics.count("files.reads")
        self._metrics.count("files.reads_again", again)

    def _reads(self, path: str, sha256: str, first: int, last: int) -> bool:
        self.note(path, sha256)
        shown = self._shown.setdefault(path, [])
        again = any(start <= first and last <= end for start, end in shown)
        shown.append((first, last))
        return again

    def note(self, path: str, sha256: str) -> None:
        """The agent has seen this content."""
        if self._hashes.pop(path, None) != sha256:
            self._shown.pop(path, None)
        self._hashes[path] = sha256

    def hash_of(self, path: str) -> str | None:
        """What was seen of a file; None if it was not."""
        return self._hashes.get(path)

    def latest(self, limit: int) -> list[tuple[str, str]]:
        """The last so many files with what was seen of them, the latest first."""
        return list(islice(reversed(self._hashes.items()), limit))

    def restore(self, calls: Iterable[ToolCall]) -> None:
        """Take up where a recorded session stopped; calls in the order they were made."""
        for call in calls:
            if not call.success or call.tool_name not in {READ_FILE, *EDITING_TOOLS}:
                continue
            try:
                result = json.loads(call.result)
            except (ValueError, RecursionError):
                continue
            match result:
                case {
                    "path": str(path),
                    "sha256": str(sha256),
                    "first_line": int(first),
                    "last_line": int(last),
                }:
                    self._reads(path, sha256, first, last)
                case {"path": str(path), "sha256": str(sha256)}:
                    self.note(path, sha256)


_NAMED = 20
_MOST_FILES = 2_000
"""Of those that were seen, the last so many are looked at."""
_RACY_NS = 2_000_000_000
"""Written so shortly before it was read, it may have changed since without a sign of it: a file
system's clock ticks."""
_GONE = ""


class ChangedFiles:
    """Compares what `seen` knows with what is on the disk; a file is read when its stat differs."""

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}
        self._told: dict[str, str] = {}

    async def news(self) -> str:
        """The files that changed since they were read or told of, as one line; empty for none.

        Nothing of it is said again.
        """
        changed = await asyncio.to_thread(self._changed)
        self._told |= changed
        return _sentence(list(changed))

    async def look(self) -> str:
        """Look for changes without remembering that they were told."""
        return _sentence(list(await asyncio.to_thread(self._changed)))

    def _changed(self) -> dict[str, str]:
        """Path to the hash that it has now."""
        found = {}
        for path, seen in self._seen.latest(_MOST_FILES):
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
            if before and before[0] == identity(os.stat(target.real, follow_symlinks=False)):
                return before[1]
            read_ns = time.time_ns()
            with open_file(target.real) as fd:
                stat = os.fstat(fd)
                data = read_span(fd, 0, MAX_TEXT_BYTES + 1)
        except (ToolFailure, OSError):
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        self._hashes.pop(path, None)
        if abs(read_ns - max(stat.st_mtime_ns, stat.st_ctime_ns)) >= _RACY_NS:
            self._hashes[path] = (identity(stat), sha256)
        return sha256


def _sentence(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = len(paths) - _NAMED
    named = ", ".join(map(plain_or_quoted, paths[:_NAMED]))
    named += f" and {more:,} more" if more > 0 else ""
    count = f" ({len(paths):,} files)" if more > 0 else ""
    return (
        f"Changed on disk since you read them{count}: {named}. "
        "Read them again before you rely on them or edit them."
    )


_NEAR = 20
"""How many files that the session touched last make a hit in them count a little more."""


class SessionCode:
    """Finds code for an agent: paths as it writes them, near the files that it has seen.

    `top` is the project's folder as it is here. What the `rules` deny to be read is not found.
    """

    def __init__(
        self,
        codebase: Codebase,
        project: Project,
        *,
        cwd: Path,
        top: Path,
        seen: SeenFiles,
        rules: PermissionRules,
    ) -> None:
        self._codebase = codebase
        self._project = project
        self._cwd = cwd
        self._top = top
        self._seen = seen
        self._rules = rules
        self.is_there = codebase.has(top)
        if self.is_there:
            codebase.meet(project)

    def show(self, path: str) -> str:
        """Return a stored path as the agent writes it."""
        return shown_path(path, cwd=self._cwd, project=self._top)

    def begin(self) -> None:
        """Begin a turn: see what has changed."""
        if self.is_there:
            self._codebase.begin(self._project)

    async def passages(self, prompt: str) -> ProjectCode:
        """Return what bears on the prompt, for the request."""
        found = await self._codebase.passages(self._project, prompt, near=self._near())
        hides = self._rules.hides
        shown = (e for e in found.passages if not hides(self._top / e.path, self._cwd))
        return msgspec.structs.replace(found, passages=tuple(shown))

    async def search(self, text: str, limit: int) -> list[CodeHit]:
        """Search for brain_search."""
        found = await self._codebase.search(self._project, text, limit, near=self._near())
        return [each for each in found if not self._rules.hides(self._top / each.path, self._cwd)]

    def tools(self, memory: Memory, session: Session, scope: ScopeName) -> list[Tool]:
        """Return brain_search, where there is code to be found."""
        from ragmem.tools.memory import BrainSearch

        if not self.is_there:
            return []
        recalls = memory if memory.recalls else None
        return [BrainSearch(self.search, recalls, session, scope, show=self.show)]

    def _near(self) -> list[str]:
        """Return the files that the session has read or changed last, as they are stored."""
        paths = [path for path, _ in self._seen.latest(_NEAR)]
        return [stored_path(path, cwd=self._cwd, project=self._top) for path in paths]
