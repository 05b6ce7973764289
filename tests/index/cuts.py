"""Indexes of scopes that a test makes up, written as a refresh writes them."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw

from ragmem.index import CodeHit, CutScope, vectors
from ragmem.index.database import open_for_writing, transaction
from ragmem.index.rows import FileRow, scope_row
from ragmem.index.scan import ScopeWriter
from ragmem.index.search import CodeQuestion, search
from ragmem.index.vectors import ScopeVectors, embed_hash
from ragmem.records import ScopeKind

MODEL = "test-model"
DIMENSION = 4


def function(
    name: str,
    text: str = "",
    *,
    docstring: str = "",
    calls: Sequence[str] = (),
    kind: ScopeKind = "function",
    line: int = 1,
) -> CutScope:
    """A scope whose lines say no more than they must; of a method the qualified name is given."""
    last = name.rsplit(".", 1)[-1].split("#")[0]
    said = text or f"def {last}(): pass"
    return CutScope(
        kind=kind,
        name="" if kind in ("block", "text") else last,
        qualified_name=name,
        signature=f"def {last}()" if kind in ("function", "method") else "",
        docstring=docstring,
        start_line=line,
        end_line=line + said.count("\n"),
        text=said,
        calls=tuple(calls),
        hash=embed_hash(f"{name} {said}"),
    )


def row(
    path: str, scopes: Sequence[CutScope], imports: Sequence[str] = (), language: str = "python"
) -> FileRow:
    """A file that has these scopes."""
    rows = tuple(scope_row(path, language, each) for each in scopes)
    return FileRow(path, hash="h", language=language, scopes=rows, imports=tuple(imports))


def a_hit(
    *why: str,
    path: str = "a.py",
    lines: tuple[int, int] = (1, 2),
    similarity: float | None = None,
) -> CodeHit:
    """A function that a search has found, by this."""
    return CodeHit(
        scope_id="s", kind="function", path=path, name="parse", qualified_name="Text.parse",
        signature="", docstring="", start_line=lines[0], end_line=lines[1], score=1.0,
        similarity=similarity, why=why,
    )  # fmt: skip


class Index:
    """The file of an index, and what a search over it keeps in memory."""

    def __init__(self, folder: Path, files: Mapping[str, Sequence[CutScope]] = {}) -> None:
        self.connection: apsw.Connection = open_for_writing(folder / "index.sqlite")
        self.resident = ScopeVectors()
        self.put(files)

    @property
    def qualified_names(self) -> dict[int, str]:
        """Of each scope, by its number."""
        return dict(self.connection.execute("SELECT scope, qualified_name FROM scopes"))

    def put(self, files: Mapping[str, Sequence[CutScope]]) -> None:
        """These files are so now."""
        writer = ScopeWriter(self.connection, "project")
        with writer.transaction():
            for path, scopes in files.items():
                writer.put(row(path, scopes))

    def remove(self, *paths: str) -> None:
        """These files are no more."""
        writer = ScopeWriter(self.connection, "project")
        with writer.transaction():
            for path in paths:
                writer.remove(path)

    def import_file(self, path: str, imported: str) -> None:
        """An edge, as resolving writes it."""
        self.connection.execute(
            "INSERT INTO imports SELECT file, ? FROM files WHERE path = ?", (imported, path)
        )

    def embed(self, numbers: Mapping[str, Sequence[float]], model: str = MODEL) -> None:
        """Vectors of the scopes with these qualified names, made by that model."""
        with transaction(self.connection):
            vectors.use_embedder(self.connection, model, DIMENSION)
            rows = [(self.embed_hash(name), vector_of(given)) for name, given in numbers.items()]
            vectors.put(self.connection, (model, DIMENSION), rows)

    def embed_hash(self, qualified_name: str) -> str:
        """By which the vector of a scope is kept."""
        found = self.connection.execute(
            "SELECT embed_hash FROM scopes WHERE qualified_name = ?", (qualified_name,)
        ).get
        return str(found)

    def ask(
        self,
        text: str,
        *,
        vector: Sequence[float] = (),
        limit: int = 10,
        near: Sequence[str] = (),
        model: str = MODEL,
    ) -> list[CodeHit]:
        """What a search finds."""
        question = CodeQuestion(
            text=text,
            vector=vector_of(vector) if vector else b"",
            embedder=model if vector else "",
            limit=limit,
            near=frozenset(near),
        )
        return search(self.connection, question, self.resident)

    def names(self, text: str, *, limit: int = 10) -> list[str]:
        """The qualified names that a search by words finds."""
        return [hit.qualified_name for hit in self.ask(text, limit=limit)]


def vector_of(numbers: Sequence[float]) -> bytes:
    """As an embedder gives it: float32."""
    return struct.pack(f"<{len(numbers)}f", *numbers)
