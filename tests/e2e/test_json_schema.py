"""`ask --json-schema`: an answer that a program can read, or exit 1 with the reason."""

import json
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer

PORTS = {
    "type": "object",
    "properties": {"port": {"type": "integer"}},
    "required": ["port"],
    "additionalProperties": False,
}
ASKED = ("ask", "Which port?", "--json-schema", json.dumps(PORTS))


def test_the_answer_stands_in_the_result_as_a_value(ragmem: Ragmem, server: LLMServer) -> None:
    """Also after a tool call and in a fence; the model was told the schema."""
    reads = Answer(tools=[Call("read_file", {"path": "a.toml"})])
    server.extend(reads, Answer('```json\n{"port": 5439}\n```'))
    (ragmem.project / "a.toml").write_text("port = 5439\n")
    done = ragmem.ok(*ASKED, "--output-format", "json")
    assert done.json["structured_output"] == {"port": 5439}
    assert done.json["result"] == '{"port": 5439}'
    assert "additionalProperties" in str(server.requests[0].body["messages"])
    (session,) = ragmem.sessions()
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert turn["user_message"] == "Which port?"


def test_a_model_that_misses_it_is_told_why_once(ragmem: Ragmem, server: LLMServer) -> None:
    server.extend(Answer('{"port": "high"}'), Answer('{"port": 1}'))
    (ragmem.project / "ports.json").write_text(json.dumps(PORTS))
    done = ragmem.ok("ask", "Which port?", "--json-schema", "ports.json")
    assert done.out == '{"port": 1}\n'
    told = server.requests[1].body["messages"][-1]["content"]
    assert "At $.port: 'high' is not of type 'integer'" in told


@pytest.mark.parametrize("said", ["It is 5439.", "[1]", "{" * 20_000], ids=["text", "list", "deep"])
def test_an_answer_that_does_not_fit_is_exit_1_with_the_reason(
    ragmem: Ragmem, server: LLMServer, said: str
) -> None:
    """After two tries; what was said is kept."""
    server.always(Answer(said))
    done = ragmem.run(*ASKED, "--output-format", "json")
    assert len([r for r in server.requests if r.body.get("tools")]) == 2
    assert done.code == 1
    assert "The answer does not match the schema." in done.json["error"]
    assert done.json["structured_output"] is None
    (session,) = ragmem.sessions()
    assert session["turn_count"] == 1


@pytest.mark.parametrize("ref", ["{url}/schema.json", "#/$defs/port"])
def test_a_schema_that_refers_elsewhere_is_refused_unasked(
    ragmem: Ragmem, server: LLMServer, ref: str
) -> None:
    """Nothing is fetched, and no answer is paid for that can't be checked."""
    ref = ref.format(url=server.url)
    schema = json.dumps({"properties": {"port": {"$ref": ref}}})
    told = ragmem.refused("ask", "?", "--json-schema", schema)
    assert f"refers to {ref}, which is not in it." in told
    assert server.requests == []


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
def test_what_is_no_json_fits_no_schema(ragmem: Ragmem, server: LLMServer, number: str) -> None:
    server.always(Answer(f'{{"port": {number}}}'))
    done = ragmem.run("ask", "?", "--json-schema", '{"type": "object"}')
    assert (done.code, done.out) == (1, "")
    assert "It is not JSON." in done.err


def test_the_second_try_is_not_paid_for_beyond_the_budget(
    tmp_path: Path, server: LLMServer
) -> None:
    ragmem = Ragmem(tmp_path, {"OPENAI_API_KEY": "k-1", "OPENAI_BASE_URL": server.url})
    budget = ("--max-budget-usd", "0.0000001", "-m", "openai/gpt-4o")
    done = ragmem.run(*ASKED, *budget, "--output-format", "json")
    assert len(server.requests) == 1
    assert (done.code, done.json["subtype"]) == (1, "error_max_budget_usd")


def test_an_answer_that_fits_is_taken_from_the_last_call_too(
    ragmem: Ragmem, server: LLMServer
) -> None:
    """As the second try, it is the answer; at the limit of calls it is told beside the error."""
    limited = (*ASKED, "--max-turns", "1", "--output-format", "json")
    server.extend(Answer("It is 5."), Answer('{"port": 5}'), Answer("It is 6."), Answer("Really."))
    assert ragmem.ok(*limited).json["structured_output"] == {"port": 5}
    assert "step limit" not in str(server.requests[1].body["messages"])
    done = ragmem.run(*limited)
    assert (done.code, done.json["subtype"]) == (1, "error_during_execution")
    assert "does not match the schema" in done.json["error"]
    server.extend(Answer(tools=[Call("list_directory", {"path": "."})]), Answer('{"port": 7}'))
    done = ragmem.run(*limited)
    assert (done.code, done.json["subtype"]) == (1, "error_max_turns")
    assert (done.json["structured_output"], done.json["result"]) == ({"port": 7}, '{"port": 7}')
