"""The providers known by name, in the order in which their keys are tried, and the model table.

Default models are recent ones of litellm's table that call tools: a capable one at a moderate
price, and a small one for background work. A test compares them with the table.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from ragmem.config import Effort
from ragmem.llm.base import ModelInfo

_THINKS, _CAN_BE_OFF, _BY_NAME, _RESPONSES = 1, 2, 4, 8


class _Row(msgspec.Struct, array_like=True):
    """A row of models.json; missing values are unknown."""

    window: int | None = None
    max_output: int | None = None
    usd_in: float | None = None
    usd_out: float | None = None
    usd_cached: float | None = None
    usd_written: float | None = None
    tools: int | None = None
    thinks: int | None = None
    sees: int | None = None


class _Table(msgspec.Struct):
    models: dict[str, _Row]


@cache
def _rows() -> dict[str, _Row]:
    data = Path(__file__).with_name("models.json").read_bytes()
    return msgspec.json.decode(data, type=_Table).models


def model_info(name: str) -> ModelInfo:
    """Return what the table says of `provider/model`; all fields are unknown if it has no row."""
    row = _rows().get(name)
    if row is None:
        return ModelInfo(name=name)
    prices = (row.usd_in, row.usd_out, row.usd_cached, row.usd_written)
    usd_in, usd_out, cached, written = (None if usd is None else usd / 1e6 for usd in prices)
    thinks = row.thinks or 0
    efforts: tuple[Effort, ...] = ("low", "medium", "high") if thinks & _THINKS else ()
    return ModelInfo(
        name=name,
        context_window=row.window,
        max_output_tokens=row.max_output,
        input_usd_per_token=usd_in,
        output_usd_per_token=usd_out,
        cached_usd_per_token=cached,
        written_usd_per_token=written,
        supports_tools=row.tools != 0,
        supports_images=bool(row.sees),
        efforts=("none", *efforts) if thinks & _CAN_BE_OFF else efforts,
        effort_by_name=not efforts or bool(thinks & _BY_NAME),
        responses_only=bool(thinks & _RESPONSES),
    )


def is_known(name: str) -> bool:
    """Return whether the table has the model."""
    return name in _rows()


def known_models() -> list[str]:
    """Return every `provider/model` of the table, sorted."""
    return sorted(_rows())


Protocol = Literal["openai", "anthropic", "gemini"]
"""The protocol of a provider that is not reached through litellm."""


class Provider(msgspec.Struct, frozen=True):
    """A known provider; `base_url` is empty if it is reached through litellm."""

    name: str
    base_url: str = ""
    main: str = ""
    small: str = ""
    """The name of the default model for background work; `main` and `small` have no prefix."""
    keys: tuple[str, ...] = ()
    """The environment variables that may hold its key; by default its name with `_API_KEY`."""
    protocol: Protocol = "openai"
    base_variable: str = ""
    """The variable for another address, as in the provider's SDKs: OpenAI's ends in `/v1`."""
    tool_call_id_length: int = 0
    local: bool = False
    """Whether it runs on the user's own machine, without a key and free of charge."""

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables for its key, of which the first that is set is used; none if local."""
        return () if self.local else self.keys or (f"{self.name.upper()}_API_KEY",)


PROVIDERS = (
    Provider(
        "anthropic",
        "https://api.anthropic.com/v1",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        protocol="anthropic",
        base_variable="ANTHROPIC_BASE_URL",
    ),
    Provider(
        "openai",
        "https://api.openai.com/v1",
        "gpt-6.1-sol",
        "gpt-6-luna",
        base_variable="OPENAI_BASE_URL",
    ),
    Provider(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini-3.8-flash",
        "gemini-3.5-flash-lite",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        protocol="gemini",
        base_variable="GOOGLE_GEMINI_BASE_URL",
    ),
    Provider(
        "mistral",
        "https://api.mistral.ai/v1",
        "devstral-latest",
        "mistral-small-latest",
        tool_call_id_length=9,
    ),
    Provider("deepseek", "https://api.deepseek.com/v1", "deepseek-v4-pro", "deepseek-v4-flash"),
    Provider("groq", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b", "openai/gpt-oss-20b"),
    Provider("xai", "https://api.x.ai/v1", "grok-4.7", "grok-4.20-non-reasoning"),
    Provider("openrouter", "https://openrouter.ai/api/v1", "openrouter/auto", "openrouter/auto"),
    Provider(
        "together_ai",
        "https://api.together.xyz/v1",
        "zai-org/GLM-5.3",
        "zai-org/GLM-5.3-Flash",
        keys=("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    ),
    Provider("cerebras", "https://api.cerebras.ai/v1", "gpt-oss-120b", "gpt-oss-120b"),
    Provider("moonshot", "https://api.moonshot.ai/v1", "kimi-k3", "kimi-k2.6"),
    Provider("ollama", local=True),
    Provider("lm_studio", "http://127.0.0.1:1234/v1", local=True),
    Provider("hosted_vllm", "http://127.0.0.1:8000/v1", local=True),
)
BY_NAME = {p.name: p for p in PROVIDERS}
# Providers that litellm authenticates with by other means than one key.
WITHOUT_A_KEY = {"bedrock", "vertex_ai", "azure", "azure_ai", "sagemaker", "watsonx", "databricks"}
# Small models of providers reached through litellm, by the prefix of their larger siblings' names.
# Without Bedrock, Azure and Claude on Vertex, where each model must be enabled first.
_SMALL_BY_LITELLM = {
    "vertex_ai/gemini-": "vertex_ai/gemini-3.5-flash-lite",
    "zai/glm-": "zai/glm-5.3-flash",
    "dashscope/qwen": "dashscope/qwen3.8-flash",
}
_READ_FOR_EACH_WRITTEN = 8
"""The ratio of input to output tokens when summarizing."""


def small_sibling(name: str) -> str:
    """Return a cheaper model for background work, of the same provider and with the same key.

    Empty if none is known: for a model that is unknown itself, local, fine-tuned, or as cheap.
    """
    provider = BY_NAME.get(name.partition("/")[0])
    small = ""
    if provider is None:
        kin = (start for start in _SMALL_BY_LITELLM if name.startswith(start) and is_known(name))
        small = _SMALL_BY_LITELLM.get(next(kin, ""), "")
    elif provider.small and not name.startswith("openai/ft:"):
        is_ours = is_known(name) or name == f"{provider.name}/{provider.main}"
        small = f"{provider.name}/{provider.small}" if is_ours else ""
    return small if small and _price(small) < _price(name) else ""


def _price(name: str) -> float:
    """Return the price of an output token and the input tokens for it; infinite if unknown."""
    info = model_info(name)
    if info.input_usd_per_token is None or info.output_usd_per_token is None:
        return float("inf")
    return _READ_FOR_EACH_WRITTEN * info.input_usd_per_token + info.output_usd_per_token
