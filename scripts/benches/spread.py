"""Many runs of one thing, as a few numbers."""

import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Milliseconds of many runs."""

    minimum: float
    median: float
    p95: float
    maximum: float
    runs: int


def spread(samples: Sequence[float]) -> Spread:
    """Of some samples, in any order."""
    ordered = sorted(samples)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return Spread(ordered[0], statistics.median(ordered), p95, ordered[-1], len(ordered))


def best(spreads: Iterable[Spread]) -> Spread:
    """The round with the least median: on a shared machine the one that was disturbed least."""
    return min(spreads, key=lambda each: each.median)
