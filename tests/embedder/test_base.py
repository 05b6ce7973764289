"""The vector's hash, the cache in memory, and how alike vectors are."""

import json
import subprocess
import sys

import numpy as np
import pytest

from ragmem.embedder import CachedEmbedder, cosines, embedding_hash
from ragmem.errors import EmbedderUnavailable
from ragmem.similarity import packed, unpacked
from tests.fakes.hash_embedder import HashEmbedder


def test_the_hash_is_stable_and_tells_everything_apart() -> None:
    """The same model, kind and text give the same key, in each version and process."""
    assert embedding_hash("m", "passage", "text") == "a2265b0fd53644077a3fb7443041daf2"
    keys = {
        embedding_hash(model, kind, text)
        for model in ("m", "m2")
        for kind in ("query", "passage")
        for text in ("a", "b", "a\0b", "\ud800", "")
    }
    assert len(keys) == 20


async def test_the_same_text_is_embedded_once() -> None:
    """In one batch or in several; a batch asks only for what is missing."""
    inner = HashEmbedder()
    cached = CachedEmbedder(inner)
    first = await cached.embed(["a b", "c", "a b"])
    again = await cached.embed(["c", "d", "a b"])
    assert inner.seen == [("passage", "a b"), ("passage", "c"), ("passage", "d")]
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(again[[0, 2]], first[[1, 0]])
    assert (cached.spent.texts, cached.spent.calls) == (3, 2)
    await cached.embed(["c"], "query")
    assert inner.seen[-1] == ("query", "c")


async def test_only_the_latest_stay() -> None:
    """The cache is bounded; what was used last stays."""
    inner = HashEmbedder()
    cached = CachedEmbedder(inner, size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await cached.embed([text])
    assert [text for _, text in inner.seen] == ["a", "b", "c", "b"]


async def test_a_failure_is_not_remembered() -> None:
    """The next call tries again."""
    inner = HashEmbedder()
    cached = CachedEmbedder(inner)
    inner.failing = True
    with pytest.raises(EmbedderUnavailable):
        await cached.embed(["a"])
    inner.failing = False
    assert (await cached.embed(["a"])).shape == (1, 64)


async def test_no_texts_no_rows() -> None:
    """The shape holds for nothing, too; closing reaches the embedder inside."""
    inner = HashEmbedder()
    cached = CachedEmbedder(inner)
    assert (await cached.embed([])).shape == (0, 64)
    await cached.aclose()
    assert inner.closed


def test_a_few_vectors_are_compared_alike_with_numpy_and_without_it() -> None:
    """Where it is not loaded yet it is not, for so few."""
    rng = np.random.default_rng(1)
    rows = {str(i): row.astype("<f4").tobytes() for i, row in enumerate(rng.normal(size=(40, 384)))}
    rows["none"], rows["short"] = np.full(384, np.nan, "<f4").tobytes(), b""
    script = (
        "import json, sys; from ragmem.embedder import cosines\n"
        "from ragmem.similarity import unpacked\n"
        "rows = {name: bytes.fromhex(row) for name, row in json.load(sys.stdin).items()}\n"
        "packs = bytes.fromhex(sys.argv[1])\n"
        "found = [cosines(rows['0'], rows), [row.hex() for row in unpacked(packs, 384)]]\n"
        "assert 'numpy' not in sys.modules\n"
        "print(json.dumps(found))\n"
    )
    given = json.dumps({name: row.hex() for name, row in rows.items()})
    packs = packed([rows["0"], rows["1"]])
    command = [sys.executable, "-P", "-c", script, packs.hex()]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    near, vectors = json.loads(done.stdout)
    assert near == pytest.approx(cosines(rows["0"], rows), abs=1e-3)
    for one, other in zip(vectors, unpacked(packs, 384), strict=True):
        alike = np.frombuffer(bytes.fromhex(one), "<f4"), np.frombuffer(other, "<f4")
        np.testing.assert_allclose(*alike, rtol=1e-5)
