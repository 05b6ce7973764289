"""Tools that list folders, find files and search their contents, on top of ripgrep."""

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

from ragmem.children import FileList, Ripgrep, find_ripgrep
from ragmem.messages import Json
from ragmem.text import counted, one_line, spelled
from ragmem.tools.base import Arguments, ToolFailure, ToolOutput, arg, number
from ragmem.tools.files import Looking, bracketed
from ragmem.tools.workspace import (
    Target,
    alternatives,
    matcher,
    open_file,
    open_folder,
    show_name,
)


def require_ripgrep(roots: Sequence[Path]) -> Path:
    """Return ripgrep's path; raises ToolFailure if it is not installed."""
    found = find_ripgrep(roots)
    if found is None:
        raise ToolFailure(
            "ripgrep (rg) is not installed, so searching does not work. "
            "Tell the user to run `ragmem doctor`."
        )
    return found


MAX_PATHS = 1000
MAX_MATCHES = 100
MAX_TEXT_CHARS = 50_000
TIMEOUT_S = 30.0
_MAX_PATTERN_CHARS = 10_000
_ROW = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
# Text between two records that belongs to neither: a gap, or a message about a binary file.
_BETWEEN = re.compile(
    rb"\A(?:--\r?\n|[^\n]*: (?:WARNING: stopped searching binary file after match"
    rb"|binary file matches) \(found [^\n]*\n)+"
)

Mode = Literal["lines", "files", "count"]


def _result(
    lines: list[str], notes: list[str], run: Ripgrep, display: str, **data: Json
) -> ToolOutput:
    """Return the results, followed by notes on why ripgrep's output may be incomplete."""
    if run.timed_out:
        notes.append(f"stopped after {TIMEOUT_S:g} s: incomplete; narrow the path or pattern")
    if run.unreadable:
        notes.append(f"{run.unreadable} files or folders could not be read")
    if run.failed:
        notes.append(f"ripgrep failed: {run.failed}; this is incomplete")
    if not run.is_ignoring:
        notes.append("an ignore file could not be read in full; ignored files may be among these")
    return ToolOutput(text="\n".join(lines + bracketed(notes)), display=display, data=data)


class GlobFiles(Looking):
    """Find files by name, newest first."""

    name = "glob_files"
    description = (
        f"Find files by glob pattern, newest first, at most {MAX_PATHS:,}. Files ignored by "
        ".gitignore are left out."
    )

    class Params(Arguments, frozen=True):
        pattern: Annotated[
            str,
            arg(
                "Such as src/**/test_*.{ts,tsx}; without a slash it matches file names at any "
                "depth."
            ),
        ]
        path: Annotated[str, arg("Folder to look in.")] = "."

    def title(self, params: Params) -> str:
        """Return the pattern, and where it is searched."""
        return params.pattern if params.path == "." else f"{params.pattern} in {params.path}"

    async def run(self, params: Params) -> ToolOutput:
        """Return paths, one per line."""
        matches = matcher(params.pattern)
        return await self.look(params.path, partial(self._find, params, matches))

    def _find(
        self,
        params: Params,
        matches: Callable[[str], bool],
        target: Target,
        where: str,
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

            words, limit = _outside(params.pattern), TIMEOUT_S
            for files in FileList.tries(program, folder, words, timeout_s=limit, stop=stop):
                count = 0
                newest = heapq.nlargest(MAX_PATHS, found(files))
        shown = [self._workspace.record_path(base / path) for _, path in newest]
        if not shown:
            place = "" if where == "." else f" in {where}"
            shown = [f"No file{place} matches {params.pattern}. Ignored files are left out."]
        notes = []
        if count > len(newest):
            notes.append(f"the newest {len(newest):,} of {count:,}; narrow the pattern")
        return _result(shown, notes, files, counted(count, "file"), path=where, count=count)


class GrepFiles(Looking):
    """Search the contents of files."""

    name = "grep_files"
    description = (
        "Find exact text in files with a regular expression (ripgrep). Binary files and those "
        f"ignored by .gitignore are left out. At most {MAX_MATCHES} matches per page."
    )

    class Params(Arguments, frozen=True):
        pattern: Annotated[str, arg("Rust syntax, matched line by line.")]
        path: Annotated[str, arg("Folder or file to search.")] = "."
        glob: Annotated[str, arg("Only files that match, such as *.py.")] = ""
        mode: Annotated[
            Mode, arg("lines: matching lines with numbers; files: paths; count: matches per file.")
        ] = "lines"
        context: Annotated[int, number("Lines shown around each match.", 0, 20)] = 0
        limit: Annotated[int, number("Matches (or files) per page.", 1, MAX_MATCHES)] = MAX_MATCHES
        offset: Annotated[int, number("Matches (or files) to skip.", 0)] = 0

    def title(self, params: Params) -> str:
        """Return the pattern, and where it is searched."""
        where = "" if params.path == "." else f" in {params.path}"
        return f"{one_line(params.pattern, 80)}{where}{f' ({params.glob})' if params.glob else ''}"

    async def run(self, params: Params) -> ToolOutput:
        """Return one page of matches, grouped by file."""
        if not params.pattern or "\0" in params.pattern:
            raise ToolFailure("The pattern is empty or contains a NUL. Nothing was searched.")
        if len(params.pattern) > _MAX_PATTERN_CHARS:
            raise ToolFailure(f"The pattern is longer than {_MAX_PATTERN_CHARS:,} characters.")
        return await self.look(params.path, partial(self._search, params))

    def _search(
        self, params: Params, target: Target, where: str, stop: threading.Event
    ) -> ToolOutput:
        program = require_ripgrep(self._workspace.roots)
        base, name = target.real, ""
        if not stat.S_ISDIR(os.lstat(base).st_mode):
            # Open and close it to refuse a FIFO or a device, on which ripgrep would hang.
            with open_file(base):
                base, name = base.parent, base.name
        filters, selects = _glob_arguments(params.glob)
        modes = {"count": ["--count"], "files": ["--files-with-matches"]}
        lines = ["--line-number", "--no-heading", "--max-columns=500", "--max-columns-preview"]
        words = [
            *modes.get(params.mode, [*lines, f"--context={params.context}"]),
            *filters,
            *("--null", "--with-filename", "--sort=path", "--crlf"),
            *(f"--regexp={params.pattern}", "--", f"./{name}"),
        ]
        hides = self._permissions.hides(target.real)

        def shows(real: Path) -> bool:
            return not hides(real) and (
                selects is None or selects(real.relative_to(base).as_posix())
            )

        with open_folder(base) as folder:
            for run in Ripgrep.tries(program, words, folder=folder, timeout_s=TIMEOUT_S, stop=stop):
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
        return page.output(where, run)


class _Hit(msgspec.Struct, frozen=True):
    path: bytes
    number: int
    """The line number; in mode count, the number of matches."""
    text: str
    is_match: bool = True


class _Page:
    """Collects what one page shows, and counts what it skips."""

    def __init__(self, params: GrepFiles.Params) -> None:
        self._params = params
        self._lines: list[str] = []
        self._chars = 0
        self._before: deque[tuple[str, _Hit]] = deque(maxlen=params.context)
        self._last = ("", -1)
        """Path and number of the last line shown."""
        self._reach = ("", -1)
        """Path and number of the last line that is context of the last match shown."""
        self._seen = 0
        self._more = False
        self.taken = 0
        self.files: dict[str, None] = {}

    def take(self, path: str, hit: _Hit) -> bool:
        """Take the next line, match or context; returns False when the page is full."""
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
        if self._params.mode != "lines":
            rows.append(f"{path}: {hit.number:,}" if self._params.mode == "count" else path)
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
        """Return the page for the model and the user."""
        params, lines, notes = self._params, self._lines, []
        if self._more:
            first, last = params.offset + 1, params.offset + self.taken
            notes.append(f"{first}–{last}; there is more: continue with offset={last}")
        if not lines:
            within = "" if where == "." else f" in {where}"
            past = f" after the first {self._seen}" if params.offset else ""
            lines = [f"No match for {one_line(params.pattern, 200)}{within}{past}."]
        display = f"{self.taken}{'+' * self._more} match{'es' * (self.taken != 1)}"
        if params.mode != "lines":
            display = counted(self.taken, "file").replace(" ", "+ " if self._more else " ")
        elif self.taken:
            display += f" in {counted(len(self.files), 'file')}"
        files: list[Json] = [{"path": path} for path in self.files]
        return _result(lines, notes, run, display, path=where, files=files)


def _glob_arguments(glob: str) -> tuple[list[str], Callable[[str], bool] | None]:
    """Return ripgrep's arguments for a file filter, and a predicate for what they can't express.

    A plain `--glob` would include files that .gitignore excludes; a file type does not.
    """
    if not glob:
        return [], None
    if glob.startswith("!"):
        return [f"--glob={glob}"], None
    name = glob.removeprefix("**/")
    if "/" not in name:
        return [f"--type-add=picked:{name}", "--type=picked"], None
    return _outside(glob), matcher(glob)


_PLAIN_NAME = re.compile(r"(?!\.+$)[\w.@+-]+")
_MOST_FRONT_CHARS = 100


def _outside(pattern: str) -> list[str]:
    """Return ripgrep's arguments to leave out what is not in the folders a pattern begins with.

    They say which names to leave out: a glob for what to search would include ignored files.
    """
    folders = [one.split("/")[:-1] for one in alternatives(pattern.removeprefix("./"))]
    arguments, above = list[str](), "/"
    for name, *names in zip(*folders, strict=False):
        is_common = all(each == name for each in names)
        if not is_common or not _PLAIN_NAME.fullmatch(name) or len(above) > _MOST_FRONT_CHARS:
            break
        starts = [name[:end] for end in range(len(name))]
        others = [f"{name}?*", *starts[1:]]
        others += [f"{start}[!{name[len(start)]}]*" for start in starts]
        arguments += [f"--glob=!{above}{other}" for other in others]
        above += f"{name}/"
    return arguments


def _hits(chunks: Iterable[bytes], mode: Mode) -> Iterator[_Hit]:
    """Parse ripgrep's `--null` output; a path may contain any byte except NUL."""
    rest, end = b"", b"\0" if mode == "files" else b"\n"
    for chunk in chunks:
        rest, position = rest + chunk, 0
        while True:
            nul = rest.find(b"\0", position)
            stop = nul if mode == "files" else rest.find(end, nul + 1)
            if nul < 0 or stop < 0:
                break
            path, row = _BETWEEN.sub(b"", rest[position:nul]), rest[nul + 1 : stop]
            position = stop + 1
            if mode != "lines":
                yield _Hit(path, int(row or 0), "")
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


class ListDirectory(Looking):
    """List one folder."""

    name = "list_directory"
    description = (
        f"List one folder: subfolders, then files with sizes, at most {MAX_ENTRIES:,}. "
        "To look deeper, use glob_files."
    )

    class Params(Arguments, frozen=True):
        path: Annotated[str, arg("The folder.")] = "."

    async def run(self, params: Params) -> ToolOutput:
        """Return one entry per line."""
        return await self.look(params.path, self._list)

    def _list(self, target: Target, where: str, stop: threading.Event) -> ToolOutput:
        hides, total, ignored = self._permissions.hides(target.real), 0, list[str]()
        with open_folder(target.real) as by_path:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=by_path)

        def shown(entries: Iterable["os.DirEntry[str]"]) -> Iterator[tuple[bool, str]]:
            nonlocal total
            for entry in entries:
                if entry.name == ".git" or hides(target.real / entry.name):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if known is not None and _is_ignored(entry, known, folder):
                    ignored.append(entry.name + "/" * is_folder)
                else:
                    total += 1
                    yield not is_folder, entry.name

        try:
            known = self._not_ignored(folder, stop)
            with os.scandir(folder) as entries:
                # Folders before files; keeps no more of them in memory than are shown.
                chosen = heapq.nsmallest(MAX_ENTRIES, shown(entries))
            lines = [_line(name, is_file, folder) for is_file, name in chosen]
        finally:
            os.close(folder)
        if total > len(chosen):
            lines.append(f"[{total - len(chosen):,} more entries; narrow them with glob_files]")
        if ignored:
            named = ", ".join(show_name(name) for name in sorted(ignored)[:_NAMED_IGNORED])
            rest = len(ignored) - _NAMED_IGNORED
            more = f" and {rest:,} more" if rest > 0 else ""
            lines.append(f"[left out, ignored by .gitignore: {named}{more}]")
        return ToolOutput(
            text="\n".join(lines) or f"{where} is empty.",
            display=counted(total, "entry"),
            data={"path": where, "count": total},
        )

    def _not_ignored(self, folder: int, stop: threading.Event) -> set[str] | None:
        """Return names in the folder that are, or contain, files not ignored; None if unknown."""
        program = find_ripgrep(self._workspace.roots)
        if program is None:
            return None
        files = FileList(program, folder, timeout_s=_CLASSIFY_S, stop=stop)
        names = {path.partition("/")[0] for path in files}
        return None if files.timed_out or files.failed else names


def _is_ignored(entry: "os.DirEntry[str]", known: set[str], folder: int) -> bool:
    if entry.name in known:
        return False
    if not entry.is_dir(follow_symlinks=False):
        return entry.is_file(follow_symlinks=False)
    # ripgrep lists files only: an empty folder is not ignored for being absent.
    try:
        fd = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False
    try:
        with os.scandir(fd) as entries:
            return any(entries)
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
