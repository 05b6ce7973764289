"""Finding the project that a folder belongs to, and its instructions for an agent.

Both are read from the file system; git is never run.
"""

import os
import re
import shlex
import stat
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import StoreError, UsageError
from ragmem.files import home_folder, is_a_path
from ragmem.ids import new_id
from ragmem.records import Project, RegisterProject, Session, utc_now
from ragmem.redact import redact
from ragmem.text import Regex, mark_for, one_line, quoted, visible

if TYPE_CHECKING:
    from ragmem.memory.memory import Memory
    from ragmem.store import Store


_SHOWN_CHARS = 200


class Located(msgspec.Struct, frozen=True):
    """A folder's project, and how it was found."""

    project: Project
    is_new: bool = False
    moved_from: str | None = None
    apart_from: Project | None = None
    """The project that it is a worktree of, if both are separate projects although the user did
    not split them."""


def normalize_cwd(path: Path | str) -> Path:
    """Return the real path: symlinks and relative parts resolved, no trailing slashes.

    Raises UsageError for anything that can't be a path.
    """
    if not is_a_path(path):
        shown = one_line(repr(os.fspath(path)), _SHOWN_CHARS)
        raise UsageError(f"{shown} is not a path.", hint="Name a folder.")
    return Path(os.path.realpath(path))


_ESCAPED = re.compile(rb"\\(x([89a-f][0-9a-f]|5c))")


def folder_name(path: Path | str) -> str:
    r"""Return a folder's path as it is stored: bytes that are not UTF-8 are escaped as `\xff`.

    So is a backslash before what looks like that: different names stay different, and can be found
    again. Case and Unicode form are kept as the file system returns them.
    """
    name = _ESCAPED.sub(rb"\\x5c\1", os.fsencode(path))
    return name.decode("utf-8", "backslashreplace")


def real_folder(stored: str, cwd: Path = Path()) -> Path:
    """Return the folder of a stored path; it may be `cwd` or around it, or be gone."""
    for folder in (cwd, *cwd.parents):
        if folder_name(folder) == stored:
            return folder
    name = _ESCAPED.sub(lambda found: bytes([int(found[2], 16)]), os.fsencode(stored))
    # Earlier versions escaped no backslashes.
    return Path(os.fsdecode(name) if os.path.lexists(name) else stored)


def locate(cwd: Path, known: Sequence[Project], *, now: datetime) -> Located:
    """Return the project of a normalized `cwd`.

    A new folder is taken for a known project that has moved only if the old folder is gone, and
    both have the same remote, or the same first commit made in the repository itself: a clone next
    to another can't claim its memory. A copy of the whole folder can, once the original is gone.
    A worktree belongs to its repository's project, so that all checkouts share one memory, unless
    the user has split it off.
    """
    root = _project_root(cwd, {project.path for project in known})
    found = _located_at(root, known, now)
    main = main_checkout(root)
    if main is None or main == home_folder() or found.project.joined_into:
        return found
    whole = _located_at(main, known, now)
    if found.is_new:
        joined = msgspec.structs.replace(found.project, joined_into=whole.project.root_id)
        return Located(joined, is_new=True)
    apart = not whole.is_new and whole.project.root_id != found.project.root_id
    return Located(found.project, apart_from=whole.project if apart else None)


def _located_at(root: Path, known: Sequence[Project], now: datetime) -> Located:
    path, signs = folder_name(root), _identities_of(root)
    for project in known:
        if project.path == path:
            # The stored remote or first commit may be outdated.
            remote = next(iter(signs), project.remote)
            return Located(msgspec.structs.replace(project, remote=remote))
    for sign in signs:
        for project in known:
            if project.remote == sign and is_gone(project.path):
                moved = msgspec.structs.replace(project, path=path)
                return Located(moved, is_new=True, moved_from=project.path)
    return Located(project_of_folder(root, known, now=now), is_new=True)


def project_of_folder(folder: Path, known: Sequence[Project], *, now: datetime) -> Project:
    """Return the project with a normalized `folder` as its top, without searching for another."""
    path = folder_name(folder)
    for project in known:
        if project.path == path:
            return project
    # The same in all processes that start in the folder at once, so that its memory is not split.
    project_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"file:{path}"))
    if any(project.project_id == project_id for project in known):
        project_id = new_id()  # The project that was here before has moved, with its id.
    return Project(project_id=project_id, path=path, remote=origin_of(folder), created_at=now)


def registrations(project: Project) -> list[RegisterProject]:
    """Return the writes that register a project, preceded by the one that it is a worktree of."""
    writes = [RegisterProject(project=project)]
    main = main_checkout(real_folder(project.path, Path())) if project.joined_into else None
    if main:
        own = project_of_folder(main, (), now=project.created_at)
        # If its id is another one, it is registered already.
        if own.project_id == project.joined_into:
            writes.insert(0, RegisterProject(project=own))
    return writes


def joinable(project: Project, known: Iterable[Project], cwd: Path) -> list[Project]:
    """Return projects of the same repository or remote that this one is not joined with."""
    folder = real_folder(project.path, cwd)
    main = main_checkout(folder)
    remote = origin_of(main or folder) or project.remote
    return [
        each
        for each in known
        if each.root_id == each.project_id != project.root_id
        and (
            (remote and each.remote == remote)
            or (main and each.path == folder_name(main))
            or main_checkout(real_folder(each.path, cwd)) == folder
        )
    ]


def gone(project: Project, known: Iterable[Project]) -> list[Project]:
    """Return other projects, not joined to any, whose folder no longer exists."""
    return [
        each
        for each in known
        if each.root_id == each.project_id != project.root_id and is_gone(each.path)
    ]


_NAME_WORDS = Regex(r"[^\W\d_]+|\d+")


def is_called_like(project: Project, other: Project) -> bool:
    """Whether one folder's name has all words of the other's, such as "shop" and "shop-2"."""
    ours, theirs = (
        set(_NAME_WORDS.findall(Path(each.path).name.casefold())) for each in (project, other)
    )
    return bool(ours and theirs) and (ours <= theirs or theirs <= ours)


def project_to_split(folder: Path, known: Sequence[Project], *, now: datetime) -> Project:
    """Return the project of a folder, even a deleted one, that is to be split off.

    Raises UsageError for a project that others are joined to: one of those is to be split off.
    """
    path = folder_name(folder)
    own = next((project for project in known if project.path == path), None)
    project = own or locate(folder, known, now=now).project
    others = [p for p in known if p.joined_into == project.project_id != p.project_id]
    if others:
        raise UsageError(
            f"{visible(project.path)} is the project that others were joined to.",
            hint="Split one of the others: "
            + ", ".join(f"`ragmem sessions split {shlex.quote(visible(p.path))}`" for p in others),
        )
    return project


def is_kept_apart(project: Project, folder: Path) -> bool:
    """Whether nothing joins a project automatically: it was split off, or is no worktree."""
    return project.joined_into == project.project_id or main_checkout(folder) is None


def project_at(cwd: Path, project_id: str, known: Iterable[Project]) -> Project | None:
    """Return which of a project's folders `cwd` is in, else its main one; None if unknown."""
    folders = [project for project in known if project.root_id == project_id]
    here = {folder_name(folder) for folder in (cwd, *cwd.parents)}
    around = sorted((p for p in folders if p.path in here), key=lambda p: len(p.path))
    own = [project for project in folders if project.project_id == project_id]
    return next(iter([*reversed(around), *own, *folders]), None)


def was_here(session: Session, cwd: str, project: Project) -> bool:
    """Whether a session was in this folder of the project before the project moved."""
    top = session.project_path
    within = os.path.relpath(cwd, project.path)
    return top is not None and is_gone(top) and os.path.relpath(session.cwd, top) == within


def is_gone(stored: str) -> bool:
    """Whether nothing exists at a stored path."""
    return not os.path.lexists(real_folder(stored))


def is_reachable(stored: str) -> bool:
    """Whether a folder can be looked at under a stored path: its disk may be away."""
    return os.path.isdir(real_folder(stored))


def folder_of_git(cwd: Path) -> Path:
    """Return the checkout that a folder is in, as `locate` finds it; outside of one, the folder."""
    return _project_root(cwd, ())


def _project_root(cwd: Path, known: Collection[str]) -> Path:
    home = home_folder()
    candidates = [p for p in (cwd, *cwd.parents) if p != home and p != Path(p.anchor)]
    for folder in candidates:
        if os.path.lexists(folder / ".git"):
            return folder
    for folder in candidates:
        if folder_name(folder) in known:
            return folder
    return cwd


class Places:
    """The projects around one folder; from the file system while the store is unavailable."""

    def __init__(
        self, memory: "Memory", open_store: Callable[[], Awaitable["Store"]], cwd: Path
    ) -> None:
        self._memory = memory
        self._open_store = open_store
        self._cwd = cwd
        self._known: dict[str, Project] = {}

    async def here(self) -> Located:
        """Return the folder's own project."""
        try:
            located = await self._memory.project_of(self._cwd)
        except StoreError:
            # The store reports by itself that it is unavailable.
            located = locate(self._cwd, (), now=utc_now())
        self._remember(located.project)
        return located

    async def project_of(self, session: Session) -> Project:
        """Return a session's project; if it is unknown, one made from the session's fields."""
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


def joined_text(main: Project) -> str:
    """Return the notice about a worktree whose memory is now shared with its repository."""
    return (
        f"This folder is a worktree of {visible(main.path)}: from now on, they share one memory. "
        "`ragmem sessions split` here undoes it."
    )


def moved_text(located: Located) -> str:
    """Return the notice about a folder that was taken for a moved project; else empty."""
    if not located.moved_from:
        return ""
    return (
        f"This folder is treated as the project that was at {located.moved_from}: it has the same "
        f"{'remote' if has_remote(located.project) else 'first commit'}, and that folder no longer "
        "exists. Its memory continues here; `ragmem sessions list --project` shows its sessions."
    )


_READ_LIMIT = 1024 * 1024
"""Bytes of one file that are read; the context's own budget cuts further."""
_FOLLOWED = re.compile(r"^[ \t]*(?:[-*][ \t]+)?@([^\s@]+)[ \t]*$", re.MULTILINE)
_MOST_DEPTH, _MOST_FILES = 5, 30


class Instructions(msgspec.Struct, frozen=True):
    """A project's instructions for an agent: text for the model, never configuration."""

    text: str
    files: tuple[Path, ...]


NO_INSTRUCTIONS = Instructions("", ())


def find_instructions(cwd: Path, project: Path, own: Path | None = None) -> Instructions:
    """Return the instructions for a folder: the user's `own` file, then one file per folder.

    That is AGENTS.md, or else CLAUDE.md, from the project's top down. Files named by a line with
    nothing but `@file` are included, if they are inside the project.
    """
    folders = [f for f in (cwd, *cwd.parents) if f == project or f.is_relative_to(project)]
    found: dict[Path, str] = {}
    if own is not None:
        _add_instructions(own, own.parent, found)
    count = len(found)
    for folder in reversed(folders or [cwd]):
        for name in ("AGENTS.md", "CLAUDE.md"):
            if _add_instructions(folder / name, project, found):
                break
    # A file could imitate the heading of another; it can't know the mark, which is derived later.
    mark = mark_for("\n".join(found.values()))
    blocks = []
    for number, (file, text) in enumerate(found.items()):
        name = file.name if number < count else os.path.relpath(file, project)
        whose = "the user's own " if number < count else ""
        blocks.append(f"# From {whose}{quoted(name)} [{mark}]\n\n{text}")
    return Instructions("\n\n".join(blocks), tuple(found))


def _add_instructions(file: Path, inside: Path, found: dict[Path, str], depth: int = 0) -> bool:
    """Add a file's text to `found`, then those of the files that it includes; false if empty."""
    text = _read(file, inside)
    if not text or not text.strip():
        return False
    if file not in found:
        found[file] = visible(text.strip())
        for name in _FOLLOWED.findall(text) if depth < _MOST_DEPTH else ():
            named = Path(os.path.normpath(file.parent / name))
            if len(found) < _MOST_FILES and sum(map(len, found.values())) < _READ_LIMIT:
                _add_instructions(named, inside, found, depth + 1)
    return True


def _read(file: Path, project: Path) -> str | None:
    """Read a regular file inside the project; None for a symlink out of it, a FIFO or a device."""
    real = _real(file)
    if real is None or not real.is_relative_to(project):
        return None
    data = _bytes_of(real, _READ_LIMIT, os.O_NOFOLLOW)
    return None if data is None else data.decode("utf-8-sig", "replace")


# --- reading a folder's `.git`, without running git ---------------------------------------
#
# Whoever created a folder controls its `.git`. So a folder counts as a repository's worktree only
# if the repository names that folder too, as git does in its `worktrees` folder
# (gitrepository-layout(5)).

_CONFIG_LIMIT = 256 * 1024
"""Bytes of `.git/config` that are read."""
_LINK_LIMIT = 8 * 1024
"""Bytes of a file that names a folder; on Linux, a path has at most 4,096."""

_HEAD_LIMIT = 300
_HEAD = re.compile(r"ref: refs/heads/([^\s\x00-\x20\x7f~^:?*\[\\]{1,200})\n?|([0-9a-f]{40,64})\n?")


def main_checkout(folder: Path) -> Path | None:
    """Return the main checkout of the repository that a folder is a worktree of; None for others.

    For a bare repository it is the repository's own folder.
    """
    if (git := _folder_named(folder / ".git", "gitdir:")) is None:
        return None
    common = _folder_named(git / "commondir")
    if common is None or git.parent != common / "worktrees":
        return None
    back = _folder_named(git / "gitdir", resolve=False)
    if back is None or back.name != ".git" or _real(back.parent) != _real(folder):
        return None
    return common.parent if common.name == ".git" else common


def read_remote(root: Path) -> str | None:
    """Return the URL of `origin` in `.git/config` without user information; None without one."""
    text = _bytes_of(root / ".git" / "config", _CONFIG_LIMIT)
    section = ""
    for line in (text or b"").decode("utf-8", "replace").split("\n"):
        if header := re.match(r"\s*\[(.+?)\]", line):
            section = header[1]
        elif section == 'remote "origin"' and (url := re.match(r"\s*url\s*=\s*(\S+)", line)):
            plain, _, _ = url[1].replace('"', "").partition("?")
            return redact(re.sub(r"^(\w[\w+.-]*://)(?:[^/]*@)?", r"\1", plain))
    return None


_FIRST = re.compile(rb"0{40,64} ([0-9a-f]{40,64}) [^\n]*?\tcommit \(initial\):")
"""Matches the reflog's first line in a repository made by `git init`; a clone's names the commit
that was cloned, which other clones have too."""
_FIRST_LIMIT = 2048
"""Bytes of the reflog that are read; its first line includes the committer's name and address."""
_FIRST_COMMIT = "commit:"


def origin_of(root: Path) -> str | None:
    """Return what identifies a checkout wherever it is moved; None if there is nothing.

    That is its remote, or else the first commit if it was made there, as `commit:<id>`.
    """
    return next(iter(_identities_of(root)), None)


def _identities_of(root: Path) -> list[str]:
    first = _FIRST.match(_bytes_of(root / ".git" / "logs" / "HEAD", _FIRST_LIMIT) or b"")
    commit = f"{_FIRST_COMMIT}{first[1].decode()}" if first else ""
    return [sign for sign in (read_remote(root), commit) if sign]


def has_remote(project: Project) -> bool:
    """Whether a project is identified by a remote, rather than by its first commit."""
    return project.remote is not None and not project.remote.startswith(_FIRST_COMMIT)


def read_branch(folder: Path) -> str:
    """Return a checkout's branch, or the commit of a detached HEAD; empty without either."""
    git = _folder_named(folder / ".git", "gitdir:") or folder / ".git"
    head = (_bytes_of(git / "HEAD", _HEAD_LIMIT) or b"").decode("utf-8", "replace")
    found = _HEAD.fullmatch(head)
    return (found[1] or found[2][:12]) if found else ""


def _folder_named(file: Path, head: str = "", *, resolve: bool = True) -> Path | None:
    """Return the folder that a file of git names, relative to the file; None if it names none."""
    text = os.fsdecode(_bytes_of(file, _LINK_LIMIT + 1) or b"")
    if not text.startswith(head) or len(text) > _LINK_LIMIT:
        return None
    name = text.removeprefix(head).strip(" \t").rstrip("\r\n")
    if not name or "\0" in name or "\n" in name:
        return None
    named = file.parent / name
    return _real(named) if resolve else named


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None


def _bytes_of(file: Path, limit: int, flags: int = 0) -> bytes | None:
    """Return up to `limit` bytes of a regular file; None for a FIFO, a device or an error."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except (OSError, ValueError):
        return None
    try:
        return os.read(fd, limit) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(fd)
