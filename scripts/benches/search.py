"""The latency of searches by words, by vector and by both, in memories of any size.

The baseline is the engine alone with the same words. The questions about one of many projects are
also asked in a memory with only that project. Filling and searching run in separate processes, so
that the memory use of each is known.
"""

import itertools
import os
import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from benches.content import MARK, Content
from benches.growth import Place, files_size, in_child, peak_rss
from benches.neo4j_server import server
from benches.spread import Spread, best, spread
from benches.tables import aligned
from ragmem.records import Scope, SearchQuery
from ragmem.store import Archive

TARGETS_MS = {
    ("sqlite", 10_000): 20.0,
    ("sqlite", 100_000): 100.0,
    ("neo4j", 10_000): 50.0,
    ("neo4j", 100_000): 50.0,
}
"""The targets for the p95 in a memory with one project, by the number of turns."""
QUESTIONS = 60
ROUNDS = 5
SIZES = {
    "sqlite": "1000,10000,100000,1000000/1000",
    "neo4j": "1000,10000,100000,100000/100",
}
KINDS = {"words": (True, False), "vector": (False, True), "both": (True, True)}
NICE = 5
"""The niceness of filling, which takes long."""
ONE = 7
"""The project that also gets a memory of its own."""

Asked = Literal["any", "one", "alone"]


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The milliseconds of one kind of search in one memory."""

    store: str
    turns: int
    projects: int
    kind: str
    asked: Asked = "any"
    """In which project: any; one among many; or that one in a memory of its own."""
    first: float
    """The first search in a process, which fills its caches."""
    spread: Spread
    cpu_ms: float = 0
    """The mean CPU time of this process for one search, which other processes don't affect."""
    recall: float | None = None
    """The share of the 20 nearest turns by exact cosine among the answers."""

    @property
    def target_ms(self) -> float | None:
        """Return the target for the p95, if there is one."""
        return TARGETS_MS.get((self.store, self.turns)) if self.projects == 1 else None

    @property
    def kept(self) -> bool:
        """Whether the target is met."""
        return self.target_ms is None or self.spread.p95 < self.target_ms


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The time, disk space and memory for filling, keeping and searching a memory."""

    store: str
    turns: int
    projects: int
    asked: Asked = "any"
    fill_s: float
    size_bytes: int
    fill_rss_bytes: int
    search_rss_bytes: int
    server_rss_bytes: int | None = None


class Searches(msgspec.Struct, frozen=True, tag="search"):
    """The results of one run."""

    searched: list[Searched] = []
    memories: list[Kept] = []

    @property
    def kept(self) -> bool:
        """Whether every target is met."""
        return all(each.kept for each in self.searched)


class Size(msgspec.Struct, frozen=True):
    """The size of a memory to fill; with `alone`, only the project `ONE` is stored."""

    turns: int
    projects: int
    alone: bool = False


def measure_search(folder: Path, sizes: str, stores: Sequence[str]) -> Iterator[Searches]:
    """Measure each size (`turns` or `turns/projects`, separated by commas) on each store."""
    for store in stores:
        for size in (sizes or SIZES[store]).split(","):
            turns, projects = map(int, f"{size}/1".split("/")[:2])
            alone = [Size(turns, projects, alone=True)] if projects > ONE else []
            for each in (*alone, Size(turns, projects)):
                yield one_memory(folder / f"search-{store}", store, each)


def one_memory(folder: Path, store: str, size: Size) -> Searches:
    """Fill, search and remove a memory."""
    if store == "sqlite":
        place = Place(home=folder)
        filled = in_child(fill, place, size)
        found = in_child(ask, place, store, size)
        size_bytes = files_size(folder / "data")
        shutil.rmtree(folder)
        return Searches(found[0], [_kept(store, size, filled, found[1], size_bytes)])
    with server(folder) as running:
        place = Place(connection=running.connection)
        filled = in_child(fill, place, size)
        found = in_child(ask, place, store, size)
        kept = _kept(store, size, filled, found[1], files_size(running.data))
        server_rss = peak_rss(running.pid)
        return Searches(found[0], [msgspec.structs.replace(kept, server_rss_bytes=server_rss)])


def _kept(
    store: str, size: Size, filled: tuple[float, int], search_rss: int, size_bytes: int
) -> Kept:
    return Kept(
        store=store,
        turns=size.turns,
        projects=size.projects,
        asked="alone" if size.alone else "any",
        fill_s=filled[0],
        fill_rss_bytes=filled[1],
        search_rss_bytes=search_rss,
        size_bytes=size_bytes,
    )


# --- phases, each in a process of its own ---------------------------------------


async def fill(place: Place, size: Size) -> tuple[float, int]:
    """Fill a memory; return the seconds of storing, without generating, and the peak memory."""
    os.nice(NICE)
    content = Content(size.turns, size.projects)
    store = await place.open()
    await store.use_embedder(MARK)
    spent = 0.0
    async for batch in content.writes(ONE if size.alone else None):
        started = time.perf_counter()
        await store.apply(batch)
        spent += time.perf_counter() - started
    await store.aclose()
    return spent, peak_rss(os.getpid())


async def ask(place: Place, kind: str, size: Size) -> tuple[list[Searched], int]:
    """Search for all questions; return the results and the peak memory."""
    content = Content(size.turns, size.projects)
    store = await place.open()
    of_one = list(content.numbers(ONE)) if size.projects > ONE else []
    subjects: dict[Asked, Sequence[int]] = {}
    if not size.alone:
        subjects["any"] = range(size.turns)
    if of_one:
        subjects["alone" if size.alone else "one"] = of_one
    asked: list[tuple[Asked, list[int]]] = [
        (name, random.Random(3).sample(numbers, k=min(QUESTIONS, len(numbers))))
        for name, numbers in subjects.items()
    ]
    found = []
    for (name, numbers), (way, (words, vector)) in itertools.product(asked, KINDS.items()):
        row = await _asked(store, content, numbers, words=words, vector=vector)
        found.append(
            Searched(
                store=kind,
                turns=size.turns,
                projects=size.projects,
                kind=way,
                asked=name,
                first=row[0],
                spread=row[1],
                cpu_ms=row[2],
            )
        )
    rss = peak_rss(os.getpid())
    if kind == "sqlite":
        for name, numbers in asked:
            found.append(await _bare_sqlite(store, content, name, numbers))
    # Last: the exact comparison needs memory, and its threads spin on for a while.
    recalls = {name: await _recall(store, content, numbers) for name, numbers in asked}
    await store.aclose()
    return [
        msgspec.structs.replace(row, recall=recalls[row.asked]) if row.kind == "vector" else row
        for row in found
    ], rss


def _query(content: Content, number: int, *, words: bool, vector: bool) -> SearchQuery:
    scope = Scope(project_ids=(f"p{content.project_of(number)}",))
    return content.question(number, words=words, vector=vector, scope=scope)


async def _asked(
    store: Archive, content: Content, numbers: Sequence[int], *, words: bool, vector: bool
) -> tuple[float, Spread, float]:
    """Return the first search's milliseconds, the times of the fastest round, and the CPU time."""
    queries = [_query(content, number, words=words, vector=vector) for number in numbers]
    rounds = []
    cpu = time.process_time()
    for _ in range(ROUNDS):
        spent = []
        for query in queries:
            started = time.perf_counter()
            await store.search(query)
            spent.append((time.perf_counter() - started) * 1000)
        rounds.append(spent)
    cpu_ms = (time.process_time() - cpu) * 1000 / (ROUNDS * len(queries))
    return rounds[0][0], best(spread(spent[1:]) for spent in rounds), cpu_ms


async def _recall(store: Archive, content: Content, numbers: Sequence[int]) -> float:
    shares = []
    for number in numbers:
        query = _query(content, number, words=False, vector=True)
        ids = {each.record_id for each in await store.search(query)}
        shares.append(len(content.nearest(query, number, 20) & ids) / 20)
    return statistics.mean(shares)


async def _bare_sqlite(
    store: Any, content: Content, asked: Asked, numbers: Sequence[int]
) -> Searched:
    """Measure FTS5 alone: its BM25 over the same terms of the same index."""
    spent = []
    for number in numbers:
        project = f"p{content.project_of(number)}"
        query = content.question(number, words=True, vector=False, scope=Scope())

        def ask(db: Any, project: str = project, query: SearchQuery = query) -> object:
            held = "SELECT number FROM project_numbers WHERE project_id = ?"
            mark = db.execute(held, (project,)).get
            terms = " OR ".join(f'"{term.term}|{mark}"' for term in query.terms)
            return db.execute(
                "SELECT rowid, rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 50",
                (terms,),
            ).fetchall()

        started = time.perf_counter()
        await store._reader.run(ask)
        spent.append((time.perf_counter() - started) * 1000)
    return Searched(
        store="FTS5 alone",
        turns=content.turns,
        projects=content.projects,
        kind="words",
        asked=asked,
        first=spent[0],
        spread=spread(spent[1:]),
    )


# --- the report -------------------------------------------------------------------

_NAMES = {"any": "", "one": ", one project", "alone": ", that project alone"}


def search_table(found: Searches) -> str:
    """Return a row for each kind in each memory, then one for each memory."""
    rows = [
        [
            "search, ms",
            "turns",
            "projects",
            "first",
            "min",
            "median",
            "p95",
            "max",
            "processor",
            "of 20",
            "target",
            "",
        ]
    ]
    for each in found.searched:
        s = each.spread
        rows.append(
            [
                f"{each.store}: {each.kind}{_NAMES[each.asked]}",
                f"{each.turns:,}",
                f"{each.projects:,}",
                *(f"{n:.1f}" for n in (each.first, s.minimum, s.median, s.p95, s.maximum)),
                f"{each.cpu_ms:.1f}" if each.cpu_ms else "",
                "" if each.recall is None else f"{each.recall:.3f}",
                "" if each.target_ms is None else f"{each.target_ms:g}",
                "" if each.target_ms is None else "ok" if each.kept else "MISSED",
            ]
        )
    kept = [["memory", "turns", "projects", "filled, s", "on disk, MB", "filling", "searching", ""]]
    for memory in found.memories:
        server_rss = memory.server_rss_bytes
        kept.append(
            [
                f"{memory.store}{_NAMES[memory.asked]}",
                f"{memory.turns:,}",
                f"{memory.projects:,}",
                f"{memory.fill_s:,.0f}",
                f"{memory.size_bytes / 1e6:,.0f}",
                f"{memory.fill_rss_bytes / 1e6:,.0f} MB",
                f"{memory.search_rss_bytes / 1e6:,.0f} MB",
                f"server {server_rss / 1e6:,.0f} MB" if server_rss else "",
            ]
        )
    return f"{aligned(rows)}\n\n{aligned(kept)}"
