"""Projects as they were last seen, so that a folder keeps its project while the store is away."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ragmem.files import replace_private
from ragmem.records import Project


class KnownProjects:
    """A private file beside the spool. What can't be read or written costs only this comfort."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written: list[Project] | None = None

    def load(self) -> list[Project]:
        """None of them where there is no file."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Project])
        except (OSError, msgspec.MsgspecError):
            return []

    def save(self, projects: list[Project]) -> None:
        """Replace the file, if it says something else."""
        if projects == self._written:
            return
        with contextlib.suppress(OSError, UnicodeEncodeError):
            data = msgspec.json.encode(projects)
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(self._file, data, sync=False)
            self._written = projects

    def add(self, projects: Iterable[Project]) -> None:
        """Those that wait in the spool are known too."""
        new = {project.project_id: project for project in projects}
        if new:
            known = {project.project_id: project for project in self.load()}
            self.save(list((known | new).values()))
