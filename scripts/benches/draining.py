"""Storing and embedding turns, on two cores."""

import os
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import msgspec

from benches.growth import Place, in_child
from benches.memories import worker
from benches.recording import new_session
from benches.tables import aligned
from ragmem.embedder.models import OnnxEmbedder
from ragmem.ids import new_id
from ragmem.records import (
    BeginTurn,
    CreateSession,
    FinishTurn,
    Project,
    RegisterProject,
    Usage,
    utc_now,
)
from tests.recall.labelled import labelled_sets

CORES = 2
TARGET_S = 20.0
TURNS, WORDS = 600, 100
LENGTHS = (25, 100, 400, 1600)
"""The words per turn; for each, as many turns as have 20,000 words together, at most 600."""


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The time for `turns` turns of `words` words each."""

    turns: int
    words: int
    store_s: float
    drain_s: float
    """The time until every turn has its vectors, including loading the model."""
    bare_s: float
    """The baseline: the model alone on the same texts, one passage per turn, nothing stored."""
    cpu_s: float
    """The CPU time of storing and embedding, which other processes don't affect."""
    cores: int
    target_s: float | None = None

    @property
    def seconds(self) -> float:
        """Return the total time."""
        return self.store_s + self.drain_s


class Drains(msgspec.Struct, frozen=True, tag="drain"):
    """The results of one run."""

    drained: list[Drained] = []

    @property
    def kept(self) -> bool:
        """Whether every target is met."""
        return all(d.target_s is None or d.seconds < d.target_s for d in self.drained)


def measure_draining(folder: Path, rounds: int = 2) -> Iterator[Drains]:
    """Measure the case with the target, then turns of other lengths; the fastest of `rounds`."""
    asked: list[tuple[int, int, float | None]] = [(TURNS, WORDS, TARGET_S)]
    asked += [(min(TURNS, 20_000 // words), words, None) for words in LENGTHS if words != WORDS]
    for turns, words, target_s in asked:
        tries = []
        for number in range(rounds):
            place = Place(home=folder / f"drain-{words}-{number}")
            tries.append(in_child(drain, place, turns, words))
        quickest = min(tries, key=lambda each: each.seconds)
        yield Drains([msgspec.structs.replace(quickest, target_s=target_s)])


async def drain(place: Place, turns: int, words: int) -> Drained:
    """Store and embed turns in a process restricted to two cores."""
    cores = sorted(os.sched_getaffinity(0))[-CORES:]
    os.sched_setaffinity(0, cores)
    # Threads that numpy or onnxruntime start later inherit it.
    texts = list(islice(_texts(words), turns))
    store, embedder = await place.open(), OnnxEmbedder()
    project = Project(project_id=new_id(), path=str(place.home), created_at=utc_now())
    session = new_session(str(place.home), project)
    await store.apply([RegisterProject(project=project), CreateSession(session=session)])
    began, cpu = time.perf_counter(), time.process_time()
    for user_message, assistant_message in texts:
        turn_id = new_id()
        await store.apply(
            [
                BeginTurn(
                    turn_id=turn_id,
                    session_id=session.session_id,
                    user_message=user_message,
                    started_at=utc_now(),
                )
            ]
        )
        await store.apply(
            [
                FinishTurn(
                    turn_id=turn_id,
                    session_id=session.session_id,
                    status="completed",
                    assistant_message=assistant_message,
                    usage=Usage(),
                    finished_at=utc_now(),
                )
            ]
        )
    stored = time.perf_counter()
    await worker(store, embedder).drain()
    drained, cpu = time.perf_counter(), time.process_time() - cpu
    left = await store.count_pending()
    assert not left["vectors"], left
    await embedder.embed(["\n".join(each) for each in texts], "passage")
    bare = time.perf_counter()
    await embedder.aclose()
    await store.aclose()
    return Drained(
        turns=turns,
        words=words,
        store_s=stored - began,
        drain_s=drained - stored,
        bare_s=bare - drained,
        cpu_s=cpu,
        cores=len(cores),
    )


def _texts(words: int) -> Iterator[tuple[str, str]]:
    """Yield turns of so many words, cut from the messages of the labelled sets."""
    said = (
        word
        for one in labelled_sets()
        if one.language == "en"
        for turn in one.turns
        for word in f"{turn.user_message} {turn.assistant_message}".split()
    )
    endless = cycle(said)
    while True:
        asked = max(1, words * 3 // 10)
        yield (
            " ".join(islice(endless, asked)),
            " ".join(islice(endless, words - asked)),
        )


def drain_table(found: Drains) -> str:
    """Return a row for each length."""
    heads = "turns, vectors|stored, s|vectors, s|both|processor, s|turns/s|model alone, s|target|"
    rows = [heads.split("|")]
    for each in found.drained:
        numbers = (each.store_s, each.drain_s, each.seconds, each.cpu_s)
        verdict = ""
        if each.target_s is not None:
            verdict = "ok" if each.seconds < each.target_s else "MISSED"
        rows.append(
            [
                f"{each.turns} of {each.words} words, {each.cores} cores",
                *(f"{number:.1f}" for number in numbers),
                f"{each.turns / each.seconds:.1f}",
                f"{each.bare_s:.1f}",
                "" if each.target_s is None else f"{each.target_s:g}",
                verdict,
            ]
        )
    return aligned(rows)
