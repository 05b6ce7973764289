"""Searches for other processes of this home, in one that has loaded all that they need."""

import asyncio

from ragmem.config import Config, Paths
from ragmem.embedder.base import Embedder
from ragmem.embedder.opening import thresholds
from ragmem.embedder.service import answering
from ragmem.ids import new_id
from ragmem.index.codebase import CODE, Codebase, CodeListener, CodeRequest
from ragmem.index.values import CodeHit
from ragmem.memory.facts.facts import FACTS, FactQuestion, Facts
from ragmem.memory.facts.values import FactHit
from ragmem.memory.found import Found, Question
from ragmem.memory.leases import HeldStore
from ragmem.memory.memory import OpenStore
from ragmem.memory.recall import FIND, Recall
from ragmem.service import Handlers
from ragmem.usage import Metrics

_HELD_S = 5.0
"""So long after a question a SQLite database stays open, that commands on it need not wait."""


class Warm:
    """Answers for one memory and the code of its projects; nothing is written to the memory.

    The store and the indexes are opened by a question, and closed when none has come for a while.
    """

    def __init__(
        self, config: Config, paths: Paths, embedder: Embedder, *, open_store: OpenStore
    ) -> None:
        self._config = config
        self._paths = paths
        self._embedder = embedder
        # A server waits for nobody, and its vectors have a long way.
        server = config.store.kind == "neo4j"
        held_s = config.memory.embeddings.idle_s if server else _HELD_S
        self._held = HeldStore(open_store, held_s=held_s, on_close=self._close_code)
        metrics = Metrics()
        limits = thresholds(embedder.info, config.memory.embeddings)
        self._recall = Recall(self._held.opened, embedder, metrics=metrics)
        self._facts = Facts(
            self._held.opened,
            new_id(),
            embedder=embedder,
            limits=limits,
            config=config.memory.facts,
        )
        self._code = {writes: self._codebase(metrics, writes=writes) for writes in (True, False)}

    def _codebase(self, metrics: Metrics, *, writes: bool) -> Codebase:
        return Codebase(
            self._config,
            self._paths,
            open_store=None,
            embedder=self._embedder,
            metrics=metrics,
            writes=writes,
            listener=CodeListener(say=lambda _: None),
        )

    @property
    def handlers(self) -> Handlers:
        """What it answers."""
        return {
            **answering(self._embedder),
            FIND: (Question, self._find),
            FACTS: (FactQuestion, self._search_facts),
            CODE: (CodeRequest, self._search_code),
        }

    async def prepare(self) -> None:
        """Load what takes long."""
        await self._embedder.prepare()
        await asyncio.to_thread(_import_all)

    async def aclose(self) -> None:
        """Close the store and the indexes."""
        await self._held.aclose()

    async def _find(self, question: Question) -> Found:
        async with self._held.used():
            return await self._recall.find(question)

    async def _search_facts(self, asked: FactQuestion) -> list[FactHit]:
        async with self._held.used():
            return await self._facts.search(
                asked.text,
                project_id=asked.project_id,
                limit=asked.limit,
                subjects=asked.subjects,
                floor=asked.floor,
            )

    async def _search_code(self, asked: CodeRequest) -> list[CodeHit]:
        async with self._held.used():
            code = self._code[asked.writes]
            # What changed since the last question is looked for, as each process does once.
            code.begin(asked.project, stores=False)
            return await code.search(asked.project, asked.text, asked.limit, near=asked.near)

    async def _close_code(self) -> None:
        for code in self._code.values():
            await code.aclose()


def _import_all() -> None:
    from ragmem.memory import dates, ranking  # noqa: F401
    from ragmem.memory.facts import ranking as facts_ranking  # noqa: F401

    dates.prepare()
