"""Whose memory it is: two people in one database, each with a home of their own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from ragmem.config import Paths
from ragmem.errors import StoreRefused
from ragmem.records import (
    MemoryQuery,
    MemoryRecord,
    Owner,
    PutOwner,
    PutProfile,
    SessionQuery,
    utc_now,
)
from ragmem.store import Archive, home_owner, take_owner
from ragmem.store.neo4j import Connection
from ragmem.store.sqlite.repair import DamagedDatabase, rebuild
from ragmem.store.transfer import compare, copy, stream_of
from ragmem.store.transfer.document import decoded, document_of, encoded, import_document
from tests.fakes.neo4j import ask, empty_neo4j
from tests.store.code_samples import GARDEN, put
from tests.store.opening import neo4j, sqlite
from tests.store.samples import START, at, begun, called, created, finished, project, remembered
from tests.store.test_schemas import old_database, old_graph

OpenAs = Callable[..., Awaitable[Archive]]


@pytest.fixture(params=["sqlite", "neo4j"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def old(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The database was written before there were owners."""
    if kind == "neo4j":
        await old_graph(request.getfixturevalue("neo4j_server"), 4)
    else:
        old_database(tmp_path / "home", 4)


@pytest.fixture
async def open_as(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OpenAs]:
    """Opens one database for an owner; an empty one, where it is not old."""
    opened: list[Archive] = []
    if kind == "neo4j":
        server = request.getfixturevalue("neo4j_server")
        if "old" not in request.fixturenames:
            await empty_neo4j(server)

    async def open_as(owner: str, *, everyone: bool = False) -> Archive:
        if kind == "neo4j":
            store: Archive = await neo4j(server, owner=owner, everyone=everyone)
        else:
            store = await sqlite(tmp_path / "home", owner=owner, everyone=everyone)
        opened.append(store)
        return store

    yield open_as
    for store in opened:
        await store.aclose()


@pytest.mark.usefixtures("old")
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
            remembered("shared", project_id=GARDEN),
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


async def test_what_is_about_another_person_is_not_to_be_had_by_its_id(open_as: OpenAs) -> None:
    """Nor read, nor replaced, nor forgotten, nor embedded; and what is shared, is."""
    ana, bob = await open_as("ana-id"), await open_as("bob-id")
    await bob.apply([remembered("old", "Bob is ill.", project_id=None)])
    await bob.apply(
        [
            remembered("his", "Bob is well.", supersedes=("old",), project_id=None),
            remembered("shared", "The beds face south.", project_id="project-garden"),
        ]
    )
    seen = await bob.get(MemoryRecord, ["his", "old"])
    assert [each.memory_id for each in seen] == ["his", "old"]
    assert [each.memory_id for each in await ana.get(MemoryRecord, ["his", "shared"])] == ["shared"]
    assert [each.memory_id for each in await bob.superseded_by("his")] == ["old"]
    assert await ana.superseded_by("his") == []
    with pytest.raises(StoreRefused, match="another person's"):
        await ana.apply([remembered("his", "Bob is a thief.", project_id=None)])
    await ana.apply([remembered("hers", supersedes=("his", "shared"), project_id=None)])
    assert await ana.forget_memories(["his"]) == {"memories": 0}
    [his] = await bob.get(MemoryRecord, ["his"])
    assert (his.content, his.superseded_by) == ("Bob is well.", None)
    [shared] = await bob.get(MemoryRecord, ["shared"])
    assert shared.superseded_by == "hers"
    assert await bob.superseded_by("hers") == [shared]
    waiting = {each.record_id for each in await ana.pending("vectors", limit=99)}
    assert "hers" in waiting
    assert "his" not in waiting
    assert await bob.forget_memories(["his"]) == {"memories": 2}


async def test_others_are_known_by_their_names(open_as: OpenAs, tmp_path: Path) -> None:
    """The last that was said counts, and a move takes it along; in a store that is one
    person's there is nobody else."""
    ana, bob = await open_as("ana-id"), await open_as("bob-id")
    await ana.apply([created("hers")])
    assert await ana.others() == []
    await bob.apply([created("bobs")])
    assert await ana.others() == [Owner(owner_id="bob-id")]
    await bob.apply([PutOwner(owner="", name="Bob", at=at(5))])
    await bob.apply([PutOwner(owner="bob-id", name="B", at=at(1))])
    known = Owner(owner_id="bob-id", name="Bob", named_at=at(5))
    ahead = utc_now() + timedelta(days=365)
    await ana.apply([PutOwner(owner="ana-id", name="Typo", at=ahead)])
    await ana.apply([PutOwner(owner="ana-id", name="Ana", at=at(6))])
    assert await bob.others() == [Owner(owner_id="ana-id", name="Ana", named_at=at(6))]
    assert await ana.others() == [known]
    everybodys = await open_as("ana-id", everyone=True)
    assert await everybodys.others() == []
    assert await everybodys.owners() == [
        Owner(owner_id="ana-id", name="Ana", named_at=at(6)),
        known,
    ]
    target = await sqlite(tmp_path / "new")
    await copy(stream_of(everybodys), target, lambda _phase, _count: None)
    assert await target.owners() == await everybodys.owners()
    assert (await compare(stream_of(everybodys), target, lambda _phase, _count: None)).equal
    await target.aclose()
    document = decoded(encoded(await document_of(everybodys, "bobs")))
    fresh = await sqlite(tmp_path / "fresh")
    await import_document(fresh, document, as_new=False)
    assert await fresh.owners() == [known]


async def test_a_move_carries_everybodys(open_as: OpenAs, tmp_path: Path) -> None:
    ana, bob = await open_as("ana-id"), await open_as("bob-id")
    await ana.apply([PutProfile(key="name", value="Ana", at=START), created("hers")])
    await bob.apply([PutProfile(key="name", value="Bob", at=START), remembered("his")])
    target = await sqlite(tmp_path / "new", owner="ana-id", everyone=True)
    async for batch in stream_of(await open_as("ana-id", everyone=True))():
        await target.apply(batch)
    assert await target.profiles() == await ana.profiles()
    assert [each.owner for each in await target.profiles()] == ["ana-id", "bob-id"]
    assert {each.owner for each in await target.get(MemoryRecord, ["his"])} == {"bob-id"}
    assert {each.owner for each in await target.sessions(SessionQuery())} == {"ana-id"}


def test_a_home_keeps_its_owner_until_it_takes_another_over(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "config", tmp_path / "data", tmp_path / "logs").make()
    first = home_owner(paths)
    assert first
    assert home_owner(paths) == first
    assert paths.owner_file.stat().st_mode & 0o077 == 0
    take_owner(paths, "another")
    assert home_owner(paths) == "another"


# --- in the graph -----------------------------------------------------------------

HELD = """
    MATCH (p:Project|Owner)-[r]->(n)
    RETURN coalesce(p.path, p.ownerId) AS by, type(r) AS how,
           coalesce(n.sessionId, n.uuid, n.scopeId, n.path, n.userId) AS what
    """


async def held(server: Connection) -> set[tuple[str, str, str]]:
    return {tuple(row.values()) for row in await ask(server, HELD)}  # type: ignore[misc]


async def test_the_graph_can_be_explored_from_people_and_projects(
    neo4j_server: Connection,
) -> None:
    """Whoever writes hangs it there, a join takes it along, and deletion leaves the rest."""
    await empty_neo4j(neo4j_server)
    ana = await neo4j(neo4j_server, owner="ana-id")
    garden = "/home/ana/garden"
    # Before its project is known, as where the code is looked at first.
    code = put("a.py", "s1", imports=("b.py",))
    await ana.apply([code, created("early"), remembered("m1", project_id=GARDEN)])
    await ana.apply(
        [
            project(GARDEN, path=garden),
            created("late"),
            begun("late", "t1"),
            called("late", "t1", 0, "notes.md"),
            remembered("m2", project_id=GARDEN),
            remembered("about-me", project_id=None),
            PutProfile(key="name", value="Ana", at=START),
        ]
    )
    everything = {
        (garden, "HAS_SESSION", "early"),
        (garden, "HAS_SESSION", "late"),
        (garden, "HAS_FILE", "a.py"),
        (garden, "HAS_FILE", "b.py"),
        (garden, "HAS_FILE", "notes.md"),
        (garden, "HAS_SCOPE", "s1"),
        (garden, "HAS_MEMORY", "m1"),
        (garden, "HAS_MEMORY", "m2"),
        ("ana-id", "HAS_SESSION", "early"),
        ("ana-id", "HAS_SESSION", "late"),
        ("ana-id", "HAS_MEMORY", "about-me"),
        ("ana-id", "HAS_PROFILE", "ana-id"),
    }
    assert await held(neo4j_server) == everything
    assert await ana.check() == []
    # A fact about a person becomes the project's.
    await ana.apply([remembered("about-me", project_id=GARDEN)])
    assert (garden, "HAS_MEMORY", "about-me") in await held(neo4j_server)
    assert ("ana-id", "HAS_MEMORY", "about-me") not in await held(neo4j_server)
    # The folder is joined to another: what tools touched and what was said goes along.
    await ana.apply([project("park"), project(GARDEN, "park", path=garden)])
    found = {each for each in await held(neo4j_server) if each[0] != "ana-id"}
    assert found == {
        (garden, "HAS_FILE", "a.py"),
        (garden, "HAS_FILE", "b.py"),
        (garden, "HAS_SCOPE", "s1"),
        ("/home/ana/park", "HAS_FILE", "notes.md"),
        ("/home/ana/park", "HAS_SESSION", "early"),
        ("/home/ana/park", "HAS_SESSION", "late"),
        ("/home/ana/park", "HAS_MEMORY", "m1"),
        ("/home/ana/park", "HAS_MEMORY", "m2"),
        ("/home/ana/park", "HAS_MEMORY", "about-me"),
    }
    for session_id in ("early", "late"):
        await ana.delete_session(session_id)
    assert {each for each in await held(neo4j_server) if "SESSION" in each[1]} == set()
    nodes = "MATCH (n:Project|Owner) RETURN coalesce(n.path, n.ownerId) AS id ORDER BY id"
    assert [row["id"] for row in await ask(neo4j_server, nodes)] == [
        garden, "/home/ana/park", "ana-id",
    ]  # fmt: skip
    assert await ana.check() == []


async def test_what_hangs_elsewhere_than_it_says_is_told(
    neo4j_server: Connection,
) -> None:
    await empty_neo4j(neo4j_server)
    ana = await neo4j(neo4j_server, owner="ana-id")
    await ana.apply(
        [
            project(GARDEN),
            created("s", project_path="/home/ana/project-garden"),
            remembered("mine", project_id=None),
            remembered("shared", project_id=GARDEN),
            PutProfile(key="name", value="Ana", at=START),
        ]
    )
    await ask(neo4j_server, "MATCH (n:Project|Owner) DETACH DELETE n")
    wrong = "MATCH (m:Memory {uuid: 'mine'}) CREATE (:Owner {ownerId: 'bob-id'})-[:HAS_MEMORY]->(m)"
    await ask(neo4j_server, wrong)
    told = {each.what: each.where for each in await ana.check()}
    assert told["the Project of a session is there"] == "project-garden"
    assert told["Memory hangs on its Owner"] == "mine"
    assert told["ConversationSession hangs on its Owner"] == "s"
    assert told["UserProfile hangs on its Owner"] == "ana-id"


async def test_an_older_graph_gets_its_people_and_loses_nothing_that_works_there(
    neo4j_server: Connection,
) -> None:
    """What worked on sessions was called an Owner there: it is a Process from now on."""
    await old_graph(neo4j_server, 5)
    await ask(
        neo4j_server,
        "MATCH (s:ConversationSession {sessionId: 'root'})"
        " CREATE (:Owner {ownerId: 'p-1', leaseUntil: datetime() + duration('PT1H')})"
        "-[:ATTACHED_TO]->(s)",
    )
    store = await neo4j(neo4j_server, owner="ana-id")
    found = await held(neo4j_server)
    assert {each for each in found if each[2] == "root"} == {
        ("/home/ana/garden", "HAS_SESSION", "root"),
        ("ana-id", "HAS_SESSION", "root"),
    }
    assert {each[1] for each in found} == {
        "HAS_SESSION", "HAS_FILE", "HAS_SCOPE", "HAS_MEMORY", "HAS_PROFILE",
    }  # fmt: skip
    assert await store.attach("root", "p-2") == ["p-1"]
    assert await store.check() == []


async def test_what_is_rebuilt_is_whose_home_it_is(tmp_path: Path) -> None:
    """A database of before there were owners."""
    remains = DamagedDatabase(old_database(tmp_path / "old", 5), tmp_path)
    rebuild([remains], tmp_path / "memory.db", tmp_path / "locks", owner="ana-id")
    remains.connection.close()
    store = await sqlite(tmp_path)
    assert {each.owner for each in await store.sessions(SessionQuery())} == {"ana-id"}
    assert [each.owner for each in await store.profiles()] == ["ana-id"]
