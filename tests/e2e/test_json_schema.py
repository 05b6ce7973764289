"""`ask --json-schema`: an answer that a program can read, or exit 1 with the reason."""

import json
from pathlib import Path

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer

PORTS = {
    "type": "object",
    "properties": {"port": {"type": "integer"}},
    "required": ["port"],
    "additionalProperties": False,
}
ASKED = ("ask", "Which port?", "--json-schema", json.dumps(PORTS))


def test_the_answer_stands_in_the_result_as_a_value(tmp_path: Path) -> None:
    """Also after a tool call and in a fence; the model was told the schema."""
    reads = Answer(tools=[Call("read_file", {"path": "a.toml"})])
    with LLMServer([reads, Answer('```json\n{"port": 5439}\n```')]) as server:
        ragmem = Ragmem(tmp_path, server.env)
        (ragmem.project / "a.toml").write_text("port = 5439\n")
        done = ragmem.ok(*ASKED, "--output-format", "json")
        assert done.json["structured_output"] == {"port": 5439}
        assert done.json["result"] == '{"port": 5439}'
        assert "additionalProperties" in str(server.requests[0].body["messages"])
        (session,) = ragmem.sessions()
        (turn,) = ragmem.shown(session["session_id"])["turns"]
        assert turn["user_message"] == "Which port?"


def test_a_model_that_misses_it_is_told_why_once(tmp_path: Path) -> None:
    with LLMServer([Answer('{"port": "high"}'), Answer('{"port": 1}')]) as server:
        ragmem = Ragmem(tmp_path, server.env)
        (ragmem.project / "ports.json").write_text(json.dumps(PORTS))
        done = ragmem.run("ask", "Which port?", "--json-schema", "ports.json")
        assert (done.code, done.out) == (0, '{"port": 1}\n')
        told = server.requests[1].body["messages"][-1]["content"]
        assert "At $.port: 'high' is not of type 'integer'" in told


def test_an_answer_that_does_not_fit_is_exit_1_with_the_reason(tmp_path: Path) -> None:
    """After two tries; what was said is kept."""
    for said in ("It is 5439.", "[1]", "{" * 20_000):
        with LLMServer([Answer(said)], repeat=True) as server:
            ragmem = Ragmem(tmp_path / said[:1], server.env)
            done = ragmem.run(*ASKED, "--output-format", "json")
            assert len([r for r in server.requests if r.body.get("tools")]) == 2
        assert done.code == 1
        assert "The answer does not match the schema." in done.json["error"]
        assert done.json["structured_output"] is None
        (session,) = ragmem.sessions()
        assert session["turn_count"] == 1


def test_a_schema_that_refers_elsewhere_fetches_nothing(tmp_path: Path) -> None:
    with LLMServer([Answer("{}")], repeat=True) as server:
        schema = json.dumps({"$ref": f"{server.url}/schema.json"})
        done = Ragmem(tmp_path, server.env).run("ask", "?", "--json-schema", schema)
        assert done.code == 1
        assert not [r for r in server.requests if r.path.endswith("schema.json")]


def test_the_second_try_is_not_paid_for_beyond_the_budget(tmp_path: Path) -> None:
    with LLMServer([Answer("It is 5439.")], repeat=True) as server:
        env = {"OPENAI_API_KEY": "k-1", "OPENAI_BASE_URL": server.url}
        ragmem = Ragmem(tmp_path, env)
        budget = ("--max-budget-usd", "0.0000001", "-m", "openai/gpt-4o")
        done = ragmem.run(*ASKED, *budget, "--output-format", "json")
        assert len(server.requests) == 1
    assert (done.code, done.json["subtype"]) == (1, "error_max_budget_usd")
