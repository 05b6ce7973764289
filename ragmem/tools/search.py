"""glob_files and grep_files, on ripgrep."""

import heapq
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ragmem.children import FileList as FileList
from ragmem.children import Ripgrep as Ripgrep
from ragmem.children import find_ripgrep as find_ripgrep
from ragmem.own_tools import Effect
from ragmem.text import one_line, spelled
from ragmem.tools.base import Params, ToolFailure, ToolOutput, arg, number
from ragmem.tools.permissions import Permissions
from ragmem.tools.shell import interruptible
from ragmem.tools.workspace import (
    Target,
    Workspace,
    matcher,
    open_file,
    open_folder,
    plain_failures,
    show_name,
)


def require_ripgrep(roots: Sequence[Path]) -> Path:
    """ToolFailure when there is none."""
    found = find_ripgrep(roots)
    if found is None:
        raise ToolFailure(
            "ripgrep (rg) is not installed, so searching does not work. "
            "Tell the person to run `ragmem doctor`."
        )
    return found


MAX_PATHS = 1000
MAX_MATCHES = 100
MAX_TEXT_CHARS = 50_000
TIMEOUT_S = 30.0
_MAX_PATTERN_CHARS = 10_000
_NOT_IGNORING = "an ignore file can't be read to its end, so that ignored files may be among these"
_ROW = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
# What stands between two records and is none itself: a gap, or word of a binary file.
_BETWEEN = re.compile(
    rb"\A(?:--\r?\n|[^\n]*: (?:WARNING: stopped searching binary file after match"
    rb"|binary file matches) \(found [^\n]*\n)+"
)

Mode = Literal["lines", "files", "count"]


class GlobFilesParams(Params, frozen=True):
    """Arguments of glob_files."""

    pattern: Annotated[
        str,
        arg(
            "Such as **/*.py or src/**/test_*.{ts,tsx}; without a slash it is matched "
            "against file names at any depth."
        ),
    ]
    path: Annotated[str, arg("Folder to look in.")] = "."


class GrepFilesParams(Params, frozen=True):
    """Arguments of grep_files."""

    pattern: Annotated[str, arg("A regular expression (Rust syntax), matched line by line.")]
    path: Annotated[str, arg("Folder or file to search.")] = "."
    glob: Annotated[str, arg("Only files that match, such as *.py.")] = ""
    mode: Annotated[
        Mode, arg("lines: matching lines with numbers; files: paths; count: matches a file.")
    ] = "lines"
    context: Annotated[int, number("Lines shown around each match.", 0, 20)] = 0
    limit: Annotated[int, number("Matches (or files) a page.", 1, MAX_MATCHES)] = MAX_MATCHES
    offset: Annotated[int, number("Matches (or files) to skip.", 0)] = 0


class _Looking:
    """What the tools that look at files share: the way to a target, and to a thread."""

    name: str
    effect: Effect = "read"

    def __init__(self, workspace: Workspace, permissions: Permissions) -> None:
        self._workspace = workspace
        self._permissions = permissions

    async def _look(
        self, path: str, work: Callable[[Target, threading.Event], ToolOutput]
    ) -> ToolOutput:
        target = await self._permissions.read(self.name, path)
        if not target.exists:
            raise self._workspace.not_found(path, target)
        with plain_failures(self._workspace.record_path(target.real)):
            return await interruptible(lambda stop: work(target, stop))


class GlobFiles(_Looking):
    """Files by name, newest first."""

    name = "glob_files"
    description = (
        f"Find files by glob pattern, newest first, at most {MAX_PATHS:,}. Files that .gitignore "
        "names are left out."
    )
    Params: type[msgspec.Struct] = GlobFilesParams

    def title(self, params: GlobFilesParams) -> str:
        """The pattern and where."""
        return params.pattern if params.path == "." else f"{params.pattern} in {params.path}"

    async def run(self, params: GlobFilesParams) -> ToolOutput:
        """Paths, one a line."""
        matches = matcher(params.pattern)
        return await self._look(params.path, partial(self._find, params, matches))

    def _find(
        self,
        params: GlobFilesParams,
        matches: Callable[[str], bool],
        target: Target,
        stop: threading.Event,
    ) -> ToolOutput:
        program = require_ripgrep(self._workspace.roots)
        base, count = target.real, 0
        hides = self._permissions.hides(base)
        with open_folder(base) as folder:

            def found(files: Iterable[str]) -> Iterator[tuple[int, str]]:
                nonlocal count
                for path in files:
                    if matches(path) and not hides(base / path):
                        count += 1
                        yield _modified_at(path, folder), path

            for files in FileList.tries(program, folder, timeout_s=TIMEOUT_S, stop=stop):
                count = 0
                newest = heapq.nlargest(MAX_PATHS, found(files))
        shown = [self._workspace.record_path(base / path) for _, path in newest]
        notes = []
        if count > len(newest):
            notes.append(f"the newest {len(newest):,} of {count:,}; narrow the pattern")
        if files.timed_out:
            notes.append(f"stopped after {TIMEOUT_S:g} s: the list is not whole")
        if files.unreadable:
            notes.append(f"{files.unreadable} folders could not be read")
        if files.failed:
            notes.append(f"ripgrep failed: {files.failed}; the list is not whole")
        if not files.is_ignoring:
            notes.append(_NOT_IGNORING)
        where = self._workspace.record_path(base)
        if not shown:
            place = "" if where == "." else f" in {where}"
            shown = [f"No file{place} matches {params.pattern}. Ignored files are left out."]
        tail = [f"[{'; '.join(notes)}]"] if notes else []
        return ToolOutput(
            text="\n".join(shown + tail),
            display=f"{count:,} file{'' if count == 1 else 's'}",
            data={"path": where, "count": count},
        )


class GrepFiles(_Looking):
    """Files by content."""

    name = "grep_files"
    description = (
        "Search file contents with a regular expression (ripgrep). Files that .gitignore names, "
        f"and binary ones, are left out. At most {MAX_MATCHES} matches a page; `offset` goes on."
    )
    Params: type[msgspec.Struct] = GrepFilesParams

    def title(self, params: GrepFilesParams) -> str:
        """The pattern and where."""
        where = "" if params.path == "." else f" in {params.path}"
        return f"{one_line(params.pattern, 80)}{where}{f' ({params.glob})' if params.glob else ''}"

    async def run(self, params: GrepFilesParams) -> ToolOutput:
        """One page of matches, grouped by file."""
        if not params.pattern or "\0" in params.pattern:
            raise ToolFailure("The pattern is empty or holds a NUL. Nothing was searched.")
        if len(params.pattern) > _MAX_PATTERN_CHARS:
            raise ToolFailure(f"The pattern is longer than {_MAX_PATTERN_CHARS:,} characters.")
        return await self._look(params.path, partial(self._search, params))

    def _search(self, params: GrepFilesParams, target: Target, stop: threading.Event) -> ToolOutput:
        program = require_ripgrep(self._workspace.roots)
        base, name = target.real, ""
        if not stat.S_ISDIR(os.lstat(base).st_mode):
            # Opened and closed: a FIFO or a device is refused before ripgrep hangs on it.
            with open_file(base):
                base, name = base.parent, base.name
        arguments, selects = _glob_arguments(params.glob)
        arguments = [
            *_mode_arguments(params),
            *arguments,
            *("--null", "--with-filename", "--sort=path", "--crlf"),
            *(f"--regexp={params.pattern}", "--", f"./{name}"),
        ]
        hides = self._permissions.hides(target.real)

        def shows(real: Path) -> bool:
            return not hides(real) and (
                selects is None or selects(real.relative_to(base).as_posix())
            )

        with open_folder(base) as folder:
            for run in Ripgrep.tries(
                program, arguments, folder=folder, timeout_s=TIMEOUT_S, stop=stop
            ):
                page = _Page(params)
                with closing(run.chunks()) as chunks:
                    for hit in _hits(chunks, params.mode):
                        real = base / os.fsdecode(hit.path.removeprefix(b"./"))
                        if shows(real) and not page.take(self._workspace.record_path(real), hit):
                            break
        if run.failed and not page.taken:
            raise ToolFailure(
                f"{run.failed}\nNothing was searched. Put a backslash before ( ) [ ] {{ }} . * + ? "
                "to search for the character itself."
            )
        return page.output(self._workspace.record_path(target.real), run)


class _Hit(msgspec.Struct, frozen=True):
    path: bytes
    number: int
    """Of the line; in mode count, the matches."""
    text: str
    is_match: bool = True


class _Page:
    """Collects what one page shows, and counts what it skips."""

    def __init__(self, params: GrepFilesParams) -> None:
        self._params = params
        self._lines: list[str] = []
        self._chars = 0
        self._before: deque[tuple[str, _Hit]] = deque(maxlen=params.context)
        self._last = ("", -1)
        """Path and number of the line shown last."""
        self._reach = ("", -1)
        """How far the context of the match shown last goes."""
        self._seen = 0
        self._more = False
        self.taken = 0
        self.files: dict[str, None] = {}

    def take(self, path: str, hit: _Hit) -> bool:
        """The next line, match or context; False when the page is full."""
        if not hit.is_match:
            if self._reach[0] == path and hit.number <= self._reach[1]:
                self._show(path, hit)
            else:
                self._before.append((path, hit))
            return True
        self._seen += 1
        if self._seen <= self._params.offset:
            self._before.append((path, hit))
            return True
        if self.taken >= self._params.limit or self._chars > MAX_TEXT_CHARS:
            self._more = True
            return False
        self.taken += 1
        self.files[path] = None
        for near, line in self._before:
            if near == path and line.number >= hit.number - self._params.context:
                self._show(path, line)
        self._before.clear()
        self._show(path, hit)
        self._reach = (path, hit.number + self._params.context)
        return True

    def _show(self, path: str, hit: _Hit) -> None:
        rows = []
        if self._params.mode == "files":
            rows.append(path)
        elif self._params.mode == "count":
            rows.append(f"{path}: {hit.number:,}")
        else:
            if self._last[0] != path:
                rows += [""] * bool(self._lines) + [path]
            elif self._params.context and hit.number != self._last[1] + 1:
                rows.append("--")
            rows.append(f"{hit.number}{':' if hit.is_match else '-'}{hit.text}")
        self._last = (path, hit.number)
        self._lines += rows
        self._chars += sum(map(len, rows))

    def output(self, where: str, run: Ripgrep) -> ToolOutput:
        """What the model and the person are shown."""
        params = self._params
        thing = "match" if params.mode == "lines" else "file"
        notes = []
        if self._more:
            first, last = params.offset + 1, params.offset + self.taken
            notes.append(f"{first}–{last}; there is more: go on with offset={last}")
        if run.timed_out:
            notes.append(f"stopped after {TIMEOUT_S:g} s: narrow path, glob or pattern")
        if run.unreadable:
            notes.append(f"{run.unreadable} files or folders could not be read")
        if run.failed:
            notes.append(f"ripgrep failed: {run.failed}; what was found is not all")
        if not run.is_ignoring:
            notes.append(_NOT_IGNORING)
        lines = self._lines
        if not lines:
            within = "" if where == "." else f" in {where}"
            past = f" after the first {self._seen}" if params.offset else ""
            lines = [f"No match for {one_line(params.pattern, 200)}{within}{past}."]
        tail = [f"[{'; '.join(notes)}]"] if notes else []
        plural = "" if self.taken == 1 else "es" if thing == "match" else "s"
        display = f"{self.taken}{'+' if self._more else ''} {thing}{plural}"
        if params.mode == "lines" and self.taken:
            display += f" in {len(self.files)} file{'' if len(self.files) == 1 else 's'}"
        return ToolOutput(
            text="\n".join(lines + tail),
            display=display,
            data={"path": where, "files": [{"path": path} for path in self.files]},
        )


def _mode_arguments(params: GrepFilesParams) -> list[str]:
    match params.mode:
        case "files":
            return ["--files-with-matches"]
        case "count":
            return ["--count"]
        case "lines":
            return [
                *("--line-number", "--no-heading", f"--context={params.context}"),
                *("--max-columns=500", "--max-columns-preview"),
            ]


def _glob_arguments(glob: str) -> tuple[list[str], Callable[[str], bool] | None]:
    """ripgrep's part of a file filter, and what is left to decide by path.

    A plain `--glob` would bring back what .gitignore leaves out; a type does not.
    """
    if not glob:
        return [], None
    if glob.startswith("!"):
        return [f"--glob={glob}"], None
    name = glob.removeprefix("**/")
    if "/" not in name:
        return [f"--type-add=picked:{name}", "--type=picked"], None
    return [], matcher(glob)


def _hits(chunks: Iterable[bytes], mode: Mode) -> Iterator[_Hit]:
    """What ripgrep's `--null` output says; any byte but NUL may stand in a path."""
    rest, end = b"", b"\0" if mode == "files" else b"\n"
    for chunk in chunks:
        rest, position = rest + chunk, 0
        while True:
            nul = rest.find(b"\0", position)
            stop = nul if mode == "files" else rest.find(end, nul + 1)
            if nul < 0 or stop < 0:
                break
            path, row = rest[position:nul], rest[nul + 1 : stop]
            position = stop + 1
            path = _BETWEEN.sub(b"", path)
            if mode == "files":
                yield _Hit(path, 0, "")
            elif mode == "count":
                yield _Hit(path, int(row), "")
            elif found := _ROW.fullmatch(row):
                line = found[3].removesuffix(b"\r").decode("utf-8", "replace")
                yield _Hit(path, int(found[1]), spelled(line, keep="\t"), found[2] == b":")
        rest = rest[position:]


def _modified_at(path: str, folder: int) -> int:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


MAX_ENTRIES = 1000
_CLASSIFY_S = 3.0
_NAMED_IGNORED = 30


class ListDirectoryParams(Params, frozen=True):
    """Arguments of list_directory."""

    path: Annotated[str, arg("The folder.")] = "."


class ListDirectory(_Looking):
    """What lies in one folder."""

    name = "list_directory"
    description = (
        f"List a folder: subfolders first, then files with sizes, at most {MAX_ENTRIES:,} entries. "
        "Not recursive; use glob_files for that."
    )
    Params: type[msgspec.Struct] = ListDirectoryParams

    def title(self, params: ListDirectoryParams) -> str:
        """The folder."""
        return params.path

    async def run(self, params: ListDirectoryParams) -> ToolOutput:
        """One entry a line."""
        return await self._look(params.path, self._list)

    def _list(self, target: Target, stop: threading.Event) -> ToolOutput:
        where = self._workspace.record_path(target.real)
        with open_folder(target.real) as by_path:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=by_path)
        hides = self._permissions.hides(target.real)
        try:
            found = _Entries(self._not_ignored(folder, stop), folder)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not hides(target.real / entry.name):
                        found.add(entry)
            chosen = found.first(MAX_ENTRIES)
            lines = [_line(name, is_file, folder) for is_file, name in chosen]
        finally:
            os.close(folder)
        total, ignored = found.count, found.ignored
        if total > len(chosen):
            lines.append(f"[{total - len(chosen):,} more entries; use glob_files to narrow it]")
        if ignored:
            shown = ", ".join(show_name(name) for name in sorted(ignored)[:_NAMED_IGNORED])
            rest = len(ignored) - _NAMED_IGNORED
            more = f" and {rest:,} more" if rest > 0 else ""
            lines.append(f"[left out, ignored by .gitignore: {shown}{more}]")
        return ToolOutput(
            text="\n".join(lines) or f"{where} is empty.",
            display=f"{total:,} entr{'y' if total == 1 else 'ies'}",
            data={"path": where, "count": total},
        )

    def _not_ignored(self, folder: int, stop: threading.Event) -> set[str] | None:
        """Names directly in the folder that lead to files not ignored; None if unknown."""
        program = find_ripgrep(self._workspace.roots)
        if program is None:
            return None
        files = FileList(program, folder, timeout_s=_CLASSIFY_S, stop=stop)
        names = {path.partition("/")[0] for path in files}
        return None if files.timed_out or files.failed else names


class _Entries:
    """Folders before files, each by name; no more of them in memory than are shown."""

    def __init__(self, not_ignored: set[str] | None, folder: int) -> None:
        self._not_ignored = not_ignored
        self._folder = folder
        self._kept: list[tuple[bool, str]] = []
        self.count = 0
        self.ignored: list[str] = []

    def add(self, entry: "os.DirEntry[str]") -> None:
        """Take the next, in any order."""
        if entry.name == ".git":
            return
        is_folder = entry.is_dir(follow_symlinks=False)
        if self._not_ignored is not None and _is_ignored(entry, self._not_ignored, self._folder):
            self.ignored.append(f"{entry.name}/" if is_folder else entry.name)
            return
        self.count += 1
        self._kept.append((not is_folder, entry.name))
        if len(self._kept) > 4 * MAX_ENTRIES:
            self._kept = self.first(MAX_ENTRIES)

    def first(self, limit: int) -> list[tuple[bool, str]]:
        """(is a file, name) of those that come first."""
        return heapq.nsmallest(limit, self._kept)


def _is_ignored(entry: "os.DirEntry[str]", known: set[str], folder: int) -> bool:
    if entry.name in known:
        return False
    if entry.is_dir(follow_symlinks=False):
        # ripgrep lists files: a folder without any is not therefore ignored.
        return not _is_empty(entry.name, folder)
    return entry.is_file(follow_symlinks=False)


def _is_empty(name: str, folder: int) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return True
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


def _line(name: str, is_file: bool, folder: int) -> str:
    shown = show_name(name)
    if not is_file:
        return f"{shown}/"
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return f"{shown} -> {show_name(os.readlink(name, dir_fd=folder))}"
    except OSError:
        return shown
    if not stat.S_ISREG(status.st_mode):
        return f"{shown}  (not a regular file)"
    return f"{shown}  {status.st_size:,} bytes"
