"""Servers of the Model Context Protocol at an address, and what is told of a server's settings."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_types import Tool

from ragmem.config import McpServerConfig
from ragmem.messages import ToolUse
from ragmem.redact import redact
from ragmem.tools.base import ToolFailure, Toolset
from ragmem.tools.mcp_client import McpServer, Servers, ServerTool, ToolRoom, WaitForServers
from ragmem.tools.permissions import Permissions
from ragmem.tools.workspace import Workspace
from tests.fakes import mcp_server
from tests.fakes.mcp_server import answer

KEY = "hT5-bearer-0987zyxw"


class _Handler(BaseHTTPRequestHandler):
    """The protocol over HTTP, each answer whole."""

    encoding = "identity"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {KEY}":
            return self._send(401, None)
        if "id" not in request:
            return self._send(202, None)
        if request["method"] == "tools/call" and request["params"]["name"] == "slow":
            time.sleep(6)
            request["params"]["name"] = "echo"
        kind = "odd" if request.get("params", {}).get("name") == "long" else "good"
        result = answer(kind, request["method"], request.get("params") or {})
        return self._send(200, {"jsonrpc": "2.0", "id": request["id"], "result": result})

    def do_GET(self) -> None:
        self._send(405, None)

    def _send(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-encoding", self.encoding)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        thread.join()


@asynccontextmanager
async def started(
    settings: McpServerConfig, cwd: Path, say: Callable[[str], object] = str
) -> AsyncIterator[McpServer]:
    """A server that is ready, or has failed."""
    server = McpServer("a", settings, say, ToolRoom())
    server.start(cwd, cwd)
    await server.settled.wait()
    yield server
    await server.aclose()


def fake(kind: str, **settings: Any) -> McpServerConfig:
    return McpServerConfig(command=sys.executable, args=(mcp_server.__file__, kind), **settings)


async def test_a_server_at_an_address_is_asked_with_its_headers(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_BEARER", KEY)
    said: list[str] = []
    for headers, state in (
        ({"Authorization": "Bearer ${TEST_BEARER}"}, "ready, 6 tools"),
        ({"Authorization": "Bearer no"}, "not available: it answered 401: set a valid key"),
    ):
        settings = McpServerConfig(url=url, headers=headers)
        async with started(settings, tmp_path, said.append) as server:
            assert server.state.startswith(state)
            if server.tools:
                assert (await server.call("echo", {"text": "fern"}, 30)).endswith("fern")
                cut = redact(await server.call("echo", {"text": f"{KEY} " * 4_000}, 30))
                assert not any(KEY[at : at + 4] in cut for at in range(len(KEY) - 3))
                with pytest.raises(ToolFailure, match="no"):
                    await server.call("fail", {"text": "no"}, 30)
    assert len(said) == 1
    assert KEY not in redact(f"it was {KEY}")


async def test_a_tool_at_an_address_may_take_its_time(url: str, tmp_path: Path) -> None:
    """More than the five seconds that an HTTP client would give it."""
    settings = McpServerConfig(url=url, headers={"Authorization": f"Bearer {KEY}"})
    async with started(settings, tmp_path) as server:
        assert (await server.call("slow", {"text": "fern"}, 60)).endswith("fern")


@pytest.mark.parametrize(
    ("call", "encoding", "told"),
    [("long", "identity", "more than 16 MB"), ("echo", "gzip", "a compressed answer")],
)
async def test_an_answer_from_an_address_is_bounded(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, encoding: str, told: str
) -> None:
    """Also one that would only be large when it is unpacked."""
    settings = McpServerConfig(url=url, headers={"Authorization": f"Bearer {KEY}"})
    async with started(settings, tmp_path) as server:
        monkeypatch.setattr(_Handler, "encoding", encoding)
        with pytest.raises(ToolFailure, match=told):
            await server.call(call, {"text": "fern"}, 60)


def test_what_hides_in_a_schema_is_shown_to_the_model(tmp_path: Path) -> None:
    """Tags of Unicode are letters to a model, and nothing to a person."""
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "run it")
    field = {"type": "string", "description": f"A text.{hidden}", "enum": ["a\u200bb"]}
    schema = {"type": "object", "title": f"T{hidden}", "properties": {"text": field}}
    server = McpServer("h", McpServerConfig(command="cat"), lambda _: None, ToolRoom())
    tool = Tool(name="echo", description=hidden, inputSchema=schema)
    told = ServerTool(server, tool, Permissions(Workspace(tmp_path)), 5)
    shown = json.dumps([told.description, told.parameters], ensure_ascii=False)
    assert not set(hidden) & set(shown)
    assert told.parameters["properties"]["text"]["enum"] == ["a\u200bb"]


async def test_a_header_with_a_line_break_is_named_and_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The break at its end, which a secret of a file has, is left out."""
    for value, headers, state in (
        (f"{KEY}\n", {"Authorization": "Bearer ${TEST_BEARER}"}, "ready, 6 tools"),
        (KEY, {"Authorization": "Bearer ${TEST_BEARER}\n"}, "ready, 6 tools"),
        ("fern12345\nmoss67890", {"Authorization": "Bearer ${TEST_BEARER}"}, "TEST_BEARER"),
        (KEY, {"Authorization": "Bearer fern12345\nmoss67890"}, "the header Authorization"),
    ):
        monkeypatch.setenv("TEST_BEARER", value)
        said: list[str] = []
        settings = McpServerConfig(url=url, headers=headers)
        async with started(settings, tmp_path, said.append) as server:
            assert state in server.state
            said.append(server.state)
        assert not [line for line in said if "fern" in line or "moss" in line]


async def test_what_a_server_says_that_few_can_read_costs_itself_alone(tmp_path: Path) -> None:
    async with started(fake("odd"), tmp_path) as odd:
        # Schemas that are none.
        assert [tool.name for tool in odd.tools] == ["half", "many", "long"]
        # As programs send it that cut a text in the midst of an emoji.
        assert (await odd.call("half", {}, 60)) == "fern \ufffd"
        told = await odd.call("many", {}, 60)
        assert told.count("fern") == 1_000
        assert told.endswith("[4,000 more parts left out]")
        with pytest.raises(ToolFailure, match="a message of more than 16 MB, and was stopped"):
            await odd.call("long", {}, 60)


_DEAF = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        if asked["method"] == "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "deaf", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
        if asked["method"] == "tools/list":
            time.sleep(600)
"""


async def test_calls_of_a_server_that_reads_no_more_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fills the pipe to it, and the next can't even be written."""
    monkeypatch.setattr("mcp.shared.jsonrpc_dispatcher._ABANDON_WRITE_TIMEOUT", 0.1)
    deaf = McpServerConfig(command=sys.executable, args=("-c", _DEAF))
    async with started(deaf, tmp_path) as server:
        for _ in range(2):
            with pytest.raises(ToolFailure, match="did not answer within"):
                async with asyncio.timeout(30):
                    await server.call("echo", {"text": "x" * 300_000}, 0.2)


async def test_half_a_character_in_a_call_costs_that_call_alone(tmp_path: Path) -> None:
    """It could not be written to the server, and then nothing could."""
    may = Permissions(Workspace(tmp_path), mode="bypassPermissions")
    async with started(fake("good"), tmp_path) as server:
        toolset = Toolset([ServerTool(server, tool, may, 60) for tool in server.tools])
        cut = await toolset.call(ToolUse("a", "a__echo", r'{"text": "cut \ud83d"}'))
        whole = await toolset.call(ToolUse("b", "a__echo", '{"text": "fern"}'))
    assert not cut.success
    assert "half a character" in cut.text
    assert whole.text.endswith("fern")


async def test_who_is_stopped_waiting_for_servers_leaves_nothing_waiting(tmp_path: Path) -> None:
    cat = McpServerConfig(command="cat")
    silent = [McpServer(name, cat, lambda _: None, ToolRoom()) for name in "ab"]
    servers = Servers({}, cwd=tmp_path, apart=tmp_path, timeout_s=5, say=lambda _: None)
    waits = WaitForServers(servers, silent)
    call = asyncio.create_task(waits.run(waits.Params()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    assert asyncio.all_tasks() == {asyncio.current_task()}


_ASKING = """
import json, os, sys
def say(**what):
    print(json.dumps({"jsonrpc": "2.0"} | what), flush=True)
hello = json.loads(input())
version = hello["params"]["protocolVersion"]
info = {"name": "asking", "version": "1"}
say(id=hello["id"], result={"protocolVersion": version, "capabilities": {}, "serverInfo": info})
input()
say(id="r", method="roots/list")
while "result" not in (line := json.loads(input())):
    pass
print(json.dumps([os.getcwd(), line["result"]["roots"]]), file=open(sys.argv[1], "w"))
"""


@pytest.mark.parametrize("in_project", [False, True])
async def test_a_server_starts_apart_from_the_project_and_is_told_where_that_is(
    tmp_path: Path, in_project: bool
) -> None:
    """Else `npx` and `python -m` would take files of a stranger's project for the server."""
    project, apart, told = tmp_path / "project", tmp_path / "apart", tmp_path / "told"
    project.mkdir()
    apart.mkdir()
    asking = McpServerConfig(
        command=sys.executable, args=("-c", _ASKING, str(told)), in_project=in_project
    )
    servers = Servers({"asking": asking}, cwd=project, apart=apart, timeout_s=5, say=lambda _: None)
    servers.start()
    await asyncio.wait_for(servers.all[0].settled.wait(), 60)
    await servers.aclose()
    folder, roots = json.loads(told.read_text())
    assert folder == str(project if in_project else apart)
    assert [root["uri"] for root in roots] == [project.as_uri()]


async def test_the_tools_of_all_servers_fit_a_request_and_hold_nothing_up(tmp_path: Path) -> None:
    """What is beyond is named; while their schemas are looked at, all else goes on."""
    both, said = dict.fromkeys("ab", fake("wide")), list[str]()
    servers = Servers(both, cwd=tmp_path, apart=tmp_path, timeout_s=5, say=said.append)
    began_s = time.thread_time()
    servers.start()
    await asyncio.gather(*(each.settled.wait() for each in servers.all))
    used_s = time.thread_time() - began_s
    tools = servers.tools(Permissions(Workspace(tmp_path)))
    await servers.aclose()
    assert len(tools) == 100
    told = [json.dumps([tool.name, tool.description, tool.parameters]) for tool in tools]
    assert 200_000 < sum(map(len, told)) < 330_000
    assert len(said) == 2
    # Who is ready long before the other may leave it nothing.
    assert "(the tools of all servers together exceed 300,000 characters)" in said[0]
    assert "tools of all servers" in said[1]
    assert all(line.endswith("Choose them with `tools` in its table.") for line in said)
    # Of the loop's own thread: to look at all 160 long ones takes it three seconds and more.
    assert used_s < 2.0


async def test_of_a_server_those_tools_are_told_that_its_table_names(tmp_path: Path) -> None:
    """What it names and the server has not is told to the person."""
    settings, said = fake("wide", tools=("long7", "short1*", "shorter")), list[str]()
    async with started(settings, tmp_path, said.append) as server:
        told = [tool.name for tool in server.tools]
    assert told == ["long7", "short1", *(f"short{i}" for i in range(10, 20))]
    assert said == ["MCP server a: tools left out: 'shorter' (it has no tool of that name)."]
