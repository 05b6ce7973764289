"""The fake embedder keeps the protocol's word."""

import numpy as np
import pytest

from ragmem.embedder import Embedder
from ragmem.errors import EmbedderError
from tests.fakes.hash_embedder import HashEmbedder


async def test_shared_words_are_near() -> None:
    """Unit rows, the same each time; what shares words is closer; failing when told."""
    fake = HashEmbedder()
    embedder: Embedder = fake
    rows = await embedder.embed(["the login fails", "login fails again", "billing report"])
    assert rows.shape == (3, 64)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > fake.info.thresholds.history > rows[0] @ rows[2]
    assert np.array_equal(rows, await HashEmbedder().embed([text for _, text in fake.seen]))
    fake.failing = True
    with pytest.raises(EmbedderError):
        await embedder.embed(["x"])
