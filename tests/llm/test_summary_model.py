"""The model for background work: set, or found beside the main one."""

from pathlib import Path

import pytest

from ragmem.config import Config, LLMConfig, ModelConfig
from ragmem.errors import NoModel
from ragmem.llm import models
from ragmem.llm.base import UsageChunk
from ragmem.llm.models import LOCAL_NAME, choose_summary_model
from ragmem.llm.providers import PROVIDERS, known_models, model_info, small_sibling


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "data").mkdir()
    return {
        "RAGMEM_HOME": str(tmp_path),
        "OLLAMA_HOST": "http://127.0.0.1:1",
        "OPENAI_API_KEY": "k",
    }


SET = ModelConfig(main="openai/gpt-5.4")

BOTH = ModelConfig(main="openai/gpt-5.4", summary="ollama/x")

OWN_SERVER = LLMConfig(api_base="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("main", "small"),
    [
        ("anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5"),
        ("anthropic/claude-opus-4-5-20251101", "anthropic/claude-haiku-5-5"),
        ("anthropic/claude-haiku-5-5", ""),
        ("openai/gpt-5", "openai/gpt-6-luna"),
        ("openai/gpt-5-nano", ""),
        ("openai/ft:gpt-4o-2024-11-20", ""),
        ("gemini/gemini-2.5-pro", "gemini/gemini-3.5-flash-lite"),
        ("gemini/gemini-2.5-flash-lite", ""),
        ("mistral/devstral-latest", "mistral/mistral-small-latest"),
        ("deepseek/deepseek-v4-pro", "deepseek/deepseek-v4-flash"),
        ("groq/openai/gpt-oss-120b", "groq/openai/gpt-oss-20b"),
        ("vertex_ai/gemini-3.1-pro-preview", "vertex_ai/gemini-3.5-flash-lite"),
        ("vertex_ai/claude-opus-5", ""),
        ("zai/glm-5.3", "zai/glm-5.3-flash"),
        ("dashscope/qwen3.8-max", "dashscope/qwen3.8-flash"),
        ("bedrock/anthropic.claude-sonnet-5", ""),
        ("azure/gpt-5", ""),
        ("openrouter/openrouter/auto", ""),
        ("ollama/qwen3:8b", ""),
        ("hosted_vllm/anything", ""),
        ("local/smollm2-135m-instruct", ""),
        ("openai/my-own-finetune", ""),
        ("nobody/knows", ""),
        ("", ""),
    ],
)
def test_the_small_sibling(main: str, small: str) -> None:
    """Same provider; none for a model that is unknown, local or as cheap."""
    assert small_sibling(main) == small


def test_a_sibling_is_known_cheaper_and_reads_enough() -> None:
    """Whatever main model of the table: its sibling has a price below its own."""
    found = {name: small for name in known_models() if (small := small_sibling(name))}
    assert len(found) > 100
    for name, small in found.items():
        info, main = model_info(small), model_info(name)
        assert name.partition("/")[0] == small.partition("/")[0]
        assert info.input_usd_per_token is not None
        assert (info.context_window or 0) >= 100_000
        if main.input_usd_per_token is not None and main.output_usd_per_token is not None:
            used = UsageChunk(input_tokens=800, output_tokens=100)
            assert info.cost_usd(used) < main.cost_usd(used)  # type: ignore[operator]
    for each in PROVIDERS:
        has_sibling = bool(small_sibling(f"{each.name}/{each.main}"))
        assert has_sibling is (each.main != each.small), each.name


@pytest.mark.parametrize(
    ("config", "flag", "name", "why"),
    [
        (Config(model=SET), "", "openai/gpt-6-luna", "sibling of openai/gpt-5.4"),
        (Config(model=BOTH), "", "ollama/x", "model.summary"),
        (Config(model=ModelConfig(main="openai/mine")), "", "openai/mine", "model.main"),
        (Config(model=ModelConfig(main="ollama/qwen3:8b")), "", "ollama/qwen3:8b", "model.main"),
        (Config(), "", "openai/gpt-6-luna", "sibling of openai/gpt-6.1-sol"),
        (Config(), "anthropic/claude-opus-5", "anthropic/claude-haiku-5-5", "sibling"),
        (Config(model=SET, llm=OWN_SERVER), "", "openai/gpt-5.4", ""),
    ],
    ids=["sibling", "set", "unknown", "ollama", "by-key", "by-flag", "a server of one's own"],
)
def test_the_choice_says_why(
    environ: dict[str, str], config: Config, flag: str, name: str, why: str
) -> None:
    keys = {"ANTHROPIC_API_KEY": "k"} if flag else {}
    choice = choose_summary_model(config, environ | keys, flag=flag)
    assert (choice.name, why in choice.why) == (name, True)


def test_without_a_key_the_local_model_summarises(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last in the order is its own sibling; with nothing at all it is said."""
    del environ["OPENAI_API_KEY"]
    monkeypatch.setattr(models, "find_local_model", lambda _: tmp_path / "model.gguf")
    assert choose_summary_model(Config(), environ).name == LOCAL_NAME
    monkeypatch.setattr(models, "find_local_model", lambda _: None)
    with pytest.raises(NoModel, match="no model"):
        choose_summary_model(Config(), environ)
