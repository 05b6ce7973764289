"""Which scope is which after an edit: an id stays with the name and kind, and follows the text.

Pure functions: a scope here is what it goes by, whatever table or store it comes from.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from typing import NamedTuple, Protocol, TypeVar

import apsw

K = TypeVar("K", bound=Hashable)

_NAMESPACE = bytes.fromhex("9b0f6b2e9d355c2a8f0e6c1d7a4e2f10")
_NUMBERED = re.compile(r"#\d+$")
_TELLING_LINES, _TELLING_WORDS = 5, 3
_ALIKE = 0.6
"""Of two names, that belong to the same scope where little else tells."""
_MOST_COMPARED = 400
"""Pairs of names of one text: of more the order tells."""
_COMPARED_IN_ALL = 4_000
"""Such pairs, in one file or one move: some hundred milliseconds."""
HOLDERS = ("class", "type", "section")
"""Kinds of what other scopes are in."""


class Known(NamedTuple):
    """What a scope goes by."""

    kind: str
    name: str
    qualified_name: str
    hash: str
    """Of its text without its name."""
    is_telling: bool = True
    """Whether who has that text under another name is the same; see `is_telling`."""


class Assigned(NamedTuple):
    """Pairs of old and new, by their places; and what has no partner."""

    kept: dict[int, int]
    """New to old."""
    vanished: list[int]
    """Old ones."""
    fresh: list[int]
    """New ones."""


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


def known_of(scope: Described) -> Known:
    """What a scope goes by."""
    telling = is_telling(scope.docstring, scope.start_line, scope.end_line)
    return Known(scope.kind, scope.name, scope.qualified_name, scope.hash, telling)


def read_known(row: Sequence[object]) -> Known:
    """The same from a row of kind, name, qualified name and hash; of one that is telling."""
    kind, name, qualified_name, digest = map(str, row)
    return Known(kind, name, qualified_name, digest)


def is_telling(docstring: str, start_line: int, end_line: int) -> bool:
    """Whether a scope says enough that no other has the same text by chance, as stubs have."""
    return end_line - start_line + 1 >= _TELLING_LINES or len(docstring.split()) >= _TELLING_WORDS


def scope_id_of(
    project_id: str, path: str, known: Known, *, is_taken: Callable[[str], bool]
) -> str:
    """An id for a new scope: the same to all processes and machines that meet it."""
    counter = 0
    while True:
        parts = (project_id, path, known.kind, known.qualified_name, str(counter))
        found = _uuid5("\0".join(parts))
        if not is_taken(found):
            return found
        counter += 1


def _uuid5(name: str) -> str:
    """As `uuid.uuid5`, which takes four times as long."""
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def assign(old: Sequence[Known], new: Sequence[Known]) -> Assigned:
    """Which of a file's scopes was which before; both in the order of the file.

    By kind and qualified name; of several of one name (`name#2`) first by their text. Then what
    was renamed, by its text, with all that is inside of it; then by the name alone (moved into
    another class, and edited).
    """
    return _Assigning(old, new).assigned()


class _Assigning:
    """Pairs that are found one after the other, the surest first."""

    def __init__(self, old: Sequence[Known], new: Sequence[Known]) -> None:
        self._old = old
        self._new = new
        self._kept: dict[int, int] = {}
        self._left_old = set(range(len(old)))
        self._left_new = set(range(len(new)))
        self._comparing = _Comparing()

    def assigned(self) -> Assigned:
        """All of them."""
        self._by(lambda each: (each.kind, _NUMBERED.sub("", each.qualified_name), each.hash))
        self._by(lambda each: (each.kind, each.qualified_name))
        if self._left_old and self._left_new:
            self._by(lambda each: each.qualified_name if each.kind in ("class", "type") else None)
            self._renamed(HOLDERS)
            self._with_their_holders()
            self._by(lambda each: (each.kind, each.name, each.hash) if each.name else None)
            self._renamed()
            self._of_what_is_in_them()
            self._with_their_holders()
            self._by(lambda each: (each.kind, each.name) if each.name else None, alone=True)
        return Assigned(self._kept, sorted(self._left_old), sorted(self._left_new))

    def _by(
        self,
        key: Callable[[Known], Hashable | None],
        was: Callable[[Known], Hashable | None] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Pair what has the same key, in order; `was` is that of old ones, where it is another."""
        before = _grouped(self._old, self._left_old, was or key)
        for value, places in _grouped(self._new, self._left_new, key).items():
            partners = before.get(value, [])
            if alone and (len(places) > 1 or len(partners) > 1):
                continue
            for place, partner in zip(places, partners, strict=False):
                self._pair(place, partner)

    def _pair(self, place: int, partner: int) -> None:
        self._kept[place] = partner
        self._left_new.discard(place)
        self._left_old.discard(partner)

    def _renamed(self, kinds: Sequence[str] = ()) -> None:
        """By kind and text; what says little has to have its place too, or a name like it."""

        def text(each: Known) -> Hashable | None:
            return None if kinds and each.kind not in kinds else (each.kind, each.hash)

        before = _grouped(self._old, self._left_old, text)
        for value, places in _grouped(self._new, self._left_new, text).items():
            partners = before.get(value, [])
            if len(places) == len(partners) == 1 and self._is_in_place(places[0], partners[0]):
                self._pair(places[0], partners[0])
                continue
            old, new = [self._old[n] for n in partners], [self._new[n] for n in places]
            for n, m in self._comparing.nearest(old, new):
                self._pair(places[m], partners[n])

    def _is_in_place(self, place: int, partner: int) -> bool:
        """Whether what stands before both, or behind both, is one scope."""
        if (self._kept.get(place - 1) == partner - 1) if place else not partner:
            return True
        if place + 1 == len(self._new):
            return partner + 1 == len(self._old)
        return self._kept.get(place + 1) == partner + 1

    def _of_what_is_in_them(self) -> None:
        """A class that was renamed and edited is the one that most of what is in it was in."""
        counts: dict[int, Counter[int]] = defaultdict(Counter)
        holders = self._left_holders(self._new, self._left_new)
        were = self._left_holders(self._old, self._left_old)
        for place, partner in self._kept.items():
            holder = holders.get(_holder(self._new[place]), -1)
            was = were.get(_holder(self._old[partner]), -1)
            if holder >= 0 and was >= 0 and self._new[holder].kind == self._old[was].kind:
                counts[holder][was] += 1
        sizes = Counter(map(_holder, self._new)) if counts else Counter()
        for holder, counted in counts.items():
            inside = sizes[self._new[holder].qualified_name]
            was, count = counted.most_common(1)[0]
            if was in self._left_old and 2 * count >= inside:
                self._pair(holder, was)

    def _left_holders(self, scopes: Sequence[Known], left: set[int]) -> dict[str, int]:
        return {scopes[n].qualified_name: n for n in sorted(left) if scopes[n].kind in HOLDERS}

    def _with_their_holders(self) -> None:
        """By the name that a scope has in the class that its own was renamed to."""
        names = {
            was.qualified_name: self._new[place].qualified_name
            for place, partner in self._kept.items()
            if (was := self._old[partner]).kind in HOLDERS
            and was.qualified_name != self._new[place].qualified_name
        }
        if names:
            self._by(
                lambda each: (each.kind, each.qualified_name),
                lambda each: (each.kind, _in_renamed(each.qualified_name, names)),
            )


def _holder(known: Known) -> str:
    return known.qualified_name.rpartition(".")[0]


def _in_renamed(qualified_name: str, names: Mapping[str, str]) -> str | None:
    """A name with that of the innermost holder as it is now; None where none was renamed."""
    holder = qualified_name
    while holder := holder.rpartition(".")[0]:
        if holder in names:
            return names[holder] + qualified_name[len(holder) :]
    return None


def _grouped(
    scopes: Sequence[Known], places: Iterable[int], key: Callable[[Known], Hashable | None]
) -> dict[Hashable, list[int]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place in sorted(places):
        if (value := key(scopes[place])) is not None:
            groups[value].append(place)
    return groups


class _Comparing:
    """Names held against each other; not too many, for the time that it takes."""

    def __init__(self) -> None:
        self._left = _COMPARED_IN_ALL

    def nearest(self, old: Sequence[Known], new: Sequence[Known]) -> Iterator[tuple[int, int]]:
        """Of scopes of one text pairs of places, each once: the likest names first, then in order.

        Where the text says little only those with names that are like each other.
        """
        surely = all(each.is_telling for each in new)
        pairs = len(old) * len(new)
        if pairs > min(_MOST_COMPARED, self._left) or (surely and pairs == 1):
            if surely:
                yield from zip(range(len(old)), range(len(new)), strict=False)
            return
        self._left -= pairs
        alike = sorted(
            (-_likeness(was.name, now.name), n, m)
            for n, was in enumerate(old)
            for m, now in enumerate(new)
        )
        gone: set[int] = set()
        came: set[int] = set()
        for unlike, n, m in alike:
            if n not in gone and m not in came and (surely or -unlike >= _ALIKE):
                gone.add(n)
                came.add(m)
                yield n, m


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.casefold(), other.casefold()).ratio()


def follow(
    vanished: Iterable[tuple[str, Known]], fresh: Iterable[tuple[K, Known]]
) -> Iterator[tuple[K, str]]:
    """Which fresh scopes are vanished ones that were moved: same text and kind; each one once.

    Of several with the same text those of the same name come first. Under another name only what
    says enough is known again.
    """
    went: defaultdict[tuple[str, str], list[tuple[str, Known]]] = defaultdict(list)
    for scope_id, known in vanished:
        went[known.kind, known.hash].append((scope_id, known))
    came: defaultdict[tuple[str, str], list[tuple[K, Known]]] = defaultdict(list)
    for key, known in fresh:
        if (known.kind, known.hash) in went:
            came[known.kind, known.hash].append((key, known))
    comparing = _Comparing()
    for text, found in came.items():
        yield from _followed(went[text], found, comparing)


def _followed(
    went: Sequence[tuple[str, Known]], came: Sequence[tuple[K, Known]], comparing: _Comparing
) -> Iterator[tuple[K, str]]:
    """Of one text: by the whole name, then by the name, then to the nearest one."""
    old, new = [known for _, known in went], [known for _, known in came]
    left_old, left_new = set(range(len(old))), set(range(len(new)))

    def pair(n: int, m: int) -> tuple[K, str]:
        left_old.discard(n)
        left_new.discard(m)
        return came[m][0], went[n][0]

    for name in (_whole_name, _own_name):
        before = _grouped(old, left_old, name)
        for value, places in _grouped(new, left_new, name).items():
            for n, m in zip(before.get(value, []), places, strict=False):
                yield pair(n, m)
    rest_old = sorted(left_old)
    rest_new = [m for m in sorted(left_new) if new[m].is_telling]
    for i, k in comparing.nearest([old[n] for n in rest_old], [new[m] for m in rest_new]):
        yield pair(rest_old[i], rest_new[k])


def _whole_name(known: Known) -> str:
    return known.qualified_name


def _own_name(known: Known) -> str | None:
    return known.name or None


_FOLLOWED_FOR = timedelta(hours=1)
"""Longer, and it is a copy."""
_MOST = 2_000


def note_went(connection: apsw.Connection, went: Iterable[tuple[str, Known]], at: datetime) -> None:
    """Scopes that a file has no more, by their ids."""
    connection.executemany(
        "INSERT OR REPLACE INTO went (scope_id, kind, name, qualified_name, hash, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [
            (scope_id, known.kind, known.name, known.qualified_name, known.hash, at.isoformat())
            for scope_id, known in went
            if known.is_telling
        ],
    )


def note_came(connection: apsw.Connection, came: Iterable[tuple[int, Known]], at: datetime) -> None:
    """Scopes that are new, by their rows; those that were away have a past of their own."""
    connection.executemany(
        "INSERT OR REPLACE INTO came (scope_id, at) SELECT scope_id, ? FROM scopes WHERE scope = ?"
        " AND scope_id NOT IN (SELECT scope_id FROM went)",
        [(at.isoformat(), scope) for scope, known in came if known.is_telling],
    )


def went_by_another_name(connection: apsw.Connection, scope_id: str, known: Known) -> bool:
    """Whether that id's scope went, and was called otherwise."""
    found = connection.execute(
        "SELECT 1 FROM went WHERE scope_id = ? AND (kind, qualified_name) != (?, ?)",
        (scope_id, known.kind, known.qualified_name),
    )
    return found.get is not None


def forget(connection: apsw.Connection, now: datetime) -> None:
    """What is there again or is no more, what was long ago, and what is too much."""
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
) -> tuple[list[tuple[str, Known]], list[tuple[int, Known]]]:
    """What went, and what came and is there, the last first; after `forget`."""
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
