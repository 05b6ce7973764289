"""The code of a project: cut into scopes, found by words and meaning, kept current.

Here: the values that pass between the parts of the index, and out of it.
"""

import msgspec

from ragmem.records import ScopeKind

HOLDERS = ("class", "type", "section")
"""The kinds of scopes that other scopes are in."""


MEANING = "meaning"
"""What `why` says of a scope that is near by its vector."""
_OWN = ("name: ", "file: ", "folder: ", "words: ")


class CutScope(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a file, as it was cut out of it."""

    kind: ScopeKind
    name: str
    qualified_name: str
    """See `CodeScope`; a second one of that kind and name in a file is `name#2`."""
    signature: str = ""
    docstring: str = ""
    start_line: int
    end_line: int
    text: str
    """All its lines, but of each scope inside of it only the first line or its signature."""
    calls: tuple[str, ...] = ()
    """Last names of what it calls, each once (`validate` of `self.auth.validate(…)`)."""
    hash: str


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A file, cut. Every line that holds more than white space is in at least one scope."""

    language: str
    scopes: tuple[CutScope, ...] = ()
    imports: tuple[str, ...] = ()
    """As the language writes them, made plain: `ragmem.store`, `./util`, `../a/b.js`,
    `net/http`, `crate::store::base`, `java.util.List`; a relative Python one with its dots."""
    line_count: int = 0
    generated: bool = False
    """Whether it says of itself that a program has written it."""


class CodeHit(msgspec.Struct, frozen=True, kw_only=True):
    """A scope that bears on a question."""

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
    """The number that the order goes by; comparable within one search only."""
    similarity: float | None = None
    """Raw cosine of its best vector with the question's."""
    why: tuple[str, ...] = ()
    """What it was found by, in words, the most telling first: `name: validate`,
    `words: token, expired`, `meaning`, `called by login`, `imported by app.py`."""
    text: str = ""
    """Its lines as they are on the disk now; empty where they were not read."""

    def is_close(self, floor: float | None) -> bool:
        """Return whether it has a word or name of the question, or is more alike than `floor`."""
        alike = self.similarity is not None and floor is not None and self.similarity > floor
        return alike or any(each.startswith(_OWN) for each in self.why)

    @property
    def reasons(self) -> str:
        """Return `why` as a phrase: what it was found by itself, then what others say for it."""
        own = [each for each in self.why if each == MEANING or each.startswith(_OWN)]
        lent = [each for each in self.why if each not in own]
        said = [f"its {each.replace(': ', ' ', 1)}" for each in own]
        return "; ".join([f"found by {' and '.join(said)}"] * bool(said) + lent)


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the disk came to."""

    files: int
    """How many files are indexed now."""
    scopes: int
    changed: tuple[str, ...] = ()
    """The paths of files that are new or other than they were."""
    removed: tuple[str, ...] = ()
    left_out: dict[str, int] = {}
    """Files that are not indexed, by the reason: `binary`, `generated`, `too large`, `secret`,
    `unreadable`, `too many` …"""
    seconds: float = 0.0
    elsewhere: bool = False
    """Whether another process is at it, so that nothing was done here."""


class IndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How an index stands, as `ragmem index --status` shows it."""

    path: str
    """The project's folder."""
    files: int
    scopes: int
    languages: dict[str, int] = {}
    """How many files are in each language, the most first."""
    left_out: dict[str, int] = {}
    without_vectors: int = 0
    refreshed_at: str = ""
    """When it was refreshed last, ISO 8601; empty if never."""
    size_bytes: int = 0
    watched: bool = False
    """Whether a process follows the files as they change."""
