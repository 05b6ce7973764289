"""Claude and Gemini from the command line: directly, and without what takes seconds to load."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer

ANTHROPIC = ("anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
PROVIDERS = [
    ANTHROPIC,
    ("gemini/gemini-3.8-flash", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ("openai/gpt-5-pro", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
]


def env_of(key: str, base: str, url: str) -> dict[str, str]:
    return {key: "k-0123456789abcdef", base: url if "OPENAI" in base else url.removesuffix("/v1")}


@pytest.mark.parametrize(("model", "key", "base"), PROVIDERS)
def test_a_turn_with_a_tool_call(
    tmp_path: Path, server: LLMServer, model: str, key: str, base: str
) -> None:
    """Asked with its key, answered with what it had thought, and stored; no litellm is there."""
    reads = Answer(tools=[Call("read_file", {"path": "a.py"})], reasoning="I read a.py first.")
    server.extend(reads)
    hidden = tmp_path / "hidden"
    (hidden / "litellm").mkdir(parents=True)
    (hidden / "litellm" / "__init__.py").write_text("raise SystemExit('litellm was imported')")
    env = {**env_of(key, base, server.url), "PYTHONPATH": str(hidden)}
    ragmem = Ragmem(tmp_path, env)
    (ragmem.project / "a.py").write_text("print('hello')\n")
    assert ragmem.asked("-m", model, "What does a.py print?")["result"] == "The answer."
    second = str(server.requests[1].body)
    assert ("sealed" if "OPENAI" in base else "signed") in second
    assert [request.body["model"] for request in server.requests] == [model.partition("/")[2]] * 2
    assert "print('hello')" in second
    (session,) = ragmem.sessions()
    assert session["turn_count"] == 1


def test_a_refused_key_is_named(tmp_path: Path, server: LLMServer) -> None:
    model, key, base = ANTHROPIC
    server.extend(Answer(mode="401"))
    ragmem = Ragmem(tmp_path, env_of(key, base, server.url))
    done = ragmem.run("ask", "-m", model, "Hello?")
    assert (done.code, key in done.err) == (1, True)


def test_the_variable_that_gives_an_address_is_named_where_nobody_answers(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path)
    for model, key, base in PROVIDERS:
        for address, said in (
            ("http://127.0.0.1:9", f"Is it running, and is {base} right?"),
            ("nowhere", f"{base} is 'nowhere', which is not an address."),
        ):
            done = ragmem.run("ask", "-m", model, "Hello?", env={key: "k-1", base: address})
            assert done.code != 0
            assert said in done.err


def test_how_long_to_think_is_asked_for_by_a_flag_or_a_setting(
    tmp_path: Path, server: LLMServer
) -> None:
    """Of the main model alone; what it can't do is refused before anything is sent."""
    model, *names = ANTHROPIC
    ragmem = Ragmem(tmp_path, env_of(*names, server.url))
    ragmem.env["RAGMEM_MEMORY__WORKER"] = "inline"
    ask = ("ask", "-m", model, "Is it?")
    ragmem.ok(*ask, "-e", "high")
    ragmem.ok(*ask, env={"RAGMEM_MODEL__EFFORT": "low"})
    assert "It supports low, medium, high." in ragmem.refused(*ask, "-e", "none")
    assert "'none', 'low', 'medium', 'high'" in ragmem.refused(*ask, "-e", "huge")
    bodies = [request.body for request in server.requests]
    asked = [body for body in bodies if "sonnet" in body["model"]]
    assert [body["output_config"]["effort"] for body in asked] == ["high", "low"]
    assert not any("thinking" in body for body in bodies if "haiku" in body["model"])
