"""The embedders: the shipped model, and those of providers, through litellm.

The shipped one is a multilingual all-MiniLM-L6-v2 in int8, run on the CPU. Texts go through the
model one by one, each in one thread, so that a vector does not depend on other texts of its batch,
and a question never waits for a batch: questions have a thread of their own, background work has
two, with a lower priority (nice 5, on systems that have it per thread).

The original model knows English alone. This one was trained further, so that a sentence in another
language gets the vector of its English translation, and then so that questions are near to the
turns that answer them (scripts/train_embedder.py, scripts/tune_embedder.py; docs/measurements.md
tells what that gains).

To litellm texts are sent in batches, and again after a transient failure. No exception of an SDK,
which may contain a key, leaves this module.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ragmem.embedder import EmbedderInfo, Kind, Spent, Thresholds
from ragmem.errors import (
    LONGEST_WAIT_S,
    PASSING_STATUS,
    EmbedderError,
    EmbedderUnavailable,
    after_tries,
    chain,
    header_of,
    wait_s,
)
from ragmem.libraries import close_litellm, load_litellm
from ragmem.redact import redact
from ragmem.text import clean, one_line

if TYPE_CHECKING:
    from ragmem.embedder import Vectors

_T = TypeVar("_T")

FOLDER = Path(__file__).parent / "all-minilm-l6-v2"
BACKGROUND_THREADS = 2
_NICE = 5
_CLS, _SEP = 101, 102
_SPECIAL_TOKENS = 2
_MOST_CHARS = 16_384
"""More than 256 tokens of any real text: the rest is not even tokenized."""

INFO = EmbedderInfo(
    model_id="all-minilm-l6-v2-multilingual-int8-2",
    replaces=("all-minilm-l6-v2-multilingual-int8-1", "all-minilm-l6-v2-int8-1"),
    dimension=384,
    max_tokens=256,
    passage_tokens=64,
    # Fitted by scripts/fit_thresholds on tests/embedder/data/pairs.json (56 entries in English,
    # French, German and Spanish): precision, recall of 0.36 are .93, .48 of questions to turns,
    # of 0.34 .92, .80 of questions to facts, of 0.75 1.00, .73 of facts to the same facts.
    thresholds=Thresholds(history=0.36, fact=0.34, duplicate=0.75),
)


class _Loaded(msgspec.Struct, frozen=True):
    session: Any
    tokenizer: Any


class OnnxEmbedder:
    """Implements `Embedder` with onnxruntime; loads the model on first use."""

    info = INFO

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._spent = Spent()
        self._counting = threading.Lock()
        self._loading = threading.Lock()
        self._loaded: _Loaded | None = None
        self._pools: dict[Kind, ThreadPoolExecutor] = {}

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`."""
        return self._spent

    async def prepare(self) -> None:
        """Import onnxruntime and load the model, in a thread."""
        await self._in_thread("query", self._load)

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; the first call loads the model."""
        return len(
            self._load().tokenizer.encode(_without_surrogates(text), add_special_tokens=False).ids
        )

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`."""
        import numpy as np

        vectors = np.empty((len(texts), INFO.dimension), dtype=np.float32)
        waiting = iter(enumerate(texts))

        async def work() -> None:
            # One text at a time: after a cancellation at most one runs in each thread.
            for index, text in waiting:
                vectors[index] = await self._in_thread(kind, partial(self._vector, text))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_threads(kind), len(texts))):
                    group.create_task(work())
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        return vectors

    async def aclose(self) -> None:
        """Stop the threads and release the model."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._loaded = None

    async def _in_thread(self, kind: Kind, call: Callable[[], _T]) -> _T:
        if kind not in self._pools:
            self._pools[kind] = ThreadPoolExecutor(
                _threads(kind),
                thread_name_prefix=f"embed-{kind}",
                initializer=_lower_priority if kind == "passage" else None,
            )
        return await asyncio.get_running_loop().run_in_executor(self._pools[kind], call)

    def _vector(self, text: str) -> "Vectors":
        import numpy as np

        loaded = self._load()
        ids = loaded.tokenizer.encode(
            _without_surrogates(text)[:_MOST_CHARS], add_special_tokens=False
        ).ids
        ids = [_CLS, *ids[: INFO.max_tokens - _SPECIAL_TOKENS], _SEP]
        try:
            (rows,) = loaded.session.run(None, {"input_ids": np.array([ids], dtype=np.int64)})
        except Exception as error:
            # onnxruntime's own exceptions: out of memory, an unsupported CPU.
            raise EmbedderError(
                f"The embedder could not read a text: {_first_line(error)}.",
                hint="Text search still works. Is the machine out of memory?",
            ) from None
        with self._counting:
            self._spent += Spent(texts=1, tokens=len(ids), calls=1)
        vector: Vectors = rows[0]
        return vector

    def _load(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._folder)
            return self._loaded


def _load(folder: Path) -> _Loaded:
    # Since 1.29 onnxruntime sends telemetry, unless this is set before its import.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        # First: onnxruntime imports numpy from its inside out, at which another thread's import
        # of numpy, meeting it half way, would fail.
        import numpy  # noqa: F401
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbedderError(
            f"The shipped embedder can't run here: {_first_line(error)}.",
            hint="Reinstall ragmem, or use a provider's: ragmem config set model.embedding …",
        ) from None
    options = onnxruntime.SessionOptions()
    # Run in the calling thread only: its priority applies, and no other thread spins.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # The file was optimized when it was built.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:
        raise EmbedderError(
            f"The shipped embedder's files can't be loaded: {_first_line(error)}.",
            hint="Reinstall ragmem; text search works without it.",
        ) from None
    return _Loaded(session, tokenizer)


def _threads(kind: Kind) -> int:
    return BACKGROUND_THREADS if kind == "passage" else 1


def _lower_priority() -> None:
    """Lower this thread's priority, on Linux, where `PRIO_PROCESS` accepts a thread's id."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Never below the current value, which would need privileges.
        nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, thread))
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, nice)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")


BATCH_TEXTS = 64
BATCH_CHARS = 200_000
_BYTES_PER_TOKEN = 3
_DETAIL_CHARS = 300
_TIMEOUTS = {"Timeout", "APITimeoutError", "ReadTimeout", "TimeoutError"}
_UNREACHABLE = {"ConnectError", "ConnectTimeout", "APIConnectionError", "ReadError"}

KNOWN = {
    "openai/text-embedding-3-small": (1536, 8191),
    "openai/text-embedding-3-large": (3072, 8191),
    "openai/text-embedding-ada-002": (1536, 8191),
    "gemini/gemini-embedding-001": (3072, 2048),
    "gemini/text-embedding-004": (768, 2048),
    "mistral/mistral-embed": (1024, 8192),
    "mistral/codestral-embed": (1536, 8192),
    "ollama/nomic-embed-text": (768, 2048),
    "ollama/mxbai-embed-large": (1024, 512),
    "ollama/all-minilm": (384, 256),
    "ollama/bge-m3": (1024, 8192),
}
"""Dimension and maximum tokens as documented; other models are asked for their dimension."""
_TOKENS_READ = 512
"""The assumed maximum of an unknown model."""

_PREFIXES: dict[str, dict[Kind, str]] = {
    "nomic-embed-text": {"query": "search_query: ", "passage": "search_document: "},
    "mxbai-embed-large": {
        "query": "Represent this sentence for searching relevant passages: ",
        "passage": "",
    },
}
"""Prefixes with which models were trained."""


class _Passing(EmbedderUnavailable):
    """A transient failure: a retry may succeed."""


class LiteLLMEmbedder:
    """Implements `Embedder` over litellm."""

    def __init__(
        self,
        model: str,
        *,
        dimension: int = 0,
        api_key: str | None = None,
        api_base: str | None = None,
        key_variable: str = "",
        timeout_s: float = 60.0,
        retries: int = 3,
    ) -> None:
        own, max_tokens = KNOWN.get(model, (0, _TOKENS_READ))
        self._info = EmbedderInfo(
            model_id=f"{model}@{dimension}" if dimension else model,
            dimension=dimension or own,
            max_tokens=max_tokens,
        )
        self._model = model
        self._requested_dimension = dimension if dimension != own else 0
        self._access = {"api_key": api_key, "api_base": api_base}
        self._key_variable = key_variable
        self._timeout_s = timeout_s
        self._retries = retries
        self._spent = Spent()

    @property
    def info(self) -> EmbedderInfo:
        """See `Embedder.info`."""
        return self._info

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`; tokens as reported by the provider, else estimated."""
        return self._spent

    async def prepare(self) -> None:
        """Import litellm; if the dimension is unknown, embed a text to learn it."""
        await asyncio.to_thread(load_litellm)
        if not self._info.dimension:
            await self.embed(["dimension"])

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; an estimate that is rather too high than too low."""
        return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`."""
        import numpy as np

        prefix = next((p[kind] for name, p in _PREFIXES.items() if name in self._model), "")
        most = self._info.max_tokens * _BYTES_PER_TOKEN - len(prefix)
        # Providers refuse empty texts.
        ready = [prefix + (_cut_bytes(clean(text), most).strip() or "-") for text in texts]
        rows = [row for batch in _batches(ready) for row in await self._embed_batch(batch)]
        if not rows:
            return np.empty((0, self._info.dimension), dtype=np.float32)
        vectors = np.array(rows, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise EmbedderError(f"{self._model} sent numbers that are not an embedding.")
        unit: Vectors = vectors / lengths
        return unit

    async def aclose(self) -> None:
        """Close litellm's connections, also those of other models: they are reopened on demand."""
        await close_litellm()

    async def _embed_batch(self, batch: list[str]) -> list[list[float]]:
        litellm = await asyncio.to_thread(load_litellm)
        # For OpenAI litellm takes `max_retries=0` for "not given", and tries three times.
        litellm.DEFAULT_MAX_RETRIES = 0  # type: ignore[attr-defined]
        number = 1
        while True:
            try:
                answer = await litellm.aembedding(**self._call(batch))
            except Exception as error:
                # litellm raises its own exceptions, those of providers' SDKs, and built-in ones.
                fault = self._fault(error)
            else:
                return self._read(answer, batch)
            if not isinstance(fault, _Passing):
                raise fault
            asked = fault.retry_after_s
            if number > self._retries or (asked or 0) > LONGEST_WAIT_S:
                text = after_tries(fault, number)
                raise EmbedderUnavailable(text, hint=fault.hint, retry_after_s=asked)
            await asyncio.sleep(wait_s(number, asked))
            number += 1

    def _call(self, batch: list[str]) -> dict[str, Any]:
        call: dict[str, Any] = {
            "model": self._model,
            "input": batch,
            "timeout": self._timeout_s,
            "max_retries": 0,
            "num_retries": 0,
        }
        if self._model.startswith(("openai/", "azure/")):
            call["encoding_format"] = "float"
        if self._requested_dimension:
            call["dimensions"] = self._requested_dimension
        call.update({name: value for name, value in self._access.items() if value})
        if self._access["api_base"] and not self._access["api_key"]:
            # The SDK refuses to start without any key.
            call["api_key"] = "none"
        return call

    def _read(self, answer: Any, batch: list[str]) -> list[list[float]]:
        """Return the vectors in the order of the texts, after checking number and dimension."""
        try:
            value = msgspec.convert(answer.model_dump(), _Answer)
        except (msgspec.ValidationError, AttributeError):
            raise EmbedderError(
                f"{self._model} sent no embeddings.", hint="Is it an embedding model?"
            ) from None
        rows = [item.embedding for item in sorted(value.data, key=lambda item: item.index)]
        if len(rows) != len(batch):
            raise EmbedderError(
                f"{self._model} sent {len(rows)} embeddings for {len(batch)} texts."
            )
        if not self._info.dimension:
            self._info = msgspec.structs.replace(self._info, dimension=len(rows[0]))
        wrong = next((len(row) for row in rows if len(row) != self._info.dimension), None)
        if wrong is not None:
            raise EmbedderError(
                f"{self._model} sent embeddings of {wrong} dimensions, not {self._info.dimension}.",
                hint="Set memory.embeddings.dimension to that, or to 0.",
            )
        reported = value.usage.prompt_tokens if value.usage else None
        tokens = reported or sum(self.count_tokens(text) for text in batch)
        self._spent += Spent(texts=len(batch), tokens=tokens, calls=1)
        return rows

    def _fault(self, error: Exception) -> EmbedderError:
        """Convert any exception raised by litellm; only its names and texts are used."""
        name = self._model.partition("/")[0]
        kinds = {type(e).__name__ for e in chain(error)}
        status = getattr(error, "status_code", None)
        detail = self._scrub(str(getattr(error, "message", "") or error))
        if kinds & _TIMEOUTS:
            return EmbedderUnavailable(f"{name} sent nothing for {self._timeout_s:g} s.")
        if kinds & _UNREACHABLE:
            hint = "Is it running, and is llm.api_base right?" if self._access["api_base"] else ""
            return _Passing(f"{name} can't be reached.", hint=hint or "Check the network.")
        if status in (401, 403):
            hint = f"Set {self._key_variable} to a valid key." if self._key_variable else ""
            return EmbedderError(f"{name} refused the key: {detail}", hint=hint)
        if status in PASSING_STATUS:
            seconds = _retry_after(error)
            return _Passing(f"{name} answered {status}: {detail}", retry_after_s=seconds)
        return EmbedderError(
            f"{self._model} could not embed: {detail}", hint="Is model.embedding the right name?"
        )

    def _scrub(self, text: str) -> str:
        key = self._access["api_key"]
        text = text.replace(key, "***") if key and len(key) > 3 else text
        return one_line(redact(clean(text)), _DETAIL_CHARS) or "no reason given"


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: _Usage | None = None


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    chars = 0
    for text in texts:
        if batch and (len(batch) == BATCH_TEXTS or chars + len(text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    if batch:
        yield batch


def _cut_bytes(text: str, most_bytes: int) -> str:
    raw = text[:most_bytes].encode("utf-8", "replace")
    return raw[:most_bytes].decode("utf-8", "ignore")


def _retry_after(error: BaseException) -> float | None:
    """Return the seconds of a `Retry-After` header; None if it isn't a number."""
    value = header_of(error, "retry-after") or ""
    return float(value) if value.replace(".", "", 1).isdigit() else None
