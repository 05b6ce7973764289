"""Rows of files put into the index, and taken out: the writing half of a refresh."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

import apsw
import msgspec

from ragmem.codeindex import moves, vectors
from ragmem.codeindex.database import raise_epoch
from ragmem.codeindex.identity import Known, assign, follow, known_of, scope_id_of
from ragmem.codeindex.reading import FileRow, ScopeRow
from ragmem.codeindex.wording import numbered


class _Old(NamedTuple):
    """A scope as it is in the index."""

    scope: int
    scope_id: str
    kind: str
    name: str
    qualified_name: str
    signature: str
    docstring: str
    start_line: int
    end_line: int
    hash: str
    term_count: int
    embed_hash: str

    @property
    def known(self) -> Known:
        """What it goes by."""
        return known_of(self)

    def says_the_same(self, row: ScopeRow) -> bool:
        """Whether all that is indexed of it would be the same: only its lines may be others."""
        return (
            self.known == known_of(row)
            and self.signature == row.signature
            and self.docstring == row.docstring
            and self.term_count == row.length
            and self.embed_hash == row.embed_hash
        )


class Filing:
    """What one refresh changes, transaction by transaction; `follow_moved` in the last."""

    def __init__(self, connection: apsw.Connection, project_id: str, now: datetime) -> None:
        self.changed: list[str] = []
        self.removed: list[str] = []
        self.unread: list[FileRow] = []
        """Of files that could not be read, or are left out for what is in them."""
        self._connection = connection
        self._project_id = project_id
        self._now = now
        self._vanished: dict[str, Known] = {}
        self._fresh: list[tuple[int, Known]] = []
        self._is_first = not connection.execute("SELECT sequence FROM state").get
        self._epoch = self._sequence = self._documents = self._terms = 0

    def put(self, rows: Iterable[FileRow]) -> None:
        """Files as they were read; in the caller's transaction."""
        self._begin()
        for row in rows:
            self._put(row)
        self._end()

    def remove(self, paths: Iterable[str]) -> None:
        """Files that are no more; in the caller's transaction."""
        self._begin()
        for path in paths:
            self._remove(path)
        self._end()

    def follow_moved(self) -> None:
        """Give scopes that went elsewhere their ids back; in the caller's transaction."""
        self._give(dict(follow(self._vanished.items(), self._fresh)))
        moves.forget(self._connection, self._now)
        self._give(dict(follow(*moves.lately(self._connection))))

    def _give(self, moved: Mapping[int, str]) -> None:
        if not moved:
            return
        epoch = raise_epoch(self._connection)
        for scope, scope_id in moved.items():
            if self._is_taken(scope_id):
                continue
            self._connection.execute(
                "UPDATE scopes SET scope_id = ? WHERE scope = ?", (scope_id, scope)
            )
            self._connection.execute(
                "UPDATE files SET to_mirror = ?"
                " WHERE file = (SELECT file FROM scopes WHERE scope = ?)",
                (epoch, scope),
            )

    def _begin(self) -> None:
        self._epoch = raise_epoch(self._connection)
        self._sequence = int(str(self._connection.execute("SELECT sequence FROM state").get))
        self._documents = self._terms = 0

    def _end(self) -> None:
        self._connection.execute(
            "UPDATE state SET sequence = ?, document_count = document_count + ?,"
            " term_count = term_count + ?",
            (self._sequence, self._documents, self._terms),
        )

    def _put(self, row: FileRow) -> None:
        if row.unread is not None:
            self.unread.append(row)
            self._remove(row.path)
            return
        before = self._connection.execute(
            "SELECT left_out FROM files WHERE path = ?", (row.path,)
        ).fetchone()
        was_indexed = before is not None and before[0] == ""
        file = self._put_file(row)
        self._put_scopes(file, row)
        if row.left_out:
            self.unread.append(row)
            if was_indexed:
                self.removed.append(row.path)
                self._tell_gone(row.path)
            return
        self.changed.append(row.path)
        if not self._is_first:
            self._connection.execute("DELETE FROM gone WHERE path = ?", (row.path,))

    def _put_file(self, row: FileRow) -> int:
        found = self._connection.execute(
            "INSERT INTO files (path, size, mtime_ns, seen_ns, hash, language, line_count,"
            " left_out, written, resolved, to_mirror)"
            " VALUES (:path, :size, :mtime_ns, :seen_ns, :hash, :language, :line_count,"
            " :left_out, :written, 0, :to_mirror)"
            " ON CONFLICT (path) DO UPDATE SET size = excluded.size,"
            " mtime_ns = excluded.mtime_ns, seen_ns = excluded.seen_ns, hash = excluded.hash,"
            " language = excluded.language, line_count = excluded.line_count,"
            " left_out = excluded.left_out, written = excluded.written,"
            " resolved = resolved AND written = excluded.written,"
            " to_mirror = excluded.to_mirror RETURNING file",
            {
                "path": row.path,
                "size": row.size,
                "mtime_ns": row.mtime_ns,
                "seen_ns": row.seen_ns,
                "hash": row.hash,
                "language": row.language,
                "line_count": row.line_count,
                "left_out": row.left_out,
                "written": msgspec.json.encode(row.imports).decode(),
                "to_mirror": 0 if row.left_out else self._epoch,
            },
        ).get
        return int(str(found))

    def _put_scopes(self, file: int, row: FileRow) -> None:
        old = [] if self._is_first else self._scopes_of(file)
        assigned = assign([each.known for each in old], [known_of(each) for each in row.scopes])
        self._drop([old[place] for place in assigned.vanished])
        self._note_vanished([old[place] for place in assigned.vanished])
        replaced = {
            new: old[place].scope_id
            for new, place in assigned.kept.items()
            if not old[place].says_the_same(row.scopes[new])
        }
        self._drop([old[assigned.kept[new]] for new in replaced])
        for new, place in assigned.kept.items():
            scope, was = row.scopes[new], old[place]
            lines = (scope.start_line, scope.end_line)
            if new not in replaced and lines != (was.start_line, was.end_line):
                self._connection.execute(
                    "UPDATE scopes SET start_line = ?, end_line = ? WHERE scope = ?",
                    (*lines, was.scope),
                )
        self._insert(
            file, row.path, [(n, replaced.get(n)) for n in [*replaced, *assigned.fresh]], row
        )

    def _scopes_of(self, file: int) -> list[_Old]:
        return [
            _Old(*found)
            for found in self._connection.execute(
                "SELECT scope, scope_id, kind, name, qualified_name, signature, docstring,"
                " start_line, end_line, hash, term_count, embed_hash FROM scopes"
                " WHERE file = ? ORDER BY start_line, scope",
                (file,),
            )
        ]

    def _insert(
        self, file: int, path: str, chosen: Sequence[tuple[int, str | None]], row: FileRow
    ) -> None:
        scopes: list[tuple[int | str, ...]] = []
        texts: list[tuple[int | str, ...]] = []
        calls: list[tuple[str, int]] = []
        fresh: list[tuple[int, Known]] = []
        # Those that are kept are out of the table for now.
        given = {kept_id for _, kept_id in chosen if kept_id}
        for place, kept_id in sorted(chosen):
            each = row.scopes[place]
            known = known_of(each)
            self._sequence += 1
            scope = numbered(self._sequence, each.length)
            scope_id = kept_id or scope_id_of(
                self._project_id,
                path,
                known,
                is_taken=partial(self._is_anothers, given, known),
            )
            given.add(scope_id)
            if kept_id is None and not self._is_first:
                fresh.append((scope, known))
            scopes.append(
                (
                    scope, scope_id, file, each.kind, each.name, each.qualified_name,
                    each.signature, each.docstring, each.start_line, each.end_line, each.hash,
                    each.name.casefold(), each.length, each.embed_hash,
                )
            )  # fmt: skip
            texts.append((scope, each.names, each.paths, each.about, each.body))
            calls += [(name, scope) for name in {call.casefold() for call in each.calls}]
            self._documents += 1
            self._terms += each.length
        if not scopes:
            return
        many = self._connection.executemany
        many(f"INSERT INTO scopes VALUES ({', '.join('?' * 14)})", scopes)
        many("INSERT INTO texts (rowid, names, paths, about, body) VALUES (?, ?, ?, ?, ?)", texts)
        many("INSERT INTO calls (name_key, scope) VALUES (?, ?)", calls)
        self._fresh += fresh
        moves.note_came(self._connection, fresh, self._now)
        vectors.want(
            self._connection,
            [(row.scopes[n].embed_hash, row.scopes[n].embedded) for n, _ in chosen],
        )

    def _is_anothers(self, given: Collection[str], known: Known, scope_id: str) -> bool:
        """Whether a new scope can't have that id, lest it gets the history of another one."""
        if self._is_first:
            return scope_id in given
        return (
            scope_id in given
            or scope_id in self._vanished
            or self._is_taken(scope_id)
            or moves.went_by_another_name(self._connection, scope_id, known)
        )

    def _is_taken(self, scope_id: str) -> bool:
        found = self._connection.execute("SELECT 1 FROM scopes WHERE scope_id = ?", (scope_id,))
        return found.get is not None

    def _note_vanished(self, scopes: Iterable[_Old]) -> None:
        went = {each.scope_id: each.known for each in scopes}
        self._vanished |= went
        moves.note_went(self._connection, went.items(), self._now)

    def _drop(self, scopes: Sequence[_Old]) -> None:
        keys = [(each.scope,) for each in scopes]
        for table, column in (("texts", "rowid"), ("calls", "scope"), ("scopes", "scope")):
            self._connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", keys)
        self._documents -= len(scopes)
        self._terms -= sum(each.term_count for each in scopes)

    def _remove(self, path: str) -> None:
        found = self._connection.execute(
            "SELECT file, left_out FROM files WHERE path = ?", (path,)
        ).fetchone()
        if found is None:
            return
        file, left_out = int(str(found[0])), found[1]
        old = self._scopes_of(file)
        self._drop(old)
        self._note_vanished(old)
        self._connection.execute("DELETE FROM imports WHERE file = ?", (file,))
        self._connection.execute("DELETE FROM files WHERE file = ?", (file,))
        if not left_out:
            self.removed.append(path)
            self._tell_gone(path)

    def _tell_gone(self, path: str) -> None:
        self._connection.execute("INSERT OR IGNORE INTO gone (path) VALUES (?)", (path,))
