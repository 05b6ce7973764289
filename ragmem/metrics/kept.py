"""What all processes of a home measured, kept by day in a small file of its own.

The store can't tell these: how long something took, and what a call cost that left no
record. A line of JSON a process, each a sum that can be added to others; when the file
has grown they are added up by day, and what is older than three months to one. So it stays
small, a torn line costs that line, and a process that is killed costs what it measured.
"""

import fcntl
import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import msgspec

from ragmem.files import append_line, replace_private
from ragmem.metrics.values import Metrics

FILE = "stats.jsonl"
_KEPT_DAYS = 92
_LARGEST_BYTES = 1_000_000
"""Then it is added up; three months of days take half of it at most."""
_GROWTH = 1.1
"""A bin's upper end is a tenth above the one before: so exact are percentiles."""
_LOCK_TRIES = 20
_LOCK_PAUSE_S = 0.01
_LEAST_MS = 0.001


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Many times of one thing, in milliseconds."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    bins: dict[int, int] = {}
    """How many took up to 1.1 to the power of the key."""

    @property
    def mean_ms(self) -> float:
        """0 without any."""
        return self.total_ms / self.count if self.count else 0.0

    def percentile_ms(self, percent: float) -> float:
        """What so many of a hundred took at most, a tenth too much at worst; 0 without any."""
        wanted = math.ceil(self.count * percent / 100)
        for number in sorted(self.bins):
            wanted -= self.bins[number]
            if wanted <= 0:
                return min(self.max_ms, _GROWTH**number)
        return self.max_ms

    def __add__(self, other: "Timing") -> "Timing":
        """Both together."""
        bins = dict(self.bins)
        for number, count in other.bins.items():
            bins[number] = bins.get(number, 0) + count
        return Timing(
            count=self.count + other.count,
            total_ms=self.total_ms + other.total_ms,
            max_ms=max(self.max_ms, other.max_ms),
            bins=bins,
        )


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on a day, or from it on where older days were added up."""

    day: date
    processes: int = 1
    counts: dict[str, float] = {}
    timings: dict[str, Timing] = {}

    def timing(self, *names: str) -> Timing:
        """Those of these names, together."""
        return sum((self.timings.get(name, Timing()) for name in names), Timing())

    def count(self, name: str) -> float:
        """0 for what was never counted."""
        return self.counts.get(name, 0)

    def __add__(self, other: "Measured") -> "Measured":
        """Both together, from the earlier day on."""
        names = self.counts.keys() | other.counts.keys()
        timed = self.timings.keys() | other.timings.keys()
        return Measured(
            day=min(self.day, other.day),
            processes=self.processes + other.processes,
            counts={name: self.count(name) + other.count(name) for name in sorted(names)},
            timings={name: self.timing(name) + other.timing(name) for name in sorted(timed)},
        )


def measured(metrics: Metrics, day: date) -> Measured:
    """One process' metrics as a sum."""
    return Measured(
        day=day,
        counts={name: count for name, count in sorted(metrics.counts.items()) if count},
        timings={name: _timing(times) for name, times in sorted(metrics.timings_ms.items())},
    )


def keep(folder: Path, metrics: Metrics, day: date) -> None:
    """Add what a process measured to what is kept; where that can't be, it is lost."""
    if not metrics.counts and not metrics.timings_ms:
        return
    line = _ENCODER.encode(measured(metrics, day))
    with suppress(OSError):
        lock = os.open(folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _locked(lock):
                _append(folder / FILE, line, day)
        finally:
            os.close(lock)


def read(folder: Path) -> list[Measured]:
    """What is kept, one for each day, oldest first."""
    try:
        lines = (folder / FILE).read_bytes().splitlines()
    except OSError:
        return []
    found: list[Measured] = []
    for line in lines:
        with suppress(msgspec.DecodeError):
            found.append(_DECODER.decode(line))
    return by_day(found)


def by_day(found: Iterable[Measured]) -> list[Measured]:
    """Added up, oldest day first."""
    days: dict[date, Measured] = {}
    for each in found:
        known = days.get(each.day)
        days[each.day] = known + each if known else each
    return [days[day] for day in sorted(days)]


def total(found: Sequence[Measured]) -> Measured | None:
    """All of it as one; None when there is nothing."""
    whole: Measured | None = None
    for each in found:
        whole = whole + each if whole else each
    return whole


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Measured)


def _timing(times: Sequence[float]) -> Timing:
    bins: dict[int, int] = {}
    for each in times:
        number = math.ceil(math.log(max(each, _LEAST_MS), _GROWTH))
        bins[number] = bins.get(number, 0) + 1
    return Timing(
        count=len(times),
        total_ms=round(sum(times), 3),
        max_ms=round(max(times, default=0.0), 3),
        bins=bins,
    )


def _locked(handle: int) -> bool:
    """Whether the lock could be had; nobody waits long for it."""
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOCK_PAUSE_S)
    return False


def _append(file: Path, line: bytes, day: date) -> None:
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = append_line(handle, line)
    finally:
        os.close(handle)
    if size + len(line) >= _LARGEST_BYTES:
        _add_up(file, day)


def _add_up(file: Path, day: date) -> None:
    found = read(file.parent)
    since = day - timedelta(days=_KEPT_DAYS)
    older = total([each for each in found if each.day < since])
    kept = [*([older] if older else []), *(each for each in found if each.day >= since)]
    replace_private(file, _ENCODER.encode_lines(kept), sync=False)
