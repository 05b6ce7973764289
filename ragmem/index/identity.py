"""Which scope is which after an edit: an id stays with the name and kind, and follows the text.

A scope here is what it goes by, whatever table or store it comes from. At the end are the tables of
scopes that went and came lately.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

import apsw

K = TypeVar("K", bound=Hashable)

_NAMESPACE = bytes.fromhex("9b0f6b2e9d355c2a8f0e6c1d7a4e2f10")
_NUMBERED = re.compile(r"#\d+$")
_TELLING_LINES, _TELLING_WORDS = 5, 3
HOLDERS = ("class", "type", "section")
"""The kinds of scopes that other scopes are in."""


class ScopeKey(NamedTuple):
    """What a scope goes by."""

    kind: str
    name: str
    qualified_name: str
    hash: str
    """The hash of its text without its name."""
    is_telling: bool = True
    """Whether who has that text under another name is the same; see `is_telling`."""


class Assigned(NamedTuple):
    """Pairs of old and new, by their places; and what has no partner."""

    kept: dict[int, int]
    """The place of the old scope, by that of the new one."""
    vanished: list[int]
    """The places of old scopes without a partner."""
    fresh: list[int]
    """The places of new scopes without a partner."""


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


def known_of(scope: Described) -> ScopeKey:
    """Return what a scope goes by."""
    telling = is_telling(scope.docstring, scope.start_line, scope.end_line)
    return ScopeKey(scope.kind, scope.name, scope.qualified_name, scope.hash, telling)


def read_known(row: Sequence[object]) -> ScopeKey:
    """Read the same from a row of kind, name, qualified name and hash; of one that is telling."""
    kind, name, qualified_name, digest = map(str, row)
    return ScopeKey(kind, name, qualified_name, digest)


def is_telling(docstring: str, start_line: int, end_line: int) -> bool:
    """Return whether a scope says enough that no other has the same text by chance, as stubs do."""
    return end_line - start_line + 1 >= _TELLING_LINES or len(docstring.split()) >= _TELLING_WORDS


def scope_id_of(
    project_id: str, path: str, known: ScopeKey, *, is_taken: Callable[[str], bool]
) -> str:
    """Make an id for a new scope: the same for all processes and machines that meet it."""
    counter = 0
    while True:
        parts = (project_id, path, known.kind, known.qualified_name, str(counter))
        found = _uuid5("\0".join(parts))
        if not is_taken(found):
            return found
        counter += 1


def _uuid5(name: str) -> str:
    """Do as `uuid.uuid5`, which takes four times as long."""
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def assign(old: Sequence[ScopeKey], new: Sequence[ScopeKey]) -> Assigned:
    """Return which of a file's scopes was which before; both are in the order of the file.

    By kind and qualified name; of several of one name (`name#2`) first by their text. Then what
    was renamed is known by its text: a class first, with all that is inside of it.
    """
    pairs = _Pairs(old, new)
    pairs.match(lambda each: (each.kind, _NUMBERED.sub("", each.qualified_name), each.hash))
    pairs.match(lambda each: (each.kind, each.qualified_name))
    if pairs.are_left:
        # An older ragmem called some types classes.
        pairs.match(lambda each: each.qualified_name if each.kind in ("class", "type") else None)
        pairs.match(lambda each: (each.kind, each.hash) if each.kind in HOLDERS else None)
        pairs.match_inside_renamed()
        pairs.match(_by_name_and_text)
        pairs.match(_by_telling_text)
        pairs.match(lambda each: (each.kind, each.hash), alone=True)
    return Assigned(pairs.kept, list(pairs.old), list(pairs.new))


def follow(
    vanished: Iterable[tuple[str, ScopeKey]], fresh: Iterable[tuple[K, ScopeKey]]
) -> dict[K, str]:
    """Return which fresh scopes are vanished ones that were moved: each once, of one text and kind.

    Of several with the same text those of the same name come first. Under another name only what
    says enough is known again.
    """
    went, came = list(vanished), list(fresh)
    pairs = _Pairs([known for _, known in went], [known for _, known in came])
    for key in (_by_whole_name_and_text, _by_name_and_text, _by_telling_text):
        if pairs.are_left:
            pairs.match(key)
    return {came[place][0]: went[partner][0] for place, partner in pairs.kept.items()}


def _by_whole_name_and_text(known: ScopeKey) -> Hashable:
    return known.kind, known.qualified_name, known.hash


def _by_name_and_text(known: ScopeKey) -> Hashable | None:
    return (known.kind, known.name, known.hash) if known.name else None


def _by_telling_text(known: ScopeKey) -> Hashable | None:
    return (known.kind, known.hash) if known.is_telling else None


class _Pairs:
    """Old and new scopes by their places, paired in one way after the other, the surest first."""

    def __init__(self, old: Sequence[ScopeKey], new: Sequence[ScopeKey]) -> None:
        self.kept: dict[int, int] = {}
        self.old = dict(enumerate(old))
        """Those without a partner yet."""
        self.new = dict(enumerate(new))
        self._renamed: dict[str, str] = {}
        """By its old name what a class is called now."""

    @property
    def are_left(self) -> bool:
        """Return whether there may be more pairs."""
        return bool(self.old and self.new)

    def match(
        self,
        key: Callable[[ScopeKey], Hashable | None],
        was: Callable[[ScopeKey], Hashable | None] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Pair what has the same key, in order; `was` is that of old ones, where it is another.

        With `alone` only where one old and one new scope have it.
        """
        before = _grouped(self.old, was or key)
        for value, places in _grouped(self.new, key).items():
            partners = before.get(value, [])
            if alone and (len(places) > 1 or len(partners) > 1):
                continue
            for place, partner in zip(places, partners, strict=False):
                now, then = self.new.pop(place), self.old.pop(partner)
                self.kept[place] = partner
                if now.kind in HOLDERS and now.qualified_name != then.qualified_name:
                    self._renamed[then.qualified_name] = now.qualified_name

    def match_inside_renamed(self) -> None:
        """Pair what has the same name in a class that was renamed."""
        if self._renamed:
            self.match(lambda each: (each.kind, each.qualified_name), self._name_now)

    def _name_now(self, known: ScopeKey) -> Hashable | None:
        holder = known.qualified_name
        while holder := holder.rpartition(".")[0]:
            if holder in self._renamed:
                now = self._renamed[holder] + known.qualified_name[len(holder) :]
                return known.kind, now
        return None


def _grouped(
    scopes: Mapping[int, ScopeKey], key: Callable[[ScopeKey], Hashable | None]
) -> dict[Hashable, list[int]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, known in scopes.items():
        if (value := key(known)) is not None:
            groups[value].append(place)
    return groups


# --- what went and came lately ------------------------------------------------------------------

# What is moved with two edits, or over a crash, is one move: an agent takes a function out of one
# file and puts it into another, and the files are looked at in between.
_FOLLOWED_FOR = timedelta(hours=1)
"""How long after it went a scope may come back elsewhere; later it is a copy."""
_MOST = 2_000


def note_went(
    connection: apsw.Connection, went: Iterable[tuple[str, ScopeKey]], at: datetime
) -> None:
    """Note scopes that a file has no more, by their ids."""
    connection.executemany(
        "INSERT OR REPLACE INTO went (scope_id, kind, name, qualified_name, hash, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [
            (scope_id, known.kind, known.name, known.qualified_name, known.hash, at.isoformat())
            for scope_id, known in went
            if known.is_telling
        ],
    )


def note_came(
    connection: apsw.Connection, came: Iterable[tuple[int, ScopeKey]], at: datetime
) -> None:
    """Note scopes that are new, by their rows; those that were away have a past of their own."""
    connection.executemany(
        "INSERT OR REPLACE INTO came (scope_id, at) SELECT scope_id, ? FROM scopes WHERE scope = ?"
        " AND scope_id NOT IN (SELECT scope_id FROM went)",
        [(at.isoformat(), scope) for scope, known in came if known.is_telling],
    )


def went_by_another_name(connection: apsw.Connection, scope_id: str, known: ScopeKey) -> bool:
    """Return whether that id's scope went, and was called otherwise."""
    found = connection.execute(
        "SELECT 1 FROM went WHERE scope_id = ? AND (kind, qualified_name) != (?, ?)",
        (scope_id, known.kind, known.qualified_name),
    )
    return found.get is not None


def forget(connection: apsw.Connection, now: datetime) -> None:
    """Forget what is there again or is no more, what was long ago, and what is too much."""
    connection.execute("DELETE FROM went WHERE scope_id IN (SELECT scope_id FROM scopes)")
    connection.execute("DELETE FROM came WHERE scope_id NOT IN (SELECT scope_id FROM scopes)")
    for table in ("went", "came"):
        connection.execute(
            f"DELETE FROM {table} WHERE at <= ? OR scope_id NOT IN"
            f" (SELECT scope_id FROM {table} ORDER BY at DESC LIMIT ?)",
            ((now - _FOLLOWED_FOR).isoformat(), _MOST),
        )


def lately(
    connection: apsw.Connection,
) -> tuple[list[tuple[str, ScopeKey]], list[tuple[int, ScopeKey]]]:
    """Return what went, and what came and is there, the last first; after `forget`."""
    went = connection.execute(
        "SELECT scope_id, kind, name, qualified_name, hash FROM went ORDER BY at DESC, scope_id"
    )
    came = connection.execute(
        "SELECT s.scope, s.kind, s.name, s.qualified_name, s.hash FROM came"
        " JOIN scopes AS s USING (scope_id) ORDER BY came.at DESC, s.scope"
    )
    return (
        [(str(scope_id), read_known(known)) for scope_id, *known in went],
        [(int(str(scope)), read_known(known)) for scope, *known in came],
    )
