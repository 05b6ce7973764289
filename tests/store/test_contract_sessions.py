"""What every Store promises (see `ragmem.store`), on each implementation.

Sessions, who works on them, and the projects that they belong to.
"""

import msgspec

from ragmem.ids import new_id, short_id
from ragmem.records import Project, PutSession, RegisterProject, SessionQuery, UpdateSession
from ragmem.store import Store
from tests.store.conftest import OpenStore
from tests.store.samples import (
    a_session,
    at,
    begun,
    called,
    created,
    finished,
    project,
    whole_turn,
)
from tests.store.seen import seen

# --- sessions ---------------------------------------------------------------


async def test_a_session_comes_back_as_it_was_made(store: Store) -> None:
    """With its defaults."""
    plain = a_session("s-plain")
    full = a_session(
        "s-full",
        project_path="/home/ana",
        title="Le jardin d'été 🌱",
        summary="About plants.",
        tags=("été", "plants"),
        status="archived",
    )
    await store.apply([created("s-plain")])
    await store.apply([created(**{f: getattr(full, f) for f in full.__struct_fields__})])
    assert await store.session("s-plain") == plain
    assert await store.session("s-full") == full
    assert (plain.title, plain.tags, plain.status) == ("New Conversation", (), "active")


async def test_derived_fields_are_the_stores_own(store: Store) -> None:
    """What a caller claims about turns and activity is ignored."""
    claimed = created("s", turn_count=7, message_count=9, last_message="x", last_activity_at=at(99))
    await store.apply([claimed])
    assert await store.session("s") == a_session("s")


async def test_creating_again_leaves_the_session_as_it_is(store: Store) -> None:
    await store.apply([created("s", title="First"), *whole_turn("s")])
    before = await seen(store)
    await store.apply([created("s", title="Second", cwd="/elsewhere")])
    assert await seen(store) == before


async def test_an_update_changes_what_it_gives(store: Store) -> None:
    """`updated_at` moves; activity, which is turns, does not."""
    await store.apply([created("s", title="Old", tags=("a",))])
    await store.apply([UpdateSession(session_id="s", title="New", at=at(3))])
    assert await store.session("s") == a_session("s", title="New", tags=("a",), updated_at=at(3))
    await store.apply(
        [UpdateSession(session_id="s", summary="Sum", tags=(), status="archived", at=at(4))]
    )
    assert await store.session("s") == a_session(
        "s", title="New", summary="Sum", status="archived", updated_at=at(4)
    )


async def test_activity_and_counts_follow_the_turns(store: Store) -> None:
    """Message_count is two for each completed turn."""
    await store.apply([created("s"), *whole_turn("s", user="one", started_at=at(1))])
    await store.apply([begun("s", "t2", "two", started_at=at(7))])
    session = await store.session("s")
    assert (session.turn_count, session.message_count) == (2, 2)
    assert session.last_message == "two"
    assert session.last_activity_at == session.updated_at == at(7)
    await store.apply([finished("s", "t2", status="interrupted", finished_at=at(9))])
    session = await store.session("s")
    assert (session.turn_count, session.message_count) == (2, 2)
    assert session.last_activity_at == session.updated_at == at(9)


async def test_activity_never_goes_back(store: Store) -> None:
    """Neither by a clock that jumps back nor by the replay of an old write."""
    renamed = UpdateSession(session_id="s", title="New", at=at(1))
    ended = finished("s", "t", status="failed", finished_at=at(5))
    await store.apply([created("s"), renamed, begun("s", "t", started_at=at(9)), ended])
    session = await store.session("s")
    assert session.last_activity_at == session.updated_at == at(9)
    for write in (renamed, ended, begun("s", "t2", started_at=at(2))):
        await store.apply([write])
    session = await store.session("s")
    assert session.last_activity_at == session.updated_at == at(9)


async def test_sessions_of_a_folder_newest_activity_first(store: Store) -> None:
    """Several for one folder are kept, those of other folders are not listed."""
    await store.apply(
        [
            created("old", started_at=at(0)),
            created("other", cwd="/elsewhere", started_at=at(1)),
            created("new", started_at=at(2)),
        ]
    )
    query = SessionQuery(cwd="/home/ana/garden")
    assert [s.session_id for s in await store.sessions(query)] == ["new", "old"]
    await store.apply(whole_turn("old", user="again", started_at=at(3)))
    listed = await store.sessions(query)
    assert [(s.session_id, s.turn_count, s.last_message) for s in listed] == [
        ("old", 1, "again"),
        ("new", 0, None),
    ]


SESSION_QUERIES: list[tuple[SessionQuery, str]] = [
    (SessionQuery(), "d c b a"),
    (SessionQuery(limit=2), "d c"),
    (SessionQuery(limit=0), ""),
    (SessionQuery(cwd="/a"), "c a"),
    (SessionQuery(cwd="/A"), ""),
    (SessionQuery(project_ids=("p2",)), "d b"),
    (SessionQuery(project_ids=("p1", "p2")), "d c b a"),
    (SessionQuery(status="archived"), "c"),
    (SessionQuery(tags=("x", "z")), "d b a"),
    (SessionQuery(tags=("x", "z"), cwd="/a"), "a"),
    (SessionQuery(cwd="/b", status="archived"), ""),
]


async def test_session_queries(store: Store) -> None:
    """Conditions combine with AND, tags with OR."""
    await store.apply(
        [
            created("a", cwd="/a", project_id="p1", tags=("x", "y"), started_at=at(1)),
            created("b", cwd="/b", project_id="p2", tags=("x",), started_at=at(2)),
            created(
                "c", cwd="/a", project_id="p1", tags=("w",), status="archived", started_at=at(3)
            ),
            created("d", cwd="/b", project_id="p2", tags=("z",), started_at=at(4)),
        ]
    )
    for query, expected in SESSION_QUERIES:
        assert [s.session_id for s in await store.sessions(query)] == expected.split()


async def test_sessions_are_found_by_id_tail_and_name(store: Store) -> None:
    """Whole, by a tail that may be ambiguous, or by the title whatever its case."""
    one, two = "0190-aaaa-1234", "0190-bbbb-1234"
    await store.apply(
        [
            created(one, title="Straße der Rosen", started_at=at(1)),
            created(two, title="100% _shade_", started_at=at(2)),
        ]
    )

    async def found(reference: str) -> list[str]:
        return [s.session_id for s in await store.find_sessions(reference)]

    assert await found(one) == [one]
    assert await found("bbbb-1234") == [two]
    assert await found("1234") == [two, one]
    assert await found("STRASSE DER ROSEN") == [one]
    assert await found("100% _SHADE_") == [two]
    for nothing in ("0190", "%1234", "____", "Straße", "", "x" + one):
        assert await found(nothing) == [], nothing
    made = new_id()
    await store.apply([created(made)])
    assert await found(short_id(made)) == [made]
    twins = [created(f"{n}-twin", started_at=at(n)) for n in range(22)]
    await store.apply(twins)
    assert await found("twin") == [f"{n}-twin" for n in range(21, 1, -1)]


async def test_projects(store: Store) -> None:
    """A project is kept, and moved by its id."""
    garden = Project(project_id="p1", path="/home/ana/garden", created_at=at(0))
    house = Project(project_id="p2", path="/h", remote="git@example.org:h", created_at=at(1))
    assert await store.projects() == []
    await store.apply([RegisterProject(project=garden), RegisterProject(project=house)])
    assert await store.projects() == [garden, house]
    moved = msgspec.structs.replace(garden, path="/new", remote="r", created_at=at(9))
    await store.apply([RegisterProject(project=moved)])
    assert await store.projects() == [
        msgspec.structs.replace(moved, created_at=at(0)),
        house,
    ]


# --- owners -----------------------------------------------------------------


async def statuses(store: Store, session_id: str = "s") -> list[str]:
    return [turn.status for turn in await store.turns(session_id)]


async def test_owners_know_of_each_other(open_store: OpenStore) -> None:
    """A second process on a session is told so; others elsewhere don't matter."""
    first, second = await open_store(), await open_store()
    await first.apply([created("s"), created("other")])
    assert await first.attach("s", "o1") == []
    assert await first.attach("s", "o1") == []
    assert await second.attach("other", "o3") == []
    assert await second.attach("s", "o2") == ["o1"]
    assert await first.attach("s", "o1") == ["o2"]
    assert await second.attach("s", "o3") == ["o1", "o2"]
    await first.heartbeat("o1")
    await first.detach("o1")
    assert await second.attach("s", "o2") == ["o3"]
    assert await first.attach("s", "o1") == ["o2", "o3"]


async def test_attaching_leaves_the_turns_of_the_living(open_store: OpenStore) -> None:
    """Only running turns without a living owner become interrupted."""
    first, second = await open_store(), await open_store()
    await first.apply([created("s")])
    await first.attach("s", "o1")
    await first.apply([begun("s", "t1", owner_id="o1"), begun("s", "t2", owner_id="never-came")])
    await first.apply([begun("s", "t3"), *whole_turn("s", "t4")])
    await second.attach("s", "o2")
    assert await statuses(first) == ["running", "interrupted", "interrupted", "completed"]
    await first.attach("s", "o1")
    assert (await statuses(first))[0] == "running"
    assert [turn.owner_id for turn in await first.turns("s")] == ["o1", None, None, None]


async def test_detaching_interrupts_what_runs(open_store: OpenStore) -> None:
    """In every session of this owner, and of no other."""
    first, second = await open_store(), await open_store()
    await first.apply([created("s"), created("r")])
    for session_id in ("s", "r"):
        await first.attach(session_id, "o1")
        await second.attach(session_id, "o2")
        await first.apply(
            [
                begun(session_id, f"{session_id}1", owner_id="o1"),
                begun(session_id, f"{session_id}2", owner_id="o2"),
            ]
        )
    await first.detach("o1")
    assert await statuses(second, "s") == await statuses(second, "r") == ["interrupted", "running"]
    [gone, stays] = await second.turns("s")
    assert (gone.owner_id, stays.owner_id) == (None, "o2")
    await first.detach("o1")
    await first.detach("never-came")
    assert await statuses(second) == ["interrupted", "running"]


# --- projects that were joined ----------------------------------------------


async def sessions_of(store: Store, project_id: str) -> set[str]:
    return {s.session_id for s in await store.sessions(SessionQuery(project_ids=(project_id,)))}


async def test_joined_projects_share_their_sessions(store: Store) -> None:
    """Those that are there and those to come, whoever still knows the old id."""
    await store.apply([project("p"), project("q"), project("r")])
    await store.apply([created("a", project_id="p"), created("b", project_id="q")])
    await store.apply([begun("a", "t"), called("a", "t", 0, "both.py")])
    await store.apply([begun("b", "u"), called("b", "u", 0, "both.py")])
    for _ in range(2):
        await store.apply([project("p", "q")])
        assert await sessions_of(store, "q") == {"a", "b"}
        assert await sessions_of(store, "p") == set()
    assert (await store.info()).counts["files"] == 1
    assert [a.path for a in await store.file_accesses("a", max_turn_chars=1000)] == ["both.py"]
    # A process that began before, a replay, an import: they name the old one.
    put = PutSession(session=a_session("d", project_id="p"))
    await store.apply([project("p"), created("c", project_id="p"), put, put])
    assert await sessions_of(store, "q") == {"a", "b", "c", "d"}
    assert {p.project_id: p.joined_into for p in await store.projects()} == {
        "p": "q", "q": None, "r": None,
    }  # fmt: skip


async def test_joining_goes_in_no_circle(store: Store) -> None:
    """What was joined moves along; back, or elsewhere, it does not go."""
    await store.apply([project("p"), project("q"), project("r"), created("a", project_id="p")])
    await store.apply([project("p", "q"), project("q", "p"), project("p", "p")])
    assert await sessions_of(store, "q") == {"a"}
    await store.apply([project("q", "r"), project("p", "q"), project("p", "elsewhere")])
    assert {p.project_id: p.root_id for p in await store.projects()} == {
        "p": "r", "q": "r", "r": "r",
    }  # fmt: skip
    assert await sessions_of(store, "r") == {"a"}


async def test_a_project_may_be_joined_to_one_that_comes_later(store: Store) -> None:
    """As when stores are moved, in the order of their first day."""
    await store.apply([project("p", "q"), created("a", project_id="p"), project("q")])
    assert await sessions_of(store, "q") == {"a"}
