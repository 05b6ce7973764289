"""The embedder that is shipped: all-MiniLM-L6-v2 as int8, run on this machine's processor.

Texts go through the model one by one, each in one thread, so a vector does not
depend on what it was embedded with, and a question never waits behind a batch:
questions have a thread of their own, the background has two, which yield to
everything else (nice 5, where the system has that per thread).

The model learned from English. Two texts in another language are close to each
other because of the language, and far from English ones that say the same, so the
directions that stand for languages are taken out of each vector (`languages.npy`,
made by scripts/build_embedder from parallel sentences). English stays as it was; in
other languages a quarter to four fifths more of the evidence is among the first five
(docs/embeddings.md).
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ragmem.embedder import EmbedderInfo, Kind, Spent, Thresholds
from ragmem.errors import EmbedderError

if TYPE_CHECKING:
    from ragmem.embedder import Vectors

_T = TypeVar("_T")

FOLDER = Path(__file__).parent / "all-minilm-l6-v2"
BACKGROUND_THREADS = 2
_NICE = 5
_CLS, _SEP = 101, 102
_MARKS = 2
_MOST_CHARS = 16_384
"""More than 256 tokens of any sensible text: what is beyond is not even looked at."""

INFO = EmbedderInfo(
    model_id="all-minilm-l6-v2-int8-1",
    dimension=384,
    max_tokens=256,
    passage_tokens=64,
    # Fitted by scripts/fit_thresholds on tests/embedder/data/pairs.json (56 entries in English,
    # French, German and Spanish): precision, recall of 0.40 are .92, .39 of questions to turns,
    # of 0.35 .86, .84 of questions to facts, of 0.75 1.00, .57 of facts to the same facts.
    thresholds=Thresholds(history=0.40, fact=0.35, duplicate=0.75),
)


class _Loaded(msgspec.Struct, frozen=True):
    session: Any
    tokenizer: Any
    languages: "Vectors"
    """Orthonormal columns."""


class OnnxEmbedder:
    """Implements `Embedder` with onnxruntime; loads when it is first needed."""

    def __init__(self, folder: Path = FOLDER, *, info: EmbedderInfo = INFO) -> None:
        self._info = info
        self._folder = folder
        self._spent = Spent()
        self._counting = threading.Lock()
        self._loading = threading.Lock()
        self._loaded: _Loaded | None = None
        self._pools: dict[Kind, ThreadPoolExecutor] = {}

    @property
    def info(self) -> EmbedderInfo:
        """See `Embedder.info`."""
        return self._info

    @property
    def spent(self) -> Spent:
        """See `Embedder.spent`."""
        return self._spent

    async def prepare(self) -> None:
        """Import onnxruntime and load the model, in a thread."""
        await self._in_thread("query", self._load)

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; the first call loads the model."""
        return len(self._load().tokenizer.encode(_sound(text), add_special_tokens=False).ids)

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """See `Embedder.embed`."""
        import numpy as np

        vectors = np.empty((len(texts), self._info.dimension), dtype=np.float32)
        waiting: Iterator[tuple[int, str]] = iter(enumerate(texts))

        async def work() -> None:
            # One text a step: a cancelled call leaves at most one running in each thread.
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
        """Stop the threads and let the model go."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._loaded = None

    async def _in_thread(self, kind: Kind, call: Callable[[], _T]) -> _T:
        pool = self._pools.get(kind)
        if pool is None:
            pool = self._pools[kind] = ThreadPoolExecutor(
                _threads(kind),
                thread_name_prefix=f"embed-{kind}",
                initializer=_yield_to_others if kind == "passage" else None,
            )
        return await asyncio.get_running_loop().run_in_executor(pool, call)

    def _vector(self, text: str) -> "Vectors":
        import numpy as np

        loaded = self._load()
        ids = loaded.tokenizer.encode(_sound(text)[:_MOST_CHARS], add_special_tokens=False).ids
        ids = [_CLS, *ids[: self._info.max_tokens - _MARKS], _SEP]
        try:
            (rows,) = loaded.session.run(None, {"input_ids": np.array([ids], dtype=np.int64)})
        except Exception as error:
            # onnxruntime's own kinds: out of memory, a processor that it does not know.
            raise EmbedderError(
                f"The embedder could not read a text: {_first_line(error)}.",
                hint="Text search goes on. Is there memory left?",
            ) from None
        with self._counting:
            self._spent += Spent(texts=1, tokens=len(ids), calls=1)
        row: Vectors = rows[0] - loaded.languages @ (loaded.languages.T @ rows[0])
        return row / max(float(np.linalg.norm(row)), 1e-9)

    def _load(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._folder)
            return self._loaded


def _load(folder: Path) -> _Loaded:
    # From 1.29 on onnxruntime reports how it is used, unless it is told not to before its import.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import numpy as np
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbedderError(
            f"The shipped embedder can't run here: {_first_line(error)}.",
            hint="Install ragmem again, or name a provider's: ragmem config set model.embedding …",
        ) from None
    options = onnxruntime.SessionOptions()
    # Everything in the thread that calls: that thread's priority counts, and no other spins.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # It was optimised when it was made.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        languages = np.load(folder / "languages.npy", allow_pickle=False)
    except Exception as error:
        raise EmbedderError(
            f"The shipped embedder's files can't be loaded: {_first_line(error)}.",
            hint="Install ragmem again; text search goes on without it.",
        ) from None
    return _Loaded(session, tokenizer, languages)


def _threads(kind: Kind) -> int:
    return BACKGROUND_THREADS if kind == "passage" else 1


def _yield_to_others() -> None:
    """Lower this thread's priority; on Linux, `PRIO_PROCESS` with a thread's id is the thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Never lower than it is: that needs rights.
        nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, thread))
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, nice)


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")


class EmbeddingTime(msgspec.Struct, frozen=True):
    """Milliseconds."""

    name: str
    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return f"{self.name:<28} {self.least:8.1f} {self.median:8.1f} {self.most:8.1f}"


async def measure(rounds: int = 40) -> list[EmbeddingTime]:
    """Loading, a question, a passage of 256 tokens, and 100 of 140 tokens, in this process."""
    word = "session "
    cases: dict[str, tuple[list[str], Kind]] = {
        "a question, 12 tokens": ([word * 10], "query"),
        "a question, 256 tokens": ([word * 254], "query"),
        "a passage, 256 tokens": ([word * 254], "passage"),
    }
    started = time.perf_counter()
    embedder = OnnxEmbedder()
    await embedder.embed(["first"], "query")
    loading = [(time.perf_counter() - started) * 1000]
    found = [_timing("import, load, first question", loading)]
    for name, (texts, kind) in cases.items():
        found.append(_timing(name, [await _ms(embedder, texts, kind) for _ in range(rounds)]))
    many = [word * 138] * 100
    found.append(_timing("100 passages, 140 tokens", [await _ms(embedder, many, "passage")]))
    await embedder.aclose()
    return found


async def _ms(embedder: OnnxEmbedder, texts: list[str], kind: Kind) -> float:
    started = time.perf_counter()
    await embedder.embed(texts, kind)
    return (time.perf_counter() - started) * 1000


def _timing(name: str, values: list[float]) -> EmbeddingTime:
    # Measuring is rare, and the module slow to import.
    from statistics import median

    return EmbeddingTime(name, min(values), median(values), max(values))
