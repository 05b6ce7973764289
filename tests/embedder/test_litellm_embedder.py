"""Providers' embedders over real HTTP, with real faults."""

from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from ragmem import errors
from ragmem.embedder import models
from ragmem.embedder.models import LiteLLMEmbedder
from ragmem.errors import EmbedderError, EmbedderUnavailable
from ragmem.libraries import close_litellm
from tests.fakes.llm_server import Answer, LLMServer, Received
from tests.llm.adapters import KEY, all_text_of

Step = Answer | Callable[[Received], Answer]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "FIRST_WAIT_S", 0.01)


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    """What litellm keeps open belongs to the loop of its test."""
    yield
    await close_litellm()


def connect(
    server: LLMServer, model: str = "openai/scripted", *, retries: int = 2, **options: object
) -> LiteLLMEmbedder:
    """An embedder for a scripted server."""
    return LiteLLMEmbedder(
        model,
        api_key=KEY,
        api_base=server.url,
        key_variable="RAGMEM_API_KEY",
        timeout_s=60.0,
        retries=retries,
        **options,
    )


async def test_texts_go_in_batches_and_keep_their_order() -> None:
    """Rows belong to their texts though the server answers in another order."""
    texts = [f"word{i}" for i in range(models.BATCH_TEXTS + 6)]
    with LLMServer([Answer()], repeat=True) as server:
        embedder = connect(server)
        vectors = await embedder.embed(texts)
        alone = np.concatenate([await embedder.embed([text]) for text in texts[-3:]])
    sizes = [len(r.body["input"]) for r in server.requests]
    assert sizes == [64, 6, 1, 1, 1]
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors[-3:], alone)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert (embedder.spent.texts, embedder.spent.calls, embedder.spent.tokens) == (73, 5, 73)


async def test_the_dimension_is_learned_and_then_guarded() -> None:
    """Unknown until asked for; another one later is an error, not a vector."""
    with LLMServer([Answer("16"), Answer("16"), Answer("24")]) as server:
        embedder = connect(server)
        assert embedder.info.dimension == 0
        await embedder.prepare()
        assert embedder.info.dimension == 16
        assert (await embedder.embed(["a"])).shape == (1, 16)
        with pytest.raises(EmbedderError, match="24 dimensions, not 16"):
            await embedder.embed(["a"])


async def test_a_chosen_dimension_is_asked_for() -> None:
    """It stands in the request, and in the model's id."""
    with LLMServer([Answer()], repeat=True) as server:
        embedder = connect(server, "openai/text-embedding-3-small", dimension=256)
        vectors = await embedder.embed(["a"])
    assert server.requests[0].body["dimensions"] == 256
    assert vectors.shape == (1, 256)
    assert embedder.info.model_id == "openai/text-embedding-3-small@256"


async def test_known_models_need_no_question() -> None:
    """What makers say of their models is known before the first request."""
    with LLMServer([]) as server:
        embedder = connect(server, "openai/text-embedding-3-large")
        await embedder.prepare()
    assert (embedder.info.dimension, server.requests) == (3072, [])


@pytest.mark.parametrize("mode", ["429", "500", "502"])
async def test_passing_faults_are_tried_again(mode: str) -> None:
    """A fault that passes costs nothing but time."""
    with LLMServer([Answer(mode=mode), Answer()]) as server:
        assert (await connect(server).embed(["a"])).shape == (1, 8)
    assert len(server.requests) == 2


async def test_a_fault_that_stays_is_said() -> None:
    """After the tries, an error that may pass, with its number; no key in it."""
    with (
        LLMServer([Answer(mode="500", message=f"no {KEY}")], repeat=True) as server,
        pytest.raises(EmbedderUnavailable, match=r"answered 500.*tried 3 times") as caught,
    ):
        await connect(server).embed(["a"])
    assert len(server.requests) == 3
    assert KEY not in all_text_of(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("mode", "said"), [("401", "refused the key"), ("404", "could not embed"), ("400", "could not")]
)
async def test_refusals_are_not_tried_again(mode: str, said: str) -> None:
    """What will not pass is said at once, with what to do; no key in it."""
    refusal = Answer(mode=mode, message=f"bad key {KEY}")
    with (
        LLMServer([refusal], repeat=True) as server,
        pytest.raises(EmbedderError, match=said) as caught,
    ):
        await connect(server).embed(["a"])
    assert len(server.requests) == 1
    assert not isinstance(caught.value, EmbedderUnavailable)
    assert caught.value.hint
    assert KEY not in all_text_of(caught.value)


async def test_retry_after_is_heeded() -> None:
    """A server that asks for more than a minute is not waited for."""
    with (
        LLMServer([Answer(mode="429", retry_after="3600")], repeat=True) as server,
        pytest.raises(EmbedderUnavailable) as caught,
    ):
        await connect(server).embed(["a"])
    assert len(server.requests) == 1
    assert caught.value.retry_after_s == 3600


async def test_nobody_there() -> None:
    """No server at all."""
    with LLMServer([]) as server:
        embedder = connect(server, retries=1)
    with pytest.raises(EmbedderUnavailable, match=r"can't be reached.*tried 2 times"):
        await embedder.embed(["a"])


async def test_odd_texts_are_sent_soundly() -> None:
    """Nothing, surrogates and megabytes: cut to what the model reads."""
    with LLMServer([Answer()], repeat=True) as server:
        vectors = await connect(server).embed(["", "\ud800", "long " * 300_000, "漢" * 300_000])
    sent = [text for r in server.requests for text in r.body["input"]]
    assert vectors.shape == (4, 8)
    assert sent[:2] == ["-", "\ufffd"]
    assert max(len(text.encode()) for text in sent) <= 512 * 3


async def test_questions_have_their_own_words() -> None:
    """Models that were trained with a prefix for questions get it."""
    with LLMServer([Answer("768")], repeat=True) as server:
        embedder = connect(server, "openai/nomic-embed-text")
        await embedder.embed(["a"], "query")
        await embedder.embed(["a"])
    sent = [r.body["input"] for r in server.requests]
    assert sent == [["search_query: a"], ["search_document: a"]]
