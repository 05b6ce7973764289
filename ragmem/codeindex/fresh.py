"""The lines of what was found, as they are on the disk now: stale text is never shown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from ragmem.codeindex.identity import known_of
from ragmem.codeindex.reading import (
    Content,
    NotRead,
    is_binary,
    is_racy,
    read,
    without_secrets,
)
from ragmem.codeindex.refreshing import opened_folder
from ragmem.codeindex.values import CodeHit, Cut, CutScope
from ragmem.errors import UsageError
from ragmem.redact import reaches_over_lines, redact_lines


class Stand(NamedTuple):
    """How a file and a scope in it were when they were indexed."""

    size: int
    mtime_ns: int
    seen_ns: int
    file_hash: str
    scope_hash: str


def stands_of(connection: apsw.Connection, hits: Sequence[CodeHit]) -> dict[str, Stand]:
    """By the ids of the scopes."""
    ids = msgspec.json.encode([hit.scope_id for hit in hits]).decode()
    return {
        str(scope_id): Stand(*rest)
        for scope_id, *rest in connection.execute(
            "SELECT s.scope_id, f.size, f.mtime_ns, f.seen_ns, f.hash, s.hash FROM scopes AS s"
            " JOIN files AS f USING (file) WHERE s.scope_id IN (SELECT value FROM json_each(?))",
            (ids,),
        )
    }


def with_texts(
    root: Path, hits: Sequence[CodeHit], stands: Mapping[str, Stand], most: int
) -> list[CodeHit]:
    """The hits with their lines; of a file that changed as it is cut now. What is gone is left out.

    Blocks.
    """
    files: dict[str, _File] = {}
    found: list[CodeHit] = []
    try:
        with opened_folder(root) as folder:
            for hit in hits:
                if hit.path not in files:
                    files[hit.path] = _File(folder, hit.path, most)
                fresh = files[hit.path].fresh(hit, stands.get(hit.scope_id))
                if fresh is not None:
                    found.append(fresh)
    except UsageError:  # the folder is gone
        return []
    return found


class _File:
    """A file that hits are in, read once, and cut where it has to be."""

    def __init__(self, folder: int, path: str, most: int) -> None:
        self._path = path
        self._content: Content | None
        try:
            self._content = read(folder, path, most)
        except NotRead:
            self._content = None
        self._shown: bytes | None = None
        self._lines: list[str] | None = None
        self._is_redacted = False
        """Of all the lines; else those that are shown are yet to be."""
        self._cut: Cut | None = None

    def fresh(self, hit: CodeHit, stand: Stand | None) -> CodeHit | None:
        if self._content is None or stand is None or is_binary(self._content.data):
            return None
        if not _is_as(self._content, stand):
            scope = self._again(hit, stand)
            if scope is None:
                return None
            hit = msgspec.structs.replace(
                hit,
                name=scope.name,
                qualified_name=scope.qualified_name,
                signature=scope.signature,
                docstring=scope.docstring,
                start_line=scope.start_line,
                end_line=scope.end_line,
            )
        return msgspec.structs.replace(hit, text=self._shown_lines(hit.start_line, hit.end_line))

    def _shown_lines(self, first: int, last: int) -> str:
        """Without their secrets; to look for those in all of a file takes ten times as long."""
        assert self._content is not None
        if self._lines is None:
            text = self._content.data.decode("utf-8", "replace")
            self._is_redacted = reaches_over_lines(text)
            if self._is_redacted:
                text = self._data().decode("utf-8", "replace")
            text = text.removeprefix("\ufeff")
            self._lines = text.replace("\r\n", "\n").split("\n")
        shown = "\n".join(self._lines[first - 1 : last])
        return shown if self._is_redacted else redact_lines(shown)

    def _data(self) -> bytes:
        """As it is indexed and shown: without its secrets."""
        assert self._content is not None
        if self._shown is None:
            self._shown = without_secrets(self._content.data)
        return self._shown

    def _again(self, hit: CodeHit, stand: Stand) -> CutScope | None:
        """The scope as it is now: that of its name, else the only one with its text."""
        from ragmem.codeindex.cutting import cut

        if self._cut is None:
            self._cut = cut(self._path, self._data())
        alike = [scope for scope in self._cut.scopes if scope.kind == hit.kind]
        named = (scope for scope in alike if scope.qualified_name == hit.qualified_name)
        same = [
            scope
            for scope in alike
            if scope.hash == stand.scope_hash
            and (scope.name == hit.name or known_of(scope).is_telling)
        ]
        return next(named, None) or (same[0] if len(same) == 1 else None)


def _is_as(content: Content, stand: Stand) -> bool:
    if content.size != stand.size:
        return False
    if content.mtime_ns == stand.mtime_ns and not is_racy(stand.mtime_ns, stand.seen_ns):
        return True
    return content.hash == stand.file_hash
