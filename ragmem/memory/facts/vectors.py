"""The vectors of memories: made when one is told, else later by the worker."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ragmem.embedder.base import Embedder, embedding_hash
from ragmem.errors import RagmemError, StoreUnavailable
from ragmem.metrics import Metrics
from ragmem.records import MEMORY_LEVEL, MemoryRecord, PutVectors
from ragmem.store.base import Store
from ragmem.store.recall import EmbedderMark

_log = logging.getLogger("ragmem")

_PATIENCE_S = 5.0


class FactVectors:
    """Texts to rows that may be compared with the store's; without an embedder there are none."""

    def __init__(self, embedder: Embedder | None, metrics: Metrics) -> None:
        self._embedder = embedder
        self._metrics = metrics

    @property
    def model_id(self) -> str:
        """Of the embedder; empty without one."""
        return self._embedder.info.model_id if self._embedder else ""

    async def rows(
        self,
        store: Store,
        texts: Sequence[str],
        *,
        query: bool = False,
        patience_s: float | None = _PATIENCE_S,
    ) -> tuple[list[bytes], str]:
        """One for each text, and the model's id; none while those stored are another's."""
        embedder = self._embedder
        if embedder is None or not texts:
            return [], ""
        info = embedder.info
        try:
            mark = await store.embedder()
            if mark is None and info.dimension and not query:
                await store.use_embedder(mark := EmbedderMark(info.model_id, info.dimension))
            if mark is None or mark.model_id != info.model_id:
                return [], ""
            async with asyncio.timeout(patience_s):
                found = await embedder.embed(list(texts), "query" if query else "passage")
        except StoreUnavailable:
            return [], ""
        except Exception as error:
            # Whatever it is: words are compared all the same, and the worker embeds it later.
            known = isinstance(error, RagmemError | TimeoutError)
            _log.warning("A memory could not be embedded: %s", error, exc_info=not known)
            self._metrics.count("embedder.failures")
            return [], ""
        return [row.astype("<f4").tobytes() for row in found], info.model_id

    async def of(self, store: Store, memory: MemoryRecord) -> list[PutVectors]:
        """The write of its vector, in a list; an empty one where it has none for now."""
        rows, model_id = await self.rows(store, [memory.content])
        return self.puts({memory.memory_id: (memory.content, rows[0])}, model_id) if rows else []

    @staticmethod
    def puts(vectors: Mapping[str, tuple[str, bytes]], model_id: str) -> list[PutVectors]:
        """The writes of rows, by memory with the text that was embedded."""
        return [
            PutVectors(
                record_id=memory_id,
                level=MEMORY_LEVEL,
                embedder=model_id,
                text_hash=embedding_hash(model_id, "passage", text),
                vectors=(row,),
            )
            for memory_id, (text, row) in vectors.items()
            if row
        ]
