"""What is done to memories later: named, edited, forgotten, cleaned up; and the profile."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ragmem.config import FactsConfig, MemoryConfig
from ragmem.embedder import Kind
from ragmem.errors import AmbiguousMemory, MemoryNotFound, UsageError
from ragmem.ids import short_id
from ragmem.memory.facts import Draft
from ragmem.memory.facts.facts import Facts
from ragmem.memory.memory import Memory
from ragmem.records import MEMORY_LEVEL, Evidence, MemoryQuery, Profile
from ragmem.store import Store
from ragmem.store.sqlite import repair, schema
from tests.fakes.hash_embedder import HashEmbedder
from tests.memory.working import opening
from tests.store.opening import close_all, sqlite

from .knowing import EVERYTHING, HERE, NOW, Clock, evidence, facts_of, kept, put, told
from .learning import Learner

ALL = MemoryQuery(everywhere=True, with_superseded=True)


async def test_a_memory_by_its_id(facts: Facts) -> None:
    """Whole, or by an end of it that no other has."""
    first = put(await told(facts, "The cellar floods in spring"))
    second = put(await told(facts, "Ana planted ferns"))
    assert await facts.find(first.memory_id) == first
    assert await facts.find(short_id(second.memory_id).upper()) == second
    for missing in ("ffffffff-nothing", "", "%"):
        with pytest.raises(MemoryNotFound, match="not found"):
            await facts.find(missing)


async def test_an_end_that_several_have(facts: Facts) -> None:
    """Which they are is said."""
    drafts = [Draft(content=f"Plot {n} has crop{n}") for n in range(40)]
    made = [put(each) for each in await facts.settle(drafts, HERE)]
    tails = [memory.memory_id[-1] for memory in made]
    shared = max(set(tails), key=tails.count)
    with pytest.raises(AmbiguousMemory, match="memories match") as caught:
        await facts.find(shared)
    ids = [memory.memory_id for memory in made if memory.memory_id.endswith(shared)]
    assert set(caught.value.candidates) <= set(ids)
    assert len(caught.value.candidates) > 1


async def test_an_edit(store: Store) -> None:
    """What is given changes, all else stays; the person vouches for it."""
    clock = Clock()
    embedder = HashEmbedder()
    facts = facts_of(store, embedder=embedder, clock=clock)
    quote = (evidence("listens on 80"),)
    made = await told(facts, "The API listens on port 80", "api", trust="model", evidence=quote)
    first = put(made)
    clock.move(minutes=5)
    edited = await facts.edit(first, content="The API listens on port 8000", ttl="7d")
    assert edited.memory_id == first.memory_id
    assert (edited.content, edited.trust) == ("The API listens on port 8000", "person")
    assert (edited.created_at, edited.updated_at) == (NOW, NOW + timedelta(minutes=5))
    assert edited.expires_at == clock() + timedelta(days=7)
    own = Evidence(quote="The API listens on port 8000", at=clock())
    assert (edited.subjects, edited.evidence) == (("api",), (*quote, own))
    [row] = (await store.small_vectors([first.memory_id], MEMORY_LEVEL, "hash-1")).values()
    (wanted,) = await embedder.embed(["The API listens on port 8000"])
    assert row == wanted.astype("<f4").tobytes()
    edited = await facts.edit(edited, subjects=["API", "ports"], kind="decision", ttl="")
    assert (edited.subjects, edited.kind, edited.expires_at) == (("api", "ports"), "decision", None)
    assert (await facts.edit(edited, scope="user")).project_id is None
    # What is changed is what it is by now, not what was read before.
    back = await facts.edit(first, scope="project", project_id="project-kitchen")
    assert (back.project_id, back.kind) == ("project-kitchen", "decision")
    assert await facts.edit(back) == back
    assert len(await store.memories(ALL)) == 1


async def test_what_is_edited_often_keeps_first_and_new_sources(facts: Facts, clock: Clock) -> None:
    """Twenty edits would else be twenty lines of `why`."""
    said = evidence("listens on 80")
    memory = put(await told(facts, "The API listens on port 80", evidence=(said,)))
    for port in range(8000, 8020):
        clock.move(minutes=1)
        memory = await facts.edit(memory, content=f"The API listens on port {port}")
    assert (len(memory.evidence), memory.evidence[0]) == (10, said)
    assert memory.evidence[-1].quote == "The API listens on port 8019"


@pytest.mark.parametrize("content", ["", "thanks!", "why?", "```\nx\n```"])
async def test_an_edit_that_says_nothing(facts: Facts, store: Store, content: str) -> None:
    """It is refused, and nothing changes."""
    memory = put(await told(facts, "The API listens on port 80"))
    with pytest.raises(UsageError, match="Not changed"):
        await facts.edit(memory, content=content)
    with pytest.raises(UsageError, match="not a duration"):
        await facts.edit(memory, ttl="soon")
    assert await kept(store) == ["The API listens on port 80"]


async def test_a_pin(facts: Facts) -> None:
    """Pinned and unpinned; a model's word that the person pins is theirs from then on."""
    memory = put(await told(facts, "Releases are on Fridays", trust="model"))
    pinned = await facts.edit(memory, pinned=True)
    assert pinned.trust == "person"
    assert await facts.pinned(HERE) == [pinned]
    await facts.edit(pinned, pinned=False)
    assert await facts.pinned(HERE) == []


async def test_forgetting(store: Store) -> None:
    """It goes with its vector and what it took the place of; nothing else does."""
    facts = facts_of(store, embedder=HashEmbedder())
    await told(facts, "Mickael broke his shoulder", "mickael")
    newer = put(await told(facts, "Mickael broke his shoulder on 10 January 2026", "mickael"))
    await told(facts, "Ana planted ferns", "ana")
    assert await facts.forget(newer) == {"memories": 2}
    assert await kept(store, ALL) == ["Ana planted ferns"]
    assert await store.small_vectors([newer.memory_id], MEMORY_LEVEL, "hash-1") == {}
    assert await facts.search("Mickael's shoulder", project_id=HERE) == []
    assert await facts.forget(newer) == {"memories": 0}
    with pytest.raises(MemoryNotFound):
        await facts.edit(newer, content="Mickael is well again")


class Slow(HashEmbedder):
    """Embeds when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        """As always, after a while."""
        self.asked.set()
        await self.go.wait()
        return await super().embed(texts, kind)


async def test_what_another_process_is_changing_is_forgotten_after_it(store: Store) -> None:
    """Not before, or the change would bring it back."""
    memory = put(await told(facts_of(store), "The alarm code is 4711."))
    embedder = Slow()
    change = asyncio.create_task(facts_of(store, embedder=embedder).edit(memory, subjects=["door"]))
    await embedder.asked.wait()
    forgetting = asyncio.create_task(facts_of(store).forget(memory))
    await asyncio.wait([forgetting], timeout=0.1)
    embedder.go.set()
    await asyncio.gather(change, forgetting, return_exceptions=True)
    assert await kept(store) == []


async def test_cleaning_up(facts: Facts, clock: Clock, store: Store) -> None:
    """Those past their own time go, pinned or not; what lasts never does."""
    await told(facts, "Ana is on holiday", "ana", ttl="1h")
    await told(facts, "The build is frozen", "build", ttl="1d", pinned=True)
    await told(facts, "The cellar floods in spring", "cellar")
    clock.move(hours=1)
    assert await facts.cleanup() == 1
    clock.move(days=1)
    assert await facts.cleanup() == 1
    clock.move(days=4_000)
    assert await facts.cleanup() == 0
    assert await kept(store, ALL) == ["The cellar floods in spring"]


async def test_only_the_user_forgets_in_the_daily_copies_too(tmp_path: Path, clock: Clock) -> None:
    """What expires leaves them: they would all be gone nearly every day."""
    store = await sqlite(tmp_path)
    facts = facts_of(store, clock=clock)
    ferns = put(await told(facts, "Ana planted ferns", "ana"))
    await told(facts, "Ana is on holiday", "ana", ttl="1h")
    database = tmp_path / "memory.db"
    assert repair.keep_copy(database, tmp_path / "locks", clock())
    clock.move(hours=1)
    assert await facts.cleanup() == 1
    assert len(schema.daily_copies(database)) == 1
    assert await facts.forget(ferns) == {"memories": 1}
    assert schema.daily_copies(database) == []
    await close_all()


async def test_the_worker_cleans_up(store: Store) -> None:
    """Once, when there is nothing else to be done."""
    learner = Learner(store, asks=False)
    await told(learner.facts, "Ana is on holiday", "ana", ttl="1h")
    learner.clock.move(hours=2)
    await learner.learn()
    assert await store.memories(ALL) == []


async def test_what_lasts_is_kept_behind_the_rest(facts: Facts, clock: Clock, store: Store) -> None:
    """A passing state over a lasting fact does not take that with it."""
    await told(facts, "Mickael broke his shoulder", "mickael")
    await told(facts, "Mickael broke his shoulder on 10 January 2026", "mickael", ttl="7d")
    clock.move(days=8)
    assert await facts.cleanup() == 0
    assert len(await store.memories(ALL)) == 2
    assert await facts.search("shoulder", project_id=HERE) == []


async def test_the_profile(facts: Facts) -> None:
    """One, by keys; set, changed and removed."""
    assert await facts.profile() == Profile()
    await facts.set_profile("Name", "Ana")
    profile = await facts.set_profile("spoken language", "  French\nand English ")
    assert profile.values == {"name": "Ana", "spoken_language": "French and English"}
    assert profile.updated_at == NOW
    left = {"spoken_language": "French and English"}
    assert (await facts.set_profile("name", None)).values == left
    assert (await facts.profile()).values == left
    for key in ("", "a=b", "a;b", "x" * 100, "\x1b[2J"):
        with pytest.raises(UsageError, match="not a valid profile key"):
            await facts.set_profile(key, "x")
    token = "ghp_" + "a1B2" * 9
    assert token not in repr(await facts.set_profile("token", token))


async def test_it_is_a_part_of_memory(store: Store) -> None:
    """Reached from Memory; none where it is switched off or nothing is recorded."""
    opened = opening(store)
    memory = Memory(opened, MemoryConfig())
    assert memory.facts is not None
    await told(memory.facts, "The cellar floods in spring")
    assert await kept(store, EVERYTHING) == ["The cellar floods in spring"]
    off = FactsConfig(enabled=False)
    assert Memory(opened, MemoryConfig(facts=off)).facts is None
    assert Memory(opened, MemoryConfig(), records=False).facts is None
    assert Memory(None, MemoryConfig()).facts is None
