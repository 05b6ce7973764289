"""The latency of a turn among thousands of memories, and the quality of extraction.

The memories are sentences of the labelled sets, with their vectors. The baseline of what is cached
is reading all of them again, as a program without a cache does for each question; that of storing
one is a bare write, in the same run. Extraction uses the patterns alone, on the turns of
`tests/memory/facts/labelled.py`; its baseline keeps every prompt.
"""

import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from pathlib import Path

import msgspec

from benches.context import empty
from benches.growth import Place, in_child
from benches.memories import opened_with_embedder
from benches.spread import Spread, spread
from benches.tables import aligned
from ragmem.config import MemoryConfig
from ragmem.embedder import Embedder, embedding_hash
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import ContextBuilder
from ragmem.memory.context.collect import Place as Workplace
from ragmem.memory.facts import Draft, facts as known_facts
from ragmem.memory.facts.facts import Facts
from ragmem.memory.memory import Memory
from ragmem.memory.projects import NO_INSTRUCTIONS
from ragmem.records import (
    MEMORY_LEVEL,
    EmbedderMark,
    MemoryQuery,
    MemoryRecord,
    Project,
    PutMemory,
    PutVectors,
    RegisterProject,
    Write,
    utc_now,
)
from ragmem.store import Archive, Store
from tests.memory.facts.labelled import measured, turns
from tests.recall.labelled import labelled_sets

COUNT = 5_000
TURNS = 200
_RUNS = 25
_BATCH = 250
_CHARS = 240
_LEAST_PRECISION = 0.8
_PROJECT = Project(project_id="p", path="/home/ana/p0", created_at=utc_now())


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """An operation among many memories, interleaved with its baseline."""

    store: str
    what: str
    spread: Spread
    baseline: str
    beside: Spread


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a rule from the first turn is still in the request many turns later."""

    store: str
    turns: int
    system_messages: int
    """The number of different system messages: one, if nothing was ever lost or moved."""
    has_rule: bool
    last: Spread
    """The milliseconds of the last fifty requests."""
    first: Spread
    """The milliseconds of the first fifty requests."""


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """The precision and recall of extraction."""

    name: str
    turns: int
    precision: float
    recall: float


class Memories(msgspec.Struct, frozen=True, tag="memories"):
    """The results of one run."""

    count: int = COUNT
    timed: list[Timed] = []
    rules: list[Kept] = []
    extracted: list[Extracted] = []

    @property
    def kept(self) -> bool:
        """Whether every target is met."""
        whole = all(each.system_messages == 1 and each.has_rule for each in self.rules)
        return whole and all(
            each.precision >= _LEAST_PRECISION for each in self.extracted if each.name != _ALL
        )


_ALL = "every prompt is kept"


def measure_memories(folder: Path, stores: Sequence[str], count: int = COUNT) -> Iterator[Memories]:
    """Measure each store, then extraction."""
    for store in stores:
        with empty(folder / f"memories-{store}", store) as place:
            in_child(fill, place, count)
            timed = in_child(ask, place, store)
            yield Memories(count, timed, [in_child(converse, place, store)])
    yield Memories(count, extracted=in_child(extract))


# --- phases, each in a process of its own ---------------------------------------------


def sentences() -> Iterator[str]:
    """Yield different sentences from the labelled sets, endlessly."""
    said = [
        " ".join(text.split())[:_CHARS]
        for one in labelled_sets()
        for turn in one.turns
        for text in (turn.user_message, turn.assistant_message)
        if len(text) > 20
    ]
    for number, text in enumerate(cycle(dict.fromkeys(said))):
        yield text if number < len(said) else f"{text} ({number})"


async def fill(place: Place, count: int) -> None:
    """Fill a project with `count` memories."""
    async with opened_with_embedder(place) as (store, embedder):
        await store.apply([RegisterProject(project=_PROJECT)])
        info = embedder.info
        await store.use_embedder(EmbedderMark(info.model_id, info.dimension))
        texts = list(islice(sentences(), count))
        for start in range(0, count, _BATCH):
            part = texts[start : start + _BATCH]
            rows = await embedder.embed(part, "passage")
            writes: list[Write] = []
            for text, row in zip(part, rows, strict=True):
                writes += _one(text, row.astype("<f4").tobytes(), embedder)
            await store.apply(writes)


def _one(text: str, row: bytes, embedder: Embedder) -> list[Write]:
    now, model = utc_now(), embedder.info.model_id
    subjects = tuple(dict.fromkeys(word.casefold() for word in text.split() if word.istitle()))
    memory = MemoryRecord(
        memory_id=new_id(),
        content=text,
        subjects=subjects[:3],
        project_id=_PROJECT.project_id,
        created_at=now,
        updated_at=now,
    )
    return [
        PutMemory(memory=memory),
        PutVectors(
            record_id=memory.memory_id,
            level=MEMORY_LEVEL,
            embedder=model,
            text_hash=embedding_hash(model, "passage", text),
            vectors=(row,),
        ),
    ]


async def ask(place: Place, kind: str) -> list[Timed]:
    """Measure what each turn asks for, interleaved with the baselines."""
    # Without the cache's period of grace, so that each search checks the store.
    known_facts.FRESH_S = 0.0
    async with opened_with_embedder(place) as (store, embedder):

        async def opened() -> Store:
            return store

        facts = Facts(opened, new_id(), embedder=embedder)
        project_id = _PROJECT.project_id
        texts = islice(sentences(), 0, None, 37)
        number = 0

        async def read_all() -> None:
            await store.memories(MemoryQuery(project_ids=(project_id,), alive_at=utc_now()))

        async def look_through() -> None:
            """Look for each word of the question in each memory, as LIKE does."""
            words = next(texts).casefold().split()
            query = MemoryQuery(project_ids=(project_id,), alive_at=utc_now())
            held = [one.content.casefold() for one in await store.memories(query)]
            sorted(held, key=lambda content: -sum(word in content for word in words))

        async def search() -> None:
            await facts.search(next(texts)[:120], project_id=project_id)

        async def tell() -> None:
            nonlocal number
            number += 1
            await facts.remember(Draft(content=f"Plot {number} belongs to {new_id()}"), project_id)

        async def write_one() -> None:
            await store.apply(
                _one(f"Bare {new_id()}", bytes(4 * embedder.info.dimension), embedder)
            )

        async def pinned() -> None:
            await facts.pinned(project_id)

        async def told_before() -> None:
            """Add a memory before each timed run, without being timed itself."""
            await tell()

        await pinned()
        rows = [
            await _timed(kind, "rules, nothing changed", pinned, "all are read", read_all),
            await _timed(
                kind, "rules, after one was told", pinned, "all are read", read_all, told_before
            ),
            await _timed(kind, "search", search, "all are read, each word in each", look_through),
            await _timed(kind, "keep one", tell, "a bare write", write_one),
        ]
    return rows


async def _nothing() -> None:
    return None


Step = Callable[[], Awaitable[None]]


async def _timed(
    kind: str, what: str, way: Step, baseline: str, other: Step, before: Step = _nothing
) -> Timed:
    mine, theirs = list[float](), list[float]()
    await way()
    await other()
    for _ in range(_RUNS):
        await before()
        for step, spent in ((way, mine), (other, theirs)):
            started = time.perf_counter()
            await step()
            spent.append((time.perf_counter() - started) * 1000)
    return Timed(
        store=kind, what=what, spread=spread(mine), baseline=baseline, beside=spread(theirs)
    )


async def converse(place: Place, kind: str) -> Kept:
    """Pin a rule in the first turn, then build the requests of many turns."""
    said = cycle([turn for one in labelled_sets() for turn in one.turns])
    async with AsyncExitStack() as stack:
        store, embedder = await stack.enter_async_context(opened_with_embedder(place))
        memory, builder = _memory(store, embedder)
        session = memory.new_session(Path(_PROJECT.path), _PROJECT)
        top = Path(_PROJECT.path)
        workplace = Workplace(cwd=top, project=top, instructions=NO_INSTRUCTIONS)
        assert memory.facts is not None
        rule = "Answer in French, always"
        await memory.facts.remember(
            Draft(content=rule, kind="rule", pinned=True, scope="project"), _PROJECT.project_id
        )
        systems: list[str] = []
        spent: list[float] = []
        for turn in islice(said, TURNS):
            recording = await memory.begin_turn(session, _PROJECT, turn.user_message, model="m")
            started = time.perf_counter()
            context = await memory.build_context(
                session, turn.user_message, builder, workplace, turn=recording.turn
            )
            spent.append((time.perf_counter() - started) * 1000)
            systems.append(context.messages[0].text)
            await recording.finish("completed", turn.assistant_message)
            memory.finished(session, recording.turn)
        await memory.aclose()
    return Kept(
        store=kind,
        turns=TURNS,
        system_messages=len(set(systems)),
        has_rule=all(rule in text for text in systems),
        last=spread(spent[-50:]),
        first=spread(spent[:50]),
    )


def _memory(store: Archive, embedder: Embedder) -> tuple[Memory, ContextBuilder]:
    async def opened() -> Store:
        return store

    config = MemoryConfig()
    info = ModelInfo(name="openai/some-model", context_window=128_000)
    return Memory(opened, config, embedder=embedder), ContextBuilder(config, info)


async def extract() -> list[Extracted]:
    """Measure the patterns on the labelled set, and the baseline that keeps every prompt."""
    labelled = turns()
    with tempfile.TemporaryDirectory() as folder:
        score = await measured(labelled, Path(folder))
    worth = sum(bool(turn.kind) for turn in labelled)
    return [
        Extracted(
            name="patterns and failures, no model",
            turns=len(labelled),
            precision=score.precision,
            recall=score.recall,
        ),
        Extracted(name=_ALL, turns=len(labelled), precision=worth / len(labelled), recall=1.0),
    ]


# --- showing --------------------------------------------------------------------------


def memories_table(found: Memories) -> str:
    """Return a row for each operation with its baseline, each rule, and each way of extracting."""
    head = ["", "min, ms", "median", "max", "baseline", "min", "median", "max"]
    timed = [[f"{found.count:,} memories", *head[1:]]]
    for each in found.timed:
        timed.append(
            [
                f"{each.store}: {each.what}",
                *_three(each.spread),
                each.baseline,
                *_three(each.beside),
            ]
        )
    rules = [
        ["a rule of turn 1", "turns", "system messages", "min, ms", "median", "max", "at first"]
    ]
    for rule in found.rules:
        rules.append(
            [
                f"{rule.store}: it is in all of them" if rule.has_rule else f"{rule.store}: LOST",
                str(rule.turns),
                "1, to the byte" if rule.system_messages == 1 else f"{rule.system_messages} MISSED",
                *_three(rule.last),
                f"{rule.first.median:.1f}",
            ]
        )
    extracted = [["extraction", "turns", "precision", "recall"]]
    for way in found.extracted:
        extracted.append([way.name, str(way.turns), f"{way.precision:.2f}", f"{way.recall:.2f}"])
    tables = (timed, rules, extracted)
    return "\n\n".join(aligned(table) for table in tables if len(table) > 1)


def _three(found: Spread) -> list[str]:
    return [f"{number:.1f}" for number in (found.minimum, found.median, found.maximum)]
