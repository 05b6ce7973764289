"""What a search's candidates are worth: pure functions from scores to an order.

All scores are put on one scale (distances from the mean in standard deviations, among the
candidates) and added, as over turns (ragmem/memory/ranking.py). What code has besides: scopes
that call each other, files that import each other, names that stand in the question.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from ragmem.records import ScopeKind
from ragmem.scores import group_z_scores, middle_for_unknown, scale_of, z_scores


class ScopeCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A scope with what speaks for it."""

    scope: int
    """Its row."""
    path: str
    kind: ScopeKind
    text: float = 0.0
    """BM25 over its four fields; 0 where it has none of the words."""
    similarity: float | None = None
    """The cosine of its vector with the question's, where both are there."""
    held: float = 0.0
    """The share of the question's words that it has, the rare ones counting more; 0 to 1."""
    lent: float = 0.0
    """The best text score of a scope that calls it."""
    told: float = 0.0
    """The best text score of a section of a text that names it."""
    named: float = 0.0
    """How surely the question names it, from 0 to 1."""
    meant: bool = False
    """The question names it, its file, or a scope that it is in."""


class RankedScope(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with what it is worth; comparable within one search only."""

    candidate: ScopeCandidate
    score: float
    parts: Mapping[str, float]
    """What the score is made of, by name; they sum to it."""


class ScopeWeights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each ingredient counts, in standard deviations of the scores.

    Chosen with `scripts/bench --only code` on one code base and this repository, and reported on
    another (docs/measurements.md).
    """

    words: float = 0.9
    """Of the words, where the cosine counts 1."""
    own: float = 0.4
    """So much of them goes by what a scope has itself; the rest by what is said for it too."""
    share_lent: float = 0.9
    """Of its best caller's words, that count as its own where they are more than it has."""
    share_told: float = 1.0
    """The same of the best text that names it."""
    lent: float = 0.6
    """Of the best text score among its callers, besides; not above the best of all."""
    told: float = 0.25
    """The same of the texts that name it."""
    held: float = 3.0
    """Of the share of the question's words that it has, as far as that is over `much_held`."""
    much_held: float = 0.8
    vector: float = 1.0
    """Of the cosine."""
    foreign_vector: float = 0.6
    """The same for a question in a language that the embedder knows badly."""
    file: float = 0.35
    """Of its file: the mean of the three best in it, by text and by vector."""
    imports: float = 0.1
    """Of the files that import its own, or that it imports: the best of them."""
    near: float = 0.3
    """Of a scope in a file that the conversation has touched."""
    test: float = 1.2
    """Taken from tests, where the question does not speak of them."""
    block: float = 0.6
    """Taken from what has no name of its own."""
    section: float = 0.6
    """Taken from a section of a text: what is asked about is mostly code."""
    named: float = 20.0
    """Of a scope that the question names: before all others."""


DEFAULT_WEIGHTS = ScopeWeights()
WITHOUT_VECTORS = ScopeWeights(words=1.0, own=0.6, told=0.4)
"""Where words must say all: those that a scope has itself say more."""
_BEST_OF_FILE = 3
_MOST_LENT = 5.0
"""Standard deviations that a loan is worth at most: where few have one, theirs would be many."""
_FIRST = 10
_OF_ONE_FILE = 3
"""Among the first of the hits, unless the question names more."""

_TEST_PATH = re.compile(
    r"(^|/)(tests?|testing|testdata|specs?|__tests__|fixtures|[^/]*_tests)/"
    r"|(^|/)(test_[^/]*|conftest|[^/]*_tests?|[^/]*[.-](test|spec)|[^/]*Tests?)\.\w+$"
)
_OF_TESTS = re.compile(
    r"\b(tests?|tested|testing|specs?|fixtures?|mocks?|testcases?|unittests?|pytest)\b|\btest_",
    re.IGNORECASE,
)


def is_test(path: str) -> bool:
    """Whether a file's place or name says that it tests others."""
    return _TEST_PATH.search(path) is not None


def rank(
    candidates: Sequence[ScopeCandidate],
    *,
    question: str = "",
    near: Collection[str] = (),
    imports: Mapping[str, Collection[str]] | None = None,
    foreign: bool = False,
    weights: ScopeWeights | None = None,
) -> list[RankedScope]:
    """The candidates, best first; `imports`: of a file's path those that it imports."""
    if not candidates:
        return []
    if weights is None:
        by_meaning = any(c.similarity is not None for c in candidates)
        weights = DEFAULT_WEIGHTS if by_meaning else WITHOUT_VECTORS
    vector = weights.foreign_vector if foreign else weights.vector
    by_text, by_lent, by_told = _by_words(candidates, weights)
    similarity = middle_for_unknown([c.similarity for c in candidates])
    by_vector = z_scores(similarity)
    paths = [c.path for c in candidates]
    own = [
        t + vector * v
        for t, v in zip(z_scores([c.text for c in candidates]), by_vector, strict=True)
    ]
    of_file = group_z_scores(paths, own, best_of=_BEST_OF_FILE)
    of_imports = _by_imports(paths, own, imports or {})
    tests_wanted = _OF_TESTS.search(question) is not None
    ranked = []
    for i, one in enumerate(candidates):
        parts = {
            "text": by_text[i],
            "vector": vector * by_vector[i],
            "lent": by_lent[i],
            "told": by_told[i],
            "held": weights.held * max(0.0, one.held - weights.much_held),
            "file": weights.file * of_file[one.path],
            "imports": weights.imports * of_imports.get(one.path, 0.0),
            "near": weights.near if one.path in near else 0.0,
            "test": 0.0 if tests_wanted or not is_test(one.path) else -weights.test,
            "kind": -_less(one.kind, weights),
            "named": weights.named * one.named,
        }
        ranked.append(RankedScope(candidate=one, score=math.fsum(parts.values()), parts=parts))
    return sorted(ranked, key=lambda each: (-each.score, each.candidate.path, each.candidate.scope))


def _by_words(
    candidates: Sequence[ScopeCandidate], weights: ScopeWeights
) -> tuple[list[float], list[float], list[float]]:
    """What their own words are worth, and what callers and texts add to that.

    What callers lend lifts none above the best that has the words itself.
    """
    own = [c.text for c in candidates]
    lent = [max(c.text, weights.share_lent * c.lent) for c in candidates]
    told = [max(n, weights.share_told * c.told) for n, c in zip(lent, candidates, strict=True)]
    by_own, by_all = scale_of(own), scale_of(told)
    by_lent = [min(_MOST_LENT, z) for z in z_scores([c.lent for c in candidates])]
    by_told = [min(_MOST_LENT, z) for z in z_scores([c.told for c in candidates])]
    share = 1 - weights.own
    both = [weights.own * by_own(o) + share * by_all(t) for o, t in zip(own, told, strict=True)]
    best = max(both)
    words, from_callers, from_texts = [], [], []
    for i, score in enumerate(both):
        called = max(score, min(score + weights.lent * by_lent[i], best)) - score
        called += share * (by_all(lent[i]) - by_all(own[i]))
        named = share * (by_all(told[i]) - by_all(lent[i]))
        words.append(weights.words * (weights.own * by_own(own[i]) + share * by_all(own[i])))
        from_callers.append(weights.words * called)
        from_texts.append(weights.words * named + weights.told * by_told[i])
    return words, from_callers, from_texts


def mixed(ranked: Sequence[RankedScope]) -> list[RankedScope]:
    """The same, but among the first few not more than three of a file, unless they are meant."""
    first: list[RankedScope] = []
    later: list[RankedScope] = []
    seen: Counter[str] = Counter()
    for place, one in enumerate(ranked):
        path = one.candidate.path
        if len(first) >= _FIRST:
            later += ranked[place:]
            break
        if seen[path] >= _OF_ONE_FILE and not one.candidate.meant:
            later.append(one)
            continue
        seen[path] += 1
        first.append(one)
    return first + later


def _less(kind: ScopeKind, weights: ScopeWeights) -> float:
    if kind == "section":
        return weights.section
    return weights.block if kind in ("block", "text") else 0.0


def _by_imports(
    paths: Sequence[str], scores: Sequence[float], imports: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """For each file the best score in one that it imports, or that imports it; 0 at least."""
    best: dict[str, float] = {}
    for path, score in zip(paths, scores, strict=True):
        best[path] = max(score, best.get(path, 0.0))
    found: dict[str, float] = {}
    for path, imported in imports.items():
        for other in imported:
            if other != path:
                found[path] = max(found.get(path, 0.0), best.get(other, 0.0))
                found[other] = max(found.get(other, 0.0), best.get(path, 0.0))
    return found
