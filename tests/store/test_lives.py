"""A store's life at random: writes, crashes, outages, moves, restores, beside a calm store.

A process that is killed is played by its files: what kill -9 leaves is what was handed to the
kernel, so a copy of the home, taken in the thread that came to the point of death, is opened in
its stead (a child process costs 200 ms and dies at a moment nobody knows; `scripts/crash` does
that). The database's uncommitted pages are in its log then, as they would be.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from ragmem.store.neo4j import Connection
from tests.store.life.moving import Life

PHASES = (Phase.explicit, Phase.generate)
"""No shrinking: a life that fails takes seconds to live again, and timing plays a part in it."""


def live(machine: type[Life], *, seeds: int, lives: int = 10, steps: int = 40) -> None:
    """Run some lives from each seed, the same ones each time; more of them in a thorough run.

    Hypothesis makes most lives after the first ten of a run out of those that it has seen.
    """
    thorough = settings.get_current_profile_name() == "thorough"
    for number in range(10 * seeds if thorough else seeds):
        run_state_machine_as_test(
            seed(number)(machine),
            settings=settings(
                max_examples=lives,
                stateful_step_count=2 * steps if thorough else steps,
                database=None,
                phases=PHASES,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("spooled", [False, True], ids=["bare", "spooled"])
@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.campaign)])
def test_a_life_on_sqlite(spooled: bool, seeds: int, tmp_path: Path) -> None:

    class OnSQLite(Life):
        folder = tmp_path

    OnSQLite.spooled = spooled
    live(OnSQLite, seeds=seeds)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("spooled", "lives"),
    [(False, 2), *(pytest.param(each, 6, marks=pytest.mark.campaign) for each in (False, True))],
)
def test_a_life_on_neo4j(
    spooled: bool, lives: int, neo4j_server: Connection, tmp_path: Path
) -> None:
    """Moved to SQLite and back, too."""

    class OnNeo4j(Life):
        kind = "neo4j"
        server = neo4j_server
        folder = tmp_path

    OnNeo4j.spooled = spooled
    live(OnNeo4j, seeds=1, lives=lives, steps=20)
