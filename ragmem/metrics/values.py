"""Timings and counts, as a passed object: nothing global, nothing sent anywhere."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Metrics:
    """What one process measured. Names are dotted, `store.turn_begin`; times in milliseconds."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(int)
        self.timings_ms: defaultdict[str, list[float]] = defaultdict(list)

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter."""
        self.counts[name] += by

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Time a block, also when it raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.timings_ms[name].append((time.perf_counter() - started) * 1000)
