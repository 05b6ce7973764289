"""How long a search takes: by words, by vector, by both, in a memory of any size.

Words are spread as in texts (the n-th commonest is 1/n as common as the first), vectors
lie in clusters; questions hold words of a turn that is there, and a vector near its own.
Beside it what the engine alone needs for the same words.
"""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from benches.neo4j_server import server
from benches.places import open_sqlite
from ragmem.records import (
    Project,
    PutSession,
    PutTurn,
    PutVectors,
    RegisterProject,
    Session,
    Turn,
    Write,
    utc_now,
)
from ragmem.store.base import Archive
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.recall import EmbedderMark, Scope, SearchQuery, WeightedTerm
from ragmem.terms import query_terms

DIMENSION = 384
QUESTIONS = 60
_MARK = EmbedderMark("bench", DIMENSION)
_VOCABULARY = 40_000
_TURNS_OF_A_SESSION = 40
_BATCH = 100
_START = datetime(2025, 1, 1, tzinfo=UTC)


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of one kind of search in one memory."""

    store: str
    turns: int
    projects: int
    kind: str
    first: float
    """Of the first one in a process: what it keeps in memory is read."""
    minimum: float
    median: float
    p95: float
    maximum: float
    recall: float | None = None
    """Of the 20 nearest by exact cosine, how many are among the answers."""


class Content:
    """The same texts and vectors for the same size."""

    def __init__(self, turns: int, projects: int) -> None:
        import numpy as np

        self._random = np.random.default_rng(7)
        chances = 1 / np.arange(1, _VOCABULARY + 1)
        self._words = self._random.choice(_VOCABULARY, size=3_000_000, p=chances / chances.sum())
        lengths = self._random.lognormal(4.8, 0.7, turns).clip(10, 3000).astype(int)
        starts = self._random.integers(0, len(self._words) - 3000, turns)
        self._texts = list(zip(starts.tolist(), lengths.tolist(), strict=True))
        centres = self._random.standard_normal((300, DIMENSION), dtype=np.float32)
        near = centres[self._random.integers(0, 300, turns)]
        vectors = near + 0.8 * self._random.standard_normal((turns, DIMENSION), dtype=np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.turns = turns
        self.projects = projects

    def text(self, number: int) -> str:
        """Of a turn: words of letters, a few of them names as code has them."""
        start, length = self._texts[number]
        return " ".join(map(_word, self._words[start : start + length].tolist()))

    def project_of(self, number: int) -> int:
        """Sessions go to the projects in turn."""
        return number // _TURNS_OF_A_SESSION % self.projects

    async def writes(self) -> AsyncIterator[list[Write]]:
        """All of it, in batches."""
        batch: list[Write] = []
        for number in range(self.projects):
            path = f"/home/ana/p{number}"
            project = Project(project_id=f"p{number}", path=path, created_at=_START)
            batch.append(RegisterProject(project=project))
        for number in range(self.turns):
            session_id = f"s{number // _TURNS_OF_A_SESSION}"
            index = number % _TURNS_OF_A_SESSION
            at = _START + timedelta(minutes=number)
            if not index:
                session = Session(
                    session_id=session_id,
                    cwd=f"/home/ana/p{self.project_of(number)}",
                    project_id=f"p{self.project_of(number)}",
                    started_at=at,
                    updated_at=at,
                    last_activity_at=at,
                )
                batch.append(PutSession(session=session))
            said = self.text(number)
            user, answer = said[: len(said) // 8], said[len(said) // 8 :]
            turn = Turn(
                turn_id=f"t{number}",
                session_id=session_id,
                turn_index=index + 1,
                user_message=user,
                assistant_message=answer,
                status="completed",
                started_at=at,
                finished_at=at,
            )
            batch.append(PutTurn(turn=turn))
            batch.append(
                PutVectors(
                    record_id=turn.turn_id,
                    level=0,
                    embedder=_MARK.model_id,
                    text_hash="",
                    vectors=(self.vectors[number].astype("<f4").tobytes(),),
                )
            )
            if len(batch) >= 2 * _BATCH:
                yield batch
                batch = []
        yield batch

    def question(self, number: int, *, words: bool, vector: bool, scope: Scope) -> SearchQuery:
        """About a turn: eight of its words, common and rare, and a vector near its own."""
        import numpy as np

        chosen = random.Random(number)
        said = self.text(number).split()
        text = " ".join(chosen.sample(said, min(8, len(said)))) if words else ""
        near = (
            self.vectors[number]
            + 0.3
            * np.random.default_rng(number).standard_normal(DIMENSION, dtype=np.float32)
            / DIMENSION**0.5
        )
        near /= np.linalg.norm(near)
        return SearchQuery(
            scope=scope,
            terms=tuple(WeightedTerm(term.term, term.weight) for term in query_terms(text)),
            vector=near.astype("<f4").tobytes() if vector else b"",
            embedder=_MARK.model_id,
        )

    def nearest(self, query: SearchQuery, number: int, count: int) -> set[str]:
        """Ids of the turns of its project that are nearest by exact cosine."""
        import numpy as np

        numbers = np.arange(self.turns)
        own = numbers[numbers // _TURNS_OF_A_SESSION % self.projects == self.project_of(number)]
        cosines = self.vectors[own] @ np.frombuffer(query.vector, "<f4")
        return {f"t{own[place]}" for place in np.argsort(-cosines)[:count]}


_SYLLABLES = ("ba", "co", "di", "fe", "gu", "hal", "in", "jo", "ket", "lo", "mar", "ne", "or")


def _word(number: int) -> str:
    parts = []
    rest = number + 13
    while rest:
        rest, part = divmod(rest, len(_SYLLABLES))
        parts.append(_SYLLABLES[part])
    if number % 17 == 3:
        return "_".join(parts)
    return "".join(parts) if number % 19 else f"src/{''.join(parts)}.py"


async def measure_search(store: Archive, kind: str, content: Content) -> list[Searched]:
    """Fill an empty store, and ask it."""
    await store.use_embedder(_MARK)
    async for batch in content.writes():
        await store.apply(batch)
    chosen = random.Random(3).sample(range(content.turns), k=min(QUESTIONS, content.turns))
    found = []
    for name, words, vector in (
        ("words", True, False),
        ("vector", False, True),
        ("both", True, True),
    ):
        spent: list[float] = []
        answers: list[tuple[int, SearchQuery, set[str]]] = []
        for number in chosen:
            scope = Scope(project_ids=(f"p{content.project_of(number)}",))
            query = content.question(number, words=words, vector=vector, scope=scope)
            started = time.perf_counter()
            candidates = await store.search(query)
            spent.append((time.perf_counter() - started) * 1000)
            answers.append((number, query, {each.record_id for each in candidates}))
        # Afterwards: the threads of the exact comparison spin on for a while.
        recalled = [
            len(content.nearest(query, number, 20) & ids) / 20
            for number, query, ids in answers
            if vector
        ]
        found.append(
            summed(
                spent,
                store=kind,
                turns=content.turns,
                projects=content.projects,
                kind=name,
                recall=statistics.mean(recalled) if recalled else None,
            )
        )
    return found


def summed(spent: Sequence[float], **more: Any) -> Searched:
    """The first one apart, and the others' spread."""
    ordered = sorted(spent[1:])
    return Searched(
        first=spent[0],
        minimum=ordered[0],
        median=statistics.median(ordered),
        p95=ordered[round(0.95 * (len(ordered) - 1))],
        maximum=ordered[-1],
        **more,
    )


async def bare_sqlite(store: Any, content: Content) -> list[Searched]:
    """FTS5 alone: its own BM25 over the same terms of the same index."""
    chosen = random.Random(3).sample(range(content.turns), k=min(QUESTIONS, content.turns))
    spent = []
    for number in chosen:
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
    return [
        summed(
            spent,
            store="fts5 alone",
            turns=content.turns,
            projects=content.projects,
            kind="words",
        )
    ]


async def search_sqlite(folder: Path, turns: int, projects: int) -> list[Searched]:
    """The embedded store, and its engine alone."""
    content = Content(turns, projects)
    store = await open_sqlite(folder / f"search-{turns}-{projects}")
    try:
        found = await measure_search(store, "sqlite", content)
        return found + await bare_sqlite(store, content)
    finally:
        await store.aclose()


async def search_neo4j(connection: Connection, turns: int, projects: int) -> list[Searched]:
    """The graph store, on an empty server."""
    store = await Neo4jStore.open(connection)
    try:
        return await measure_search(store, "neo4j", Content(turns, projects))
    finally:
        await store.aclose()


def measure(folder: Path, sizes: Sequence[str], stores: Sequence[str]) -> Iterator[Searched]:
    """Each size, as `turns` or `turns/projects`, on each store."""
    asked = [tuple(map(int, f"{size}/1".split("/")[:2])) for size in sizes]
    for turns, projects in asked:
        if "sqlite" in stores:
            yield from asyncio.run(search_sqlite(folder, turns, projects))
    if "neo4j" in stores:
        for turns, projects in asked:
            with server(folder / f"neo4j-{turns}-{projects}") as running:
                yield from asyncio.run(search_neo4j(running.connection, turns, projects))


def search_table(found: Sequence[Searched]) -> str:
    """A line for each kind in each memory."""
    rows = [["search, ms", "turns", "projects", "first", "min", "median", "p95", "max", "of 20"]]
    for each in found:
        numbers = [each.first, each.minimum, each.median, each.p95, each.maximum]
        rows.append(
            [
                f"{each.store}: {each.kind}",
                f"{each.turns:,}",
                f"{each.projects:,}",
                *(f"{number:.1f}" for number in numbers),
                "" if each.recall is None else f"{each.recall:.3f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    return "\n".join([*lines, f"Measured {utc_now():%Y-%m-%d}."])
