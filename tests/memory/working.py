"""Workers for tests, and sessions for them to work on."""

import json
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from ragmem.config import SummariesConfig
from ragmem.embedder.base import Embedder, Kind
from ragmem.errors import EmbedderError
from ragmem.ids import new_id
from ragmem.llm.base import LLM
from ragmem.memory.summaries import Summarizer
from ragmem.memory.worker import Worker
from ragmem.metrics import Metrics
from ragmem.records import Write
from ragmem.store.base import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.store.samples import START, called, created, whole_turn

DIGEST = Says(json.dumps({"text": "Beds were planned.", "key_findings": ["ferns like shade"]}))


def a_model() -> ScriptedLLM:
    """Sums everything up in the same words."""
    return ScriptedLLM([DIGEST], repeat=True)


async def no_wait(_: float) -> None:
    """Between tries of a model."""


def a_worker(
    store: Store,
    *,
    embedder: Embedder | None = None,
    llm: LLM | None = None,
    summarizes: bool = True,
    config: SummariesConfig = SummariesConfig(),  # noqa: B008
    owner_id: str = "",
    metrics: Metrics | None = None,
) -> Worker:
    """What one process has; without a model its summaries are extractive."""

    async def opened() -> Store:
        return store

    return Worker(
        opened,
        owner_id or new_id(),
        embedder=embedder,
        summarizer=Summarizer(llm, config, sleep=no_wait, open_attempts=opened)
        if summarizes
        else None,
        config=config,
        metrics=metrics,
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
