"""`ragmem acp`: the agent in an editor that speaks the Agent Client Protocol."""

import asyncio
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import msgspec
import typer

from ragmem import events
from ragmem.cli import command as cli
from ragmem.cli.command import commands
from ragmem.cli.mcp import check_installed
from ragmem.cli.output import join_prompt
from ragmem.config import Config, Paths
from ragmem.errors import EXIT_DONE, AmbiguousSession, RagmemError, SessionNotFound, UsageError
from ragmem.files import is_a_path
from ragmem.ids import short_id
from ragmem.memory.turns import Said, blocks_of, result_text
from ragmem.messages import Json, ToolUse, named_arguments
from ragmem.own_tools import OWN_TOOLS
from ragmem.records import ToolCall, utc_now
from ragmem.text import clip_middle, fenced, one_line, reveal, visible

if TYPE_CHECKING:
    from acp import interfaces, schema
    from acp.schema import ToolCallStatus

    from ragmem.agent import Agent, Options
    from ragmem.app import App
    from ragmem.config import PermissionMode
    from ragmem.records import Session, Turn
    from ragmem.tools.base import Decision, Proposal
    from ragmem.tools.skills import SkillSet
    from ragmem.tools.workspace import Workspace

app = commands()

_SHOWN_CHARS = 10_000
"""Of a tool's answer."""
_DIFF_BYTES = 1_000_000
_MOST_BYTES = 50_000_000
"""Of a message."""
_LISTED = 50
_FOUND = 10
_WIDTH = 100
_FAILED, _INVALID, _NO_MESSAGE, _NO_JSON = -32603, -32602, -32600, -32700
_COMMANDS = {
    "help": "show the commands of this session",
    "memory": "show memories of this project, or search them: /memory [text]",
    "search": "search earlier sessions: /search text",
}
"""Ragmem's own commands that an editor is offered; they ask no model."""
_MODES = {
    "default": ("Ask", "Asks before edits and commands"),
    "acceptEdits": ("Edit", "Makes edits without asking; asks before commands"),
    "plan": ("Plan", "Only reads, and proposes a plan"),
    "bypassPermissions": ("Everything", "Never asks"),
}


@app.command()
def acp(model: cli.Model = None, effort: cli.Effort = None, mode: cli.Mode = None) -> None:
    """Serve an editor over the Agent Client Protocol.

    The editor starts it; docs/agents.md shows what to add to the editor's settings.
    """
    check_installed("acp", "editors")
    modes = [os.fstat(stream.fileno()).st_mode for stream in (sys.stdin, sys.stdout)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        raise UsageError(
            "`ragmem acp` speaks to an editor over pipes; it is not for a terminal.",
            hint="See docs/agents.md for what to add to the editor's settings.",
        )
    config, paths = cli.settings(needs_memory=False)
    chosen = cli.permission_mode(mode, yolo=False, configured=config.ui.permission_mode)

    async def main(_: cli.Interruption) -> int:
        from acp import run_agent, stdio_streams

        from ragmem.agent import Options

        logging.getLogger().addHandler(logging.NullHandler())  # stderr is the editor's
        options = Options(model=model or "", effort=effort, permission_mode=chosen)
        agent = EditorAgent(config, paths, options)
        try:
            # It asks for methods that it then tells editors this agent does not have.
            await run_agent(cast(Any, agent), _Lines(*await stdio_streams(_MOST_BYTES)))
        finally:
            await agent.aclose()
        return EXIT_DONE

    raise typer.Exit(cli.run_async(main))


class _Lines:
    """The editor's messages, a line each: what is none is answered with the protocol's error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> Json | None:
        """Return the next message; None at the end."""
        while True:
            try:
                if not (line := await self._reader.readline()):
                    return None
                message = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                await self._refuse(_NO_JSON, str(error))
                continue
            if _is_message(message):
                return message
            if line.strip():
                await self._refuse(_NO_MESSAGE, "Not a JSON-RPC message.")

    async def _refuse(self, code: int, why: str) -> None:
        error = {"code": code, "message": one_line(why, 200)}
        await self.send({"jsonrpc": "2.0", "id": None, "error": error})

    async def send(self, message: dict[str, Any]) -> None:
        """Write one."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """Leave both streams to the end of the process."""


def _is_message(message: Json) -> bool:
    """Whether the parts by which it is handed on are what they have to be."""
    match message:
        case {"method": method} if not isinstance(method, str):
            return False
        case {"error": error} if not isinstance(error, dict | None):
            return False
        case {"method": _} | {"id": _}:
            return isinstance(message.get("id"), str | int | None)
    return False


class EditorAgent:
    """The agent's side of the protocol: sessions by their ids, an App for each folder."""

    def __init__(self, config: Config, paths: Paths, options: "Options") -> None:
        self._config, self._paths, self._options = config, paths, options
        self._apps: dict[Path, App] = {}
        self._opening = asyncio.Lock()
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: interfaces.Client

    def on_connect(self, conn: "interfaces.Client") -> None:
        """Take the editor's side."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> "schema.InitializeResponse":
        """Say what can be done here."""
        from acp import PROTOCOL_VERSION, schema

        from ragmem import __version__

        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=self._config.memory.enabled,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities()
                ),
            ),
            agent_info=schema.Implementation(name="ragmem", title="ragmem", version=__version__),
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Nobody needs to: keys are the environment's."""

    async def new_session(self, cwd: str, **given: Any) -> "schema.NewSessionResponse":
        """Begin one; it is kept from its first prompt on."""
        from acp.schema import NewSessionResponse

        try:
            opened = await self._app(cwd)
            session_open = await self._open(opened, await opened.start_session(), given)
        except RagmemError as error:
            raise _failure(error) from None
        return NewSessionResponse(
            session_id=session_open.session.session_id, modes=session_open.modes()
        )

    async def load_session(
        self, cwd: str, session_id: str, **given: Any
    ) -> "schema.LoadSessionResponse":
        """Go on with one that the memory has, after telling all that was said and done in it."""
        from acp.schema import LoadSessionResponse

        try:
            opened = await self._app(cwd)
            found = await opened.resume_session(session_id)
            here = await opened.start_session()
            if found.cwd != here.cwd and found.project_id != here.project_id:
                raise UsageError(
                    f"Session {short_id(found.session_id)} belongs to {visible(found.cwd)}.",
                    hint="Open it in that folder.",
                )
            session_open = await self._open(opened, found, given)
            async for turn in opened.memory.turns_on(found.session_id):
                await session_open.replay(turn)
        except RagmemError as error:
            raise _failure(error) from None
        return LoadSessionResponse(modes=session_open.modes())

    async def list_sessions(
        self, cwd: str | None = None, **_: Any
    ) -> "schema.ListSessionsResponse":
        """Name the newest of a folder."""
        from acp.schema import ListSessionsResponse, SessionInfo

        try:
            found = await (await self._app(cwd or str(Path.cwd()))).sessions_here(_LISTED)
        except RagmemError as error:
            raise _failure(error) from None
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=each.session_id,
                    cwd=each.cwd,
                    title=one_line(each.called, 120),
                    updated_at=each.last_activity_at.isoformat(),
                )
                for each in found
            ]
        )

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        """Change who may do what, also in a running turn."""
        from acp import RequestError

        session_open = self._opened(session_id)
        if mode_id not in session_open.mode_ids:
            raise RequestError.invalid_params({"modeId": f"Unknown mode: {mode_id!r}."})
        session_open.agent.use_mode(cast("PermissionMode", mode_id))

    async def prompt(
        self, session_id: str, prompt: Sequence[Any], **_: Any
    ) -> "schema.PromptResponse":
        """Answer, and tell what happens meanwhile."""
        from acp.schema import PromptResponse

        session_open = self._opened(session_id)
        try:
            text = _prompt_text(prompt, session_open.cwd)
            async with session_open.turn:
                if await session_open.run_command(text):
                    return PromptResponse(stop_reason="end_turn")
                finished = await session_open.answer(text)
        except RagmemError as error:
            raise _failure(error) from None
        match finished.subtype:
            case "success":
                return PromptResponse(stop_reason="max_tokens" if finished.is_cut else "end_turn")
            case "interrupted":
                return PromptResponse(stop_reason="cancelled")
            case "error_max_turns":
                return PromptResponse(stop_reason="max_turn_requests")
        raise _failure(RagmemError(finished.error, hint=finished.hint))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the running turn; what came is kept."""
        if session_open := self._sessions.get(session_id):
            session_open.agent.interrupt()

    async def aclose(self) -> None:
        """End what runs, close what was opened."""
        for task in self._tasks:
            task.cancel()
        for opened in self._apps.values():
            await opened.leave_background(model=self._options.model)
            await opened.__aexit__(None, None, None)

    def _opened(self, session_id: str) -> "EditorSession":
        from acp import RequestError

        if session_id not in self._sessions:
            raise RequestError.invalid_params({"sessionId": f"No open session {session_id!r}."})
        return self._sessions[session_id]

    async def _app(self, cwd: str) -> "App":
        from ragmem.app import App

        folder = _folder(cwd)
        async with self._opening:
            if folder not in self._apps:
                opened = App(self._config, self._paths, cwd=folder)
                self._apps[folder] = await opened.__aenter__()
                opened.start_background(model=self._options.model)
        return self._apps[folder]

    async def _open(
        self, opened: "App", session: "Session", given: dict[str, Any]
    ) -> "EditorSession":
        from ragmem.tools.workspace import Workspace

        folders = tuple(Path(each) for each in given.get("additional_directories") or ())
        options = msgspec.structs.replace(self._options, add_dirs=folders)
        session_open = EditorSession(self._client, opened, session, await opened.skill_set(session))
        session_open.workspace = Workspace(opened.cwd, folders)
        session_open.agent = await opened.agent(session, options, session_open.approve)
        if before := self._sessions.pop(session.session_id, None):
            await before.agent.aclose()
        self._sessions[session.session_id] = session_open
        session_open.agent.prepare()
        # The editor knows of the session once it has its answer.
        task = asyncio.create_task(session_open.tell_commands())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session_open


class EditorSession:
    """A session in the editor: tells it what its agent does, and asks it for approval."""

    agent: "Agent"
    workspace: "Workspace"

    def __init__(
        self, client: "interfaces.Client", app: "App", session: "Session", skill_set: "SkillSet"
    ) -> None:
        self.cwd = app.cwd
        self._app = app
        self.session = session
        self._client = client
        self._skill_set = skill_set
        self._arguments: dict[str, dict[str, Json]] = {}
        """Of the calls of this turn, by their ids."""
        self._drawn = set[str]()
        """Those whose change the editor shows."""
        self.turn = asyncio.Lock()
        """Held while one runs: a second prompt waits for its end."""

    @property
    def mode_ids(self) -> tuple[str, ...]:
        """The modes that the editor may choose; that which allows everything only if it holds."""
        current = self.agent.permission_mode
        return tuple(each for each in _MODES if each in (current, "default", "acceptEdits", "plan"))

    def modes(self) -> "schema.SessionModeState":
        """Who may do what, and what else there is to choose."""
        from acp.schema import SessionMode, SessionModeState

        return SessionModeState(
            current_mode_id=self.agent.permission_mode,
            available_modes=[
                SessionMode(id=each, name=_MODES[each][0], description=_MODES[each][1])
                for each in self.mode_ids
            ],
        )

    async def tell(self, update: Any) -> None:
        """Send a part of what happens."""
        await self._client.session_update(session_id=self.session.session_id, update=update)

    async def tell_commands(self) -> None:
        """Name the commands, and what the project brings that waits for a yes."""
        from acp import helpers
        from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

        given = AvailableCommandInput(root=UnstructuredCommandInput(hint="arguments"))
        commands = [
            AvailableCommand(name=name, description=text, input=None if name == "help" else given)
            for name, text in self._commands().items()
        ]
        await self.tell(helpers.update_available_commands(commands))
        if hint := self._skill_set.hint():
            await self._note(hint)

    def _commands(self) -> dict[str, str]:
        """What each command is for: ragmem's, which go before the person's own, then those."""
        own = {name: each.description for name, each in self._skill_set.commands.items()}
        return {**_COMMANDS, **{name: text for name, text in own.items() if name not in _COMMANDS}}

    async def run_command(self, text: str) -> bool:
        """Answer one of ragmem's own commands; false for what is none. RagmemError."""
        name, *rest = text[1:].split(maxsplit=1) or [""]
        if not text.startswith("/") or name not in _COMMANDS:
            return False
        words = "".join(rest).strip()
        match name:
            case "help":
                lines = [f"/{each}  {about}" for each, about in self._commands().items()]
            case "memory":
                lines = await self._remembered(words)
            case _:
                lines = await self._found(words)
        await self._say(fenced(visible("\n".join(lines))))
        return True

    async def _remembered(self, words: str) -> list[str]:
        from ragmem.listings import hits_text
        from ragmem.memory.facts import FactHit
        from ragmem.memory.memories import facts_of

        facts, project_id = facts_of(self._app.memory), self.session.project_id
        if words:
            found = await facts.search(words, project_id=project_id, limit=_FOUND)
        else:
            recent = await facts.recent(project_id=project_id, limit=_LISTED)
            found = [FactHit(memory=memory, score=0) for memory in recent]
        if not found:
            return ["No matching memories." if words else "No memories in this project yet."]
        return [hits_text(found, utc_now(), width=_WIDTH)]

    async def _found(self, words: str) -> list[str]:
        from ragmem.listings import hits_text

        if not words:
            raise UsageError("Nothing to search for.", hint="Usage: /search TEXT")
        hits = await self._app.search(words, session=self.session, max_results=_FOUND)
        return [hits_text(hits, utc_now(), width=_WIDTH) if hits else "No results."]

    async def answer(self, text: str) -> events.TurnFinished:
        """Run a turn to its end."""
        from ragmem.cli.ask import VisibleFlow

        flow, streamed = VisibleFlow(), ""
        self._arguments.clear()
        self._drawn.clear()
        finished: events.TurnFinished | None = None
        async for event in self.agent.ask(self._skill_set.expanded(text)):
            ready = ""
            match event:
                case events.TextDelta(text=more):
                    ready = flow.feed(more)
                case events.MessageFinished() | events.Notice() | events.TurnFinished():
                    ready = flow.flush()
            streamed += ready
            if isinstance(event, events.TurnFinished):
                finished = event
                # An answer that did not come in pieces, such as one that memory gave.
                whole = visible(event.result)
                if whole and not streamed.rstrip().endswith(whole.rstrip()):
                    ready += whole
            if ready:
                await self._say(ready)
            await self._show(event)
        if finished is None:
            raise AssertionError("a turn always ends with TurnFinished")
        return finished

    async def _say(self, text: str) -> None:
        from acp import helpers

        await self.tell(helpers.update_agent_message_text(text))

    async def _note(self, text: str) -> None:
        """Say something that is neither the model's answer nor its thought: it is quoted."""
        quoted = re.sub(r"[\\<]", r"\\\g<0>", visible(text).strip()).replace("\n", "\n> ")
        await self._say(f"\n\n> ragmem: {quoted}\n\n")  # in which no tag and no comment begins

    async def _show(self, event: events.Event) -> None:
        from acp import helpers

        match event:
            case events.ReasoningDelta(text=text):
                await self.tell(helpers.update_agent_thought_text(visible(text)))
            case events.Notice(text=text):
                await self._note(text)
            case events.MemoryWritten():
                await self._note(event.line)
            case events.MessageFinished(tool_uses=uses):
                for tool_call_id, _, written in uses:
                    self._arguments[tool_call_id] = named_arguments(written)
            case events.ToolStarted():
                arguments = self._arguments.get(event.tool_call_id, {})
                call = self._call(event.name, event.title, arguments)
                if call["content"]:
                    self._drawn.add(event.tool_call_id)
                call["status"] = "pending"
                await self.tell(helpers.start_tool_call(event.tool_call_id, **call))
            case events.ToolProgress(tail=tail):
                await self._update(event.tool_call_id, "in_progress", visible(tail))
            case events.ToolFinished():
                is_drawn = event.tool_call_id in self._drawn and event.success
                shown = "" if is_drawn else clip_middle(visible(event.text), _SHOWN_CHARS)
                status: ToolCallStatus = "failed" if event.failed else "completed"
                await self._update(event.tool_call_id, status, shown)

    async def _update(self, tool_call_id: str, status: "ToolCallStatus", shown: str) -> None:
        from acp import helpers

        content = [_block(shown)] if shown else None
        await self.tell(helpers.update_tool_call(tool_call_id, status=status, content=content))

    def _call(self, name: str, title: str, arguments: dict[str, Json]) -> dict[str, Any]:
        """What the editor is told of a call."""
        from acp import helpers
        from acp.schema import ToolCallLocation

        from ragmem.tools.base import ToolFailure

        file, path = None, arguments.get("path")
        with suppress(ToolFailure):
            file = self.workspace.resolve(path).real if isinstance(path, str) else None
        diff = _change(name, arguments, file) if file else None
        return {
            "title": visible(title),
            "kind": OWN_TOOLS[name].kind if name in OWN_TOOLS else "other",
            "locations": [ToolCallLocation(path=str(file))] if file else [],
            "raw_input": arguments,
            "content": [helpers.tool_diff_content(str(file), *diff)] if diff else None,
        }

    async def approve(self, proposal: "Proposal") -> "Decision":
        """Ask the person, in the editor."""
        from acp import RequestError
        from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate

        from ragmem.ids import new_id
        from ragmem.tools.base import Decision

        use, title = proposal.use, proposal.title
        if use and title == use.name:
            title = self.agent.title(use)  # the question names only the tool
        call = self._call(proposal.tool_name, title, named_arguments(use.arguments) if use else {})
        options = [PermissionOption(option_id="yes", name="Allow", kind="allow_once")]
        if proposal.always:
            always = f"Always: {visible(proposal.always)}"
            options.append(PermissionOption(option_id="always", name=always, kind="allow_always"))
        options.append(PermissionOption(option_id="no", name="Reject", kind="reject_once"))
        asked_for = ToolCallUpdate(
            **{
                **call,
                "title": reveal(title),
                "tool_call_id": use.id if use else new_id(),
                "status": "pending",
                "content": self._asked(proposal, call),
            }
        )
        try:
            answer = await self._client.request_permission(
                session_id=self.session.session_id, tool_call=asked_for, options=options
            )
        except (RequestError, ValueError) as error:
            why = one_line(str(error), 200)
            return Decision(False, reason=f"the editor could not show the question: {why}")
        if not isinstance(answer.outcome, AllowedOutcome):
            self.agent.interrupt()
            return Decision(False, reason="the user stopped the turn")
        chosen = answer.outcome.option_id
        if chosen not in ("yes", "always"):
            return Decision(False, reason="the user refused")
        return Decision(True, remember=chosen == "always" and bool(proposal.always))

    def _asked(self, proposal: "Proposal", call: dict[str, Any]) -> list[Any]:
        """All of what is asked for: as a change where that hides nothing, else as it is spelled."""
        body, content = reveal(proposal.body), list(call["content"] or ())
        if not content or body != proposal.body or call["raw_input"].get("replace_all"):
            content.append(_block(body, "diff" if proposal.kind == "diff" else ""))
        return content + [_block(f"Warning: {reveal(each)}") for each in proposal.warnings]

    async def replay(self, turn: "Turn") -> None:
        """Tell an earlier turn in the order in which it went."""
        from acp import helpers

        for block in blocks_of([turn]):
            match block:
                case ToolCall():
                    await self._replay_call(block)
                case Said(by="person"):
                    await self.tell(helpers.update_user_message_text(visible(block.text)))
                case Said(by="thought"):
                    await self.tell(helpers.update_agent_thought_text(visible(block.text)))
                case Said():
                    await self._say(visible(block.text))
        if turn.status in ("interrupted", "failed"):
            ended = "was interrupted" if turn.status == "interrupted" else "failed"
            await self._note(f"This turn {ended}.")

    async def _replay_call(self, call: "ToolCall") -> None:
        from acp import helpers

        use = ToolUse(call.tool_call_id, call.tool_name, call.arguments)
        if use.name in self.agent.tool_names:
            title = self.agent.title(use)
        else:  # a server's, or another agent's
            title = one_line(f"{use.name} {use.arguments}", 200)
        told = self._call(use.name, title, named_arguments(use.arguments))
        if told["content"] is None or use.name == "write_file":  # what it replaced is not known
            told["content"] = [_block(clip_middle(visible(result_text(call)), _SHOWN_CHARS))]
        told["status"] = "completed" if call.success else "failed"
        await self.tell(helpers.start_tool_call(call.tool_call_id, **told))


def _block(text: str, language: str = "") -> Any:
    """A text that the editor shows as it is: nothing in it is Markdown."""
    from acp import helpers

    return helpers.tool_content(helpers.text_block(fenced(text, language)))


def _change(name: str, arguments: dict[str, Json], file: Path) -> tuple[str, str | None] | None:
    """The new text of an edit and what it replaces; None where that can't be shown whole."""
    match name, arguments:
        case "edit_file", {"old": str(old), "new": str(new)}:
            return new, old
        case "create_file", {"content": str(new)}:
            return new, None
        case "write_file", {"content": str(new)}:
            with suppress(OSError, ValueError):
                if not file.exists():
                    return new, None
                if file.is_file() and file.stat().st_size <= _DIFF_BYTES:
                    return new, file.read_text("utf-8")
    return None


def _prompt_text(blocks: Sequence[Any], cwd: Path) -> str:
    """A prompt as text: a file that it links to is named as `@"path"`, and what it quotes follows
    as what is piped does, for the person did not type that.

    UsageError where it says nothing, or holds what is not taken.
    """
    said, quoted = "", list[str]()
    for block in blocks:
        match block.type:
            case "text":
                said += block.text
            case "resource_link":
                blank = "" if said[-1:].isspace() else " "
                said += f"{blank}{_mention(block.uri, cwd)} "
            case "resource":
                held = getattr(block.resource, "text", None)
                uri = one_line(block.resource.uri, 400)
                quoted.append(f"{uri}:\n\n{held}" if held is not None else f"[{uri}]")
            case kind:
                what = "Images are" if kind == "image" else f"Content of type {kind!r} is"
                raise UsageError(
                    f"{what} not supported in a prompt; nothing was sent.",
                    hint="Link to the file instead, and the model can read it if it supports that.",
                )
    text = join_prompt(said.strip(), "\n\n".join(quoted))
    if not text:
        raise UsageError("The prompt is empty; nothing was sent.")
    return text


def _mention(uri: str, cwd: Path) -> str:
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    shown = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    return f'@"{shown}"'  # the quotes end it, whatever follows


def _folder(cwd: str) -> Path:
    if not os.path.isabs(cwd) or not is_a_path(cwd) or not os.path.isdir(cwd):
        raise UsageError(f"{visible(cwd)} is not a folder.")
    return Path(cwd).resolve()


def _failure(error: RagmemError) -> Exception:
    """An error as the protocol tells it, with what to do."""
    from acp import RequestError

    is_theirs = isinstance(error, UsageError | SessionNotFound | AmbiguousSession)
    code = _INVALID if is_theirs else _FAILED
    return RequestError(code, visible(f"{error}\n{error.hint}".strip()))
