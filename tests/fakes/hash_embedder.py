"""An embedder without a model: texts that share words are close. Fast, the same everywhere."""

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragmem.embedder import EmbedderInfo, Kind, Spent, Thresholds
from ragmem.errors import EmbedderUnavailable
from tests.fakes.llm_server import word_vector


class HashEmbedder:
    """Implements `Embedder`; `seen` holds every text, `failing` makes it fail, `delay_s` slow."""

    def __init__(
        self, dimension: int = 64, *, model_id: str = "hash-1", replaces: tuple[str, ...] = ()
    ) -> None:
        self.info = EmbedderInfo(
            model_id=model_id,
            replaces=replaces,
            dimension=dimension,
            max_tokens=256,
            thresholds=Thresholds(history=0.5, fact=0.3, duplicate=0.85),
        )
        self.spent = Spent()
        self.seen: list[tuple[Kind, str]] = []
        self.failing = False
        self.delay_s = 0.0
        self.closed = False

    async def prepare(self) -> None:
        """Nothing to load."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        """A row for each text: counts of its words' hashes, as a unit vector."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.failing:
            raise EmbedderUnavailable("The embedder is failing, as it was told to.")
        self.seen += [(kind, text) for text in texts]
        tokens = sum(map(self.count_tokens, texts))
        self.spent += Spent(texts=len(texts), tokens=tokens, calls=1)
        rows = [word_vector(text, self.info.dimension) for text in texts]
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), self.info.dimension)
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    async def aclose(self) -> None:
        """Nothing is open."""
        self.closed = True
