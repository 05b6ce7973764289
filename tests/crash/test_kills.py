"""kill -9 at random moments and at every failpoint; see `scripts/crash` for a thousand."""

from pathlib import Path

import pytest

from tests.crash.campaign import campaign
from tests.fakes.neo4j import ALSO_NEO4J

pytestmark = pytest.mark.timeout(1200)
_SEED = 20260101


@pytest.mark.parametrize("count", [10, pytest.param(40, marks=pytest.mark.campaign)])
async def test_random_kills_on_sqlite(tmp_path: Path, count: int) -> None:
    with campaign(tmp_path, seed=_SEED, real_share=0.1) as kills:
        await kills.measure()
        await kills.random_kills(count)
        assert sum(kills.phases.values()) >= count
        assert len(kills.phases) >= 2
        assert kills.recoveries


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.campaign)])
async def test_kills_in_the_middle_of_a_write(tmp_path: Path, count: int) -> None:
    with campaign(tmp_path, seed=_SEED) as kills:
        await kills.measure()
        assert await kills.kills_while_storing(count) >= count
        assert sum(kills.phases.values()) >= count


# Only where a file can't be exchanged, where a write is refused, or in other commands: those
# have tests of their own.
_NOT_PASSED = {
    "file.in_place",
    "neo4j.schema",
    "neo4j.split",
    "spool.set_aside",
    "sqlite.backed_up",
    "sqlite.backup",
    "sqlite.checkpoint",
    "sqlite.delete",
    "sqlite.exchange",
    "sqlite.split",
}


@pytest.mark.parametrize("kind", ["sqlite", ALSO_NEO4J])
async def test_a_kill_at_every_point(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("neo4j_server") if kind == "neo4j" else None
    with campaign(tmp_path, seed=_SEED, neo4j=server) as kills:
        # What a turn does to its files is the same whatever the store is.
        whole = kind == "sqlite" or request.config.getoption("--all")
        areas = {} if whole else {"areas": ()}
        reached = await kills.every_point(hits=1, **areas)
    assert {point for point, count in reached.items() if not count} <= _NOT_PASSED
    assert sum(reached.values()) >= (20 if kind == "sqlite" else 10)
