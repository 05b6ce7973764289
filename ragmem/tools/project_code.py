"""A project's code as one agent works with it."""

from pathlib import Path

from ragmem.index.codebase import Codebase
from ragmem.index.values import CodeHit
from ragmem.memory.context import CodePassage
from ragmem.memory.files import shown_path, stored_path
from ragmem.memory.memory import Memory
from ragmem.memory.recall import ScopeName
from ragmem.records import Project, Session
from ragmem.tools.base import Tool
from ragmem.tools.changed_files import SeenFiles
from ragmem.tools.patterns import PermissionRules

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

    async def passages(self, prompt: str) -> list[CodePassage]:
        """Return what bears on the prompt, for the request."""
        found = await self._codebase.passages(self._project, prompt, near=self._near())
        return [each for each in found if not self._rules.hides(self._top / each.path, self._cwd)]

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
