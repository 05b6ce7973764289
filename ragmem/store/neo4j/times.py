"""Turns of a time that a question names, by the indexes of their times."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragmem.store.neo4j.entries import STATEMENTS
from ragmem.store.neo4j.gateway import Transaction
from ragmem.store.neo4j.shapes import Properties
from ragmem.store.recall import LOOKED_THROUGH, Interval


async def newest(
    tx: Transaction,
    interval: Interval,
    projects: Sequence[str] | None,
    lasts: Mapping[str, int],
) -> list[tuple[str, int | None]]:
    """Ids of the interval's newest with the numbers of their vectors, newest first.

    `projects`: None for everywhere; `lasts`: of other projects' sessions the last turns seen.
    """
    bounds: Properties = {
        **_bounds(interval),
        "most": LOOKED_THROUGH,
        "projects": projects,
        "lasts": lasts,
        "sessions": list(lasts),
    }
    found: list[list[Any]] = []
    if projects is None:
        found += await tx.found(STATEMENTS["in_time_everywhere"], **bounds)
    if projects:
        found += await tx.found(STATEMENTS["in_time_of_projects"], **bounds)
    if lasts:
        found += await tx.found(STATEMENTS["in_time_of_sessions"], **bounds)
    found.sort(key=lambda each: -each[2])
    return [(name, number) for name, number, _ in found[:LOOKED_THROUGH]]


async def spoken(
    tx: Transaction, interval: Interval, texts: Sequence[Properties], limit: int
) -> list[list[Any]]:
    """The interval's best by text, so far as they are among the best of all."""
    if not texts:
        return []
    [[found]] = await tx.values(
        STATEMENTS["search_text_in_time"],
        texts=texts,
        limit=limit,
        **_bounds(interval),
    )
    rows: list[list[Any]] = found
    return rows


def _bounds(interval: Interval) -> Properties:
    return {"start": interval.start_at, "end": interval.end_at}
