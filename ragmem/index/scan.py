"""Refreshing the index from disk: only files that changed are read, cut and written.

A refresh runs in one thread, on a connection of its own. If it is killed or stopped, complete
transactions remain, and the next refresh does the rest.
"""

import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from ragmem.config import CodeConfig
from ragmem.index import Refreshed, vectors
from ragmem.index.database import column, raise_epoch, rows, transaction
from ragmem.index.files import (
    Content,
    FileStamp,
    NotRead,
    Resolver,
    list_project,
    opened_folder,
    read,
    stems_of,
)
from ragmem.index.mirror import imports_of, new_scope_id
from ragmem.index.rows import FileRow, cut_files
from ragmem.records import utc_now
from ragmem.similarity import with_length


class ScopeWriter:
    """Writes the changes of one refresh, and collects the paths that changed."""

    def __init__(self, connection: apsw.Connection, project_id: str) -> None:
        self.changed: list[str] = []
        self.removed: list[str] = []
        self.unread: list[FileRow] = []
        """Files that could not be read, or are left out because of their content."""
        self._connection = connection
        self._project_id = project_id
        self._epoch = self._sequence = self._documents = self._terms = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction, in a new epoch, and update the counts at its end."""
        with transaction(self._connection):
            self._epoch = raise_epoch(self._connection)
            self._sequence = self._connection.execute("SELECT sequence FROM state").get
            self._documents = self._terms = 0
            yield
            self._connection.execute(
                "UPDATE state SET sequence = ?, document_count = document_count + ?,"
                " term_count = term_count + ?",
                (self._sequence, self._documents, self._terms),
            )

    def put(self, row: FileRow) -> None:
        """Write a file as it was read. Like the methods below, call it within `transaction`."""
        if row.unread is not None or row.left_out:
            self.unread.append(row)
            self.remove(row.path)
        if row.unread is not None:
            return
        file: int = self._connection.execute(
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
            msgspec.structs.asdict(row)
            | {
                "written": msgspec.json.encode(row.imports).decode(),
                "to_mirror": 0 if row.left_out else self._epoch,
            },
        ).get
        if row.left_out:
            return
        self._insert(file, row, self._drop_scopes(file))
        self.changed.append(row.path)
        self._connection.execute("DELETE FROM gone WHERE path = ?", (row.path,))

    def remove(self, path: str) -> None:
        """Delete a file and its scopes from the index."""
        of_path = "SELECT file, left_out FROM files WHERE path = ?"
        for file, left_out in rows(self._connection, of_path, path):
            self._drop_scopes(file)
            self._connection.execute("DELETE FROM imports WHERE file = ?", (file,))
            self._connection.execute("DELETE FROM files WHERE file = ?", (file,))
            if not left_out:
                self._note_removed(path)

    def rename(self, path: str, new: str) -> None:
        """Move a file's scopes, with their ids, to a new path, and mark it to be cut again."""
        self._connection.execute(
            "UPDATE files SET path = ?, size = -1, hash = '' WHERE path = ?", (new, path)
        )
        self._note_removed(path)

    def _note_removed(self, path: str) -> None:
        self.removed.append(path)
        self._connection.execute("INSERT OR IGNORE INTO gone (path) VALUES (?)", (path,))

    def _drop_scopes(self, file: int) -> dict[tuple[str, str], str]:
        """Delete a file's scopes; return their ids by kind and qualified name."""
        columns = "scope, term_count, kind, qualified_name, scope_id"
        old = rows(self._connection, f"SELECT {columns} FROM scopes WHERE file = ?", file)
        keys = [each[:1] for each in old]
        for place in ("texts WHERE rowid", "calls WHERE scope", "scopes WHERE scope"):
            self._connection.executemany(f"DELETE FROM {place} = ?", keys)
        self._documents -= len(old)
        self._terms -= sum(terms for _, terms, *_ in old)
        return {(kind, name): scope_id for _, _, kind, name, scope_id in old}

    def _insert(self, file: int, row: FileRow, kept: dict[tuple[str, str], str]) -> None:
        execute, many = self._connection.execute, self._connection.executemany
        for each in row.scopes:
            self._sequence += 1
            scope, cut = with_length(self._sequence, each.length), each.scope
            key = (cut.kind, cut.qualified_name)
            scope_id = kept.pop(key, "") or new_scope_id(
                self._connection, self._project_id, row.path, *key
            )
            execute(
                f"INSERT INTO scopes VALUES ({', '.join('?' * 14)})",
                (
                    scope, scope_id, file, cut.kind, cut.name, cut.qualified_name, cut.signature,
                    cut.docstring, cut.start_line, cut.end_line, cut.hash, cut.name.casefold(),
                    each.length, each.embed_hash,
                ),
            )  # fmt: skip
            execute(
                "INSERT INTO texts (rowid, names, paths, about, body) VALUES (?, ?, ?, ?, ?)",
                (scope, each.names, each.paths, each.about, each.body),
            )
            calls = [(name, scope) for name in {call.casefold() for call in cut.calls}]
            many("INSERT INTO calls (name_key, scope) VALUES (?, ?)", calls)
            self._documents += 1
            self._terms += each.length
        vectors.want(self._connection, [(each.embed_hash, each.embedded) for each in row.scopes])


_MANY_STEMS = 200
"""The number of stems of added and removed paths above which all imports are resolved again."""


class Stopped(Exception):
    """The refresh was told to stop."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to refresh, and with which settings."""

    root: Path
    project_id: str
    settings: CodeConfig
    private: tuple[Path, ...] = ()


def refresh(
    connection: apsw.Connection,
    plan: Plan,
    stop: threading.Event,
    show: Callable[[int, int], None] = lambda done, of: None,
) -> Refreshed:
    """Bring the index up to date; raises Stopped if `stop` is set before the end."""
    started = time.monotonic()
    with opened_folder(plan.root) as root:
        writer = _Refresh(connection, plan, root, stop, show).run()
    files, scopes, left_out = counts(connection)
    return Refreshed(
        files=files,
        scopes=scopes,
        changed=tuple(sorted(writer.changed)),
        removed=tuple(sorted(writer.removed)),
        left_out=left_out,
        seconds=time.monotonic() - started,
    )


def counts(connection: apsw.Connection) -> tuple[int, int, dict[str, int]]:
    """Return the numbers of files and scopes, and by reason, most first, of files left out."""
    files = connection.execute("SELECT count(*) FROM files WHERE left_out = ''").get
    scopes, listed = connection.execute("SELECT document_count, left_out FROM state").get
    left_out = Counter(msgspec.json.decode(listed, type=dict[str, int]))
    by_reason = "SELECT left_out, count(*) FROM files WHERE left_out != '' GROUP BY left_out"
    for why, count in rows(connection, by_reason):
        left_out[why] += count
    return files, scopes, dict(left_out.most_common())


class _Refresh:
    """One refresh of the folder that the descriptor `root` holds open."""

    def __init__(
        self,
        connection: apsw.Connection,
        plan: Plan,
        root: int,
        stop: threading.Event,
        show: Callable[[int, int], None],
    ) -> None:
        self._writer = ScopeWriter(connection, plan.project_id)
        self._connection = connection
        self._plan = plan
        self._max_bytes = plan.settings.max_file_bytes
        self._root = root
        self._stop = stop
        self._show = show
        self._present: dict[str, tuple[int, int]] = {}
        """Sizes and modification times (ns) of the files; whole stats are a kilobyte each."""
        self._removed: list[str] = []
        self._left_out: Counter[str] | None = None
        """Numbers of files left out, by reason; None if the listing is incomplete."""

    def run(self) -> ScopeWriter:
        """List the files, and cut and write those that changed."""
        stamps = "SELECT path, size, mtime_ns, seen_ns, hash, left_out FROM files"
        seen = {path: FileStamp(*rest) for path, *rest in rows(self._connection, stamps)}
        self._list_files(seen)
        self._check_stop()
        to_cut, touched = self._changed_files(seen)
        if touched or self._removed:
            renamed = self._renamed(seen)
            with self._writer.transaction():
                self._connection.executemany(
                    "UPDATE files SET size = ?, mtime_ns = ?, seen_ns = ? WHERE path = ?", touched
                )
                for new, path in renamed.items():
                    self._writer.rename(path, new)
                for path in set(self._removed).difference(renamed.values()):
                    self._writer.remove(path)
        self._cut(to_cut)
        with transaction(self._connection):
            self._finish(seen.keys())
        return self._writer

    # --- comparison with the disk -----------------------------------------------------------

    def _list_files(self, seen: Collection[str]) -> None:
        plan = self._plan
        listed = list_project(
            self._root,
            plan.root,
            max_files=plan.settings.max_files,
            private=plan.private,
            stop=self._stop,
        )
        for path in listed.paths:
            if why := self._add_present(path):
                listed.left_out[why] += 1
        if listed.whole:
            self._left_out = listed.left_out
            self._removed = [path for path in seen if path not in self._present]

    def _add_present(self, path: str) -> str:
        """Add a file to those present; return why not if it can't be indexed, else nothing."""
        try:
            found = os.stat(path, dir_fd=self._root, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                return "not a regular file"
            if found.st_mode & 0o444 != 0o444 and not os.access(path, os.R_OK, dir_fd=self._root):
                return "unreadable"
        except (FileNotFoundError, NotADirectoryError):
            return "vanished"
        except (OSError, ValueError):
            return "unreadable"
        if found.st_size > self._max_bytes:
            return "too large"
        self._present[path] = (found.st_size, found.st_mtime_ns)
        return ""

    def _changed_files(
        self, seen: Mapping[str, FileStamp]
    ) -> tuple[list[str], list[tuple[int, int, int, str]]]:
        """Return new and modified files, the latest last, and the new stats of unmodified ones."""
        to_cut: list[str] = []
        touched: list[tuple[int, int, int, str]] = []
        for path, found in self._present.items():
            before = seen.get(path)
            if before is not None and before.is_of(*found):
                continue
            self._check_stop()
            content = self._read(path) if before is not None else None
            if before is not None and content is not None and content.hash == before.hash:
                touched.append((content.size, content.mtime_ns, content.seen_ns, path))
            else:
                to_cut.append(path)
        # The last ones cut are embedded first, so that what people work on is found soon.
        to_cut.sort(key=lambda path: self._present[path][1])
        return to_cut, touched

    def _renamed(self, seen: Mapping[str, FileStamp]) -> dict[str, str]:
        """Return by the path of a new file the path of a removed one with the same content."""
        went = {
            before.hash: path
            for path in self._removed
            if (before := seen[path]).size and not before.left_out
        }
        sizes = {seen[path].size for path in went.values()}
        renamed: dict[str, str] = {}
        for path, (size, _) in self._present.items():
            if path in seen or size not in sizes:
                continue
            content = self._read(path)
            if content and (old := went.pop(content.hash, None)):
                renamed[path] = old
        return renamed

    def _read(self, path: str) -> Content | None:
        try:
            return read(self._root, path, self._max_bytes)
        except NotRead:
            return None

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    # --- writing ------------------------------------------------------------------------------

    def _cut(self, paths: Sequence[str]) -> None:
        done = 0
        if paths:
            self._show(0, len(paths))
        for cut in cut_files(self._root, paths, most=self._max_bytes, stop=self._stop):
            with self._writer.transaction():
                for row in cut:
                    self._writer.put(row)
            done += len(cut)
            self._show(done, len(paths))
        self._check_stop()

    def _finish(self, known: Set[str]) -> None:
        """Do the work that needs all files: resolve imports, count the files left out."""
        changed = set(self._writer.changed)
        self._resolve((changed - known) | set(self._writer.removed))
        left_out = ""
        if self._left_out is not None:
            # Pruning reads all texts: it is left out if nothing changed.
            if changed or self._writer.removed:
                vectors.prune(self._connection)
            unread = Counter(row.unread for row in self._writer.unread if row.unread)
            left_out = msgspec.json.encode(self._left_out + unread).decode()
        self._connection.execute(
            "UPDATE state SET refreshed_at = :now,"
            " left_out = CASE :left_out WHEN '' THEN left_out ELSE :left_out END",
            {"now": utc_now().isoformat(), "left_out": left_out},
        )

    def _resolve(self, came_or_went: Set[str]) -> None:
        """Resolve imports of files that changed, or that may import an added or removed file."""
        importing = (
            "SELECT file, path, language, written, resolved FROM files"
            " WHERE left_out = '' AND written != '[]'"
            + ("" if came_or_went else " AND NOT resolved")
        )
        stems = stems_of(came_or_went)
        concerned = [
            (file, path, language, written)
            for file, path, language, written, resolved in rows(self._connection, importing)
            if not resolved or len(stems) > _MANY_STEMS or any(stem in written for stem in stems)
        ]
        self._connection.execute(
            "DELETE FROM imports WHERE file IN (SELECT file FROM files"
            " WHERE NOT resolved AND written = '[]')"
        )
        if concerned:
            self._resolve_these(concerned)
        self._connection.execute("UPDATE files SET resolved = 1 WHERE NOT resolved")

    def _resolve_these(self, concerned: Sequence[tuple[int, str, str, str]]) -> None:
        resolver = Resolver(column(self._connection, "SELECT path FROM files"), self._text_of)
        epoch = raise_epoch(self._connection)
        for file, path, language, written in concerned:
            imports = msgspec.json.decode(written, type=tuple[str, ...])
            now = resolver.resolve(path, language, imports)
            if list(now) == imports_of(self._connection, file):
                continue
            self._connection.execute("DELETE FROM imports WHERE file = ?", (file,))
            self._connection.executemany(
                "INSERT INTO imports (file, imported) VALUES (?, ?)", [(file, each) for each in now]
            )
            self._connection.execute("UPDATE files SET to_mirror = ? WHERE file = ?", (epoch, file))

    def _text_of(self, path: str) -> str:
        content = self._read(path)
        return content.data.decode("utf-8", "replace") if content else ""
