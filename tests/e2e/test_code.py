"""The agent knows the project's code: real processes, a scripted server, both stores."""

import pytest

from tests.cli.process import Ragmem
from tests.e2e.test_facts import block_of
from tests.fakes.llm_server import Answer, Call, LLMServer, Received
from tests.index.conftest import AUTH, CLOCK

QUESTION = "Where do we check that a token has not expired?"
GO = """\
package wallet

// Transfer moves money between two accounts, or none of it.
func Transfer(from, to string, cents int) error {
	return nil
}
"""


@pytest.fixture
def ragmem(ragmem: Ragmem) -> Ragmem:
    ragmem.env["RAGMEM_MEMORY__SUMMARIES__ENABLED"] = "false"
    ragmem.env["RAGMEM_MEMORY__FACTS__EXTRACT"] = "false"
    (ragmem.project / ".git").mkdir()
    for path, text in (("src/auth.py", AUTH), ("src/clock.py", CLOCK), ("wallet/pay.go", GO)):
        (ragmem.project / path).parent.mkdir(exist_ok=True)
        (ragmem.project / path).write_text(text)
    return ragmem


def code_of(request: Received) -> str:
    """The section Relevant Code; empty where there is none."""
    _, found, rest = block_of(request).partition("## Relevant Code\n")
    return rest.split("\n\n## ")[0].split("\n\nToday is")[0] if found else ""


def test_the_right_scope_without_any_tool_call(ragmem: Ragmem, server: LLMServer) -> None:
    """The first question in a project, asked in words, finds its code;
    moved since, it is found where it is; a greeting gets none.
    """
    server.extend(Answer("In AuthService.validate."), Answer("There."), Answer("Hello."))
    ragmem.ok("ask", QUESTION)
    (request,) = server.requests
    code = code_of(request)
    assert code.startswith("[src/auth.py:7-9 AuthService.validate]")
    assert "     9\t        return self.lookup(token) is not None" in code
    assert "parse_duration" not in code
    assert [m["role"] for m in request.body["messages"]] == ["system", "user"]
    assert "brain_search" in [tool["function"]["name"] for tool in request.body["tools"]]
    assert "The project's code is indexed." in request.body["messages"][0]["content"]

    (ragmem.project / "src" / "auth.py").write_text("import os\n\n" + AUTH)
    ragmem.ok("ask", "Where is the money transferred, and where is a token validated?")
    code = code_of(server.requests[1])
    assert "[wallet/pay.go:3-6 Transfer]" in code or "[wallet/pay.go:4-6 Transfer]" in code
    assert "     9\t    def validate" in code

    ragmem.ok("ask", "hello")
    assert code_of(server.requests[2]) == ""


def test_brain_search_and_what_it_leaves(ragmem: Ragmem, server: LLMServer) -> None:
    """Hits of code and memory; searched files; the turn's references."""
    server.extend(Answer("Tokens live 15 minutes."))
    ragmem.ok("ask", "How long does a token live?")
    server.extend(
        Answer(tools=[Call("brain_search", {"query": "token expired"})]),
        Answer(tools=[Call("read_file", {"path": "src/clock.py"})]),
        Answer("`login` is not concerned."),
    )
    ragmem.ok("ask", "-c", "Look for it.")
    (answer,) = [m for m in server.requests[2].body["messages"] if m["role"] == "tool"]
    assert "[code] src/auth.py:7-9 method AuthService.validate" in answer["content"]
    assert "[memory] [turn 1, this session" in answer["content"]
    by_path = {entry["path"]: entry["access_type"] for entry in ragmem.read("files")}
    assert (by_path["src/auth.py"], by_path["src/clock.py"]) == ("search", "read")
    ragmem.ok("work")
    found = ragmem.read("search", "--code", "parse_duration")
    (scope,) = [hit for hit in found if hit["name"] == "parse_duration"]
    assert [session["how"] for session in scope["sessions"]] == [["read"]]


def test_without_memory_and_without_a_trace(ragmem: Ragmem, server: LLMServer) -> None:
    """--ephemeral makes no index; code.enabled = false has none; memory.enabled = false has one,
    and stores nothing."""
    index = ragmem.home / "data" / "code"
    ragmem.ok("ask", "--ephemeral", QUESTION)
    ragmem.ok("ask", QUESTION, env={"RAGMEM_CODE__ENABLED": "false"})
    for request in server.requests:
        assert code_of(request) == ""
    names = [tool["function"]["name"] for tool in server.requests[1].body["tools"]]
    assert "brain_search" not in names
    assert not list(index.glob("*.sqlite"))
    before = (ragmem.home / "data" / "memory.db").read_bytes()
    ragmem.ok("ask", QUESTION, env={"RAGMEM_MEMORY__ENABLED": "false"})
    assert "AuthService.validate" in code_of(server.requests[2])
    assert len(list(index.glob("*.sqlite"))) == 1
    assert (ragmem.home / "data" / "memory.db").read_bytes() == before
