"""How common words are in a project, from a sample of what is in it.

Lucene counts a project's words by themselves, since they bear its mark, but takes the
number of documents of the whole index: in a large store all of a small project's words
would seem rare, and none rarer than another. And a word that every tenth turn holds
costs the most to look for, and tells the least.
"""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from ragmem.store.neo4j.entries import STATEMENTS, TURNS, mark
from ragmem.store.neo4j.gateway import Transaction
from ragmem.store.recall import WeightedTerm

SAMPLE = 256
"""Turns that are looked at, about."""
_CHANGED = 1.1
"""By so much more or fewer entries in the store, and a sample is out of date."""
_LARGE = 50_000
"""Turns of a project in which the commonest words are not looked for."""
_COMMON = 0.1
_MOSTLY = 0.8
"""Of the store: its own words count as they do in a project that is so much of it."""
_BEFORE = timedelta(seconds=1)
"""The server's times are finer than Python's."""
_POINTS = 16
"""In time, from each of which the next few turns are looked at."""
_LEAST_TERMS = 3


class Commonness(msgspec.Struct, frozen=True):
    """Of the words of one project."""

    total: int
    """Entries of the whole store, then."""
    documents: int
    """Turns and summaries of the project; 0 when its words need no other weights."""
    sampled: int
    counts: Counter[str]
    """By term, turns of the sample that hold it."""

    def is_current(self, total: int) -> bool:
        """Whether the store is still about as large; a small one must be exactly."""
        if total < SAMPLE:
            return total == self.total
        return self.total / _CHANGED < total < self.total * _CHANGED

    def weighted(self, terms: Sequence[WeightedTerm]) -> list[WeightedTerm]:
        """The terms with the weights that Lucene must be given; the commonest may be left out."""
        if not self.documents:
            return list(terms)
        if self.documents >= _LARGE:
            rarest = sorted(terms, key=lambda each: self.counts[each.term])
            common = {each.term for each in rarest[_LEAST_TERMS:] if self._is_common(each.term)}
            terms = [each for each in terms if each.term not in common]
        return [WeightedTerm(each.term, each.weight * self._factor(each.term)) for each in terms]

    def _is_common(self, term: str) -> bool:
        return self.counts[term] > _COMMON * self.sampled

    def _factor(self, term: str) -> float:
        # One that is not in the sample is in less than one of it: half is a guess.
        each = self.documents / self.sampled
        count = max(self.counts[term] * each, each / 2 if each > 1 else 0)
        return _rarity(self.documents, count) / _rarity(max(self.total, self.documents), count)


def _rarity(documents: float, count: float) -> float:
    """Inverse document frequency, as BM25 has it."""
    return math.log(1 + max(0.0, documents - count + 0.5) / (count + 0.5))


async def sample(tx: Transaction, project_id: str, total: int) -> Commonness:
    """Look at some of a project's turns, spread over its time."""
    [row] = await tx.run(STATEMENTS["documents_of_project"], id=project_id)
    documents: int = row["documents"]
    if documents < _LARGE and documents >= _MOSTLY * total:
        # Its words are as common as in the whole store, or nearly.
        return Commonness(total, 0, 0, Counter())
    points: list[datetime] = []
    if documents > SAMPLE:
        step = (row["last"] - row["first"]) / _POINTS
        points = [row["first"] - _BEFORE + n * step for n in range(_POINTS)]
    elif documents:
        points = [row["first"] - _BEFORE]
    each = SAMPLE // max(1, len(points))
    texts = await tx.found(STATEMENTS["sample_of_project"], id=project_id, points=points, each=each)
    start = mark(TURNS, project_id)
    counts: Counter[str] = Counter()
    for text in texts:
        words = {word for word in text.split(" ") if word.startswith(start)}
        counts.update(word.removeprefix(start) for word in words)
    return Commonness(total, documents, max(1, len(texts)), counts)
