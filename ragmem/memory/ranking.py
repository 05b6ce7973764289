"""Ranking of a search's candidates: pure functions from scores to an order.

The contract with a store, one round trip per question:

*Index*: one document for each finished turn, `ragmem.terms.turn_terms`; one vector per passage.
There are no documents for sessions: their scores derive from their turns', which is as good as BM25
over all their text. Nor for a turn together with the one before it: adding half of that one's BM25
here finds as much (.758 / .850 / .911 of the evidence at 5 / 10 / 20, against .754 / .846 / .916),
and a turn's words remain its own.

*Query*: `query_terms` of the question without its relative time words; the question's vector or
None; the intervals that it names; a scope (project ids or session ids); N, `Weights.candidates`.

*Result*, each turn once:
1. the N best by BM25 (k1 1.2, b 0.75, document frequencies of the scope if the store can compute
   them) over any of the terms; in a large scope the commonest may be left out. Stop words are
   included only if there is no vector: then they find 0.05 more at 20;
2. the N best by the raw cosine of their best passage;
3. of the turns begun in each interval, the newest, the best by BM25 and the best by cosine,
   N / 2 each;
4. the direct neighbours in their session (`turn_index` ± 1) of 1 and 2.

Each comes with its scores: `text` is 0 for a turn that is neither in 1 nor in 3 (it is not scored
again), `similarity` and `whole` are None without a vector. Texts and vectors are never returned.

*Computed here*: everything else. Then only the few turns to show are loaded: see `recall.py`.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ragmem.memory.recall import Ranked, TimeSpan, by_score
from ragmem.records import TURN_LEVEL, Candidate
from ragmem.similarity import group_z_scores, middle_for_unknown, z_scores


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weight of each part of the score, in standard deviations.

    Chosen with sweeps of one weight at a time over tests/recall/data (see scripts/recall), each
    set by itself and all merged into one project; `whole`, `around` and `short` also over histories
    of repositories and chats (docs/measurements.md). The held-out sets were seen when designs were
    compared (a window or none), so they are no blind test. Recall is flat around these values: a
    step up or down changes it by about 0.01.
    """

    candidates: int = 50
    """N of the contract. In 1,400 turns, 20 find as much, and 1,000 find less: candidates far from
    the question distort the standard scores."""
    vector: float = 1.5
    """Weight of the cosine; that of BM25 is 1."""
    whole: float = 0.5
    """Share of the first passage in a turn's cosine; the rest is the best passage's. In a long turn
    some passage is near to anything."""
    around: float = 0.5
    """Weight of the mean cosine of a turn and its neighbours, for answers split over two turns."""
    short: float = 2.0
    """Passages beyond the first at which a turn's surroundings (the turn before, the neighbours,
    the session) count half: a long turn has enough text of its own."""
    before: float = 0.5
    """Weight of the BM25 of the turn before, which says what "do it" is about."""
    session: float = 0.5
    """Weight of the session's score: the mean of its three best turns, by text and by vector."""
    time: float = 4.0
    """Weight of being inside an interval that the question names, times its confidence."""
    here: float = 0.25
    """Weight of being in the session that asks: between equals, its own turn is meant."""
    recency: float = 0.05
    """Weight of a turn of this minute, halved every `recency_days`; it decides ties."""
    recency_days: float = 30.0


DEFAULT_WEIGHTS = Weights()
_BEST_OF_SESSION = 3
_STEP = 1e-3
"""Difference in score from one turn to the next in a search by time alone."""


def rank(
    found: Sequence[Candidate],
    *,
    now: datetime,
    spans: Sequence[TimeSpan] = (),
    session_ids: Collection[str] = (),
    weights: Weights = DEFAULT_WEIGHTS,
) -> tuple[Ranked, ...]:
    """Rank turns or summaries, not both at once: best first, ties by the newest.

    `session_ids`: the session that the question is asked in, and those that it was forked from.
    """
    if not found:
        return ()
    places = {(c.session_id, c.turn_index): i for i, c in enumerate(found) if c.level == TURN_LEVEL}
    before = [_text_before(c, found, places) for c in found]
    text = [c.text + weights.before * b for c, b in zip(found, before, strict=True)]
    by_text = z_scores([c.text for c in found])
    by_before = [weights.before * z for z in z_scores(before)]
    near = [_turn_cosine(c, weights.whole) for c in found]
    similarity = middle_for_unknown(near)
    by_vector = [weights.vector * z for z in z_scores(similarity)]
    means = middle_for_unknown([_mean_around(c, near, places) for c in found])
    by_around = [weights.around * z for z in z_scores(means)]
    sessions = [c.session_id for c in found]
    of_text = group_z_scores(sessions, text, best_of=_BEST_OF_SESSION)
    of_vector = group_z_scores(sessions, similarity, best_of=_BEST_OF_SESSION)
    ranked = []
    for i, candidate in enumerate(found):
        session = of_text[candidate.session_id] + weights.vector * of_vector[candidate.session_id]
        # From 1 for a turn of one passage down to 0: the surroundings of a long one count less.
        damping = 1 / (1 + (max(0, candidate.passages - 1) / weights.short) ** 2)
        days = max(0.0, (now - candidate.at) / timedelta(days=1))
        parts = (
            ("text", by_text[i]),
            ("vector", by_vector[i]),
            ("before", damping * by_before[i]),
            ("around", damping * by_around[i]),
            ("session", damping * weights.session * session),
            ("time", weights.time * closeness(candidate.at, spans)),
            ("here", weights.here if candidate.session_id in session_ids else 0.0),
            ("recency", weights.recency * 0.5 ** (days / weights.recency_days)),
        )
        score = math.fsum(value for _, value in parts)
        ranked.append(Ranked(candidate=candidate, score=score, parts=parts))
    return tuple(sorted(ranked, key=by_score))


def of_time(candidates: Iterable[Candidate], spans: Sequence[TimeSpan]) -> tuple[Ranked, ...]:
    """Rank the turns in the intervals, for a question that names a time and nothing else.

    First the newest of each session, then the second newest of each and so on, so that the first
    few cover everything that was done.
    """
    inside = [c for c in candidates if any(s.start_at <= c.at < s.end_at for s in spans)]
    inside.sort(key=lambda c: (c.at, c.turn_index, c.record_id), reverse=True)
    seen: dict[str, int] = {}
    rounds = []
    for candidate in inside:
        rounds.append(seen.setdefault(candidate.session_id, 0))
        seen[candidate.session_id] += 1
    # Sorting keeps the newest first within a round.
    order = sorted(range(len(inside)), key=rounds.__getitem__)
    ranked = []
    for place, i in enumerate(order):
        parts = (("time", 1.0), ("order", -place * _STEP))
        ranked.append(Ranked(candidate=inside[i], score=1.0 - place * _STEP, parts=parts))
    return tuple(ranked)


def closeness(at: datetime, spans: Sequence[TimeSpan]) -> float:
    """Return how well a moment fits the best of the intervals: the confidence of one around it.

    Outside, it is half of that at the edge, and halves again with each half day or half interval,
    whichever is more.
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


def _turn_cosine(one: Candidate, share: float) -> float | None:
    if one.similarity is None or one.whole is None:
        return one.similarity
    return share * one.whole + (1 - share) * one.similarity


_Places = Mapping[tuple[str, int], int]
"""The position of each turn among the candidates, by its session and index."""


def _mean_around(c: Candidate, near: Sequence[float | None], places: _Places) -> float | None:
    neighbours = (places.get((c.session_id, c.turn_index + step)) for step in (-1, 0, 1))
    known = [n for i in neighbours if i is not None and (n := near[i]) is not None]
    return math.fsum(known) / len(known) if known and c.level == TURN_LEVEL else None


def _text_before(c: Candidate, found: Sequence[Candidate], places: _Places) -> float:
    place = places.get((c.session_id, c.turn_index - 1)) if c.level == TURN_LEVEL else None
    return 0.0 if place is None else found[place].text
