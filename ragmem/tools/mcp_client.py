"""Connect to the MCP servers that the user has configured, and offer their tools to the model.

The first request to a model starts the servers without waiting for them; tools that are ready by a
later request are listed in that one. A short-lived process starts them only when the model asks. A
server is a third party's program: what it sends is bounded, escaped and treated as data, and its
faults cost a message, never the turn.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem.children import child_environment, end_group
from ragmem.config import UNSENDABLE, McpServerConfig, environment
from ragmem.errors import in_the_systems_words
from ragmem.libraries import install_command
from ragmem.memory.recording import settled
from ragmem.messages import Json
from ragmem.redact import ends_of, know, redact
from ragmem.text import clean, clip_middle, counted, one_line, plain, visible
from ragmem.tools.base import AgentTool, Effect, Tool, ToolFailure, ToolOutput
from ragmem.tools.permissions import Permissions

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import ClientSession
    from mcp.client.session import ClientRequestContext, ListRootsFnT

_log = logging.getLogger("ragmem")

_START_S = 60.0
"""Generous, since some servers download themselves first."""
_WAIT_S = 30.0
"""How long the model waits for servers that it has asked for."""
_POLL_S = 0.1
_MOST_TOOLS = 100
"""Limit for all servers together: some providers accept 128 in a request, ragmem's own included."""
_MOST_CHARS = 300_000
"""Limit on what all servers add to each request, about 75,000 tokens."""
_MOST_PAGES = 20
_MOST_PARTS = 1_000
"""Per result."""
_MAX_NAMED = 5
"""How many left-out tools a message names."""
_MOST_SCHEMA_CHARS = 20_000
_NO_SCHEMA = "its schema is not valid"
_DESCRIPTION_CHARS = 2_000
_RESULT_CHARS = 30_000
LINE_BYTES = 16_000_000
"""Largest message; a server that sends a longer one is stopped."""
_TOO_LONG = f"it sent a message of more than {LINE_BYTES // 1_000_000} MB"
_HAS_ENDED = "it exited"
_CONNECT_S = 10.0
_WANTS_A_KEY = "it answered 401: set a valid key in its `headers`"
"""Signing in through a browser is not supported."""
_STDERR_BYTES = 2_000
_PROSE = {"description", "title", "$comment"}
"""Keywords of a schema whose values are prose for the model."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""Tool names that every provider accepts."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class ToolRoom:
    """The room in a request for MCP tools, shared by all servers: first come, first served."""

    def __init__(self) -> None:
        self._tools, self._chars = _MOST_TOOLS, _MOST_CHARS

    def take(self, chars: int) -> str:
        """Reserve room for a tool of this size; return why it does not fit, or empty."""
        if self._tools < 1:
            return f"there are {_MOST_TOOLS} tools of servers already"
        if self._chars < chars:
            return f"the tools of all servers together exceed {_MOST_CHARS:,} characters"
        self._tools, self._chars = self._tools - 1, self._chars - chars
        return ""

    def give_back(self, chars: int) -> None:
        """Release the room that was reserved for a tool."""
        self._tools, self._chars = self._tools + 1, self._chars + chars


class McpServer:
    """One MCP server: `state` describes its status in words, `tools` are those that it offers."""

    def __init__(
        self, name: str, settings: McpServerConfig, say: Callable[[str], None], room: ToolRoom
    ) -> None:
        self.name = name
        self.state = "not started yet"
        self.tools: tuple[types.Tool, ...] = ()
        self._config = settings
        self._say = say
        self._room = room
        self._lacks_room = False
        """Whether any of its tools did not fit."""
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._left_out: list[str] = []
        """Tools that are left out, each with the reason."""
        self.settled = asyncio.Event()
        """Set once the server is ready or has failed."""
        self.gone = asyncio.Event()

    def start(self, project: Path, apart: Path) -> None:
        """Start the server in the background, unless it is started already."""
        if self._task is None:
            quiet = logging.getLogger("mcp")  # without a handler it would write to the terminal
            quiet.addHandler(logging.NullHandler())
            quiet.propagate = False
            self.state = "starting"
            self._task = asyncio.create_task(self._connect(project, apart))

    async def aclose(self) -> None:
        """Stop the server, and all the processes that it has started."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _connect(self, project: Path, apart: Path) -> None:
        """Start the server, list its tools, and stay connected until it exits or is stopped."""
        stderr = bytearray()
        try:
            # The import takes a second, which must not block the event loop.
            await asyncio.to_thread(import_module, "mcp")
            from mcp import ClientSession

            cwd = project if self._config.in_project else apart
            async with (
                _transport(self._config, cwd, stderr) as (read, write, ended),
                _filtered(read, self._left_out) as sound,
                ClientSession(sound, write, list_roots_callback=_roots(project)) as session,
            ):
                async with asyncio.timeout(_START_S):
                    await _run_until_ended(ended, self._initialize(session))
                self._session = session
                self.state = f"ready, {counted(len(self.tools), 'tool')}"
                self.settled.set()
                self._disconnected(await asyncio.shield(ended), stderr)
        except Exception as error:
            _log.debug("MCP server %s", self.name, exc_info=True)
            self._disconnected(_reason(error), stderr)

    def _disconnected(self, problem: str, stderr: bytearray) -> None:
        if self.gone.is_set():
            return
        last = bytes(stderr).decode("utf-8", "replace").strip().splitlines()[-1:]
        detail = "".join(f" ({one_line(redact(plain(line)), 200)})" for line in last)
        self._session, self.tools = None, ()
        self.state = f"not available: {problem}{detail}"
        self.settled.set()
        self.gone.set()
        self._say(f"MCP server {self.name}: {problem}{detail}.")

    async def _initialize(self, session: "ClientSession") -> None:
        """Initialize the session and list the tools that can be offered to a model."""
        from mcp_types import PaginatedRequestParams

        await session.initialize()
        found: dict[str, types.Tool] = {}
        wanted = dict.fromkeys(self._config.tools, False)
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            listed = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            for tool in listed.tools:
                fits = [name for name in wanted if fnmatchcase(tool.name, name)]
                wanted.update(dict.fromkeys(fits, True))
                if wanted and not fits:
                    continue
                if why := await self._reserve_room(tool):
                    self._left_out.append(f"{one_line(tool.name, 60)!r} ({why})")
                else:
                    found.setdefault(tool.name, tool)
            cursor = listed.next_cursor
            if not cursor:
                break
        self.tools = tuple(found.values())
        missing = [name for name, is_there in wanted.items() if not is_there]
        self._left_out += [f"{name!r} (it has no tool of that name)" for name in missing]
        if left_out := self._left_out:
            more = f" and {len(left_out) - _MAX_NAMED} more" if len(left_out) > _MAX_NAMED else ""
            names = ", ".join(left_out[:_MAX_NAMED]) + more
            chosen = " Choose them with `tools` in its table." if self._lacks_room else ""
            self._say(f"MCP server {self.name}: tools left out: {names}.{chosen}")

    async def _reserve_room(self, tool: "types.Tool") -> str:
        """Reserve room for a tool; returns why it can't be offered to a model, or empty."""
        if not _NAME.fullmatch(f"{self.name}__{tool.name}"):
            return "its name is too long, or has characters other than letters, digits, _ and -"
        try:
            length = len(json.dumps(tool.input_schema))
        except RecursionError:
            return _NO_SCHEMA
        if length > _MOST_SCHEMA_CHARS:
            return f"its schema is longer than {_MOST_SCHEMA_CHARS:,} characters"
        chars = length + min(len(tool.description or ""), _DESCRIPTION_CHARS)
        if why := self._room.take(chars):
            self._lacks_room = True
            return why
        # Validation takes 0.3 ms per property, which must not block the event loop.
        if fault := await asyncio.to_thread(_schema_fault, tool):
            self._room.give_back(chars)
        return fault

    async def call(self, tool: str, arguments: dict[str, Json], timeout_s: float) -> str:
        """Return a tool's result; raises ToolFailure if it fails or does not answer in time."""
        import mcp_types as types
        from mcp import MCPError

        session = self._session
        prefix = f"The server {self.name} is "
        if session is None:
            raise ToolFailure(prefix + self.state)
        call = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=arguments)
        )
        try:
            # The package's own timeout would begin only when the server has read the call.
            async with asyncio.timeout(timeout_s):
                result = await session.send_request(call, types.CallToolResult)
        except TimeoutError:
            raise ToolFailure(f"{self.name} did not answer within {timeout_s:g} s.") from None
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                with suppress(TimeoutError):
                    async with asyncio.timeout(10 * _POLL_S):
                        await self.gone.wait()
                    raise ToolFailure(prefix + self.state) from None
            raise ToolFailure(_visible_result(f"{self.name} reports an error: {error}")) from None
        except Exception as error:  # the result does not conform to the protocol
            raise ToolFailure(
                f"The answer of {self.name} does not follow the protocol ({type(error).__name__})."
            ) from None
        structured = result.structured_content
        text = _visible_result(
            "\n".join(map(_block_text, result.content))
            or ("" if structured is None else json.dumps(structured, ensure_ascii=False))
        )
        if result.is_error:
            raise ToolFailure(text or f"{tool} failed without a message.")
        return text or "(nothing)"


class Servers:
    """All configured servers, for as long as the process lives."""

    def __init__(
        self,
        configured: Mapping[str, McpServerConfig],
        *,
        cwd: Path,
        apart: Path,
        timeout_s: float,
        say: Callable[[str], None],
        waits: bool = False,
    ) -> None:
        """Set up the servers; `say` tells the user something, `timeout_s` is that of a call.

        They start in `apart`, unless their settings say that they start in the project, `cwd`.
        With `waits` they are started only when the model asks for them: a short-lived process
        mostly needs none.
        """
        room = ToolRoom()
        self.all = [McpServer(name, each, say, room) for name, each in configured.items()]
        self._cwd, self._apart = cwd, apart
        self._timeout_s = timeout_s
        self._waits = waits
        if self.all and find_spec("mcp") is None:
            self.all = []
            say(
                "The servers in [mcp.servers] need the package mcp, which is not installed. "
                f"To install it: `{install_command('mcp')}`."
            )

    def tools(self, permissions: Permissions) -> list[Tool]:
        """Return the tools available by now; without `waits`, the first call starts the servers."""
        if not self._waits:
            self.start()
        ready: list[Tool] = [
            ServerTool(server, tool, permissions, self._timeout_s)
            for server in self.all
            for tool in server.tools
        ]
        others = [server for server in self.all if not server.settled.is_set()]
        return [*ready, WaitForServers(self, others)] if others else ready

    def start(self) -> None:
        """Start the servers that are not started yet, in the background."""
        for server in self.all:
            server.start(self._cwd, self._apart)

    async def aclose(self) -> None:
        """Stop all servers."""
        await asyncio.gather(*(server.aclose() for server in self.all))


class ServerTool:
    """A server's tool, named `server__tool`; each call needs approval as a command does."""

    effect: Effect = "command"

    Params = dict[str, Any]
    """Validated by the server."""

    def __init__(
        self, server: McpServer, tool: "types.Tool", permissions: Permissions, timeout_s: float
    ) -> None:
        self.name = f"{server.name}__{tool.name}"
        text = clip_middle(visible(tool.description or tool.name), _DESCRIPTION_CHARS)
        self.description = f"From the server {server.name}: {text}"
        self.parameters: dict[str, Json] = {"properties": {}, **_visible_schema(tool.input_schema)}
        self._server = server
        self._tool = tool.name
        self._permissions = permissions
        self._timeout_s = timeout_s

    def title(self, params: dict[str, Any]) -> str:
        """Return the arguments on one line."""
        return one_line(json.dumps(params, ensure_ascii=False), 160)

    async def run(self, params: dict[str, Any]) -> ToolOutput:
        """Ask for approval, then call the tool."""
        shown = json.dumps(params, ensure_ascii=False, indent=2)
        await self._permissions.call(self.name, shown)
        text = await self._server.call(self._tool, params, self._timeout_s)
        return ToolOutput(text=text, display=ends_of(visible(text), 2_000))


class WaitForServers(AgentTool):
    """Let the model wait for servers whose tools it needs."""

    name = "wait_for_servers"

    class Params(msgspec.Struct, frozen=True):
        """No arguments."""

    def __init__(self, servers: Servers, starting: Sequence[McpServer]) -> None:
        names = ", ".join(server.name for server in starting)
        self.description = (
            f"MCP servers with more tools are starting: {names}. If the task needs one of them, "
            "call this: it waits, and names their tools. Otherwise, continue without."
        )
        self._servers = servers
        self._starting = starting

    def title(self, _: Params) -> str:
        """Return the servers that it waits for."""
        return ", ".join(server.name for server in self._starting)

    async def run(self, params: Params) -> ToolOutput:
        """Wait until each server is ready or has failed, at most half a minute."""
        self._servers.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                for server in self._starting:
                    await server.settled.wait()
        lines = []
        for server in self._starting:
            names = ", ".join(f"{server.name}__{tool.name}" for tool in server.tools)
            lines.append(f"{server.name}: {server.state}" + (f": {names}" if names else ""))
        return ToolOutput(text="\n".join(lines), display="\n".join(lines))


@asynccontextmanager
async def _filtered(read: Any, refused: list[str]) -> AsyncIterator[Any]:
    """Filter the messages read from a server before the mcp package parses them.

    Drops malformed tools from tool lists, since the package would reject the whole list for one,
    and all but the first parts of oversized results.
    """
    import anyio

    forward, filtered = anyio.create_memory_object_stream[Any](0)

    async def pass_on() -> None:
        async with forward:
            async for each in read:
                result = getattr(getattr(each, "message", None), "result", None)
                if isinstance(result, dict) and isinstance(result.get("tools"), list):
                    result["tools"] = _valid_tools(result["tools"], refused)
                parts = result.get("content") if isinstance(result, dict) else None
                if isinstance(parts, list) and (left := len(parts) - _MOST_PARTS) > 0:
                    more = {"type": "text", "text": f"[{left:,} more parts left out]"}
                    parts[_MOST_PARTS:] = [more]
                await forward.send(each)

    task = asyncio.create_task(pass_on())
    try:
        yield filtered
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        filtered.close()


def _valid_tools(tools: list[Any], refused: list[str]) -> list[Any]:
    """Return the tools with a name and an object schema, whose type may be missing."""
    from mcp_types.methods import parse_server_result
    from mcp_types.version import LATEST_HANDSHAKE_VERSION

    valid = []
    for each in tools:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str):
            refused.append("one without a name")
            continue
        schema = each.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            refused.append(f"{one_line(name, 60)!r} (its schema does not describe an object)")
            continue
        if schema.get("properties") == []:  # some servers write an empty list if there are none
            schema = {**schema, "properties": {}}
        tool = {**each, "inputSchema": {**schema, "type": "object"}}
        # Validate as strictly as the session will.
        with suppress(ValueError):
            parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [tool]})
            if isinstance(schema.get("properties", {}), dict):
                valid.append(tool)
                continue
        refused.append(f"{one_line(name, 60)!r} (it does not follow the protocol)")
    return valid


async def _run_until_ended(ended: asyncio.Future[Any], work: Coroutine[Any, Any, None]) -> None:
    """Run the work; raises ConnectionError if the server exits before it is done."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ConnectionError("it exited before it was ready")
    finally:
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
    if isinstance(done[0], Exception):
        raise done[0]


def _schema_fault(tool: "types.Tool") -> str:
    from jsonschema.validators import validator_for

    try:
        validator_for(tool.input_schema).check_schema(tool.input_schema)
    except Exception:  # a malformed schema, such as one with a number as $schema, can raise any
        return _NO_SCHEMA
    return ""


def _visible_schema(schema: Any) -> Any:
    """Make hidden characters visible in a schema's descriptions, but not in values and names."""
    if isinstance(schema, list):
        return [_visible_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: visible(each) if name in _PROSE and isinstance(each, str) else _visible_schema(each)
        for name, each in schema.items()
    }


def _reason(error: BaseException) -> str:
    """Summarize an error in a few words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__name__ == "ValidationError":
        return "its description of itself does not follow the protocol"
    if isinstance(error, TimeoutError):
        return f"it did not answer within {_START_S:g} s, and was stopped"
    if isinstance(error, FileNotFoundError):
        return f"there is no command {one_line(str(error.filename), 100)!r}"
    # A program that fails to start is described by the system's message, without its file.
    message = str(error) if isinstance(error, OSError) else in_the_systems_words(error)
    return one_line(redact(message), 200).rstrip(".") or type(error).__name__


def _visible_result(text: str) -> str:
    return ends_of(visible(plain(text)), _RESULT_CHARS)


def _block_text(block: "types.ContentBlock") -> str:
    """Return a part of a result as text; a part that is not text is only named."""
    match block.type:
        case "text":
            return block.text
        case "resource":
            text = getattr(block.resource, "text", None)
            return f"{block.resource.uri}:\n{text}" if text else f"[{block.resource.uri}]"
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case kind:
            return f"[{kind}, {block.mime_type}, {len(block.data):,} characters: not shown]"


def _roots(project: Path) -> "ListRootsFnT":
    """Return what answers a server's question about the folder that is worked in."""

    async def answer(context: "ClientRequestContext") -> "types.ListRootsResult":
        from mcp_types import ListRootsResult, Root

        return ListRootsResult(roots=[Root.model_validate({"uri": project.as_uri()})])

    return answer


# --- transports ---------------------------------------------------------------------


Transport = tuple[Any, Any, asyncio.Future[str]]
"""What to read from, what to write to, and a future with the reason when reading ends."""


def _transport(
    settings: McpServerConfig, cwd: Path, stderr: bytearray
) -> AbstractAsyncContextManager[Transport]:
    if settings.url:
        return _over_http(settings.url, _expanded(settings.headers, is_sent=True))
    environ = child_environment() | _expanded(settings.env)
    return _over_stdio([settings.command, *settings.args], environ, cwd, stderr)


def _expanded(values: Mapping[str, str], *, is_sent: bool = False) -> dict[str, str]:
    """Replace `${NAME}` with the environment variable's value, which is redacted from then on.

    With `is_sent`, the values are HTTP headers; raises ValueError for one that can't be sent.
    """

    def checked(value: str, where: str) -> str:
        if is_sent and not value.strip().isprintable():
            raise ValueError(f"{where} has {UNSENDABLE}")
        return value.strip() if is_sent else value

    def variable(found: re.Match[str]) -> str:
        value = environment().get(found[1])
        if not value:
            raise ValueError(f"{found[1]} is not set in the environment")
        know({found[1]: value})
        return checked(value, f"{found[1]} in the environment")

    return {
        name: checked(_VARIABLE.sub(variable, value), f"the header {name}")
        for name, value in values.items()
    }


@asynccontextmanager
async def _over_http(url: str, headers: dict[str, str]) -> AsyncIterator[Transport]:
    from httpx2 import AsyncByteStream, AsyncClient, Response, Timeout
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(AsyncByteStream):
        """An answer in one piece; the package limits only those that are streamed."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LINE_BYTES
            async for piece in self._stream:
                if (left := left - len(piece)) < 0:
                    raise OSError(_TOO_LONG)
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def check(response: Response) -> None:
        # The package would only report that there was an error.
        if response.status_code == 401:
            raise PermissionError(_WANTS_A_KEY)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise OSError("it sent a compressed answer, which was not asked for")
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = Bounded(response.stream)

    # Each request sets its own timeout for the answer: a tool may work for minutes.
    patience, hooks = Timeout(_CONNECT_S, read=None), {"response": [check]}
    sent = {"Accept-Encoding": "identity", **headers}
    async with (
        AsyncClient(headers=sent, timeout=patience, event_hooks=hooks) as client,
        streamable_http_client(url, http_client=client) as (read, write),
    ):
        yield read, write, asyncio.get_running_loop().create_future()


@asynccontextmanager
async def _over_stdio(
    command: Sequence[str], environ: Mapping[str, str], cwd: Path, stderr: bytearray
) -> AsyncIterator[Transport]:
    """Run a server as a process group of its own, all of which is terminated on exit.

    The package's own transport waits seconds if a server does not exit, and reads endless lines.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environ,
        cwd=cwd,
        start_new_session=True,
        limit=LINE_BYTES,
    )
    assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - they are pipes
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process.stdout, incoming))
    ended = asyncio.create_task(_wait_for_end(process, reading))
    tasks = [
        reading,
        ended,
        asyncio.create_task(_write(process.stdin, outgoing)),
        asyncio.create_task(_keep_tail(process.stderr, stderr)),
    ]
    try:
        yield read, write, ended
    finally:
        for stream in (incoming, read, write, outgoing):
            stream.close()
        if await settled(_close(process, tasks)):
            raise asyncio.CancelledError


async def _close(process: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[Any]]) -> None:
    if process.stdin:
        process.stdin.close()
    await end_group(process.pid)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # A process that left the group may hold the pipes open.
    getattr(process, "_transport").close()  # noqa: B009 - nothing public closes them
    await asyncio.sleep(0)


async def _read(stdout: asyncio.StreamReader, incoming: Any) -> str:
    """Forward the server's messages; return why reading ended."""
    from anyio import BrokenResourceError, ClosedResourceError
    from mcp.shared.message import SessionMessage

    with suppress(BrokenResourceError, ClosedResourceError, ConnectionError):
        async with incoming:
            while True:
                try:
                    line = await stdout.readline()
                except ValueError:
                    return f"{_TOO_LONG}, and was stopped"
                if not line:
                    break
                if (message := read_message(line)) is not None:
                    await incoming.send(SessionMessage(message))
    return _HAS_ENDED


def read_message(line: bytes) -> Any:
    """Parse a protocol message; None for anything else, since programs print all sorts of lines."""
    from mcp_types import jsonrpc_message_adapter

    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    # The package rejects lone surrogates, left where a program cut a text, and deep nesting;
    # without this fallback the caller would wait for the answer until its timeout.
    with suppress(ValueError, RecursionError):
        plain_text = clean(json.dumps(json.loads(line), ensure_ascii=False))
        return jsonrpc_message_adapter.validate_python(json.loads(plain_text), by_name=False)
    return None


async def _wait_for_end(process: asyncio.subprocess.Process, reading: asyncio.Task[str]) -> str:
    """Wait until the process exits or closes its output; its children may hold the pipes open."""
    while process.returncode is None and not reading.done():
        await asyncio.wait({reading}, timeout=_POLL_S)
    return reading.result() if reading.done() else _HAS_ENDED


async def _write(stdin: asyncio.StreamWriter, outgoing: Any) -> None:
    with suppress(ConnectionError):
        async for each in outgoing:
            line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(f"{line}\n".encode())
            await stdin.drain()


async def _keep_tail(stderr: asyncio.StreamReader, tail: bytearray) -> None:
    while data := await stderr.read(4096):
        tail += data
        del tail[:-_STDERR_BYTES]
