"""Which project a folder belongs to (X12b): facts of the file system only, git is never run."""

import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.ids import new_id
from ragmem.records import Project

_CONFIG_LIMIT = 256 * 1024
"""Bytes of `.git/config` that are read."""


class Located(msgspec.Struct, frozen=True):
    """A folder's project, and how it was found."""

    project: Project
    is_new: bool = False
    moved_from: str | None = None


def normalize_cwd(path: Path | str) -> Path:
    """The real path: links resolved, relative parts and trailing slashes gone (A101)."""
    return Path(os.path.realpath(path))


def locate(
    cwd: Path, known: Iterable[Project], *, now: datetime, home: Path | None = None
) -> Located:
    """The project of a normalized `cwd`.

    A new folder is taken for a known project that moved only when both have the
    same remote and the old folder is gone: a clone can't claim another's memory.
    """
    known = list(known)
    by_path = {project.path: project for project in known}
    root = _project_root(cwd, by_path, home or Path.home())
    if project := by_path.get(str(root)):
        return Located(project)
    remote = read_remote(root)
    if remote:
        for project in known:
            if project.remote == remote and not os.path.lexists(project.path):
                moved = msgspec.structs.replace(project, path=str(root))
                return Located(moved, is_new=True, moved_from=project.path)
    return Located(
        Project(project_id=new_id(), path=str(root), remote=remote, created_at=now), is_new=True
    )


def _project_root(cwd: Path, by_path: dict[str, Project], home: Path) -> Path:
    home = normalize_cwd(home)
    candidates = [p for p in (cwd, *cwd.parents) if p != home and p != Path(p.anchor)]
    for folder in candidates:
        if os.path.lexists(folder / ".git"):
            return folder
    for folder in candidates:
        if str(folder) in by_path:
            return folder
    return cwd


def read_remote(root: Path) -> str | None:
    """URL of `origin` in `.git/config` without user information; None where there is none."""
    try:
        with (root / ".git" / "config").open("rb") as file:
            text = file.read(_CONFIG_LIMIT).decode("utf-8", "replace")
    except OSError:
        return None
    section = ""
    for line in text.split("\n"):
        if header := re.match(r"\s*\[(.+?)\]", line):
            section = header[1]
        elif section == 'remote "origin"' and (url := re.match(r"\s*url\s*=\s*(\S+)", line)):
            return re.sub(r"^(\w[\w+.-]*://)[^/@]*@", r"\1", url[1])
    return None
