"""What every Store promises (see `ragmem.store`), on each implementation.

Summaries, and forks.
"""

from ragmem.records import SessionQuery, Summary, TurnQuery
from ragmem.store import Store
from tests.store.samples import at, begun, called, created, finished, summed, texts, whole_turn
from tests.store.test_contract_memories import archive
from tests.store.test_contract_recall import waiting

# --- summaries --------------------------------------------------------------


async def test_summaries_come_back_newest_first(store: Store) -> None:
    """Whole, covers in order."""
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
    twice = [top.summary.summary_id] * 2
    assert await store.get(Summary, twice) == [top.summary] * 2


async def test_summaries_not_rolled_up(store: Store) -> None:
    """Those that no higher summary covers, newest first, at most `limit`."""
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
    """Only a higher summary of the same session counts."""
    one = summed("p", "t")
    await store.apply([created("p"), *whole_turn("p", "t"), one])
    await store.apply([created("f", parent_session_id="p")])
    await store.apply([summed("f", one.summary.summary_id, level=2)])
    assert await store.summaries("p", not_rolled_up=True) == [one.summary]
    await store.apply([summed("p", one.summary.summary_id, level=2, summary_id="top")])
    assert [s.summary_id for s in await store.summaries("p", not_rolled_up=True)] == ["top"]


async def test_raw_history_is_what_no_summary_covers(store: Store) -> None:
    """Code points of completed turns; 0, not nothing, for none."""
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


# --- forks ------------------------------------------------------------------


async def test_a_fork_shares_its_parents_turns(store: Store) -> None:
    """By reference, up to the fork; indexes go on; neither sees what the other adds."""
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
    """Recursively, also when it was made before its parent's own turns."""
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
    """It is one turn, wherever it is seen."""
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


async def test_a_fork_never_begins_beyond_its_parent(store: Store) -> None:
    """Without an index, or with one too large, it begins at the newest turn."""
    await store.apply([created("p"), *whole_turn("p"), *whole_turn("p")])
    forks = [
        created(f"forked at {index}", parent_session_id="p", forked_at_index=index)
        for index in (None, 2, 99)
    ]
    await store.apply(forks)
    await store.apply(whole_turn("p"))
    for fork in forks:
        f, t = fork.session.session_id, f"turn of {fork.session.session_id}"
        assert (await store.apply([begun(f, t), fork])).turn_indexes == {t: 3}
        assert (await store.session(f)).forked_at_index == 2
        assert [turn.turn_index for turn in await store.turns(f)] == [1, 2, 3]


async def test_a_deleted_forks_summaries_go_with_it(store: Store) -> None:
    """What only they had digested is to be digested again; whoever was at it is no more."""
    await store.apply([created("s"), *whole_turn("s", "t")])
    await store.apply([created("f", parent_session_id="s", forked_at_index=1)])
    await store.apply([summed("f", "t", summary_id="sum")])
    assert await waiting(store, "level1") == []
    keys = ["vectors:1:sum", "thread:0:f", "roll_up:1:f", "vectors:0:t"]
    assert await store.claim(keys, "dead", seconds=60) == keys
    inner = await archive(store)
    await inner.delete_session("f")
    assert await store.claim(keys, "alive", seconds=60) == keys[:3]
    assert await waiting(store, "level1") == ["t"]
    assert await inner.check() == []


async def test_a_fork_at_the_very_beginning(store: Store) -> None:
    await store.apply([created("p"), *whole_turn("p")])
    await store.apply([created("f", parent_session_id="p", forked_at_index=0)])
    assert await store.turns("f") == []
    session = await store.session("f")
    assert (session.turn_count, session.message_count, session.last_message) == (0, 0, None)
    assert (await store.apply([begun("f", "t")])).turn_indexes == {"t": 1}
