"""Building contexts in memories of any size, and over a conversation of 1,000 turns.

Questions are embedded with the real model, which is loaded beforehand, and the memory has as many
vectors as a real one. The baselines are the same without recall (`recent`), and embedding the
question alone.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path

import msgspec

from benches.content import Content
from benches.growth import Place, in_child
from benches.memories import gone, opened_with_embedder, worker
from benches.neo4j_server import server
from benches.search import NICE
from benches.spread import Spread, best, spread
from benches.tables import aligned
from ragmem.config import MemoryConfig
from ragmem.embedder import Embedder
from ragmem.embedder.models import INFO
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import Place as Workplace, Strategy
from ragmem.memory.memory import Memory
from ragmem.memory.projects import NO_INSTRUCTIONS
from ragmem.messages import TextPart, ToolAnswer
from ragmem.records import EmbedderMark, Project, SessionQuery, utc_now
from ragmem.store import Archive, Store
from tests.recall.labelled import labelled_sets

SIZES = "1000,10000,100000"
QUESTIONS, ROUNDS = 40, 4
TARGETS_MS = {10_000: 60.0, 100_000: 150.0}
"""The targets for the p95 on SQLite, by the number of turns."""
CONVERSATION = 1_000
_STEP = 50
_WINDOW = 128_000


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The milliseconds of building a context."""

    store: str
    turns: int
    what: str
    spread: Spread
    cpu_ms: float = 0
    """The mean CPU time of this process for one context, which other processes don't affect."""
    target_ms: float | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a long conversation; its times cover all requests since the previous step."""

    store: str
    turn: int
    chars: int
    shared_chars: int
    """The length of the common prefix with the previous request, which a provider has cached."""
    max_chars: int
    build_ms: float
    build_p95_ms: float


class Contexts(msgspec.Struct, frozen=True, tag="context"):
    """The results of one run."""

    built: list[Built] = []
    steps: list[Step] = []

    @property
    def kept(self) -> bool:
        """Whether every target is met."""
        return all(b.target_ms is None or b.spread.p95 < b.target_ms for b in self.built)


def measure_context(
    folder: Path, sizes: str, stores: Sequence[str], conversation: int = CONVERSATION
) -> Iterator[Contexts]:
    """Measure each size on each store, then the conversation on each."""
    for store in stores:
        for turns in map(int, (sizes or SIZES).split(",")):
            with empty(folder / f"context-{store}", store) as place:
                in_child(fill, place, turns)
                yield Contexts(in_child(build_many, place, store, turns), [])
        with empty(folder / f"context-{store}", store) as place:
            yield Contexts([], in_child(converse, place, store, conversation))


@contextmanager
def empty(folder: Path, store: str) -> Iterator[Place]:
    """Provide an empty memory, and remove it afterwards."""
    if store == "neo4j":
        with server(folder) as running:
            yield Place(connection=running.connection)
    else:
        yield Place(home=folder)
        gone(folder)


# --- phases, each in a process of its own ---------------------------------------


def _content(turns: int) -> Content:
    return Content(turns, 1, mark=EmbedderMark(INFO.model_id, INFO.dimension))


async def fill(place: Place, turns: int) -> None:
    """Fill the memory with a project of so many turns."""
    os.nice(NICE)
    store, content = await place.open(), _content(turns)
    await store.use_embedder(content.mark)
    async for batch in content.writes():
        await store.apply(batch)
    await store.aclose()


def _memory(store: Archive, embedder: Embedder) -> tuple[Memory, ContextBuilder]:
    async def opened() -> Store:
        return store

    config = MemoryConfig()
    info = ModelInfo(name="openai/some-model", context_window=_WINDOW)
    return Memory(opened, config, embedder=embedder), ContextBuilder(config, info)


_TOP = Path("/home/ana/p0")
_WORKPLACE = Workplace(cwd=_TOP, project=_TOP, instructions=NO_INSTRUCTIONS)


async def build_many(place: Place, kind: str, turns: int) -> list[Built]:
    """Measure contexts for questions at the end of the newest session."""
    content = _content(turns)
    async with AsyncExitStack() as stack:
        store, embedder = await stack.enter_async_context(opened_with_embedder(place))
        memory, builder = _memory(store, embedder)
        [session] = await store.sessions(SessionQuery(limit=1))

        async def once(strategy: Strategy, number: int) -> None:
            prompt = f"Where did we settle {' '.join(content.text(number).split()[:8])}?"
            await memory.build_context(session, prompt, builder, _WORKPLACE, strategy=strategy)

        async def embed(number: int) -> None:
            await embedder.embed([content.text(number)[:60]], "query")

        ways = {
            "context": lambda number: once("hybrid", number),
            "without recall": lambda number: once("recent", number),
            "the question's vector alone": embed,
        }
        found = []
        for name, way in ways.items():
            rounds = []
            await way(0)
            cpu = time.process_time()
            for turn in range(ROUNDS):
                spent = []
                # A different question each time, so that no cache is used.
                for number in range(turn, ROUNDS * QUESTIONS, ROUNDS):
                    started = time.perf_counter()
                    await way(number * turns // (ROUNDS * QUESTIONS))
                    spent.append((time.perf_counter() - started) * 1000)
                rounds.append(spread(spent))
            cpu_ms = (time.process_time() - cpu) * 1000 / (ROUNDS * QUESTIONS)
            target = TARGETS_MS.get(turns) if (kind, name) == ("sqlite", "context") else None
            found.append(
                Built(
                    store=kind,
                    turns=turns,
                    what=name,
                    spread=best(rounds),
                    cpu_ms=cpu_ms,
                    target_ms=target,
                )
            )
        await memory.aclose()
    return found


async def converse(place: Place, kind: str, turns: int) -> list[Step]:
    """Measure a conversation of turns from the labelled sets, with vectors and summaries."""
    said = cycle([turn for one in labelled_sets() for turn in one.turns])
    steps: list[Step] = []
    async with AsyncExitStack() as stack:
        store, embedder = await stack.enter_async_context(opened_with_embedder(place))
        memory, builder = _memory(store, embedder)
        background = worker(store, embedder, summarizes=True)
        project = Project(project_id="p", path="/home/ana/p0", created_at=utc_now())
        session = memory.new_session(Path("/home/ana/p0"), project)
        spent: list[float] = []
        before = ""
        for number, turn in enumerate(islice(said, turns), 1):
            recording = await memory.begin_turn(session, project, turn.user_message, model="m")
            started = time.perf_counter()
            context = await memory.build_context(
                session,
                turn.user_message,
                builder,
                _WORKPLACE,
                turn=recording.turn,
            )
            spent.append((time.perf_counter() - started) * 1000)
            for call in turn.tool_calls:
                own = msgspec.structs.replace(
                    call, tool_call_id=new_id(), turn_id=recording.turn.turn_id
                )
                await recording.call(own)
            await recording.finish("completed", turn.assistant_message)
            memory.finished(session, recording.turn)
            request = rendered(context)
            if number == 1 or not number % _STEP:
                found = spread(spent)
                steps.append(
                    Step(
                        store=kind,
                        turn=number,
                        chars=len(request),
                        shared_chars=shared(before, request),
                        max_chars=context.max_chars,
                        build_ms=found.median,
                        build_p95_ms=found.p95,
                    )
                )
                spent = []
            before = request
            # The background work of a turn is done before the next one, while a user would read.
            await background.drain()
        await memory.aclose()
    return steps


def rendered(context: Context) -> str:
    """Return the request as one text, in the order in which a provider reads it."""
    parts = []
    for message in context.messages:
        texts = [p.text for p in message.parts if isinstance(p, TextPart | ToolAnswer)]
        calls = [f"{use.name}{use.arguments}" for use in message.tool_uses]
        parts.append("\n".join([message.role, *texts, *calls]))
    return "\n".join(parts)


def shared(before: str, after: str) -> int:
    """Return the length of the common prefix."""
    least = min(len(before), len(after))
    return next((n for n in range(least) if before[n] != after[n]), least)


def context_table(found: Contexts) -> str:
    """Return a row for each way in each memory, then one for each step of the conversations."""
    rows = [["context, ms", "turns", "min", "median", "p95", "max", "processor", "target", ""]]
    for each in found.built:
        s = each.spread
        target = each.target_ms
        verdict = "" if target is None else ("ok" if s.p95 < target else "MISSED")
        rows.append(
            [
                f"{each.store}: {each.what}",
                f"{each.turns:,}",
                *(f"{number:.1f}" for number in (s.minimum, s.median, s.p95, s.maximum)),
                f"{each.cpu_ms:.1f}",
                "" if target is None else f"{target:g}",
                verdict,
            ]
        )
    steps = [["conversation", "characters", "shared", "of at most", "median, ms", "p95"]]
    for step in found.steps:
        steps.append(
            [
                f"{step.store}: turn {step.turn:,}",
                f"{step.chars:,}",
                f"{step.shared_chars / step.chars:.0%}",
                f"{step.max_chars:,}",
                f"{step.build_ms:.1f}",
                f"{step.build_p95_ms:.1f}",
            ]
        )
    return "\n\n".join(aligned(table) for table in (rows, steps) if len(table) > 1)
