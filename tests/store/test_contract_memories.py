"""What memories ask of every Store (see `ragmem.store`), on each implementation.

Where the protocol leaves room, it is decided here:

- `superseded_by` may name a memory that is not here: moved later, or forgotten. It links all the
  same as soon as that one comes; a memory that is superseded itself supersedes nothing.
- What a memory superseded that goes with its session is then superseded by what superseded that
  one; where nothing did, it is current again.
- A memory keeps its vector while it is superseded, but does not wait for one.
- Evidence may name sessions and turns that are not here. Subjects are compared as they are
  stored, those of a question casefolded.
- A memory of a project that was joined to another is told with that one's id.
- `PutProfile` sets `updated_at` to the latest `at` that was given.
"""

import asyncio
from typing import cast

import msgspec
import pytest

from ragmem.errors import SessionNotFound
from ragmem.ids import new_id
from ragmem.records import (
    MEMORY_LEVEL,
    SESSION_LEVEL,
    Attempts,
    EmbedderMark,
    Insight,
    MarkExtracted,
    MemoryQuery,
    MemoryRecord,
    Pending,
    Profile,
    PutMemory,
    PutProfile,
    PutSession,
    PutTurn,
    PutVectors,
    Span,
    UpdateSession,
    Write,
)
from ragmem.store import Archive, Store
from ragmem.store.spool import SpooledStore
from tests.store.conftest import OpenStore
from tests.store.samples import (
    a_memory,
    a_session,
    at,
    begun,
    called,
    created,
    finished,
    insight,
    project,
    remembered,
    said,
    summed,
    whole_turn,
)
from tests.store.seen import seen
from tests.store.test_contract_recall import EAST, MARK, NORTH, UP, embedded, waiting

replace = msgspec.structs.replace
GARDEN, KITCHEN = "project-garden", "project-kitchen"
ALL = MemoryQuery(everywhere=True, with_superseded=True)
CURRENT = MemoryQuery(everywhere=True)


async def archive(store: Store) -> Archive:
    """The store itself, where the one in hand is a spool before it."""
    return cast("Archive", await store.inner() if isinstance(store, SpooledStore) else store)


async def ids(store: Store, query: MemoryQuery = CURRENT) -> list[str]:
    return [memory.memory_id for memory in await store.memories(query)]


async def one(store: Store, memory_id: str) -> MemoryRecord:
    [memory] = await store.get(MemoryRecord, [memory_id])
    return memory


def whole(memory_id: str = "whole") -> MemoryRecord:
    """Every field is set."""
    return a_memory(
        memory_id,
        "Ana decided on ferns 🌿: « à l'ombre ».",
        kind="decision",
        subjects=("fougères", "ana", "north bed"),
        trust="tool",
        source="chat",
        pinned=True,
        created_at=at(10),
        updated_at=at(11),
        at=at(-5),
        expires_at=at(10_000),
        evidence=(
            said("s", "t2", "the second first", turn_index=2, at=at(4)),
            said("s", "t1", "ferns, then", tool_call_id="c1", tool_name="read_file",
                 path="beds/north.txt", at=at(3)),
            said("", "", "from nowhere in particular", turn_index=0, at=at(9)),
            said("s", "t1", "said twice in one turn", at=at(3)),
        ),
    )  # fmt: skip


async def conversation(store: Store) -> None:
    """Two sessions of the garden with two turns each, and one of the kitchen."""
    writes: list[Write] = []
    for name, project_id in (("s", GARDEN), ("r", GARDEN), ("k", KITCHEN)):
        writes.append(created(name, project_id=project_id))
        for number in (1, 2):
            turn = f"t{number}" if name == "s" else f"{name}{number}"
            writes += whole_turn(name, turn, f"{turn}?", started_at=at(number))
    await store.apply(writes)


# --- one memory -------------------------------------------------------------------------


async def test_a_memory_is_told_as_it_was_given(store: Store) -> None:
    """Every field, evidence in its order."""
    await conversation(store)
    given = [whole(), a_memory("bare", subjects=(), project_id=None)]
    await store.apply([PutMemory(memory=memory) for memory in given])
    assert await store.memories(CURRENT) == given
    for memory in given:
        assert await store.get(MemoryRecord, [memory.memory_id]) == [memory]
        assert await store.find_memories(memory.memory_id) == [memory]


async def test_evidence_need_not_be_here(store: Store) -> None:
    """Of a session that is not here (any more, or not yet) it stays what it says."""
    memory = a_memory("m", evidence=(said("gone", "never-was", tool_call_id="nor-this"),))
    await store.apply([PutMemory(memory=memory)])
    assert await one(store, "m") == memory
    assert await ids(store, replace(CURRENT, session_ids=("gone",))) == ["m"]
    assert await (await archive(store)).check() == []


async def test_the_same_id_again_replaces_it(store: Store) -> None:
    """Everything of it, its evidence and subjects too; nothing is left of what it said."""
    await conversation(store)
    await store.apply([PutMemory(memory=whole("m"))])
    other = a_memory("m", "Hostas it is.", subjects=("hostas",), evidence=(said("r", "r1"),))
    await store.apply([PutMemory(memory=other)])
    assert await store.memories(ALL) == [other]
    assert await ids(store, replace(CURRENT, subjects=("ana",))) == []
    assert await ids(store, replace(CURRENT, subjects=("hostas",))) == ["m"]
    assert await ids(store, replace(CURRENT, session_ids=("s",))) == []
    assert await ids(store, replace(CURRENT, session_ids=("r",))) == ["m"]


async def test_any_text_at_all(store: Store) -> None:
    """NUL, half a character, emoji, a megabyte; in every text that there is."""
    odd = "a\0b half \ud83d whole 🌿 " + "x" * 1_000_000
    kept = "ab half � whole 🌿 " + "x" * 1_000_000
    short = odd[:20]
    evidence = said("s\0", "t", short, tool_name=short, path=short)
    await store.apply(
        [
            created("s"),
            remembered("m", odd, subjects=(short, "b"), evidence=(evidence,)),
            PutProfile(key=short, value=odd, at=at(1)),
            insight("s", short, key_findings=(odd,), action_items=(short,)),
        ]
    )  # fmt: skip
    memory = await one(store, "m")
    clean = kept[:19]
    assert (memory.content, memory.subjects) == (kept, (clean, "b"))
    assert memory.evidence == (
        replace(evidence, session_id="s", quote=clean, tool_name=clean, path=clean),
    )
    assert (await store.profile()).values == {clean: kept}
    assert await store.get(Insight, ["s"]) == [
        insight("s", clean, key_findings=(kept,), action_items=(clean,)).insight
    ]
    assert await ids(store, replace(CURRENT, subjects=(short,))) == ["m"]


# --- what takes whose place -------------------------------------------------------------


async def chain(store: Store) -> None:
    """David lived in Ordizan, then Toulouse, then Pau; and something else is known too."""
    await store.apply(
        [
            remembered("1-ordizan", "David lives in Ordizan", created_at=at(1)),
            remembered("other", "David has a dog", created_at=at(1)),
            remembered(
                "2-toulouse", "David moved to Toulouse", created_at=at(2), supersedes=("1-ordizan",)
            ),
            remembered("3-pau", "David is in Pau", created_at=at(3), supersedes=("2-toulouse",)),
        ]
    )


async def test_an_update_supersedes(store: Store) -> None:
    """The new one is current, the old one stays reachable, with its end."""
    await chain(store)
    assert await ids(store) == ["3-pau", "other"]
    assert await ids(store, ALL) == ["3-pau", "2-toulouse", "other", "1-ordizan"]
    old, newer, newest = await store.get(MemoryRecord, ["1-ordizan", "2-toulouse", "3-pau"])
    assert (old.superseded_by, old.valid_until) == ("2-toulouse", at(2))
    assert (newer.superseded_by, newer.valid_until) == ("3-pau", at(3))
    assert (newest.superseded_by, newest.valid_until) == (None, None)
    assert old.updated_at == at(1)
    assert not old.is_current(at(9))
    assert newest.is_current(at(9))


async def test_the_chain_of_a_memory(store: Store) -> None:
    """What it took the place of, and what that did; newest first."""
    await chain(store)
    older = await store.get(MemoryRecord, ["2-toulouse", "1-ordizan"])
    assert await store.superseded_by("3-pau") == older
    assert await store.superseded_by("2-toulouse") == older[1:]
    assert await store.superseded_by("1-ordizan") == []
    assert await store.superseded_by("no-such") == []


async def test_one_may_take_the_place_of_several(store: Store) -> None:
    """Of all that said the same."""
    await store.apply([remembered("a", created_at=at(1)), remembered("b", created_at=at(2))])
    await store.apply([remembered("c", created_at=at(3), supersedes=("a", "b"))])
    assert await ids(store) == ["c"]
    assert [m.memory_id for m in await store.superseded_by("c")] == ["b", "a"]


async def test_what_is_superseded_is_left_as_it_is(store: Store) -> None:
    """By whom comes second, and by what is put again."""
    await store.apply([remembered("a", created_at=at(1))])
    await store.apply([remembered("b", created_at=at(2), supersedes=("a",))])
    await store.apply([remembered("c", created_at=at(3), supersedes=("a",))])
    assert await ids(store) == ["c", "b"]
    assert (await one(store, "a")).superseded_by == "b"
    # It is put again as it was before, with something changed.
    await store.apply([remembered("a", created_at=at(1), pinned=True)])
    held = await one(store, "a")
    assert (held.superseded_by, held.valid_until, held.pinned) == ("b", at(2), True)


async def test_to_supersede_what_is_gone(store: Store) -> None:
    """The new one is kept all the same; nor does one take its own place."""
    await store.apply([remembered("b", supersedes=("gone", "b"))])
    assert await ids(store) == ["b"]
    assert await store.superseded_by("b") == []


async def test_what_is_superseded_takes_no_place_any_more(store: Store) -> None:
    """A late write makes no circle, in which nothing would be current."""
    await store.apply([remembered("a", created_at=at(1))])
    await store.apply([remembered("b", created_at=at(2), supersedes=("a",))])
    await store.apply([remembered("a", created_at=at(1), supersedes=("b",))])
    assert await ids(store) == ["b"]


async def test_one_that_says_itself_what_took_its_place(store: Store) -> None:
    """Moved from another store, in whichever order, the chain is the same."""
    for number, order in enumerate((1, -1)):
        old, new = f"old-{number}", f"new-{number}"
        put = remembered(old, created_at=at(1), superseded_by=new, valid_until=at(2))
        for write in [put, remembered(new, created_at=at(3 - number))][::order]:
            await store.apply([write])
        assert await store.superseded_by(new) == [put.memory]
    assert await ids(store) == ["new-0", "new-1"]
    assert await (await archive(store)).check() == []


async def test_circles_from_elsewhere_end(store: Store) -> None:
    """Whatever a file says."""
    await store.apply(
        [
            remembered("a", created_at=at(1), superseded_by="b", valid_until=at(2)),
            remembered("b", created_at=at(2), superseded_by="a", valid_until=at(3)),
        ]
    )
    assert [m.memory_id for m in await store.superseded_by("a")] == ["b"]
    assert sorted(await (await archive(store)).ids(MemoryRecord)) == ["a", "b"]
    assert await store.forget_memories(["a"]) == {"memories": 2}


async def test_many_at_once_supersede_one(open_store: OpenStore) -> None:
    """Two processes' worth of handles and more; one takes its place, none is lost."""
    stores = [await open_store() for _ in range(4)]
    await stores[0].apply([remembered("old", created_at=at(0))])

    async def write(number: int) -> None:
        for i in range(4):
            name = f"{number}-{i}"
            await stores[number].apply(
                [remembered(name, created_at=at(1 + i), supersedes=("old",), evidence=(
                    said("s", name),)), PutProfile(key=name, value="x", at=at(i))]
            )  # fmt: skip

    await asyncio.gather(*(write(number) for number in range(4)))
    assert len(await ids(stores[0])) == 16
    old = await one(stores[1], "old")
    assert old.superseded_by is not None
    first = await one(stores[2], old.superseded_by)
    assert old.valid_until == first.created_at
    chains = [await stores[0].superseded_by(each) for each in await ids(stores[0])]
    assert [memory for chain in chains for memory in chain] == [old]
    assert len((await stores[3].profile()).values) == 16
    assert await (await archive(stores[0])).check() == []


# --- queries ----------------------------------------------------------------------------


async def several(store: Store) -> None:
    await conversation(store)
    await store.apply(
        [
            remembered("ferns", kind="rule", created_at=at(1), evidence=(said("s", "t1"),)),
            remembered("jam", project_id=KITCHEN, subjects=("jam", "été"), created_at=at(2),
                       evidence=(said("k", "k1"), said("s", "t2"))),
            remembered("ana", project_id=None, kind="preference", subjects=("ana",), pinned=True,
                       created_at=at(3), evidence=(said("r", "r1"),)),
            remembered("due", kind="deadline", subjects=("north bed",), created_at=at(4),
                       expires_at=at(100), at=at(90)),
            remembered("old", created_at=at(0)),
            remembered("newer", created_at=at(4), supersedes=("old",), pinned=True),
        ]
    )  # fmt: skip


QUERIES: list[tuple[MemoryQuery, str]] = [
    (MemoryQuery(), "ana"),
    (MemoryQuery(user_wide=False), ""),
    (MemoryQuery(project_ids=(GARDEN,)), "newer due ana ferns"),
    (MemoryQuery(project_ids=(GARDEN,), user_wide=False), "newer due ferns"),
    (MemoryQuery(project_ids=(KITCHEN, GARDEN), user_wide=False), "newer due jam ferns"),
    (MemoryQuery(project_ids=("no-such",)), "ana"),
    (CURRENT, "newer due ana jam ferns"),
    (replace(CURRENT, user_wide=False), "newer due ana jam ferns"),
    (ALL, "newer due ana jam ferns old"),
    (replace(CURRENT, kinds=("deadline", "rule")), "due ferns"),
    (replace(CURRENT, kinds=("failure",)), ""),
    (replace(CURRENT, subjects=("ana", "jam")), "ana jam"),
    (replace(CURRENT, subjects=("ANA",)), "ana"),
    (replace(CURRENT, subjects=("north",)), ""),
    (replace(CURRENT, subjects=("éTÉ",)), "jam"),
    (replace(CURRENT, session_ids=("s",)), "jam ferns"),
    (replace(CURRENT, session_ids=("no",)), ""),
    (replace(CURRENT, session_ids=("no", "s")), "jam ferns"),
    (replace(CURRENT, pinned=True), "newer ana"),
    (replace(CURRENT, pinned=False), "due jam ferns"),
    (replace(CURRENT, alive_at=at(99)), "newer due ana jam ferns"),
    (replace(CURRENT, alive_at=at(100)), "newer ana jam ferns"),
    (replace(CURRENT, limit=2), "newer due"),
    (replace(CURRENT, limit=0), ""),
    (
        MemoryQuery(
            project_ids=(GARDEN,), kinds=("rule", "fact"), subjects=("shade",), pinned=False,
            session_ids=("s", "no"), alive_at=at(0), limit=5,
        ),
        "ferns",
    ),
]  # fmt: skip


async def test_queries(store: Store) -> None:
    """By project, kind, subject, session; newest first, then by id."""
    await several(store)
    for query, expected in QUERIES:
        assert await ids(store, query) == expected.split(), query


async def test_joined_projects_know_the_same(store: Store) -> None:
    """Those that are there and those to come, whichever id is given."""
    await store.apply([project("p"), project("q"), remembered("a", project_id="p")])
    await store.apply([remembered("own", project_id=None)])
    await store.apply([project("p", "q"), remembered("b", project_id="p", created_at=at(9))])
    for project_id in ("p", "q"):
        assert await ids(store, MemoryQuery(project_ids=(project_id,))) == ["b", "own", "a"]
    assert {m.project_id for m in await store.memories(ALL)} == {"q", None}
    await store.apply([remembered("a", project_id="p", pinned=True)])
    assert (await one(store, "a")).project_id == "q"
    assert await (await archive(store)).check() == []


async def test_many_are_kept(store: Store) -> None:
    """There is no maximum."""
    count = 1_200
    await store.apply(
        [remembered(f"m{n:04}", f"fact {n}", created_at=at(n % 7)) for n in range(count)]
    )
    found = await store.memories(CURRENT)
    assert len(found) == count
    order = [(memory.created_at, memory.memory_id) for memory in found]
    assert order == sorted(order, reverse=True)
    everything = [f"m{n:04}" for n in range(count)]
    assert [m.memory_id for m in await store.get(MemoryRecord, everything)] == everything


async def test_by_id(store: Store) -> None:
    """Superseded ones too; those that exist, in this order."""
    await chain(store)
    found = await store.get(MemoryRecord, ["other", "no-such", "1-ordizan"])
    assert [memory.memory_id for memory in found] == ["other", "1-ordizan"]
    assert await store.get(MemoryRecord, []) == []


async def test_by_the_tail_of_an_id(store: Store) -> None:
    """As ids are shown: whole, or their end; `%` and `_` are no jokers."""
    first, second = new_id(), new_id()
    await store.apply([remembered(first, created_at=at(1)), remembered(second, created_at=at(2))])
    await store.apply([remembered("third", created_at=at(3), supersedes=(first,))])

    async def found(reference: str) -> list[str]:
        return [m.memory_id for m in await store.find_memories(reference)]

    assert await found(first) == [first]
    assert await found(first.replace("-", "")) == [first]
    assert await found(second[-8:]) == [second]
    assert await found(second[-15:]) == [second]
    assert await found("ird") == ["third"]
    for reference in ("", "-", "%", "_", "*", "thi", "no-such", "'", "\\", ".", "\ud83d"):
        assert await found(reference) == [], reference
    await store.apply([remembered(f"{n}-same", created_at=at(n)) for n in range(22)])
    assert await found("same") == [f"{n}-same" for n in range(21, 1, -1)]


# --- vectors ----------------------------------------------------------------------------


def vector(record_id: str, *vectors: bytes, level: int = MEMORY_LEVEL, **more: str) -> Write:
    return embedded(record_id, *vectors, level=level, **more)


async def due(store: Store) -> set[tuple[str, str, int]]:
    """What waits for vectors: session, record and level."""
    items = await store.pending("vectors", limit=100)
    assert all(item.work == "vectors" for item in items)
    return {(item.session_id, item.record_id, item.level) for item in items}


async def test_memories_wait_for_vectors(store: Store) -> None:
    """Those that are current; they belong to no session."""
    await store.apply([created("s"), remembered("a"), remembered("b", created_at=at(9))])
    assert await store.pending("vectors", limit=9) == [
        Pending(work="vectors", session_id="", record_id=name, level=MEMORY_LEVEL)
        for name in ("b", "a")
    ]
    assert len(await store.pending("vectors", limit=1)) == 1
    await store.apply([remembered("c", supersedes=("b",), created_at=at(10))])
    assert await due(store) == {("", "a", -1), ("", "c", -1)}
    assert (await store.count_pending())["vectors"] == 2


async def test_vectors_of_memories(store: Store) -> None:
    """Kept exactly, by embedder and level; put twice is put once."""
    await store.apply([remembered("a"), remembered("b"), created("s")])
    await store.use_embedder(MARK)
    for _ in range(2):
        await store.apply([vector("a", EAST, text_hash="one")])
        assert await store.small_vectors(["b", "a", "no"], MEMORY_LEVEL, "model-a") == {"a": EAST}
        assert await due(store) == {("", "b", -1)}
    await store.apply([vector("a", UP, text_hash="two"), vector("b", NORTH)])
    assert await store.small_vectors(["a", "b"], -1, "model-a") == {"a": UP, "b": NORTH}
    assert await store.small_vectors(["a"], SESSION_LEVEL, "model-a") == {}
    assert await store.small_vectors(["a"], MEMORY_LEVEL, "model-b") == {}
    assert await store.small_vectors([], MEMORY_LEVEL, "model-a") == {}
    assert await due(store) == set()
    assert await (await archive(store)).get(PutVectors, ["b", "no", "a"]) == [
        vector("b", NORTH), vector("a", UP, text_hash="two"),
    ]  # fmt: skip


async def test_a_memory_without_a_text_has_no_vector(store: Store) -> None:
    """As a turn of which nothing can be embedded: it does not wait for ever."""
    await store.apply([remembered("a")])
    await store.use_embedder(MARK)
    await store.apply([vector("a")])
    assert await due(store) == set()
    assert await store.small_vectors(["a"], MEMORY_LEVEL, "model-a") == {}
    assert await (await archive(store)).get(PutVectors, ["a"]) == [vector("a")]


async def test_a_changed_memory_loses_its_vector(store: Store) -> None:
    """When it says something else; not when it is pinned, or put again as it is."""
    await store.apply([remembered("a", "one", subjects=("x", "y"))])
    await store.use_embedder(MARK)
    await store.apply([vector("a", EAST)])
    same: list[dict[str, object]] = [
        {}, {"pinned": True}, {"kind": "rule"}, {"expires_at": at(99)}, {"project_id": None},
        {"evidence": (said("s", "t"),)}, {"updated_at": at(50)},
    ]  # fmt: skip
    for changes in same:
        await store.apply([remembered("a", "one", **{"subjects": ("x", "y")} | changes)])  # type: ignore[arg-type]
        assert await store.small_vectors(["a"], MEMORY_LEVEL, "model-a") == {"a": EAST}, changes
        assert await due(store) == set()
    for content, subjects in (("two", ("x", "y")), ("two", ("y",))):
        await store.apply([remembered("a", content, subjects=subjects)])
        assert await store.small_vectors(["a"], MEMORY_LEVEL, "model-a") == {}
        assert await due(store) == {("", "a", -1)}
        await store.apply([vector("a", EAST)])
        assert await due(store) == set()
    assert await (await archive(store)).check() == []


async def test_superseded_memories_do_not_wait(store: Store) -> None:
    """They are never recalled; a vector that there is stays."""
    await store.apply([remembered("a", created_at=at(1)), remembered("b", created_at=at(1))])
    await store.use_embedder(MARK)
    await store.apply([vector("a", EAST)])
    await store.apply([remembered("c", supersedes=("a", "b"), created_at=at(2))])
    assert await due(store) == {("", "c", -1)}
    assert await store.small_vectors(["a", "b"], MEMORY_LEVEL, "model-a") == {"a": EAST}
    await store.apply([remembered("b", "changed", created_at=at(1))])
    assert await due(store) == {("", "c", -1)}
    await store.apply([vector("b", NORTH)])  # moved from another store
    assert await store.small_vectors(["b"], MEMORY_LEVEL, "model-a") == {"b": NORTH}


async def test_vectors_of_sessions(store: Store) -> None:
    """Of a session's summary; it is lost when the summary changes, and only then."""
    await store.apply([created("s"), created("r")])
    assert await due(store) == set()
    await store.use_embedder(MARK)
    await store.apply([vector("s", EAST, level=SESSION_LEVEL)])
    assert await store.small_vectors(["s"], SESSION_LEVEL, "model-a") == {}
    await store.apply([UpdateSession(session_id="s", summary="Ferns.", at=at(1))])
    assert await due(store) == {("s", "s", -2)}
    await store.apply([vector("s", EAST, level=SESSION_LEVEL, text_hash="x")])
    assert await due(store) == set()
    for write in (
        UpdateSession(session_id="s", summary="Ferns.", summarized_count=4, at=at(2)),
        UpdateSession(session_id="s", title="Shade", tags=("x",), at=at(3)),
        *whole_turn("s", "t"),
        MarkExtracted(turn_ids=("t",)),
    ):
        await store.apply([write])
        held = await store.small_vectors(["r", "s"], SESSION_LEVEL, "model-a")
        assert held == {"s": EAST}, write
    assert await (await archive(store)).get(PutVectors, ["s"]) == [
        vector("s", EAST, level=SESSION_LEVEL, text_hash="x")
    ]
    await store.apply([UpdateSession(session_id="s", summary="Hostas.", at=at(4))])
    assert await store.small_vectors(["s"], SESSION_LEVEL, "model-a") == {}
    assert ("s", "s", -2) in await due(store)
    assert await (await archive(store)).check() == []


async def test_a_session_that_was_put_waits_too(store: Store) -> None:
    """Moved or imported with its summary; put again as it is, it keeps its vector."""
    put = PutSession(session=a_session("s", summary="Ferns."))
    await store.apply([put])
    assert await due(store) == {("s", "s", -2)}
    await store.use_embedder(MARK)
    await store.apply([vector("s", UP, level=SESSION_LEVEL), put])
    assert await due(store) == set()
    later = a_session("s", summary="Hostas.", updated_at=at(1))
    await store.apply([PutSession(session=later)])
    assert await due(store) == {("s", "s", -2)}
    await store.apply([vector("s", UP, level=SESSION_LEVEL), put])  # the older one changes nothing
    assert await due(store) == set()


async def test_vectors_of_no_record_or_another_model_are_left_out(store: Store) -> None:
    """Nor those of another length."""
    await store.apply([remembered("a"), created("s", summary="Ferns.")])
    await store.apply([vector("a", EAST)])  # nobody said yet which embedder it is
    assert await store.embedder() is None
    await store.use_embedder(MARK)
    await store.apply(
        [
            vector("no-such", EAST),
            vector("no-such", EAST, level=SESSION_LEVEL),
            vector("a", EAST, embedder="model-b"),
            vector("a", EAST[:8]),
            vector("a", EAST, level=SESSION_LEVEL),
            vector("s", EAST),
        ]
    )
    for level in (MEMORY_LEVEL, SESSION_LEVEL):
        assert await store.small_vectors(["no-such", "a", "s"], level, "model-a") == {}
    assert ("", "a", -1) in await due(store)
    assert await (await archive(store)).check() == []


async def test_another_embedder_drops_small_vectors_too(store: Store) -> None:
    """All of them wait again, but for what is superseded."""
    await store.apply([remembered("a"), remembered("b"), remembered("c", supersedes=("b",))])
    await store.apply([created("s"), UpdateSession(session_id="s", summary="Ferns.", at=at(1))])
    await store.use_embedder(MARK)
    names = ("a", "b", "c")
    await store.apply([vector(name, EAST) for name in names])
    await store.apply([vector("s", EAST, level=SESSION_LEVEL)])
    await store.use_embedder(MARK)
    assert await due(store) == set()
    await store.use_embedder(EmbedderMark("model-b", 4))
    assert await due(store) == {("", "a", -1), ("", "c", -1), ("s", "s", -2)}
    for embedder in ("model-a", "model-b"):
        assert await store.small_vectors(names, MEMORY_LEVEL, embedder) == {}
        assert await store.small_vectors(["s"], SESSION_LEVEL, embedder) == {}
    assert await (await archive(store)).get(PutVectors, [*names, "s"]) == []


# --- the profile and insights -----------------------------------------------------------


async def test_a_profile_is_kept_by_key(store: Store) -> None:
    """Set, replaced, removed; each alone, the others stay."""
    assert await store.profile() == Profile()
    await store.apply([PutProfile(key="name", value="Ana 🌿", at=at(1))])
    await store.apply([PutProfile(key="editor", value="vim", at=at(2))])
    assert await store.profile() == Profile(
        values={"name": "Ana 🌿", "editor": "vim"}, updated_at=at(2)
    )
    for _ in range(2):
        await store.apply([PutProfile(key="editor", value="helix", at=at(3))])
        assert (await store.profile()).values == {"name": "Ana 🌿", "editor": "helix"}
    for _ in range(2):
        await store.apply([PutProfile(key="editor", value=None, at=at(4))])
        assert await store.profile() == Profile(values={"name": "Ana 🌿"}, updated_at=at(4))
    await store.apply([PutProfile(key="never-was", value=None, at=at(5))])
    assert (await store.profile()).values == {"name": "Ana 🌿"}
    await store.apply([PutProfile(key="odd 'key' \"`{}.$\\", value="", at=at(1))])
    assert await store.profile() == Profile(
        values={"name": "Ana 🌿", "odd 'key' \"`{}.$\\": ""}, updated_at=at(5)
    )


async def test_a_profile_is_one_in_a_store(open_store: OpenStore) -> None:
    """Also for two that write it at once."""
    first, second = await open_store(), await open_store()
    await asyncio.gather(
        *(
            store.apply([PutProfile(key=f"{name}{n}", value=str(n), at=at(n))])
            for name, store in (("a", first), ("b", second))
            for n in range(10)
        )
    )
    profile = await first.profile()
    assert len(profile.values) == 20
    assert profile.updated_at == at(9)
    assert await second.profile() == profile


async def test_insights(store: Store) -> None:
    """One a session; what is found later replaces it."""
    await store.apply([created("s"), created("r"), created("k")])
    await store.apply([insight("s", "before"), insight("r", key_findings=(), action_items=())])
    for _ in range(2):
        await store.apply([insight("s", created_at=at(6))])
        assert await store.get(Insight, ["k", "s", "no-such", "r"]) == [
            insight("s", created_at=at(6)).insight,
            insight("r", key_findings=(), action_items=()).insight,
        ]
    assert await store.get(Insight, []) == []
    with pytest.raises(SessionNotFound, match="no-such"):
        await store.apply([insight("no-such")])


# --- what goes --------------------------------------------------------------------------


async def test_forgotten_memories_are_gone(store: Store) -> None:
    """With what they took the place of, their evidence and vectors."""
    await conversation(store)
    await chain(store)
    await store.apply([PutMemory(memory=whole("w"))])
    await store.use_embedder(MARK)
    await store.apply([vector(name, EAST) for name in ("w", "3-pau", "1-ordizan", "other")])
    before = await seen(store)
    assert await store.forget_memories(["no-such"]) == {"memories": 0}
    assert await store.forget_memories([]) == {"memories": 0}
    assert await seen(store) == before
    assert await store.forget_memories(["3-pau", "w", "w"]) == {"memories": 4}
    assert await ids(store, ALL) == ["other"]
    gone = ["w", "3-pau", "2-toulouse", "1-ordizan"]
    assert await store.get(MemoryRecord, gone) == []
    assert await store.small_vectors([*gone, "other"], MEMORY_LEVEL, "model-a") == {"other": EAST}
    assert await store.find_memories("pau") == []
    assert await ids(store, replace(ALL, subjects=("ana",))) == []
    assert await ids(store, replace(ALL, session_ids=("s",))) == []
    assert (await store.info()).counts["memories"] == 1
    assert len(await store.turns("s")) == 2
    assert await store.forget_memories(["3-pau"]) == {"memories": 0}
    assert await (await archive(store)).check() == []


async def test_the_middle_of_a_chain_is_forgotten(store: Store) -> None:
    """What took its place stays."""
    await chain(store)
    assert await store.forget_memories(["2-toulouse"]) == {"memories": 2}
    assert await ids(store, ALL) == ["3-pau", "other"]
    assert await store.superseded_by("3-pau") == []


async def test_what_was_forgotten_can_be_told_anew(store: Store) -> None:
    """Under its old id too; its vector is not there again."""
    await store.apply([remembered("a")])
    await store.use_embedder(MARK)
    await store.apply([vector("a", EAST)])
    await store.forget_memories(["a"])
    await store.apply([vector("a", EAST)])
    await store.apply([remembered("a")])
    assert await store.small_vectors(["a"], MEMORY_LEVEL, "model-a") == {}
    assert await due(store) == {("", "a", -1)}


async def test_a_deleted_session_takes_along_what_only_it_said(store: Store) -> None:
    """Notes without evidence stay, and what was said elsewhere too."""
    await conversation(store)
    both = remembered("both", evidence=(said("s", "t1"), said("r", "r1"), said("s", "t2")))
    partly = remembered("partly", evidence=(said("s", "t1"), said("", "", "a note")))
    note = remembered("note", source="note")
    await store.apply(
        [
            remembered("only", evidence=(said("s", "t1"), said("s", "t2"))),
            both, partly, note,
            UpdateSession(session_id="s", summary="Ferns.", at=at(9)),
            insight("s"), insight("r"),
        ]
    )  # fmt: skip
    await store.use_embedder(MARK)
    await store.apply([vector("only", EAST), vector("both", EAST)])
    await store.apply([vector("s", EAST, level=SESSION_LEVEL)])
    tried = [
        Attempts(
            item=f"{kind}:{session_id}",
            session_id=session_id,
            model="small",
            count=count,
            not_before=at(count),
            problem="It holds no JSON.",
        )
        for kind, session_id, count in [("title", "s", 1), ("thread", "r", 3), ("title", "r", 2)]
    ]
    for each in tried:
        await store.keep_attempts(each)
    assert await store.attempts() == [tried[0], tried[2], tried[1]]
    assert await store.attempts("title:r") == [tried[2]]
    assert await store.attempts(least=3) == [tried[1]]
    inner = await archive(store)
    went = await inner.delete_session("s")
    assert went["memories"] == 1
    assert await store.attempts() == [tried[2], tried[1]]
    await store.forget_attempts("r", "thread:r")
    assert await store.attempts() == [tried[2]]
    assert set(await ids(store, ALL)) == {"both", "partly", "note"}
    left, partly_left, _ = await store.get(MemoryRecord, ["both", "partly", "note"])
    assert left == replace(both.memory, evidence=(said("r", "r1"),))
    assert partly_left == replace(partly.memory, evidence=(said("", "", "a note"),))
    assert await store.small_vectors(["only", "both"], -1, "model-a") == {"both": EAST}
    assert await store.small_vectors(["s"], SESSION_LEVEL, "model-a") == {}
    assert await store.get(Insight, ["s", "r"]) == [insight("r").insight]
    assert ("s", "s", -2) not in await due(store)
    assert not set(await to_extract(store)) & {"t1", "t2"}
    assert await inner.check() == []
    assert (await inner.delete_session("k"))["memories"] == 0


async def test_what_a_deleted_memory_took_the_place_of(store: Store) -> None:
    """Is what took the deleted one's own place, or it is current again, and waits."""
    await conversation(store)
    said_in_s, said_in_r = (said("s", "t1"),), (said("r", "r1"),)
    await store.apply(
        [
            remembered("a", created_at=at(1), evidence=said_in_r),
            remembered("b", created_at=at(2), supersedes=("a",), evidence=said_in_s),
            remembered("c", created_at=at(3), supersedes=("b",), evidence=said_in_s),
            remembered("d", created_at=at(4), supersedes=("c",), evidence=said_in_r),
            remembered("x", created_at=at(1), evidence=said_in_r),
            remembered("y", created_at=at(2), supersedes=("x",), evidence=said_in_s),
            remembered("z", created_at=at(3), supersedes=("y",), evidence=said_in_s),
        ]
    )
    inner = await archive(store)
    assert (await inner.delete_session("s"))["memories"] == 4
    assert await ids(store) == ["d", "x"]
    assert [m.memory_id for m in await store.superseded_by("d")] == ["a"]
    assert (await one(store, "a")).valid_until == at(2)
    assert (await one(store, "x")).valid_until is None
    assert {("", "d", -1), ("", "x", -1)} <= await due(store)
    assert ("", "a", -1) not in await due(store)
    assert await inner.check() == []


# --- what is to be looked through -------------------------------------------------------


async def to_extract(store: Store) -> list[str]:
    return await waiting(store, "memories")


async def test_turns_that_are_complete_are_looked_through(store: Store) -> None:
    """Oldest first; each once."""
    await store.apply([created("s"), created("r"), begun("s", "t1", started_at=at(3))])
    assert await to_extract(store) == []
    await store.apply([finished("s", "t1")])
    await store.apply(whole_turn("r", "r1", started_at=at(1)))
    await store.apply(whole_turn("s", "t2", started_at=at(2)))
    assert await to_extract(store) == ["r1", "t2", "t1"]
    first = await store.pending("memories", limit=2)
    assert [item.record_id for item in first] == ["r1", "t2"]
    assert await store.pending("memories", limit=1) == [
        Pending(work="memories", session_id="r", record_id="r1")
    ]
    assert (await store.count_pending())["memories"] == 3
    for _ in range(2):
        await store.apply([MarkExtracted(turn_ids=("r1", "no-such", "t1"))])
        assert await to_extract(store) == ["t2"]
    # A replay of what is complete makes no new work.
    await store.apply([*whole_turn("r", "r1", started_at=at(1)), finished("s", "t1")])
    await store.apply([called("s", "t1", 0)])
    assert await to_extract(store) == ["t2"]
    assert await (await archive(store)).check() == []


async def test_only_what_is_complete_is_looked_through(store: Store) -> None:
    """Until it is complete after all."""
    await store.apply([created("s"), begun("s", "t"), finished("s", "t", status="interrupted")])
    await store.apply([begun("s", "u", started_at=at(1)), finished("s", "u", status="failed")])
    assert await to_extract(store) == []
    await store.apply([finished("s", "t"), finished("s", "u")])
    assert await to_extract(store) == ["t", "u"]


async def test_what_was_moved_here_is_not_looked_through(store: Store) -> None:
    """It was, where it came from."""
    await store.apply([created("s"), *whole_turn("s", "t1")])
    [done] = await store.turns("s")
    put = PutTurn(turn=replace(done, turn_id="t2", turn_index=2))
    running = replace(
        done, turn_id="t3", turn_index=3, status="running", assistant_message="", finished_at=None
    )
    await store.apply([put, PutTurn(turn=running)])
    assert await to_extract(store) == ["t1"]
    await store.apply([finished("s", "t3")])
    assert set(await to_extract(store)) == {"t1", "t3"}
    # What waits here goes on waiting when it comes back from a copy.
    await store.apply([PutTurn(turn=done)])
    assert set(await to_extract(store)) == {"t1", "t3"}


async def test_what_was_not_looked_through_yet_is_so_after_a_move(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s", "t1"), *whole_turn("s", "t2"), created("c")])
    await store.apply([MarkExtracted(turn_ids=("t1",))])
    puts = await (await archive(store)).own_turns([Span("s", 1, 2)])
    assert [put.to_extract for put in puts] == [False, True]
    await store.apply(
        [
            replace(put, turn=replace(put.turn, session_id="c", turn_id=f"{put.turn.turn_id}-copy"))
            for put in puts
        ]
    )
    assert await to_extract(store) == ["t2", "t2-copy"]


async def test_a_summary_is_nothing_to_look_through(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s", "t"), summed("s", "t")])
    await store.apply([MarkExtracted(turn_ids=("t",))])
    assert await to_extract(store) == []


# --- the store --------------------------------------------------------------------------


async def test_everything_by_id(store: Store) -> None:
    """Each stands after what it took the place of."""
    await store.apply([remembered("m5"), remembered("m1", created_at=at(9), supersedes=("m5",))])
    await store.apply([remembered("m9", created_at=at(0)), remembered("m4", supersedes=("m1",))])
    found = await (await archive(store)).ids(MemoryRecord)
    assert sorted(found) == ["m1", "m4", "m5", "m9"]
    assert found.index("m5") < found.index("m1") < found.index("m4")
