"""A model's name that its server does not have is told when it is chosen."""

import pytest

from ragmem.config import Config, LLMConfig
from ragmem.llm.models import choose_model, doubt
from tests.fakes.llm_server import LLMServer


def said(name: str, environ: dict[str, str], api_base: str = "") -> str:
    config = Config(llm=LLMConfig(api_base=api_base))
    return doubt(choose_model(config, environ, flag=name), environ)


def test_a_server_tells_what_it_has() -> None:
    with LLMServer() as server:
        (name,) = server.models
        base = server.env["RAGMEM_API_BASE"]
        assert said(f"openai/{name}", {}, base) == ""
        assert said(f"openai/{name}x", {}, base) == (
            f"openai/{name}x is not there: its server lists openai/{name} alone."
        )
    assert said("openai/anything", {}, base) == ""  # nobody is there to tell


def test_what_is_reached_through_litellm_is_looked_up_in_the_table() -> None:
    environ = {"ANTHROPIC_API_KEY": "k"}
    assert "Did you mean anthropic/claude" in said("anthropic/claude-sonet", environ)


@pytest.mark.parametrize("name", ["openai/x", "strange/x"])
def test_a_key_that_was_not_found_is_named(name: str) -> None:
    """Whatever server is asked, the variable in which its key was looked for is known."""
    config = Config(llm=LLMConfig(api_base="http://127.0.0.1:9/v1"))
    assert choose_model(config, {"OPENAI_API_KEY": "k"}, flag=name).key_variable == "RAGMEM_API_KEY"
