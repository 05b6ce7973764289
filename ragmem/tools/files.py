"""read_file, create_file, write_file and edit_file."""

import hashlib
from bisect import bisect_left
from typing import Annotated

import msgspec

from ragmem.messages import Json
from ragmem.own_tools import READ_FILE, Effect
from ragmem.text import Regex
from ragmem.tools import workspace
from ragmem.tools.base import Params, ToolFailure, ToolOutput, arg, number
from ragmem.tools.content import Text, decode, load, read_image, region, window
from ragmem.tools.permissions import Permissions
from ragmem.tools.rewind import Preimages
from ragmem.tools.seen import SeenFiles
from ragmem.tools.shell import interruptible
from ragmem.tools.workspace import Target, Workspace, open_file, plain_failures

MAX_LINES = 2000
MAX_LINE_CHARS = 2000
MAX_READ_BYTES = 50_000

PathOf = Annotated[str, arg("The file, relative to the working directory or absolute.")]


class ReadFileParams(Params, frozen=True):
    """Arguments of read_file."""

    path: PathOf
    offset: Annotated[int, arg("First line, from 1; -20 reads the last 20 lines.")] = 1
    limit: Annotated[int, number("Lines to read.", 1, MAX_LINES)] = MAX_LINES


class CreateFileParams(Params, frozen=True):
    """Arguments of create_file."""

    path: PathOf
    content: Annotated[str, arg("All of its text.")]


class WriteFileParams(Params, frozen=True):
    """Arguments of write_file."""

    path: PathOf
    content: Annotated[str, arg("All of its new text.")]


class EditFileParams(Params, frozen=True):
    """Arguments of edit_file."""

    path: PathOf
    old: Annotated[
        str, arg("The exact text to replace, without line numbers; it has to be unique.")
    ]
    new: Annotated[str, arg("What takes its place.")]
    replace_all: Annotated[bool, arg("Replace every place instead of the only one.")] = False


class ReadFile:
    """Numbered lines of a text file."""

    name = READ_FILE
    description = (
        f"Read a text file as numbered lines: at most {MAX_LINES:,} lines and "
        f"{MAX_READ_BYTES // 1000} KB a call, lines cut at {MAX_LINE_CHARS:,} characters. "
        "Use offset and limit to go on."
    )
    effect: Effect = "read"
    Params: type[msgspec.Struct] = ReadFileParams

    def __init__(self, workspace: Workspace, permissions: Permissions, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._permissions = permissions
        self._seen = seen

    def title(self, params: ReadFileParams) -> str:
        """The file, and where in it."""
        return params.path if params.offset in (0, 1) else f"{params.path} from {params.offset}"

    async def run(self, params: ReadFileParams) -> ToolOutput:
        """The lines, and how to go on."""
        target = await self._permissions.read(self.name, params.path)
        if not target.exists:
            raise self._workspace.not_found(params.path, target)
        shown = self._workspace.record_path(target.real)
        with plain_failures(shown):
            output, sha256 = await interruptible(lambda _: _read(target, shown, params))
        if sha256:
            first, last = output.data["first_line"], output.data["last_line"]
            assert isinstance(first, int)
            assert isinstance(last, int)
            self._seen.read(shown, sha256, first, last)
        return output


def _read(target: Target, shown: str, params: ReadFileParams) -> tuple[ToolOutput, str | None]:
    first = params.offset or 1
    with open_file(target.real) as fd:
        if image := read_image(fd, shown):
            return image, None
        found, data = region(fd, shown, first)
    sha256 = hashlib.sha256(data).hexdigest() if data is not None else None
    total = found.line_count
    if total is not None:
        if first < 0:
            first = max(1, total + first + 1)
        if total == 0:
            first = 1
        elif first > total:
            raise ToolFailure(f"{shown} has {total:,} lines; there is no line {first:,}.")
    page = window(found, first, params.limit, line_chars=MAX_LINE_CHARS, max_bytes=MAX_READ_BYTES)
    count = page.last - page.first + 1
    whole = count == total
    notes = list(found.text.notes)
    if total == 0:
        notes.append("the file is empty")
    elif not whole:
        of = f" of {total:,}" if total is not None else ""
        notes.append(f"lines {page.first:,} to {page.last:,}{of}")
        if page.more:
            notes.append(f"go on with offset={page.last + 1}")
    if sha256 is None:
        notes.append("too large to be edited with these tools")
    data_out: dict[str, str | int] = {
        "path": shown,
        "first_line": page.first,
        "last_line": page.last,
    }
    if total is not None:
        data_out["lines"] = total
    if sha256:
        data_out["sha256"] = sha256
    return ToolOutput(
        text="\n".join([*([page.body] if page.body else []), *_bracketed(notes)]),
        display=f"{count:,} line{'' if count == 1 else 's'}"
        + (f" of {total:,}" if total is not None and not whole else ""),
        data=data_out,
    ), sha256


def _bracketed(notes: list[str]) -> list[str]:
    return [f"[{'; '.join(notes)}]"] if notes else []


class _Editing:
    """What the three writing tools share: refuse, show, ask, keep the old, write, remember."""

    name: str
    effect: Effect = "edit"

    def __init__(
        self,
        workspace: Workspace,
        permissions: Permissions,
        seen: SeenFiles,
        preimages: Preimages,
    ) -> None:
        self._workspace = workspace
        self._permissions = permissions
        self._seen = seen
        self._preimages = preimages

    def _target(self, path: str) -> tuple[Target, str]:
        target = self._permissions.writable(path)
        return target, self._workspace.record_path(target.real)

    async def _load_seen(self, target: Target, shown: str) -> bytes:
        """An existing file's content, if it is what this session read last."""
        before = self._seen.hash_of(shown)
        if before is None:
            raise ToolFailure(
                f"{shown} has not been read in this session. Read it with read_file first."
            )

        def read(_: object) -> bytes:
            with open_file(target.real) as fd:
                return load(fd, shown)

        data = await interruptible(read)
        if hashlib.sha256(data).hexdigest() != before:
            raise workspace.stale(shown)
        return data

    async def _create(self, given: str, target: Target, shown: str, content: str) -> ToolOutput:
        cwd = self._workspace.cwd
        if target.real.is_relative_to(cwd) and not cwd.is_dir():
            raise ToolFailure(f"The working directory {cwd} is gone.")
        data = content.encode()
        diff = unified_diff("", content, shown, creates=True)
        await self._permissions.edit(self.name, given, target, diff[0])
        # The answer took time, in which links may have been laid.
        now = self._permissions.writable(given)
        if now.real != target.real:
            raise workspace.stale(shown)

        def write(_: object) -> None:
            try:
                workspace.create(target.real, data)
            except FileExistsError:
                raise _exists(shown) from None

        await interruptible(write)
        lines = diff[1]
        return self._done(
            shown, data, None, diff, f"Created {shown} ({lines:,} line{'' if lines == 1 else 's'})."
        )

    async def _replace(
        self, given: str, target: Target, old: bytes, new: bytes, text: str
    ) -> ToolOutput:
        shown = self._workspace.record_path(target.real)
        diff = unified_diff(decode(old).text, decode(new).text, shown)
        await self._permissions.edit(self.name, given, target, diff[0])
        if self._permissions.writable(given).real != target.real:
            raise workspace.stale(shown)

        def write(_: object) -> str:
            kept = self._preimages.keep(old)
            workspace.replace(target.real, new, expected_sha256=_hash(old), shown=shown)
            return kept

        kept = await interruptible(write)
        return self._done(shown, new, kept, diff, f"{text} (+{diff[1]} −{diff[2]} lines).")

    def _done(
        self, shown: str, data: bytes, preimage: str | None, diff: tuple[str, int, int], text: str
    ) -> ToolOutput:
        sha256 = _hash(data)
        self._seen.note(shown, sha256)
        stored: dict[str, Json] = {"path": shown, "sha256": sha256, "preimage": preimage}
        if preimage is not None:
            changed = changed_lines(diff[0])
            stored["changed"] = [[first, last] for first, last, _ in changed]
            stored["replaced"] = [count for _, _, count in changed]
        return ToolOutput(text=text, display=diff[0], data=stored)


class CreateFile(_Editing):
    """A new file."""

    name = "create_file"
    description = "Create a new text file, and its folders. An existing file is refused."
    Params: type[msgspec.Struct] = CreateFileParams

    def title(self, params: CreateFileParams) -> str:
        """The file."""
        return params.path

    async def run(self, params: CreateFileParams) -> ToolOutput:
        """Nothing is overwritten."""
        target, shown = self._target(params.path)
        if target.exists:
            raise _exists(shown)
        with plain_failures(shown):
            return await self._create(params.path, target, shown, _text(params.content))


class WriteFile(_Editing):
    """A file's whole content."""

    name = "write_file"
    description = (
        "Replace the whole content of a text file, or create it. An existing file has to be read "
        "first. Prefer edit_file for changes."
    )
    Params: type[msgspec.Struct] = WriteFileParams

    def title(self, params: WriteFileParams) -> str:
        """The file."""
        return params.path

    async def run(self, params: WriteFileParams) -> ToolOutput:
        """Line ends, byte order mark and encoding stay as the file had them."""
        target, shown = self._target(params.path)
        content = _text(params.content)
        with plain_failures(shown):
            if not target.exists:
                return await self._create(params.path, target, shown, content)
            old = await self._load_seen(target, shown)
            before = decode(old)
            if before.crlf:
                content = content.replace("\r\n", "\n").replace("\n", "\r\n")
            new = _encode(before, content, shown)
            if new == old:
                raise ToolFailure(f"{shown} holds exactly this already; nothing was written.")
            return await self._replace(params.path, target, old, new, f"Wrote {shown}")


class EditFile(_Editing):
    """One exact replacement."""

    name = "edit_file"
    description = (
        "Replace an exact, unique piece of a text file that was read before. Everything else "
        "stays byte for byte."
    )
    Params: type[msgspec.Struct] = EditFileParams

    def title(self, params: EditFileParams) -> str:
        """The file."""
        return params.path

    async def run(self, params: EditFileParams) -> ToolOutput:
        """Line ends, byte order mark, encoding, mode, owner and links stay."""
        target, shown = self._target(params.path)
        if not target.exists:
            raise self._workspace.not_found(params.path, target)
        with plain_failures(shown):
            old = await self._load_seen(target, shown)
            before = decode(old)
            changed, lines = replace_text(
                before.text, params.old, _text(params.new), replace_all=params.replace_all
            )
            new = _encode(before, changed, shown)
            places = "line " + ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
            return await self._replace(params.path, target, old, new, f"Edited {shown} at {places}")


def _text(content: str) -> str:
    """ToolFailure for what no text file should hold."""
    if "\0" in content:
        raise ToolFailure("The text holds a NUL character. Nothing was written.")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ToolFailure(
            "The text holds half of a surrogate pair, so nothing was written."
        ) from None
    return content


def _encode(before: Text, content: str, shown: str) -> bytes:
    try:
        return before.encode(content)
    except UnicodeEncodeError as error:
        raise ToolFailure(
            f"{shown} is in {before.encoding}, which has no {error.object[error.start]!r}. "
            "Nothing was written."
        ) from None


def _exists(shown: str) -> ToolFailure:
    return ToolFailure(
        f"{shown} exists already. Read it, then use edit_file or write_file to change it."
    )


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_MAX_COMPARED = 4_000_000
"""Product of the line counts up to which two middles are compared line by line."""
_MOST_CHANGED = 50
_HUNK = Regex(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def replace_text(text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, list[int]]:
    """The text with `old` replaced, and the line numbers where it was.

    `old` must match exactly; in a text with CR LF its line ends may be given as
    LF, and what replaces them takes the style of the place. ToolFailure when
    there is no match, or several without `replace_all`.
    """
    if not old:
        raise ToolFailure("`old` is empty. Give the exact text to replace, or use write_file.")
    if old == new:
        raise ToolFailure("`old` and `new` are the same; there is nothing to change.")
    if "\r\n" not in text:
        starts = _matches(text, old, replace_all=replace_all)
        spans = [(start, start + len(old)) for start in starts]
        return _join(text, spans, [new] * len(spans)), [_line_at(text, s) for s, _ in spans]
    # Positions in the text with LF alone, mapped back: what is not replaced stays byte for byte.
    flat, old, new = (part.replace("\r\n", "\n") for part in (text, old, new))
    returns = _carriage_returns(text)
    starts = _matches(flat, old, replace_all=replace_all)

    def back(at: int) -> int:
        return at + bisect_left(returns, at)

    spans = [(back(start), back(start + len(old))) for start in starts]
    default_crlf = 2 * len(returns) >= text.count("\n")
    news = []
    for start, end in spans:
        ends = text.count("\n", start, end)
        crlf = 2 * text.count("\r\n", start, end) >= ends if ends else default_crlf
        news.append(new.replace("\n", "\r\n") if crlf else new)
    return _join(text, spans, news), [_line_at(flat, s) for s in starts]


def unified_diff(old: str, new: str, path: str, *, creates: bool = False) -> tuple[str, int, int]:
    """A unified diff without its end, and how many lines it adds and removes.

    One that `creates` the file comes from /dev/null, as it does elsewhere.

    Line ends are left out of sight where both sides have the same; a change of
    line ends alone shows.
    """
    flat = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if flat[0] != flat[1]:
        old, new = flat
    a, b = _lines(old), _lines(new)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    context = 3
    skip = max(0, head - context)
    stop = max(0, tail - context)
    a, b = a[skip : len(a) - stop], b[skip : len(b) - stop]
    lines = _compare(a, b, skip)
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    before = "/dev/null" if creates else path
    return "\n".join([f"--- {before}", f"+++ {path}", *lines]), added, removed


def changed_lines(diff: str) -> list[tuple[int, int, int]]:
    """First and last line of each stretch that a unified diff changes, as they are afterwards.

    With how many lines were there before. What was only taken away is told by the line before it.
    """
    found: list[tuple[int, int, int]] = []
    number, removed = 1, 0

    def note(line: int, more: int) -> None:
        if found and (len(found) == _MOST_CHANGED or line <= found[-1][1] + 1):
            first, last, grown = found[-1]
            found[-1] = (first, max(line, last), grown + more)
        else:
            found.append((line, line, more))

    for row in diff.split("\n")[2:]:
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
    if removed:
        note(max(1, number - 1), -removed)
    return [(first, last, last - first + 1 - grown) for first, last, grown in found]


def _matches(text: str, old: str, *, replace_all: bool) -> list[int]:
    first = text.find(old)
    if first < 0:
        raise ToolFailure(_no_match(text, old))
    if not replace_all:
        if text.find(old, first + 1) >= 0:
            places = [_line_at(text, at) for at in _every(text, old)]
            listed = ", ".join(map(str, places[:10])) + (", …" if len(places) > 10 else "")
            raise ToolFailure(
                f"`old` matches {max(2, len(places))} places (lines {listed}). Nothing was "
                "changed. Give more of the surrounding lines, or set replace_all."
            )
        return [first]
    return _every(text, old)


def _every(text: str, old: str) -> list[int]:
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _no_match(text: str, old: str) -> str:
    message = "`old` is not in the file. Nothing was changed."
    lines = old.strip("\n").split("\n")
    if all(line.lstrip()[:1].isdigit() and "\t" in line for line in lines):
        return f"{message} Leave out the line numbers that read_file shows."
    wanted = next((line.strip() for line in lines if line.strip()), "")
    near = [n for n, line in enumerate(text.split("\n"), 1) if wanted and line.strip() == wanted]
    if near:
        listed = ", ".join(map(str, near[:5]))
        return (
            f"{message} Its first line stands at line {listed}, but white space or the lines "
            "after it differ. Read those lines again and copy them exactly."
        )
    return f"{message} Read the file again and copy the text exactly."


def _carriage_returns(text: str) -> list[int]:
    """Where, in the text with LF alone, a line end had a carriage return before it."""
    found: list[int] = []
    at = text.find("\r\n")
    while at >= 0:
        found.append(at - len(found))
        at = text.find("\r\n", at + 2)
    return found


def _join(text: str, spans: list[tuple[int, int]], news: list[str]) -> str:
    parts, position = [], 0
    for (start, end), new in zip(spans, news, strict=True):
        parts += [text[position:start], new]
        position = end
    return "".join([*parts, text[position:]])


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    lines[-1] += "\n\\ No newline at end of file"
    return lines


def _common(a: list[str], b: list[str]) -> int:
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def _compare(a: list[str], b: list[str], skipped: int) -> list[str]:
    if len(a) * len(b) > _MAX_COMPARED:
        header = f"@@ -{skipped + 1},{len(a)} +{skipped + 1},{len(b)} @@"
        return [header, *(f"-{line}" for line in a), *(f"+{line}" for line in b)]
    from difflib import SequenceMatcher

    out = []
    for group in SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        out.append(
            f"@@ -{_range(first[1], last[2], skipped)} +{_range(first[3], last[4], skipped)} @@"
        )
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                out += [f" {line}" for line in a[a1:a2]]
                continue
            out += [f"-{line}" for line in a[a1:a2]]
            out += [f"+{line}" for line in b[b1:b2]]
    return out


def _range(start: int, stop: int, skipped: int) -> str:
    length = stop - start
    begin = start + skipped + (1 if length else 0)
    return f"{begin}" if length == 1 else f"{begin},{length}"
