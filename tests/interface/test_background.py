"""What goes on behind an open memory, and what happens while its store is away."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import pytest

from ragmem import ConversationAgent, ConversationConfig, OpenMemory
from ragmem.errors import StoreUnavailable
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .conftest import Spot

_DIGEST = Answer(json.dumps({"text": "Ferns were planted.", "key_findings": ["shade"]}))


async def pending(memory: OpenMemory) -> dict[str, int]:
    """What is left to do, by kind."""
    counted = await (await memory.app.store()).count_pending()
    return {name: count for name, count in counted.items() if count}


async def test_vectors_follow(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored first; the vector comes by itself, without a word of `drain`."""
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "detached")
    async with spot.open() as memory:
        session_id = await memory.create_session(spot.folder)
        await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
        async with asyncio.timeout(60):
            while not (hits := await memory.search_conversation_history(session_id, "marsupials")):
                await asyncio.sleep(0.05)
        assert hits[0].similarity is not None


async def test_what_one_process_left(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pending is found by the next who searches, or when the block ends."""
    async with spot.open() as memory:
        session_id = await memory.create_session(spot.folder)
        await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
        await asyncio.sleep(0.1)
        assert (await pending(memory))["vectors"] == 1
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "inline")
    async with spot.open() as memory:
        await memory.search_conversation_history(session_id, "wombats", semantic=False)
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "off")
    async with spot.open() as memory:
        assert "vectors" not in await pending(memory)


async def test_drain_without_a_model(
    memory: OpenMemory, spot: Spot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors alone; a key that happens to be there calls nobody."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-used")
    session_id = await memory.create_session(spot.folder)
    for number in range(3):
        await memory.store_turn(session_id, f"q{number}", "a" * 3000)
    assert await memory.drain()
    left = await pending(memory)
    assert (left.get("vectors", 0), left["level1"]) == (0, 3)
    assert await memory.drain(0) in (True, False)
    assert await memory.drain()


async def test_what_an_agent_left(memory: OpenMemory, spot: Spot) -> None:
    """Once it is closed, its turns are the memory's to embed, and its model rests."""
    llm, small = ScriptedLLM([Says("In burrows.")]), ScriptedLLM()
    async with ConversationAgent(memory, llm, cwd=spot.folder, summary_llm=small) as agent:
        talk = await agent.create_conversation()
        await talk.send_message("Where do wombats live?")
    assert await memory.drain()
    (hit, *_) = await memory.search_conversation_history(talk.uuid, "marsupial homes")
    assert hit.similarity is not None
    assert small.requests == []
    assert not llm.closed
    assert not small.closed


async def test_an_agent_that_does_it_in_time(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """`inline`: what its turns need is done when it is closed, by its own settings."""
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "inline")
    llm = ScriptedLLM([Says("In burrows.")], repeat=True)
    async with spot.open() as memory:
        for embeds in (True, False):
            config = ConversationConfig(enable_summarization=False, embed_messages=embeds)
            agent = ConversationAgent(memory, llm, (), config, cwd=spot.folder)
            await (await agent.create_conversation()).send_message("Where do wombats live?")
            await agent.aclose()
            assert "vectors" in await pending(memory) or embeds
        await agent.aclose()
    async with spot.open() as memory:
        assert (await pending(memory))["vectors"] == 1


async def test_what_is_not_summed_up_by_others(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation says so itself, whoever works on what is pending; a branch of it too."""
    with LLMServer([_DIGEST], repeat=True) as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        async with spot.open() as memory:
            config = ConversationConfig(enable_summarization=False, embed_messages=False)
            llm = ScriptedLLM([Says("In burrows.")], repeat=True)
            async with ConversationAgent(memory, llm, (), config, cwd=spot.folder) as agent:
                talk = await agent.create_conversation(tags=["zoo"])
                for number in range(12):
                    await talk.send_message(f"Where do wombats live, {number}?")
                branch = await talk.branch((await talk.get_history())[1].uuid)
                await branch.send_message("And echidnas?")
        async with spot.open() as memory:
            await memory.drain()
            assert not {"level1", "roll_up", "thread"} & set(await pending(memory))
            for each in (talk, branch):
                found = await memory.get_level1_summaries_not_summarized(each.uuid)
                assert [summary for summary in found if not summary.extractive] == []
            assert server.requests == []


async def test_drain_with_a_model(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one is named, summaries too, up to the next level."""
    with LLMServer([_DIGEST], repeat=True) as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        async with spot.open() as memory:
            session_id = await memory.create_session(spot.folder)
            turns = [
                await memory.store_turn(session_id, f"Question {n}?", "x " * 1000) for n in range(3)
            ]
            assert await memory.drain()
            assert await pending(memory) == {"thread": 1}
            assert await memory.get_raw_history_char_count(session_id) == 0
            assert await memory.get_level1_summaries_not_summarized(session_id) == []
            hits = await memory.search_conversation_history(
                session_id, "ferns", levels=[1, 2], max_results=10
            )
            assert sorted(hit.level for hit in hits) == [1, 1, 1, 2]
            assert {hit.summary.text for hit in hits if hit.summary} == {"Ferns were planted."}
            (top,) = [hit.summary for hit in hits if hit.summary and hit.level == 2]
            assert top.turn_count == 3
            covered = {hit.summary.covers for hit in hits if hit.summary and hit.level == 1}
            assert covered == {(turn.uuid,) for turn in turns}
            made = await memory.summarize_turn(turns[0])
            assert (made.text, made.extractive) == ("Ferns were planted.", False)
        assert len(server.requests) == 5


@contextmanager
def away(spot: Spot) -> Iterator[None]:
    """The store can't be written to."""
    other = apsw.Connection(spot.url.removeprefix("sqlite://"))
    other.set_busy_timeout(20_000)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


async def test_turns_while_the_store_is_away(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept on this disk, told of, and in their places when it is back."""
    monkeypatch.setenv("RAGMEM_STORE__TIMEOUT_S", "2")
    async with spot.open() as memory:
        session_id = await memory.create_session(spot.folder)
        await memory.store_turn(session_id, "first", "a")
        with away(spot):
            kept = [
                await memory.store_turn(session_id, text, "a", [{"tool_name": "grep"}])
                for text in ("second", "third")
            ]
            assert [turn.turn_index for turn in kept] == [0, 0]
            assert any("unavailable" in notice for notice in memory.notices())
            with pytest.raises(StoreUnavailable):
                await memory.load_session(session_id)
        async with asyncio.timeout(60):
            while True:
                try:
                    turns = (await memory.load_session(session_id)).turns
                except StoreUnavailable:
                    await asyncio.sleep(0.1)
                else:
                    break
        assert [turn.user_message for turn in turns] == ["first", "second", "third"]
        assert [turn.uuid for turn in turns[1:]] == [turn.uuid for turn in kept]
        assert [turn.turn_index for turn in turns] == [1, 2, 3]


async def test_conversations_without_the_store(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent answers, from what was loaded and what it said itself."""
    llm = ScriptedLLM([Says(f"Answer {n}.") for n in range(1, 5)])
    monkeypatch.setenv("RAGMEM_STORE__TIMEOUT_S", "2")
    async with spot.open() as memory:
        agent = ConversationAgent(memory, llm, cwd=spot.folder)
        first = await agent.create_conversation()
        await first.send_message("Question 1?")
        talk = await agent.load_conversation(first.uuid)
        with away(spot):
            # SQLite can still be read: only what is written waits.
            await memory.store_turn(first.uuid, "elsewhere", "a")
            for number in (2, 3):
                reply = await talk.send_message(f"Question {number}?")
                assert reply.content == f"Answer {number}."
            said = "\n".join(message.text for message in llm.requests[-1].messages)
            for text in ("Question 1?", "Answer 1.", "Question 2?", "Answer 2."):
                assert text in said
            assert said.count("Question 3?") == 1
            history = [m.content for m in await talk.get_history()]
            assert history[-6:] == [f"{w} {n}{m}" for n in (1, 2, 3) for w, m in _SAID]


_SAID = (("Question", "?"), ("Answer", "."))
