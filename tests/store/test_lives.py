"""A store's life at random: writes, crashes, outages, moves, restores, beside a calm store.

A process that is killed is played by its files: what kill -9 leaves is what was handed to the
kernel, so a copy of the home, taken in the thread that came to the point of death, is opened in
its stead (a child process costs 200 ms and dies at a moment nobody knows; `scripts/crash` does
that). The database's uncommitted pages are in its log then, as they would be.
"""

from pathlib import Path

import pytest

from ragmem.store.neo4j import Connection
from tests.store.life import Life, live


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
