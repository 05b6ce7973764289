"""Whose a spool is: what waits for one database reaches that one, and no other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragmem.config import Config, StoreConfig, find_paths
from ragmem.config.address import configured, named
from ragmem.errors import StoreError, StoreUnavailable
from ragmem.records import SessionQuery
from ragmem.store.neo4j import Connection
from ragmem.store.spool.files import count_waiting
from tests.fakes.neo4j import open_empty_neo4j_store
from tests.store.opening import neo4j
from tests.store.samples import begun, created
from tests.store.test_spool import Home, settled


class Spot(Home):
    """An address behind which one database or another is, or none."""

    def turn_to(self, database: str) -> None:
        """That one is there from now on."""
        self.error = None if database else StoreUnavailable("Nothing is there.")
        self.database = self.database.with_name(database or "none")

    async def told(self, database: str, session_id: str) -> None:
        """A process that finds that database, or none."""
        self.turn_to(database)
        store = self.open()
        await store.apply([created(session_id), begun(session_id, f"t-{session_id}")])
        await store.aclose()

    async def known(self, database: str) -> list[str]:
        """The sessions in that database, to a process that finds it here."""
        self.turn_to(database)
        store = self.open()
        with contextlib.suppress(StoreUnavailable):
            found = await store.sessions(SessionQuery())
        await store.aclose()
        return sorted(session.session_id for session in found)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Spot]:
    here = Spot(tmp_path)
    yield here
    for store in here.opened:
        await store.aclose()


@pytest.fixture
def there(tmp_path: Path) -> Spot:
    """Another address, under which a library knows the databases."""
    return Spot(tmp_path, "elsewhere")


async def test_what_waits_for_a_database_is_not_given_to_the_next_one_at_its_address(
    here: Spot, there: Spot
) -> None:
    await here.told("one.db", "a")
    await here.told("", "waits")
    assert count_waiting(here.spool) == 2
    assert await here.known("two.db") == []
    assert count_waiting(here.spool) == 2
    # The same database by another address.
    assert await there.known("one.db") == ["a", "waits"]
    assert count_waiting(here.spool) == 0


async def test_while_no_database_is_known_what_waits_belongs_to_its_address(
    here: Spot, there: Spot
) -> None:
    await here.told("", "waits")
    assert await there.known("two.db") == []
    assert await here.known("one.db") == ["waits"]


async def test_a_database_that_takes_anothers_place_while_writes_wait_gets_none_of_them(
    here: Spot,
) -> None:
    await here.told("one.db", "a")
    here.turn_to("")
    store = here.open()
    await store.apply([created("waits")])
    here.turn_to("two.db")
    await settled(store, here.spool.with_name("none"))
    assert await store.sessions(SessionQuery()) == []
    (told,) = [text for text in store.take_notices() if "replaced by another" in text]
    assert "1 write for the first one stays in" in told
    await store.apply([created("b")])
    assert [found.session_id for found in await store.sessions(SessionQuery())] == ["b"]
    await store.aclose()
    assert await here.known("one.db") == ["a", "waits"]


async def test_what_a_process_goes_on_to_say_waits_for_the_database_that_it_had_open(
    tmp_path: Path, here: Spot
) -> None:
    """Though another takes its place meanwhile: that is used by who begins anew."""
    here.turn_to("one.db")
    store = here.open()
    await store.apply([created("a")])
    for file in tmp_path.glob("one.db*"):
        file.rename(file.with_name(f"away-{file.name}"))
    here.turn_to("two.db")
    await store.apply([begun("a", "t1")])
    why = ""
    async with asyncio.timeout(60):
        while "The memory was replaced by another one" not in why:
            with pytest.raises(StoreError) as refused:
                await store.sessions(SessionQuery())
            why = str(refused.value)
            await asyncio.sleep(0.02)
    for file in tmp_path.glob("away-*"):
        file.rename(file.with_name(file.name.removeprefix("away-")))
    here.turn_to("one.db")
    await settled(store, here.spool)
    assert [turn.turn_id for turn in await store.turns("a")] == ["t1"]
    await store.aclose()
    assert await here.known("two.db") == []


async def test_the_spool_of_an_earlier_version_is_drained(here: Spot, tmp_path: Path) -> None:
    before = Spot(tmp_path, "neo4j")
    await before.told("", "waits")
    here.older = (before.spool,)
    assert await here.known("one.db") == ["waits"]
    assert count_waiting(before.spool) == 0


def test_a_program_and_the_command_have_one_spool_for_one_server(tmp_path: Path) -> None:
    paths = find_paths({"RAGMEM_HOME": str(tmp_path)})

    def spool(url: str = "", database: str = "") -> str:
        store = StoreConfig(kind="neo4j", url=url, database=database)
        return configured(Config(store=store), paths, {}).spool

    assert spool("bolt://a:7687") == named("neo4j://A", paths).spool
    assert spool("bolt://a", "one") == named("bolt://a", paths, database="one").spool
    names = {spool(), spool("bolt://a"), spool("bolt://a", "one"), spool("bolt://b")}
    assert len(names) == 4
    by_environ = configured(
        Config(store=StoreConfig(kind="neo4j")),
        paths,
        {"NEO4J_URI": "bolt://a", "NEO4J_DATABASE": "one"},
    )
    assert by_environ.spool == spool("bolt://a", "one")
    # Where an earlier version let writes wait for the same server.
    assert by_environ.older_spools == ("neo4j", *named("bolt://a", paths).older_spools)


async def test_a_graph_keeps_its_id_and_an_emptied_one_is_another(
    neo4j_server: Connection,
) -> None:
    ids = []
    store = await open_empty_neo4j_store(neo4j_server)
    for _ in range(2):
        ids.append(await store.store_id())
        await store.aclose()
        store = await neo4j(neo4j_server)
    await store.aclose()
    store = await open_empty_neo4j_store(neo4j_server)
    assert ids[0] == ids[1] != await store.store_id()
    assert all(ids)
    await store.aclose()
