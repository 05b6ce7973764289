"""A project's instructions: AGENTS.md from its top folder down to the CWD, else CLAUDE.md."""

import os
import stat
from pathlib import Path

import msgspec

from ragmem.text import mark_for, quoted, visible

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
                texts.append(visible(text.strip()))
                files.append(folder / name)
                break
    # Without the mark, which nobody can know before the text is written, a file could go on as if
    # another one began.
    mark = mark_for("\n".join(texts))
    blocks = [
        f"# From {quoted(os.path.relpath(file, project))} [{mark}]\n\n{text}"
        for file, text in zip(files, texts, strict=True)
    ]
    return Instructions("\n\n".join(blocks), tuple(files))


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
            return stream.read(_READ_LIMIT).decode("utf-8-sig", "replace")
    finally:
        os.close(fd)
