"""A file from the disk, as the rows that it becomes in the index.

Opened component by component without following links: what is swapped in between the listing and
the reading is refused, so that nothing outside of the project is ever read.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from ragmem.codeindex.values import Cut
from ragmem.records import ScopeKind
from ragmem.redact import redact_lines
from ragmem.text import clean

_O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOKED_AT = 8192
"""Bytes at a file's start: one with a NUL there is no text."""
_RACY_NS = 2_000_000_000

Unread = Literal["vanished", "unreadable", "not a regular file", "too large"]


class ScopeRow(msgspec.Struct, frozen=True, array_like=True):
    """A scope with its words."""

    kind: ScopeKind
    name: str
    qualified_name: str
    signature: str
    docstring: str
    start_line: int
    end_line: int
    hash: str
    calls: tuple[str, ...]
    names: str
    paths: str
    about: str
    body: str
    length: int
    embedded: str
    embed_hash: str


class FileRow(msgspec.Struct, frozen=True, array_like=True):
    """A file that was read, or could not be."""

    path: str
    unread: Unread | None = None
    """Why there is nothing of it."""
    size: int = 0
    mtime_ns: int = 0
    seen_ns: int = 0
    hash: str = ""
    left_out: str = ""
    """Why it is not cut though it was read; empty when it is."""
    language: str = ""
    line_count: int = 0
    imports: tuple[str, ...] = ()
    scopes: tuple[ScopeRow, ...] = ()


class Content(msgspec.Struct, frozen=True):
    """A file's bytes, and how it stood when they were read."""

    data: bytes
    size: int
    mtime_ns: int
    seen_ns: int

    @property
    def hash(self) -> str:
        """Of the bytes."""
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()


class NotRead(Exception):
    """A file can't be read; `why` says so in a word or two."""

    def __init__(self, why: Unread) -> None:
        super().__init__(why)
        self.why: Unread = why


def is_racy(mtime_ns: int, seen_ns: int) -> bool:
    """Whether it may have changed after it was read without a sign of it: the clock ticks."""
    return abs(seen_ns - mtime_ns) < _RACY_NS


def read(root: int, path: str, most: int) -> Content:
    """The bytes of a file below the folder that a descriptor holds; NotRead where that fails."""
    try:
        with _opened(root, path) as handle:
            seen_ns = time.time_ns()
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise NotRead("not a regular file")
            if found.st_size > most:
                raise NotRead("too large")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotRead("vanished") from None
    except (OSError, ValueError):
        raise NotRead("unreadable") from None
    if len(data) > most:
        raise NotRead("too large")
    return Content(data, found.st_size, found.st_mtime_ns, seen_ns)


@contextmanager
def _opened(root: int, path: str) -> Iterator[int]:
    *folders, name = path.split("/")
    here = root
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=here)
            if here != root:
                os.close(here)
            here = below
        handle = os.open(name, _FILE, dir_fd=here)
    finally:
        if here != root:
            os.close(here)
    try:
        yield handle
    finally:
        os.close(handle)


def rows_of(root: int, paths: Sequence[str], most: int) -> list[FileRow]:
    """These files, read, cut and worded."""
    return [row_of(root, path, most) for path in paths]


def row_of(root: int, path: str, most: int) -> FileRow:
    """One file; never raises for what is in it."""
    try:
        content = read(root, path, most)
    except NotRead as error:
        return FileRow(path, error.why)
    if is_binary(content.data):
        return _left_out(path, content, "binary")
    return cut_row(path, content)


def cut_row(path: str, content: Content) -> FileRow:
    """The rows of what was read."""
    from ragmem.codeindex.cutting import cut

    found = cut(path, without_secrets(content.data))
    if found.generated:
        return _left_out(path, content, "generated")
    return FileRow(
        path,
        size=content.size,
        mtime_ns=content.mtime_ns,
        seen_ns=content.seen_ns,
        hash=content.hash,
        language=found.language,
        line_count=found.line_count,
        imports=tuple(map(clean, found.imports)),
        scopes=tuple(_scope_rows(path, found)),
    )


def _left_out(path: str, content: Content, why: str) -> FileRow:
    return FileRow(
        path,
        size=content.size,
        mtime_ns=content.mtime_ns,
        seen_ns=content.seen_ns,
        hash=content.hash,
        left_out=why,
    )


def is_binary(data: bytes) -> bool:
    """Whether it is no text."""
    return b"\0" in data[:_LOOKED_AT]


def without_secrets(data: bytes) -> bytes:
    """The file with its lines, less its secrets: before it is cut, or half of one would be left."""
    text = data.decode("utf-8", "replace")
    redacted = redact_lines(text)
    return data if redacted == text else redacted.encode("utf-8", "replace")


def _scope_rows(path: str, found: Cut) -> Iterator[ScopeRow]:
    from ragmem.codeindex.vectors import embed_hash
    from ragmem.codeindex.wording import worded

    for scope in found.scopes:
        words = worded(path, found.language, scope)
        embedded = clean(words.embedded)
        yield ScopeRow(
            scope.kind,
            clean(scope.name),
            clean(scope.qualified_name),
            clean(scope.signature),
            clean(scope.docstring),
            scope.start_line,
            scope.end_line,
            scope.hash,
            tuple(map(clean, scope.calls)),
            clean(words.names),
            clean(words.paths),
            clean(words.about),
            clean(words.body),
            words.length,
            embedded,
            embed_hash(embedded),
        )
