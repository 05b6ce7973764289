"""A project's instructions: AGENTS.md from its top folder down to the CWD, else CLAUDE.md."""

import os
import stat
from pathlib import Path

import msgspec

from ragmem.text import on_one_line

_READ_LIMIT = 1024 * 1024
"""Bytes of one file that are read; the context's own budget cuts further."""


class Instructions(msgspec.Struct, frozen=True):
    """What the project tells an agent; text for the model, never configuration."""

    text: str
    files: tuple[Path, ...]


NO_INSTRUCTIONS = Instructions("", ())


def find_instructions(cwd: Path, project: Path) -> Instructions:
    """Each folder's AGENTS.md, outermost first; where it has none, its CLAUDE.md."""
    folders = [f for f in (cwd, *cwd.parents) if f == project or f.is_relative_to(project)]
    texts, files = [], []
    for folder in reversed(folders or [cwd]):
        for name in ("AGENTS.md", "CLAUDE.md"):
            text = _read(folder / name, project)
            if text and text.strip():
                where = on_one_line(os.path.relpath(folder / name, project))
                texts.append(f"# From {where}\n\n{text.strip()}")
                files.append(folder / name)
                break
    return Instructions("\n\n".join(texts), tuple(files))


def _read(file: Path, project: Path) -> str | None:
    """Regular files inside the project only: a link that leads out, a FIFO or a device is none."""
    try:
        real = file.resolve(strict=True)
        if not real.is_relative_to(project):
            return None
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as stream:
            return stream.read(_READ_LIMIT).decode("utf-8", "replace")
    finally:
        os.close(fd)
