"""Which embedder the settings name, and whether the store's vectors are its own."""

from pathlib import Path

import pytest

from ragmem.config import Config, EmbeddingsConfig, MemoryConfig, ModelConfig, load_config
from ragmem.embedder import EmbedderInfo, Thresholds, changed, open_embedder, thresholds
from ragmem.embedder.models import INFO
from ragmem.errors import ConfigError


def config(model: str = "", **settings: object) -> Config:
    """Settings of embeddings."""
    embeddings = EmbeddingsConfig(**settings)
    return Config(model=ModelConfig(embedding=model), memory=MemoryConfig(embeddings=embeddings))


@pytest.mark.parametrize("model", ["", "all-minilm-l6-v2"])
def test_the_shipped_one_is_the_default(model: str) -> None:
    """No key, no account, no service."""
    embedder = open_embedder(config(model))
    assert embedder is not None
    assert embedder.info == INFO


def test_switched_off_there_is_none() -> None:
    """Nothing can be embedded."""
    assert open_embedder(config(enabled=False)) is None


def test_a_provider_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI, Gemini, Ollama by their models' names; the key from the environment."""
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-none")
    for model, dimension in (("gemini/text-embedding-004", 768), ("ollama/nomic-embed-text", 768)):
        embedder = open_embedder(config(model))
        assert embedder is not None
        assert (embedder.info.model_id, embedder.info.dimension) == (model, dimension)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (config("openai/text-embedding-3-small"), "OPENAI_API_KEY is not set"),
        (config("text-embedding-3-small"), "names no provider"),
        (config(dimension=768), "has 384 dimensions"),
    ],
)
def test_what_can_not_be_is_said(settings: Config, said: str) -> None:
    """Each with what to do."""
    with pytest.raises(ConfigError, match=said) as caught:
        open_embedder(settings)
    assert caught.value.hint


def test_the_keys_of_the_settings(tmp_path: Path) -> None:
    """In the file and in the environment; odd values are refused."""
    file = tmp_path / "ragmem.toml"
    file.write_text("[memory.embeddings]\nenabled = false\nhistory_similarity = 0.5\n")
    environ = {"RAGMEM_MODEL__EMBEDDING": "a/b", "RAGMEM_MEMORY__EMBEDDINGS__DIMENSION": "768"}
    found = load_config(file, environ=environ)
    expected = EmbeddingsConfig(enabled=False, dimension=768, history_similarity=0.5)
    assert found.memory.embeddings == expected
    assert found.model.embedding == "a/b"
    file.write_text("[memory.embeddings]\nfact_similarity = 1.5\n")
    with pytest.raises(ConfigError, match="line 2"):
        load_config(file, environ={})


def test_thresholds_are_the_embedders_unless_set() -> None:
    """0.7, 0.5, 0.85 for one that nobody has fitted; each can be set."""
    info = EmbedderInfo(model_id="m", dimension=3, max_tokens=9)
    assert thresholds(info, EmbeddingsConfig()) == Thresholds(history=0.7, fact=0.5, duplicate=0.85)
    assert thresholds(INFO, EmbeddingsConfig(fact_similarity=0.2)) == Thresholds(
        history=INFO.thresholds.history, fact=0.2, duplicate=INFO.thresholds.duplicate
    )


def test_another_model_is_noticed() -> None:
    """Another id or another dimension; a store without vectors fits any."""
    assert changed(None, INFO) == changed((INFO.model_id, 384), INFO) == ""
    for recorded in ((INFO.model_id, 768), ("openai/text-embedding-3-small", 384)):
        found = changed(recorded, INFO)
        assert recorded[0] in found
        assert "ragmem store reembed" in found
