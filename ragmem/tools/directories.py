"""list_directory."""

import heapq
import os
import stat
import threading
from typing import Annotated

import msgspec

from ragmem.tools.base import Effect, ToolOutput
from ragmem.tools.permissions import Permissions
from ragmem.tools.process import interruptible
from ragmem.tools.ripgrep import find_ripgrep, list_files
from ragmem.tools.workspace import (
    Target,
    Workspace,
    open_folder,
    plain_failures,
    show_name,
)

MAX_ENTRIES = 1000
_CLASSIFY_S = 3.0
_NAMED_IGNORED = 30


class ListDirectoryParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of list_directory."""

    path: Annotated[str, msgspec.Meta(description="The folder.")] = "."


class ListDirectory:
    """What lies in one folder."""

    name = "list_directory"
    description = (
        f"List a folder: subfolders first, then files with sizes, at most {MAX_ENTRIES:,} entries. "
        "Not recursive; use glob_files for that."
    )
    effect: Effect = "read"
    Params: type[msgspec.Struct] = ListDirectoryParams

    def __init__(self, workspace: Workspace, permissions: Permissions) -> None:
        self._workspace = workspace
        self._permissions = permissions

    def title(self, params: ListDirectoryParams) -> str:
        """The folder."""
        return params.path

    async def run(self, params: ListDirectoryParams) -> ToolOutput:
        """One entry a line."""
        target = await self._permissions.read(self.name, params.path)
        if not target.exists:
            raise self._workspace.not_found(params.path, target)
        with plain_failures(self._workspace.record_path(target.real)):
            return await interruptible(lambda stop: self._list(target, stop))

    def _list(self, target: Target, stop: threading.Event) -> ToolOutput:
        where = self._workspace.record_path(target.real)
        with open_folder(target.real) as by_path:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=by_path)
        try:
            found = _Entries(self._not_ignored(folder, stop), folder)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not self._workspace.is_private(target.real / entry.name):
                        found.add(entry)
            chosen = found.first(MAX_ENTRIES)
            lines = [_line(name, is_file, folder) for is_file, name in chosen]
        finally:
            os.close(folder)
        total, ignored = found.count, found.ignored
        if total > len(chosen):
            lines.append(f"[{total - len(chosen):,} more entries; use glob_files to narrow it]")
        if ignored:
            shown = ", ".join(show_name(name) for name in sorted(ignored)[:_NAMED_IGNORED])
            rest = len(ignored) - _NAMED_IGNORED
            more = f" and {rest:,} more" if rest > 0 else ""
            lines.append(f"[left out, ignored by .gitignore: {shown}{more}]")
        return ToolOutput(
            text="\n".join(lines) or f"{where} is empty.",
            display=f"{total:,} entr{'y' if total == 1 else 'ies'}",
            data={"path": where, "count": total},
        )

    def _not_ignored(self, folder: int, stop: threading.Event) -> set[str] | None:
        """Names directly in the folder that lead to files not ignored; None if unknown."""
        program = find_ripgrep(self._workspace.roots)
        if program is None:
            return None
        files = list_files(program, folder, timeout_s=_CLASSIFY_S, stop=stop)
        names = {path.partition("/")[0] for path in files}
        return None if files.timed_out else names


class _Entries:
    """Folders before files, each by name; no more of them in memory than are shown."""

    def __init__(self, not_ignored: set[str] | None, folder: int) -> None:
        self._not_ignored = not_ignored
        self._folder = folder
        self._kept: list[tuple[bool, str]] = []
        self.count = 0
        self.ignored: list[str] = []

    def add(self, entry: "os.DirEntry[str]") -> None:
        """Take the next, in any order."""
        if entry.name == ".git":
            return
        is_folder = entry.is_dir(follow_symlinks=False)
        if self._not_ignored is not None and _is_ignored(entry, self._not_ignored, self._folder):
            self.ignored.append(f"{entry.name}/" if is_folder else entry.name)
            return
        self.count += 1
        self._kept.append((not is_folder, entry.name))
        if len(self._kept) > 4 * MAX_ENTRIES:
            self._kept = self.first(MAX_ENTRIES)

    def first(self, limit: int) -> list[tuple[bool, str]]:
        """(is a file, name) of those that come first."""
        return heapq.nsmallest(limit, self._kept)


def _is_ignored(entry: "os.DirEntry[str]", known: set[str], folder: int) -> bool:
    if entry.name in known:
        return False
    if entry.is_dir(follow_symlinks=False):
        # ripgrep lists files: a folder without any is not therefore ignored.
        return not _is_empty(entry.name, folder)
    return entry.is_file(follow_symlinks=False)


def _is_empty(name: str, folder: int) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return True
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


def _line(name: str, is_file: bool, folder: int) -> str:
    shown = show_name(name)
    if not is_file:
        return f"{shown}/"
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return f"{shown} -> {show_name(os.readlink(name, dir_fd=folder))}"
    except OSError:
        return shown
    if not stat.S_ISREG(status.st_mode):
        return f"{shown}  (not a regular file)"
    return f"{shown}  {status.st_size:,} bytes"
