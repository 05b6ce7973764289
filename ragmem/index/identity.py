"""Which scope is which after an edit: an id stays with the name and kind, and follows the text.

A scope here is what it goes by, whatever table or store it comes from. At the end are the tables of
scopes that went and came lately.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

import apsw

K = TypeVar("K", bound=Hashable)

_NAMESPACE = bytes.fromhex("9b0f6b2e9d355c2a8f0e6c1d7a4e2f10")
_NUMBERED = re.compile(r"#\d+$")
_TELLING_LINES, _TELLING_WORDS = 5, 3
HOLDERS = ("class", "type", "section")
"""The kinds of scopes that other scopes are in."""


class Described(Protocol):
    """A scope as the index, the store or the cutter has it."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def qualified_name(self) -> str: ...
    @property
    def docstring(self) -> str: ...
    @property
    def start_line(self) -> int: ...
    @property
    def end_line(self) -> int: ...
    @property
    def hash(self) -> str: ...


class ScopeKey(NamedTuple):
    """What a scope goes by."""

    kind: str
    name: str
    qualified_name: str
    hash: str
    """The hash of its text without its name."""
    is_telling: bool = True
    """Whether it says enough that no other has the same text by chance, as stubs do."""

    @classmethod
    def of(cls, scope: Described) -> "ScopeKey":
        """Return what a scope goes by."""
        is_telling = (
            scope.end_line - scope.start_line + 1 >= _TELLING_LINES
            or len(scope.docstring.split()) >= _TELLING_WORDS
        )
        return cls(scope.kind, scope.name, scope.qualified_name, scope.hash, is_telling)

    @classmethod
    def read(cls, row: Sequence[object]) -> "ScopeKey":
        """Read the same from a row of KEY_COLUMNS."""
        kind, name, qualified_name, digest, is_telling = row
        return cls(str(kind), str(name), str(qualified_name), str(digest), bool(is_telling))


KEY_COLUMNS = "kind, name, qualified_name, hash, is_telling"


def scope_id_of(
    project_id: str, path: str, key: ScopeKey, *, is_taken: Callable[[str], bool]
) -> str:
    """Make an id for a new scope: the same for all processes and machines that meet it."""
    counter = 0
    while True:
        parts = (project_id, path, key.kind, key.qualified_name, str(counter))
        found = uuid5("\0".join(parts))
        if not is_taken(found):
            return found
        counter += 1


def uuid5(name: str) -> str:
    """Make an id of a name as `uuid.uuid5` does, in a quarter of its time."""
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


_Way = Callable[[ScopeKey], Hashable | None]
"""Gives what two scopes have in common that are the same; None where that can't be told."""
_IN_A_FILE: tuple[_Way, ...] = (
    # Of several of one name (`name#2`) the text tells which is which.
    lambda key: (key.kind, _NUMBERED.sub("", key.qualified_name), key.hash),
    lambda key: (key.kind, key.qualified_name),
    # An older ragmem called some types classes.
    lambda key: key.qualified_name if key.kind in ("class", "type") else None,
    lambda key: (key.kind, key.name, key.hash) if key.name else None,
    lambda key: (key.kind, key.hash) if key.is_telling else None,
)
_IN_ANOTHER_FILE: tuple[_Way, ...] = (
    lambda key: (key.kind, key.qualified_name, key.hash) if key.name else None,
    lambda key: (key.kind, key.name, key.hash) if key.is_telling else None,
    lambda key: (key.kind, key.hash) if key.is_telling else None,
)


def assign(old: Sequence[ScopeKey], new: Sequence[ScopeKey]) -> dict[int, int]:
    """Return by the places of a file's scopes now those of what they were before the edit.

    Both are in the order of the file. A scope without a partner is new, or is gone.
    """
    return _paired(old, new, _IN_A_FILE)


def follow(
    vanished: Iterable[tuple[str, ScopeKey]], fresh: Iterable[tuple[K, ScopeKey]]
) -> dict[K, str]:
    """Return which fresh scopes are vanished ones that were moved: each once, of one text and kind.

    Of several with the same text those of the same name come first. Under another name only what
    says enough is known again.
    """
    went, came = list(vanished), list(fresh)
    pairs = _paired([key for _, key in went], [key for _, key in came], _IN_ANOTHER_FILE)
    return {came[place][0]: went[partner][0] for place, partner in pairs.items()}


def _paired(
    old: Sequence[ScopeKey], new: Sequence[ScopeKey], ways: Iterable[_Way]
) -> dict[int, int]:
    """Pair new with old scopes in one way after the other, the surest first; each once."""
    pairs: dict[int, int] = {}
    left, lost = dict(enumerate(new)), dict(enumerate(old))
    for way in ways:
        partners: defaultdict[Hashable, list[int]] = defaultdict(list)
        for place, key in reversed(lost.items()):
            partners[way(key)].append(place)
        for place, key in list(left.items()) if lost else ():
            value = way(key)
            if value is not None and partners[value]:
                pairs[place] = partners[value].pop()
                del left[place], lost[pairs[place]]
    return pairs


# --- what went and came lately ------------------------------------------------------------------

# What is moved with two edits, or over a crash, is one move: an agent takes a function out of one
# file and puts it into another, and the files are looked at in between.
_FOLLOWED_FOR = timedelta(hours=1)
"""How long after it went a scope may come back elsewhere; later it is a copy."""
_MOST = 2_000


def note_went(connection: apsw.Connection, went: Iterable[int], at: datetime) -> None:
    """Note scopes, by their rows, that a file has no more and that are to be dropped."""
    connection.executemany(
        f"INSERT OR REPLACE INTO went SELECT scope_id, {KEY_COLUMNS}, ? FROM scopes"
        " WHERE scope = ?",
        [(at.isoformat(), scope) for scope in went],
    )


def note_came(connection: apsw.Connection, came: Iterable[int], at: datetime) -> None:
    """Note scopes that are new, by their rows; those that were away have a past of their own."""
    connection.executemany(
        "INSERT OR REPLACE INTO came (scope_id, at) SELECT scope_id, ? FROM scopes WHERE scope = ?"
        " AND scope_id NOT IN (SELECT scope_id FROM went)",
        [(at.isoformat(), scope) for scope in came],
    )


def went_by_another_name(connection: apsw.Connection, scope_id: str, key: ScopeKey) -> bool:
    """Return whether that id's scope went, and was called otherwise."""
    found = connection.execute(
        "SELECT 1 FROM went WHERE scope_id = ? AND (kind, qualified_name) != (?, ?)",
        (scope_id, key.kind, key.qualified_name),
    )
    return found.get is not None


def moved(connection: apsw.Connection, now: datetime) -> dict[int, str]:
    """Return by the rows of scopes that came the ids that they had where they went from."""
    connection.execute("DELETE FROM went WHERE scope_id IN (SELECT scope_id FROM scopes)")
    connection.execute("DELETE FROM came WHERE scope_id NOT IN (SELECT scope_id FROM scopes)")
    for table in ("went", "came"):
        connection.execute(
            f"DELETE FROM {table} WHERE at <= ?", ((now - _FOLLOWED_FOR).isoformat(),)
        )
    went = connection.execute(
        f"SELECT {KEY_COLUMNS}, scope_id FROM went ORDER BY at DESC, scope_id"
    )
    came = connection.execute(
        f"SELECT {KEY_COLUMNS}, scope FROM came JOIN scopes USING (scope_id)"
        " ORDER BY came.at DESC, scope"
    )
    return follow(
        [(str(scope_id), ScopeKey.read(key)) for *key, scope_id in went],
        [(int(str(scope)), ScopeKey.read(key)) for *key, scope in came],
    )


def forget(connection: apsw.Connection) -> None:
    """Forget the oldest of what went and came where there is much of it."""
    for table in ("went", "came"):
        connection.execute(
            f"DELETE FROM {table} WHERE scope_id NOT IN"
            f" (SELECT scope_id FROM {table} ORDER BY at DESC LIMIT ?)",
            (_MOST,),
        )
