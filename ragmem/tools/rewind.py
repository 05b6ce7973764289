"""Keep files as they were before an edit, byte for byte, so that edits can be undone.

Contents are stored by hash: `<folder>/<first two digits>/<sha256>`, mode 0600 in 0700 folders,
outside recall and export. Of a file with secrets only the text between them is kept, with the kind
of each, in `<sha256>.parts`: the secrets themselves are taken from the current file when it is
restored. Nothing here is deleted by age.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations, islice, product
from pathlib import Path
from typing import Literal

import msgspec

from ragmem.files import make_private, replace_private, sync_folder
from ragmem.memory.files import FileChange
from ragmem.redact import parted, redact
from ragmem.tools import workspace
from ragmem.tools.base import ToolFailure, interruptible
from ragmem.tools.content import MAX_TEXT_BYTES, Encoding, Text, decode, read_span, sha256_of
from ragmem.tools.workspace import Workspace, open_file, open_folder, plain_failures

_NAME = re.compile("[0-9a-f]{64}")
_SECRETS_REMOVED = ".looked-through"
_MOST_GUESSES = 1000
_MOST_HASHED_BYTES = 256 * 1024 * 1024


class _Parts(msgspec.Struct, frozen=True):
    """What is kept of a file with secrets: the text around them, and their kinds."""

    pieces: tuple[str, ...]
    """Empty if the file could not be split."""
    kinds: tuple[str, ...]
    encoding: Encoding
    bom: bytes

    def filled(self, secrets: Iterable[str]) -> bytes:
        """Return the file's content with these secrets inserted."""
        first, *others = self.pieces
        behind = (secret + piece for secret, piece in zip(secrets, others, strict=True))
        return Text(text="", encoding=self.encoding, bom=self.bom).encode(first + "".join(behind))


class Preimages:
    """The folder of file contents as they were before edits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, content: bytes) -> str:
        """Store a content durably, without its secrets; returns its SHA-256, which `load` takes."""
        name = sha256_of(content)
        text = decode(content)
        clear, parts = self._files(name)
        if redact(text.text) == text.text and not parts.exists():
            self._write(clear, content)
        else:
            self._write(parts, _without_secrets(text))
            # An earlier version kept it whole.
            clear.unlink(missing_ok=True)
        return name

    def load(self, sha256: str, now: bytes | None = None) -> bytes:
        """Return a stored content, with secrets taken from the file's current content `now`.

        Raises OSError if it is gone, ValueError if it is damaged, ToolFailure if a secret is gone.
        """
        if not _NAME.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is not the name of a pre-image.")
        if now is not None and sha256_of(now) == sha256:
            return now
        clear, parts = self._files(sha256)
        try:
            content = clear.read_bytes()
        except FileNotFoundError:
            return _with_secrets(sha256, parts.read_bytes(), now)
        if sha256_of(content) != sha256:
            raise _damaged(sha256)
        return content

    def path(self, sha256: str) -> Path:
        """Return the file that stores a content."""
        clear, parts = self._files(sha256)
        return parts if parts.exists() else clear

    def made_at(self, sha256: str) -> datetime | None:
        """Return when a content was stored; None if it is not."""
        try:
            return datetime.fromtimestamp(self.path(sha256).stat().st_mtime, UTC)
        except OSError:
            return None

    def remove(self, names: Iterable[str]) -> int:
        """Delete contents for good; returns how many existed."""
        files = [file for name in names if _NAME.fullmatch(name) for file in self._files(name)]
        found = [file for file in files if file.exists()]
        for file in found:
            file.unlink(missing_ok=True)
        return len({file.with_suffix("") for file in found})

    def look_through(self) -> None:
        """Remove the secrets from contents that earlier versions stored whole; runs once."""
        done = self._folder / _SECRETS_REMOVED
        if done.exists() or not self._folder.is_dir():
            return
        for file in self._folder.glob("??/*"):
            if _NAME.fullmatch(file.name) and sha256_of(content := file.read_bytes()) == file.name:
                self.keep(content)
        replace_private(done, b"", sync=False)

    def _files(self, name: str) -> tuple[Path, Path]:
        clear = self._folder / name[:2] / name
        return clear, clear.with_name(f"{name}.parts")

    def _write(self, file: Path, data: bytes) -> None:
        if file.exists():
            return
        make_private(file.parent)
        replace_private(file, data, sync=True)
        sync_folder(file.parent)


def _without_secrets(text: Text) -> bytes:
    found = parted(text.text)
    pieces = found.pieces if found else ()
    kinds = tuple(kind for kind, _ in found.secrets) if found else ()
    # JSON escapes preserve what is not UTF-8.
    return json.dumps(msgspec.to_builtins(_Parts(pieces, kinds, text.encoding, text.bom))).encode()


def _with_secrets(sha256: str, data: bytes, now: bytes | None) -> bytes:
    try:
        parts = msgspec.convert(json.loads(data), _Parts)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise _damaged(sha256) from None
    if not parts.pieces:
        raise ToolFailure("its old content was not kept: the secrets in it could not be removed")
    size = max(1, sum(map(len, parts.pieces)))
    most = max(1, min(_MOST_GUESSES, _MOST_HASHED_BYTES // size))
    for secrets in islice(_guesses(parts, now), most):
        try:
            content = parts.filled(secrets)
        except ValueError:
            continue
        if sha256_of(content) == sha256:
            return content
    kinds = ", ".join(sorted(set(parts.kinds)))
    raise ToolFailure(
        f"its previous content had a secret ({kinds}) that is no longer in the file, and "
        "no copy of a secret is kept"
    )


def _guesses(parts: _Parts, now: bytes | None) -> Iterator[tuple[str, ...]]:
    """Yield choices of the current secrets: by what precedes each on its line, then by kind."""
    here = parted(decode(now).text) if now is not None else None
    if here is None:
        return
    of_line, of_kind = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for before, (kind, secret) in zip(here.pieces, here.secrets, strict=False):
        of_line[before.rpartition("\n")[2]].append(secret)
        of_kind[kind].append(secret)
    lines = [before.rpartition("\n")[2] for before in parts.pieces[:-1]]
    if all(lines.count(line) <= len(of_line[line]) for line in set(lines)):
        yield _in_order(lines, of_line)
    counts = {kind: parts.kinds.count(kind) for kind in parts.kinds}
    choices = (
        list(islice(combinations(of_kind[kind], count), _MOST_GUESSES))
        for kind, count in counts.items()
    )
    for chosen in product(*choices):
        yield _in_order(parts.kinds, dict(zip(counts, chosen, strict=True)))


def _in_order(keys: Sequence[str], values: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return, for each key, the next of its values."""
    left = {key: iter(of_key) for key, of_key in values.items()}
    return tuple(next(left[key]) for key in keys)


def _damaged(sha256: str) -> ValueError:
    return ValueError(f"The pre-image {sha256} is damaged.")


_CUT_OFF = "an edit of it was interrupted, and its previous content is not known"

Outcome = Literal["restored", "removed", "as_before", "kept", "failed"]
Confirm = Callable[[str, str], Awaitable[bool]]
"""Receives the file and the reason for doubt; returns whether to restore it anyway."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one file."""

    path: str
    outcome: Outcome
    note: str = ""
    """Why it was left unchanged."""
    kept: Path | None = None
    """Where its previous content is kept; without secrets if the name ends in `.parts`."""


class Restorer:
    """Restores files inside one workspace."""

    def __init__(self, workspace: Workspace, preimages: Preimages) -> None:
        self._workspace = workspace
        self._preimages = preimages

    async def restore(self, changes: Sequence[FileChange], confirm: Confirm) -> list[Restored]:
        """Restore files one by one; a failure of one does not affect the others."""
        done = []
        cut_off = [each for each in (self._real(c.path) for c in changes if c.cut_off) if each]
        for each in changes:
            try:
                if self._real(each.path) in cut_off:
                    raise ToolFailure(_CUT_OFF)
                done.append(await self._restore(each, confirm))
            except ToolFailure as why:
                done.append(Restored(path=each.path, outcome="failed", note=str(why) or "refused"))
        return done

    async def sides(self, change: FileChange) -> tuple[bytes | None, bytes | None]:
        """Return a file's content before its first edit, and now; None where it does not exist.

        Raises ToolFailure, with the reason, if either is unknown.
        """
        if change.cut_off:
            raise ToolFailure(_CUT_OFF)
        _, now = await interruptible(lambda _: self._current(change.path))
        return await interruptible(lambda _: self._content_before(change, now)), now

    async def _restore(self, change: FileChange, confirm: Confirm) -> Restored:
        path = change.path
        real, now = found = await interruptible(lambda _: self._current(path))
        wanted = await interruptible(lambda _: self._content_before(change, now))
        if now == wanted:
            return Restored(path=path, outcome="as_before")
        if doubt := _doubt(change, now):
            if not await confirm(path, doubt):
                return Restored(path=path, outcome="kept", note=doubt)
            # The file may have changed while the user was deciding.
            if await interruptible(lambda _: self._current(path)) != found:
                raise workspace.stale(path)
        return await interruptible(lambda _: self._apply(change, real, now, wanted))

    def _real(self, path: str) -> Path | None:
        try:
            return self._workspace.resolve(path).real
        except ToolFailure:
            return None

    def _content_before(self, change: FileChange, now: bytes | None) -> bytes | None:
        if change.before is None:
            return None
        try:
            return self._preimages.load(change.before, now)
        except FileNotFoundError:
            raise ToolFailure("its previous content is not kept on this machine") from None
        except (OSError, ValueError) as error:
            raise ToolFailure(f"its previous content can't be read: {error}") from None

    def _current(self, path: str) -> tuple[Path, bytes | None]:
        """Return the real path and its current content; None if it does not exist."""
        target = self._workspace.resolve(path)
        if self._workspace.is_private(target.real):
            raise ToolFailure("it belongs to ragmem itself")
        if not target.inside:
            raise ToolFailure("it is outside this folder; add its folder with --add-dir")
        if not target.exists:
            return target.real, None
        with plain_failures(path), open_file(target.real) as fd:
            content = read_span(fd, 0, MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise ToolFailure(f"it is now larger than {MAX_TEXT_BYTES:,} bytes")
        return target.real, content

    def _apply(
        self, change: FileChange, real: Path, now: bytes | None, wanted: bytes | None
    ) -> Restored:
        path, kept = change.path, None
        with plain_failures(path):
            if now is not None:
                kept = self._preimages.path(self._preimages.keep(now))
            if wanted is None:
                assert now is not None
                with open_folder(real.parent) as folder:
                    if self._current(path) != (real, now):
                        raise workspace.stale(path)
                    os.unlink(real.name, dir_fd=folder)
                return Restored(path=path, outcome="removed", kept=kept)
            if now is None:
                try:
                    workspace.create(real, wanted, change.mode)
                except FileExistsError:
                    raise workspace.stale(path) from None
            else:
                workspace.replace(real, wanted, expected_sha256=sha256_of(now), shown=path)
        return Restored(path=path, outcome="restored", kept=kept)


def _doubt(change: FileChange, now: bytes | None) -> str:
    """Return why to ask the user; empty if only this session has written the file."""
    if now is None:
        return "it no longer exists"
    if sha256_of(now) != change.after:
        return "it has changed since this session's last edit"
    if not change.unbroken:
        return "others also changed it between this session's edits"
    return ""
