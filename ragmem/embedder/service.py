"""The shipped embedder of another process: loaded once for all commands of a home.

The same file makes the same vectors wherever it runs; who gets none loads it (`ragmem.service`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from ragmem.embedder.base import Embedder, EmbedderInfo, Kind, Spent
from ragmem.service import Client, Handlers, NotAnswered

if TYPE_CHECKING:
    from ragmem.embedder.base import Vectors

MOST_TEXTS = 16
MOST_BYTES = 64 * 1024
"""Of a text."""
ANSWER_S = 2.0
"""Who has no answer until then makes the vectors."""
QUESTION_S = 0.5
"""Somebody waits for a question: so long that the own model can still be loaded after it."""
_EMBED = "embed"
_MARKS = 2


class _Texts(msgspec.Struct, frozen=True):
    model_id: str
    kind: Kind
    texts: Annotated[list[str], msgspec.Meta(max_length=MOST_TEXTS)]


class _Rows(msgspec.Struct, frozen=True):
    rows: bytes = b""
    """float32, little-endian, one row after the other."""
    tokens: int = 0


def answering(embedder: Embedder) -> Handlers:
    """Answer for this one: the vectors of a few texts."""

    async def embed(asked: _Texts) -> _Rows:
        info = embedder.info
        if asked.model_id != info.model_id or any(map(_is_long, asked.texts)):
            raise NotAnswered
        rows = await embedder.embed(asked.texts, asked.kind)
        count = embedder.count_tokens
        tokens = sum(min(count(text) + _MARKS, info.max_tokens) for text in asked.texts)
        return _Rows(rows.astype("<f4").tobytes(), tokens)

    return {_EMBED: (_Texts, embed)}


def _is_long(text: str) -> bool:
    return len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES


class SharedEmbedder:
    """Implements `Embedder`: by the service where one answers, else by `own`.

    Once `own` is loaded nobody is asked any more.
    """

    def __init__(self, own: Embedder, service: Client) -> None:
        self._own = own
        self._service = service
        self._loaded = False
        self._shared = Spent()

    @property
    def info(self) -> EmbedderInfo:
        """See `Embedder.info`."""
        return self._own.info

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`; with what the service was asked."""
        return self._own.spent + self._shared

    async def prepare(self) -> None:
        """See `Embedder.prepare`; where a service answers, there is nothing to load."""
        if self._loaded or await self._ask([], "query") is not None:
            return
        await self._own.prepare()
        self._loaded = True

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; it loads `own`."""
        count = self._own.count_tokens(text)
        self._loaded = True
        return count

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`."""
        import numpy as np

        short = 0 < len(texts) <= MOST_TEXTS and not any(map(_is_long, texts))
        if short and not self._loaded and (answer := await self._ask(texts, kind)):
            rows = np.frombuffer(answer.rows, dtype="<f4").astype(np.float32)
            vectors: Vectors = rows.reshape(len(texts), self.info.dimension)
            if np.isfinite(vectors).all():
                self._shared += Spent(texts=len(texts), tokens=answer.tokens, calls=len(texts))
                return vectors
        found = await self._own.embed(texts, kind)
        self._loaded = True
        return found

    async def aclose(self) -> None:
        """See `Embedder.aclose`."""
        await self._own.aclose()
        self._loaded = False

    async def _ask(self, texts: Sequence[str], kind: Kind) -> _Rows | None:
        # Half a character is what the own model reads as a question mark too.
        sound = [text.encode("utf-8", "replace").decode() for text in texts]
        asked = _Texts(self.info.model_id, kind, sound)
        within_s = QUESTION_S if kind == "query" else ANSWER_S
        answer = await self._service.ask(_EMBED, asked, _Rows, within_s=within_s)
        size = len(texts) * self.info.dimension * 4
        return None if answer is None or len(answer.rows) != size else answer
