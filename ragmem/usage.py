"""Usage statistics: timings and counts of processes, and the cost of background calls.

These are not in the store. All processes of a home append lines of JSON to one file, each a sum
that can be added to others: background calls at once, a process's measurements after each turn and
when it ends. When the file is large, the lines are summed by day (for three months, and everything
older as one), by session and by model. So it stays small, and an incomplete line loses only itself.
"""

import hashlib
import math
import operator
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ragmem.errors import StoreUnavailable
from ragmem.files import append_line, lock, replace_private

FILE = "usage.jsonl"
_LARGEST_BYTES = 1_000_000
"""The size at which the file is compacted; afterwards days take at most half of it."""
_KEPT_DAYS = 92
"""The number of days with usage that are kept; older ones are summed to one."""
_KEPT_SESSIONS = 5_000
_LOCK_TIMEOUT_S = 0.5
_NAME_CHARS = 16
_GROWTH = 1.1
"""The ratio of successive bins' upper limits, which is the accuracy of percentiles."""
_LEAST_MS = 0.001
_FAILURES_BEFORE_PAUSE = 3
"""The number of successive failed calls after which a model is paused."""
_FIRST_PAUSE = timedelta(minutes=2)
_LONGEST_PAUSE = timedelta(days=1)
_MOST_DOUBLED = 10
_PROBLEM_CHARS = 300
_NO_DAY = date.max
_EPOCH = datetime.fromtimestamp(0, UTC)

K = TypeVar("K")
T = TypeVar("T")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram of durations of one operation, in milliseconds."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    bins: dict[int, int] = {}
    """Numbers of durations up to 1.1 to the power of the key."""

    @classmethod
    def of(cls, took_ms: float) -> "Timing":
        """Return a histogram of one duration."""
        ms = round(took_ms, 3)
        number = math.ceil(math.log(max(ms, _LEAST_MS), _GROWTH))
        return cls(count=1, total_ms=ms, max_ms=ms, bins={number: 1})

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile, which is at most a tenth too high; 0 without any durations."""
        wanted = math.ceil(self.count * percent / 100)
        for number in sorted(self.bins):
            wanted -= self.bins[number]
            if wanted <= 0:
                return min(self.max_ms, _GROWTH**number)
        return self.max_ms

    def __add__(self, other: "Timing") -> "Timing":
        """Return the sum of both."""
        return Timing(
            count=self.count + other.count,
            total_ms=round(self.total_ms + other.total_ms, 3),
            max_ms=max(self.max_ms, other.max_ms),
            bins=_merged(self.bins, other.bins),
        )


class Metrics:
    """The counters and timings of one process. Names are dotted: `store.turn_begin`."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(int)
        self.timings: defaultdict[str, Timing] = defaultdict(Timing)

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter."""
        self.counts[name] += by

    def took(self, name: str, *times_ms: float) -> None:
        """Add durations of an operation."""
        for each in times_ms:
            self.timings[name] += Timing.of(each)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Time a block, also when it raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.took(name, (time.perf_counter() - started) * 1000)

    def clear(self) -> None:
        """Begin anew."""
        self.counts, self.timings = defaultdict(int), defaultdict(Timing)


class Spending(msgspec.Struct, frozen=True, array_like=True):
    """The number, tokens and cost of background calls."""

    calls: int = 0
    failed_calls: int = 0
    """Calls with no answer, or an unusable one."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens are estimated if the provider reports none."""
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    """Calls of models with an unknown price, which `cost_usd` doesn't include."""

    def __add__(self, other: "Spending") -> "Spending":
        """Return the sum of both."""
        both = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Spending(*map(operator.add, *both))


class Away(msgspec.Struct, frozen=True):
    """A model that is unavailable."""

    model: str
    failures: int
    """The number of successive failed calls; 0 when it answers again."""
    until: datetime
    """The end of the pause."""
    problem: str = ""


_NOTHING = Spending()


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the file, without the fields that only `ragmem stats` reads."""

    day: date = _NO_DAY
    """The local date; missing from sums of a session over several days."""
    session: str = ""
    """A hash of the session's id: the id itself would outlive a deleted session."""
    spent: Spending = _NOTHING
    """The spending of the day, the session, or both."""
    away: Away | None = None
    told: str = ""
    """A paid model whose first use the user was told about."""


class Measured(_Line, frozen=True, kw_only=True, omit_defaults=True):
    """The measurements of a day, or of several older days from it on."""

    processes: int = 0
    counts: dict[str, float] = {}
    timings: dict[str, Timing] = {}

    def timing(self, *names: str) -> Timing:
        """Return the sum of the timings of these names."""
        return sum((self.timings.get(name, Timing()) for name in names), Timing())

    def count(self, name: str) -> float:
        """Return a counter, 0 if it doesn't exist; `background.` is for the fields of `spent`."""
        room, _, field = name.partition(".")
        spent = getattr(self.spent, field) if room == "background" else 0
        return float(self.counts.get(name, 0) + spent)

    def __add__(self, other: "Measured") -> "Measured":
        """Return the sum of both, dated with the earlier day."""
        return Measured(
            day=min(self.day, other.day),
            processes=self.processes + other.processes,
            spent=self.spent + other.spent,
            counts=_merged(self.counts, other.counts),
            timings=_merged(self.timings, other.timings),
        )


class UsageLog:
    """The usage file, which all processes of a home append to and read.

    Without a folder, or if the file can't be read or written, it has the data of this process only.
    """

    def __init__(
        self, folder: Path | None = None, *, today: Callable[[], date] = date.today
    ) -> None:
        self._folder = folder
        self._today = today
        self.metrics = Metrics()
        """The measurements of this process since `keep` wrote some."""
        self._has_kept = False
        self._sums = _Sums()
        """The sums of all processes as of `_stamp`."""
        self._stamp: tuple[int, ...] | None = None
        self._unwritten: list[_Line] = []
        """Lines that could not be written yet; they are tried again with the next one."""

    # --- measurements -----------------------------------------------------------

    def keep(self) -> None:
        """Append what this process has measured since the last time."""
        has_measured = self.metrics.counts or self.metrics.timings
        if self._folder and has_measured:
            lines = [*self._unwritten, self._measured()]
            if self._write(self._folder / FILE, lines):
                self._has_kept = True
                self.metrics.clear()

    def days(self, *, own: bool = False) -> list[Measured]:
        """Return the measurements by day, oldest first; with `own`, including this process's."""
        so_far = [self._measured()] if own else []
        if self._folder is None:
            return so_far
        return _by_day([*_lines(self._folder / FILE, Measured), *so_far])

    def _measured(self) -> Measured:
        found = measured(self.metrics, self._today())
        return msgspec.structs.replace(found, processes=0) if self._has_kept else found

    # --- spending -----------------------------------------------------------------

    def add(self, session_id: str, spent: Spending) -> None:
        """Add calls that were just made for a session."""
        self._add(_Line(day=self._today(), session=_session_hash(session_id), spent=spent))

    def spent(self, session_id: str) -> Spending:
        """Return the spending of all processes on a session."""
        return self._current_sums().sessions.get(_session_hash(session_id), _NOTHING)

    def spent_today(self) -> float:
        """Return today's cost of all processes and sessions, in US dollars."""
        return self._current_sums().cost_usd.get(self._today(), 0.0)

    # --- models ---------------------------------------------------------------------

    def away(self) -> dict[str, Away]:
        """Return by name the models whose last call, by any process, failed."""
        return {name: away for name, away in self._current_sums().away.items() if away.failures}

    def may_ask(self, model: str, now: datetime) -> bool:
        """Return whether a model is not paused after failures; by no longer than a pause can be,
        which a clock that was ahead has put further."""
        until = away.until if (away := self.away().get(model)) else now
        return not now < until <= now + _LONGEST_PAUSE

    def failed(self, model: str, now: datetime, problem: str, *, tries: int) -> Away:
        """Record failed calls of a model, which is paused from the third successive one on.

        The pause applies to all processes, and doubles each time, up to a day.
        """
        before = self.away().get(model)
        failures = max(before.failures + 1 if before else 0, tries)
        doubled = min(failures - _FAILURES_BEFORE_PAUSE, _MOST_DOUBLED)
        pause = min(_FIRST_PAUSE * 2**doubled, _LONGEST_PAUSE) if doubled >= 0 else timedelta()
        away = Away(model, failures, now + pause, problem[:_PROBLEM_CHARS])
        self._add(_Line(away=away))
        return away

    def answered(self, model: str) -> None:
        """Record that a model answers again."""
        if model in self.away():
            self._add(_Line(away=Away(model, 0, _EPOCH)))

    def is_first_use(self, model: str) -> bool:
        """Return whether the user was not told yet that this model is used, and record it."""
        if model in self._current_sums().told:
            return False
        self._add(_Line(told=model))
        return True

    # --- the file -------------------------------------------------------------------

    def _current_sums(self) -> "_Sums":
        if self._folder is not None:
            file = self._folder / FILE
            if (stamp := _stamp(file)) != self._stamp:
                self._sums = _Sums().plus(_lines(file, _Line))
                self._stamp = stamp
        return self._sums.plus(self._unwritten) if self._unwritten else self._sums

    def _add(self, line: _Line) -> None:
        if self._folder is None:
            self._sums = self._sums.plus([line])
            return
        self._unwritten.append(line)
        self._write(self._folder / FILE, self._unwritten)

    def _write(self, file: Path, lines: Sequence[_Line]) -> bool:
        """Append lines, which include the unwritten ones; return whether they are written."""
        data, is_written = b"\n".join(map(_ENCODER.encode, lines)), False
        with suppress(OSError, StoreUnavailable):
            handle = lock(file, timeout_s=_LOCK_TIMEOUT_S)
            try:
                size = append_line(handle, data)
                is_written = True
                self._unwritten.clear()
                if size + len(data) >= _LARGEST_BYTES:
                    self._compact(file)
            finally:
                os.close(handle)
        return is_written

    def _compact(self, file: Path) -> None:
        lines = list(_lines(file, Measured))
        sums, days = _Sums().plus(lines), _by_day(lines)
        sizes = accumulate(len(_ENCODER.encode(each)) for each in reversed(days[-_KEPT_DAYS:]))
        fitting = sum(size <= _LARGEST_BYTES // 2 for size in sizes)
        older = days[: len(days) - fitting]
        sessions = list(sums.sessions.items())[-_KEPT_SESSIONS:]
        kept: list[_Line] = [_Line(session=name, spent=spent) for name, spent in sessions]
        kept += [_Line(away=away) for away in sums.away.values() if away.failures]
        kept += [_Line(told=model) for model in sums.told]
        kept += [sum(older, Measured())] if older else []
        kept += days[len(older) :]
        replace_private(file, _ENCODER.encode_lines(kept), sync=False)


class _Sums(msgspec.Struct, frozen=True):
    """The sums of lines."""

    sessions: dict[str, Spending] = {}
    """In order of their latest calls."""
    cost_usd: dict[date, float] = {}
    away: dict[str, Away] = {}
    """The latest state of each model."""
    told: dict[str, None] = {}

    def plus(self, lines: Iterable[_Line]) -> "_Sums":
        """Return the sums with more lines; a call counts for its session and for its day."""
        sums = _Sums(*map(dict, msgspec.structs.astuple(self)))
        for line in lines:
            if line.session:
                before = sums.sessions.pop(line.session, _NOTHING)
                sums.sessions[line.session] = before + line.spent
            if line.day != _NO_DAY:
                sums.cost_usd[line.day] = sums.cost_usd.get(line.day, 0.0) + line.spent.cost_usd
            if line.away:
                sums.away[line.away.model] = line.away
            if line.told:
                sums.told[line.told] = None
        return sums


_ENCODER = msgspec.json.Encoder()


def measured(metrics: Metrics, day: date) -> Measured:
    """Return one process's metrics as a sum for a day."""
    counts = {name: count for name, count in metrics.counts.items() if count}
    return Measured(day=day, processes=1, counts=counts, timings=dict(metrics.timings))


def _merged(one: dict[K, Any], other: dict[K, Any]) -> dict[K, Any]:
    both = dict(one)
    for name, value in other.items():
        both[name] = both[name] + value if name in both else value
    return both


def _by_day(lines: Iterable[Measured]) -> list[Measured]:
    days: dict[date, Measured] = {}
    for line in lines:
        if line.day != _NO_DAY:
            days[line.day] = days.get(line.day, Measured()) + line
    return [days[day] for day in sorted(days)]


def _session_hash(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:_NAME_CHARS]


def _stamp(file: Path) -> tuple[int, ...]:
    """Return a value that changes when the file is written."""
    with suppress(OSError):
        now = file.stat()
        return now.st_ino, now.st_size, now.st_mtime_ns
    return ()


def _lines(file: Path, kind: type[T]) -> Iterator[T]:
    """Decode the lines of the file, skipping invalid ones."""
    with suppress(OSError):
        for line in file.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line, type=kind)
