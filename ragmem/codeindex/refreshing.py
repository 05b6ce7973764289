"""The index brought up to date with the disk: only what changed is read, cut and written.

All of it runs in the thread that owns the writing connection. Killed or stopped at any time it
leaves whole transactions behind, and the next refresh does the rest.
"""

import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from ragmem.codeindex import vectors
from ragmem.codeindex.database import raise_epoch, transaction
from ragmem.codeindex.filing import Filing
from ragmem.codeindex.listing import Limits, list_project, says_what_is_ignored
from ragmem.codeindex.pool import cut_files
from ragmem.codeindex.reading import FileRow, NotRead, is_racy, read
from ragmem.codeindex.resolving import Resolver, stems_of
from ragmem.codeindex.values import Refreshed
from ragmem.errors import UsageError
from ragmem.text import visible

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
    limits: Limits
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


@contextmanager
def opened_folder(root: Path) -> Iterator[int]:
    """A descriptor of the project's folder."""
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            f"The folder {visible(str(root))} can't be indexed: {error.strerror}.",
            hint="Is it still there, and may you read it?",
        ) from None
    try:
        yield handle
    finally:
        os.close(handle)


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
        filing = Filing(connection, plan.project_id, plan.now)
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
    limits: Limits,
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
    root: int, limits: Limits, seen: dict[str, _Seen], look: _Look, stop: threading.Event
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
    filing: Filing,
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
    filing: Filing,
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


def _told(connection: apsw.Connection, filing: Filing, seconds: float) -> Refreshed:
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
