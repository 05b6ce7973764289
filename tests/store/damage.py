"""Damage done to a graph, by hand or by a cut line: what the tests of each part of it share."""

from collections.abc import Sequence

import pytest

from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.neo4j.repair import Repair
from tests.fakes.neo4j import ask
from tests.store.samples import at

REPAIR_S = 60
CUTS = ("before_commit", "after_commit", "in_answer", "deadlock")
"""Where a write's answer is lost; see `TcpProxy`."""


Damage = tuple[str, str]
"""A promise, and the statement that breaks it."""


def at_once(damages: Sequence[Damage]) -> list[object]:
    """Lists of damages as parameters: the first of each promise together, each alone a campaign."""
    first: dict[str, Damage] = {}
    for each in damages:
        first.setdefault(each[0], each)
    together = pytest.param(list(first.values()), id="at-once")
    return [together, *(pytest.param([each], marks=pytest.mark.campaign) for each in damages)]


def mostly(kept: Sequence[object], every: Sequence[object]) -> list[object]:
    """All of them as parameters, tuples of several; those not among the kept are campaigns."""
    campaign = pytest.mark.campaign
    return [
        each
        if each in kept
        else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=campaign)
        for each in every
    ]


async def damage(server: Connection, graph: Neo4jStore, damages: Sequence[Damage]) -> None:
    """Do all of that, in this order; each is found."""
    for _, how in damages:
        await ask(server, how)
    found = {finding.what for finding in await graph.check()}
    missed = [what for what, _ in damages if what not in found]
    assert not missed, missed


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
