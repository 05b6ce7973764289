"""Requests built over a real store: what is known is in them, and nothing else is."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragmem.config import EmbeddingsConfig, MemoryConfig
from ragmem.memory.context.builder import Context
from ragmem.memory.context.collect import INCOMPLETE, PINNED_UNKNOWN
from ragmem.memory.facts.facts import Facts
from ragmem.memory.memory import Memory
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder

from .working import Chat, a_memory


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder(1024)


@pytest.fixture
async def chat(store: Store, tmp_path: Path, embedder: HashEmbedder) -> AsyncIterator[Chat]:
    async with a_memory(store, embedder) as memory:
        begun = Chat(memory, store, tmp_path / "project")
        await begun.begin()
        yield begun


def ids_of(name: str, built: Context) -> list[str]:
    """Ids of what is in the section of this name."""
    sections = [s for s in built.sections if s.name == name]
    return [item.record_id for section in sections for item in section.items]


told = partial(ids_of, "Remembered Facts")
preferences = partial(ids_of, "Preferences")
pinned = partial(ids_of, "Pinned")


async def test_what_bears_on_a_prompt(chat: Chat) -> None:
    """Those that do, and no others; the profile with all of them."""
    ski = await chat.knows("Mickael likes skiing", subjects=("mickael", "ski"))
    await chat.knows("The printer is out of paper")
    await chat.facts.set_profile("name", "Mickael")
    context = await chat.asks("What does Mickael like to do?")
    assert told(context) == [ski.memory_id]
    assert "[User Profile]\nname=Mickael\n" in context.messages[-1].text
    assert told(await chat.asks("Mickael?", strategy="recent")) == []
    relevant = await chat.asks("Mickael?", strategy="relevant")
    assert told(relevant) == [ski.memory_id]
    assert "[User Profile]" not in relevant.messages[-1].text


async def test_each_project_has_its_own(chat: Chat, tmp_path: Path) -> None:
    """Facts of a project stay there; facts about the person are everywhere."""
    shop = await chat.knows("The login of the shop uses JWT")
    rule = await chat.knows("Never push the login to main", kind="rule")
    tabs = await chat.knows("I prefer tabs in the login", kind="preference")
    name = await chat.knows("The person's login is mick", scope="user", pinned=True)
    here = await chat.asks("What about the login?")
    assert (told(here), preferences(here)) == ([shop.memory_id], [tabs.memory_id])
    assert pinned(here) == [rule.memory_id, name.memory_id]
    await chat.begin(tmp_path / "elsewhere")
    there = await chat.asks("What about the login?")
    assert (told(there), preferences(there)) == ([], [tabs.memory_id])
    assert pinned(there) == [name.memory_id]
    assert "JWT" not in there.text()
    assert "Never push" not in there.text()


async def test_an_embedder_that_fails(store: Store, tmp_path: Path, embedder: HashEmbedder) -> None:
    """Then words alone bring them up, in good time."""
    config = MemoryConfig(embeddings=EmbeddingsConfig(timeout_s=0.2))
    async with a_memory(store, embedder, config) as memory:
        chat = Chat(memory, store, tmp_path)
        await chat.begin()
        ski = await chat.knows("Mickael likes skiing")
        embedder.failing = True
        assert told(await chat.asks("Does Mickael ski?")) == [ski.memory_id]
        embedder.failing = False
        embedder.delay_s = 300
        async with asyncio.timeout(60):
            assert told(await chat.asks("And what does Mickael do?")) == [ski.memory_id]


async def test_a_memory_too_slow_for_the_rules(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made rules is to know that a request went without them; once they were read they
    stand in it all the same, and what else is missing is said. Nothing is where all is there."""
    assert PINNED_UNKNOWN not in (await chat.asks("Hello there")).notices
    rule = await chat.knows("Answer in French", kind="rule")
    cold = Chat(Memory(chat.memory._store, MemoryConfig()), chat.store, chat.folder)
    await cold.begin()

    async def silence(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(60)

    async def asked_while(*silent: str) -> Context:
        with monkeypatch.context() as patch:
            patch.setattr("ragmem.memory.recording._PATIENCE_S", 1.0)
            for name in silent:
                patch.setattr(Facts, name, silence)
            return await cold.asks("Hello there")

    context = await asked_while("recent", "pinned")
    [notice] = context.notices
    why = "The memory did not answer within 1 s. Try again."
    assert notice.startswith(PINNED_UNKNOWN)
    assert notice.endswith(f" {why}")
    assert pinned(context) == []
    for context, notices in (
        (await cold.asks("Hello there"), ()),
        (await asked_while("pinned"), (f"{INCOMPLETE} {why.removesuffix(' Try again.')}",)),
    ):
        assert (context.notices, pinned(context)) == (notices, [rule.memory_id])
