"""What ragmem used: times and counts of its processes, background calls and what they cost.

The store can't tell these. All processes of a home add lines of JSON to one file, each a sum that
can be added to others: a background call is there as soon as it was made, what a process measured
when it ends. When the file has grown the lines are added up by day (of three months at most, and
what is older as one), by session and by model. So it stays small, and a torn line costs that line.
"""

import hashlib
import math
import operator
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
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
"""Then it is added up; days take half of it at most."""
_KEPT_DAYS = 92
"""Those on which something was used; what is older is one."""
_KEPT_SESSIONS = 5_000
_PATIENCE_S = 0.5
_NAME_CHARS = 16
_GROWTH = 1.1
"""A bin's upper end is a tenth above the one before: so exact are percentiles."""
_LEAST_MS = 0.001
_LET_PASS = 3
"""Calls in a row that come to nothing, before a model is left alone."""
_FIRST_PAUSE = timedelta(minutes=2)
_LONGEST_PAUSE = timedelta(days=1)
_MOST_DOUBLED = 10
_PROBLEM_CHARS = 300
_NO_DAY = date.max
_EPOCH = datetime.fromtimestamp(0, UTC)

K = TypeVar("K")
T = TypeVar("T")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Many times of one thing, in milliseconds."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    bins: dict[int, int] = {}
    """How many took up to 1.1 to the power of the key."""

    @classmethod
    def of(cls, took_ms: float) -> "Timing":
        """One time."""
        ms = round(took_ms, 3)
        number = math.ceil(math.log(max(ms, _LEAST_MS), _GROWTH))
        return cls(count=1, total_ms=ms, max_ms=ms, bins={number: 1})

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
        return Timing(
            count=self.count + other.count,
            total_ms=round(self.total_ms + other.total_ms, 3),
            max_ms=max(self.max_ms, other.max_ms),
            bins=_added(self.bins, other.bins),
        )


class Metrics:
    """What one process measured, in sums. Names are dotted, `store.turn_begin`."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(int)
        self.timings: defaultdict[str, Timing] = defaultdict(Timing)

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter."""
        self.counts[name] += by

    def took(self, name: str, *times_ms: float) -> None:
        """Add what something took."""
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


class Spending(msgspec.Struct, frozen=True, array_like=True):
    """Background calls, and what they cost."""

    calls: int = 0
    failed_calls: int = 0
    """Nothing came, or nothing that could be used."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Estimated where the provider reports none."""
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    """Of models whose price is not known: not in `cost_usd`."""

    def __add__(self, other: "Spending") -> "Spending":
        """Both together."""
        both = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Spending(*map(operator.add, *both))


class Away(msgspec.Struct, frozen=True):
    """A model that could not be asked."""

    model: str
    failures: int
    """Calls in a row that came to nothing; 0 when it answers again."""
    until: datetime
    """It is left alone until then."""
    problem: str = ""


_NOTHING = Spending()


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the file, but for what only `ragmem stats` asks for."""

    day: date = _NO_DAY
    """Where the person is; left out of what is a session's of many days."""
    session: str = ""
    """Stands for its id, which is not kept, so that nothing of a deleted one is."""
    spent: Spending = _NOTHING
    """Of the day and of the session."""
    away: Away | None = None
    told: str = ""
    """A paid model whose first use the person was told of."""


class Measured(_Line, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured on a day, or from it on where older days were added up."""

    processes: int = 0
    counts: dict[str, float] = {}
    timings: dict[str, Timing] = {}

    def timing(self, *names: str) -> Timing:
        """Return the times of these names, together."""
        return sum((self.timings.get(name, Timing()) for name in names), Timing())

    def count(self, name: str) -> float:
        """0 for what was never counted; `background.` are the fields of `spent`."""
        room, _, field = name.partition(".")
        spent = getattr(self.spent, field) if room == "background" else 0
        return float(self.counts.get(name, 0) + spent)

    def __add__(self, other: "Measured") -> "Measured":
        """Both together, from the earlier day on."""
        return Measured(
            day=min(self.day, other.day),
            processes=self.processes + other.processes,
            spent=self.spent + other.spent,
            counts=_added(self.counts, other.counts),
            timings=_added(self.timings, other.timings),
        )


class UsageLog:
    """The file: what this process adds, and what all of them know by it.

    Without a folder, or where its file can't be read or written, it knows of this process alone.
    """

    def __init__(
        self, folder: Path | None = None, *, today: Callable[[], date] = date.today
    ) -> None:
        self._folder = folder
        self._today = today
        self.metrics = Metrics()
        """What this process measures, for `keep`."""
        self._sums = _Sums()
        """Of all processes, when the file bore the stamp."""
        self._stamp: tuple[int, ...] | None = None
        self._unkept: list[_Line] = []
        """Written with the next line, where that can be."""

    # --- what a process measures ------------------------------------------------

    def keep(self) -> None:
        """Add what this process measured: once, as it ends."""
        if self.metrics.counts or self.metrics.timings:
            self._add(measured(self.metrics, self._today()))

    def days(self, *, own: bool = False) -> list[Measured]:
        """What is kept, one for each day, oldest first; with what this process measured so far?"""
        so_far = [measured(self.metrics, self._today())] if own else []
        if self._folder is None:
            return so_far
        return _by_day([*_lines(self._folder / FILE, Measured), *so_far])

    # --- what background calls cost -----------------------------------------------

    def add(self, session_id: str, spent: Spending) -> None:
        """Count calls that were just made for a session."""
        self._add(_Line(day=self._today(), session=_name(session_id), spent=spent))

    def spent(self, session_id: str) -> Spending:
        """What all processes spent on a session."""
        return self._known().sessions.get(_name(session_id), _NOTHING)

    def spent_today(self) -> float:
        """What all processes spent for all sessions, in dollars."""
        return self._known().cost_usd.get(self._today(), 0.0)

    # --- models ---------------------------------------------------------------------

    def away(self) -> dict[str, Away]:
        """Models whose last call by any process could not be made, by name."""
        return {name: away for name, away in self._known().away.items() if away.failures}

    def may_ask(self, model: str, now: datetime) -> bool:
        """Whether the pause after its last failure is over."""
        return model not in (away := self.away()) or now >= away[model].until

    def failed(self, model: str, now: datetime, problem: str, *, tries: int) -> Away:
        """Note that a model could not be asked after so many tries: from the third on it rests.

        Each time for twice as long, at most for a day, by all processes.
        """
        before = self.away().get(model)
        failures = max(before.failures + 1 if before else 0, tries)
        doubled = min(failures - _LET_PASS, _MOST_DOUBLED)
        pause = min(_FIRST_PAUSE * 2**doubled, _LONGEST_PAUSE) if doubled >= 0 else timedelta()
        away = Away(model, failures, now + pause, problem[:_PROBLEM_CHARS])
        self._add(_Line(away=away))
        return away

    def answered(self, model: str) -> None:
        """Note that a model can be asked again."""
        if model in self.away():
            self._add(_Line(away=Away(model, 0, _EPOCH)))

    def is_first_use(self, model: str) -> bool:
        """Whether nobody was told yet that this model is used; from now on somebody was."""
        if model in self._known().told:
            return False
        self._add(_Line(told=model))
        return True

    # --- the file -------------------------------------------------------------------

    def _known(self) -> "_Sums":
        if self._folder is not None:
            file = self._folder / FILE
            if (stamp := _stamp(file)) != self._stamp:
                self._sums = _Sums().plus(_lines(file, _Line))
                self._stamp = stamp
        return self._sums.plus(self._unkept) if self._unkept else self._sums

    def _add(self, line: _Line) -> None:
        if self._folder is None:
            self._sums = self._sums.plus([line])
            return
        self._unkept.append(line)
        lines = b"\n".join(map(_ENCODER.encode, self._unkept))
        with suppress(OSError, StoreUnavailable):
            handle = lock(self._folder / FILE, timeout_s=_PATIENCE_S)
            try:
                size = append_line(handle, lines)
                self._unkept.clear()
                if size + len(lines) >= _LARGEST_BYTES:
                    self._add_up(self._folder / FILE)
            finally:
                os.close(handle)

    def _add_up(self, file: Path) -> None:
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
    """Lines added up."""

    sessions: dict[str, Spending] = {}
    """Those with the latest calls last."""
    cost_usd: dict[date, float] = {}
    away: dict[str, Away] = {}
    """What was said of each model last."""
    told: dict[str, None] = {}

    def plus(self, lines: Iterable[_Line]) -> "_Sums":
        """With these: a call counts for its session and for its day."""
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
    """Return one process' metrics as a sum."""
    counts = {name: count for name, count in metrics.counts.items() if count}
    return Measured(day=day, processes=1, counts=counts, timings=dict(metrics.timings))


def _added(one: dict[K, Any], other: dict[K, Any]) -> dict[K, Any]:
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


def _name(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:_NAME_CHARS]


def _stamp(file: Path) -> tuple[int, ...]:
    """Another one when it was written to since."""
    with suppress(OSError):
        now = file.stat()
        return now.st_ino, now.st_size, now.st_mtime_ns
    return ()


def _lines(file: Path, kind: type[T]) -> Iterator[T]:
    """A torn line costs that line."""
    with suppress(OSError):
        for line in file.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line, type=kind)
