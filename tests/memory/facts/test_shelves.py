"""What a process holds of the memories: read again only when something changed, and never wrong."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest

from ragmem.memory.facts import Draft
from ragmem.memory.facts.facts import Facts
from ragmem.records import MemoryQuery, MemoryRecord, Project, RegisterProject
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.memory.facts.knowing import HERE, NOW, Clock, facts_of, put, told
from tests.store.conftest import OpenStore
from tests.store.samples import created, remembered, whole_turn


class Counted:
    """A store that counts how often all memories of a scope are read."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.readings = 0

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """All of a scope, or a few of it."""
        self.readings += query.limit is None
        return await self._inner.memories(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture(autouse=True)
def no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is asked before each answer."""
    monkeypatch.setattr("ragmem.memory.facts.facts.FRESH_S", 0.0)


def counted(store: Store, **more: Any) -> tuple[Counted, Facts]:
    held = Counted(store)
    return held, facts_of(cast("Store", held), **more)


async def test_they_are_read_once(store: Store) -> None:
    """A hundred turns later too; what is said meanwhile is no reason to read them again."""
    held, facts = counted(store)
    await told(facts, "Ana planted ferns")
    read = held.readings
    await store.apply([created("s")])
    for number in range(3):
        await store.apply(whole_turn("s", f"t{number}"))
        assert len(await facts.search("ferns", project_id=HERE)) == 1
        await facts.pinned(HERE)
    assert held.readings == read == 1


async def test_its_own_writes_are_put_in_place(store: Store) -> None:
    """Told, told anew, edited, pinned: nothing is read again for it, vectors neither."""
    held, facts = counted(store, embedder=HashEmbedder())
    first = put(await told(facts, "Mickael broke his shoulder", "mickael"))
    await told(facts, "Mickael broke his shoulder on 10 January 2026", "mickael")
    [hit] = await facts.search("shoulder", project_id=HERE)
    assert hit.memory.content == "Mickael broke his shoulder on 10 January 2026"
    assert hit.similarity is not None
    edited = await facts.edit(hit.memory, content="Mickael broke his arm", pinned=True)
    [hit] = await facts.search("arm", project_id=HERE)
    assert hit.memory == edited == (await facts.pinned(HERE))[0]
    assert await facts.search("shoulder", project_id=HERE, subjects=("bea",)) == []
    assert held.readings == 1
    assert first.memory_id not in {m.memory_id for m in await facts.current(HERE)}


async def test_who_was_not_alone_reads_again(open_store: OpenStore) -> None:
    """Where another process wrote just then, what it wrote is not missed."""
    store = await open_store()
    other = facts_of(await open_store())

    class Between(Counted):
        """Somebody else writes while this process' write is on its way."""

        async def apply(self, writes: Sequence[Any]) -> Any:
            applied = await self._inner.apply(writes)
            if sneaks:
                await self._inner.apply(sneaks.pop())
            return applied

    sneaks: list[Any] = []
    held = Between(store)
    facts = facts_of(cast("Store", held))
    await told(facts, "Ana planted ferns")
    await facts.search("ferns", project_id=HERE)
    sneaks.append([remembered("sneaked", "Bea cut the ferns", project_id=HERE)])
    await told(facts, "The ferns stand by the pond")
    assert len(await facts.search("ferns", project_id=HERE)) == 3
    await other.forget((await other.search("Bea", project_id=HERE))[0].memory)
    assert len(await facts.search("ferns", project_id=HERE)) == 2


async def test_what_is_written_while_they_are_read_is_not_missed(store: Store) -> None:
    class Slow(Counted):
        """Somebody else writes before what was read is here."""

        async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
            found = await super().memories(query)
            if self.readings == 1:
                await told(facts_of(store), "Bea cut the ferns")
            return found

    facts = facts_of(cast("Store", Slow(store)))
    assert await facts.search("ferns", project_id=HERE) == []
    assert len(await facts.search("ferns", project_id=HERE)) == 1


async def test_what_is_held_is_what_would_be_read(store: Store) -> None:
    """After any writing, in place or by others, in this project and others."""
    clock = Clock()
    _, facts = counted(store, embedder=HashEmbedder(), clock=clock)
    stranger = facts_of(store, embedder=HashEmbedder(), clock=clock)
    chance = random.Random(7)
    words = ["ferns", "pond", "hedge", "rake", "north bed", "compost"]
    for step in range(30):
        clock.move(minutes=1)
        who = chance.choice([facts, facts, stranger])
        known = await who.current(HERE)
        match chance.randrange(6) if known else 0:
            case 1:
                await who.forget(chance.choice(known))
            case 2:
                await who.edit(chance.choice(known), content=f"Edited in step {step}")
            case 3:
                one = chance.choice(known)
                await who.edit(one, scope="user" if one.project_id else "project", project_id=HERE)
            case 4:
                draft = Draft(content=f"Elsewhere {step}: the {chance.choice(words)}")
                await who.remember(draft, "project-kitchen")
            case _:
                about = chance.choice(words)
                ttl = chance.choice([None, None, "1h"])
                kind = chance.choice(["fact", "rule", "preference"])
                content = f"The {about} is {chance.choice(words)} {chance.randrange(4)}"
                draft = Draft(content=content, kind=cast("Any", kind), subjects=(about,), ttl=ttl)
                await who.remember(draft, HERE)
        fresh = facts_of(store, embedder=HashEmbedder(), clock=clock)
        assert await facts.current(HERE) == await fresh.current(HERE), step
        asked = chance.choice(words)
        assert await facts.search(asked, project_id=HERE) == await fresh.search(
            asked, project_id=HERE
        ), step


async def test_a_project_that_became_another_ones(store: Store) -> None:
    """Asked by its old id, it knows what is known there."""
    _, facts = counted(store)
    kitchen = Project(project_id="kitchen", path="/home/ana/kitchen", created_at=NOW)
    garden = Project(project_id=HERE, path="/home/ana/garden", created_at=NOW)
    await store.apply([RegisterProject(project=kitchen), RegisterProject(project=garden)])
    await told(facts, "Ferns like shade")
    assert await facts.search("ferns", project_id="kitchen") == []
    joined = Project(project_id="kitchen", path=kitchen.path, created_at=NOW, joined_into=HERE)
    await store.apply([RegisterProject(project=joined)])
    assert len(await facts.search("ferns", project_id="kitchen")) == 1
    await facts.remember(Draft(content="Ferns stand in the north"), "kitchen")
    assert len(await facts.search("ferns", project_id="kitchen")) == 2
    assert len(await facts.search("ferns", project_id=HERE)) == 2


async def test_what_is_past_its_time_counts_no_more(store: Store) -> None:
    """Also where nothing was read since."""
    clock = Clock()
    held, facts = counted(store, clock=clock)
    await told(facts, "Mickael is ill", ttl="7d")
    assert len(await facts.current(HERE)) == 1
    clock.now += timedelta(days=8)
    assert await facts.current(HERE) == []
    assert await facts.search("Mickael", project_id=HERE) == []
    assert (await told(facts, "Mickael is ill")).action == "added"
    assert held.readings == 1
