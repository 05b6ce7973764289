"""read_file, create_file, write_file and edit_file."""

import hashlib
from typing import Annotated

import msgspec

from ragmem.messages import Json
from ragmem.tools import atomic
from ragmem.tools.base import Effect, ToolFailure, ToolOutput
from ragmem.tools.content import Text, decode, load, region, window
from ragmem.tools.edits import changed_lines, replace_text, unified_diff
from ragmem.tools.permissions import Permissions
from ragmem.tools.preimages import Preimages
from ragmem.tools.process import interruptible
from ragmem.tools.seen import SeenFiles
from ragmem.tools.workspace import Target, Workspace, open_file, plain_failures

MAX_LINES = 2000
MAX_LINE_CHARS = 2000
MAX_READ_BYTES = 50_000

PathOf = Annotated[
    str, msgspec.Meta(description="The file, relative to the working directory or absolute.")
]


class ReadFileParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of read_file."""

    path: PathOf
    offset: Annotated[
        int, msgspec.Meta(description="First line, from 1; -20 reads the last 20 lines.")
    ] = 1
    limit: Annotated[int, msgspec.Meta(description="Lines to read.", ge=1, le=MAX_LINES)] = (
        MAX_LINES
    )


class CreateFileParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of create_file."""

    path: PathOf
    content: Annotated[str, msgspec.Meta(description="All of its text.")]


class WriteFileParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of write_file."""

    path: PathOf
    content: Annotated[str, msgspec.Meta(description="All of its new text.")]


class EditFileParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of edit_file."""

    path: PathOf
    old: Annotated[
        str,
        msgspec.Meta(
            description="The exact text to replace, without line numbers; it has to be unique."
        ),
    ]
    new: Annotated[str, msgspec.Meta(description="What takes its place.")]
    replace_all: Annotated[
        bool, msgspec.Meta(description="Replace every place instead of the only one.")
    ] = False


class ReadFile:
    """Numbered lines of a text file."""

    name = "read_file"
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
            raise atomic.stale(shown)
        return data

    async def _create(self, given: str, target: Target, shown: str, content: str) -> ToolOutput:
        cwd = self._workspace.cwd
        if target.real.is_relative_to(cwd) and not cwd.is_dir():
            raise ToolFailure(f"The working directory {cwd} is gone.")
        data = content.encode()
        diff = unified_diff("", content, shown)
        await self._permissions.edit(self.name, given, target, diff[0])
        # The answer took time, in which links may have been laid.
        now = self._permissions.writable(given)
        if now.real != target.real:
            raise atomic.stale(shown)

        def write(_: object) -> None:
            try:
                atomic.create(target.real, data)
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
            raise atomic.stale(shown)

        def write(_: object) -> str:
            kept = self._preimages.keep(old)
            atomic.replace(target.real, new, expected_sha256=_hash(old), shown=shown)
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
