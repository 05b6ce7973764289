"""Claude and Gemini from the command line: directly, and without what takes seconds to load."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer


@pytest.mark.parametrize(
    ("model", "key", "base", "thought"),
    [
        ("anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "signed"),
        ("gemini/gemini-3.8-flash", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "signed"),
        ("openai/gpt-5-pro", "OPENAI_API_KEY", "OPENAI_BASE_URL", "sealed"),
    ],
)
def test_a_turn_with_a_tool_call(
    tmp_path: Path, model: str, key: str, base: str, thought: str
) -> None:
    """Asked with its key, answered with what it had thought, and stored; no litellm is there."""
    reads = Answer(tools=[Call("read_file", {"path": "a.py"})], reasoning="I read a.py first.")
    with LLMServer([reads, Answer("It prints hello.")]) as server:
        hidden = tmp_path / "hidden"
        (hidden / "litellm").mkdir(parents=True)
        (hidden / "litellm" / "__init__.py").write_text("raise SystemExit('litellm was imported')")
        env = {
            key: "k-0123456789abcdef",
            base: server.url if "OPENAI" in base else server.url.removesuffix("/v1"),
            "RAGMEM_MEMORY__WORKER": "off",
            "PYTHONPATH": str(hidden),
        }
        ragmem = Ragmem(tmp_path, env)
        (ragmem.project / "a.py").write_text("print('hello')\n")
        done = ragmem.run("ask", "-m", model, "What does a.py print?", "--output-format", "json")
    assert done.code == 0, done
    assert done.json["result"] == "It prints hello."
    assert thought in str(server.requests[1].body)
    assert [request.body["model"] for request in server.requests] == [model.partition("/")[2]] * 2
    assert "print('hello')" in str(server.requests[1].body)
    (session,) = ragmem.sessions()
    assert session["turn_count"] == 1


def test_a_refused_key_is_named(tmp_path: Path) -> None:
    with LLMServer([Answer(mode="401")]) as server:
        env = {"ANTHROPIC_API_KEY": "k-wrong", "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1")}
        done = Ragmem(tmp_path, env).run("ask", "-m", "anthropic/claude-sonnet-5-5", "Hello?")
    assert done.code == 1
    assert "ANTHROPIC_API_KEY" in done.err


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("anthropic/claude-sonnet-5-5", "ANTHROPIC_BASE_URL"),
        ("gemini/gemini-3.8-flash", "GOOGLE_GEMINI_BASE_URL"),
        ("openai/gpt-5-pro", "OPENAI_BASE_URL"),
    ],
)
def test_the_variable_that_gives_an_address_is_named_where_nobody_answers(
    tmp_path: Path, model: str, variable: str
) -> None:
    key = {"ANTHROPIC": "ANTHROPIC_API_KEY", "GOOGLE": "GEMINI_API_KEY", "OPENAI": "OPENAI_API_KEY"}
    env = {key[variable.partition("_")[0]]: "k-1", variable: "http://127.0.0.1:9"}
    done = Ragmem(tmp_path, env).run("ask", "-m", model, "Hello?")
    assert done.code != 0
    assert f"Is it running, and is {variable} right?" in done.err
    wrong = Ragmem(tmp_path / "2", {**env, variable: "nowhere"}).run("ask", "-m", model, "Hello?")
    assert f"{variable} is 'nowhere', which is no address." in wrong.err


def test_how_long_to_think_is_asked_for_by_a_flag_or_a_setting(tmp_path: Path) -> None:
    """Of the main model alone; what it can't do is refused before anything is sent."""
    with LLMServer([Answer("Yes.")], repeat=True) as server:
        env = {"ANTHROPIC_API_KEY": "k-1", "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1")}
        ragmem = Ragmem(tmp_path, {**env, "RAGMEM_MEMORY__WORKER": "inline"})
        model = ("-m", "anthropic/claude-sonnet-5-5")
        assert ragmem.run("ask", *model, "-e", "high", "Is it?").code == 0
        low = {"RAGMEM_MODEL__EFFORT": "low"}
        assert ragmem.run("ask", *model, "And that?", env=low).code == 0
        asked = [r.body for r in server.requests if "sonnet" in r.body["model"]]
        refused = ragmem.run("ask", *model, "-e", "none", "Is it?")
        unknown = ragmem.run("ask", *model, "-e", "huge", "Is it?")
        assert len([r for r in server.requests if "sonnet" in r.body["model"]]) == len(asked)
        small = [r.body for r in server.requests if "haiku" in r.body["model"]]
    assert [body["output_config"]["effort"] for body in asked] == ["high", "low"]
    assert not any("thinking" in body for body in small)
    assert (refused.code, unknown.code) == (2, 2)
    assert "It takes low, medium, high." in refused.err
    assert "'none', 'low', 'medium', 'high'" in unknown.err
