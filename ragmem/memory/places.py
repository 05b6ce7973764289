"""Which project a folder's sessions belong to, as one process remembers it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from ragmem.errors import StoreError
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Located, locate, project_at
from ragmem.records import Project, Session, utc_now
from ragmem.store.base import Store


class Places:
    """The projects around one folder. While the store is away, the file system's word counts."""

    def __init__(
        self, memory: Memory, open_store: Callable[[], Awaitable[Store]], cwd: Path
    ) -> None:
        self._memory = memory
        self._open_store = open_store
        self._cwd = cwd
        self._known: dict[str, Project] = {}

    async def here(self) -> Located:
        """The folder's own project."""
        try:
            located = await self._memory.project_of(self._cwd)
        except StoreError:
            # That it is away is among the store's own notices.
            located = locate(self._cwd, (), now=utc_now())
        self._remember(located.project)
        return located

    async def project_of(self, session: Session) -> Project:
        """A session's project; where nothing is known of it, what the session says."""
        if project := self._known.get(session.project_id):
            return project
        with suppress(StoreError):
            known = await (await self._open_store()).projects()
            if found := project_at(self._cwd, session.project_id, known):
                return self._remember(found)
        return self._remember(
            Project(
                project_id=session.project_id,
                path=session.project_path or session.cwd,
                created_at=session.started_at,
            )
        )

    def _remember(self, project: Project) -> Project:
        self._known[project.root_id] = project
        return project


def moved_text(located: Located) -> str:
    """What the person should know of a folder that was taken for one that moved; else empty."""
    if not located.moved_from:
        return ""
    return (
        f"This folder is taken for the project that was at {located.moved_from}: "
        "the same remote, and that folder is gone. Its memory goes on here; "
        "`ragmem sessions list --project` shows its sessions."
    )
