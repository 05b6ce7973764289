"""The index brought up to date with the disk: only what changed is read, cut and written.

All of it runs in the thread that owns the writing connection. Killed or stopped at any time it
leaves whole transactions behind, and the next refresh does the rest.
"""

import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from ragmem.index import identity, vectors
from ragmem.index.database import raise_epoch, transaction
from ragmem.index.files import (
    IndexLimits,
    NotRead,
    is_racy,
    list_project,
    opened_folder,
    read,
    says_what_is_ignored,
)
from ragmem.index.identity import ScopeKey, assign, follow, known_of, scope_id_of
from ragmem.index.imports import Resolver, stems_of
from ragmem.index.pool import cut_files
from ragmem.index.rows import FileRow, numbered
from ragmem.index.values import Refreshed


class _Old(NamedTuple):
    """A scope as it is in the index."""

    scope: int
    scope_id: str
    kind: str
    name: str
    qualified_name: str
    docstring: str
    start_line: int
    end_line: int
    hash: str
    term_count: int


class ScopeWriter:
    """What one refresh changes, transaction by transaction; `follow_moved` in the last."""

    def __init__(self, connection: apsw.Connection, project_id: str, now: datetime) -> None:
        self.changed: list[str] = []
        self.removed: list[str] = []
        self.unread: list[FileRow] = []
        """Of files that could not be read, or are left out for what is in them."""
        self._connection = connection
        self._project_id = project_id
        self._now = now
        self._vanished: dict[str, ScopeKey] = {}
        self._fresh: list[tuple[int, ScopeKey]] = []
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
        self._give(follow(self._vanished.items(), self._fresh))
        identity.forget(self._connection, self._now)
        self._give(follow(*identity.lately(self._connection)))

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
            msgspec.structs.asdict(row)
            | {
                "written": msgspec.json.encode(row.imports).decode(),
                "to_mirror": 0 if row.left_out else self._epoch,
            },
        ).get
        return int(str(found))

    def _put_scopes(self, file: int, row: FileRow) -> None:
        old = [] if self._is_first else self._scopes_of(file)
        assigned = assign(list(map(known_of, old)), list(map(known_of, row.scopes)))
        self._drop(old)
        self._note_vanished([old[place] for place in assigned.vanished])
        kept = {new: old[place].scope_id for new, place in assigned.kept.items()}
        self._insert(file, row, kept)

    def _scopes_of(self, file: int) -> list[_Old]:
        return [
            _Old(*found)
            for found in self._connection.execute(
                "SELECT scope, scope_id, kind, name, qualified_name, docstring, start_line,"
                " end_line, hash, term_count FROM scopes WHERE file = ? ORDER BY start_line, scope",
                (file,),
            )
        ]

    def _insert(self, file: int, row: FileRow, kept: Mapping[int, str]) -> None:
        scopes: list[tuple[int | str, ...]] = []
        texts: list[tuple[int | str, ...]] = []
        calls: list[tuple[str, int]] = []
        fresh: list[tuple[int, ScopeKey]] = []
        # Those that are kept are out of the table for now.
        given = set(kept.values())
        for place, each in enumerate(row.scopes):
            known = known_of(each)
            self._sequence += 1
            scope = numbered(self._sequence, each.length)
            if (scope_id := kept.get(place)) is None:
                is_taken = partial(self._is_anothers, given, known)
                scope_id = scope_id_of(self._project_id, row.path, known, is_taken=is_taken)
                if not self._is_first:
                    fresh.append((scope, known))
            given.add(scope_id)
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
        identity.note_came(self._connection, fresh, self._now)
        vectors.want(self._connection, [(each.embed_hash, each.embedded) for each in row.scopes])

    def _is_anothers(self, given: Collection[str], known: ScopeKey, scope_id: str) -> bool:
        """Whether a new scope can't have that id, lest it gets the history of another one."""
        if self._is_first:
            return scope_id in given
        return (
            scope_id in given
            or scope_id in self._vanished
            or self._is_taken(scope_id)
            or identity.went_by_another_name(self._connection, scope_id, known)
        )

    def _is_taken(self, scope_id: str) -> bool:
        found = self._connection.execute("SELECT 1 FROM scopes WHERE scope_id = ?", (scope_id,))
        return found.get is not None

    def _note_vanished(self, scopes: Iterable[_Old]) -> None:
        went = {each.scope_id: known_of(each) for each in scopes}
        self._vanished |= went
        identity.note_went(self._connection, went.items(), self._now)

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


_FILES_AT_ONCE = 200
_SCOPES_AT_ONCE = 4_000
"""That go into one transaction."""
_MANY_STEMS = 200


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


def refresh(
    connection: apsw.Connection,
    plan: Plan,
    stop: threading.Event,
    show: Callable[[int, int], None] = lambda done, of: None,
) -> Refreshed:
    """Bring it up to date; Stopped when told to stop before the end."""
    started = time.monotonic()
    with opened_folder(plan.root) as root:
        seen = _seen(connection, plan.paths)
        look = _look_at(root, plan, seen, stop)
        if look is None:
            seen = _seen(connection, None)
            look = _look_at(root, msgspec.structs.replace(plan, paths=None), seen, stop)
            assert look is not None
        _stop_if_told(stop)
        to_cut, touched = _to_cut(root, plan.limits, seen, look, stop)
        known = set(seen) - set(look.removed)
        filing = ScopeWriter(connection, plan.project_id, plan.now)
        if touched or look.removed:
            with transaction(connection):
                _touch(connection, touched)
                filing.remove(look.removed)
        _cut(connection, root, plan, to_cut, filing, stop, show)
        with transaction(connection):
            _finish(connection, root, plan, look, filing, known)
    return _told(connection, filing, time.monotonic() - started)


# --- what the disk says -----------------------------------------------------------------


def _seen(connection: apsw.Connection, paths: Collection[str] | None) -> dict[str, _Seen]:
    columns = "SELECT path, size, mtime_ns, seen_ns, hash FROM files"
    if paths is None:
        rows = list(connection.execute(columns))
    else:
        rows = []
        for path in paths:
            # A folder that went takes its files along; its name ends before `0`, the next of `/`.
            rows += connection.execute(
                f"{columns} WHERE path = ? OR (path > ? AND path < ?)",
                (path, f"{path}/", f"{path}0"),
            )
    return {str(path): _Seen(*rest) for path, *rest in rows}


def _look_at(root: int, plan: Plan, seen: dict[str, _Seen], stop: threading.Event) -> _Look | None:
    if plan.paths is not None:
        return _look_at_known(root, plan.paths, seen)
    listed = list_project(root, plan.root, limits=plan.limits, private=plan.private, stop=stop)
    present: dict[str, os.stat_result] = {}
    for path in listed.paths:
        _note(root, path, plan.limits, present, listed.left_out)
    removed = [path for path in seen if path not in present] if listed.whole else []
    return _Look(present=present, removed=removed, left_out=listed.left_out, whole=listed.whole)


def _note(
    root: int,
    path: str,
    limits: IndexLimits,
    present: dict[str, os.stat_result],
    left_out: Counter[str],
) -> None:
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        left_out["vanished"] += 1
    except (OSError, ValueError):
        left_out["unreadable"] += 1
    else:
        if not stat.S_ISREG(found.st_mode):
            left_out["not a regular file"] += 1
        elif found.st_mode & 0o444 != 0o444 and not os.access(path, os.R_OK, dir_fd=root):
            left_out["unreadable"] += 1
        elif found.st_size > limits.max_file_bytes:
            left_out["too large"] += 1
        else:
            present[path] = found


def _look_at_known(root: int, paths: Iterable[str], seen: dict[str, _Seen]) -> _Look | None:
    """None where only a listing can tell: a new file may be one that is ignored."""
    present: dict[str, os.stat_result] = {}
    removed: list[str] = []
    for path in paths:
        if says_what_is_ignored(path):
            return None
        try:
            found = os.stat(path, dir_fd=root, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            removed += [each for each in seen if each == path or each.startswith(f"{path}/")]
            continue
        except (OSError, ValueError):
            return None
        if path not in seen or not stat.S_ISREG(found.st_mode):
            return None
        present[path] = found
    return _Look(present=present, removed=removed, left_out=Counter(), whole=False)


def _to_cut(
    root: int, limits: IndexLimits, seen: dict[str, _Seen], look: _Look, stop: threading.Event
) -> tuple[list[str], list[tuple[int, int, int, str]]]:
    """Files whose content is new or other, the latest last, and those that were only touched."""
    to_cut: list[str] = []
    touched: list[tuple[int, int, int, str]] = []
    for path, found in look.present.items():
        before = seen.get(path)
        if before is None:
            to_cut.append(path)
        elif not before.is_as(found):
            _stop_if_told(stop)
            try:
                content = read(root, path, limits.max_file_bytes)
            except NotRead:
                to_cut.append(path)
                continue
            if content.hash == before.hash:
                touched.append((content.size, content.mtime_ns, content.seen_ns, path))
            else:
                to_cut.append(path)
    # What comes last gets its vectors first: what people work on is to be found soon.
    to_cut.sort(key=lambda path: look.present[path].st_mtime_ns)
    return to_cut, touched


# --- what is written ----------------------------------------------------------------------


def _touch(connection: apsw.Connection, touched: Sequence[tuple[int, int, int, str]]) -> None:
    connection.executemany(
        "UPDATE files SET size = ?, mtime_ns = ?, seen_ns = ? WHERE path = ?", touched
    )


def _cut(
    connection: apsw.Connection,
    root: int,
    plan: Plan,
    paths: Sequence[str],
    filing: ScopeWriter,
    stop: threading.Event,
    show: Callable[[int, int], None],
) -> None:
    done = 0
    waiting: list[FileRow] = []
    if paths:
        show(0, len(paths))
    for rows in cut_files(root, paths, most=plan.limits.max_file_bytes, stop=stop):
        waiting += rows
        if (
            len(waiting) >= _FILES_AT_ONCE
            or sum(len(row.scopes) for row in waiting) >= _SCOPES_AT_ONCE
        ):
            with transaction(connection):
                filing.put(waiting)
            done += len(waiting)
            waiting = []
            show(done, len(paths))
    _stop_if_told(stop)
    if waiting:
        with transaction(connection):
            filing.put(waiting)
        show(done + len(waiting), len(paths))


def _finish(
    connection: apsw.Connection,
    root: int,
    plan: Plan,
    look: _Look,
    filing: ScopeWriter,
    known: set[str],
) -> None:
    filing.follow_moved()
    changed = set(filing.changed)
    _resolve(connection, root, plan, (changed - known) | set(filing.removed))
    # It looks at all texts: not with each edit of a file.
    if look.whole and (changed or filing.removed):
        vectors.prune(connection, plan.now.isoformat())
    state = {"now": plan.now.isoformat(), "left_out": ""}
    if look.whole:
        counted = look.left_out + Counter(row.unread for row in filing.unread if row.unread)
        state["left_out"] = msgspec.json.encode(counted).decode()
    connection.execute(
        "UPDATE state SET refreshed_at = :now,"
        " left_out = CASE :left_out WHEN '' THEN left_out ELSE :left_out END",
        state,
    )


def _resolve(connection: apsw.Connection, root: int, plan: Plan, came_or_went: set[str]) -> None:
    """Imports of files that changed, and of those that may mean a file that came or went."""
    rows = connection.execute(
        "SELECT file, path, language, written, resolved FROM files"
        " WHERE left_out = '' AND written != '[]'" + ("" if came_or_went else " AND NOT resolved")
    )
    stems = stems_of(came_or_went)
    concerned = [
        (int(str(file)), str(path), str(language), str(written))
        for file, path, language, written, resolved in rows
        if not resolved or len(stems) > _MANY_STEMS or any(stem in str(written) for stem in stems)
    ]
    connection.execute(
        "DELETE FROM imports WHERE file IN (SELECT file FROM files"
        " WHERE NOT resolved AND written = '[]')"
    )
    if concerned:
        _resolve_these(connection, root, plan, concerned)
    connection.execute("UPDATE files SET resolved = 1 WHERE NOT resolved")


def _resolve_these(
    connection: apsw.Connection,
    root: int,
    plan: Plan,
    concerned: Sequence[tuple[int, str, str, str]],
) -> None:
    def text_of(path: str) -> str:
        try:
            return read(root, path, plan.limits.max_file_bytes).data.decode("utf-8", "replace")
        except NotRead:
            return ""

    paths = [str(path) for (path,) in connection.execute("SELECT path FROM files")]
    resolver = Resolver(paths, text_of)
    epoch = raise_epoch(connection)
    for file, path, language, written in concerned:
        imports = msgspec.json.decode(written, type=tuple[str, ...])
        now = resolver.resolve(path, language, imports)
        before = tuple(
            str(imported)
            for (imported,) in connection.execute(
                "SELECT imported FROM imports WHERE file = ? ORDER BY imported", (file,)
            )
        )
        if now == before:
            continue
        connection.execute("DELETE FROM imports WHERE file = ?", (file,))
        connection.executemany(
            "INSERT INTO imports (file, imported) VALUES (?, ?)", [(file, each) for each in now]
        )
        connection.execute("UPDATE files SET to_mirror = ? WHERE file = ?", (epoch, file))


# --- what is told ---------------------------------------------------------------------------


def _told(connection: apsw.Connection, filing: ScopeWriter, seconds: float) -> Refreshed:
    files, scopes, left_out = counts(connection)
    return Refreshed(
        files=files,
        scopes=scopes,
        changed=tuple(sorted(filing.changed)),
        removed=tuple(sorted(filing.removed)),
        left_out=left_out,
        seconds=seconds,
    )


def counts(connection: apsw.Connection) -> tuple[int, int, dict[str, int]]:
    """Files and scopes that are indexed, and by reason the files that are not, the most first."""
    files = connection.execute("SELECT count(*) FROM files WHERE left_out = ''").get
    scopes, listed = connection.execute("SELECT document_count, left_out FROM state").get
    left_out: Counter[str] = Counter(msgspec.json.decode(str(listed), type=dict[str, int]))
    left_out.update(
        {
            str(why): int(str(count))
            for why, count in connection.execute(
                "SELECT left_out, count(*) FROM files WHERE left_out != '' GROUP BY left_out"
            )
        }
    )
    return int(str(files)), int(str(scopes)), dict(left_out.most_common())


def _stop_if_told(stop: threading.Event) -> None:
    if stop.is_set():
        raise Stopped
