"""The cost of everything, by the number of turns in a memory.

Each phase runs in a separate process, whose peak resident memory is that of the phase. The baseline
of writes is a bare insert of the same texts (one row, one commit) in the same run; that of
everything else is its own cost in the smallest memory. Caches are warm, to time the program and not
the disk.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benches.filling import Filling
from benches.neo4j_server import server
from benches.places import open_sqlite
from benches.recording import STEPS, turn
from benches.spread import Spread, spread
from benches.tables import aligned
from ragmem.ids import short_id
from ragmem.records import SessionQuery, TurnQuery
from ragmem.store import Archive
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.transfer import copy, stream_of
from ragmem.store.transfer.document import document_of, encoded

T = TypeVar("T")
SIZES = "1000,100000"
APPENDED = 200
READS = 60
WINDOW = 30


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a memory with `turns` turns."""

    store: str
    turns: int
    sessions: int
    fill_turns_per_s: float
    """Storing a stream of PutTurn: from the generator (SQLite), or from SQLite (Neo4j)."""
    read_turns_per_s: float
    """Reading the turns as a stream of PutTurn."""
    back_turns_per_s: float | None = None
    """Moving from Neo4j into a new SQLite."""
    size_bytes: int
    fill_rss_bytes: int
    work_rss_bytes: int
    server_rss_bytes: int | None = None
    open_ms: float
    check_ms: float
    info_ms: float
    steps: dict[str, Spread]
    """The milliseconds of each step, by name."""


class Growths(msgspec.Struct, frozen=True, tag="growth"):
    """The results of one run."""

    grown: list[Growth] = []


class Place(msgspec.Struct, frozen=True):
    """The location of a store, which can be sent to a child process."""

    home: Path | None = None
    connection: Connection | None = None

    async def open(self) -> Archive:
        """Open the store as ragmem's long-running commands do."""
        if self.connection is not None:
            return await Neo4jStore.open(self.connection, timeout_s=3600)
        assert self.home is not None
        return await open_sqlite(self.home)


class Filled(msgspec.Struct, frozen=True):
    """The properties of a filled memory."""

    session_ids: list[str]
    long_ids: list[str]
    lengths: dict[str, int]
    large_project_id: str
    seconds: float
    rss_bytes: int


def measure_growth(folder: Path, sizes: str, stores: Sequence[str]) -> Iterator[Growths]:
    """Measure each store at each size, small ones first."""
    for size in sorted(map(int, (sizes or SIZES).split(","))):
        home = folder / f"sqlite-{size}"
        place = Place(home=home)
        filled = in_child(fill, place, size)
        if "sqlite" in stores:
            worked = in_child(work, place, filled)
            yield Growths([_grown("sqlite", size, filled, worked, files_size(home / "data"))])
        if "neo4j" in stores:
            yield Growths([_neo4j(folder, size, place, filled)])
        shutil.rmtree(home)


def _neo4j(folder: Path, size: int, source: Place, filled: Filled) -> Growth:
    """Measure the same memory in Neo4j, moved there and back."""
    with server(folder / f"neo4j-{size}") as running:
        place = Place(connection=running.connection)
        seconds, rss = in_child(move, source, place)
        worked = in_child(work, place, filled)
        back, _ = in_child(move, place, Place(home=folder / "back"))
        shutil.rmtree(folder / "back")
        moved = msgspec.structs.replace(filled, seconds=seconds, rss_bytes=rss)
        grown = _grown("neo4j", size, moved, worked, files_size(running.data))
        return msgspec.structs.replace(
            grown,
            back_turns_per_s=size / back,
            server_rss_bytes=peak_rss(running.pid),
        )


class Worked(msgspec.Struct, frozen=True):
    """The times and peak memory of one process."""

    steps: dict[str, Spread]
    read_s: float
    open_ms: float
    check_ms: float
    info_ms: float
    rss_bytes: int


def _grown(store: str, size: int, filled: Filled, worked: Worked, size_bytes: int) -> Growth:
    return Growth(
        store=store,
        turns=size,
        sessions=len(filled.session_ids),
        fill_turns_per_s=size / filled.seconds,
        read_turns_per_s=size / worked.read_s,
        size_bytes=size_bytes,
        fill_rss_bytes=filled.rss_bytes,
        work_rss_bytes=worked.rss_bytes,
        open_ms=worked.open_ms,
        check_ms=worked.check_ms,
        info_ms=worked.info_ms,
        steps=worked.steps,
    )


# --- phases, each in a process of its own ---------------------------------------


def in_child(phase: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    """Run a phase in a fresh process, and return its result."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, phase, *arguments).result()


def _run(phase: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    return asyncio.run(phase(*arguments))


async def fill(place: Place, size: int) -> Filled:
    """Fill the memory."""
    filling = Filling(size)
    store = await place.open()
    started = time.perf_counter()
    await copy(filling.stream, store, lambda *_: None)
    seconds = time.perf_counter() - started
    await store.aclose()
    return Filled(
        filling.session_ids,
        filling.long_ids,
        filling.lengths,
        filling.large_project.project_id,
        seconds,
        peak_rss(os.getpid()),
    )


async def move(source: Place, target: Place) -> tuple[float, int]:
    """Copy everything, as `store migrate` does; return the seconds and the peak memory."""
    from_store, to_store = await source.open(), await target.open()
    started = time.perf_counter()
    await copy(stream_of(from_store), to_store, lambda *_: None)
    seconds = time.perf_counter() - started
    await from_store.aclose()
    await to_store.aclose()
    return seconds, peak_rss(os.getpid())


async def work(place: Place, filled: Filled) -> Worked:
    """Time everything in a filled memory."""
    opens = []
    for _ in range(6):
        started = time.perf_counter()
        store = await place.open()
        await store.projects()
        opens.append(_ms(started))
        await store.aclose()
    store = await place.open()
    steps = await _reads(store, filled)
    steps |= await _appends(store, filled, place)
    info_ms = await _once(store.info)
    check_ms = await _once(store.check)
    rss = peak_rss(os.getpid())
    started = time.perf_counter()
    async for _ in stream_of(store)():
        pass
    read_s = time.perf_counter() - started
    await store.aclose()
    rss = max(rss, peak_rss(os.getpid()))
    return Worked(steps, read_s, statistics.median(opens[1:]), check_ms, info_ms, rss)


async def _reads(store: Archive, filled: Filled) -> dict[str, Spread]:
    chosen = random.Random(2).choices(filled.session_ids, k=READS)
    longs = [filled.long_ids[n % len(filled.long_ids)] for n in range(READS // 3)]
    cwds = [(await store.session(each)).cwd for each in chosen]
    projects = [(await store.session(each)).project_id for each in chosen]
    large = SessionQuery(project_ids=(filled.large_project_id,))

    async def export(session_id: str) -> None:
        encoded(await document_of(store, session_id))

    window, whole = TurnQuery(limit=WINDOW), TurnQuery()
    timed: dict[str, list[Callable[[], Awaitable[object]]]] = {
        f"load the newest {WINDOW} turns": [partial(store.turns, s, window) for s in longs],
        "load a session of 300": [partial(store.turns, s, whole) for s in longs],
        "export a session of 300": [partial(export, s) for s in longs],
        "list a folder": [partial(store.sessions, SessionQuery(cwd=c)) for c in cwds],
        "list a project": [
            partial(store.sessions, SessionQuery(project_ids=(p,))) for p in projects
        ],
        "list a large project": [partial(store.sessions, large)] * READS,
        "list everything, newest 50": [partial(store.sessions, SessionQuery())] * READS,
        "find by the tail of an id": [partial(store.find_sessions, short_id(s)) for s in chosen],
    }
    return {name: await _spread(runs) for name, runs in timed.items()}


async def _appends(store: Archive, filled: Filled, place: Place) -> dict[str, Spread]:
    """Time turns appended to sessions all over the memory, interleaved with bare inserts."""
    spent: dict[str, list[float]] = {name: [] for name in (*STEPS, "bare insert")}
    chosen = random.Random(3).choices(filled.session_ids, k=APPENDED + 5)
    async with bare(place) as insert:
        for number, session_id in enumerate(chosen):
            session = await store.session(session_id)
            writes = turn(session, number)
            for step, write in zip(STEPS, writes, strict=True):
                spent[step].append(await _once(partial(store.apply, [write])))
            spent["bare insert"].append(await _once(partial(insert, writes[1].call.result)))
    return {f"append: {name}": spread(samples[5:]) for name, samples in spent.items()}


@contextlib.asynccontextmanager
async def bare(place: Place) -> Any:
    """Provide a function that inserts and commits one row: the cost of the engine alone."""
    if place.connection is None:
        import apsw

        assert place.home is not None
        database = apsw.Connection(str(place.home / "bare.db"))
        database.pragma("journal_mode", "wal")
        database.pragma("synchronous", "FULL")
        database.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, text TEXT)")

        async def insert(text: str) -> None:
            database.execute("INSERT INTO bare (text) VALUES (?)", (text,))

        yield insert
        database.close()
        return
    from neo4j import AsyncGraphDatabase

    at = place.connection
    driver = AsyncGraphDatabase.driver(at.url, auth=(at.username, at.password))
    async with driver, driver.session() as session:

        async def create(text: str) -> None:
            await (await session.run("CREATE (:Bare {text: $text})", text=text)).consume()

        yield create
        await (await session.run("MATCH (n:Bare) DETACH DELETE n")).consume()


async def _once(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return _ms(started)


async def _spread(runs: list[Callable[[], Awaitable[object]]]) -> Spread:
    for run in runs[:5]:
        await run()
    return spread([await _once(run) for run in runs])


def _ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000


# --- sizes and the report ---------------------------------------------------------


def peak_rss(pid: int) -> int:
    """Return the peak resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def files_size(folder: Path) -> int:
    """Return the disk space that is allocated to all files in a folder, in bytes."""
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def growth_table(grown: Sequence[Growth]) -> str:
    """Return a column for each memory, with medians and 95th percentiles."""
    rows = [["", *(f"{g.store} {g.turns:,}" for g in grown)]]
    names = dict.fromkeys(name for g in grown for name in g.steps)
    for name in names:
        cells = [f"{g.steps[name].median:,.2f} ({g.steps[name].p95:,.2f})" for g in grown]
        rows.append([f"{name}, ms (p95)", *cells])
    rows += [
        ["open, ms", *(f"{g.open_ms:,.1f}" for g in grown)],
        ["store info, ms", *(f"{g.info_ms:,.0f}" for g in grown)],
        ["store check, ms", *(f"{g.check_ms:,.0f}" for g in grown)],
        ["taken in, turns/s", *(f"{g.fill_turns_per_s:,.0f}" for g in grown)],
        ["read out, turns/s", *(f"{g.read_turns_per_s:,.0f}" for g in grown)],
        ["moved back to sqlite, turns/s", *(_or_dash(g.back_turns_per_s, 1) for g in grown)],
        ["bytes a turn", *(f"{g.size_bytes / g.turns:,.0f}" for g in grown)],
        ["size, MB", *(f"{g.size_bytes / 1e6:,.1f}" for g in grown)],
        ["peak memory filling, MB", *(f"{g.fill_rss_bytes / 1e6:,.0f}" for g in grown)],
        ["peak memory at work, MB", *(f"{g.work_rss_bytes / 1e6:,.0f}" for g in grown)],
        ["peak memory of the server, MB", *(_or_dash(g.server_rss_bytes, 1e6) for g in grown)],
        ["sessions", *(f"{g.sessions:,}" for g in grown)],
    ]
    return aligned(rows)


def _or_dash(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:,.0f}"
