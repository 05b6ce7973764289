"""kill -9 at random moments and at every failpoint; see `scripts/crash` for a thousand."""

from pathlib import Path

import pytest

from tests.crash.campaign import campaign
from tests.fakes.neo4j import ALSO_NEO4J

pytestmark = pytest.mark.timeout(1200)
_SEED = 20260101


@pytest.mark.parametrize("count", [6, pytest.param(40, marks=pytest.mark.campaign)])
async def test_random_kills_on_sqlite(tmp_path: Path, count: int) -> None:
    with campaign(tmp_path, seed=_SEED, real_share=0.1) as kills:
        await kills.measure()
        await kills.random_kills(count)
        assert sum(kills.phases.values()) >= count
        assert len(kills.phases) >= 2
        assert kills.recoveries


@pytest.mark.campaign
async def test_kills_in_the_middle_of_a_write(tmp_path: Path) -> None:
    with campaign(tmp_path, seed=_SEED) as kills:
        assert await kills.kills_while_storing(5) >= 5
        assert sum(kills.phases.values()) >= 5


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
    """Usually those where something may happen twice or be half; of the spool's: test_lives.py."""
    server = request.getfixturevalue("neo4j_server") if kind == "neo4j" else None
    is_whole = request.config.getoption("--all")
    some = {} if is_whole else {"areas": ("call.", "tool."), "but": _NOT_PASSED}
    with campaign(tmp_path, seed=_SEED, neo4j=server) as kills:
        reached = await kills.every_point(hits=1, **some)
    assert {point for point, count in reached.items() if not count} <= _NOT_PASSED
    assert sum(reached.values()) >= (20 if is_whole else 12)
