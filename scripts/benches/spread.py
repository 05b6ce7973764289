"""Statistics of many runs."""

import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """The distribution of many runs, in milliseconds."""

    minimum: float
    median: float
    p95: float
    maximum: float
    runs: int


def spread(samples: Sequence[float]) -> Spread:
    """Return the distribution of samples, which may be in any order."""
    ordered = sorted(samples)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return Spread(ordered[0], statistics.median(ordered), p95, ordered[-1], len(ordered))


def best(spreads: Iterable[Spread]) -> Spread:
    """Return the round with the lowest median: the one least disturbed on a shared machine."""
    return min(spreads, key=lambda each: each.median)
