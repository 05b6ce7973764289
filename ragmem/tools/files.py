"""Tools that read, create, write and edit files, and what the agent has seen of them.

An edit of a file that others have changed is refused anyway; announcing each change beforehand,
once, saves a futile call.
"""

import asyncio
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from ragmem.messages import Json, fields_in
from ragmem.own_tools import EDITING_TOOLS, READ_FILE, UNREAD
from ragmem.records import ToolCall
from ragmem.text import Regex, counted, plain_or_quoted
from ragmem.tools import workspace
from ragmem.tools.base import (
    AgentTool,
    Arguments,
    ToolFailure,
    ToolOutput,
    arg,
    interruptible,
    number,
)
from ragmem.tools.content import (
    MAX_TEXT_BYTES,
    Text,
    decode,
    load,
    read_image,
    read_span,
    region,
    sha256_of,
    window,
)
from ragmem.tools.permissions import Permissions
from ragmem.tools.replacing import NoMatch, common, listed, replace_indented, replace_text
from ragmem.tools.workspace import Target, Workspace, identity, open_file, plain_failures
from ragmem.usage import Metrics


class SeenFiles:
    """Maps paths, as results show them, to the SHA-256 of what was last read or written."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._hashes: dict[str, str] = {}
        self._shown: dict[str, list[tuple[int, int]]] = {}
        """The line ranges read of each file's current content."""

    def read(self, path: str, sha256: str, first: int, last: int) -> None:
        """Record that the agent reads these lines; counts whether it had them before, unchanged."""
        again = self._record_read(path, sha256, first, last)
        self._metrics.count("files.reads")
        self._metrics.count("files.reads_again", again)

    def _record_read(self, path: str, sha256: str, first: int, last: int) -> bool:
        self.note(path, sha256)
        shown = self._shown.setdefault(path, [])
        again = any(start <= first and last <= end for start, end in shown)
        shown.append((first, last))
        return again

    def note(self, path: str, sha256: str) -> None:
        """Record that the agent has seen this content."""
        if self._hashes.pop(path, None) != sha256:
            self._shown.pop(path, None)
        self._hashes[path] = sha256

    def hash_of(self, path: str) -> str | None:
        """Return the hash of what was seen of a file; None if it was not."""
        return self._hashes.get(path)

    def latest(self, limit: int) -> list[tuple[str, str]]:
        """Return the last files seen with their hashes, latest first."""
        return list(islice(reversed(self._hashes.items()), limit))

    def restore(self, calls: Iterable[ToolCall], path_of: Callable[[str], str] = str) -> None:
        """Restore the state of a recorded session; `calls` are in the order they were made.

        `path_of` turns a recorded path into what results show now.
        """
        for call in calls:
            if not call.success or call.tool_name not in {READ_FILE, *EDITING_TOOLS}:
                continue
            match fields_in(call.result):
                case {
                    "path": str(path),
                    "sha256": str(sha256),
                    "first_line": int(first),
                    "last_line": int(last),
                }:
                    self._record_read(path_of(path), sha256, first, last)
                case {"path": str(path), "sha256": str(sha256)}:
                    self.note(path_of(path), sha256)


_MAX_NAMED = 20
_MOST_FILES = 2_000
"""How many of the last files seen are checked."""
_RACY_NS = 2_000_000_000
"""A file modified so shortly before it was read may have changed again unnoticed, because file
timestamps have a limited resolution."""
_GONE = ""


class ChangedFiles:
    """Compares `seen` with the files on disk; a file is read only if its stat differs."""

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}
        self._reported: dict[str, str] = {}

    async def news(self) -> str:
        """Return the files that changed since they were read, on one line; empty if there are none.

        Each change is reported once.
        """
        changed = await asyncio.to_thread(self._changed)
        self._reported |= changed
        return _sentence(list(changed))

    async def look(self) -> str:
        """Return what `news` would, without marking the changes as reported."""
        return _sentence(list(await asyncio.to_thread(self._changed)))

    def _changed(self) -> dict[str, str]:
        """Map each changed path to its current hash."""
        found = {}
        for path, seen in self._seen.latest(_MOST_FILES):
            now = self._hash_of(path)
            if now is None or now == seen:
                self._reported.pop(path, None)
            elif self._reported.get(path) != now:
                found[path] = now
        return found

    def _hash_of(self, path: str) -> str | None:
        """Return a file's current hash, `_GONE` if it does not exist; None if that is unknown."""
        try:
            target = self._workspace.resolve(path)
            if not target.exists:
                return _GONE
            before = self._hashes.get(path)
            if before and before[0] == identity(os.stat(target.real, follow_symlinks=False)):
                return before[1]
            read_ns = time.time_ns()
            with open_file(target.real) as fd:
                stat = os.fstat(fd)
                data = read_span(fd, 0, MAX_TEXT_BYTES + 1)
        except (ToolFailure, OSError):
            return None
        sha256 = sha256_of(data)
        self._hashes.pop(path, None)
        if abs(read_ns - max(stat.st_mtime_ns, stat.st_ctime_ns)) >= _RACY_NS:
            self._hashes[path] = (identity(stat), sha256)
        return sha256


def _sentence(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = len(paths) - _MAX_NAMED
    named = ", ".join(map(plain_or_quoted, paths[:_MAX_NAMED]))
    named += f" and {more:,} more" if more > 0 else ""
    count = f" ({len(paths):,} files)" if more > 0 else ""
    return (
        f"Changed on disk since you read them{count}: {named}. "
        "Read them again before you rely on them or edit them."
    )


MAX_LINES = 2000
MAX_LINE_CHARS = 2000
MAX_READ_BYTES = 50_000

PathOf = Annotated[str, arg("Relative or absolute.")]


class Looking(AgentTool):
    """Base of the tools that read files: resolves the path and runs the work in a thread."""

    def __init__(self, workspace: Workspace, permissions: Permissions) -> None:
        self._workspace = workspace
        self._permissions = permissions

    async def look(
        self, path: str, work: Callable[[Target, str, threading.Event], ToolOutput]
    ) -> ToolOutput:
        """Run work on an existing file, given its path as results show it; raises ToolFailure."""
        target = await self._permissions.read(self.name, path)
        if not target.exists:
            raise self._workspace.not_found(path, target)
        shown = self._workspace.record_path(target.real)
        with plain_failures(shown):
            return await interruptible(lambda stop: work(target, shown, stop))


class ReadFile(Looking):
    """Read a text file as numbered lines."""

    name = READ_FILE
    description = (
        f"Read a text file as numbered lines: at most {MAX_LINES:,} lines and "
        f"{MAX_READ_BYTES // 1000} KB per call, each line cut at {MAX_LINE_CHARS:,} characters."
    )

    class Params(Arguments, frozen=True):
        path: PathOf
        offset: Annotated[int, arg("First line (1-based); -20 reads the last 20 lines.")] = 1
        limit: Annotated[int, number("Lines to read.", 1, MAX_LINES)] = MAX_LINES

    def __init__(self, workspace: Workspace, permissions: Permissions, seen: SeenFiles) -> None:
        super().__init__(workspace, permissions)
        self._seen = seen

    def title(self, params: Params) -> str:
        """Return the file, and where reading starts."""
        return params.path if params.offset in (0, 1) else f"{params.path} from {params.offset}"

    async def run(self, params: Params) -> ToolOutput:
        """Return the lines, and how to continue."""
        output = await self.look(params.path, lambda target, shown, _: _read(target, shown, params))
        match output.data:
            case {
                "path": str(path),
                "sha256": str(sha256),
                "first_line": int(first),
                "last_line": int(last),
            }:
                self._seen.read(path, sha256, first, last)
        return output


def _read(target: Target, shown: str, params: ReadFile.Params) -> ToolOutput:
    first = params.offset or 1
    with open_file(target.real) as fd:
        if image := read_image(fd, shown):
            return image
        found, data = region(fd, shown, first)
    total = found.line_count
    if total is not None:
        if first < 0 or total == 0:
            first = max(1, total + first + 1) if total else 1
        elif first > total:
            raise ToolFailure(f"{shown} has {total:,} lines; there is no line {first:,}.")
    page = window(found, first, params.limit, width=MAX_LINE_CHARS, max_bytes=MAX_READ_BYTES)
    count = page.last - page.first + 1
    of = "" if total in (None, count) else f" of {total:,}"
    notes = found.text.notes
    if total == 0:
        notes.append("the file is empty")
    elif count != total:
        notes.append(f"lines {page.first:,} to {page.last:,}{of}")
        if page.more:
            notes.append(f"continue with offset={page.last + 1}")
    stored: dict[str, Json] = {"path": shown, "first_line": page.first, "last_line": page.last}
    if data is None:
        notes.append("too large to edit with these tools")
    else:
        stored |= {"lines": total, "sha256": sha256_of(data)}
    return ToolOutput(
        text="\n".join([page.body] * bool(page.body) + bracketed(notes)),
        display=counted(count, "line") + of,
        data=stored,
    )


def bracketed(notes: list[str]) -> list[str]:
    """Return the notes below a result as its last line; empty if there are none."""
    return [f"[{'; '.join(notes)}]"] if notes else []


class _Editing(AgentTool):
    """Base of the tools that write: check, show, ask, save the old content, write, remember."""

    def __init__(
        self, workspace: Workspace, permissions: Permissions, seen: SeenFiles, preimages: Path
    ) -> None:
        """Set the dependencies; `preimages` is the folder of contents before edits."""
        self._workspace = workspace
        self._permissions = permissions
        self._seen = seen
        self._preimages = preimages

    def _target(self, path: str) -> tuple[Target, str]:
        target = self._permissions.writable(path)
        shown = self._workspace.record_path(target.real)
        if path.endswith("/") and not target.exists:
            raise ToolFailure(f"{shown}/ names a folder. Give the path of a file.")
        return target, shown

    async def _load_seen(self, target: Target, shown: str) -> bytes:
        """Return an existing file's content, if it is what this session last read."""
        before = self._seen.hash_of(shown)
        if before is None:
            raise ToolFailure(f"{shown} {UNREAD}. Use read_file first.")

        def read(_: object) -> bytes:
            with open_file(target.real) as fd:
                return load(fd, shown)

        data = await interruptible(read)
        if sha256_of(data) != before:
            raise workspace.stale(shown)
        return data

    async def _write(
        self, given: str, target: Target, old: bytes | None, new: bytes, done: str
    ) -> ToolOutput:
        """Write what the user approves; without `old` content, create a new file."""
        from ragmem.tools.rewind import Preimages

        shown, cwd = self._workspace.record_path(target.real), self._workspace.cwd
        if target.real.is_relative_to(cwd) and not cwd.is_dir():
            raise ToolFailure(f"The working directory {cwd} no longer exists.")
        texts = ("", new.decode()) if old is None else (decode(old).text, decode(new).text)
        diff, added, removed = unified_diff(*texts, shown, creates=old is None)
        await self._permissions.edit(self.name, given, target, diff)
        # Links may have been created while the user was deciding.
        if self._permissions.writable(given).real != target.real:
            raise workspace.stale(shown)

        def write() -> tuple[str | None, int]:
            if old is None:
                try:
                    workspace.create(target.real, new)
                except FileExistsError:
                    raise _exists(shown) from None
                return None, 0
            with plain_failures(f"{shown} is unchanged: no copy can be kept in {self._preimages}"):
                kept = Preimages(self._preimages).keep(old)
            mode = stat.S_IMODE(target.real.stat().st_mode)
            workspace.replace(target.real, new, expected_sha256=sha256_of(old), shown=shown)
            return kept, mode

        written: list[tuple[str | None, int]] = []
        try:
            await interruptible(lambda _: written.append(write()))
        except asyncio.CancelledError:
            # What was written must be reported; the caller handles the end of the turn.
            if not written:
                raise
        (kept, mode), sha256 = written[0], sha256_of(new)
        self._seen.note(shown, sha256)
        stored: dict[str, Json] = {"path": shown, "sha256": sha256, "preimage": kept}
        how = counted(added, "line")
        if old is not None:
            changed = changed_lines(diff)
            stored["changed"] = [[first, last] for first, last, _ in changed]
            stored["replaced"] = [count for _, _, count in changed]
            stored["mode"] = mode
            how = f"+{added} −{removed} lines"
        return ToolOutput(text=f"{done} ({how}).", display=diff, data=stored)


class CreateFile(_Editing):
    """Create a file."""

    name = "create_file"
    description = "Create a new file, with any missing folders. Fails if the file exists."

    class Params(Arguments, frozen=True):
        path: PathOf
        content: Annotated[str, arg("The whole text.")]

    async def run(self, params: Params) -> ToolOutput:
        """Create the file without ever overwriting one."""
        target, shown = self._target(params.path)
        if target.exists:
            raise _exists(shown)
        with plain_failures(shown):
            new = _text(params.content).encode()
            return await self._write(params.path, target, None, new, f"Created {shown}")


class WriteFile(_Editing):
    """Write a file's whole content."""

    name = "write_file"
    description = (
        "Write a whole file: a new one, or one that you have read and mostly rewrite. "
        "To change part of a file, use edit_file."
    )

    class Params(Arguments, frozen=True):
        path: PathOf
        content: Annotated[str, arg("The whole new text.")]

    async def run(self, params: Params) -> ToolOutput:
        """Write the file, preserving its line ends, byte order mark and encoding."""
        target, shown = self._target(params.path)
        content = _text(params.content)
        with plain_failures(shown):
            if not target.exists:
                new = content.encode()
                return await self._write(params.path, target, None, new, f"Created {shown}")
            old = await self._load_seen(target, shown)
            before = decode(old)
            if before.crlf:
                content = content.replace("\r\n", "\n").replace("\n", "\r\n")
            new = _encode(before, content, shown)
            if new == old:
                raise ToolFailure(f"{shown} already has exactly this text; nothing was written.")
            return await self._write(params.path, target, old, new, f"Wrote {shown}")


class EditFile(_Editing):
    """Replace text: exactly, or with another indentation where that is unambiguous."""

    name = "edit_file"
    description = (
        "Replace an exact, unique piece of text in a file that you have read. For several "
        "changes, make several calls in one message."
    )

    class Params(Arguments, frozen=True):
        path: PathOf
        old: Annotated[str, arg("The exact text to replace, without line numbers.")]
        new: Annotated[str, arg("The text to put in its place.")]
        replace_all: Annotated[bool, arg("Replace every occurrence.")] = False

    async def run(self, params: Params) -> ToolOutput:
        """Edit the file, preserving line ends, byte order mark, encoding, mode, owner and links."""
        target, shown = self._target(params.path)
        if not target.exists:
            raise self._workspace.not_found(params.path, target)
        with plain_failures(shown):
            old = await self._load_seen(target, shown)
            before = decode(old)
            changed, where = _replaced(before.text, params)
            new = _encode(before, changed, shown)
            return await self._write(params.path, target, old, new, f"Edited {shown} at {where}")


def _replaced(text: str, params: EditFile.Params) -> tuple[str, str]:
    """Return the changed text, and where it changed; raises ToolFailure if `old` does not match."""
    new = _text(params.new)
    try:
        changed, lines = replace_text(text, params.old, new, replace_all=params.replace_all)
    except NoMatch:
        if params.replace_all or not (found := replace_indented(text, params.old, new)):
            raise
        changed, line = found
        return changed, (
            f"line {line}, where `old` differs only in whitespace: the file's indentation was kept"
        )
    return changed, f"line {listed(lines)}"


def _text(content: str) -> str:
    """Return the text, or raise ToolFailure for characters that no text file should contain."""
    if "\0" in content:
        raise ToolFailure("The text contains a NUL character. Nothing was written.")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ToolFailure("It contains an unpaired surrogate, so nothing was written.") from None
    return content


def _encode(before: Text, content: str, shown: str) -> bytes:
    try:
        return before.encode(content)
    except UnicodeEncodeError as error:
        raise ToolFailure(
            f"{shown} is encoded in {before.encoding}, which has no {error.object[error.start]!r}. "
            "Nothing was written."
        ) from None


def _exists(shown: str) -> ToolFailure:
    return ToolFailure(f"{shown} already exists. Read it, then use edit_file or write_file.")


_MAX_COMPARED = 4_000_000
"""Largest product of line counts for which two differing middles are compared line by line."""
_MOST_CHANGED, _CONTEXT = 50, 3
"""Most changed ranges that are distinguished, and lines of context around each in a diff."""
_HUNK = Regex(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def unified_diff(old: str, new: str, path: str, *, creates: bool = False) -> tuple[str, int, int]:
    """Return a unified diff without a final line end, and how many lines it adds and removes.

    A diff that `creates` the file starts from /dev/null, as elsewhere.

    Line ends are left out if all are CR LF; a change of line ends is shown.
    """
    if all(text.count("\n") == text.count("\r\n") for text in (old, new)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    a, b = _lines(old), _lines(new)
    head = common(a, b)
    tail = common(a[head:][::-1], b[head:][::-1])
    skip, stop = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    lines = list(_compare(a[skip : len(a) - stop], b[skip : len(b) - stop], skip))
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    before = "/dev/null" if creates else path
    return "\n".join([f"--- {before}", f"+++ {path}", *lines]), added, removed


def changed_lines(diff: str) -> list[tuple[int, int, int]]:
    """Return the first and last line of each changed range, numbered as after the change.

    Each comes with how many lines it had before. A pure deletion is marked at the line before it.
    """
    found: list[tuple[int, int, int]] = []
    number, removed = 1, 0

    def note(line: int, more: int) -> None:
        if found and (len(found) == _MOST_CHANGED or line <= found[-1][1] + 1):
            first, last, grown = found[-1]
            found[-1] = (first, max(line, last), grown + more)
        else:
            found.append((line, line, more))

    for row in [*diff.split("\n")[2:], " "]:
        if removed and not row.startswith(("-", "+", "\\")):
            note(max(1, number - 1), -removed)
            removed = 0
        if hunk := _HUNK.match(row):
            number = max(1, int(hunk[1]) + (hunk[2] == "0"))
        elif row.startswith("-"):
            removed += 1
        elif row.startswith("+"):
            note(number, 1 - removed)
            removed, number = 0, number + 1
        elif row.startswith(" "):
            number += 1
    return [(first, last, last - first + 1 - grown) for first, last, grown in found]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    lines[-1] += "\n\\ No newline at end of file"
    return lines


def _compare(a: list[str], b: list[str], skipped: int) -> Iterator[str]:
    if len(a) * len(b) > _MAX_COMPARED:
        groups = [[("replace", 0, len(a), 0, len(b))]]
    else:
        from difflib import SequenceMatcher

        matcher = SequenceMatcher(None, a, b, autojunk=False)
        groups = list(matcher.get_grouped_opcodes(_CONTEXT))
    for group in groups:
        (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
        yield f"@@ -{_range(a1, a2, skipped)} +{_range(b1, b2, skipped)} @@"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in a[a1:a2])
                continue
            yield from (f"-{line}" for line in a[a1:a2])
            yield from (f"+{line}" for line in b[b1:b2])


def _range(start: int, stop: int, skipped: int) -> str:
    length = stop - start
    begin = start + skipped + (1 if length else 0)
    return f"{begin}" if length == 1 else f"{begin},{length}"
