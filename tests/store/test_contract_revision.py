"""`memories_revision` on each implementation: who holds memories need not read them each time."""

from collections.abc import Sequence

import pytest

from ragmem.errors import SessionNotFound
from ragmem.records import (
    MEMORY_LEVEL,
    EmbedderMark,
    MarkExtracted,
    PutProfile,
    UpdateSession,
    Write,
)
from ragmem.store import Store
from tests.store.conftest import OpenStore
from tests.store.samples import (
    at,
    begun,
    created,
    insight,
    project,
    remembered,
    said,
    whole_turn,
)
from tests.store.test_contract_memories import GARDEN, KITCHEN, archive
from tests.store.test_contract_recall import MARK, NORTH, UP, embedded


async def went_up(store: Store, writes: Sequence[Write]) -> int:
    """By how much one transaction raised it."""
    before = await store.memories_revision()
    await store.apply(writes)
    return await store.memories_revision() - before


async def test_it_goes_up_by_one_with_what_changes_memories(store: Store) -> None:
    """A memory, what takes its place, its vector, a project that becomes another's."""
    await store.use_embedder(MARK)
    await store.apply([created("s"), *whole_turn("s", "t1")])
    await store.apply([project(GARDEN), project(KITCHEN)])
    old = remembered("old", evidence=(said("s", "t1"),))
    assert await went_up(store, [old]) == 1
    vector = embedded("old", UP, level=MEMORY_LEVEL)
    assert await went_up(store, [vector]) == 1
    several = [remembered("new", supersedes=("old",)), remembered("other"), vector]
    assert await went_up(store, [*several, MarkExtracted(turn_ids=("t1",))]) == 1
    assert await went_up(store, [project(KITCHEN, GARDEN)]) == 1


async def test_it_stays_while_people_talk(store: Store) -> None:
    """Turns, their vectors, summaries' words, the profile and insights are no memories."""
    await store.use_embedder(MARK)
    assert await went_up(store, [created("s"), remembered("m")]) == 1
    talk: list[Write] = [
        *whole_turn("s", "t1"),
        embedded("t1", NORTH),
        UpdateSession(session_id="s", summary="They spoke of ferns.", at=at(2)),
        PutProfile(key="name", value="Ana", at=at(3)),
        insight("s"),
        MarkExtracted(turn_ids=("t1",)),
    ]
    assert await went_up(store, talk) == 0
    assert await went_up(store, []) == 0


async def test_it_goes_up_with_what_takes_memories_away(store: Store) -> None:
    """Forgotten, gone with their session, or without the vectors of another embedder."""
    await store.use_embedder(MARK)
    await store.apply([created("s"), *whole_turn("s", "t1"), remembered("m"), remembered("kept")])
    evidence = (said("s", "t1"),)
    await store.apply([remembered("said", evidence=evidence)])
    seen = [await store.memories_revision()]
    await store.forget_memories(["m"])
    seen.append(await store.memories_revision())
    await (await archive(store)).delete_session("s")
    seen.append(await store.memories_revision())
    await store.apply([embedded("kept", UP, level=MEMORY_LEVEL)])
    seen.append(await store.memories_revision())
    await store.use_embedder(EmbedderMark("another", 4))
    seen.append(await store.memories_revision())
    assert seen == sorted(set(seen))


async def test_another_process_sees_it(open_store: OpenStore) -> None:
    """Whoever has read is told by it that somebody else has written."""
    here, there = await open_store(), await open_store()
    before = await here.memories_revision()
    await there.apply([remembered("m")])
    assert await here.memories_revision() == before + 1


async def test_what_fails_leaves_it(store: Store) -> None:
    """A transaction that was undone has changed nothing."""
    before = await store.memories_revision()
    with pytest.raises(SessionNotFound):
        await store.apply([remembered("m"), begun("nowhere")])
    assert await store.memories_revision() == before
