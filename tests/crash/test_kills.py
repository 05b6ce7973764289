"""kill -9 at random moments and at every failpoint; see `scripts/crash` for a thousand."""

from pathlib import Path

import pytest

from ragmem.store.neo4j import Connection
from tests.crash.campaign import Violation, campaign
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


@pytest.mark.campaign
async def test_random_kills_on_neo4j(tmp_path: Path, neo4j_server: Connection) -> None:
    with campaign(tmp_path, seed=_SEED, neo4j=neo4j_server) as kills:
        await kills.measure()
        await kills.random_kills(20)
        assert sum(kills.phases.values()) >= 20
        assert len(kills.phases) >= 2


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


@pytest.mark.parametrize(
    ("bug", "point", "found"),
    [
        ("forget_starts", "tool.ran@4", "the command of job 1 ran, and nobody knows"),
        ("answer_early", "model.ask@3", "lost: a tool call of 'Do job 1' that was shown"),
        ("write_in_place", "file.written@1", "the edited file is neither old nor new: ''"),
        ("run_twice", "model.answered@5", "the command of job 1 ran 2 times"),
        ("leave_owners", "call.start_kept@1", "1 turns run, though their processes are dead"),
    ],
)
async def test_planted_bugs_are_found(tmp_path: Path, bug: str, point: str, found: str) -> None:
    """The harness can fail: each promise, broken on purpose, is a violation with its words."""
    name, _, hit = point.partition("@")
    with campaign(tmp_path / "right", seed=_SEED) as kills:
        assert await kills.kill_once(name, int(hit))
    with (
        campaign(tmp_path / "wrong", seed=_SEED, sabotage=bug) as kills,
        pytest.raises(Violation) as violation,
    ):
        await kills.kill_once(name, int(hit))
    assert found in str(violation.value)
    assert f"seed {_SEED}, kept in {tmp_path}" in str(violation.value)
