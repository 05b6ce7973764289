"""The shipped embedder: its vectors, its speed, its manners."""

import asyncio
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ragmem.embedder import Spent
from ragmem.embedder.models import FOLDER, INFO, OnnxEmbedder
from ragmem.errors import EmbedderError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def embedder() -> Iterator[OnnxEmbedder]:
    """The real one, loaded once for all."""
    made = OnnxEmbedder()
    yield made
    asyncio.run(made.aclose())


def test_the_files_are_those_that_were_built() -> None:
    """The bytes that scripts/build_embedder writes; the licence and card beside them."""
    found = {
        name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()[:16]
        for name in ("model.onnx", "tokenizer.json")
    }
    assert found == {
        "model.onnx": "51e40a957a513a02",
        "tokenizer.json": "5fd1c882abbd3051",
    }
    assert "Apache License" in (FOLDER / "LICENSE").read_text("utf-8")
    assert "license: apache-2.0" in (FOLDER / "MODEL_CARD.md").read_text("utf-8")


async def test_vectors_have_length_one_and_the_said_shape(embedder: OnnxEmbedder) -> None:
    """Dimension as recorded; texts of nothing, of noise and of ten megabytes have vectors."""
    texts = ["hello", "", "\0", "\ud800 lone", "x" * 10_000_000, "🦀" * 5000, " \n\t"]
    vectors = await embedder.embed(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(texts), INFO.dimension)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (await embedder.embed([])).shape == (0, INFO.dimension)


async def test_meaning_is_near(embedder: OnnxEmbedder) -> None:
    """What answers is closer than what does not; so in another language."""
    about = [
        "IndexError in parse_header: the line is empty, so split gives one part. Fixed.",
        "The invoice is sent on the first of each month.",
        "We moved the front end from webpack to vite.",
    ]
    vectors = await embedder.embed(about)
    questions = [
        "which bundler do we use?",
        "bug in the header parser?",
        "quel bundler utilise-t-on pour le front ?",
    ]
    best = np.argmax(await embedder.embed(questions, "query") @ vectors.T, axis=1)
    assert best.tolist() == [2, 0, 2]


async def test_a_translation_is_nearer_than_anything_else(embedder: OnnxEmbedder) -> None:
    """In either direction, in languages that share no words with English."""
    english = [
        "The build has been failing since yesterday and nobody knows why.",
        "Please add a test for the empty list and run it.",
        "We meet on Tuesday to talk about the new design.",
    ]
    translated = [
        "Der Build schlägt seit gestern fehl und niemand weiß warum.",
        "Por favor, añade una prueba para la lista vacía y ejecútala.",
        "Ci vediamo martedì per parlare del nuovo progetto.",
    ]
    near = await embedder.embed(english) @ (await embedder.embed(translated)).T
    assert np.argmax(near, axis=0).tolist() == np.argmax(near, axis=1).tolist() == [0, 1, 2]
    assert near.diagonal().min() > embedder.info.thresholds.history


def test_numpy_is_loaded_before_onnxruntime() -> None:
    """Which would import its inside first: another thread's import of numpy then fails at times."""
    code = """if True:
        import sys
        from ragmem.embedder.models import OnnxEmbedder

        class Order:
            def find_spec(self, name, *_):
                if name in ("numpy", "onnxruntime"):
                    print(name)

        sys.meta_path.insert(0, Order())
        OnnxEmbedder().count_tokens("a word")
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=ROOT, capture_output=True)
    assert done.stdout.split() == [b"numpy", b"onnxruntime"]


async def test_a_vector_does_not_depend_on_its_company(embedder: OnnxEmbedder) -> None:
    """Alone, in a batch, as a question: the same numbers, so a cached one is as good."""
    texts = [f"text number {i} " * (4 * i + 1) for i in range(12)]
    together = await embedder.embed(texts)
    alone = np.concatenate([await embedder.embed([text], "query") for text in texts])
    assert np.array_equal(together, alone)


async def test_what_is_beyond_is_not_read(embedder: OnnxEmbedder) -> None:
    """256 tokens count, two of them marks; the same tokenizer counts them."""
    text = "word " * 254
    assert embedder.count_tokens(text) == 254
    one, other = await embedder.embed([text, text + "entirely other matters"])
    assert np.array_equal(one, other)


async def test_what_was_spent_is_counted(embedder: OnnxEmbedder) -> None:
    """Texts and tokens."""
    before = embedder.spent
    await embedder.embed(["one two three", "four"])
    assert embedder.spent == before + Spent(texts=2, tokens=8, calls=2)


async def begun(embedder: OnnxEmbedder, passages: list[str]) -> "asyncio.Task[object]":
    """A task that embeds these, and has done the first."""
    before = embedder.spent.texts
    task: asyncio.Task[object] = asyncio.create_task(embedder.embed(passages))
    while embedder.spent.texts == before:
        await asyncio.sleep(0.01)
    return task


async def test_a_question_does_not_wait_for_the_background(embedder: OnnxEmbedder) -> None:
    """With thousands of passages before it, a question is answered at once."""
    background = await begun(embedder, ["a long passage of words " * 60] * 2000)
    waits = []
    for _ in range(5):
        started = time.perf_counter()
        await embedder.embed(["where is the setting?"], "query")
        waits.append(time.perf_counter() - started)
    assert not background.done()
    background.cancel()
    with pytest.raises(asyncio.CancelledError):
        await background
    # Measured: 5 ms. After all passages it would be half a minute and more.
    assert sorted(waits)[2] < 2


async def test_cancelling_stops_the_work(embedder: OnnxEmbedder) -> None:
    """At most one text a thread goes on after a cancelled call; the next call works."""
    task = await begun(embedder, ["words " * 250] * 200)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    spent = embedder.spent.texts
    # Behind whatever its threads still have to do.
    assert (await embedder.embed(["next"])).shape == (1, 384)
    assert embedder.spent.texts <= spent + 3


@pytest.mark.skipif(sys.platform != "linux", reason="priority is per thread on Linux only")
async def test_the_background_yields(embedder: OnnxEmbedder) -> None:
    """Its threads have a low priority; that of questions and the process stay."""
    await embedder.embed(["a", "b", "c"])
    await embedder.embed(["a"], "query")
    nice = {
        thread.name.split("_")[0]: int(
            Path(f"/proc/self/task/{thread.native_id}/stat")
            .read_text()
            .rsplit(")", 1)[1]
            .split()[16]
        )
        for thread in threading.enumerate()
    }
    assert nice["embed-passage"] == max(nice["MainThread"], 5) > 0
    assert nice["embed-query"] == nice["MainThread"]


async def test_a_closed_embedder_opens_again(embedder: OnnxEmbedder) -> None:
    """Threads end with aclose, and come back when they are needed."""
    before = await embedder.embed(["a"])
    await embedder.aclose()
    assert np.array_equal(await embedder.embed(["a"]), before)


@pytest.mark.parametrize("broken", ["missing", "not a model"])
async def test_broken_files_are_said_plainly(broken: str, tmp_path: Path) -> None:
    """An EmbedderError with what to do, no onnxruntime words in a traceback."""
    if broken != "missing":
        (tmp_path / "model.onnx").write_bytes(b"not a model")
    embedder = OnnxEmbedder(tmp_path)
    for call in (embedder.embed(["a", "b"]), embedder.embed(["a"], "query")):
        with pytest.raises(EmbedderError, match="can't be loaded") as caught:
            await call
        assert caught.value.hint
    await embedder.aclose()


def test_importing_it_imports_nothing_heavy() -> None:
    """Design 8: onnxruntime, tokenizers and numpy come with the first text."""
    code = (
        "import sys, ragmem.embedder.models, ragmem.embedder;"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers', 'litellm'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"
