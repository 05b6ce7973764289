"""What a person sees of the memory engine, in real processes, on both stores."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer, Received
from tests.fakes.neo4j import ALSO_NEO4J, store_env

DIGEST = json.dumps({"text": "The staging port was looked up.", "key_findings": ["port 5439"]})


@pytest.fixture
def server() -> Iterator[LLMServer]:
    def answer(request: Received) -> Answer:
        if request.body["model"] == "small":
            return Answer(DIGEST)
        asked = str(request.body["messages"][-1]["content"])
        if asked.endswith("Where does staging listen?"):
            return Answer(tools=[Call("read_file", {"path": "staging.toml"})])
        return Answer("On port 5439, says staging.toml. " + "So it is. " * 100)

    with LLMServer([answer], repeat=True) as running:
        yield running


@pytest.fixture(params=["sqlite", "neo4j"])
def ragmem(request: pytest.FixtureRequest, tmp_path: Path, server: LLMServer) -> Ragmem:
    env = {
        **server.env,
        "RAGMEM_MODEL__SUMMARY": "openai/small",
        "RAGMEM_MEMORY__WORKER": "inline",
        **store_env(request, request.param),
    }
    made = Ragmem(tmp_path, env)
    (made.project / "staging.toml").write_text("port = 5439\n")
    return made


@pytest.mark.parametrize("ragmem", ["sqlite", ALSO_NEO4J], indirect=True)
def test_from_a_first_question_to_an_export(ragmem: Ragmem, server: LLMServer) -> None:
    """Messages, calls, summaries, vectors, recall, a file."""
    # Settings come from a file that a command writes.
    written = ragmem.run("config", "init")
    assert written.code == 0, written.err
    assert ragmem.run("config", "show", "--format", "json").json
    # What was said, and what tools did, in order with their results.
    first = ragmem.run("ask", "Where does staging listen?", "--output-format", "json")
    assert first.code == 0, first.err
    session_id = first.json["session_id"]
    for number in range(5):
        done = ragmem.run("ask", "-c", f"And why, {number}?")
        assert done.code == 0, done.err
    shown = ragmem.run("sessions", "show", session_id, "--format", "json").json
    assert [turn["turn_index"] for turn in shown["turns"]] == [1, 2, 3, 4, 5, 6]
    (call,) = shown["turns"][0]["tool_calls"]
    assert (call["tool_name"], call["success"]) == ("read_file", True)
    assert "port = 5439" in str(call["result"])
    last = [r for r in server.requests if r.body["model"] != "small"][-1]
    sent = json.dumps(last.body["messages"])
    assert "port = 5439" in sent
    assert "And why, 0?" in sent
    # Summed up, level upon level, with the files of the recorded calls; embedded, found.
    hits = ragmem.run("search", "staging port", "--levels", "1,2", "--format", "json").json
    assert hits
    assert {hit["type"] for hit in hits} == {"summary"}
    assert all(hit["similarity"] is not None for hit in hits)
    stats = ragmem.run("stats", "--format", "json").json
    assert stats["pending"]["vectors"] == stats["pending"]["level1"] == 0
    assert stats["counts"]["summaries"] >= 6
    # Another session knows it without being asked to look.
    other = ragmem.run("ask", "Which port was it where staging listens?")
    assert other.code == 0, other.err
    last = [r for r in server.requests if r.body["model"] != "small"][-1]
    assert "## Relevant Past Context (Semantic Search - Turns)" in str(last.body["messages"][-1])
    # Out to a file and in again.
    exported = ragmem.run("sessions", "export", session_id).json
    assert len(exported["turns"]) == 6
    levels = [summary["level"] for summary in exported["summaries"]]
    assert levels.count(1) == 6
    assert levels.count(2) == 1
    named = [summary["files_mentioned"] for summary in exported["summaries"]]
    assert named.count(["staging.toml"]) == 2
