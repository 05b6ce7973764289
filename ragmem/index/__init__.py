"""The code index of a project: files cut into scopes, searched by words and by meaning.

This module defines the values that the parts of the index exchange and return.
"""

import re

import msgspec

from ragmem.records import ScopeKind

HOLDERS = ("class", "type", "section")
"""The kinds of scopes that contain other scopes."""


MEANING = "meaning"
"""The entry in `CodeHit.why` of a scope that was found by its vector."""
NUMBERED = re.compile(r"#\d+$")
"""Matches the number behind a qualified name that occurs more than once in its file."""
_OWN = ("name: ", "file: ", "folder: ", "words: ")


class CutScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope as it was cut out of a file."""

    kind: ScopeKind
    name: str
    qualified_name: str
    """As in `CodeScope`; the second scope of a kind and name in a file is `name#2`."""
    signature: str = ""
    docstring: str = ""
    start_line: int
    end_line: int
    text: str
    """All its lines, with each nested scope reduced to its signature or first line."""
    calls: tuple[str, ...] = ()
    """The unqualified names that it calls, each once (`validate` for `self.auth.validate(…)`)."""
    hash: str


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A file cut into scopes. Every line that isn't blank is in at least one scope."""

    language: str
    scopes: tuple[CutScope, ...] = ()
    imports: tuple[str, ...] = ()
    """Module names in the notation of the language: `ragmem.store`, `./util`, `../a/b.js`,
    `net/http`, `crate::store::base`, `java.util.List`; relative Python imports keep their dots."""
    line_count: int = 0
    generated: bool = False
    """Whether the file is generated code; see `parser.is_generated`."""


class CodeHit(msgspec.Struct, frozen=True, kw_only=True):
    """A scope that is relevant to a question."""

    scope_id: str
    kind: ScopeKind
    path: str
    """The path relative to the project's folder."""
    name: str
    qualified_name: str
    signature: str
    docstring: str
    start_line: int
    end_line: int
    score: float
    """The sort key; comparable within one search only."""
    similarity: float | None = None
    """Raw cosine similarity of its vector and the question's; None if either is missing."""
    why: tuple[str, ...] = ()
    """Why it was found, as phrases, the strongest reason first: `name: validate`,
    `words: token, expired`, `meaning`, `called by login`, `imported by app.py`."""
    text: str = ""
    """Its current lines on disk; empty if they were not read."""

    def is_close(self, floor: float | None) -> bool:
        """Return whether it matches by name or word, or its similarity is over `floor`."""
        alike = self.similarity is not None and floor is not None and self.similarity > floor
        return alike or any(each.startswith(_OWN) for each in self.why)

    @property
    def reasons(self) -> str:
        """Return `why` as one phrase: matches of the scope itself, then those of related scopes."""
        own = [each for each in self.why if each == MEANING or each.startswith(_OWN)]
        lent = [each for each in self.why if each not in own]
        said = [f"its {each.replace(': ', ' ', 1)}" for each in own]
        return "; ".join([f"found by {' and '.join(said)}"] * bool(said) + lent)


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a refresh of the index."""

    files: int
    """The number of files in the index."""
    scopes: int
    changed: tuple[str, ...] = ()
    """The paths of new and modified files."""
    removed: tuple[str, ...] = ()
    left_out: dict[str, int] = {}
    """Numbers of files that are not indexed, by reason: `binary`, `generated`, `too large`,
    `secret`, `unreadable`, `too many` …"""
    seconds: float = 0.0
    elsewhere: bool = False
    """Whether another process holds the lock for refreshing, so that nothing was done."""


class IndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an index, as `ragmem index --status` shows it."""

    path: str
    """The project's folder."""
    files: int
    scopes: int
    languages: dict[str, int] = {}
    """Numbers of files by language, the largest first."""
    left_out: dict[str, int] = {}
    without_vectors: int = 0
    refreshed_at: str = ""
    """The time of the last refresh, ISO 8601; empty if there was none."""
    size_bytes: int = 0
    watched: bool = False
    """Whether a process is watching the files for changes."""
    being_made: bool = False
    """Whether a process is making it just now, for the first time or anew."""
