"""What stands around the hits of a search: of each turn those before and after.

Most of it is in memory beside the vectors (`spaces`): asked of the graph, it took half of a
search's time. The graph is asked about what is not: a session's last turn (one that has
no vectors yet may follow), a fork's first (what is before it was said in another session),
turns of a time, and all of it until the places have been read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ragmem.store.neo4j.entries import STATEMENTS
from ragmem.store.neo4j.gateway import Transaction
from ragmem.store.neo4j.spaces import Near, Space
from ragmem.store.recall import TURN_LEVEL


class Area(NamedTuple):
    """Where to look, as it is stored."""

    projects: Sequence[str]
    lasts: Mapping[str, int]
    """Sessions that are not of these projects: the last turn that is seen of each."""
    own: frozenset[str]
    """Those of them that were asked for themselves: their summaries count too."""
    everywhere: bool
    total: int
    """Entries of the whole store."""


class Entry(msgspec.Struct):
    """A record that was found, or stands beside one."""

    record_id: str
    level: int
    session_id: str
    turn_index: int
    at: str
    number: int | None
    text: float = 0.0
    similarity: float | None = None


class Around(NamedTuple):
    """Who is there, and the vectors of those that no space holds yet, by id."""

    entries: dict[str, Entry]
    packs: Mapping[str, bytes]


async def around(
    tx: Transaction,
    area: Area,
    hits: Iterable[Entry],
    near: Sequence[Near],
    timely: Mapping[str, Entry | None],
    spaces: Sequence[Space],
) -> Around:
    """The hits by words, those near, the turns before and after both, and turns of a time.

    `timely`: by id, with what is known of them; what stands around these is not looked for.
    """
    held = _Held(spaces, area)
    entries = {each.record_id: each for each in hits}
    standing = list(entries)
    entries |= {name: each for name, each in timely.items() if each and name not in entries}
    numbers: list[int] = []
    for each in near:
        if entry := held.of_number(each.number):
            standing.append(entry.record_id)
            entries.setdefault(entry.record_id, entry)
        else:
            numbers.append(each.number)
    ids = [
        name
        for name in dict.fromkeys(standing)
        if not held.place_beside(entries[name]) or held.lacks(entries[name])
    ]
    of_time = [name for name in timely if name not in entries or held.lacks(entries[name])]
    for entry in held.beside:
        entries.setdefault(entry.record_id, entry)
    if not (ids or numbers or of_time):
        return Around(entries, {})
    [[found]] = await tx.values(
        STATEMENTS["around"],
        ids=ids,
        timely=of_time,
        numbers=numbers,
        everywhere=area.everywhere,
        projects=area.projects,
        lasts=area.lasts,
        withVectors=held.is_partial,
    )
    packs = {}
    for *columns, pack in found:
        entry = entries.setdefault(columns[0], Entry(*columns))
        if pack:
            packs[entry.record_id] = pack
    return Around(entries, packs)


class _Held:
    """What the spaces in memory know of an area."""

    def __init__(self, spaces: Sequence[Space], area: Area) -> None:
        self._spaces = spaces
        self._area = area
        self.is_partial = any(not space.complete for space in spaces)
        self.beside: list[Entry] = []
        """The turns before and after those that were placed."""

    def of_number(self, number: int) -> Entry | None:
        """A record by its vector's number."""
        for space in self._spaces:
            if place := space.place(number):
                return Entry(*place)
        return None

    def lacks(self, entry: Entry) -> bool:
        """Whether it may have vectors that are not in memory yet."""
        return self.is_partial and (
            entry.number is None or all(s.row(entry.number) is None for s in self._spaces)
        )

    def place_beside(self, entry: Entry) -> bool:
        """Note the turns before and after; False: not all that there may be is known."""
        if entry.level != TURN_LEVEL:
            return True
        found = []
        for index in (entry.turn_index - 1, entry.turn_index + 1):
            if index < 1:
                continue
            places = (space.turn(entry.session_id, index) for space in self._spaces)
            place = next(filter(None, places), None)
            if place is None:
                return False
            found.append(Entry(*place))
        lasts = self._area.lasts
        self.beside += [e for e in found if e.turn_index <= lasts.get(e.session_id, e.turn_index)]
        return True
