"""What a folder's `.git` says, read without running git, and believed only as far as it proves it.

Whoever made a folder chose what stands in its `.git`. So a folder belongs to a repository only
where that repository, at its own place, names the folder too, as git's `worktrees` folder does
(gitrepository-layout(5)).
"""

import os
import re
import stat
from pathlib import Path

_CONFIG_LIMIT = 256 * 1024
"""Bytes of `.git/config` that are read."""
_LINK_LIMIT = 8 * 1024
"""Bytes of a file that names a folder; Linux takes no path of more than 4,096."""

_HEAD_LIMIT = 300
_HEAD = re.compile(r"ref: refs/heads/([^\s\x00-\x20\x7f~^:?*\[\\]{1,200})\n?|([0-9a-f]{40,64})\n?")


def main_checkout(folder: Path) -> Path | None:
    """Return the top of the repository whose worktree a folder is; None where it is none.

    Of a bare repository it is that repository's own folder.
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
    text = _read(root / ".git" / "config", _CONFIG_LIMIT)
    section = ""
    for line in (text or b"").decode("utf-8", "replace").split("\n"):
        if header := re.match(r"\s*\[(.+?)\]", line):
            section = header[1]
        elif section == 'remote "origin"' and (url := re.match(r"\s*url\s*=\s*(\S+)", line)):
            return re.sub(r"^(\w[\w+.-]*://)[^/@]*@", r"\1", url[1])
    return None


def read_branch(folder: Path) -> str:
    """Return the branch that a checkout is on, of a detached head the commit; empty without one."""
    git = _folder_named(folder / ".git", "gitdir:") or folder / ".git"
    head = (_read(git / "HEAD", _HEAD_LIMIT) or b"").decode("utf-8", "replace")
    found = _HEAD.fullmatch(head)
    return (found[1] or found[2][:12]) if found else ""


def _folder_named(file: Path, head: str = "", *, resolve: bool = True) -> Path | None:
    """Return the folder that a file of git's names, seen from that file; None without one."""
    text = os.fsdecode(_read(file, _LINK_LIMIT + 1) or b"")
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
    except (OSError, RuntimeError):
        return None


def _read(file: Path, limit: int) -> bytes | None:
    """Return the beginning of a regular file; a FIFO or a device is none."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(fd, limit) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(fd)
