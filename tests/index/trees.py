"""Folders of source files for the tests of the index, and indexes of them."""

import os
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from ragmem.files import lock
from ragmem.index import scan
from ragmem.index.database import database_of
from ragmem.index.index import CodeIndex
from ragmem.index.rows import FileRow
from ragmem.records import Project, utc_now

PROJECT_ID = "11111111-1111-4111-8111-111111111111"

AUTH = '''\
"""Who may come in."""


class AuthService:
    """Checks tokens."""

    def validate(self, token: str) -> bool:
        """Whether a token has not expired yet."""
        return self.lookup(token) is not None

    def lookup(self, token: str) -> str | None:
        """The person of a token."""
        return token or None


def login(name: str) -> AuthService:
    """Let a person in by the name."""
    return AuthService()
'''

CLOCK = '''\
def parse_duration(text: str) -> float:
    """Seconds of a text like `5m`."""
    return float(text[:-1]) * 60
'''


class Tree:
    """A project's folder, and ragmem's own beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.data_dir = folder / "data"
        self.root.mkdir(parents=True)

    @property
    def database(self) -> Path:
        """The index."""
        return database_of(self.data_dir, PROJECT_ID)

    def write(self, path: str, text: str | bytes) -> Path:
        """A file, with the folders that it is in."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        file.write_bytes(data)
        return file

    def many(self, count: int, *, times: int = 1) -> list[str]:
        """Files with a function each, so many times; their paths."""
        paths = [f"f{number}.py" for number in range(count)]
        for number, path in enumerate(paths):
            self.write(path, f"def function_{number}(a):\n    return a + {number}\n" * times)
        return paths

    @asynccontextmanager
    async def index(self, **settings: Any) -> AsyncIterator[CodeIndex]:
        """An index of the folder, with settings of the constructor; closed at the end."""
        project = Project(project_id=PROJECT_ID, path=str(self.root), created_at=utc_now())
        index = CodeIndex(project, self.database, **settings)
        try:
            yield index
        finally:
            await index.aclose()

    @asynccontextmanager
    async def indexed(self, **settings: Any) -> AsyncIterator[CodeIndex]:
        """The same, brought up to date; where it has a store, that knows it too."""
        async with self.index(**settings) as index:
            await index.refresh()
            assert await index.mirror() is ("open_store" in settings)
            yield index

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What is in the file of the index."""
        connection = apsw.Connection(str(self.database))
        try:
            return list(connection.execute(query))
        finally:
            connection.close()

    def ids(self) -> dict[tuple[str, str], str]:
        """Of each scope with a name, by path and qualified name."""
        return {
            (str(path), str(name)): str(scope_id)
            for path, name, scope_id in self.rows(
                "SELECT f.path, s.qualified_name, s.scope_id FROM scopes AS s"
                " JOIN files AS f USING (file) WHERE s.kind NOT IN ('block', 'text')"
            )
        }

    def sound(self) -> None:
        """That what belongs together is together."""
        (checked,) = self.rows("PRAGMA integrity_check")
        assert checked == ("ok",)
        ((documents, terms, scopes, summed, texts, orphans),) = self.rows(
            "SELECT document_count, term_count, (SELECT count(*) FROM scopes),"
            " (SELECT coalesce(sum(term_count), 0) FROM scopes), (SELECT count(*) FROM texts),"
            " (SELECT count(*) FROM scopes WHERE file NOT IN"
            "   (SELECT file FROM files WHERE left_out = ''))"
            " + (SELECT count(*) FROM calls WHERE scope NOT IN (SELECT scope FROM scopes))"
            " + (SELECT count(*) FROM imports WHERE file NOT IN (SELECT file FROM files))"
            " FROM state"
        )
        assert (documents, terms, texts, orphans) == (scopes, summed, scopes, 0)


@contextmanager
def held(database: Path, what: str) -> Iterator[None]:
    """The lock of this name beside an index is held, as another process does."""
    handle = lock(database.with_suffix(f".{what}.lock"), timeout_s=30)
    try:
        yield
    finally:
        os.close(handle)


def children() -> list[int]:
    """This process's children that cut files."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_text()
            if int(parent) == os.getpid() and "ragmem.index.rows" in command:
                found.append(int(folder.name))
    return found


def small(folder: Path) -> Tree:
    """Two files of code and a text."""
    made = Tree(folder)
    made.write("app/auth.py", AUTH)
    made.write("app/clock.py", CLOCK)
    made.write("README.md", "# Garden\n\nHow to grow things.\n\n## Install\n\nWater daily.\n")
    return made


@contextmanager
def held_up(patch: pytest.MonkeyPatch, *, after: int) -> Iterator[threading.Event]:
    """A refresh waits behind so many batches of files, until it is told to stop or to go on."""
    real, goes_on = scan.cut_files, threading.Event()

    def cut_files(
        root: int, paths: Sequence[str], *, most: int, stop: threading.Event
    ) -> Iterator[list[FileRow]]:
        batches = real(root, paths, most=most, stop=stop)
        yield from islice(batches, after)
        while not (stop.is_set() or goes_on.wait(0.02)):
            pass
        yield from batches

    with patch.context() as patched:
        patched.setattr(scan, "cut_files", cut_files)
        try:
            yield goes_on
        finally:
            goes_on.set()


async def names_found(index: CodeIndex, text: str) -> list[str]:
    """The qualified names that a search by words finds."""
    return [hit.qualified_name for hit in await index.search(text, semantic=False)]
