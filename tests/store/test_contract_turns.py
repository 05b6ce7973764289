"""What every Store promises (see `ragmem.store`), on each implementation.

Turns, their tool calls, and any text in them.
"""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from ragmem.errors import SessionNotFound
from ragmem.records import (
    Applied,
    FileAccess,
    PutTurn,
    SearchQuery,
    SessionQuery,
    Turn,
    TurnQuery,
    Usage,
    WeightedTerm,
)
from ragmem.store import Store
from ragmem.text import clean
from tests.store.conftest import OpenStore
from tests.store.samples import (
    START,
    answered,
    at,
    begun,
    called,
    created,
    finished,
    summed,
    texts,
    whole_turn,
)
from tests.store.seen import seen

# --- turns ------------------------------------------------------------------


async def test_a_turn_is_there_from_its_first_moment(store: Store) -> None:
    """Running, with each call as it ends, then completed; nothing of it is lost."""
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


async def test_what_has_come_of_an_answer_is_kept_while_its_turn_runs(store: Store) -> None:
    """Each time all of it; what comes after the turn's end is too late."""
    await store.apply([created("s"), begun("s", "t"), answered("s", "t", "Fer")])
    await store.apply([answered("s", "t", "Ferns 🌿 and \udc80")])
    [turn] = await store.turns("s")
    assert (turn.status, turn.assistant_message) == ("running", clean("Ferns 🌿 and \udc80"))
    await store.apply([answered("s", "t", "")])
    assert [turn.assistant_message for turn in await store.turns("s")] == [""]
    await store.apply([finished("s", "t", "Ferns", "interrupted"), answered("s", "t", "Fer")])
    [turn] = await store.turns("s")
    assert (turn.status, turn.assistant_message) == ("interrupted", "Ferns")


async def test_what_the_person_says_while_a_turn_runs_is_added_to_it(store: Store) -> None:
    """Each time all of it, found by its words once the turn has ended, and never less again."""
    await store.apply([created("s"), begun("s", "t", "Water the ferns")])
    await store.apply([called("s", "t", 0, "beds.txt")])
    both = "Water the ferns\n\nAnd the moss 🌿 \udc80"
    again = [begun("s", "t", both), begun("s", "t", "Water the ferns")]
    assert await store.apply(again) == Applied({"t": 1})
    [turn] = await store.turns("s")
    assert (turn.status, turn.user_message, len(turn.tool_calls)) == ("running", clean(both), 1)
    assert (await store.session("s")).last_message == clean(both)
    await store.apply([answered("s", "t", "I do."), finished("s", "t", "I did.")])
    await store.apply([begun("s", "t", f"{both}\n\nAnd the hostas")])
    await store.apply([begun("s", "u", "Thanks"), finished("s", "u", "You are welcome.")])
    [turn, other] = turns = await store.turns("s")
    assert (turn.user_message, turn.assistant_message) == (clean(both), "I did.")
    chars = turn.char_count + other.char_count
    assert await store.turns("s", TurnQuery(max_chars=chars)) == turns
    assert await store.turns("s", TurnQuery(max_chars=chars - 1)) == [other]
    found = await store.search(SearchQuery(terms=(WeightedTerm("moss"),)))
    assert [each.record_id for each in found if each.text > 0] == ["t"]


async def test_a_turn_that_was_put_as_it_ran_is_put_again_with_all_that_was_said(
    store: Store,
) -> None:
    """As a store that is moved while somebody works, or a session that is imported again."""
    await store.apply([created("s"), *whole_turn("s", "t0")])
    running = Turn(turn_id="t", session_id="s", turn_index=2, user_message="A", started_at=START)
    ended = {"user_message": "A\n\nB", "status": "completed", "finished_at": at(2)}
    turn = msgspec.structs.replace(running, **ended)
    await store.apply([PutTurn(turn=running)])
    await store.apply([PutTurn(turn=turn)])
    assert (await store.turns("s"))[1:] == [turn]


async def test_an_unknown_usage_stays_unknown(store: Store) -> None:
    await store.apply(
        [created("s"), begun("s", "t"), finished("s", "t", usage=Usage(), model=None)]
    )
    [turn] = await store.turns("s")
    assert (turn.usage, turn.model) == (Usage(), "fake/one")


async def test_turn_indexes_count_from_one(store: Store) -> None:
    """By session, whatever the clock says (it jumps back a day here)."""
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
    """Two processes' worth of handles, 10 turns each, 1 to 20 without a gap."""
    first, second = await open_store(), await open_store()
    await first.apply([created("s")])

    async def write(store: Store, name: str) -> list[int]:
        given = []
        for i in range(10):
            applied = await store.apply([begun("s", f"{name}{i}", name)])
            given.append(applied.turn_indexes[f"{name}{i}"])
        return given

    ours, theirs = await asyncio.gather(write(first, "a"), write(second, "b"))
    assert ours == sorted(ours)
    assert theirs == sorted(theirs)
    assert sorted(ours + theirs) == list(range(1, 21))
    turns = await first.turns("s")
    assert [turn.turn_index for turn in turns] == list(range(1, 21))
    assert (await second.session("s")).turn_count == 20


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
    """A late or repeated end changes nothing."""
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


async def test_what_was_said_beside_an_interrupted_turn_outlasts_an_older_copy(
    store: Store,
) -> None:
    """The copy was made before the person said more; that it completed is told all the same."""
    await store.apply([created("s"), begun("s", "t", "Ferns? \U0001f33f")])
    [older] = await store.turns("s")
    more = "Ferns? \U0001f33f\n\nAnd mosses."
    await store.apply([begun("s", "t", more), finished("s", "t", "Fer", "interrupted")])
    before = await seen(store)
    await store.apply([PutTurn(turn=replace(older, status="interrupted", finished_at=START))])
    assert await seen(store) == before
    [newer] = await store.turns("s")
    await store.apply([PutTurn(turn=replace(newer, assistant_message="Ferns"))])
    [turn] = await store.turns("s")
    assert (turn.user_message, turn.assistant_message) == (more, "Ferns")
    done = replace(older, status="completed", assistant_message="Done.", finished_at=at(1))
    await store.apply([PutTurn(turn=done)])
    [turn] = await store.turns("s")
    assert (turn.user_message, turn.status) == (older.user_message, "completed")


async def test_tool_calls_come_in_their_order(store: Store) -> None:
    """By `order`, though they ended otherwise."""
    await store.apply([created("s"), begun("s", "t1"), begun("s", "t2")])
    for order in (2, 0, 11, 1):
        await store.apply([called("s", "t2", order), called("s", "t1", order)])
    for turn in await store.turns("s"):
        assert [call.order for call in turn.tool_calls] == [0, 1, 2, 11]
        assert {call.turn_id for call in turn.tool_calls} == {turn.turn_id}
    bare = await store.turns("s", TurnQuery(with_tool_calls=False))
    assert [turn.tool_calls for turn in bare] == [(), ()]


TURN_QUERIES: list[tuple[TurnQuery, str]] = [
    (TurnQuery(), "1 2 3 4 5"),
    (TurnQuery(limit=0), ""),
    (TurnQuery(limit=3), "3 4 5"),
    (TurnQuery(limit=9), "1 2 3 4 5"),
    (TurnQuery(before_index=4), "1 2 3"),
    (TurnQuery(before_index=4, limit=2), "2 3"),
    (TurnQuery(before_index=1), ""),
    (TurnQuery(statuses=("completed",)), "1 2 4"),
    (TurnQuery(statuses=("failed", "running")), "3 5"),
    (TurnQuery(statuses=("completed",), limit=2), "2 4"),
    (TurnQuery(max_chars=20), "4 5"),
    (TurnQuery(max_chars=19), "5"),
    (TurnQuery(max_chars=29), "4 5"),
    (TurnQuery(max_chars=1), "5"),
    (TurnQuery(max_chars=1000), "1 2 3 4 5"),
    (TurnQuery(max_chars=1000, limit=2), "4 5"),
    (TurnQuery(max_chars=20, statuses=("completed",)), "2 4"),
]


async def test_turn_queries(store: Store) -> None:
    """Ten characters a turn, but 3 (the failed one) has a hundred."""
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
    for query, expected in TURN_QUERIES:
        assert texts(await store.turns("s", query)) == expected.split()


async def test_file_accesses_newest_first(store: Store) -> None:
    """By turn, then call; each with its own time."""
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
    """What stands in a request for a result finds it again; a fork finds the shared ones."""
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


async def test_a_start_is_as_it_was_said_last(store: Store) -> None:
    """That it is only asked about holds until it is allowed."""
    whole = {"tool_call_id": "c", "started_at": START}
    start = called("s", "t", 0, result="", success=False, **whole)
    asked = called("s", "t", 0, result="", success=False, error="asked", **whole)
    await store.apply([created("s"), begun("s", "t"), start, asked])
    assert (await store.turns("s"))[0].tool_calls == (asked.call,)
    await store.apply([start])
    assert (await store.turns("s"))[0].tool_calls == (start.call,)


async def test_a_start_never_replaces_a_finish(store: Store) -> None:
    """Found by a life (test_lives.py): a start said again, late, takes no result away."""
    whole = {"tool_call_id": "c", "started_at": at(10**6)}
    start = called("s", "t", 0, result="", success=False, **whole)
    end = called("s", "t", 0, "a.py", **whole)
    await store.apply([created("s"), begun("s", "t"), start, end])
    await store.apply([start])
    assert (await store.turns("s"))[0].tool_calls == (end.call,)
    again = called("s", "t", 0, "a.py", error="no", **whole)
    await store.apply([again])
    assert (await store.turns("s"))[0].tool_calls == (again.call,)


# --- text -------------------------------------------------------------------


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
FREE_TEXTS = ("error", "preamble", "arguments", "result")
"""Fields of a tool call that hold any text."""


async def test_any_text_is_stored_clean(store: Store) -> None:
    """NUL and lone surrogates never brick a session; all else stays."""
    for s, text in HARD_TEXTS.items():
        t, kept, every = f"{s}-t", clean(text), dict.fromkeys(FREE_TEXTS, text)
        await store.apply(
            [
                created(s, cwd=f"/{text}", title=text, summary=text, tags=(text, "t")),
                begun(s, t, text, model=text),
                called(s, t, 0, f"p/{text}", **every),
                finished(s, t, text, reasoning=text, model=text),
            ]
        )
        assert await store.raw_history_chars(s) == 2 * len(kept)
        await store.apply([summed(s, t, text=text, files_mentioned=(text,), topics=(text,))])
        [session] = await store.sessions(SessionQuery(cwd=f"/{kept}"))
        assert (session.session_id, session.tags) == (s, (kept, "t"))
        assert (session.title, session.summary, session.last_message) == (kept, kept, kept)
        [turn] = await store.turns(s)
        answer = (turn.user_message, turn.assistant_message, turn.reasoning, turn.model)
        assert answer == (kept,) * 4, s
        [stored] = turn.tool_calls
        assert {getattr(stored, name) for name in FREE_TEXTS} == {kept}, s
        [access] = await store.file_accesses(s, max_turn_chars=100)
        assert access.path == f"p/{kept}"
        [summary] = await store.summaries(s)
        assert (summary.text, summary.files_mentioned, summary.topics) == (kept, (kept,), (kept,))


async def test_searching_with_hard_text(store: Store) -> None:
    """A folder whose name can't be decoded is found by that same name."""
    cwd = b"/caf\xe9".decode("utf-8", "surrogateescape")
    await store.apply([created("s", cwd=cwd, title="a\0b", tags=("\ud800",))])
    for query in (SessionQuery(cwd=cwd), SessionQuery(tags=("\ud800",))):
        assert [s.session_id for s in await store.sessions(query)] == ["s"]
    assert [s.session_id for s in await store.find_sessions("a\0b")] == ["s"]


async def test_ten_megabytes(store: Store) -> None:
    """A huge result is kept whole, and listing sessions does not suffer."""
    huge, text = "ünïcödé 🌱 " * 700_000, "ünïcödé 🌱 " * 100_000
    result = msgspec.json.encode({"text": huge}).decode()
    await store.apply([created("s"), begun("s", "t", text)])
    await store.apply([called("s", "t", result=result)])
    await store.apply([finished("s", "t", text)])
    [turn] = await store.turns("s")
    assert turn.user_message == turn.assistant_message == text
    assert turn.tool_calls[0].result == result
    assert turn.tool_calls[0].result_size_bytes == len(result.encode()) > 10_000_000
    assert await store.raw_history_chars("s") == 2 * len(text)


async def test_large_numbers_and_far_times(store: Store) -> None:
    """A clock in 1970 or 9999 and a duration of years are values like others; of numbers past
    64 bits the nearest that every store holds."""
    early, late = START.replace(year=1970), START.replace(year=9999)
    await store.apply([created("s", started_at=early)])
    for number in (2**53, 2**63 - 1, 2**63, 2**200, -(2**63) - 1):
        kept, t = max(-(2**63), min(2**63 - 1, number)), str(number)
        usage = Usage(input_tokens=number, output_tokens=number, api_ms=number)
        call = called("s", t, 0, duration_ms=number, started_at=early)
        await store.apply([begun("s", t, started_at=late), call, finished("s", t, usage=usage)])
        turn = (await store.turns("s"))[-1]
        assert turn.usage == Usage(input_tokens=kept, output_tokens=kept, api_ms=kept)
        [stored] = turn.tool_calls
        assert (turn.started_at, stored.started_at, stored.duration_ms) == (late, early, kept)
