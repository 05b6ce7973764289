"""Background work on each real store: each piece once, whoever dies, fails or is late."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

import ragmem
from ragmem.config import SummariesConfig
from ragmem.embedder import Kind
from ragmem.errors import EmbedderError, StoreError
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo, Request
from ragmem.memory import worker as worker_module
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.summaries import summarizer
from ragmem.memory.summaries.summarizer import TRIES, Summarizer, given_up_text
from ragmem.memory.titles import insight_into
from ragmem.memory.worker import reembed
from ragmem.records import Candidate, EmbedderMark, SearchQuery, Summary, Turn
from ragmem.store import Store
from ragmem.store.sqlite import SQLiteStore
from ragmem.usage import Metrics
from tests.fakes.frail_store import FrailStore, Line
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.patience import PAUSES
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.store.conftest import OpenStore
from tests.store.samples import START, at, begun, called, finished, whole_turn

from .facts.knowing import HERE
from .facts.learning import facts_of, happened
from .working import DIGEST, Poisoned, a_model, a_session, a_worker, add_turns, no_wait, opening

OFF = SummariesConfig(enabled=False)


async def left(store: Store) -> dict[str, int]:
    """Work that is pending, but for sessions that will not be due before they go on."""
    counts = await store.count_pending()
    return {work: counts[work] for work in ("vectors", "level1")}


async def in_order(store: Store, session_id: str, level: int) -> list[Summary]:
    """Oldest first, by what they tell of."""
    found = await store.summaries(session_id, level=level)
    turns = [turn.turn_id for turn in await store.turns(session_id)]
    if level == 1:
        return sorted(found, key=lambda s: turns.index(s.covers[0]))
    below = [s.summary_id for s in await in_order(store, session_id, level - 1)]
    return sorted(found, key=lambda s: below.index(s.covers[0]))


async def test_a_short_session_that_has_rested_has_a_digest(store: Store) -> None:
    """From its turns' summaries, with no model; and again when it went on."""
    session_id = await a_session(store, 2, chars=120)
    await a_worker(store).drain()
    assert (await store.session(session_id)).summary is None
    llm = a_model()
    tomorrow = START + timedelta(days=1)
    await a_worker(store, llm=llm, now=tomorrow).drain()
    rested = await store.session(session_id)
    assert rested.summarized_count == 4
    assert rested.summary == "Beds were planned."
    asked = len(llm.requests)
    await add_turns(store, session_id, range(2, 3), start_minute=60 * 24)
    await a_worker(store, now=tomorrow).drain()
    assert (await store.session(session_id)).summarized_count == 4
    await a_worker(store, now=tomorrow + timedelta(hours=1)).drain()
    longer = await store.session(session_id)
    assert longer.summarized_count == 6
    assert (longer.summary or "").startswith("Beds were planned. Question 2 of ")
    assert len(llm.requests) == asked


async def test_a_session_that_rests_while_its_chat_is_open_has_a_digest(store: Store) -> None:
    """The worker of an open chat looks again by itself once ten minutes have passed."""
    session_id = await a_session(store, 2, chars=120)
    rested = (await store.session(session_id)).last_activity_at + timedelta(minutes=10)
    looks = count()

    def clock() -> datetime:
        return rested - timedelta(milliseconds=20) if next(looks) < 5 else rested

    worker = a_worker(store, clock=clock)
    worker.start()
    async with asyncio.timeout(60):
        while not (await store.session(session_id)).summary:
            await asyncio.sleep(0.01)
    await worker.aclose()
    assert (await store.session(session_id)).summarized_count == 4


async def test_what_a_worker_does_is_told_while_it_does_it(store: Store) -> None:
    """A chat shows it: summaries while the model is asked, nothing once all is done."""
    await a_session(store, 1, chars=120)
    doing: list[str] = []

    def answer(_: Request) -> Says:
        doing.append(worker.doing)
        return DIGEST

    worker = a_worker(store, llm=ScriptedLLM([answer], repeat=True))
    await worker.drain()
    assert set(doing) == {"summaries"}
    assert worker.doing == ""


async def test_who_is_always_faster_is_learned_from_all_the_same(store: Store) -> None:
    """Each turn brings a summary to be made, before what was said is looked through."""
    facts = facts_of(store)
    llm = ScriptedLLM([DIGEST], repeat=True)
    worker = a_worker(store, llm=llm, extractor=Extractor(facts, None))
    session_id = new_id()
    for number in range(4):
        await happened(store, f"We decided to use kiln {number}.", session_id=session_id)
        assert await worker.step()
    learned = [memory.content for memory in await facts.current(HERE)]
    assert "We decided to use kiln 0." in learned
    assert llm.requests


# --- vectors -------------------------------------------------------------------


async def test_vectors_of_all_that_was_said_and_done(store: Store) -> None:
    """In batches, once; what was made is found."""
    session_id = await a_session(store, 20, chars=60)
    told = new_id()
    result = json.dumps({"text": "seven wombats"})
    await store.apply(
        [
            begun(session_id, told, "How many?"),
            called(session_id, told, tool_name="run_command", result=result),
            finished(session_id, told, "Seven, they say."),
        ]
    )
    embedder = HashEmbedder()
    assert await a_worker(store, embedder=embedder, summarizes=False).drain()
    assert (await left(store))["vectors"] == 0
    assert await store.embedder() == EmbedderMark("hash-1", 64)
    assert embedder.spent.calls == 2
    assert embedder.spent.texts == len(embedder.seen) >= 21
    assert embedder.spent.tokens > 21 * 10
    (whole,) = [text for kind, text in embedder.seen if "How many?" in text and kind == "passage"]
    assert "Seven, they say." in whole
    assert "seven wombats" in whole
    (row,) = await embedder.embed(["seven wombats say how many"], "query")
    query = SearchQuery(vector=row.astype("<f4").tobytes(), embedder="hash-1")
    best = max(await store.search(query), key=lambda c: c.similarity or -1)
    assert best.record_id == told
    calls = embedder.spent.calls
    assert await a_worker(store, embedder=embedder, summarizes=False).drain()
    assert embedder.spent.calls == calls


async def test_vectors_of_a_predecessor_are_replaced_unasked(store: Store) -> None:
    await a_session(store, 3)
    assert await a_worker(store, embedder=HashEmbedder(), summarizes=False).drain()
    newer = HashEmbedder(32, model_id="hash-3", replaces=("hash-1",))
    assert await a_worker(store, embedder=newer, summarizes=False).drain()
    assert await store.embedder() == EmbedderMark("hash-3", 32)
    assert (await left(store))["vectors"] == 0
    (row,) = await newer.embed(["Question 1"], "query")
    query = SearchQuery(vector=row.astype("<f4").tobytes(), embedder="hash-3")
    assert len([hit for hit in await store.search(query) if hit.similarity is not None]) == 3


async def test_an_embedder_that_is_away(store: Store) -> None:
    """Summaries go on, nothing is lost; when it is back the vectors are made."""
    session_id = await a_session(store, 3)
    embedder = HashEmbedder()
    embedder.failing = True
    metrics = Metrics()
    worker = a_worker(store, embedder=embedder, llm=a_model(), metrics=metrics)
    assert not await worker.drain()
    assert len(await store.summaries(session_id, level=1)) == 3
    assert (await left(store))["vectors"] == 6
    assert metrics.counts["embedder.failures"] == 1
    embedder.failing = False
    # Its lease was given back: another process need not wait.
    assert await a_worker(store, embedder=embedder, llm=a_model()).drain()
    assert await left(store) == {"vectors": 0, "level1": 0}


async def test_it_is_tried_again_by_itself(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedder that comes back is noticed without a new turn."""
    monkeypatch.setattr(worker_module, "_RETRY_S", 0.05)
    await a_session(store, 2)
    embedder = HashEmbedder()
    embedder.failing = True
    metrics = Metrics()
    worker = a_worker(store, embedder=embedder, summarizes=False, metrics=metrics)
    worker.start()
    async with asyncio.timeout(60):
        while not metrics.counts["embedder.failures"]:
            await asyncio.sleep(0.01)
    assert embedder.seen == []
    embedder.failing = False
    query = SearchQuery(vector=np.ones(64, np.float32).tobytes(), embedder="hash-1")
    found: list[Candidate] = []
    async with asyncio.timeout(60):
        while len(found) < 2:
            await asyncio.sleep(0.05)
            found = [c for c in await store.search(query) if c.similarity is not None]
    await worker.aclose()
    assert len(found) == 2


async def test_one_text_that_can_not_be_embedded(store: Store) -> None:
    """All others are; the next process tries again."""
    session_id = await a_session(store, 20, chars=60)
    await store.apply(whole_turn(session_id, "", "poison", "x", started_at=at(99)))
    assert not await a_worker(store, embedder=Poisoned("poison"), summarizes=False).drain()
    (item,) = await store.pending("vectors", limit=9)
    (turn,) = await store.get(Turn, [item.record_id])
    assert turn.user_message == "poison"
    assert await a_worker(store, embedder=HashEmbedder(), summarizes=False).drain()
    assert (await left(store))["vectors"] == 0


async def test_what_was_made_anew_before_an_error_is_not_made_twice(store: Store) -> None:
    """`ragmem store reembed` ends with the embedder's error; run again, it goes on."""
    await a_session(store, 40, chars=60)
    assert await a_worker(store, embedder=HashEmbedder(), summarizes=False).drain()
    other = HashEmbedder(32, model_id="hash-2")
    shown: list[int] = []

    def show(count: int) -> None:
        shown.append(count)
        other.failing = len(shown) == 2

    with pytest.raises(EmbedderError) as caught:
        await reembed(store, other, show)
    assert caught.value.exit_code == 75
    made = sum(shown)
    assert 0 < made < 40
    assert (await left(store))["vectors"] == 40 - made
    other.failing = False
    assert await reembed(store, other, show) == 40 - made
    assert (await left(store))["vectors"] == 0
    assert len(other.seen) == 40


async def test_vectors_of_another_model_are_left_alone(store: Store) -> None:
    """They are made anew only when somebody says so, and never mixed."""
    session_id = await a_session(store, 3)
    assert await a_worker(store, embedder=HashEmbedder(), summarizes=False).drain()
    await add_turns(store, session_id, range(3, 5))
    other = HashEmbedder(32, model_id="hash-2")
    await a_worker(store, embedder=other, summarizes=False).drain()
    assert other.seen == []
    assert await store.embedder() == EmbedderMark("hash-1", 64)
    await store.use_embedder(EmbedderMark("hash-2", 32))
    assert await a_worker(store, embedder=other, summarizes=False).drain()
    assert (await left(store))["vectors"] == 0
    assert len([text for _, text in other.seen if "Question" in text]) >= 5


async def test_one_that_was_slow_does_not_bring_its_model_back(open_store: OpenStore) -> None:
    """Who embeds while the model is changed has its vectors left out."""
    store = await open_store()
    await a_session(store, 3)
    slow = Gated()
    work = asyncio.create_task(a_worker(store, embedder=slow, summarizes=False).drain())
    await slow.begun.wait()
    other = await open_store()
    await other.use_embedder(EmbedderMark("hash-2", 32))
    slow.gate.set()
    await work
    assert await other.embedder() == EmbedderMark("hash-2", 32)
    assert len(await other.pending("vectors", limit=9)) == 3


class Gated(HashEmbedder):
    """Tells that it was asked, and answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        self.begun.set()
        await self.gate.wait()
        return await super().embed(texts, kind)


# --- two at once, and those that end ------------------------------------------------


async def test_two_workers_do_each_piece_once(open_store: OpenStore) -> None:
    """Leases; the model's and the embedder's calls are those of one alone."""
    one, other = await open_store(), await open_store()
    session_id = await a_session(one, 14)
    embedder, llm = HashEmbedder(), a_model()
    embedder.delay_s = 0.05
    both = [a_worker(store, embedder=embedder, llm=llm) for store in (one, other)]
    await asyncio.gather(*(worker.drain() for worker in both))
    # One may have ended while the other was still at what its last step left to do.
    assert await a_worker(one, embedder=embedder, llm=llm).drain()
    summaries = await one.summaries(session_id)
    assert len([s for s in summaries if s.level == 1]) == 14
    assert [s.level for s in summaries if s.level > 1]
    # One call for each, and one for the session's own.
    assert len(llm.requests) == len(summaries) + 1
    said = Counter(text for _, text in embedder.seen if "Question" in text)
    assert len(said) >= 14
    assert set(said.values()) == {1}
    assert await left(one) == {"vectors": 0, "level1": 0}


async def test_who_ends_leaves_its_work_to_others_at_once(open_store: OpenStore) -> None:
    """A process that ends in the middle gives its leases back."""
    one, other = await open_store(), await open_store()
    session_id = await a_session(one, 2)
    embedder = HashEmbedder()
    embedder.delay_s = 300
    worker = a_worker(one, embedder=embedder, summarizes=False)
    worker.start()
    async with asyncio.timeout(60):
        while await other.pending("vectors", limit=9):
            await asyncio.sleep(0.02)
    started = time.monotonic()
    await worker.aclose()
    assert time.monotonic() - started < 60
    assert len(await other.pending("vectors", limit=9)) == 2

    slow = ScriptedLLM([Says("x", delay_s=300)], repeat=True)
    assert not await a_worker(one, llm=slow).drain(0.3)
    assert await a_worker(other, llm=a_model()).drain()
    assert len(await other.summaries(session_id, level=1)) == 2


async def test_a_lease_lasts_as_long_as_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that thinks for longer than the lease is not asked twice."""
    monkeypatch.setattr(worker_module, "_LEASE_S", 0.3)
    clock = [at(0)]
    one, other = [
        await SQLiteStore.open(
            tmp_path / "memory.db", locks_dir=tmp_path / "locks", clock=lambda: clock[0]
        )
        for _ in range(2)
    ]
    session_id = await a_session(one, 1, chars=60)
    gate = asyncio.Event()
    slow = ScriptedLLM([Says(DIGEST.text, gate=gate)])
    work = asyncio.create_task(a_worker(one, llm=slow).drain())
    while not slow.requests:
        await asyncio.sleep(0.01)
    before = _lease_ends(tmp_path)
    clock[0] += timedelta(seconds=0.2)
    async with asyncio.timeout(60):
        while _lease_ends(tmp_path) == before:
            await asyncio.sleep(0.01)
    # What it claimed at first would have ended by now.
    clock[0] += timedelta(seconds=0.2)
    idle = a_model()
    assert await a_worker(other, llm=idle).drain()
    assert idle.requests == []
    gate.set()
    assert await work
    assert len(await one.summaries(session_id)) == 1
    await one.aclose()
    await other.aclose()


def _lease_ends(folder: Path) -> list[Any]:
    with closing(apsw.Connection(str(folder / "memory.db"))) as connection:
        found = connection.execute("SELECT until FROM leases").fetchall()
    assert found
    return found


_CHILD = """
import asyncio, sys
from pathlib import Path
from ragmem.memory import worker
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.hash_embedder import HashEmbedder
from tests.memory.working import a_model, a_worker

worker._BATCH = 4

class Slow(HashEmbedder):
    calls = 0

    async def embed(self, texts, kind="passage"):
        self.calls += 1
        print("embedding", flush=True)
        if self.calls == 3:
            await asyncio.sleep(1_000)
        return await super().embed(texts, kind)

async def main():
    home = Path(sys.argv[1])
    store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
    await a_worker(store, embedder=Slow(), llm=a_model()).drain()

asyncio.run(main())
"""


async def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Kill -9 with work leased; the next process does what is left at once, and no more."""
    store = await SQLiteStore.open(tmp_path / "memory.db", locks_dir=tmp_path / "locks")
    session_id = await a_session(store, 24, chars=200)
    source = str(Path(ragmem.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
        cwd=source,
    )
    assert process.stdout is not None
    for _ in range(3):
        assert await asyncio.to_thread(process.stdout.readline) == b"embedding\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    # What it had leased is free at once: whose process is dead has no lease.
    embedder, llm = HashEmbedder(), a_model()
    waiting = len(await store.pending("vectors", limit=99))
    assert waiting == 16
    assert await a_worker(store, embedder=embedder, llm=llm).drain()
    turns = [text for _, text in embedder.seen if "Question" in text]
    assert len(turns) == waiting
    assert await left(store) == {"vectors": 0, "level1": 0}
    assert len(llm.requests) == len(await store.summaries(session_id)) + 1
    await store.aclose()
    # Nor is a lock left, of the dead one or of the living.
    assert list((tmp_path / "locks").glob("[0-9a-f]*[0-9a-f].lock")) == []


async def test_a_store_that_goes_away(open_store: OpenStore) -> None:
    """What was being done is done again, once; nothing is said twice."""
    inner = await open_store()
    session_id = await a_session(inner, 8)
    line = Line()
    frail = FrailStore(inner, line)  # type: ignore[arg-type]
    embedder = HashEmbedder()
    worker = a_worker(frail, embedder=embedder, llm=a_model())  # type: ignore[arg-type]
    for mode in ("refusing", "losing_answers", "refusing"):
        line.next = ["fine", "fine", mode]
        with pytest.raises(StoreError):
            await worker.drain()
        line.set("refusing")
        with pytest.raises(StoreError):
            await worker.drain()
        line.set("fine")
    assert await worker.drain()
    ones = await inner.summaries(session_id, level=1)
    covered = [s.covers for s in ones]
    assert len(covered) == len(set(covered)) == 8
    above = [name for s in await inner.summaries(session_id, level=2) for name in s.covers]
    assert len(above) == len(set(above)) >= 2
    assert await left(inner) == {"vectors": 0, "level1": 0}


async def test_what_is_deleted_while_it_is_worked_on(open_store: OpenStore) -> None:
    """No failure, and it does not come back."""
    store = await open_store()
    kept = await a_session(store, 1)
    gone = await a_session(store, 2, start_minute=60)
    embedder = HashEmbedder()
    embedder.delay_s = 0.3
    gate = asyncio.Event()
    llm = ScriptedLLM([Says(DIGEST.text, gate=gate), DIGEST], repeat=True)
    both = asyncio.gather(
        a_worker(store, embedder=embedder, summarizes=False).drain(),
        a_worker(store, llm=llm).drain(),
    )
    while not llm.requests:
        await asyncio.sleep(0.01)
    inner = getattr(store, "inner", None)
    archive = await inner() if inner else store
    await archive.delete_session(gone)
    gate.set()
    await both
    await a_worker(store, embedder=HashEmbedder(), llm=a_model()).drain()
    assert await left(store) == {"vectors": 0, "level1": 0}
    assert len(await store.summaries(kept, level=1)) == 1
    found = await store.search(SearchQuery(levels=(1,)))
    assert [c for c in found if c.session_id == gone] == []


# --- summaries -------------------------------------------------------------------


async def test_ten_turns_give_a_second_level_and_thirty_a_third(store: Store) -> None:
    """In the conversation's order, though done late."""
    ten = await a_session(store, 10)
    thirty = await a_session(store, 30, start_minute=100)
    llm = a_model()
    assert await a_worker(store, llm=llm).drain()
    for session_id, levels in ((ten, 2), (thirty, 3)):
        found = await store.summaries(session_id)
        assert max(s.level for s in found) == levels
        turns = [turn.turn_id for turn in await store.turns(session_id)]
        ones = await in_order(store, session_id, 1)
        assert [s.covers for s in ones] == [(turn_id,) for turn_id in turns]
        assert [s.files_mentioned for s in ones] == [(f"bed{i}.txt",) for i in range(len(turns))]
        assert {s.tools_used for s in ones} == {("read_file",)}
        # No gaps, nothing twice, in order.
        for level in range(2, levels + 1):
            covered = [name for s in await in_order(store, session_id, level) for name in s.covers]
            below = [s.summary_id for s in await in_order(store, session_id, level - 1)]
            assert covered == below[: len(covered)]
        assert await store.raw_history_chars(session_id) == 0
    # One call for each, and one for each session's own; but for parts of what is too long.
    parts = [r for r in llm.requests if "Sum up one part" in r.messages[0].text]
    whole = len(await store.summaries(ten)) + len(await store.summaries(thirty)) + 2
    assert len(llm.requests) - len(parts) == whole
    count = len(llm.requests)
    # Once more asks nobody.
    assert await a_worker(store, llm=llm).drain()
    assert len(llm.requests) == count


async def test_many_quiet_sessions_hide_no_work(store: Store) -> None:
    """An old session's work is done though many newer ones wait for more turns."""
    old = await a_session(store, 8)
    for number in range(20):
        await a_session(store, 2, chars=12, start_minute=1_000 + number * 10)
    worker = a_worker(store)
    assert await worker.drain()
    assert await store.summaries(old, level=2)
    assert (await store.session(old)).summarized_count == 16
    # And one that goes on is looked at again by the same process.
    again = await a_session(store, 4, start_minute=5_000)
    assert await worker.drain()
    assert (await store.session(again)).summarized_count == 0
    await add_turns(store, again, range(4, 9), start_minute=5_000)
    assert await worker.drain()
    assert await store.summaries(again, level=2)
    assert (await store.session(again)).summarized_count == 18


async def test_the_sessions_own_summary(store: Store) -> None:
    """Each time ten messages came in, from the one before and what is new."""
    session_id = await a_session(store, 0)
    llm = ScriptedLLM([Says(json.dumps({"text": "So far: beds."}))], repeat=True)
    worker = a_worker(store, llm=llm)
    counts, asked = [], []
    for number in range(16):
        await add_turns(store, session_id, range(number, number + 1), chars=60)
        before = len(llm.requests)
        assert await worker.drain()
        requests = [r.messages[-1].text for r in llm.requests[before:]]
        session = await store.session(session_id)
        if not counts or session.summarized_count != counts[-1]:
            counts.append(session.summarized_count)
            asked.append(requests[-1])
    assert counts == [0, 10, 20, 30]
    assert session.summary == "So far: beds."
    assert "Question 4 " in asked[1]
    assert "Question 5 " not in asked[1]
    assert "So far: beds." in asked[2]
    assert "Question 5 " in asked[2]
    assert "Question 4 " not in asked[2]


async def test_stand_ins_are_redone_by_who_has_a_model(open_store: OpenStore) -> None:
    """Of every level, once, in their place; never over what a model said."""
    store = await open_store()
    session_id = await a_session(store, 10)
    assert await a_worker(store).drain()
    before = await store.summaries(session_id)
    assert {s.level for s in before} == {1, 2}
    assert all(s.extractive for s in before)
    # Others without a model have nothing to do: nothing is written again.
    assert await a_worker(await open_store()).drain()
    assert await store.summaries(session_id) == before

    llm = a_model()
    assert await a_worker(store, llm=llm).drain()
    after = await store.summaries(session_id)
    assert [(s.summary_id, s.covers, s.created_at) for s in after] == [
        (s.summary_id, s.covers, s.created_at) for s in before
    ]
    assert {(s.text, s.extractive) for s in after} == {("Beds were planned.", False)}
    assert len(llm.requests) == len(after)
    assert await a_worker(await open_store()).drain()
    assert await store.summaries(session_id) == after


async def test_what_a_local_model_answered_is_not_told_to_one_elsewhere(store: Store) -> None:
    """Unless somebody chose that one for it, or the session goes on with such a model."""
    session_id = await a_session(store, 1)
    own = whole_turn(session_id, new_id(), model="local/small", started_at=at(10))
    await store.apply(own)
    llm = a_model()

    async def work(*, is_chosen: bool) -> list[bool]:
        asker = Summarizer(llm, SummariesConfig(), sleep=no_wait, is_chosen=is_chosen)
        await a_worker(store, summarizer=asker).drain()
        return [s.extractive for s in await in_order(store, session_id, 1)]

    assert await work(is_chosen=False) == [True, True]
    assert llm.requests == []
    assert await work(is_chosen=True) == [False, False]
    await store.apply(whole_turn(session_id, new_id(), model="ollama/small", started_at=at(11)))
    assert await work(is_chosen=False) == [False, False, True]
    await add_turns(store, session_id, range(3, 4), start_minute=20)
    assert await work(is_chosen=False) == [False, False, False, False]


async def test_what_is_said_to_a_model_of_this_machine_after_a_switch_is_not_told_elsewhere(
    store: Store,
) -> None:
    session_id = await a_session(store, 1)
    asker = Summarizer(a_model(), SummariesConfig(), sleep=no_wait, is_chosen=False)
    worker = a_worker(store, summarizer=asker)
    await worker.drain()
    own = whole_turn(session_id, new_id(), model="ollama/small", started_at=at(10))
    await store.apply(own)
    worker.wake()
    await worker.drain()
    assert [s.extractive for s in await in_order(store, session_id, 1)] == [False, True]
    session = await store.session(session_id)
    assert await insight_into(store, asker, session, store.apply) is None


async def test_a_model_that_breaks(store: Store) -> None:
    """Even a fault of our own costs that summary only, and the next process makes it."""
    session_id = await a_session(store, 3)
    llm = ScriptedLLM([DIGEST, RuntimeError("a fault"), DIGEST])
    embedder, metrics = HashEmbedder(), Metrics()
    worker = a_worker(store, embedder=embedder, llm=llm, metrics=metrics)
    assert not await worker.drain()
    assert len(await store.summaries(session_id, level=1)) == 2
    assert (await left(store))["vectors"] == 0
    assert metrics.counts["worker.failures"] == 1
    assert await a_worker(store, llm=a_model()).drain()
    assert len(await store.summaries(session_id, level=1)) == 3


# --- switched off ------------------------------------------------------------------


@pytest.mark.parametrize("config", [OFF, SummariesConfig()], ids=["summaries", "embeddings"])
async def test_what_is_switched_off_is_not_done(store: Store, config: SummariesConfig) -> None:
    """The other is done all the same; of summaries none are cut either."""
    session_id = await a_session(store, 10)
    llm, embedder = a_model(), HashEmbedder() if config is OFF else None
    assert await a_worker(store, embedder=embedder, llm=llm, config=config).drain()
    assert bool(llm.requests) is (config is not OFF)
    assert len(await store.summaries(session_id, level=1)) == (0 if config is OFF else 10)
    summary = (await store.session(session_id)).summary
    assert summary == (None if config is OFF else "Beds were planned.")
    assert ((await left(store))["vectors"] == 0) is (config is OFF)
    assert await store.embedder() == (EmbedderMark("hash-1", 64) if config is OFF else None)


async def test_an_unusable_answer_is_asked_for_three_times_by_all(open_store: OpenStore) -> None:
    """Another model is asked anew, and the same one when a person wants it."""
    session_id = await a_session(await open_store(), 1)

    async def asked_by_three_processes(model: str) -> int:
        requests = 0
        for _ in range(3):
            llm = ScriptedLLM([Says("Sure!")], repeat=True, info=ModelInfo(name=model))
            assert await a_worker(await open_store(), llm=llm).drain()
            requests += len(llm.requests)
        return requests

    assert await asked_by_three_processes("small") == 3
    [kept] = await (await open_store()).summaries(session_id)
    assert kept.extractive
    assert await asked_by_three_processes("another") == 3
    assert await asked_by_three_processes("another") == 0
    [given_up] = await (await open_store()).attempts(least=3)
    assert (given_up.model, given_up.session_id) == ("another", session_id)
    assert given_up_text([given_up]) == (
        "Given up after 3 answers that could not be used: 1 summary. "
        "The last, from another: it contains no JSON object"
    )
    await (await open_store()).forget_attempts(session_id)
    assert await asked_by_three_processes("another") == 3


async def test_what_was_refused_is_asked_for_again_after_pauses_that_all_processes_keep(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes too early waits for what is left of the pause; each of these dies while it does."""
    monkeypatch.setattr(summarizer, "PAUSES", PAUSES)
    session_id = await a_session(await open_store(), 1)
    [turn] = await (await open_store()).turns(session_id)
    waited: list[float] = []

    async def dies(seconds: float) -> None:
        waited.append(seconds)
        raise asyncio.CancelledError

    async def requests_after(seconds: float, answer: Says = Says("Sure!")) -> list[str]:  # noqa: B008
        llm = ScriptedLLM([answer], repeat=True)
        now = at(60) + timedelta(seconds=seconds)
        asker = Summarizer(
            llm, SummariesConfig(), open_attempts=open_store, clock=lambda: now, sleep=dies
        )
        with suppress(asyncio.CancelledError):
            await asker.summarize_turn(turn)
        return [request.messages[-1].text for request in llm.requests]

    assert len(await requests_after(0)) == 1
    assert await requests_after(1) == []
    [second] = await requests_after(2)
    assert "could not be used: it contains no JSON object" in second
    assert await requests_after(5) == []
    assert len(await requests_after(8)) == 1
    assert await requests_after(86_400) == []
    assert waited == [2, 1, 6, 3]
    # What is of use at last leaves nothing behind.
    await (await open_store()).forget_attempts(session_id)
    await requests_after(86_400)
    assert len(await requests_after(86_402, DIGEST)) == 1
    assert await (await open_store()).attempts() == []


async def test_nothing_is_asked_more_than_three_times_by_all(open_store: OpenStore) -> None:
    """Each of them has its own worker, and a person who looks over the sessions."""
    session_id = await a_session(await open_store(), 12)
    asked: Counter[tuple[str, str]] = Counter()

    async def one_process(store: Store) -> None:
        llm = ScriptedLLM([Says("Sure!")], repeat=True)
        opened = opening(store)
        asker = Summarizer(llm, SummariesConfig(), open_attempts=opened, sleep=no_wait)
        extractor = Extractor(facts_of(store), asker)
        worker = a_worker(store, summarizer=asker, extractor=extractor, names_sessions=True)
        assert await worker.drain()
        session = await store.session(session_id)
        assert await insight_into(store, asker, session, store.apply) is None
        for request in llm.requests:
            rules, data = (message.text for message in request.messages)
            data = re.sub("-[0-9a-f]{10}\\b", "", data.partition("That was the quoted data")[0])
            asked[rules, data] += 1

    for _ in range(4):
        await one_process(await open_store())
    assert set(asked.values()) == {TRIES}
    assert len({rules for rules, _ in asked}) == 6
    given_up = await (await open_store()).attempts(least=TRIES)
    kinds = {tried.item.partition(":")[0] for tried in given_up}
    assert kinds == {"summary", "thread", "memories", "title", "insight"}
    assert len(given_up) == len(asked)
