"""Search: words in the full-text index, vectors in memory, then the neighbours of the hits.

One read transaction of three or four small statements. Measured on a quiet machine, words and
vectors together, medians: 11 ms in a project of 1,000 turns, 14 ms of 10,000, 23 ms of 100,000.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from ragmem.errors import StoreError, StoreRefused
from ragmem.records import (
    LOOKED_THROUGH,
    TURN_LEVEL,
    Candidate,
    Interval,
    SearchQuery,
    WeightedTerm,
)
from ragmem.similarity import Matrix, Similarities, VectorCache, Version, best_of, best_of_both
from ragmem.store import batches
from ragmem.store.neo4j.entries import STATEMENTS, SUMMARIES, TURNS, level_mark, mark, session_mark
from ragmem.store.neo4j.gateway import Gateway, Transaction, from_text
from ragmem.store.neo4j.shapes import Properties
from ragmem.store.neo4j.vectors import Area as VectorArea, index_of, level_of, number_of, page_of
from ragmem.text import clean

SAMPLE = 256
"""Approximate number of turns in a sample."""
_CHANGED = 1.1
"""When the store's size changes by more than this factor, a sample is out of date."""
_LARGE = 50_000
"""In a project with this many turns, the commonest words are not searched for."""
_COMMON = 0.1
_DOMINANT = 0.8
"""A project with this share of the store has the same word frequencies as the store."""
_RESOLUTION = timedelta(seconds=1)
"""The server's times have a finer resolution than Python's."""
_POINTS = 16
"""Number of points in time, from each of which the next few turns are sampled."""
_LEAST_TERMS = 3


class Commonness(msgspec.Struct, frozen=True):
    """How common words are in one project."""

    total: int
    """Entries in the whole store at that time."""
    documents: int
    """Turns and summaries of the project; 0 if its words need no other weights."""
    sampled: int
    counts: Counter[str]
    """Number of sampled turns that contain each term."""

    def is_current(self, total: int) -> bool:
        """Whether the store still has about the same size; exactly the same, if it is small."""
        if total < SAMPLE:
            return total == self.total
        return self.total / _CHANGED < total < self.total * _CHANGED

    def weighted(self, terms: Sequence[WeightedTerm]) -> list[WeightedTerm]:
        """Return the terms with the weights to give to Lucene; the commonest may be left out."""
        if not self.documents:
            return list(terms)
        if self.documents >= _LARGE:
            rarest = sorted(terms, key=lambda each: self.counts[each.term])
            least = _COMMON * self.sampled
            common = {t.term for t in rarest[_LEAST_TERMS:] if self.counts[t.term] > least}
            terms = [each for each in terms if each.term not in common]
        return [WeightedTerm(each.term, each.weight * self._factor(each.term)) for each in terms]

    def _factor(self, term: str) -> float:
        # A term that is not in the sample occurs in less than one of its turns: half is a guess.
        each = self.documents / self.sampled
        count = max(self.counts[term] * each, each / 2 if each > 1 else 0)
        return _rarity(self.documents, count) / _rarity(max(self.total, self.documents), count)


def _rarity(documents: float, count: float) -> float:
    """Inverse document frequency, as in BM25."""
    return math.log(1 + max(0.0, documents - count + 0.5) / (count + 0.5))


async def sample(tx: Transaction, project_id: str, total: int) -> Commonness:
    """Sample a project's turns, spread over its time."""
    [row] = await tx.run(STATEMENTS["documents_of_project"], id=project_id)
    documents: int = row["documents"]
    if documents < _LARGE and documents >= _DOMINANT * total:
        # Its words are about as common as in the whole store.
        return Commonness(total, 0, 0, Counter())
    points: list[datetime] = []
    if documents > SAMPLE:
        step = (row["last"] - row["first"]) / _POINTS
        points = [row["first"] - _RESOLUTION + n * step for n in range(_POINTS)]
    elif documents:
        points = [row["first"] - _RESOLUTION]
    each = SAMPLE // max(1, len(points))
    texts = await tx.found(STATEMENTS["sample_of_project"], id=project_id, points=points, each=each)
    start = mark(TURNS, project_id)
    counts: Counter[str] = Counter()
    for text in texts:
        words = {word for word in text.split(" ") if word.startswith(start)}
        counts.update(word.removeprefix(start) for word in words)
    return Commonness(total, documents, max(1, len(texts)), counts)


async def newest(
    tx: Transaction,
    interval: Interval,
    projects: Sequence[str] | None,
    lasts: Mapping[str, int],
) -> list[tuple[str, int | None]]:
    """Return an interval's newest turns, newest first, each with the number of its vector.

    `projects`: None for everywhere; `lasts`: the last turn seen of each session of other projects.
    """
    bounds: Properties = {
        "start": interval.start_at,
        "end": interval.end_at,
        "most": LOOKED_THROUGH,
        "projects": projects,
        "lasts": lasts,
        "sessions": list(lasts),
    }
    found: list[list[Any]] = []
    for name, is_asked in (
        ("in_time_everywhere", projects is None),
        ("in_time_of_projects", projects),
        ("in_time_of_sessions", lasts),
    ):
        if is_asked:
            found += await tx.found(STATEMENTS[name], **bounds)
    found.sort(key=lambda each: -each[2])
    return [(name, number) for name, number, _ in found[:LOOKED_THROUGH]]


class Area(NamedTuple):
    """The scope of a search, resolved to what is stored."""

    projects: Sequence[str]
    lasts: Mapping[str, int]
    """Sessions outside of these projects, each with the last turn that is seen of it."""
    own: frozenset[str]
    """Sessions that were asked for themselves, whose summaries count too."""
    everywhere: bool
    total: int
    """Entries in the whole store."""


class Entry(NamedTuple):
    """A record that was found, or is the neighbour of one."""

    record_id: str
    level: int
    session_id: str
    turn_index: int
    at: str
    number: int | None
    vectors: bytes | None
    """Its packed vectors, if some may not have been compared yet."""


_INDEX_FACTOR = 2
"""An index is asked for this many times the wanted number, as it knows nothing of projects."""
_INDEX_RETRY_S = 60.0
"""After an index has refused, none is asked for this long."""
_MOST_TERMS = 64
_MOST_SAMPLES = 16
_LEAST_WEIGHT = 0.0001
_MOST_CLAUSES = 900
"""Maximum clauses of a Lucene query; Lucene refuses more than 1,024."""


class Searcher:
    """Searches one store; caches vectors in memory between searches."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._vectors = VectorCache()
        self._comparing = asyncio.Lock()
        self._oldest: dict[VectorArea, int] = {}
        """The sequence number of the oldest vector in memory; 0 if there are no older ones."""
        self._reading: dict[VectorArea, asyncio.Task[None]] = {}
        """Tasks that read older vectors in the background."""
        self._samples: dict[str, Commonness] = {}
        self._refused_at = float("-inf")
        """When a vector index last refused: it may be missing, or not be online yet."""

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """See `ragmem.store`."""
        terms = [t for t in query.terms if t.term and t.term == clean(t.term)][:_MOST_TERMS]
        if not (terms or query.vector or query.intervals) or query.limit < 1:
            return []
        search = partial(self._search, query=query, terms=terms)
        asks = monotonic() - self._refused_at > _INDEX_RETRY_S
        try:
            found = await self._gateway.read(partial(search, asks_indexes=asks))
        except StoreRefused:
            if not asks:
                raise
            found = await self._gateway.read(partial(search, asks_indexes=False))
            self._refused_at = monotonic()
        return found

    async def _search(
        self,
        tx: Transaction,
        query: SearchQuery,
        terms: Sequence[WeightedTerm],
        asks_indexes: bool,
    ) -> list[Candidate]:
        import numpy as np

        area, version = await _area(tx, query)
        if not area.everywhere and not area.projects and not area.lasts:
            return []
        near, is_partial = await self._by_vector(tx, query, area, version)
        commonness = await self._commonness(tx, area) if terms else {}
        texts = _texts(query, area, terms, commonness)
        hits = await _search_text(tx, texts, query.limit) if texts else {}
        levels = level_of(near.records)
        near = near._replace(records=number_of(near.records))
        numbers = [*best_of_both(near.records, near.best, levels, query.levels, query.limit)]
        if is_partial and version and asks_indexes:
            numbers += await _by_index(tx, query, area, version)
        timely = await _by_interval(tx, query, area, terms, commonness, near)
        if not hits and not numbers and not timely:
            return []
        [[rows]] = await tx.values(
            STATEMENTS["around"],
            given={
                "ids": list(hits),
                "timely": list(timely),
                "numbers": numbers,
                "everywhere": area.everywhere,
                "projects": area.projects,
                "lasts": area.lasts,
                "withVectors": is_partial,
            },
        )
        entries = [Entry(*row) for row in rows]
        compared = np.fromiter((each.number or 0 for each in entries), np.int64)
        similarities = near.those(np.isin(near.records, compared)).told
        late = {
            each.number: each.vectors
            for each in entries
            if each.number and each.vectors and each.number not in similarities
        }
        if version and late:
            matrix = Matrix(version.dimension)
            matrix.add([*late], [*late.values()])
            similarities |= matrix.similarities(query.vector).told
        wanted = [each for each in entries if each.level != TURN_LEVEL or _wants_turns(query)]
        return tx.read.records(partial(_candidate, similarities, timely | hits), wanted)

    async def _commonness(self, tx: Transaction, area: Area) -> Mapping[str, Commonness]:
        """Return how common words are in each of the first few projects."""
        found = {}
        for project_id in area.projects[:_MOST_SAMPLES]:
            known = self._samples.get(project_id)
            if known is None or not known.is_current(area.total):
                known = self._samples[project_id] = await sample(tx, project_id, area.total)
            found[project_id] = known
        while len(self._samples) > 2 * _MOST_SAMPLES:
            del self._samples[next(iter(self._samples))]
        return found

    async def _by_vector(
        self, tx: Transaction, query: SearchQuery, area: Area, version: Version | None
    ) -> tuple[Similarities, bool]:
        """Return the cosines of the whole area, and whether vectors may be missing in memory."""
        if not query.vector or version is None or len(query.vector) != 4 * version.dimension:
            return Similarities.joined([]), False
        areas = [("project", each) for each in area.projects]
        areas += [("session", each) for each in area.lasts]
        found: list[Similarities] = []
        is_partial = False
        async with self._comparing:
            for which in [("all", "")] if area.everywhere else areas:
                part = await self._compared(tx, which, version, query.vector)
                if self._oldest[which]:
                    is_partial = True
                    self._read_in_background(which, version)
                if which[0] == "session":
                    seen = index_of(part.records) <= area.lasts[which[1]]
                    if which[1] not in area.own:
                        seen &= level_of(part.records) == TURN_LEVEL
                    part = part.those(seen)
                found.append(part)
        return Similarities.joined(found), is_partial

    async def _compared(
        self, tx: Transaction, which: VectorArea, version: Version, vector: bytes
    ) -> Similarities:
        """Return the cosines of those records of an area whose vectors are in memory."""
        place = self._vectors.place(which, version)
        page = await page_of(tx, which, version, after=place)
        if not place:
            self._oldest[which] = page.oldest
        came = [(page.records, page.packs, page.newest)] if page.records else []
        return Similarities.joined(
            [*self._vectors.similarities(which, version, vector, lambda _: came)]
        )

    def _read_in_background(self, which: VectorArea, version: Version) -> None:
        """Start reading older vectors, unless a task already does."""
        if which not in self._reading:
            task = self._reading[which] = asyncio.create_task(self._read_older(which, version))
            task.add_done_callback(lambda _: self._reading.pop(which))

    async def _read_older(self, which: VectorArea, version: Version) -> None:
        # If it fails, the next search starts it again.
        with suppress(StoreError):
            while before := self._oldest[which]:
                read = partial(page_of, area=which, version=version, before=before)
                page = await self._gateway.read(read, patient=False)
                async with self._comparing:
                    is_next = self._oldest[which] == before
                    if not is_next or not self._vectors.add(which, version, *page[:2]):
                        return
                    self._oldest[which] = page.oldest

    async def aclose(self) -> None:
        """Stop the background reads."""
        for task in (reading := [*self._reading.values()]):
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def _search_text(
    tx: Transaction, texts: Sequence[Properties], limit: int, interval: Interval | None = None
) -> dict[str, float]:
    """Return the best scores in these full-text queries, of an interval or of all, by id."""
    start, end = (interval.start_at, interval.end_at) if interval else (None, None)
    [[rows]] = await tx.values(
        STATEMENTS["search_text"], texts=texts, limit=limit, start=start, end=end
    )
    found: dict[str, float] = {}
    for record_id, score in rows:
        found[record_id] = max(score, found.get(record_id, 0.0))
    return found


async def _by_interval(
    tx: Transaction,
    query: SearchQuery,
    area: Area,
    terms: Sequence[WeightedTerm],
    commonness: Mapping[str, Commonness],
    near: Similarities,
) -> dict[str, float]:
    """Return turns of the intervals with their scores by text: by id, 0 if they have none."""
    import numpy as np

    chosen: dict[str, float] = {}
    if not _wants_turns(query) or not query.intervals:
        return chosen
    of_turns = msgspec.structs.replace(query, levels=(TURN_LEVEL,), limit=LOOKED_THROUGH)
    texts = _texts(of_turns, area, terms, commonness)
    for interval in query.intervals:
        latest = await newest(tx, interval, None if area.everywhere else area.projects, area.lasts)
        names = {number: name for name, number in latest if number is not None}
        places = np.flatnonzero(np.isin(near.records, np.fromiter(names, np.int64)))
        interval_near = best_of(near.records, near.best, places, query.of_interval)
        others = [name for name, _ in latest[: query.of_interval]]
        others += [names[each] for each in interval_near]
        chosen = dict.fromkeys(others, 0.0) | chosen
        if texts:
            # The interval's best by text, if they are among the best of all.
            chosen |= await _search_text(tx, texts, query.of_interval, interval)
    return chosen


def _wants_turns(query: SearchQuery) -> bool:
    return not query.levels or TURN_LEVEL in query.levels


def _summary_levels(query: SearchQuery) -> tuple[int, ...] | None:
    """Return the levels of summaries to search, empty for any; None for no summaries."""
    levels = tuple(level for level in query.levels if level != TURN_LEVEL)
    return levels if levels or not query.levels else None


async def _area(tx: Transaction, query: SearchQuery) -> tuple[Area, Version | None]:
    """Resolve the scope, and find the version of the vectors to compare the question with."""
    scope = query.scope
    [row] = await tx.run(
        STATEMENTS["scope"],
        given={"projectIds": scope.project_ids, "sessionIds": scope.session_ids},
    )
    lasts: dict[str, int] = {}
    own = set()
    for session_id, project_id, is_own, last in row["spans"]:
        if project_id not in row["projects"]:
            lasts[session_id] = max(lasts.get(session_id, 0), last)
            if is_own:
                own.add(session_id)
    area = Area(
        projects=row["projects"],
        lasts=lasts,
        own=frozenset(own),
        everywhere=not scope.project_ids and not scope.session_ids,
        total=row["total"],
    )
    if row["embedder"] is None or row["embedder"] != query.embedder:
        return area, None
    return area, Version(row["embedder"], row["dimension"], row["epoch"])


# --- words ------------------------------------------------------------------------


def _texts(
    query: SearchQuery,
    area: Area,
    terms: Sequence[WeightedTerm],
    commonness: Mapping[str, Commonness],
) -> list[Properties]:
    """Return the full-text queries: for turns and for summaries, in projects and in sessions."""
    if not terms:
        return []
    levels = _summary_levels(query)
    kinds = [TURNS] if _wants_turns(query) else []
    kinds += [] if levels is None else [SUMMARIES]
    texts: list[Properties] = []
    for kind in kinds:
        needed = ""
        if kind == SUMMARIES and levels:
            needed = _any_of(level_mark(level) for level in levels[:_MOST_CLAUSES])
        if area.everywhere:
            texts.append(_text(query, _words(terms, mark(kind)), needed))
        many = max(1, _MOST_CLAUSES // len(terms))
        for projects in batches(area.projects, many):
            words = []
            for project_id in projects:
                known = commonness.get(project_id)
                weighted = known.weighted(terms) if known else terms
                words += _words(weighted, mark(kind, project_id))
            texts.append(_text(query, words, needed))
        sessions = [s for s in area.lasts if kind == TURNS or s in area.own]
        for part in batches(sessions, _MOST_CLAUSES):
            which = needed + _any_of(session_mark(kind, each) for each in part)
            text = _text(query, _words(terms, mark(kind)), which)
            # All hits in these few turns: those that a fork doesn't share are left out later.
            texts.append(text | {"options": {}, "lasts": dict(area.lasts)})
    return texts


def _text(query: SearchQuery, words: Sequence[str], needed: str) -> Properties:
    text = f"{needed}+({' '.join(words)})"
    return {"query": text, "options": {"limit": query.limit}, "lasts": None}


def _words(terms: Sequence[WeightedTerm], start: str) -> list[str]:
    return [f"{_quoted(start + each.term)}^{max(each.weight, _LEAST_WEIGHT):.6f}" for each in terms]


def _any_of(marks: Iterable[str]) -> str:
    return f"+({' '.join(map(_quoted, marks))})^0 "


def _quoted(term: str) -> str:
    """Quote as one term, whatever Lucene syntax it contains."""
    escaped = term.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- vectors ----------------------------------------------------------------------


async def _by_index(tx: Transaction, query: SearchQuery, area: Area, version: Version) -> list[int]:
    """Return the approximate best of the server's vector indexes, for vectors not in memory."""
    import numpy as np

    levels = _summary_levels(query)
    wanted = {"turn_embedding": _wants_turns(query), "summary_embedding": levels is not None}
    found = await tx.values(
        STATEMENTS["nearest_by_index"],
        given={
            "indexes": [name for name, is_wanted in wanted.items() if is_wanted],
            "vector": np.frombuffer(query.vector, "<f4").tolist(),
            "embedder": version.model_id,
            "dimension": version.dimension,
            "most": _INDEX_FACTOR * query.limit,
            "limit": query.limit,
            "levels": [TURN_LEVEL, *levels] if levels else [],
            "everywhere": area.everywhere,
            "projects": area.projects,
            "lasts": area.lasts,
            "own": list(area.own),
        },
    )
    return [number for [number] in found]


def _candidate(
    similarities: Mapping[int, dict[str, Any]], scores: Mapping[str, float], entry: Entry
) -> Candidate:
    return Candidate(
        record_id=entry.record_id,
        level=entry.level,
        session_id=entry.session_id,
        turn_index=max(0, entry.turn_index),
        at=from_text(entry.at),
        text=scores.get(entry.record_id, 0.0),
        **similarities.get(entry.number or 0, {}),
    )
