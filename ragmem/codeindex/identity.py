"""Which scope is which after an edit: an id stays with the name and kind, and follows the text.

Pure functions: a scope here is what it goes by, whatever table or store it comes from.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

_NAMESPACE = bytes.fromhex("9b0f6b2e9d355c2a8f0e6c1d7a4e2f10")
_NUMBERED = re.compile(r"#\d+$")


class Known(NamedTuple):
    """What a scope goes by."""

    kind: str
    name: str
    qualified_name: str
    hash: str


class Assigned(NamedTuple):
    """Pairs of old and new, by their places; and what has no partner."""

    kept: dict[int, int]
    """New to old."""
    vanished: list[int]
    """Old ones."""
    fresh: list[int]
    """New ones."""


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
    """Which of a file's scopes was which before.

    By kind and qualified name; of several of one name (`name#2`) first by their text. Then by the
    text alone (renamed), then by the name alone (moved into another class, and edited).
    """
    kept: dict[int, int] = {}
    left_old, left_new = set(range(len(old))), set(range(len(new)))

    def pair(key: Callable[[Known], Hashable | None], *, alone: bool = False) -> None:
        before, after = _grouped(old, left_old, key), _grouped(new, left_new, key)
        for value, places in after.items():
            partners = before.get(value, [])
            if alone and (len(places) > 1 or len(partners) > 1):
                continue
            for place, partner in zip(places, partners, strict=False):
                kept[place] = partner
                left_new.discard(place)
                left_old.discard(partner)

    pair(lambda each: (each.kind, _NUMBERED.sub("", each.qualified_name), each.hash))
    pair(lambda each: (each.kind, each.qualified_name))
    pair(lambda each: (each.kind, each.hash))
    pair(lambda each: (each.kind, each.name) if each.name else None, alone=True)
    return Assigned(kept, sorted(left_old), sorted(left_new))


def _grouped(
    scopes: Sequence[Known], places: Iterable[int], key: Callable[[Known], Hashable | None]
) -> dict[Hashable, list[int]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place in sorted(places):
        if (value := key(scopes[place])) is not None:
            groups[value].append(place)
    return groups


def follow(
    vanished: Iterable[tuple[str, Known]], fresh: Iterable[tuple[K, Known]]
) -> Iterator[tuple[K, str]]:
    """Which fresh scopes are vanished ones that were moved: same text and kind; each one once.

    Of several with the same text those of the same name come first.
    """
    by_text: defaultdict[tuple[str, str], list[tuple[str, Known]]] = defaultdict(list)
    for scope_id, known in vanished:
        by_text[known.kind, known.hash].append((scope_id, known))
    later: list[tuple[K, Known]] = []
    for key, known in fresh:
        partners = by_text.get((known.kind, known.hash), [])
        same = next((n for n, each in enumerate(partners) if _alike(each[1], known)), None)
        if same is None:
            later.append((key, known))
        else:
            yield key, partners.pop(same)[0]
    for key, known in later:
        if partners := by_text.get((known.kind, known.hash), []):
            yield key, partners.pop(0)[0]


def _alike(one: Known, other: Known) -> bool:
    return one.qualified_name == other.qualified_name or bool(one.name and one.name == other.name)
