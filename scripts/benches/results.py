"""Measurements and their display."""

import statistics
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from benches.spread import spread
from benches.tables import aligned

T = TypeVar("T", bound=msgspec.Struct)


class CannotMeasure(Exception):
    """The program did not do what should be timed; the message says what it did instead."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement in milliseconds; `target` applies to `over` if that is given."""

    name: str
    runs: int = 0
    minimum: float | None = None
    median: float | None = None
    p95: float | None = None
    maximum: float | None = None
    over: float | None = None
    processor: float | None = None
    """The median CPU time of a process, in milliseconds."""
    target: float | None = None
    problem: str = ""
    """The reason if it could not be measured."""

    @property
    def met(self) -> bool:
        """Whether it was measured, and meets its target if it has one."""
        value = self.median if self.over is None else self.over
        return value is not None and (self.target is None or value <= self.target)


def result(
    name: str,
    samples: list[float],
    *,
    target: float | None,
    base: float | None = None,
    used: list[float] | None = None,
) -> Result:
    """Return the statistics of the samples; `used` has the CPU time of each."""
    found = spread(samples)
    return Result(
        name=name,
        runs=len(samples),
        minimum=found.minimum,
        median=found.median,
        p95=found.p95,
        maximum=found.maximum,
        over=None if base is None else found.median - base,
        processor=statistics.median(used) if used else None,
        target=target,
    )


def joined(parts: Sequence[T]) -> T:
    """Join the results of several runs by concatenating their rows."""
    first, *others = parts
    rows = {
        name: [*held, *(row for part in others for row in getattr(part, name))]
        for name in first.__struct_fields__
        if isinstance(held := getattr(first, name), list)
    }
    return msgspec.structs.replace(first, **rows)


def wanted(name: str, only: list[str]) -> bool:
    """Whether `--only` selects a name: one of its values is a part of it."""
    return not only or any(part.lower() in name.lower() for part in only)


def table(results: list[Result]) -> str:
    """Return the results as an aligned table."""
    head = ("runs", "min", "median", "p95", "max", "over", "processor", "target", "")
    rows = [["milliseconds", *head]]
    for r in results:
        digits = 0 if (r.median or 0) >= 20 else 2
        numbers = [r.minimum, r.median, r.p95, r.maximum, r.over, r.processor]
        cells = ["" if n is None else f"{n:.{digits}f}" for n in numbers]
        verdict = "" if r.target is None else ("ok" if r.met else "MISSED")
        verdict = "FAILED" if r.problem else verdict
        target = "" if r.target is None else f"{'+' if r.over is not None else ''}{r.target:g}"
        rows.append([r.name, str(r.runs), *cells, target, verdict])
    return aligned(rows)
