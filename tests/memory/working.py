"""Memories and workers for tests, and sessions for them to work on."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragmem.config import MemoryConfig, SummariesConfig
from ragmem.embedder import Embedder, Kind
from ragmem.errors import EmbedderError
from ragmem.ids import new_id
from ragmem.llm.base import LLM, ModelInfo
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import Place, Strategy
from ragmem.memory.facts import Draft
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.facts.facts import Facts
from ragmem.memory.memory import Memory
from ragmem.memory.projects import NO_INSTRUCTIONS
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.worker import Worker
from ragmem.records import (
    Evidence,
    MemoryRecord,
    Project,
    Session,
    ToolCall,
    Turn,
    TurnStatus,
    Write,
)
from ragmem.store import Store
from ragmem.usage import Metrics
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.store.samples import START, called, created, whole_turn

_TOPICS = ("parser", "cache", "socket", "index", "migration", "layout", "profile", "queue")
DIGEST = Says(json.dumps({"text": "Beds were planned.", "key_findings": ["ferns like shade"]}))


def a_model() -> ScriptedLLM:
    """Sums everything up in the same words."""
    return ScriptedLLM([DIGEST], repeat=True)


def opening(store: Store) -> Callable[[], Awaitable[Store]]:
    """What opens a store that is open already."""

    async def opened() -> Store:
        return store

    return opened


@asynccontextmanager
async def a_memory(
    store: Store,
    embedder: HashEmbedder | None = None,
    config: MemoryConfig = MemoryConfig(),  # noqa: B008
    metrics: Metrics | None = None,
) -> AsyncIterator[Memory]:
    """What one process has: a memory with an owner id of its own."""
    memory = Memory(opening(store), config, embedder=embedder, metrics=metrics)
    try:
        yield memory
    finally:
        await memory.aclose()


class Chat:
    """A person at work in a folder: their memory, and the session that they are in."""

    def __init__(self, memory: Memory, store: Store, folder: Path) -> None:
        self.memory = memory
        self.store = store
        self.folder = folder
        self.session: Session
        self.project: Project

    @property
    def facts(self) -> Facts:
        """What is known."""
        assert self.memory.facts is not None
        return self.memory.facts

    async def begin(self, folder: Path | None = None, *, title: str = "") -> Session:
        """A new session, of this folder unless another is named; nothing is written yet."""
        folder = folder or self.folder
        folder.mkdir(exist_ok=True)
        self.project = (await self.memory.project_of(folder)).project
        self.session = self.memory.new_session(folder, self.project, title=title)
        return self.session

    async def told(
        self,
        prompt: str,
        *calls: ToolCall,
        answer: str = "An answer.",
        status: TurnStatus = "completed",
        session: Session | None = None,
    ) -> Turn:
        """A whole turn, recorded as the agent records it."""
        session = session or self.session
        recording = await self.memory.begin_turn(session, self.project, prompt, model="openai/x")
        for order, call in enumerate(calls):
            of_turn = {"turn_id": recording.turn.turn_id, "order": order}
            await recording.call(msgspec.structs.replace(call, **of_turn))
        await recording.finish(status, answer)
        self.memory.finished(session, recording.turn)
        assert recording.recorded
        return recording.turn

    async def once(
        self, prompt: str, answer: str = "An answer.", folder: Path | None = None
    ) -> Turn:
        """A turn in a session of its own."""
        await self.begin(folder)
        return await self.told(prompt, answer=answer)

    async def learned(self, prompt: str, answer: str = "Noted.") -> Turn:
        """The same, and what is learned from it without a model."""
        turn = await self.once(prompt, answer)
        await Extractor(self.facts, None).learn(self.store, turn)
        return turn

    async def knows(self, content: str, *turns: Turn, quote: str = "", **more: Any) -> MemoryRecord:
        """What the person has said in these turns."""
        evidence = tuple(
            Evidence(session_id=t.session_id, turn_id=t.turn_id, at=t.timestamp, quote=quote)
            for t in turns
        )
        draft = Draft(content=content, evidence=evidence, **more)
        remembered = await self.facts.remember(draft, self.project.project_id)
        assert remembered.memory is not None, remembered.note
        return remembered.memory

    async def asks(self, prompt: str, session: Session | None = None, **more: Any) -> Context:
        """The request for a prompt of the session, or of this one."""
        return await context(self.memory, session or self.session, prompt, **more)

    async def request(self, prompt: str, session: Session | None = None) -> str:
        """Its text, in a new session unless one is named."""
        return (await self.asks(prompt, session or await self.begin())).text()


def a_builder(window: int) -> ContextBuilder:
    return ContextBuilder(MemoryConfig(), ModelInfo(name="openai/x", context_window=window))


async def context(
    memory: Memory,
    session: Session,
    prompt: str,
    builder: ContextBuilder = a_builder(200_000),  # noqa: B008
    *,
    turn: Turn | None = None,
    strategy: Strategy = "hybrid",
) -> Context:
    """The request for a prompt, where the session's folder is all that there is."""
    cwd = Path(session.cwd)
    place = Place(cwd=cwd, project=cwd, instructions=NO_INSTRUCTIONS)
    return await memory.build_context(session, prompt, builder, place, turn=turn, strategy=strategy)


def small_talk(number: int) -> tuple[str, str]:
    """A turn that is about one of eight topics."""
    topic = _TOPICS[number % len(_TOPICS)]
    asked = f"Step {number}: what of the {topic}?"
    return asked, f"In step {number} the {topic} needs care. " * 12


async def no_wait(_: float) -> None:
    """Between tries of a model."""


def a_worker(
    store: Store,
    *,
    embedder: Embedder | None = None,
    llm: LLM | None = None,
    summarizer: Summarizer | None = None,
    summarizes: bool = True,
    config: SummariesConfig = SummariesConfig(),  # noqa: B008
    owner_id: str = "",
    now: datetime = START,
    clock: Callable[[], datetime] | None = None,
    **more: Any,
) -> Worker:
    """What one process has; without a model its summaries are extractive.

    As the samples are of the time that it is, no session has rested.
    """
    opened = opening(store)
    return Worker(
        opened,
        owner_id or new_id(),
        embedder=embedder,
        summarizer=summarizer
        or (Summarizer(llm, config, sleep=no_wait, open_attempts=opened) if summarizes else None),
        config=config,
        clock=clock or (lambda: now),
        **more,
    )


async def a_session(
    store: Store,
    turns: int,
    *,
    chars: int = 960,
    start_minute: float = 0,
    session_id: str = "",
    **fields: object,
) -> str:
    """So many completed turns, a minute and a `read_file` each."""
    first = created(session_id, started_at=START + timedelta(minutes=start_minute), **fields)
    session_id = first.session.session_id
    await store.apply([first])
    await add_turns(store, session_id, range(turns), chars=chars, start_minute=start_minute)
    return session_id


async def add_turns(
    store: Store, session_id: str, numbers: range, *, chars: int = 960, start_minute: float = 0
) -> None:
    """More turns of a session."""
    writes: list[Write] = []
    for number in numbers:
        turn_id = new_id()
        begin, finish = whole_turn(
            session_id,
            turn_id,
            f"Question {number} of {session_id[-4:]}?",
            ("shade " * (chars // 6)).strip() or "Yes.",
            started_at=START + timedelta(minutes=start_minute + number),
        )
        call = called(session_id, turn_id, arguments=json.dumps({"path": f"./bed{number}.txt"}))
        writes += [begin, call, finish]
    await store.apply(writes)


class Poisoned(HashEmbedder):
    """Can't embed what holds a certain word."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    async def embed(self, texts: list[str], kind: Kind = "passage") -> NDArray[np.float32]:  # type: ignore[override]
        if any(self.word in text for text in texts):
            raise EmbedderError("A text is too strange.")
        return await super().embed(texts, kind)
