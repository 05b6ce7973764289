"""Texts become vectors: the protocol; an embedder's model, dimension and thresholds.

Vectors of two models are never compared, so the model's id is part of every
vector's hash. Nothing here imports numpy at run time: it takes a tenth of a second.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from ragmem.libraries import load_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


def cosines(row: bytes, rows: Mapping[str, bytes]) -> dict[str, float]:
    """Of a unit vector with others of its length, float32 little-endian, by their names."""
    alike = {name: other for name, other in rows.items() if len(other) == len(row)}
    if not alike:
        return {}
    load_numpy()
    import numpy as np

    matrix = np.frombuffer(b"".join(alike.values()), dtype="<f4").reshape(len(alike), -1)
    found = np.nan_to_num(matrix @ np.frombuffer(row, dtype="<f4"), nan=-1.0)
    return dict(zip(alike, map(float, found), strict=True))


Kind = Literal["query", "passage"]
"""`query`: somebody waits for it. `passage`: something to be found, embedded in the background."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Raw cosines above which (strictly) two texts count as what the name says.

    The defaults are those of an embedder that nobody has fitted.
    """

    history: float = 0.7
    """Precise: a past turn or summary answers the question."""
    fact: float = 0.5
    """Permissive: a fact has to do with the question."""
    duplicate: float = 0.85
    """Near-identical: a fact says what another one says."""


class EmbedderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the store records and the context builder asks."""

    model_id: str
    """Names the weights and how they are computed: another id, other vectors."""
    dimension: int
    """Numbers in a vector; 0 until `prepare` where only the provider knows."""
    max_tokens: int
    """Read of a text; what is beyond has no effect on its vector."""
    passage_tokens: int = 256
    """How long the passages are that a long text is cut into."""
    thresholds: Thresholds = Thresholds()


class Litellm(NamedTuple):
    """The library as the models use it too: one import, one set of connections."""

    load: Callable[[], ModuleType]
    close: Callable[[], Awaitable[None]]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What an embedder was given so far."""

    texts: int = 0
    tokens: int = 0
    calls: int = 0
    """Requests to a provider, or runs of a model."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            texts=self.texts + other.texts,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
        )


class Embedder(Protocol):
    """Texts to unit vectors. Raises `EmbedderError` only, and is cancelled safely."""

    @property
    def info(self) -> EmbedderInfo:
        """Which model, and its thresholds."""

    @property
    def spent(self) -> Spent:
        """Texts and tokens so far."""

    async def prepare(self) -> None:
        """Load what takes time; everything else does so when it must."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text as this model reads it, its marks of beginning and end left out."""

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """A row of length 1 for each text: float32, `(len(texts), dimension)`."""

    async def aclose(self) -> None:
        """Give threads and connections back; a later call opens them again."""


def embedding_hash(model_id: str, kind: Kind, text: str) -> str:
    """The key under which a vector is kept: same model, kind and text, same hash."""
    digest = hashlib.sha256()
    for part in (model_id, kind):
        digest.update(part.encode("utf-8", "replace") + b"\0")
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


class CachedEmbedder:
    """An embedder that remembers its latest vectors: a text asked for again costs nothing."""

    def __init__(self, inner: Embedder, *, size: int = 512) -> None:
        self._inner = inner
        self._size = size
        self._rows: OrderedDict[str, Vectors] = OrderedDict()

    @property
    def info(self) -> EmbedderInfo:
        """See `Embedder.info`."""
        return self._inner.info

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`; what came from the cache is not in it."""
        return self._inner.spent

    async def prepare(self) -> None:
        """See `Embedder.prepare`."""
        await self._inner.prepare()

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`."""
        return self._inner.count_tokens(text)

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`; each text that is not known is embedded once."""
        import numpy as np

        if not texts:
            return await self._inner.embed(texts, kind)
        hashes = [embedding_hash(self.info.model_id, kind, text) for text in texts]
        rows = {key: self._rows[key] for key in hashes if key in self._rows}
        missing = {k: t for k, t in zip(hashes, texts, strict=True) if k not in rows}
        if missing:
            found = await self._inner.embed(list(missing.values()), kind)
            rows.update(zip(missing, found, strict=True))
        for key in dict.fromkeys(hashes):
            # A copy: a row of a batch would keep the whole batch in memory.
            self._rows[key] = rows[key].copy() if key in missing else rows[key]
            self._rows.move_to_end(key)
        while len(self._rows) > self._size:
            self._rows.popitem(last=False)
        return np.stack([rows[key] for key in hashes])

    async def aclose(self) -> None:
        """See `Embedder.aclose`."""
        self._rows.clear()
        await self._inner.aclose()
