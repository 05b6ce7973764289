"""Synthetic turns with texts and vectors, for a memory of any size, and questions about them.

Words follow Zipf's law, as in real texts (the n-th most common is 1/n as common as the first), and
vectors form clusters. A question has words of an existing turn, and a vector close to its own.
Blocks of turns are generated independently, so a process that asks need not hold all of them.
"""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from ragmem.records import (
    EmbedderMark,
    Project,
    PutSession,
    PutTurn,
    PutVectors,
    RegisterProject,
    Scope,
    SearchQuery,
    Session,
    Turn,
    WeightedTerm,
    Write,
)
from ragmem.terms import query_terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

DIMENSION = 384
MARK = EmbedderMark("bench", DIMENSION)
_VOCABULARY = 40_000
_TURNS_OF_A_SESSION = 40
_BLOCK = 1_000
_BATCH = 1_000
_ORDER = (RegisterProject, PutSession, PutTurn, PutVectors)
_START = datetime(2024, 1, 1, tzinfo=UTC)
_SYLLABLES = ("ba", "co", "di", "fe", "gu", "hal", "in", "jo", "ket", "lo", "mar", "ne", "or")


class Content:
    """The content of a memory. A turn's texts and vector are the same in memories of any size."""

    def __init__(
        self, turns: int, projects: int, *, top: str = "/home/ana", mark: EmbedderMark = MARK
    ) -> None:
        import numpy as np

        source = np.random.default_rng(7)
        chances = 1 / np.arange(1, _VOCABULARY + 1)
        self._words = source.choice(_VOCABULARY, size=3_000_000, p=chances / chances.sum())
        self._centres = source.standard_normal((300, DIMENSION), dtype=np.float32)
        self._block = lru_cache(16)(self._make_block)
        self._own = lru_cache(1)(self._vectors_of_project)
        self._top = top
        self.mark = mark
        self.turns = turns
        self.projects = projects

    def _make_block(self, block: int) -> "tuple[list[tuple[int, int]], Floats]":
        """Return the start and number of each turn's words, and each turn's vector."""
        import numpy as np

        source = np.random.default_rng((7, block))
        lengths = source.lognormal(4.8, 0.7, _BLOCK).clip(10, 3000).astype(int)
        starts = source.integers(0, len(self._words) - 3000, _BLOCK)
        near = self._centres[source.integers(0, len(self._centres), _BLOCK)]
        vectors = near + 0.8 * source.standard_normal((_BLOCK, DIMENSION), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return list(zip(starts.tolist(), lengths.tolist(), strict=True)), vectors

    def text(self, number: int) -> str:
        """Return a turn's text: words of letters, a few of them like identifiers."""
        start, length = self._block(number // _BLOCK)[0][number % _BLOCK]
        return " ".join(map(_word, self._words[start : start + length].tolist()))

    def vector(self, number: int) -> "Floats":
        """Return a turn's unit vector."""
        vector: Floats = self._block(number // _BLOCK)[1][number % _BLOCK]
        return vector

    def project_of(self, number: int) -> int:
        """Return a turn's project; sessions are assigned round robin."""
        return number // _TURNS_OF_A_SESSION % self.projects

    def numbers(self, project: int | None = None) -> range | list[int]:
        """Return the numbers of the turns of one project, or of all."""
        if project is None or self.projects == 1:
            return range(self.turns)
        step = _TURNS_OF_A_SESSION * self.projects
        starts = range(project * _TURNS_OF_A_SESSION, self.turns, step)
        ends = (min(start + _TURNS_OF_A_SESSION, self.turns) for start in starts)
        return [n for start, end in zip(starts, ends, strict=True) for n in range(start, end)]

    async def writes(self, project: int | None = None) -> AsyncIterator[list[Write]]:
        """Yield the writes of one project or all, in batches sorted by kind, since a graph stores
        writes of the same kind at once."""
        batch: list[Write] = []
        for number in range(self.projects) if project is None else (project,):
            path = f"{self._top}/p{number}"
            each = Project(project_id=f"p{number}", path=path, created_at=_START)
            batch.append(RegisterProject(project=each))
        for number in self.numbers(project):
            if not number % _TURNS_OF_A_SESSION:
                batch.append(PutSession(session=self._session(number)))
            batch += self._turn(number)
            if len(batch) >= _BATCH:
                yield sorted(batch, key=_order)
                batch = []
        yield sorted(batch, key=_order)

    def _session(self, number: int) -> Session:
        project, at = self.project_of(number), _START + timedelta(minutes=number)
        path = f"{self._top}/p{project}"
        return Session(
            session_id=f"s{number // _TURNS_OF_A_SESSION}",
            cwd=path,
            project_id=f"p{project}",
            project_path=path,
            started_at=at,
            updated_at=at,
            last_activity_at=at,
        )

    def _turn(self, number: int) -> tuple[Write, Write]:
        at = _START + timedelta(minutes=number)
        text = self.text(number)
        middle = text.find(" ", len(text) // 4)
        turn = Turn(
            turn_id=f"t{number}",
            session_id=f"s{number // _TURNS_OF_A_SESSION}",
            turn_index=number % _TURNS_OF_A_SESSION + 1,
            user_message=text[:middle],
            assistant_message=text[middle + 1 :],
            status="completed",
            started_at=at,
            finished_at=at,
        )
        return PutTurn(turn=turn), PutVectors(
            record_id=turn.turn_id,
            level=0,
            embedder=self.mark.model_id,
            text_hash="",
            vectors=(self.vector(number).astype("<f4").tobytes(),),
        )

    def question(self, number: int, *, words: bool, vector: bool, scope: Scope) -> SearchQuery:
        """Return a query about a turn: eight of its words, and a vector close to its own."""
        import numpy as np

        chosen = random.Random(number)
        said = self.text(number).split()
        text = " ".join(chosen.sample(said, min(8, len(said)))) if words else ""
        noise = np.random.default_rng(number).standard_normal(DIMENSION, dtype=np.float32)
        near = self.vector(number) + 0.3 * noise / DIMENSION**0.5
        near /= np.linalg.norm(near)
        return SearchQuery(
            scope=scope,
            terms=tuple(WeightedTerm(term.term, term.weight) for term in query_terms(text)),
            vector=near.astype("<f4").tobytes() if vector else b"",
            embedder=self.mark.model_id,
        )

    def nearest(self, query: SearchQuery, number: int, count: int) -> set[str]:
        """Return the ids of the turns of its project that are nearest by exact cosine."""
        import numpy as np

        own, vectors = self._own(self.project_of(number))
        cosines = vectors @ np.frombuffer(query.vector, "<f4")
        return {f"t{own[place]}" for place in np.argsort(-cosines)[:count]}

    def _vectors_of_project(self, project: int) -> "tuple[range | list[int], Floats]":
        import numpy as np

        own = self.numbers(project)
        return own, np.array([self.vector(number) for number in own])


def _word(number: int) -> str:
    parts = []
    rest = number + 13
    while rest:
        rest, part = divmod(rest, len(_SYLLABLES))
        parts.append(_SYLLABLES[part])
    if number % 17 == 3:
        return "_".join(parts)
    return "".join(parts) if number % 19 else f"src/{''.join(parts)}.py"


def _order(write: Write) -> int:
    return _ORDER.index(type(write))
