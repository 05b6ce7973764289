"""The engine as a conversation feels it: bounded, unhurried, and nothing out of reach."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ragmem.agent import Agent
from ragmem.app import App
from ragmem.config import Config, EmbeddingsConfig, MemoryConfig, find_paths
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.history import COMPRESSION_MARKER
from ragmem.memory.memory import Memory
from ragmem.memory.recall import Question, scope_of
from ragmem.messages import Message
from ragmem.records import UpdateSession, utc_now
from ragmem.store import Store
from tests.agent.conftest import Bench, bench, open_sqlite
from tests.fakes.frail_store import FrailStore, Line
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.store.conftest import OpenStore
from tests.store.samples import whole_turn

from .working import DIGEST, Chat, a_builder, a_memory, a_model, a_worker, opening, small_talk

__all__ = ["bench", "open_sqlite"]


_FACT = "The staging password rotates every 37 days, on Tuesdays."
_QUESTION = "How often does the staging password rotate?"


def size(messages: Sequence[Message]) -> int:
    return sum(message.char_count for message in messages)


def shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Characters of the messages that both requests begin with."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += a.char_count
    return count


@pytest.mark.parametrize(
    ("open_store", "first"),
    [
        ("sqlite", 81),
        pytest.param("sqlite", 1, marks=pytest.mark.campaign),
        pytest.param("neo4j", 81, marks=pytest.mark.campaign),
    ],
    indirect=["open_store"],
)
async def test_turn_two_is_in_the_context_of_turn_one_hundred(
    bench: Bench, store: Store, first: int
) -> None:
    """Within the maximum, the prefix kept, the fact there.

    Through the agent, the last twenty turns, with vectors and extractive summaries made along the
    way; under --all every turn, and in the graph.
    """
    embedder = HashEmbedder()
    memory = Memory(opening(store), MemoryConfig(), embedder=embedder)
    worker = a_worker(store, embedder=embedder)
    project = (await memory.project_of(bench.folder)).project
    session = memory.new_session(bench.folder, project)
    await memory.create_session(session, project)
    said = [small_talk(number) for number in range(1, 101)]
    said[1], said[99] = ("Remember this.", _FACT), (_QUESTION, "Every 37 days.")
    for start in range(0, first - 1, 20):
        turns = [
            whole_turn(session.session_id, new_id(), *said[number])
            for number in range(start, start + 20)
        ]
        await store.apply([write for turn in turns for write in turn])
    assert await worker.drain()
    session = await memory.find_session(session.session_id)
    info = ModelInfo(name="openai/scripted", context_window=16_000)
    agent, llm = await bench.agent([], info=info, memory=memory, session=session)
    most = a_builder(16_000).max_chars
    for number in range(first, 101):
        asked, answer = said[number - 1]
        llm.extend(Says(answer))
        _ = [event async for event in agent.ask(asked)]
        if number % 20 == 0:
            assert await worker.drain()
    requests = [request.messages for request in llm.requests]
    assert len(requests) == 101 - first
    assert max(map(size, requests)) <= most
    last = requests[-1]
    assert _FACT in last[-1].text
    assert not [m for m in last[1:-1] if "37 days" in str(m)]
    assert _QUESTION in last[-1].text
    assert sum(_QUESTION in str(message) for message in last) == 1

    kept, cuts = [], 0
    for before, after in pairwise(requests):
        fixed = size(before[:-1])
        same = shared(before, after)
        kept.append(same / fixed)
        cuts += same < fixed
    whole = sum(size(request) for request in requests[1:])
    alike = sum(shared(a, b) for a, b in pairwise(requests))
    print(
        f"\n{len(requests)} turns: largest request {max(map(size, requests)):,} of {most:,} "
        f"characters; {cuts} cuts of the window; {alike / whole:.1%} of all characters sent were "
        "shared with the request before"
    )
    assert cuts <= 15
    assert statistics.median(kept) == 1.0
    assert alike / whole > (0.6 if first == 1 else 0.5)
    await memory.aclose()


async def test_what_was_summed_up_is_found_next(store: Store, tmp_path: Path) -> None:
    """After draining, turn N's L1 is a hit for the next turn, and shown elsewhere."""
    embedder = HashEmbedder()
    async with a_memory(store, embedder) as memory:
        chat = Chat(memory, store, tmp_path)
        await chat.once("Ferns?", "North, wall side.")
        assert await a_worker(store, embedder=embedder, llm=a_model()).drain()
        current = await memory.find_session(chat.session.session_id)
        question = Question(
            text="which beds are planned?",
            scope=scope_of(current, "project"),
            session_id=current.session_id,
            levels=(1,),
        )
        (hit,) = await memory.search(question)
        assert hit.summary is not None
        assert hit.summary.text == "Beds were planned."
        assert hit.similarity is not None
        assert "its words" in hit.why
        text = await chat.request(question.text)
        assert "[Level 1 Summary - Relevance: " in text
        assert "Beds were planned." in text


async def _timed(agent: Agent, prompt: str) -> float:
    started = time.monotonic()
    _ = [event async for event in agent.ask(prompt)]
    return time.monotonic() - started


async def test_a_slow_summariser_delays_nothing(bench: Bench) -> None:
    """Not the answer, not the next prompt, not the end."""
    slow = ScriptedLLM([Says(DIGEST.text, delay_s=300)], repeat=True)
    embedder = HashEmbedder()
    embedder.delay_s = 300
    worker = a_worker(bench.spooled, embedder=embedder, llm=slow)
    another = a_worker(bench.spooled, embedder=None, llm=slow)
    memory = bench.new_memory(on_finished=lambda: (worker.wake(), another.wake())[0])
    script = [Says("One."), Says("Two."), Says("Three.")]
    agent, _ = await bench.agent(script, memory=memory)
    worker.start()
    another.start()
    took = [await _timed(agent, prompt) for prompt in ("first", "second", "third")]
    async with asyncio.timeout(60):
        while not slow.requests:
            await asyncio.sleep(0.01)
    assert max(took) < 30
    turns = await bench.store.turns(agent.session.session_id)
    assert [turn.status for turn in turns] == ["completed"] * 3
    started = time.monotonic()
    await worker.aclose()
    await another.aclose()
    assert time.monotonic() - started < 30
    assert (await bench.store.count_pending())["vectors"] == 3
    # Nothing of it is lost: the next process does it.
    assert await a_worker(bench.store, embedder=HashEmbedder(), llm=a_model()).drain()
    assert len(await bench.store.summaries(agent.session.session_id, level=1)) == 3


@pytest.mark.parametrize("semantic", [True, False])
async def test_what_a_short_process_leaves(tmp_path: Path, semantic: bool) -> None:
    """`worker = off` leaves it, `inline` does it, with the shipped embedder."""
    folder = tmp_path / "project"
    folder.mkdir()
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})

    def a_config(worker: str) -> Config:
        memory = MemoryConfig(
            worker=worker,  # type: ignore[arg-type]
            embeddings=EmbeddingsConfig(enabled=semantic),
        )
        return Config(memory=memory)

    async with App(a_config("off"), paths, cwd=folder) as app:
        chat = Chat(app.memory, await app.store(), folder)
        await chat.once("Where do wombats live?", "In burrows.")
        session = chat.session
        app.start_background()
        await asyncio.sleep(0.1)
        await app.leave_background()
        left = await (await app.store()).count_pending()
        assert (left["vectors"], left["level1"]) == (1, 1)
    async with App(a_config("inline"), paths, cwd=folder) as app:
        await app.leave_background()
        store = await app.store()
        left = await store.count_pending()
        found = await app.search("marsupial homes", session=session, max_results=3)
        assert await store.raw_history_chars(session.session_id) == 0
        assert (await store.embedder() is not None) == semantic
        assert (left["vectors"] == 0) == semantic
        assert bool(found) == semantic
        (said, *_) = await app.search("wombats")
        assert (said.similarity is not None) == semantic


async def test_a_resumed_conversation_keeps_its_gist(open_store: OpenStore, tmp_path: Path) -> None:
    """Another process' turns and summaries too."""
    inner: Any = await open_store()
    async with a_memory(inner) as memory:
        chat = Chat(memory, inner, tmp_path)
        await chat.once("The goal: a garden for wombats.", "Good.")
        await chat.told("Never plant roses. What now?", answer="Ferns.")
        for number in range(3, 8):
            asked, answer = small_talk(number)
            await chat.told(asked, answer=answer)
        assert await a_worker(inner, llm=a_model()).drain()
        session_id = chat.session.session_id
        summed = UpdateSession(session_id=session_id, summary="Ferns it is.", at=utc_now())
        await inner.apply([summed])
    line = Line()
    frail: Any = FrailStore(inner, line)
    async with a_memory(frail) as memory:
        chat = Chat(memory, frail, tmp_path)
        await chat.begin()
        resumed = await memory.find_session(session_id)
        assert not (await chat.asks("And?", resumed, builder=a_builder(8_000))).fallback
        await chat.told("A last word?", answer="Shade.", session=resumed)
        line.set("refusing")
        built = await chat.asks("And now?", resumed, builder=a_builder(8_000))
        text = built.messages[-1].text
        assert built.fallback
        assert text.count("user: The goal: a garden for wombats.") == 1
        bridge = text.split(COMPRESSION_MARKER)[1].split("\n\n")[0]
        assert "So far: Ferns it is." in bridge
        assert "- Beds were planned." in bridge
        assert "- user: Never plant roses." in bridge
        # What was said in this process stands behind it.
        assert "assistant: Shade." in text.split(bridge)[1]
        assert text.endswith("And now?")
        line.set("fine")
        assert not (await chat.asks("And now?", resumed, builder=a_builder(8_000))).fallback
