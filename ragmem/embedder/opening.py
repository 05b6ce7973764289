"""Which embedder the settings name: the one place that knows them all."""

from collections.abc import Callable

import msgspec

from ragmem.config import Config, EmbeddingsConfig, provider_key
from ragmem.embedder.base import CachedEmbedder, Embedder, EmbedderInfo, Litellm, Thresholds
from ragmem.errors import ConfigError

SHIPPED = "all-minilm-l6-v2"
_KEYS = {
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
}
_WITHOUT_A_KEY = {"ollama", "lm_studio", "hosted_vllm", "bedrock", "vertex_ai", "azure"}


def is_shipped(config: Config) -> bool:
    """Whether texts are embedded, by the model that comes with ragmem."""
    return config.memory.embeddings.enabled and config.model.embedding in ("", SHIPPED)


def open_embedder(
    config: Config, litellm: Litellm, *, shared: Callable[[Embedder], Embedder] = lambda own: own
) -> Embedder | None:
    """The embedder of the settings, with its cache, not loaded yet; None if it is switched off.

    `shared` is given the shipped one: other processes may have it loaded.
    """
    settings = config.memory.embeddings
    if not settings.enabled:
        return None
    model = config.model.embedding
    if is_shipped(config):
        from ragmem.embedder.onnx import INFO, OnnxEmbedder

        if settings.dimension not in (0, INFO.dimension):
            raise ConfigError(
                f"memory.embeddings.dimension is {settings.dimension}, but the embedder that comes "
                f"with ragmem gives {INFO.dimension} numbers.",
                hint="Set it to 0, or name another model in model.embedding.",
            )
        return CachedEmbedder(shared(OnnxEmbedder()))
    return CachedEmbedder(_by_litellm(config, model, litellm))


def thresholds(info: EmbedderInfo, settings: EmbeddingsConfig) -> Thresholds:
    """The embedder's own, but where the settings name others."""
    own = info.thresholds
    return Thresholds(
        history=settings.history_similarity or own.history,
        fact=settings.fact_similarity or own.fact,
        duplicate=settings.duplicate_similarity or own.duplicate,
    )


def _by_litellm(config: Config, model: str, litellm: Litellm) -> Embedder:
    from ragmem.embedder.litellm_embedder import LiteLLMEmbedder

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
            hint="Set it, or leave model.embedding empty: the embedder of ragmem needs no key.",
        )
    return LiteLLMEmbedder(
        model,
        litellm,
        dimension=config.memory.embeddings.dimension,
        api_key=key,
        api_base=api_base or None,
        key_variable=variables[0],
        timeout_s=config.llm.timeout_s,
        retries=config.llm.retries,
    )


class ModelChanged(msgspec.Struct, frozen=True):
    """The store's vectors are another model's: text search only, until they are made anew."""

    recorded: str
    configured: str

    def __str__(self) -> str:
        return (
            f"The memory's vectors were made by {self.recorded}, but {self.configured} is set: "
            "until `ragmem store reembed` has made them anew, only text search is used."
        )


def changed(recorded: tuple[str, int] | None, info: EmbedderInfo) -> ModelChanged | None:
    """Whether a store that recorded `(model id, dimension)` fits the embedder; None if it does."""
    if recorded is None or recorded == (info.model_id, info.dimension):
        return None
    return ModelChanged(
        f"{recorded[0]} ({recorded[1]} numbers)", f"{info.model_id} ({info.dimension} numbers)"
    )
