"""Baselines for code search: ripgrep, BM25 over lines, and the nearest vectors.

They find scopes as the index has cut them, an advantage that ripgrep alone would not have.
"""

import bisect
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import apsw
import numpy as np

from ragmem.children import find_ripgrep
from ragmem.index.vectors import ScopeVectors
from ragmem.terms import STOP_WORDS

_WORD = re.compile(r"[A-Za-z_]\w+")


class Hit(NamedTuple):
    """A scope that a search has found."""

    path: str
    qualified_name: str


class Plain:
    """The baselines over the scopes of one index."""

    def __init__(self, root: Path, database: Path, model_id: str) -> None:
        self._root, self._model_id = root, model_id
        self._connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        self._resident = ScopeVectors()
        self._lines = apsw.Connection(":memory:")
        self._lines.execute("CREATE VIRTUAL TABLE lines USING fts5 (text)")
        self._hits: dict[int, Hit] = {}
        self._by_path: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self._read()

    def __enter__(self) -> "Plain":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._lines.close()

    def _read(self) -> None:
        texts: dict[str, list[str]] = {}
        rows = self._connection.execute(
            "SELECT s.scope, f.path, s.qualified_name, s.start_line, s.end_line FROM scopes AS s"
            " JOIN files AS f USING (file) ORDER BY f.path, s.start_line, s.end_line DESC"
        )
        with self._lines:
            for scope, path, name, start, end in rows:
                if path not in texts:
                    source = (self._root / str(path)).read_text("utf-8", "replace")
                    texts = {str(path): source.splitlines()}
                self._hits[int(str(scope))] = Hit(str(path), str(name))
                self._by_path[str(path)].append((int(str(start)), int(str(end)), int(str(scope))))
                said = "\n".join(texts[str(path)][int(str(start)) - 1 : int(str(end))])
                self._lines.execute(
                    "INSERT INTO lines (rowid, text) VALUES (?, ?)", (scope, f"{path}\n{said}")
                )

    @property
    def scopes(self) -> int:
        """Return the number of scopes."""
        return len(self._hits)

    @property
    def files(self) -> int:
        """Return the number of files with scopes."""
        return len(self._by_path)

    def by_vector(self, vector: bytes, limit: int) -> list[Hit]:
        """Return the scopes with the nearest vectors."""
        scopes, cosines = self._resident.similarities(self._connection, vector, self._model_id)
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [self._hits[scope] for scope in scopes[best].tolist()]

    def by_bm25(self, question: str, limit: int) -> list[Hit]:
        """Return scopes with any of the words, by FTS5's BM25 over path and lines as one field."""
        words = " OR ".join(f'"{word}"' for word in _words(question))
        found = self._lines.execute(
            "SELECT rowid FROM lines WHERE lines MATCH ? ORDER BY rank LIMIT ?", (words, limit)
        )
        return [self._hits[int(str(scope))] for (scope,) in found]

    def by_ripgrep(self, question: str, limit: int) -> list[Hit]:
        """Return the scopes with the most words of the question; of equals, the shortest."""
        asked = [part for word in _words(question) for part in ("-e", word)]
        done = subprocess.run(
            [
                str(find_ripgrep()),
                "--no-config",
                "-o",
                "-n",
                "-i",
                "-w",
                "-F",
                "--null",
                *asked,
                ".",
            ],
            cwd=self._root,
            capture_output=True,
        )
        held: dict[int, set[bytes]] = defaultdict(set)
        sizes: dict[int, int] = {}
        for line in done.stdout.splitlines():
            path, _, rest = line.partition(b"\0")
            number, _, word = rest.partition(b":")
            found = self._innermost(path.decode().removeprefix("./"), int(number))
            if found is not None:
                start, end, scope = found
                held[scope].add(word.lower())
                sizes[scope] = end - start
        best = sorted(held, key=lambda scope: (-len(held[scope]), sizes[scope], scope))
        return [self._hits[scope] for scope in best[:limit]]

    def _innermost(self, path: str, line: int) -> tuple[int, int, int] | None:
        scopes = self._by_path.get(path, [])
        place = bisect.bisect_right(scopes, (line, 1 << 60, 0)) - 1
        while place >= 0:
            if scopes[place][1] >= line:
                return scopes[place]
            place -= 1
        return None


def _words(question: str) -> list[str]:
    words = dict.fromkeys(word.lower() for word in _WORD.findall(question))
    return [word for word in words if word not in STOP_WORDS["english"]] or ["nothing"]
