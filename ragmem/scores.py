"""Scores of different kinds on one scale: what the rankings of turns and of code share."""

import math
from collections.abc import Callable, Sequence

WORDS_AS_COSINE = 0.8
"""What a record that holds all of a question's words is nearer by, when it is judged whether it
bears on it: fitted on turns and on memories, by each of them alone 0.6 to 0.9."""
_LEAST_DEVIATION = 1e-9


def rarity(having: int, among: int) -> float:
    """What a word tells that so many records have: its inverse document frequency, as in BM25."""
    return math.log(1 + (among - having + 0.5) / (having + 0.5))


def z_scores(values: Sequence[float]) -> list[float]:
    """Distances from the mean in standard deviations; zeros when all are alike."""
    return list(map(scale_of(values), values))


def scale_of(values: Sequence[float]) -> Callable[[float], float]:
    """What makes a z-score among these values of any value; zeros when all are alike."""
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    if deviation < _LEAST_DEVIATION:
        return lambda value: 0.0
    return lambda value: (value - mean) / deviation


def middle_for_unknown(values: Sequence[float | None]) -> list[float]:
    """What has no score yet is neither near nor far: it gets the mean of the others."""
    known = [v for v in values if v is not None]
    middle = math.fsum(known) / len(known) if known else 0.0
    return [middle if v is None else v for v in values]


def group_z_scores(
    groups: Sequence[str], scores: Sequence[float], *, best_of: int
) -> dict[str, float]:
    """For each group the mean of its best so many scores, as a z-score among the groups."""
    members: dict[str, list[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        members.setdefault(group, []).append(score)
    means = []
    for values in members.values():
        best = sorted(values, reverse=True)[:best_of]
        means.append(math.fsum(best) / len(best))
    return dict(zip(members, z_scores(means), strict=True))
