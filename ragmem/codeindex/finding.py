"""Scopes found by where they are, and by what they are called."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

import apsw

from ragmem.codeindex.mirroring import SCOPE_COLUMNS, code_scope
from ragmem.codeindex.values import IndexStatus
from ragmem.records import CodeScope
from ragmem.store.code import FoundScope

_MOST_OF_A_NAME = 5
"""Scopes: a name that more have tells nothing."""
_LOOKED_THROUGH = 2_000


class Span(Protocol):
    """Lines of a file, 1-based and included."""

    @property
    def start_line(self) -> int:
        """The first."""
        ...

    @property
    def end_line(self) -> int:
        """The last."""
        ...


S = TypeVar("S", bound=Span)


def scopes_at(
    connection: apsw.Connection, path: str, lines: Sequence[tuple[int, int]]
) -> list[CodeScope]:
    """The innermost scopes of a file that these ranges (1-based, included) touch, in order."""
    scopes = [
        code_scope(row)
        for row in connection.execute(
            f"SELECT {SCOPE_COLUMNS} FROM scopes"
            " WHERE file = (SELECT file FROM files WHERE path = ?)"
            " ORDER BY start_line, end_line DESC, scope",
            (path,),
        )
    ]
    touched = {each.scope_id for first, last in lines for each in innermost(scopes, first, last)}
    return [scope for scope in scopes if scope.scope_id in touched]


def innermost(scopes: Sequence[S], first: int, last: int) -> Iterable[S]:
    """Of each line in the range the shortest scope that it is in."""
    near = [scope for scope in scopes if scope.start_line <= last and scope.end_line >= first]
    starts = {first, *(s.start_line for s in near), *(s.end_line + 1 for s in near)}
    # Between two of these lines the scopes are the same.
    for line in sorted(start for start in starts if first <= start <= last):
        around = [scope for scope in near if scope.start_line <= line <= scope.end_line]
        if around:
            yield min(around, key=lambda scope: scope.end_line - scope.start_line)


def scopes_named(
    connection: apsw.Connection, project_id: str, names: Collection[str]
) -> dict[str, list[FoundScope]]:
    """By each of the names those that are called so, by path and line."""
    found: dict[str, list[FoundScope]] = {}
    for name in dict.fromkeys(names):
        wanted = name.strip().casefold()
        scopes = [
            scope
            for scope in _of_last_name(connection, project_id, wanted.rpartition(".")[2])
            if _is_called(scope.scope, wanted)
        ]
        if 0 < len(scopes) <= _MOST_OF_A_NAME:
            found[name] = scopes
    return found


def _is_called(scope: CodeScope, wanted: str) -> bool:
    qualified = scope.qualified_name.casefold()
    return (
        scope.name.casefold() == wanted or qualified == wanted or qualified.endswith(f".{wanted}")
    )


def _of_last_name(connection: apsw.Connection, project_id: str, name_key: str) -> list[FoundScope]:
    if not name_key:
        return []
    columns = ", ".join(f"s.{column}" for column in SCOPE_COLUMNS.split(", "))
    rows = connection.execute(
        f"SELECT f.path, {columns} FROM scopes AS s JOIN files AS f USING (file)"
        " WHERE s.name_key = ? ORDER BY f.path, s.start_line LIMIT ?",
        (name_key, _LOOKED_THROUGH),
    )
    return [
        FoundScope(project_id=project_id, path=str(path), defined=True, scope=code_scope(row))
        for path, *row in rows
    ]


def neighbours(connection: apsw.Connection, path: str) -> tuple[list[str], list[str]]:
    """Files that it imports, and files that import it."""
    imports = connection.execute(
        "SELECT imported FROM imports JOIN files AS f USING (file) WHERE f.path = ?"
        " ORDER BY imported",
        (path,),
    ).fetchall()
    imported_by = connection.execute(
        "SELECT f.path FROM imports JOIN files AS f USING (file) WHERE imported = ?"
        " ORDER BY f.path",
        (path,),
    ).fetchall()
    return [str(each) for (each,) in imports], [str(each) for (each,) in imported_by]


def status(connection: apsw.Connection, *, path: str, size_bytes: int) -> IndexStatus:
    """What there is."""
    from ragmem.codeindex import vectors
    from ragmem.codeindex.refreshing import counts

    files, scopes, left_out = counts(connection)
    languages = Counter(
        {
            str(language): int(str(count))
            for language, count in connection.execute(
                "SELECT language, count(*) FROM files WHERE left_out = '' GROUP BY language"
            )
        }
    )
    return IndexStatus(
        path=path,
        files=files,
        scopes=scopes,
        languages=dict(languages.most_common()),
        left_out=left_out,
        without_vectors=vectors.waiting_count(connection),
        refreshed_at=str(connection.execute("SELECT refreshed_at FROM state").get),
        size_bytes=size_bytes,
    )


def known_of(connection: apsw.Connection, paths: Collection[str]) -> set[str]:
    """Which of these paths the index has, as files or as folders of some."""
    found = set()
    for path in paths:
        if connection.execute(
            "SELECT 1 FROM files WHERE path = ? OR (path > ? AND path < ?) LIMIT 1",
            (path, f"{path}/", f"{path}0"),
        ).get:
            found.add(path)
    return found
