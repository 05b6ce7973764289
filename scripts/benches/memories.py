"""Memories to measure in: labelled sessions in a store, searched by the product's recall."""

import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from benches.growth import Place
from ragmem.config import SummariesConfig
from ragmem.embedder import Embedder
from ragmem.embedder.models import OnnxEmbedder
from ragmem.ids import new_id
from ragmem.memory.recall import Question, Recall
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.worker import Worker
from ragmem.records import Project, PutSession, PutTurn, RegisterProject, Scope, Session, Write
from ragmem.store import Archive, Store
from tests.recall.labelled import LabelledSet, labelled_sets

DEPTHS = (5, 10, 20)


def worker(store: Store, embedder: Embedder, *, summarizes: bool = False) -> Worker:
    """Return a worker for background work; without a model, its summaries are extractive."""

    async def opened() -> Store:
        return store

    config = SummariesConfig()
    return Worker(
        opened,
        new_id(),
        embedder=embedder,
        summarizer=Summarizer(None, config) if summarizes else None,
        config=config,
    )


def chosen(names: Sequence[str] = ()) -> list[LabelledSet]:
    """Return the labelled sets with these names; all if none are given."""
    return [one for one in labelled_sets() if not names or one.name in names]


def labelled_writes(one: LabelledSet) -> Iterator[Write]:
    """Yield the writes of a labelled set as a separate project."""
    started = one.turns[0].started_at
    path = f"/home/ana/{one.name}"
    yield RegisterProject(project=Project(project_id=one.name, path=path, created_at=started))
    known: set[str] = set()
    for turn in one.turns:
        # Different sets use the same names for sessions.
        session_id = f"{one.name}/{turn.session_id}"
        if session_id not in known:
            known.add(session_id)
            yield PutSession(
                session=Session(
                    session_id=session_id,
                    cwd=path,
                    project_id=one.name,
                    project_path=path,
                    started_at=turn.started_at,
                    updated_at=turn.started_at,
                    last_activity_at=turn.started_at,
                )
            )
        yield PutTurn(turn=msgspec.structs.replace(turn, session_id=session_id))


class Found(msgspec.Struct, frozen=True):
    """The answer to a labelled question: the recall of its evidence at 5, 10 and 20."""

    labelled: str
    language: str
    held_out: bool
    recalls: tuple[float, ...]
    ms: float


def share(evidence: Sequence[str], ids: Sequence[str]) -> tuple[float, ...]:
    """Return the share of the evidence among the first 5, 10 and 20."""
    wanted = set(evidence)
    return tuple(len(wanted & set(ids[:depth])) / len(wanted) for depth in DEPTHS)


async def stored(store: Archive, sets: Sequence[LabelledSet], embedder: Embedder) -> float:
    """Store the sets with their vectors; return the seconds."""
    started = time.perf_counter()
    for one in sets:
        for write in labelled_writes(one):
            await store.apply([write])
    await worker(store, embedder).drain()
    return time.perf_counter() - started


async def asked(
    store: Archive, sets: Sequence[LabelledSet], embedder: Embedder | None
) -> list[Found]:
    """Search for each question as the product does: in its project, at the time it was asked."""

    async def opened() -> Store:
        return store

    found = []
    for one in sets:
        for question in one.questions:
            recall = Recall(opened, embedder, clock=partial(_at, question.asked_at))
            query = Question(
                text=question.question, scope=Scope(project_ids=(one.name,)), max_results=20
            )
            started = time.perf_counter()
            hits = await recall.search(query)
            spent = (time.perf_counter() - started) * 1000
            recalls = share(question.evidence, [hit.record_id for hit in hits])
            found.append(Found(one.name, one.language, one.held_out, recalls, spent))
    return found


def _at(moment: datetime) -> datetime:
    return moment


@asynccontextmanager
async def opened_with_embedder(place: Place) -> AsyncIterator[tuple[Archive, OnnxEmbedder]]:
    """Open a store, with the default embedder loaded."""
    store, embedder = await place.open(), OnnxEmbedder()
    await embedder.prepare()
    try:
        yield store, embedder
    finally:
        await embedder.aclose()
        await store.aclose()


def gone(folder: Path) -> None:
    """Remove a memory."""
    shutil.rmtree(folder, ignore_errors=True)
