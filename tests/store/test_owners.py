"""Whose memory it is: two people in one database, each with a home of their own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ragmem.config import Paths
from ragmem.records import PutProfile
from ragmem.store.base import Archive, SessionQuery
from ragmem.store.memories import MemoryQuery
from ragmem.store.owning import home_owner, take_owner
from ragmem.store.sqlite import SQLiteStore
from ragmem.store.transfer import stream_of
from tests.store.samples import START, begun, created, finished, remembered
from tests.store.test_schemas import old_database, old_graph

OpenAs = Callable[..., Awaitable[Archive]]


@pytest.fixture(params=["sqlite", "neo4j"])
async def open_as(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenAs]:
    """Opens one database for an owner; it was written before there were owners."""
    opened: list[Archive] = []
    if request.param == "neo4j":
        server = request.getfixturevalue("neo4j_server")
        await old_graph(server, 4)
    else:
        old_database(tmp_path / "home", 4)

    async def open_as(owner: str, *, everyone: bool = False) -> Archive:
        if request.param == "neo4j":
            from ragmem.store.neo4j import Neo4jStore

            store: Archive = await Neo4jStore.open(server, owner=owner, everyone=everyone)
        else:
            store = await SQLiteStore.open(
                tmp_path / "home" / "memory.db",
                locks_dir=tmp_path / "home" / "locks",
                owner=owner,
                everyone=everyone,
            )
        opened.append(store)
        return store

    yield open_as
    for store in opened:
        await store.aclose()


async def test_what_is_about_a_person_is_seen_by_that_person_alone(open_as: OpenAs) -> None:
    ana, bob = await open_as("ana-id"), await open_as("bob-id")
    # What stood there is hers, who came first.
    assert (await ana.profile()).values["name"] == "Ana 🌱"
    assert (await bob.profile()).values == {}
    assert await bob.sessions(SessionQuery(mine=True)) == []
    before = {each.memory_id for each in await ana.memories(MemoryQuery(everywhere=True))}

    await bob.apply(
        [
            PutProfile(key="name", value="Bob", at=START),
            created("bobs", cwd="/home/ana/garden"),
            begun("bobs", "said"),
            finished("bobs", "said", "Yes."),
            remembered("his", project_id=None),
            remembered("shared", project_id="project-garden"),
        ]
    )
    assert (await ana.profile()).values["name"] == "Ana 🌱"
    assert (await bob.profile()).values == {"name": "Bob"}
    seen = {each.memory_id for each in await ana.memories(MemoryQuery(everywhere=True))}
    assert seen == before | {"shared"}
    seen = {each.memory_id for each in await ana.memories(MemoryQuery())}
    assert "his" not in seen
    assert await ana.find_memories("his") == []
    assert [each.owner for each in await ana.find_memories("shared")] == ["bob-id"]
    assert [each.memory_id for each in await bob.memories(MemoryQuery())] == ["his"]

    own = await bob.sessions(SessionQuery(cwd="/home/ana/garden", mine=True))
    assert [each.session_id for each in own] == ["bobs"]
    hers = await ana.sessions(SessionQuery(mine=True))
    assert "bobs" not in {each.session_id for each in hers}
    assert len(await ana.sessions(SessionQuery())) == len(hers) + 1
    assert await ana.find_sessions("bobs", mine=True) == []
    assert [each.owner for each in await ana.find_sessions("bobs")] == ["bob-id"]
    # His words are learned from by his own processes: hers would take them for her own.
    assert "said" in {each.record_id for each in await bob.pending("memories", limit=9)}
    assert "said" not in {each.record_id for each in await ana.pending("memories", limit=9)}


async def test_a_move_carries_everybodys(open_as: OpenAs, tmp_path: Path) -> None:
    ana, bob = await open_as("ana-id"), await open_as("bob-id")
    await bob.apply([PutProfile(key="name", value="Bob", at=START), remembered("his")])
    target = await SQLiteStore.open(
        tmp_path / "new.db", locks_dir=tmp_path / "locks", owner="ana-id", everyone=True
    )
    async for batch in stream_of(await open_as("ana-id", everyone=True))():
        await target.apply(batch)
    assert await target.profiles() == await ana.profiles()
    assert [each.owner for each in await target.profiles()] == ["ana-id", "bob-id"]
    assert {each.owner for each in await target.memories_by_id(["his"])} == {"bob-id"}
    assert {each.owner for each in await target.sessions(SessionQuery())} == {"ana-id"}
    await target.aclose()


def test_a_home_keeps_its_owner_until_it_takes_another_over(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "config", tmp_path / "data", tmp_path / "logs").make()
    first = home_owner(paths)
    assert first
    assert home_owner(paths) == first
    assert paths.owner_file.stat().st_mode & 0o077 == 0
    take_owner(paths, "another")
    assert home_owner(paths) == "another"
