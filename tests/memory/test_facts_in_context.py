"""Requests built over each real store: what is known is in them, and nothing else is."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.config import EmbeddingsConfig, MemoryConfig
from ragmem.memory.context import Context, Strategy
from ragmem.memory.context.collect import PINNED_UNKNOWN
from ragmem.memory.facts import Draft
from ragmem.memory.facts.facts import Facts
from ragmem.memory.memory import Memory
from ragmem.records import MemoryRecord, Project, Session, TurnStatus, utc_now
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder

from .working import context, opening


class Clock:
    """Time that a test can turn on."""

    def __init__(self) -> None:
        self.now = utc_now()

    def __call__(self) -> Any:
        return self.now


class Room(msgspec.Struct):
    """A memory, its session, and requests of it."""

    memory: Memory
    store: Store
    session: Session
    project: Project
    clock: Clock
    embedder: HashEmbedder

    @property
    def facts(self) -> Facts:
        assert self.memory.facts is not None
        return self.memory.facts

    async def knows(self, content: str, **fields: Any) -> MemoryRecord:
        told = await self.facts.remember(Draft(content=content, **fields), self.project.project_id)
        assert told.memory is not None, told.note
        return told.memory

    async def context(
        self, prompt: str, *, session: Session | None = None, strategy: Strategy = "hybrid"
    ) -> Context:
        return await context(self.memory, session or self.session, prompt, strategy=strategy)

    async def turn(self, prompt: str, answer: str, status: TurnStatus = "completed") -> None:
        recording = await self.memory.begin_turn(self.session, self.project, prompt, model="m")
        await recording.finish(status, answer)
        self.memory.finished(self.session, recording.turn)


@pytest.fixture
async def room(store: Store, tmp_path: Path) -> AsyncIterator[Room]:
    folder = tmp_path / "project"
    folder.mkdir()
    clock, embedder = Clock(), HashEmbedder(1024)
    config = MemoryConfig(embeddings=EmbeddingsConfig(timeout_s=3.0))
    memory = Memory(opening(store), config, embedder=embedder, clock=clock)
    project = (await memory.project_of(folder)).project
    session = memory.new_session(folder, project)
    yield Room(memory, store, session, project, clock, embedder)
    await memory.aclose()


def ids_of(name: str, built: Context) -> list[str]:
    """Ids of what is in the section of this name."""
    sections = [s for s in built.sections if s.name == name]
    return [item.record_id for section in sections for item in section.items]


told = partial(ids_of, "Remembered Facts")
preferences = partial(ids_of, "Preferences")
pinned = partial(ids_of, "Pinned")


async def test_what_bears_on_a_prompt(room: Room) -> None:
    """Those that do, and no others; the profile with all of them."""
    ski = await room.knows("Mickael likes skiing", subjects=("mickael", "ski"))
    await room.knows("The printer is out of paper")
    await room.facts.set_profile("name", "Mickael")
    context = await room.context("What does Mickael like to do?")
    assert told(context) == [ski.memory_id]
    assert "[User Profile]\nname=Mickael\n" in context.messages[-1].text
    assert told(await room.context("Mickael?", strategy="recent")) == []
    relevant = await room.context("Mickael?", strategy="relevant")
    assert told(relevant) == [ski.memory_id]
    assert "[User Profile]" not in relevant.messages[-1].text


async def test_what_was_superseded_or_is_over_is_never_told(room: Room) -> None:
    """An update takes the place of what it changes; what expires, goes."""
    old = await room.knows("David lives in Ordizan", subjects=("david",))
    new = await room.knows("David has moved to Toulouse", subjects=("david",))
    ill = await room.knows("David is ill in bed", subjects=("david",), ttl="7d")
    assert set(told(await room.context("Where is David?"))) == {
        m.memory_id for m in (old, new, ill)
    }
    assert await room.facts.supersede(new, old)
    assert set(told(await room.context("Where is David?"))) == {new.memory_id, ill.memory_id}
    room.clock.now += timedelta(days=8)
    assert told(await room.context("Where is David?")) == [new.memory_id]
    assert [m.memory_id for m in await room.facts.history(new)] == [old.memory_id]


async def test_each_project_has_its_own(room: Room, tmp_path: Path) -> None:
    """Facts of a project stay there; facts about the person are everywhere."""
    shop = await room.knows("The login of the shop uses JWT")
    rule = await room.knows("Never push the login to main", kind="rule")
    tabs = await room.knows("I prefer tabs in the login", kind="preference")
    name = await room.knows("The person's login is mick", scope="user", pinned=True)
    here = await room.context("What about the login?")
    assert (told(here), preferences(here)) == ([shop.memory_id], [tabs.memory_id])
    assert pinned(here) == [rule.memory_id, name.memory_id]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    project = (await room.memory.project_of(elsewhere)).project
    session = room.memory.new_session(elsewhere, project)
    there = await room.context("What about the login?", session=session)
    assert (told(there), preferences(there)) == ([], [tabs.memory_id])
    assert pinned(there) == [name.memory_id]
    assert "JWT" not in there.text()
    assert "Never push" not in there.text()


async def test_the_system_message_is_the_same_to_the_byte(room: Room) -> None:
    """Between turns and between processes, until something is pinned or unpinned."""
    told_so = [
        "Never push to main",
        "Ask before you delete anything",
        "Answer in French",
        "Use tabs in Makefiles alone",
    ]
    rules = [await room.knows(text, kind="rule") for text in told_so]
    first = (await room.context("one?")).messages[0]
    await room.turn("one?", "One.")
    await room.knows("Mickael likes skiing")
    other = Memory(opening(room.store), MemoryConfig(), embedder=HashEmbedder(1024))
    for memory in (room.memory, other):
        again = msgspec.structs.replace(room, memory=memory)
        assert (await again.context("two, Mickael?")).messages[0] == first
    await other.aclose()
    assert first.text.endswith("".join(f"\n- {text}" for text in told_so))
    await room.facts.forget(rules[1])
    shorter = (await room.context("three?")).messages[0].text
    assert shorter == first.text.replace(f"\n- {told_so[1]}", "")


@pytest.mark.parametrize("status", ["interrupted", "failed"])
async def test_nothing_is_learned_of_a_turn_that_broke_off(room: Room, status: TurnStatus) -> None:
    """An interrupted or failed answer is neither summed up, nor embedded, nor looked through.

    A completed one is due for all of them.
    """
    await room.turn("I prefer tabs. We decided to use JWT.", "So be", status)
    for work in ("memories", "vectors", "level1"):
        assert await room.store.pending(work, limit=9) == []
    await room.turn("I prefer tabs. We decided to use JWT.", "So be it.")
    for work in ("memories", "vectors", "level1"):
        assert len(await room.store.pending(work, limit=9)) == 1


async def test_an_embedder_that_fails_or_dawdles(room: Room) -> None:
    """Then words alone bring them up, in good time."""
    ski = await room.knows("Mickael likes skiing")
    room.embedder.failing = True
    assert told(await room.context("Does Mickael ski?")) == [ski.memory_id]
    room.embedder.failing = False
    room.embedder.delay_s = 300
    async with asyncio.timeout(60):
        assert told(await room.context("And what does Mickael do?")) == [ski.memory_id]


async def test_generic_questions_are_answered_by_what_is_there(room: Room) -> None:
    """ "What do you know about me?" is like no fact, and gets the latest."""
    greece = await room.knows("Mickael is leaving for Greece", subjects=("mickael",))
    assert told(await room.context("What do you know about me?")) == [greece.memory_id]


async def test_what_was_talked_about_before(room: Room, tmp_path: Path) -> None:
    """Answered by what the last conversations came to, newest first."""
    room.clock.now -= timedelta(days=1)
    titles = ("The shade garden", "Ports of staging", "")
    for title in titles:
        session = room.memory.new_session(Path(room.session.cwd), room.project, title=title)
        other = msgspec.structs.replace(room, session=session)
        await other.turn(f"Tell me of {title or 'ferns'}!", "So be it.")
        room.clock.now += timedelta(hours=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    project = (await room.memory.project_of(elsewhere)).project
    far = room.memory.new_session(elsewhere, project)
    await msgspec.structs.replace(room, session=far, project=project).turn("A secret?", "No.")
    block = (await room.context("What did we talk about before?")).messages[-1].text
    told_of = block.split("## Last Time\n")[1].split("\n\n")[0]
    assert re.findall(r"Outcome: (.+) — So be it\.", told_of) == [
        "Tell me of ferns!",
        "Tell me of Ports of staging!",
        "Tell me of The shade garden!",
    ]
    assert "“The shade garden”" in told_of
    assert "secret" not in block
    # Where something is named, what is found is not told a second time.
    named = (await room.context("What about the ports of staging?")).messages[-1].text
    assert named.count("— So be it.") == 2
    assert "User: Tell me of Ports of staging!" in named
    recent = await room.context("What did we talk about before?", strategy="recent")
    assert "Last Time" not in recent.messages[-1].text


async def test_a_memory_that_is_too_slow_for_the_rules_says_so(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made rules is to know that a request went without them; once they were
    read, or where it is sure that there are none, nothing is said."""
    assert PINNED_UNKNOWN not in (await room.context("Hello there")).notices
    rule = await room.knows("Answer in French", kind="rule")
    cold = Memory(room.memory._store, MemoryConfig(), clock=room.clock)
    fresh = msgspec.structs.replace(room, memory=cold)

    async def silence(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr("ragmem.memory.leases._PATIENCE_S", 1.0)
        patch.setattr(Facts, "recent", silence)
        patch.setattr(Facts, "pinned", silence)
        context = await fresh.context("Hello there")
        [notice] = context.notices
        assert notice.startswith(PINNED_UNKNOWN)
        assert notice.endswith("did not answer within 1 s. Try again.")
        assert pinned(context) == []
    context = await fresh.context("Hello there")
    assert (context.notices, pinned(context)) == ((), [rule.memory_id])
    with monkeypatch.context() as patch:
        patch.setattr("ragmem.memory.leases._PATIENCE_S", 1.0)
        patch.setattr(Facts, "pinned", silence)
        context = await fresh.context("Hello again")
        assert (context.notices, pinned(context)) == ((), [rule.memory_id])
