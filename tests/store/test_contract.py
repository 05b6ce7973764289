"""What every Store promises (see `ragmem.store.base`), on each implementation."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ragmem.errors import SessionNotFound
from ragmem.ids import new_id, short_id
from ragmem.records import (
    FileAccess,
    Project,
    PutSession,
    RegisterProject,
    Summary,
    ToolCall,
    Turn,
    UpdateSession,
    Usage,
    Write,
)
from ragmem.store.base import Applied, SessionQuery, Store, TurnQuery
from ragmem.text import clean
from tests.store.conftest import OpenStore
from tests.store.samples import (
    START,
    a_session,
    at,
    begun,
    called,
    created,
    finished,
    summed,
    texts,
    whole_turn,
)


async def seen(store: Store) -> dict[str, object]:
    """Everything that the store's queries tell, to be compared as one value."""
    sessions = await store.sessions(SessionQuery(limit=1000))
    ids = sorted(session.session_id for session in sessions)
    return {
        "sessions": sorted(sessions, key=lambda session: session.session_id),
        "turns": [await store.turns(each) for each in ids],
        "summaries": [await store.summaries(each) for each in ids],
        "accesses": [await store.file_accesses(each, max_turn_chars=10**9) for each in ids],
        "raw": [await store.raw_history_chars(each) for each in ids],
        "projects": await store.projects(),
        "counts": (await store.info()).counts,
    }


# --- sessions ----------------------------------------------------------------


async def test_a_session_comes_back_as_it_was_made(store: Store) -> None:
    """A34, A35, A36, A37, A38, A80, B11, B12, B13, B14, B16, B18: with its defaults."""
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
    """A36, B17: what a caller claims about turns and activity is ignored."""
    claimed = created("s", turn_count=7, message_count=9, last_message="x", last_activity_at=at(99))
    await store.apply([claimed])
    assert await store.session("s") == a_session("s")


async def test_creating_again_leaves_the_session_as_it_is(store: Store) -> None:
    await store.apply([created("s", title="First"), *whole_turn("s")])
    before = await seen(store)
    await store.apply([created("s", title="Second", cwd="/elsewhere")])
    assert await seen(store) == before


async def test_an_update_changes_what_it_gives(store: Store) -> None:
    """B12: `updated_at` moves; activity, which is turns, does not."""
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
    """A36, B12, B17, X10: message_count is two for each completed turn."""
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
    """A36, B12: neither by a clock that jumps back nor by the replay of an old write."""
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
    """A81, A102: several for one folder are kept, those of other folders are not listed."""
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


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(SessionQuery(), "d c b a", id="all"),
        pytest.param(SessionQuery(limit=2), "d c", id="limit"),
        pytest.param(SessionQuery(limit=0), "", id="none"),
        pytest.param(SessionQuery(cwd="/a"), "c a", id="cwd"),
        pytest.param(SessionQuery(cwd="/A"), "", id="cwd-in-other-case"),
        pytest.param(SessionQuery(project_ids=("p2",)), "d b", id="project"),
        pytest.param(SessionQuery(project_ids=("p1", "p2")), "d c b a", id="projects"),
        pytest.param(SessionQuery(status="archived"), "c", id="status"),
        pytest.param(SessionQuery(tags=("x", "z")), "d b a", id="B50-any-tag"),
        pytest.param(SessionQuery(tags=("x", "z"), cwd="/a"), "a", id="and"),
        pytest.param(SessionQuery(cwd="/b", status="archived"), "", id="and-none"),
    ],
)
async def test_session_queries(store: Store, query: SessionQuery, expected: str) -> None:
    """A81, B50: conditions combine with AND, tags with OR."""
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
    assert [s.session_id for s in await store.sessions(query)] == expected.split()


async def test_sessions_are_found_by_id_tail_and_name(store: Store) -> None:
    """X40: whole, by a tail that may be ambiguous, or by the title whatever its case."""
    one, two = "0190-aaaa-1234", "0190-bbbb-1234"
    await store.apply(
        [
            created(one, title="Straße der Rosen", started_at=at(1)),
            created(two, title="100% _shade_", started_at=at(2)),
        ]
    )

    async def found(reference: str, **more: int) -> list[str]:
        return [s.session_id for s in await store.find_sessions(reference, **more)]

    assert await found(one) == [one]
    assert await found("bbbb-1234") == [two]
    assert await found("1234") == [two, one]
    assert await found("1234", limit=1) == [two]
    assert await found("STRASSE DER ROSEN") == [one]
    assert await found("100% _SHADE_") == [two]
    for nothing in ("0190", "%1234", "____", "Straße", "", "x" + one):
        assert await found(nothing) == [], nothing
    made = new_id()
    await store.apply([created(made)])
    assert await found(short_id(made)) == [made]


async def test_projects(store: Store) -> None:
    """X12b: a project is kept, and moved by its id."""
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


# --- turns -------------------------------------------------------------------


async def test_a_turn_is_there_from_its_first_moment(store: Store) -> None:
    """X25: running, with each call as it ends, then completed; nothing of it is lost.

    A39, A40, A41, A42, A43; A47, A48, A49, A50, A51, A52, A53; B21, B22, B23, B24, B26, B27,
    B28, B29, B31, B32, B34.
    """
    await store.apply([created("s")])
    assert await store.apply([begun("s", "t", owner_id="me")]) == Applied({"t": 1})
    running = Turn(
        turn_id="t",
        session_id="s",
        turn_index=1,
        user_message="Which plants need shade?",
        started_at=START,
        model="fake/one",
        owner_id="me",
    )
    assert await store.turns("s") == [running]

    failed = called(
        "s", "t", 0, tool_name="grep_files", success=False, error="no such folder", iteration=0,
        preamble="I'll look.", origin="mention",
    )  # fmt: skip
    good = called("s", "t", 1, "plants.txt", iteration=1)
    await store.apply([failed])
    await store.apply([good])
    assert await store.turns("s") == [
        msgspec.structs.replace(running, tool_calls=(failed.call, good.call))
    ]

    await store.apply([finished("s", "t", reasoning="Ferns first.", model="fake/two")])
    turn = Turn(
        turn_id="t",
        session_id="s",
        turn_index=1,
        user_message="Which plants need shade?",
        assistant_message="Ferns and hostas.",
        reasoning="Ferns first.",
        status="completed",
        started_at=START,
        finished_at=at(2),
        model="fake/two",
        usage=Usage(input_tokens=120, output_tokens=30, cost_usd=0.25, model_calls=2, api_ms=90),
        tool_calls=(failed.call, good.call),
    )
    assert await store.turns("s") == [turn]
    assert turn.char_count == len("Which plants need shade?") + len("Ferns and hostas.")


async def test_an_unknown_usage_stays_unknown(store: Store) -> None:
    await store.apply(
        [created("s"), begun("s", "t"), finished("s", "t", usage=Usage(), model=None)]
    )
    [turn] = await store.turns("s")
    assert (turn.usage, turn.model) == (Usage(), "fake/one")


async def test_turn_indexes_count_from_one(store: Store) -> None:
    """A42, A64: by session, whatever the clock says (it jumps back a day here)."""
    await store.apply([created("a"), created("b")])
    applied = [
        await store.apply([begun("a", "a1", "1", started_at=at(0))]),
        await store.apply([begun("b", "b1", "1", started_at=at(1))]),
        await store.apply([begun("a", "a2", "2", started_at=at(-1440)), begun("a", "a3", "3")]),
        await store.apply([begun("a", "a2", "2", started_at=at(-1440))]),
    ]
    assert applied == [
        Applied({"a1": 1}),
        Applied({"b1": 1}),
        Applied({"a2": 2, "a3": 3}),
        Applied({"a2": 2}),
    ]
    assert texts(await store.turns("a")) == ["1", "2", "3"]
    assert (await store.session("a")).last_message == "3"


async def test_two_writers_share_out_the_indexes(open_store: OpenStore) -> None:
    """A42, X25: two processes' worth of handles, 100 turns each, 1 to 200 without a gap."""
    first, second = await open_store(), await open_store()
    await first.apply([created("s")])

    async def write(store: Store, name: str) -> list[int]:
        given = []
        for i in range(100):
            applied = await store.apply([begun("s", f"{name}{i}", name)])
            given.append(applied.turn_indexes[f"{name}{i}"])
        return given

    ours, theirs = await asyncio.gather(write(first, "a"), write(second, "b"))
    assert ours == sorted(ours)
    assert theirs == sorted(theirs)
    assert sorted(ours + theirs) == list(range(1, 201))
    turns = await first.turns("s")
    assert [turn.turn_index for turn in turns] == list(range(1, 201))
    assert (await second.session("s")).turn_count == 200


async def test_one_store_takes_many_callers(store: Store) -> None:
    """Turns of several sessions at once, from one process, mix nowhere."""
    names = [f"s{i}" for i in range(5)]
    await store.apply([created(name) for name in names])
    await asyncio.gather(
        *(store.apply(whole_turn(name, user=f"{name}-{i}")) for i in range(6) for name in names)
    )
    for name in names:
        turns = await store.turns(name)
        assert [turn.turn_index for turn in turns] == [1, 2, 3, 4, 5, 6]
        assert sorted(texts(turns)) == [f"{name}-{i}" for i in range(6)]


async def test_what_is_completed_stays_so(store: Store) -> None:
    """X25: a late or repeated end changes nothing."""
    await store.apply([created("s"), begun("s", "t"), finished("s", "t", "Yes.")])
    before = await seen(store)
    await store.apply([finished("s", "t", "No.", status="failed", finished_at=START)])
    await store.apply([finished("s", "t", "Maybe.", finished_at=START)])
    assert await seen(store) == before


async def test_what_was_interrupted_may_still_complete(store: Store) -> None:
    """Its process lived after all, and says how it ended."""
    await store.apply([created("s"), begun("s", "t"), finished("s", "t", "", "interrupted")])
    await store.apply([called("s", "t"), finished("s", "t", "Done.")])
    [turn] = await store.turns("s")
    assert (turn.status, turn.assistant_message, len(turn.tool_calls)) == ("completed", "Done.", 1)
    assert (await store.session("s")).message_count == 2


async def test_recent_turns_oldest_first(store: Store) -> None:
    """A69, A70, X33: the newest three in order; turns without tools are turns."""
    await store.apply([created("s")])
    for i in range(1, 6):
        await store.apply(whole_turn("s", user=f"u{i}"))
    assert texts(await store.turns("s", TurnQuery(limit=3))) == ["u3", "u4", "u5"]


async def test_tool_calls_come_in_their_order(store: Store) -> None:
    """A65, A71: by `order`, though they ended otherwise."""
    await store.apply([created("s"), begun("s", "t1"), begun("s", "t2")])
    for order in (2, 0, 11, 1):
        await store.apply([called("s", "t2", order), called("s", "t1", order)])
    for turn in await store.turns("s"):
        assert [call.order for call in turn.tool_calls] == [0, 1, 2, 11]
        assert {call.turn_id for call in turn.tool_calls} == {turn.turn_id}
    bare = await store.turns("s", TurnQuery(with_tool_calls=False))
    assert [turn.tool_calls for turn in bare] == [(), ()]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(TurnQuery(), "1 2 3 4 5", id="all"),
        pytest.param(TurnQuery(limit=0), "", id="none"),
        pytest.param(TurnQuery(limit=9), "1 2 3 4 5", id="limit-beyond"),
        pytest.param(TurnQuery(before_index=4), "1 2 3", id="before"),
        pytest.param(TurnQuery(before_index=4, limit=2), "2 3", id="before-limit"),
        pytest.param(TurnQuery(before_index=1), "", id="before-the-first"),
        pytest.param(TurnQuery(statuses=("completed",)), "1 2 4", id="completed"),
        pytest.param(TurnQuery(statuses=("failed", "running")), "3 5", id="statuses"),
        pytest.param(TurnQuery(statuses=("completed",), limit=2), "2 4", id="statuses-limit"),
        pytest.param(TurnQuery(max_chars=20), "4 5", id="A86-chars-exact"),
        pytest.param(TurnQuery(max_chars=19), "5", id="A86-chars-one-less"),
        pytest.param(TurnQuery(max_chars=29), "4 5", id="A86-chars-no-gap"),
        pytest.param(TurnQuery(max_chars=1), "5", id="A86-at-least-one"),
        pytest.param(TurnQuery(max_chars=1000), "1 2 3 4 5", id="A86-chars-beyond"),
        pytest.param(TurnQuery(max_chars=1000, limit=2), "4 5", id="A86-chars-and-limit"),
        pytest.param(TurnQuery(max_chars=20, statuses=("completed",)), "2 4", id="A86-statuses"),
    ],
)
async def test_turn_queries(store: Store, query: TurnQuery, expected: str) -> None:
    """A86, A43: ten characters a turn, but 3 (the failed one) has a hundred."""
    await store.apply(
        [
            created("s"),
            *whole_turn("s", user="1", assistant="a" * 9),
            *whole_turn("s", user="2", assistant="é" * 9),
            begun("s", "t3", "3"),
            called("s", "t3", result='{"text": "' + "r" * 5000 + '"}'),
            finished("s", "t3", "x" * 99, "failed"),
            *whole_turn("s", user="4", assistant="🌱" * 9),
            begun("s", "t5", "5"),
            finished("s", "t5", "x" * 9, "running"),
        ]
    )
    assert texts(await store.turns("s", query)) == expected.split()


async def test_file_accesses_newest_first(store: Store) -> None:
    """C30, C31, C32, C33, C34, C48, C50, C52, X30: by turn, then call; each with its own time."""
    await store.apply([created("s"), begun("s", "t1", "u" * 10)])
    await store.apply([called("s", "t1", 0, "b.py", "a.py", started_at=at(9))])
    await store.apply([called("s", "t1", 1, "a.py", tool_name="edit_file", started_at=at(8))])
    await store.apply([finished("s", "t1", ""), begun("s", "t2", "u" * 10)])
    await store.apply([called("s", "t2", 0, "c.py", started_at=at(1))])

    def access(
        path: str, minutes: int, turn: int, order: int, tool: str = "read_file"
    ) -> FileAccess:
        return FileAccess(
            path=path, tool_name=tool, access_type="read", accessed_at=at(minutes),
            turn_index=turn, order=order,
        )  # fmt: skip

    newest = [access("c.py", 1, 2, 0)]
    older = [
        access("a.py", 8, 1, 1, "edit_file"),
        access("a.py", 9, 1, 0),
        access("b.py", 9, 1, 0),
    ]
    assert await store.file_accesses("s", max_turn_chars=20) == newest + older
    assert await store.file_accesses("s", max_turn_chars=19) == newest
    await store.apply([created("bare")])
    assert await store.file_accesses("bare", max_turn_chars=100) == []


async def test_tool_calls_by_the_end_of_their_id(store: Store) -> None:
    """X20: what stands in a request for a result finds it again; a fork finds the shared ones."""
    await store.apply([created("s"), begun("s", "t1"), called("s", "t1", 0, "a.py")])
    await store.apply([called("s", "t1", 1, "b.py"), finished("s", "t1", "done")])
    [turn] = await store.turns("s")
    one, two = turn.tool_calls
    assert await store.find_tool_call("s", two.tool_call_id) == two
    tail = one.tool_call_id.replace("-", "")[-9:]
    assert await store.find_tool_call("s", tail) == one
    assert await store.find_tool_call("s", "no such") is None
    await store.apply([created("other")])
    assert await store.find_tool_call("other", tail) is None
    await store.apply([created("fork", parent_session_id="s", forked_at_index=1)])
    assert await store.find_tool_call("fork", tail) == one
    with pytest.raises(SessionNotFound):
        await store.find_tool_call("nowhere", tail)


# --- summaries ---------------------------------------------------------------


async def test_summaries_come_back_newest_first(store: Store) -> None:
    """A54, A56, A57, A58, A59, A60, A61, A63, A66, A67, A68, X9: whole, covers in order."""
    await store.apply([created("s"), *(w for i in "123" for w in whole_turn("s", f"t{i}"))])
    first = summed("s", "t2", "t1", created_at=at(1))
    second = summed("s", "t3", created_at=at(2), extractive=True)
    top = summed(
        "s", first.summary.summary_id, second.summary.summary_id,
        level=2, turn_count=3, created_at=at(3),
    )  # fmt: skip
    await store.apply([first, second])
    await store.apply([top])
    expected = [top.summary, second.summary, first.summary]
    assert await store.summaries("s") == expected
    assert await store.summaries("s", level=1) == expected[1:]
    assert await store.summaries("s", level=2) == expected[:1]
    assert await store.summaries("s", limit=2) == expected[:2]
    assert await store.summaries("s", level=3) == []


async def test_summaries_not_rolled_up(store: Store) -> None:
    """A79: those that no higher summary covers, newest first, at most `limit`."""
    ones = [summed("s", f"t{i}", created_at=at(i)).summary for i in range(1, 5)]
    await store.apply([created("s"), *(w for i in range(1, 5) for w in whole_turn("s", f"t{i}"))])
    await store.apply(
        [
            summed("s", f"t{i}", summary_id=ones[i - 1].summary_id, created_at=at(i))
            for i in range(1, 5)
        ]
    )

    async def open_ones(limit: int | None = None) -> list[Summary]:
        return await store.summaries("s", level=1, not_rolled_up=True, limit=limit)

    assert await open_ones() == ones[::-1]
    await store.apply(
        [summed("s", ones[0].summary_id, ones[2].summary_id, level=2, created_at=at(6))]
    )
    assert await open_ones() == [ones[3], ones[1]]
    assert await open_ones(limit=1) == [ones[3]]
    assert [s.level for s in await store.summaries("s", not_rolled_up=True)] == [2, 1, 1]


async def test_a_forks_summaries_roll_up_nothing_of_its_parents(store: Store) -> None:
    """A79: only a higher summary of the same session counts."""
    one = summed("p", "t")
    await store.apply([created("p"), *whole_turn("p", "t"), one])
    await store.apply([created("f", parent_session_id="p")])
    await store.apply([summed("f", one.summary.summary_id, level=2)])
    assert await store.summaries("p", not_rolled_up=True) == [one.summary]
    await store.apply([summed("p", one.summary.summary_id, level=2, summary_id="top")])
    assert [s.summary_id for s in await store.summaries("p", not_rolled_up=True)] == ["top"]


async def test_raw_history_is_what_no_summary_covers(store: Store) -> None:
    """A78, A43, X25: code points of completed turns; 0, not nothing, for none."""
    await store.apply([created("s")])
    assert await store.raw_history_chars("s") == 0
    await store.apply(
        [
            *whole_turn("s", "t1", user="12345", assistant="🌱🌱🌱"),
            *whole_turn("s", "t2", user="é", assistant="ab"),
            begun("s", "t3", "running does not count"),
            begun("s", "t4"),
            finished("s", "t4", "nor does what was interrupted", "interrupted"),
        ]
    )
    assert await store.raw_history_chars("s") == 11
    await store.apply([summed("s", "t1")])
    assert await store.raw_history_chars("s") == 3
    await store.apply([summed("s", "t2")])
    assert await store.raw_history_chars("s") == 0


# --- forks -------------------------------------------------------------------


async def test_a_fork_shares_its_parents_turns(store: Store) -> None:
    """X40: by reference, up to the fork; indexes go on; neither sees what the other adds."""
    await store.apply(
        [created("p"), *(w for i in "123" for w in whole_turn("p", f"p{i}", f"p{i}"))]
    )
    await store.apply([created("f", parent_session_id="p", forked_at_index=2)])
    assert texts(await store.turns("f")) == ["p1", "p2"]
    assert [turn.session_id for turn in await store.turns("f")] == ["p", "p"]
    session = await store.session("f")
    assert (session.parent_session_id, session.forked_at_index) == ("p", 2)
    assert (session.turn_count, session.message_count, session.last_message) == (2, 4, "p2")

    assert (await store.apply([begun("f", "f3", "f3")])).turn_indexes == {"f3": 3}
    assert (await store.apply([begun("p", "p4", "p4")])).turn_indexes == {"p4": 4}
    assert texts(await store.turns("f")) == ["p1", "p2", "f3"]
    assert texts(await store.turns("p")) == ["p1", "p2", "p3", "p4"]
    session = await store.session("f")
    assert (session.turn_count, session.message_count, session.last_message) == (3, 4, "f3")
    assert (await store.info()).counts["turns"] == 5


async def test_a_fork_of_a_fork(store: Store) -> None:
    """X40: recursively, also when it was made before its parent's own turns."""
    await store.apply(
        [
            created("a"),
            *(w for i in "1234" for w in whole_turn("a", f"a{i}", f"a{i}")),
            created("b", parent_session_id="a", forked_at_index=3),
            *(w for i in "45" for w in whole_turn("b", f"b{i}", f"b{i}")),
            created("c", parent_session_id="b", forked_at_index=4),
            *whole_turn("c", "c5", "c5"),
            created("d", parent_session_id="b", forked_at_index=2),
            *whole_turn("d", "d3", "d3"),
        ]
    )
    assert texts(await store.turns("c")) == ["a1", "a2", "a3", "b4", "c5"]
    assert texts(await store.turns("d")) == ["a1", "a2", "d3"]
    assert [turn.turn_index for turn in await store.turns("c")] == [1, 2, 3, 4, 5]
    assert texts(await store.turns("c", TurnQuery(limit=3))) == ["a3", "b4", "c5"]
    assert texts(await store.turns("c", TurnQuery(before_index=3))) == ["a1", "a2"]
    assert texts(await store.turns("c", TurnQuery(max_chars=1))) == ["c5"]
    listed = {s.session_id: s for s in await store.sessions(SessionQuery())}
    assert [(listed[i].turn_count, listed[i].message_count) for i in "abcd"] == [
        (4, 8), (5, 10), (5, 10), (3, 6),
    ]  # fmt: skip


async def test_a_shared_turn_may_end_after_the_fork(store: Store) -> None:
    """X40: it is one turn, wherever it is seen."""
    await store.apply([created("p"), begun("p", "t", "slow"), called("p", "t", 0, "a.py")])
    await store.apply([created("f", parent_session_id="p", forked_at_index=1)])
    assert (await store.session("f")).message_count == 0
    await store.apply([finished("p", "t", "done")])
    assert await store.turns("f") == await store.turns("p")
    assert (await store.session("f")).message_count == 2
    assert await store.raw_history_chars("f") == len("slow") + len("done")
    accesses = await store.file_accesses("f", max_turn_chars=100)
    assert accesses == await store.file_accesses("p", max_turn_chars=100)
    assert len(accesses) == 1
    await store.apply([summed("p", "t")])
    assert await store.raw_history_chars("f") == 0


@pytest.mark.parametrize("index", [None, 2, 99])
async def test_a_fork_never_begins_beyond_its_parent(store: Store, index: int | None) -> None:
    """A42, X40: without an index, or with one too large, it begins at the newest turn."""
    await store.apply([created("p"), *whole_turn("p"), *whole_turn("p")])
    fork = created("f", parent_session_id="p", forked_at_index=index)
    await store.apply([fork])
    await store.apply(whole_turn("p"))
    assert (await store.apply([begun("f", "t"), fork])).turn_indexes == {"t": 3}
    assert (await store.session("f")).forked_at_index == 2
    assert [turn.turn_index for turn in await store.turns("f")] == [1, 2, 3]


async def test_a_fork_at_the_very_beginning(store: Store) -> None:
    await store.apply([created("p"), *whole_turn("p")])
    await store.apply([created("f", parent_session_id="p", forked_at_index=0)])
    assert await store.turns("f") == []
    session = await store.session("f")
    assert (session.turn_count, session.message_count, session.last_message) == (0, 0, None)
    assert (await store.apply([begun("f", "t")])).turn_indexes == {"t": 1}


# --- transactions ------------------------------------------------------------


def a_story() -> list[Write]:
    """Every kind of write, in a stream that could be an export."""
    one, two = summed("s", "t1", created_at=at(3)), summed("s", "t2", created_at=at(4))
    return [
        RegisterProject(project=Project(project_id="p", path="/p", created_at=START)),
        created("s", title="First"),
        begun("s", "t1", "one", owner_id="o"),
        called("s", "t1", 0, "a.py", "b.py"),
        called("s", "t1", 1, "a.py", success=False, error="boom"),
        finished("s", "t1", "done"),
        UpdateSession(session_id="s", title="Renamed", tags=("x",), at=at(1)),
        begun("s", "t2", "two", started_at=at(2)),
        finished("s", "t2", "", "interrupted"),
        finished("s", "t2", "after all", finished_at=at(8)),
        one,
        two,
        summed("s", one.summary.summary_id, two.summary.summary_id, level=2, created_at=at(5)),
        UpdateSession(session_id="s", summary="All of it.", at=at(6)),
        created("f", parent_session_id="s", forked_at_index=1, started_at=at(7)),
        begun("f", "t3", "three", started_at=at(7)),
        finished("f", "t3", "", "failed", finished_at=at(8)),
    ]


async def test_each_write_twice_is_once(open_store: OpenStore) -> None:
    """A retry changes nothing, and is told the same."""
    store = await open_store()
    for write in a_story():
        applied = await store.apply([write])
        once = await seen(store)
        assert await store.apply([write]) == applied
        assert await seen(store) == once, write
        await store.apply([write, write])
        assert await seen(store) == once, write


async def test_the_whole_stream_twice_is_once(store: Store) -> None:
    """A replay after an outage, or an import of what is there, changes nothing."""
    story = a_story()
    applied = await store.apply(story)
    assert applied == Applied({"t1": 1, "t2": 2, "t3": 2})
    once = await seen(store)
    assert await store.apply(story) == applied
    assert await seen(store) == once
    for write in story:
        await store.apply([write])
    assert await seen(store) == once


async def test_one_transaction_or_many_end_the_same(store: Store) -> None:
    """Writes are values: cut into batches anyhow, they come to the same."""
    story = a_story()
    renamed = [_in_another_world(write) for write in story]
    await store.apply(story)
    dice = random.Random(7)
    while renamed:
        cut = dice.randint(1, 4)
        await store.apply(renamed[:cut])
        del renamed[:cut]
    for session_id in ("s", "f"):
        turns = await store.turns(session_id)
        others = await store.turns(f"{session_id}'")
        assert [(t.turn_index, t.status, t.char_count) for t in turns] == [
            (t.turn_index, t.status, t.char_count) for t in others
        ]
        session, other = await store.session(session_id), await store.session(f"{session_id}'")
        assert (session.turn_count, session.message_count, session.updated_at) == (
            other.turn_count, other.message_count, other.updated_at,
        )  # fmt: skip


def _in_another_world(write: Write) -> Write:
    """The same write with every id primed."""

    def primed(value: object) -> object:
        if isinstance(value, dict):
            return {
                key: _prime(key, held) if not isinstance(held, dict | list) else primed(held)
                for key, held in value.items()
            }
        if isinstance(value, list):
            return [f"{each}'" if isinstance(each, str) else primed(each) for each in value]
        return value

    def _prime(key: str, held: object) -> object:
        return f"{held}'" if key.endswith("_id") and held is not None else held

    return msgspec.convert(primed(msgspec.to_builtins(write)), Write)


@pytest.mark.parametrize("position", [0, 2, 5])
async def test_a_failing_write_undoes_all(store: Store, position: int) -> None:
    """One transaction: nothing of it stays, not even an index."""
    await store.apply([created("s"), *whole_turn("s", user="before")])
    before = await seen(store)
    writes: list[Write] = [
        created("s2"),
        begun("s", "t2"),
        called("s", "t2", 0, "a.py"),
        finished("s", "t2"),
        UpdateSession(session_id="s", title="Changed", at=at(9)),
    ]
    writes.insert(position, begun("nowhere"))
    with pytest.raises(SessionNotFound):
        await store.apply(writes)
    assert await seen(store) == before
    assert (await store.apply([begun("s", "t2")])).turn_indexes == {"t2": 2}


async def test_nothing_to_apply(store: Store) -> None:
    assert await store.apply([]) == Applied()


# --- what is not there -------------------------------------------------------

READS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "session": lambda store: store.session("no"),
    "turns": lambda store: store.turns("no"),
    "file_accesses": lambda store: store.file_accesses("no", max_turn_chars=10),
    "summaries": lambda store: store.summaries("no"),
    "raw_history_chars": lambda store: store.raw_history_chars("no"),
    "attach": lambda store: store.attach("no", "me"),
}


@pytest.mark.parametrize("name", READS)
async def test_reading_an_unknown_session(store: Store, name: str) -> None:
    """A83: a clear error that names it."""
    with pytest.raises(SessionNotFound, match="no"):
        await READS[name](store)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(UpdateSession(session_id="no", at=START), id="update-session"),
        pytest.param(begun("no"), id="begin-turn"),
        pytest.param(called("no", "no"), id="tool-call-session"),
        pytest.param(called("s", "no"), id="tool-call-turn"),
        pytest.param(finished("no", "no"), id="finish-session"),
        pytest.param(finished("s", "no"), id="finish-turn"),
        pytest.param(summed("no", "t"), id="summary-session"),
        pytest.param(summed("s", "no"), id="summary-turn"),
        pytest.param(summed("s", "no", level=2), id="summary-summary"),
        pytest.param(created("f", parent_session_id="no", forked_at_index=1), id="fork"),
    ],
)
async def test_writing_to_what_is_not_there(store: Store, write: Write) -> None:
    """A83: refused, and nothing of it stays."""
    await store.apply([created("s"), *whole_turn("s", "t")])
    before = await seen(store)
    with pytest.raises(SessionNotFound, match=r"no\b"):
        await store.apply([write])
    assert await seen(store) == before


# --- text --------------------------------------------------------------------

HARD_TEXTS = {
    "nul": "a\0b",
    "lone-surrogate": "half \ud83d of it",
    "file-name": b"caf\xe9.txt".decode("utf-8", "surrogateescape"),
    "surrogate-pair": "\ud83c\udf31",
    "emoji": "👩‍👩‍👧 🏳️‍🌈 é ﷽",
    "controls": "\x1b[31m\r\n\t\x7f\x85\u2028",
    "noncharacters": "\ufffe\uffff\ufeff",
    "quotes": "'; DROP TABLE turns; -- \" \\ $x {y} `z`",
    "empty": "",
}


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS)
async def test_any_text_is_stored_clean(store: Store, text: str) -> None:
    """Reliability 0.4: NUL and lone surrogates never brick a session; all else stays."""
    kept = clean(text)
    call = called("s", "t", 0, f"p/{text}", error=text, preamble=text, arguments=text, result=text)
    await store.apply(
        [
            created("s", cwd=f"/{text}", title=text, summary=text, tags=(text, "t")),
            begun("s", "t", text, model=text),
            call,
            finished("s", "t", text, reasoning=text, model=text),
        ]
    )
    assert await store.raw_history_chars("s") == 2 * len(kept)
    await store.apply([summed("s", "t", text=text, files_mentioned=(text,), topics=(text,))])
    [session] = await store.sessions(SessionQuery(cwd=f"/{kept}"))
    assert session.tags == (kept, "t")
    assert (session.title, session.summary, session.last_message) == (kept, kept, kept)
    [turn] = await store.turns("s")
    assert (turn.user_message, turn.assistant_message, turn.reasoning, turn.model) == (kept,) * 4
    [stored] = turn.tool_calls
    assert (stored.error, stored.preamble, stored.arguments, stored.result) == (kept,) * 4
    [access] = await store.file_accesses("s", max_turn_chars=100)
    assert access.path == f"p/{kept}"
    [summary] = await store.summaries("s")
    assert (summary.text, summary.files_mentioned, summary.topics) == (kept, (kept,), (kept,))


async def test_searching_with_hard_text(store: Store) -> None:
    """A folder whose name can't be decoded is found by that same name."""
    cwd = b"/caf\xe9".decode("utf-8", "surrogateescape")
    await store.apply([created("s", cwd=cwd, title="a\0b", tags=("\ud800",))])
    for query in (SessionQuery(cwd=cwd), SessionQuery(tags=("\ud800",))):
        assert [s.session_id for s in await store.sessions(query)] == ["s"]
    assert [s.session_id for s in await store.find_sessions("a\0b")] == ["s"]


async def test_ten_megabytes(store: Store) -> None:
    """B31, B33: a huge result is kept whole, and listing sessions does not suffer."""
    huge = "ünïcödé 🌱 " * 900_000
    result = msgspec.json.encode({"text": huge}).decode()
    await store.apply([created("s"), begun("s", "t", huge)])
    await store.apply([called("s", "t", result=result)])
    await store.apply([finished("s", "t", huge)])
    [turn] = await store.turns("s")
    assert turn.user_message == turn.assistant_message == huge
    assert turn.tool_calls[0].result == result
    assert turn.tool_calls[0].result_size_bytes == len(result.encode()) > 10_000_000
    assert await store.raw_history_chars("s") == 2 * len(huge)


async def test_large_numbers_and_far_times(store: Store) -> None:
    """A clock in 1970 or 9999 and a duration of years are values like others."""
    early, late = START.replace(year=1970), START.replace(year=9999)
    await store.apply([created("s", started_at=early), begun("s", "t", started_at=late)])
    await store.apply([called("s", "t", duration_ms=2**53, started_at=early)])
    [turn] = await store.turns("s")
    [call] = turn.tool_calls
    assert (turn.started_at, call.started_at, call.duration_ms) == (late, early, 2**53)


# --- owners ------------------------------------------------------------------


async def statuses(store: Store, session_id: str = "s") -> list[str]:
    return [turn.status for turn in await store.turns(session_id)]


async def test_owners_know_of_each_other(open_store: OpenStore) -> None:
    """X25: a second process on a session is told so; others elsewhere don't matter."""
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
    """X25: only running turns without a living owner become interrupted."""
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
    """X25: in every session of this owner, and of no other."""
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


# --- the store itself --------------------------------------------------------


async def test_info_counts_what_there_is(store: Store) -> None:
    empty = await store.info()
    assert set(empty.counts.values()) == {0}
    assert empty.summaries_per_level == {}
    await store.apply(a_story())
    info = await store.info()
    assert info.counts == {
        "sessions": 2, "turns": 3, "tool_calls": 2, "summaries": 3, "files": 2, "projects": 1,
    }  # fmt: skip
    assert list(info.summaries_per_level.items()) == [(1, 2), (2, 1)]
    assert info.kind in ("sqlite", "neo4j")
    assert info.location
    assert info.version[0].isdigit()
    assert info.schema_version >= 1


async def test_what_one_handle_wrote_another_reads(open_store: OpenStore) -> None:
    """Also after the first is closed, which may be done twice."""
    first, second = await open_store(), await open_store()
    await first.apply(a_story())
    written = await seen(first)
    assert await seen(second) == written
    await first.aclose()
    await first.aclose()
    assert await seen(second) == written
    third = await open_store()
    assert await seen(third) == written


async def test_records_keep_their_own_times(store: Store) -> None:
    """X30: to the microsecond, in UTC."""
    await store.apply([created("s"), begun("s", "t"), called("s", "t", 0, "a.py")])
    [turn] = await store.turns("s")
    call: ToolCall = turn.tool_calls[0]
    assert (turn.started_at, call.started_at) == (START, at(1))
    assert call.started_at.utcoffset() is not None


# --- projects that were joined -------------------------------------------------


def project(name: str, joined_into: str | None = None) -> RegisterProject:
    return RegisterProject(
        project=Project(project_id=name, path=f"/{name}", created_at=START, joined_into=joined_into)
    )


async def sessions_of(store: Store, project_id: str) -> set[str]:
    return {s.session_id for s in await store.sessions(SessionQuery(project_ids=(project_id,)))}


async def test_joined_projects_share_their_sessions(store: Store) -> None:
    """X12b: those that are there and those to come, whoever still knows the old id."""
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
    """X12b: what was joined moves along; back, or elsewhere, it does not go."""
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
