"""Threads and what is embedded of them, on each implementation: what section E says of them."""

from ragmem.ids import new_id
from ragmem.memory.summaries.digest import clip_sentences
from ragmem.records import MEMORY_LEVEL, PutMemory, PutProfile, PutVectors, UpdateSession
from ragmem.store.base import SessionQuery, Store
from ragmem.store.memories import MemoryQuery
from ragmem.store.recall import Scope, SearchQuery
from ragmem.text import estimate_tokens
from tests.store.samples import at, created, remembered, said, whole_turn
from tests.store.test_contract_recall import EAST, MARK, NORTH, UP, embedded


async def test_one_summary_of_each_thread(store: Store) -> None:
    """One a session, replaced by the next; its tokens follow from its length."""
    await store.apply([created("s"), created("r"), *whole_turn("s", "t1")])
    text = "They spoke of ferns. " * 40
    for number, summary in enumerate(("Ferns.", clip_sentences(text, 4 * 50))):
        await store.apply([UpdateSession(session_id="s", summary=summary, at=at(20 + number))])
        held = await store.session("s")
        assert held.summary == summary
        assert held.updated_at == at(20 + number)
    assert 0 < estimate_tokens(len(held.summary or "")) <= 50
    assert (await store.session("r")).summary is None
    assert [one.summary for one in await store.sessions(SessionQuery()) if one.summary] == [
        held.summary
    ]


async def test_what_a_chunk_is_here(store: Store) -> None:
    """An id, its thread, its text, a vector as long as the embedder's, its time;
    nearest first by the vector, found by its words without one."""
    await store.use_embedder(MARK)
    await store.apply(
        [
            created("s"),
            created("r"),
            *whole_turn("s", "t1", "ferns like shade", started_at=at(1)),
            *whole_turn("s", "t2", "hostas like rain", started_at=at(2)),
            *whole_turn("r", "t3", "mint likes all of it", started_at=at(3)),
            remembered("m", evidence=(said("s", "t1"),)),
        ]
    )
    vectors = [embedded("t1", UP), embedded("t2", NORTH), embedded("t3", EAST)]
    memory = PutVectors(
        record_id="m", level=MEMORY_LEVEL, embedder=MARK.model_id, text_hash="h", vectors=(UP,)
    )
    await store.apply([*vectors, memory])
    query = SearchQuery(vector=UP, embedder=MARK.model_id, limit=10)
    found = await store.search(query)
    nearest = max(found, key=lambda one: one.similarity or -1.0)
    assert (nearest.record_id, nearest.session_id, nearest.at) == ("t1", "s", at(1))
    one_thread = await store.search(
        SearchQuery(vector=UP, embedder=MARK.model_id, scope=Scope(session_ids=("r",)), limit=10)
    )
    assert {one.record_id for one in one_thread} == {"t3"}
    # A vector of another length is no vector here.
    longer = PutVectors(
        record_id="t1", level=0, embedder=MARK.model_id, text_hash="x", vectors=(UP + UP,)
    )
    await store.apply([longer])
    again = await store.search(query)
    assert max(again, key=lambda one: one.similarity or -1.0).record_id == "t1"
    [turn] = await store.turns_by_id(["t1"])
    assert turn.user_message == "ferns like shade"


async def test_the_four_things_that_a_memory_service_does(store: Store) -> None:
    """Keep, look for, list, remove."""
    memory = new_id()
    await store.apply([remembered(memory, "Ferns like shade.")])
    assert [one.memory_id for one in await store.memories(MemoryQuery(everywhere=True))] == [memory]
    assert [one.memory_id for one in await store.find_memories(memory[-8:])] == [memory]
    assert await store.forget_memories([memory]) == 1
    assert await store.memories(MemoryQuery(everywhere=True, with_superseded=True)) == []


async def test_one_person_many_threads(store: Store) -> None:
    """The profile and what is the person's are one for all threads."""
    mine = remembered("mine", "David is my brother.", project_id=None)
    await store.apply(
        [created("s"), created("r"), PutProfile(key="name", value="Ana", at=at(1)), mine]
    )
    assert isinstance(mine, PutMemory)
    assert (await store.profile()).values == {"name": "Ana"}
    for project_id in ("project-garden", "project-kitchen"):
        known = await store.memories(MemoryQuery(project_ids=(project_id,)))
        assert [one.memory_id for one in known] == ["mine"]
