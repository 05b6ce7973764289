"""The index brought up to date with the disk: only what changed is read, cut and written.

All of it runs in the thread that owns the writing connection. Killed or stopped at any time it
leaves whole transactions behind, and the next refresh does the rest.
"""

import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from ragmem.index import Refreshed, vectors
from ragmem.index.database import raise_epoch, transaction
from ragmem.index.files import (
    IndexLimits,
    NotRead,
    Resolver,
    is_racy,
    list_project,
    opened_folder,
    read,
    says_what_is_ignored,
    stems_of,
)
from ragmem.index.mirror import (
    KEY_COLUMNS,
    ScopeKey,
    assign,
    forget_gone,
    imports_of,
    moved_scopes,
    note_came,
    note_went,
    scope_id_of,
    went_by_another_name,
)
from ragmem.index.rows import FileRow, cut_files, numbered


class _Old(NamedTuple):
    """A scope as it is in the index."""

    scope: int
    scope_id: str
    term_count: int
    key: ScopeKey


class ScopeWriter:
    """What one refresh changes, transaction by transaction; `follow_moved` in the last."""

    def __init__(self, connection: apsw.Connection, project_id: str, now: datetime) -> None:
        self.changed: list[str] = []
        self.removed: list[str] = []
        self.unread: list[FileRow] = []
        """Files that could not be read, or are left out for what is in them."""
        self._connection = connection
        self._project_id = project_id
        self._now = now
        self._is_first = not connection.execute("SELECT sequence FROM state").get
        self._epoch = self._sequence = self._documents = self._terms = 0

    def put(self, rows: Iterable[FileRow]) -> None:
        """Write files as they were read; in the caller's transaction."""
        self._begin()
        for row in rows:
            self._put(row)
        self._end()

    def remove(self, paths: Iterable[str]) -> None:
        """Take files out that are no more; in the caller's transaction."""
        self._begin()
        for path in paths:
            self._remove(path)
        self._end()

    def follow_moved(self) -> None:
        """Give scopes that went elsewhere their ids back; in the caller's transaction."""
        moved = moved_scopes(self._connection, self._now)
        epoch = raise_epoch(self._connection) if moved else 0
        for scope, scope_id in moved.items():
            self._connection.execute(
                "UPDATE scopes SET scope_id = ? WHERE scope = ?", (scope_id, scope)
            )
            self._connection.execute(
                "UPDATE files SET to_mirror = ?"
                " WHERE file = (SELECT file FROM scopes WHERE scope = ?)",
                (epoch, scope),
            )
        forget_gone(self._connection)

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
            msgspec.structs.asdict(row)
            | {
                "written": msgspec.json.encode(row.imports).decode(),
                "to_mirror": 0 if row.left_out else self._epoch,
            },
        ).get
        return int(str(found))

    def _put_scopes(self, file: int, row: FileRow) -> None:
        old = [] if self._is_first else self._scopes_of(file)
        kept = assign([each.key for each in old], list(map(ScopeKey.of, row.scopes)))
        gone = set(range(len(old))) - set(kept.values())
        self._drop(old, gone=[old[place] for place in gone])
        self._insert(file, row, {new: old[place].scope_id for new, place in kept.items()})

    def _scopes_of(self, file: int) -> list[_Old]:
        return [
            _Old(int(str(scope)), str(scope_id), int(str(terms)), ScopeKey.read(key))
            for scope, scope_id, terms, *key in self._connection.execute(
                f"SELECT scope, scope_id, term_count, {KEY_COLUMNS} FROM scopes WHERE file = ?"
                " ORDER BY start_line, scope",
                (file,),
            )
        ]

    def _insert(self, file: int, row: FileRow, kept: Mapping[int, str]) -> None:
        scopes: list[tuple[int | str, ...]] = []
        texts: list[tuple[int | str, ...]] = []
        calls: list[tuple[str, int]] = []
        fresh: list[int] = []
        # Those that are kept are out of the table for now.
        given = set(kept.values())
        for place, each in enumerate(row.scopes):
            key = ScopeKey.of(each)
            self._sequence += 1
            scope = numbered(self._sequence, each.length)
            if (scope_id := kept.get(place)) is None:
                is_taken = partial(self._is_anothers, given, key)
                scope_id = scope_id_of(self._project_id, row.path, key, is_taken=is_taken)
                if not self._is_first:
                    fresh.append(scope)
            given.add(scope_id)
            scopes.append(
                (
                    scope, scope_id, file, each.kind, each.name, each.qualified_name,
                    each.signature, each.docstring, each.start_line, each.end_line, each.hash,
                    key.is_telling, each.name.casefold(), each.length, each.embed_hash,
                )
            )  # fmt: skip
            texts.append((scope, each.names, each.paths, each.about, each.body))
            calls += [(name, scope) for name in {call.casefold() for call in each.calls}]
            self._documents += 1
            self._terms += each.length
        if not scopes:
            return
        many = self._connection.executemany
        many(f"INSERT INTO scopes VALUES ({', '.join('?' * 15)})", scopes)
        many("INSERT INTO texts (rowid, names, paths, about, body) VALUES (?, ?, ?, ?, ?)", texts)
        many("INSERT INTO calls (name_key, scope) VALUES (?, ?)", calls)
        note_came(self._connection, fresh, self._now)
        vectors.want(self._connection, [(each.embed_hash, each.embedded) for each in row.scopes])

    def _is_anothers(self, given: Collection[str], key: ScopeKey, scope_id: str) -> bool:
        """Whether a new scope can't have that id, lest it gets the history of another one."""
        if scope_id in given or self._is_first:
            return scope_id in given
        found = self._connection.execute("SELECT 1 FROM scopes WHERE scope_id = ?", (scope_id,))
        return found.get is not None or went_by_another_name(self._connection, scope_id, key)

    def _drop(self, scopes: Sequence[_Old], *, gone: Iterable[_Old]) -> None:
        """Take the scopes of a file out, of which the `gone` ones do not come back."""
        note_went(self._connection, [each.scope for each in gone], self._now)
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
        self._drop(old, gone=old)
        self._connection.execute("DELETE FROM imports WHERE file = ?", (file,))
        self._connection.execute("DELETE FROM files WHERE file = ?", (file,))
        if not left_out:
            self.removed.append(path)
            self._tell_gone(path)

    def _tell_gone(self, path: str) -> None:
        self._connection.execute("INSERT OR IGNORE INTO gone (path) VALUES (?)", (path,))


_FILES_AT_ONCE = 200
_SCOPES_AT_ONCE = 4_000
"""Files, and scopes of files, that go into one transaction."""
_MANY_STEMS = 200
"""Words of paths that came or went, beyond which all imports are looked at."""


class Stopped(Exception):
    """The refresh was told to stop."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is refreshed, and how."""

    root: Path
    project_id: str
    limits: IndexLimits
    private: tuple[Path, ...] = ()
    now: datetime
    paths: frozenset[str] | None = None
    """Only these, where that can be told without listing the project."""


def refresh(
    connection: apsw.Connection,
    plan: Plan,
    stop: threading.Event,
    show: Callable[[int, int], None] = lambda done, of: None,
) -> Refreshed:
    """Bring the index up to date; Stopped when told to stop before the end."""
    started = time.monotonic()
    with opened_folder(plan.root) as root:
        refreshing = _Refresh(connection, plan, root, stop, show)
        refreshing.run()
    files, scopes, left_out = counts(connection)
    return Refreshed(
        files=files,
        scopes=scopes,
        changed=tuple(sorted(refreshing.writer.changed)),
        removed=tuple(sorted(refreshing.writer.removed)),
        left_out=left_out,
        seconds=time.monotonic() - started,
    )


def counts(connection: apsw.Connection) -> tuple[int, int, dict[str, int]]:
    """Count files and scopes that are indexed, and by reason the files that are not, most first."""
    files = connection.execute("SELECT count(*) FROM files WHERE left_out = ''").get
    scopes, listed = connection.execute("SELECT document_count, left_out FROM state").get
    left_out: Counter[str] = Counter(msgspec.json.decode(str(listed), type=dict[str, int]))
    for why, count in connection.execute(
        "SELECT left_out, count(*) FROM files WHERE left_out != '' GROUP BY left_out"
    ):
        left_out[str(why)] += int(str(count))
    return int(str(files)), int(str(scopes)), dict(left_out.most_common())


class _Seen(msgspec.Struct, frozen=True):
    """A file as the index has it."""

    size: int
    mtime_ns: int
    seen_ns: int
    hash: str

    def is_as(self, found: os.stat_result) -> bool:
        return (
            self.size == found.st_size
            and self.mtime_ns == found.st_mtime_ns
            and not is_racy(self.mtime_ns, self.seen_ns)
        )


class _Look(msgspec.Struct, kw_only=True):
    """What the disk says."""

    present: dict[str, os.stat_result]
    removed: list[str]
    left_out: Counter[str]
    whole: bool
    """The whole project was listed."""


class _Refresh:
    """One refresh of the folder that the descriptor `root` holds."""

    def __init__(
        self,
        connection: apsw.Connection,
        plan: Plan,
        root: int,
        stop: threading.Event,
        show: Callable[[int, int], None],
    ) -> None:
        self.writer = ScopeWriter(connection, plan.project_id, plan.now)
        self._connection = connection
        self._plan = plan
        self._most = plan.limits.max_file_bytes
        self._root = root
        self._stop = stop
        self._show = show

    def run(self) -> None:
        """Look at the disk, cut what changed, write it."""
        paths = self._plan.paths
        seen = self._seen(paths)
        look = None if paths is None else self._look_at_known(paths, seen)
        if look is None:
            seen = seen if paths is None else self._seen(None)
            look = self._look_at_all(seen)
        self._stop_if_told()
        to_cut, touched = self._compared(seen, look)
        if touched or look.removed:
            with transaction(self._connection):
                self._connection.executemany(
                    "UPDATE files SET size = ?, mtime_ns = ?, seen_ns = ? WHERE path = ?", touched
                )
                self.writer.remove(look.removed)
        self._cut(to_cut)
        with transaction(self._connection):
            self._finish(look, seen.keys() - set(look.removed))

    # --- what the disk says -----------------------------------------------------------------

    def _seen(self, paths: Collection[str] | None) -> dict[str, _Seen]:
        columns = "SELECT path, size, mtime_ns, seen_ns, hash FROM files"
        if paths is None:
            rows = list(self._connection.execute(columns))
        else:
            rows = []
            for path in paths:
                # A folder that went takes its files along; its name ends before `0`, the next of
                # `/`.
                rows += self._connection.execute(
                    f"{columns} WHERE path = ? OR (path > ? AND path < ?)",
                    (path, f"{path}/", f"{path}0"),
                )
        return {str(path): _Seen(*rest) for path, *rest in rows}

    def _look_at_all(self, seen: Mapping[str, _Seen]) -> _Look:
        plan = self._plan
        listed = list_project(
            self._root, plan.root, limits=plan.limits, private=plan.private, stop=self._stop
        )
        look = _Look(present={}, removed=[], left_out=listed.left_out, whole=listed.whole)
        for path in listed.paths:
            if why := self._note(path, look.present):
                look.left_out[why] += 1
        if listed.whole:
            look.removed = [path for path in seen if path not in look.present]
        return look

    def _note(self, path: str, present: dict[str, os.stat_result]) -> str:
        """Add a file to those that are there; why not, where it can't be read."""
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
        if found.st_size > self._most:
            return "too large"
        present[path] = found
        return ""

    def _look_at_known(self, paths: Iterable[str], seen: Mapping[str, _Seen]) -> _Look | None:
        """Look at some paths; None if only a listing can tell: a new file may be ignored."""
        look = _Look(present={}, removed=[], left_out=Counter(), whole=False)
        for path in paths:
            if says_what_is_ignored(path):
                return None
            try:
                found = os.stat(path, dir_fd=self._root, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                look.removed += [e for e in seen if e == path or e.startswith(f"{path}/")]
                continue
            except (OSError, ValueError):
                return None
            if path not in seen or not stat.S_ISREG(found.st_mode):
                return None
            look.present[path] = found
        return look

    def _compared(
        self, seen: Mapping[str, _Seen], look: _Look
    ) -> tuple[list[str], list[tuple[int, int, int, str]]]:
        """Return files whose content is new or other, the latest last, and those only touched."""
        to_cut: list[str] = []
        touched: list[tuple[int, int, int, str]] = []
        for path, found in look.present.items():
            before = seen.get(path)
            if before is not None and before.is_as(found):
                continue
            self._stop_if_told()
            content = None
            if before is not None:
                with suppress(NotRead):
                    content = read(self._root, path, self._most)
            if before is not None and content is not None and content.hash == before.hash:
                touched.append((content.size, content.mtime_ns, content.seen_ns, path))
            else:
                to_cut.append(path)
        # What comes last gets its vectors first: what people work on is to be found soon.
        to_cut.sort(key=lambda path: look.present[path].st_mtime_ns)
        return to_cut, touched

    def _stop_if_told(self) -> None:
        if self._stop.is_set():
            raise Stopped

    # --- what is written ----------------------------------------------------------------------

    def _cut(self, paths: Sequence[str]) -> None:
        done, waiting = 0, list[FileRow]()

        def put() -> None:
            nonlocal done
            with transaction(self._connection):
                self.writer.put(waiting)
            done += len(waiting)
            waiting.clear()
            self._show(done, len(paths))

        if paths:
            self._show(0, len(paths))
        for rows in cut_files(self._root, paths, most=self._most, stop=self._stop):
            waiting += rows
            scopes = sum(len(row.scopes) for row in waiting)
            if len(waiting) >= _FILES_AT_ONCE or scopes >= _SCOPES_AT_ONCE:
                put()
        self._stop_if_told()
        if waiting:
            put()

    def _finish(self, look: _Look, known: Set[str]) -> None:
        """Do what takes all files: scopes that were moved, imports, what is left out."""
        self.writer.follow_moved()
        changed, now = set(self.writer.changed), self._plan.now.isoformat()
        self._resolve((changed - known) | set(self.writer.removed))
        # It looks at all texts: not with each edit of a file.
        if look.whole and (changed or self.writer.removed):
            vectors.prune(self._connection, now)
        left_out = ""
        if look.whole:
            unread = Counter(row.unread for row in self.writer.unread if row.unread)
            left_out = msgspec.json.encode(look.left_out + unread).decode()
        self._connection.execute(
            "UPDATE state SET refreshed_at = :now,"
            " left_out = CASE :left_out WHEN '' THEN left_out ELSE :left_out END",
            {"now": now, "left_out": left_out},
        )

    def _resolve(self, came_or_went: Set[str]) -> None:
        """Resolve imports of files that changed, or that may mean a file that came or went."""
        rows = self._connection.execute(
            "SELECT file, path, language, written, resolved FROM files"
            " WHERE left_out = '' AND written != '[]'"
            + ("" if came_or_went else " AND NOT resolved")
        )
        stems = stems_of(came_or_went)
        concerned = [
            (int(str(file)), str(path), str(language), str(written))
            for file, path, language, written, resolved in rows
            if not resolved
            or len(stems) > _MANY_STEMS
            or any(stem in str(written) for stem in stems)
        ]
        self._connection.execute(
            "DELETE FROM imports WHERE file IN (SELECT file FROM files"
            " WHERE NOT resolved AND written = '[]')"
        )
        if concerned:
            self._resolve_these(concerned)
        self._connection.execute("UPDATE files SET resolved = 1 WHERE NOT resolved")

    def _resolve_these(self, concerned: Sequence[tuple[int, str, str, str]]) -> None:
        paths = [str(path) for (path,) in self._connection.execute("SELECT path FROM files")]
        resolver = Resolver(paths, self._text_of)
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
        try:
            return read(self._root, path, self._most).data.decode("utf-8", "replace")
        except NotRead:
            return ""
