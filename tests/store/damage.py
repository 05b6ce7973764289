"""Damage done to a graph, by hand or by a cut line: what the tests of each part of it share."""

from collections.abc import Sequence

import pytest

from ragmem.store.neo4j import Connection
from ragmem.store.neo4j.repair import Repair
from tests.store.samples import at

REPAIR_S = 60
CUTS = ("before_commit", "after_commit", "in_answer", "deadlock")
"""Where a write's answer is lost; see `TcpProxy`."""


def first_of_each(damages: Sequence[tuple[str, object]]) -> list[object]:
    """The damages as parameters: what breaks a promise that one before it breaks is a campaign."""
    known: set[str] = set()
    params: list[object] = []
    for what, how in damages:
        marks = [pytest.mark.campaign] if what in known else []
        params.append(pytest.param(what, how, marks=marks))
        known.add(what)
    return params


def mostly(kept: Sequence[str], every: Sequence[str]) -> list[object]:
    """All of them as parameters; those that are not among the kept are campaigns."""
    campaign = pytest.mark.campaign
    return [each if each in kept else pytest.param(each, marks=campaign) for each in every]


async def mended(server: Connection) -> list[str]:
    """What was done; nothing is left, and nothing is done the second time."""
    repair = await Repair.open(server, timeout_s=REPAIR_S)
    try:
        done = await repair.mend(at(99))
        assert await repair.findings() == []
        assert await repair.mend(at(99)) == []
        return [each.what for each in done]
    finally:
        await repair.aclose()
