"""Files taken back to what they were before a session's edits, each with a word about it.

Never over what changed since unless the person says so; what is overwritten or removed is
kept beside the pre-images first, so that this too can be undone by hand.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ragmem.memory.rewinding import FileChange
from ragmem.tools import atomic
from ragmem.tools.base import ToolFailure
from ragmem.tools.content import MAX_TEXT_BYTES, read_span
from ragmem.tools.preimages import Preimages
from ragmem.tools.process import interruptible
from ragmem.tools.workspace import Target, Workspace, open_file, open_folder, plain_failures

_CUT_OFF = "an edit of it was cut off, and what stood there before is not known"

Outcome = Literal["restored", "removed", "as_before", "kept", "failed"]
Confirm = Callable[[str, str], Awaitable[bool]]
"""Is told the file and why there is doubt; whether to go back all the same."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file."""

    path: str
    outcome: Outcome
    note: str = ""
    """Why it was left as it is, or where what stood there is kept now."""


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    target: Target
    content: bytes | None
    """Of the file now; None where there is none."""


class Restorer:
    """Takes files back, inside one workspace."""

    def __init__(self, workspace: Workspace, preimages: Preimages) -> None:
        self._workspace = workspace
        self._preimages = preimages

    async def restore(self, changes: Sequence[FileChange], confirm: Confirm) -> list[Restored]:
        """One after the other; what can't be done for one keeps none of the others."""
        done = []
        cut_off = [each for each in (self._real(c.path) for c in changes if c.cut_off) if each]
        for change in changes:
            try:
                if self._real(change.path) in cut_off:
                    raise ToolFailure(_CUT_OFF)
                done.append(await self._restore(change, confirm))
            except ToolFailure as failure:
                done.append(
                    Restored(path=change.path, outcome="failed", note=str(failure) or "refused")
                )
        return done

    async def _restore(self, change: FileChange, confirm: Confirm) -> Restored:
        path = change.path
        found = await interruptible(lambda _: self._look(path))
        now = found.content
        wanted = await interruptible(lambda _: self._wanted(change, now))
        if now == wanted:
            return Restored(path=path, outcome="as_before")
        if doubt := _doubt(change, now):
            if not await confirm(path, doubt):
                return Restored(path=path, outcome="kept", note=doubt)
            # The answer took time.
            again = await interruptible(lambda _: self._look(path))
            if again.content != now or again.target.real != found.target.real:
                raise atomic.stale(path)
        return await interruptible(lambda _: self._put(path, found, wanted))

    def _real(self, path: str) -> Path | None:
        try:
            return self._workspace.resolve(path).real
        except ToolFailure:
            return None

    def _wanted(self, change: FileChange, now: bytes | None) -> bytes | None:
        if change.before is None:
            return None
        try:
            return self._preimages.load(change.before, now)
        except FileNotFoundError:
            raise ToolFailure("what stood there before is not kept on this machine") from None
        except (OSError, ValueError) as error:
            raise ToolFailure(f"what stood there before can't be read: {error}") from None

    def _look(self, path: str) -> _Found:
        target = self._workspace.resolve(path)
        if self._workspace.is_private(target.real):
            raise ToolFailure("it belongs to ragmem itself")
        if not target.inside:
            raise ToolFailure("it lies outside of this folder; --add-dir adds another one")
        if not target.exists:
            return _Found(target=target, content=None)
        with plain_failures(path), open_file(target.real) as fd:
            content = read_span(fd, 0, MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise ToolFailure(f"it is larger than {MAX_TEXT_BYTES:,} bytes now")
        return _Found(target=target, content=content)

    def _kept(self, now: bytes) -> str:
        file = self._preimages.path(self._preimages.keep(now))
        return f"what stood there is {file}" + (", but for its secrets" if file.suffix else "")

    def _put(self, path: str, found: _Found, wanted: bytes | None) -> Restored:
        real, now = found.target.real, found.content
        note = ""
        with plain_failures(path):
            if now is not None:
                note = self._kept(now)
            if wanted is None:
                assert now is not None
                with open_folder(real.parent) as folder:
                    if self._look(path).content != now:
                        raise atomic.stale(path)
                    os.unlink(real.name, dir_fd=folder)
                return Restored(path=path, outcome="removed", note=note)
            if now is None:
                try:
                    atomic.create(real, wanted)
                except FileExistsError:
                    raise atomic.stale(path) from None
            else:
                expected = hashlib.sha256(now).hexdigest()
                atomic.replace(real, wanted, expected_sha256=expected, shown=path)
        return Restored(path=path, outcome="restored", note=note)


def _doubt(change: FileChange, now: bytes | None) -> str:
    """Why the person is to be asked; empty where only this session has written the file."""
    if now is None:
        return "it is gone since"
    if hashlib.sha256(now).hexdigest() != change.after:
        return "it was changed since the last edit of this session"
    if not change.unbroken:
        return "it was also changed by others between the edits of this session"
    return ""
