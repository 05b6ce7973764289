"""Servers of the Model Context Protocol at an address, and what is told of a server's settings."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mcp_types import Tool

from ragmem.config import McpServerConfig
from ragmem.redact import redact
from ragmem.tools.base import ToolFailure
from ragmem.tools.mcp_client import McpServer, Servers, ServerTool, ToolRoom, WaitForServers
from ragmem.tools.permissions import Permissions
from ragmem.tools.workspace import Workspace
from tests.fakes import mcp_server
from tests.fakes.mcp_server import answer

KEY = "hT5-bearer-0987zyxw"


class _Handler(BaseHTTPRequestHandler):
    """The protocol over HTTP, each answer whole."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {KEY}":
            return self._send(401, None)
        if "id" not in request:
            return self._send(202, None)
        if request["method"] == "tools/call" and request["params"]["name"] == "slow":
            time.sleep(6)
            request["params"]["name"] = "echo"
        result = answer("good", request["method"], request.get("params") or {})
        return self._send(200, {"jsonrpc": "2.0", "id": request["id"], "result": result})

    def do_GET(self) -> None:
        self._send(405, None)

    def _send(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
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


async def test_a_server_at_an_address_is_asked_with_its_headers(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_BEARER", KEY)
    said: list[str] = []
    for headers, state in (
        ({"Authorization": "Bearer ${TEST_BEARER}"}, "ready, 6 tools"),
        ({"Authorization": "Bearer no"}, "not available: it answered 401: set a valid key"),
    ):
        server = McpServer("h", McpServerConfig(url=url, headers=headers), said.append, ToolRoom())
        server.start(tmp_path)
        await server.settled.wait()
        assert server.state.startswith(state)
        if server.tools:
            assert (await server.call("echo", {"text": "fern"}, 30)).endswith("fern")
            cut = redact(await server.call("echo", {"text": f"{KEY} " * 4_000}, 30))
            assert not any(KEY[at : at + 4] in cut for at in range(len(KEY) - 3))
            with pytest.raises(ToolFailure, match="no"):
                await server.call("fail", {"text": "no"}, 30)
        await server.aclose()
    assert len(said) == 1
    assert KEY not in redact(f"it was {KEY}")


async def test_a_tool_at_an_address_may_take_its_time(url: str, tmp_path: Path) -> None:
    """More than the five seconds that an HTTP client would give it."""
    headers = {"Authorization": f"Bearer {KEY}"}
    server = McpServer("h", McpServerConfig(url=url, headers=headers), lambda _: None, ToolRoom())
    server.start(tmp_path)
    await server.settled.wait()
    assert (await server.call("slow", {"text": "fern"}, 60)).endswith("fern")
    await server.aclose()


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
        server = McpServer("h", McpServerConfig(url=url, headers=headers), said.append, ToolRoom())
        server.start(tmp_path)
        await server.settled.wait()
        assert state in server.state
        assert not [line for line in [server.state, *said] if "fern" in line or "moss" in line]
        await server.aclose()


@pytest.fixture
async def odd(tmp_path: Path) -> AsyncIterator[McpServer]:
    """A server that says what few can read."""
    command = McpServerConfig(command=sys.executable, args=[mcp_server.__file__, "odd"])
    server = McpServer("odd", command, lambda _: None, ToolRoom())
    server.start(tmp_path)
    await server.settled.wait()
    yield server
    await server.aclose()


async def test_a_schema_that_is_none_costs_its_own_tool_alone(odd: McpServer) -> None:
    assert [tool.name for tool in odd.tools] == ["half", "many", "long"]


async def test_half_a_character_of_an_answer_is_not_waited_for(odd: McpServer) -> None:
    """As programs send it that cut a text in the midst of an emoji."""
    assert (await odd.call("half", {}, 60)) == "fern \ufffd"


async def test_of_an_answer_in_thousands_of_parts_the_first_are_read(odd: McpServer) -> None:
    told = await odd.call("many", {}, 60)
    assert told.count("fern") == 1_000
    assert told.endswith("[4,000 more parts left out]")


async def test_a_server_that_sends_too_much_at_once_is_ended_and_it_is_said(
    odd: McpServer,
) -> None:
    with pytest.raises(ToolFailure, match="a message of more than 16 MB, and was stopped"):
        await odd.call("long", {}, 60)


async def test_whoever_is_stopped_while_it_waits_for_servers_leaves_nothing_waiting(
    tmp_path: Path,
) -> None:
    cat = McpServerConfig(command="cat")
    silent = [McpServer(name, cat, lambda _: None, ToolRoom()) for name in "ab"]
    servers = Servers({}, cwd=tmp_path, timeout_s=5, say=lambda _: None)
    waits = WaitForServers(servers, silent)
    call = asyncio.create_task(waits.run(waits.Params()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_tools_of_all_servers_together_fit_a_request_and_hold_nothing_up(
    tmp_path: Path,
) -> None:
    """What is beyond is named; while their schemas are looked at, all else goes on."""
    wide = McpServerConfig(command=sys.executable, args=(mcp_server.__file__, "wide"))
    said: list[str] = []
    servers = Servers({"a": wide, "b": wide}, cwd=tmp_path, timeout_s=5, say=said.append)
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
    names = ("long7", "short1*", "shorter")
    settings = McpServerConfig(
        command=sys.executable, args=(mcp_server.__file__, "wide"), tools=names
    )
    said: list[str] = []
    server = McpServer("a", settings, said.append, ToolRoom())
    server.start(tmp_path)
    await server.settled.wait()
    told = [tool.name for tool in server.tools]
    await server.aclose()
    assert told == ["long7", "short1", *(f"short{i}" for i in range(10, 20))]
    assert said == [
        "MCP server a: tools left out: 'shorter' (it has no tool of that name).",
    ]
