"""Embeddings: the embedder protocol and its cache, the choice of an embedder by the settings,
cutting turns into passages, and the service that embeds texts for other processes.

Vectors of different models are never compared, so the model's id is part of every vector's hash.
Importing this module doesn't import numpy, which takes a tenth of a second.
"""

import hashlib
import re
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from operator import mul
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import msgspec

from ragmem.config import Config, EmbeddingsConfig, provider_key
from ragmem.errors import ConfigError
from ragmem.libraries import load_numpy
from ragmem.records import ToolCall, Turn
from ragmem.service import Client, Handlers, NotAnswered
from ragmem.text import clip_middle, one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


K = TypeVar("K")
_MOST_WITHOUT_NUMPY = 300
"""The most vectors to compare without numpy: in 4 ms, while importing numpy takes 100."""


def cosines(row: bytes, rows: Mapping[K, bytes]) -> dict[K, float]:
    """Return the cosine similarities of a unit vector to others of its length, all float32 (LE)."""
    return highest_cosines([row], rows)


def highest_cosines(own: Sequence[bytes], rows: Mapping[K, bytes]) -> dict[K, float]:
    """Return, for each of `rows`, the cosine similarity of the most similar of `own`.

    All are unit vectors of float32 (LE), those in `own` of one length; others are left out.
    """
    alike = {name: other for name, other in rows.items() if own and len(other) == len(own[0])}
    if not alike:
        return {}
    if (
        len(alike) * len(own) <= _MOST_WITHOUT_NUMPY
        and "numpy" not in sys.modules
        and sys.byteorder == "little"
    ):
        ours = [array("f", row) for row in own]
        return {
            name: max(_cosine(one, vector) for one in ours)
            for name, other in alike.items()
            for vector in [array("f", other)]
        }
    load_numpy()
    import numpy as np

    matrix = np.frombuffer(b"".join(alike.values()), dtype="<f4").reshape(len(alike), -1)
    to_each = np.frombuffer(b"".join(own), dtype="<f4").reshape(len(own), -1)
    found = np.nan_to_num(matrix @ to_each.T, nan=-1.0).max(axis=1)
    return dict(zip(alike, found.tolist(), strict=True))


def _cosine(own: "array[float]", other: "array[float]") -> float:
    found = sum(map(mul, own, other))
    return -1.0 if isnan(found) else found


Kind = Literal["query", "passage"]
"""`query` is a question whose result is waited for, `passage` a text to find, embedded in the
background."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Raw cosine similarities, strictly above which two texts count as related.

    The defaults are for embedders that no thresholds were fitted for.
    """

    history: float = 0.7
    """For a past turn or summary that answers the question (favours precision)."""
    fact: float = 0.5
    """For a fact that is relevant to the question (favours recall)."""
    duplicate: float = 0.85
    """For a fact that says the same as another one (near-identical)."""


class EmbedderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An embedder's model, its limits and its thresholds."""

    model_id: str
    """Identifies the weights and the computation: vectors of different ids differ."""
    replaces: tuple[str, ...] = ()
    """Ids of its predecessors: their vectors in a store are replaced without being asked."""
    dimension: int
    """The length of a vector; 0 until `prepare` if only the provider knows it."""
    max_tokens: int
    """The tokens of a text that are read; further ones have no effect on its vector."""
    passage_tokens: int = 256
    """The length of the passages that a long text is cut into."""
    thresholds: Thresholds = Thresholds()


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What an embedder has processed so far."""

    texts: int = 0
    tokens: int = 0
    calls: int = 0
    """The number of requests to a provider, or of runs of a local model."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            texts=self.texts + other.texts,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
        )


class Embedder(Protocol):
    """Converts texts to unit vectors; raises only `EmbedderError`, and can be cancelled safely."""

    @property
    def info(self) -> EmbedderInfo:
        """The model and its thresholds."""

    @property
    def spent(self) -> Spent:
        """The numbers of texts, tokens and calls so far."""

    async def prepare(self) -> None:
        """Load what takes time in advance; the other methods load it on demand."""

    def count_tokens(self, text: str) -> int:
        """Return the number of a text's tokens for this model, without special tokens."""

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """Return a unit vector for each text: float32, of shape `(len(texts), dimension)`."""

    async def aclose(self) -> None:
        """Release threads and connections; a later call opens them again."""


def embedding_hash(model_id: str, kind: Kind, text: str) -> str:
    """Return the key of a vector, which depends on the model, the kind and the text."""
    digest = hashlib.sha256()
    for part in (model_id, kind):
        digest.update(part.encode("utf-8", "replace") + b"\0")
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


class CachedEmbedder:
    """An embedder with a cache of its latest vectors (least recently used are dropped).

    A few short texts are sent to the `service`, a process that has the same model loaded, as long
    as `inner` is not loaded in this process.
    """

    def __init__(self, inner: Embedder, service: Client | None = None, *, size: int = 512) -> None:
        self._inner = inner
        self._service = service
        """None without a service, and once `inner` is loaded."""
        self._spent_by_service = Spent()
        self._size = size
        self._rows: OrderedDict[str, Vectors] = OrderedDict()

    @property
    def info(self) -> EmbedderInfo:
        """See `Embedder.info`."""
        return self._inner.info

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`; texts sent to the service count, cached ones don't."""
        return self._inner.spent + self._spent_by_service

    async def prepare(self) -> None:
        """See `Embedder.prepare`; if the service answers, nothing is loaded."""
        if await self._ask([], "query") is None:
            await self._inner.prepare()
            self._service = None

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; this loads `inner`."""
        self._service = None
        return self._inner.count_tokens(text)

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`; each text that is not cached is embedded once."""
        import numpy as np

        if not texts:
            return await self._inner.embed(texts, kind)
        hashes = [embedding_hash(self.info.model_id, kind, text) for text in texts]
        rows = {key: self._rows[key] for key in hashes if key in self._rows}
        missing = {k: t for k, t in zip(hashes, texts, strict=True) if k not in rows}
        if missing:
            # Copied, since a row is a view that would keep the whole batch in memory.
            found = map(np.copy, await self._embed(list(missing.values()), kind))
            rows.update(zip(missing, found, strict=True))
        for key in dict.fromkeys(hashes):
            self._rows[key] = rows[key]
            self._rows.move_to_end(key)
        while len(self._rows) > self._size:
            self._rows.popitem(last=False)
        return np.stack([rows[key] for key in hashes])

    async def aclose(self) -> None:
        """See `Embedder.aclose`."""
        self._rows.clear()
        await self._inner.aclose()

    async def _embed(self, texts: Sequence[str], kind: Kind) -> "Vectors":
        import numpy as np

        short = len(texts) <= MOST_TEXTS and not any(map(_is_long, texts))
        if short and (answer := await self._ask(texts, kind)):
            rows = np.frombuffer(answer.rows, dtype="<f4").astype(np.float32)
            vectors: Vectors = rows.reshape(len(texts), self.info.dimension)
            if np.isfinite(vectors).all():
                self._spent_by_service += Spent(
                    texts=len(texts), tokens=answer.tokens, calls=len(texts)
                )
                return vectors
        found = await self._inner.embed(texts, kind)
        self._service = None
        return found

    async def _ask(self, texts: Sequence[str], kind: Kind) -> "_Rows | None":
        if self._service is None:
            return None
        # Lone surrogates become question marks, as in the local model.
        sound = [text.encode("utf-8", "replace").decode() for text in texts]
        asked = _Texts(self.info.model_id, kind, sound)
        within_s = QUESTION_S if kind == "query" else ANSWER_S
        answer = await self._service.ask(_EMBED, asked, _Rows, within_s=within_s)
        size = len(texts) * self.info.dimension * 4
        return None if answer is None or len(answer.rows) != size else answer


Count = Callable[[str], int]
"""Returns the number of a text's tokens for the embedder."""

MOST_CHARS = 40_000
"""The most of a turn that is embedded; the middle of a longer one is found by words only."""
_SPECIAL_TOKENS = 2
_MOST_TOOL_LINES = 40
_LINE_CHARS = 120
_HEADER_SHARE = 4
"""The divisor of a passage's size that gives the limit of its header."""

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_HEADING = re.compile(r"^#{1,6}\s+\S")
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n")


def turn_passages(turn: Turn, count: Count, info: EmbedderInfo) -> list[str]:
    """Return the texts to embed for a turn: its prompt, tool calls and answer.

    First come passages as long as the embedder reads, mostly the whole turn in one, then short
    ones: a question is about one thing in a turn, which is drowned in a vector of the whole.
    """
    text = clip_middle(turn_text(turn), MOST_CHARS)
    cut = [
        passages(text, count, max_tokens=size, title=turn.user_message)
        for size in (info.max_tokens, info.passage_tokens)
    ]
    return list(dict.fromkeys(passage for found in cut for passage in found))


def turn_text(turn: Turn) -> str:
    """Return a turn as one text: the user message, a line per tool call, and the agent's text."""
    said = (turn.user_message, tool_lines(turn.tool_calls), turn.said)
    return "\n\n".join(part.strip() for part in said if part.strip())


def tool_lines(calls: Sequence[ToolCall]) -> str:
    """Return a line per call: its name, argument, size, and the first line of its result."""
    lines = list(dict.fromkeys(_tool_line(call) for call in calls))
    if len(lines) > _MOST_TOOL_LINES:
        half = _MOST_TOOL_LINES // 2
        lines = [*lines[:half], f"({len(lines) - 2 * half} more)", *lines[-half:]]
    return "\n".join(lines)


def passages(text: str, count: Count, *, max_tokens: int, title: str = "") -> list[str]:
    """Cut a text at the ends of paragraphs, fences, lines or sentences, into at least one passage.

    Each one but the first begins with the title's first line and the heading that it is under.
    Passages don't overlap (docs/measurements.md).
    """
    room = max(8, max_tokens - _SPECIAL_TOKENS)
    text = text.strip()
    if not text or _fits(text, room, count):
        return [text]
    title = _clipped(one_line(title.strip().split("\n")[0], _LINE_CHARS), room, count)
    found: list[str] = []
    header, body = "", ""
    for block, heading in _blocks(text):
        own = "\n".join(filter(None, (title, _clipped(heading, room, count))))
        for piece in _pieces(block, room - count(own), count):
            joined = f"{body}\n\n{piece}" if body else piece
            if body and not _fits(_with_header(header, joined), room, count):
                found.append(_with_header(header, body))
                body, joined = "", piece
            if not body and found:
                header = title if piece.startswith(heading) else own
            body = joined
    return [*found, _with_header(header, body)]


def _with_header(header: str, body: str) -> str:
    return f"{header}\n{body}" if header else body


def _fits(text: str, room: int, count: Count) -> bool:
    # A token has at least one character: a shorter text need not be counted.
    return len(text) <= room or (len(text) <= room * 64 and count(text) <= room)


def _clipped(line: str, room: int, count: Count) -> str:
    """Shorten a header to a quarter of the passage, by whole words."""
    words = line.split()
    while words and count(" ".join(words)) > room // _HEADER_SHARE:
        words.pop()
    return " ".join(words)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield paragraphs, each with the heading that it is under; a fenced block is one."""
    lines: list[str] = []
    fence = heading = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            if mark and mark[1].startswith(fence):
                fence = ""
            continue
        if mark:
            fence = mark[1]
        elif not line.strip() or _HEADING.match(line):
            if lines:
                yield "\n".join(lines), heading
                lines = []
            if line.strip():
                heading = line.strip()
        if line.strip():
            lines.append(line)
    if lines:
        yield "\n".join(lines), heading


def _pieces(text: str, room: int, count: Count) -> Iterator[str]:
    """Yield a block in pieces that fit, cut by lines or sentences, else words, else characters."""
    if _fits(text, room, count):
        yield text
        return
    for splitter in (_SENTENCE, re.compile(r"\s+")):
        parts = [part for part in splitter.split(text) if part]
        if len(parts) > 1:
            yield from _packed(parts, "\n" if splitter is _SENTENCE else " ", room, count)
            return
    middle = len(text) // 2
    yield from _pieces(text[:middle], room, count)
    yield from _pieces(text[middle:], room, count)


def _packed(parts: Sequence[str], glue: str, room: int, count: Count) -> Iterator[str]:
    """Join as many parts as fit, counting each part's tokens once."""
    taken: list[str] = []
    used = 0
    for part in parts:
        size = count(part) if len(part) <= room * 64 else room + 1
        if taken and used + size > room:
            yield glue.join(taken)
            taken, used = [], 0
        if size > room:
            yield from _pieces(part, room, count)
        else:
            taken.append(part)
            used += size
    if taken:
        yield glue.join(taken)


class _Result(msgspec.Struct, frozen=True):
    text: str = ""


def _tool_line(call: ToolCall) -> str:
    """Return `read_file src/a.py (12 KB): import os`, marked if the call failed."""
    try:
        text = msgspec.json.decode(call.result or "{}", type=_Result).text
    except msgspec.MsgspecError:
        text = call.result
    first = next((line for line in text.split("\n") if line.strip()), "")
    size = f"({max(1, round(len(text) / 1000))} KB)" if len(text) >= 1000 else ""
    name = " ".join(filter(None, (call.tool_name, _argument(call.arguments), size)))
    said = call.error or first
    mark = "" if call.success else " failed"
    return f"{name}{mark}: {one_line(said, _LINE_CHARS)}" if said else f"{name}{mark}"


def _argument(arguments: str) -> str:
    """Return a call's first argument that is a string; of a long path the last three parts."""
    try:
        values = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return ""
    texts = [v for v in values.values() if isinstance(v, str)] if isinstance(values, dict) else []
    if not texts:
        return ""
    first = one_line(texts[0], _LINE_CHARS)
    parts = PurePosixPath(first).parts if "/" in first and " " not in first else ()
    return "/".join(parts[-3:]) if len(parts) > 3 else first


SHIPPED = "all-minilm-l6-v2"
_KEYS = {
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
}
_WITHOUT_A_KEY = {"ollama", "lm_studio", "hosted_vllm", "bedrock", "vertex_ai", "azure"}


def is_shipped(config: Config) -> bool:
    """Return whether texts are embedded with the model that ships with ragmem."""
    return config.memory.embeddings.enabled and config.model.embedding in ("", SHIPPED)


def open_embedder(config: Config, service: Client | None = None) -> Embedder | None:
    """Return the configured embedder, with a cache, not loaded yet; None if it is switched off.

    `service` is a process that may have the shipped one loaded. Raises ConfigError.
    """
    settings = config.memory.embeddings
    if not settings.enabled:
        return None
    if is_shipped(config):
        from ragmem.embedder.models import INFO, OnnxEmbedder

        if settings.dimension not in (0, INFO.dimension):
            raise ConfigError(
                f"memory.embeddings.dimension is {settings.dimension}, but the embedder that comes "
                f"with ragmem has {INFO.dimension} dimensions.",
                hint="Set it to 0, or name another model in model.embedding.",
            )
        return CachedEmbedder(OnnxEmbedder(), service)
    return CachedEmbedder(_litellm_embedder(config, config.model.embedding))


def thresholds(info: EmbedderInfo, settings: EmbeddingsConfig) -> Thresholds:
    """Return an embedder's thresholds, overridden by the settings."""
    own = info.thresholds
    return Thresholds(
        history=settings.history_similarity or own.history,
        fact=settings.fact_similarity or own.fact,
        duplicate=settings.duplicate_similarity or own.duplicate,
    )


def _litellm_embedder(config: Config, model: str) -> Embedder:
    from ragmem.embedder.models import LiteLLMEmbedder

    provider, slash, name = model.partition("/")
    if not slash or not name:
        raise ConfigError(
            f"model.embedding is {model!r}, which names no provider.",
            hint=f"For example openai/text-embedding-3-small; empty for {SHIPPED}, which is free.",
        )
    variables = _KEYS.get(provider, (f"{provider.upper()}_API_KEY",))
    api_base = config.llm.api_base if config.model.main.startswith(provider + "/") else ""
    if api_base:
        variables = ("RAGMEM_API_KEY", *variables)
    key = next(filter(None, map(provider_key, variables)), None)
    if key is None and not api_base and provider not in _WITHOUT_A_KEY:
        raise ConfigError(
            f"model.embedding is {model}, but {variables[0]} is not set.",
            hint="Set it, or leave model.embedding empty: ragmem's own embedder needs no key.",
        )
    return LiteLLMEmbedder(
        model,
        dimension=config.memory.embeddings.dimension,
        api_key=key,
        api_base=api_base or None,
        key_variable=variables[0],
        timeout_s=config.llm.timeout_s,
        retries=config.llm.retries,
    )


def changed(recorded: tuple[str, int] | None, info: EmbedderInfo) -> str:
    """Return a message if a store has recorded another `(model id, dimension)`, else nothing.

    Its vectors can't be compared with new ones until all texts are embedded again.
    """
    if recorded is None or recorded == (info.model_id, info.dimension):
        return ""
    if recorded[0] in info.replaces:
        return (
            "ragmem's embedding model is a newer one. Until all embeddings have been recomputed in "
            "the background, more is found by keyword than by meaning."
        )
    return (
        f"The memory's embeddings were made by {recorded[0]} ({recorded[1]} dimensions), but "
        f"{info.model_id} ({info.dimension} dimensions) is set: "
        "until `ragmem store reembed` has made new ones, only text search is used."
    )


MOST_TEXTS = 16
MOST_BYTES = 64 * 1024
"""The limit of each text."""
ANSWER_S = 2.0
"""How long a client waits for passages before it embeds them itself."""
QUESTION_S = 0.5
"""The same for a question: short enough to load the model in this process after it."""
_EMBED = "embed"


class _Texts(msgspec.Struct, frozen=True):
    model_id: str
    kind: Kind
    texts: Annotated[list[str], msgspec.Meta(max_length=MOST_TEXTS)]


class _Rows(msgspec.Struct, frozen=True):
    rows: bytes = b""
    """The vectors: float32, little-endian, concatenated."""
    tokens: int = 0


def answering(embedder: Embedder) -> Handlers:
    """Return the service's handlers, which embed a few texts with this embedder."""

    async def embed(asked: _Texts) -> _Rows:
        info = embedder.info
        if asked.model_id != info.model_id or any(map(_is_long, asked.texts)):
            raise NotAnswered
        rows = await embedder.embed(asked.texts, asked.kind)
        count = embedder.count_tokens
        tokens = sum(min(count(text) + _SPECIAL_TOKENS, info.max_tokens) for text in asked.texts)
        return _Rows(rows.astype("<f4").tobytes(), tokens)

    return {_EMBED: (_Texts, embed)}


def _is_long(text: str) -> bool:
    return len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES
