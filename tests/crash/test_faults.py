"""The Nth access to a disk fails, once or from then on; after SQLite's own tests.

Here few of them are tried; `scripts/crash --faults` tries them all.
"""

from pathlib import Path

import pytest

from tests.crash.campaign import campaign

pytestmark = pytest.mark.timeout(1200)
_SEED = 20260102


@pytest.mark.parametrize(
    ("kind", "action", "lasting"),
    [
        ("sqlite", "enospc", True),
        pytest.param("sqlite", "eio", False, marks=pytest.mark.campaign),
        pytest.param("sqlite", "eio", True, marks=pytest.mark.campaign),
        pytest.param("sqlite", "enospc", False, marks=pytest.mark.campaign),
        pytest.param("neo4j", "eio", True, marks=pytest.mark.campaign),
        pytest.param("neo4j", "eio", False, marks=pytest.mark.campaign),
    ],
)
async def test_the_nth_failure(
    kind: str,
    action: str,
    lasting: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """`lasting`: from then on. Plain words, nothing shown as saved is lost, and it goes on."""
    server = request.getfixturevalue("neo4j_server") if kind == "neo4j" else None
    every = 10 if request.config.getoption("--all") else 12 if kind == "sqlite" else 25
    with campaign(tmp_path, seed=_SEED, neo4j=server) as faults:
        assert await faults.nth_failures(action, lasting=lasting, every=every) >= 2
