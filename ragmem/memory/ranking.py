"""What a search's candidates are worth: pure functions from scores to an order.

The contract with a store, one round trip for a question:

*Indexed*: for each completed turn one document, `ragmem.terms.turn_terms` of it and the turn
before it in its session: written once, when the turn is completed. (The next turn's words add
nothing; the previous turn's score added here finds up to 0.03 less.) One vector per passage. No
documents of sessions: their scores come from their turns', as good as BM25 over all their text.

*Asked*: `query_terms` of the question without its relative time words (a weight of 2 is a
repeated phrase in FTS5, `term^2` in Lucene); the question's vector or None; the intervals that it
names; a scope (project ids or session ids); N, `Weights.candidates`.

*Answered*, each turn once:
1. the N best by BM25 (k1 1.2, b 0.75, document frequencies of the scope where the store can have
   them) over any of the terms but the stop words. In a scope of more than 5,000 turns a term that
   a tenth of them has may be left out as long as two others remain (in one of 70 that costs 0.03);
2. where these are fewer than N, more by the stop words alone, with at most nine tenths of the
   lowest score of 1. It finds 0.03 more where there are no vectors; with them it may be left out;
3. the N best by the raw cosine of their best passage. A store that can't take these exactly in
   time (Neo4j above 2,000 turns) takes them among: 1, their neighbours, the turns of the
   `Weights.sessions` sessions with the best three turns by 1, and the `Weights.newest` newest
   (that loses nothing in 80 turns, and 0.02 in 1,400);
4. of each interval the N newest turns that began in it;
5. the direct neighbours in their session (`turn_index` ± 1) of 1 and 3.

Each with both of its scores: `text` is 0 for a turn that is not in 1 or 2 (no second look is
needed), `similarity` None where there is no vector. Never texts, never vectors.

*Computed here*: all else. What is left to load is the few turns that are shown; `demoted` takes
their terms.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ragmem.memory.timewords import TimeSpan
from ragmem.store.recall import TURN_LEVEL, Candidate


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with what it is worth; comparable within one search only."""

    candidate: Candidate
    score: float
    parts: tuple[tuple[str, float], ...]
    """What the score is made of, by name; they sum to it."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each ingredient counts, in units of one standard deviation of the scores.

    Chosen with sweeps of one weight at a time over tests/recall/data (see scripts/recall), each
    set by itself and all merged into one project. The held-out sets were seen when designs were
    compared (a window or none), so that they are no blind test. All is flat around the values
    here: a step up or down moves recall by about 0.01.
    """

    candidates: int = 50
    """N of the contract. In 1,400 turns 20 find as much, and 1,000 less: what is far from the
    question blurs the scale."""
    sessions: int = 8
    """Sessions whose turns a store looks through when it narrows the search by vector."""
    newest: int = 200
    """Turns that it looks through besides."""
    vector: float = 1.1
    """Of the cosine, where the BM25 counts 1."""
    foreign_vector: float = 0.7
    """The same for a question in a language that the embedder knows badly."""
    neighbour: float = 0.1
    """Of each neighbour's fused score."""
    session: float = 0.5
    """Of its session's score: the mean of its three best by text, and by vector."""
    time: float = 3.0
    """Of a turn inside of an interval that the question surely names."""
    here: float = 0.25
    """Of a turn of the conversation that asks: between two alike, its own is meant (X12)."""
    recency: float = 0.05
    """Of a turn of this minute; halves with each `recency_days`. Settles ties."""
    recency_days: float = 30.0
    duplicate: float = 1.0
    """Taken from a turn that says what a better one says."""


DEFAULT_WEIGHTS = Weights()
_BEST_OF_SESSION = 3
_HIGHEST = 1e6


def rank(
    candidates: Iterable[Candidate],
    *,
    now: datetime,
    spans: Sequence[TimeSpan] = (),
    foreign: bool = False,
    session_ids: Collection[str] = (),
    weights: Weights = DEFAULT_WEIGHTS,
) -> tuple[Ranked, ...]:
    """The candidates, best first; ties by the newest. Turns or summaries, not both at once.

    `foreign`: the question is in a language that the embedder knows badly. `session_ids`:
    the conversation that it is asked in, with those that it was forked from.
    """
    found = _distinct(candidates)
    if not found:
        return ()
    around = _neighbours(found)
    text = [c.text for c in found]
    by_text = _z_scores(text)
    similarity = _known([c.similarity for c in found])
    vector = weights.foreign_vector if foreign else weights.vector
    by_vector = [vector * z for z in _z_scores(similarity)]
    fused = [t + v for t, v in zip(by_text, by_vector, strict=True)]
    nearby = _from_neighbours(fused, around, weights.neighbour)
    sessions = [c.session_id for c in found]
    of_text = _by_session(sessions, text)
    of_vector = _by_session(sessions, similarity)
    ranked = []
    for i, candidate in enumerate(found):
        session = of_text[candidate.session_id] + vector * of_vector[candidate.session_id]
        parts = (
            ("text", by_text[i]),
            ("vector", by_vector[i]),
            ("neighbours", nearby[i]),
            ("session", weights.session * session),
            ("time", weights.time * closeness(candidate.at, spans)),
            ("here", weights.here if candidate.session_id in session_ids else 0.0),
            ("recency", weights.recency * _recency(candidate.at, now, weights.recency_days)),
        )
        score = math.fsum(value for _, value in parts)
        ranked.append(Ranked(candidate=candidate, score=score, parts=parts))
    return tuple(sorted(ranked, key=_order))


def demoted(
    ranked: Sequence[Ranked],
    texts: Mapping[str, Iterable[str]],
    *,
    weights: Weights = DEFAULT_WEIGHTS,
    alike: float = 0.8,
) -> tuple[Ranked, ...]:
    """Near-duplicates of better ones put behind; `texts` are the terms of the first few, by turn.

    Two turns are alike when the terms that they share are `alike` of all that they have.
    """
    kept: list[frozenset[str]] = []
    out = []
    for one in ranked:
        words = frozenset(texts.get(one.candidate.record_id, ()))
        if words and any(_jaccard(words, other) >= alike for other in kept):
            penalty = ("duplicate", -weights.duplicate)
            one = msgspec.structs.replace(
                one, score=one.score - weights.duplicate, parts=(*one.parts, penalty)
            )
        elif words:
            kept.append(words)
        out.append(one)
    return tuple(sorted(out, key=_order))


def closeness(at: datetime, spans: Sequence[TimeSpan]) -> float:
    """How well a moment fits the best of the intervals: its confidence inside, less with distance.

    Half a day or half the interval outside, whichever is more, halves it.
    """
    best = 0.0
    for span in spans:
        if span.start_at <= at < span.end_at:
            best = max(best, span.confidence)
            continue
        away = span.start_at - at if at < span.start_at else at - span.end_at
        scale = max(timedelta(hours=12), (span.end_at - span.start_at) / 2)
        best = max(best, span.confidence * 0.5 ** (away / scale) / 2)
    return best


def _order(one: Ranked) -> tuple[float, float, str]:
    return (-one.score, -one.candidate.at.timestamp(), one.candidate.record_id)


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """One per turn, the best of its scores: a store may offer it by text and by vector."""
    found: dict[str, Candidate] = {}
    for one in map(_sound, candidates):
        other = found.get(one.record_id)
        if other is not None:
            known = [s for s in (one.similarity, other.similarity) if s is not None]
            one = msgspec.structs.replace(
                one, text=max(one.text, other.text), similarity=max(known, default=None)
            )
        found[one.record_id] = one
    return list(found.values())


_Around = Sequence[tuple[int | None, int | None]]


def _sound(one: Candidate) -> Candidate:
    """With scores that can be added up: a damaged vector has no cosine."""
    text = min(max(one.text, 0.0), _HIGHEST) if math.isfinite(one.text) else 0.0
    known = one.similarity is not None and math.isfinite(one.similarity)
    similarity = min(max(one.similarity or 0.0, -1.0), 1.0) if known else None
    if (text, similarity) == (one.text, one.similarity):
        return one
    return msgspec.structs.replace(one, text=text, similarity=similarity)


def _neighbours(found: Sequence[Candidate]) -> _Around:
    """Where each one's previous and next turn are, if they were offered."""
    places = {(c.session_id, c.turn_index): i for i, c in enumerate(found) if c.level == TURN_LEVEL}
    return [
        (
            places.get((c.session_id, c.turn_index - 1)),
            places.get((c.session_id, c.turn_index + 1)),
        )
        if c.level == TURN_LEVEL
        else (None, None)
        for c in found
    ]


def _from_neighbours(scores: Sequence[float], around: _Around, share: float) -> list[float]:
    # One that was not offered counts as the average: it adds nothing.
    return [share * sum(scores[i] for i in near if i is not None) for near in around]


def _known(similarities: Sequence[float | None]) -> list[float]:
    """A turn without a vector yet is neither near nor far: the middle of the others."""
    known = [s for s in similarities if s is not None]
    middle = math.fsum(known) / len(known) if known else 0.0
    return [middle if s is None else s for s in similarities]


def _z_scores(values: Sequence[float]) -> list[float]:
    """Distances from the mean in standard deviations; zeros when all are alike."""
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    if deviation < 1e-9:
        return [0.0] * len(values)
    return [(v - mean) / deviation for v in values]


def _by_session(sessions: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """For each session the mean of its best scores, as a z-score among the sessions."""
    members: dict[str, list[float]] = {}
    for session, score in zip(sessions, scores, strict=True):
        members.setdefault(session, []).append(score)
    means = []
    for values in members.values():
        best = sorted(values, reverse=True)[:_BEST_OF_SESSION]
        means.append(math.fsum(best) / len(best))
    return dict(zip(members, _z_scores(means), strict=True))


def _recency(at: datetime, now: datetime, half_life_days: float) -> float:
    days = max(0.0, (now - at) / timedelta(days=1))
    return float(0.5 ** (days / half_life_days))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)
