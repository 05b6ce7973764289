"""`ragmem acp`: serve the agent to an editor over the Agent Client Protocol."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec
from acp import (
    PROTOCOL_VERSION,
    RequestError,
    helpers,
    interfaces,
    run_agent,
    schema,
    stdio_streams,
)

from ragmem import __version__, events
from ragmem.agent import Agent, Options
from ragmem.app import App
from ragmem.cli.ask import VisibleFlow
from ragmem.cli.mcp import TOO_LONG, rpc_error
from ragmem.cli.output import join_prompt
from ragmem.config import Config, Paths, PermissionMode
from ragmem.errors import AmbiguousSession, RagmemError, SessionNotFound, UsageError
from ragmem.files import is_a_path
from ragmem.ids import new_id, short_id
from ragmem.listings import hits_text
from ragmem.memory.facts import FactHit
from ragmem.memory.memories import facts_of
from ragmem.memory.projects import real_folder
from ragmem.memory.turns import Said, blocks_of, field_of, result_text
from ragmem.messages import Json, ToolUse, fields_in
from ragmem.own_tools import OWN_TOOLS
from ragmem.records import Session, ToolCall, Turn, utc_now
from ragmem.text import clip_middle, fenced, one_line, reveal, visible
from ragmem.tools.base import Decision, Proposal, ToolFailure
from ragmem.tools.planning import PresentPlan
from ragmem.tools.skills import SkillSet
from ragmem.tools.workspace import Workspace

_MAX_RESULT_CHARS = 10_000
"""Maximum length of a tool result in the editor."""
_MAX_DIFF_BYTES = 1_000_000
_MAX_MESSAGE_BYTES = 50_000_000
"""Maximum size of a protocol message."""
_MAX_LISTED = 50
_MAX_HITS = 10
_WIDTH = 100
_INTERNAL_ERROR, _INVALID_PARAMS = -32603, -32602
_COMMANDS = {
    "help": "show the commands of this session",
    "memory": "show memories of this project, or search them: /memory [text]",
    "search": "search earlier sessions: /search text",
}
"""ragmem's slash commands in an editor, which run without a model."""
_MODES = {
    "default": ("Ask", "Asks before edits and commands"),
    "acceptEdits": ("Edit", "Makes edits without asking; asks before commands"),
    "plan": ("Plan", "Only reads, and proposes a plan"),
    "bypassPermissions": ("Everything", "Never asks"),
}


async def serve(config: Config, paths: Paths, options: Options) -> None:
    """Serve the editor on stdin and stdout until it closes them."""
    logging.getLogger().addHandler(logging.NullHandler())  # stderr belongs to the editor
    agent = EditorAgent(config, paths, options)
    try:
        # The type requires optional methods too, which the library reports as unsupported.
        await run_agent(cast(Any, agent), _JsonRpcStream(*await stdio_streams(_MAX_MESSAGE_BYTES)))
    finally:
        await agent.aclose()


class _JsonRpcStream:
    """Reads and writes JSON-RPC messages, one per line; invalid ones are answered with an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> Json | None:
        """Return the next valid message; None at the end of the stream."""
        while True:
            line = TOO_LONG
            with suppress(ValueError, RecursionError):
                if not (line := await self._reader.readline()):
                    return None
                if _is_message(message := json.loads(line)):
                    return message
            if line.strip():
                await self.send(rpc_error(line))

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """Do nothing: both streams stay open until the process ends."""


def _is_message(message: Json) -> bool:
    """Return whether the fields by which the library dispatches a message have valid types."""
    match message:
        case {"method": method} if not isinstance(method, str):
            return False
        case {"error": error} if not isinstance(error, dict | None):
            return False
        case {"method": _} | {"id": _}:
            return isinstance(message.get("id"), str | int | None)
    return False


class EditorAgent:
    """The agent side of the protocol: holds the open sessions by id, and an App per folder."""

    def __init__(self, config: Config, paths: Paths, options: Options) -> None:
        self._config, self._paths, self._options = config, paths, options
        self._apps: dict[Path, App] = {}
        self._opening = asyncio.Lock()
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: interfaces.Client

    def on_connect(self, conn: interfaces.Client) -> None:
        """Store the client, through which the editor is called."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        """Negotiate the protocol version and return the agent's capabilities."""
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
        """Accept: the providers' keys come from the environment."""

    async def new_session(self, cwd: str, **given: Any) -> schema.NewSessionResponse:
        """Start a session, which is stored with its first prompt."""
        try:
            opened = await self._app(cwd)
            session_open = await self._open_agent(opened, await opened.start_session(), given)
        except RagmemError as error:
            raise _rpc_error(error) from None
        return schema.NewSessionResponse(
            session_id=session_open.session.session_id, modes=session_open.modes()
        )

    async def load_session(
        self, cwd: str, session_id: str, **given: Any
    ) -> schema.LoadSessionResponse:
        """Resume a stored session of this folder or its project, and replay its turns."""
        try:
            opened = await self._app(cwd)
            found = await opened.resume_session(session_id)
            here = await opened.start_session()
            if found.cwd != here.cwd and found.project_id != here.project_id:
                raise UsageError(
                    f"Session {short_id(found.session_id)} belongs to {visible(found.cwd)}.",
                    hint="Open it in that folder.",
                )
            session_open = await self._open_agent(opened, found, given)
            async for turn in opened.memory.turns_on(found.session_id):
                await session_open.replay(turn)
        except RagmemError as error:
            raise _rpc_error(error) from None
        return schema.LoadSessionResponse(modes=session_open.modes())

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> schema.ListSessionsResponse:
        """List a folder's newest sessions."""
        try:
            found = await (await self._app(cwd or str(Path.cwd()))).sessions_here(_MAX_LISTED)
        except RagmemError as error:
            raise _rpc_error(error) from None
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=each.session_id,
                    cwd=each.cwd,
                    title=one_line(each.called, 120),
                    updated_at=each.last_activity_at.isoformat(),
                )
                for each in found
            ]
        )

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        """Change the permission mode, also during a turn."""
        session_open = self._open_session(session_id)
        if mode_id not in session_open.mode_ids:
            raise RequestError.invalid_params({"modeId": f"Unknown mode: {mode_id!r}."})
        session_open.agent.use_mode(cast(PermissionMode, mode_id))

    async def prompt(
        self, session_id: str, prompt: Sequence[Any], **_: Any
    ) -> schema.PromptResponse:
        """Run a command or a turn, reporting its progress to the editor."""
        session_open = self._open_session(session_id)
        try:
            text = _prompt_text(prompt, session_open.cwd)
            async with session_open.turn:
                if await session_open.run_command(text):
                    return schema.PromptResponse(stop_reason="end_turn")
                finished = await session_open.answer(text)
        except RagmemError as error:
            raise _rpc_error(error) from None
        match finished.subtype:
            case "success":
                return schema.PromptResponse(
                    stop_reason="max_tokens" if finished.is_cut else "end_turn"
                )
            case "interrupted":
                return schema.PromptResponse(stop_reason="cancelled")
            case "error_max_turns":
                return schema.PromptResponse(stop_reason="max_turn_requests")
        raise _rpc_error(RagmemError(finished.error, hint=finished.hint))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Interrupt the running turn; its output so far is stored."""
        if session_open := self._sessions.get(session_id):
            session_open.agent.interrupt()

    async def aclose(self) -> None:
        """Cancel pending notifications and close the Apps, leaving work to the background."""
        for task in self._tasks:
            task.cancel()
        for opened in self._apps.values():
            await opened.leave_background(model=self._options.model)
            await opened.__aexit__(None, None, None)

    def _open_session(self, session_id: str) -> "EditorSession":
        if session_id not in self._sessions:
            raise RequestError.invalid_params({"sessionId": f"No open session {session_id!r}."})
        return self._sessions[session_id]

    async def _app(self, cwd: str) -> App:
        folder = _folder(cwd)
        async with self._opening:
            if folder not in self._apps:
                opened = App(self._config, self._paths, cwd=folder)
                self._apps[folder] = await opened.__aenter__()
                opened.start_background(model=self._options.model)
        return self._apps[folder]

    async def _open_agent(
        self, opened: App, session: Session, given: dict[str, Any]
    ) -> "EditorSession":
        folders = tuple(Path(each) for each in given.get("additional_directories") or ())
        options = msgspec.structs.replace(self._options, add_dirs=folders)
        session_open = EditorSession(self._client, opened, session, await opened.skill_set(session))
        session_cwd = real_folder(session.cwd, opened.cwd)
        session_open.workspace = Workspace(opened.cwd, folders, session_cwd=session_cwd)
        session_open.agent = await opened.agent(session, options, session_open.approve)
        if before := self._sessions.pop(session.session_id, None):
            await before.agent.aclose()
        self._sessions[session.session_id] = session_open
        session_open.agent.prepare()
        # In a task, because the editor learns the session's id only from our response.
        task = asyncio.create_task(session_open.tell_commands())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session_open


class EditorSession:
    """A session that is open in the editor: sends the agent's events, and asks for approval."""

    agent: Agent
    workspace: "Workspace"

    def __init__(
        self, client: interfaces.Client, app: App, session: Session, skill_set: SkillSet
    ) -> None:
        self.cwd = app.cwd
        self._app = app
        self.session = session
        self._client = client
        self._skill_set = skill_set
        self._arguments: dict[str, dict[str, Json]] = {}
        """The arguments of this turn's tool calls, by tool call id."""
        self._with_diff = set[str]()
        """Ids of the tool calls whose diff the editor shows."""
        self.turn = asyncio.Lock()
        """Held during a turn, so that a second prompt waits for its end."""

    @property
    def mode_ids(self) -> tuple[str, ...]:
        """The modes that the editor may select: `bypassPermissions` only if it is set already."""
        current = self.agent.permission_mode
        return tuple(each for each in _MODES if each in (current, "default", "acceptEdits", "plan"))

    def modes(self) -> schema.SessionModeState:
        """Return the current and the available permission modes."""
        return schema.SessionModeState(
            current_mode_id=self.agent.permission_mode,
            available_modes=[
                schema.SessionMode(id=each, name=_MODES[each][0], description=_MODES[each][1])
                for each in self.mode_ids
            ],
        )

    async def tell(self, update: Any) -> None:
        """Send an update of the session to the editor."""
        await self._client.session_update(session_id=self.session.session_id, update=update)

    async def tell_commands(self) -> None:
        """Send the available commands, and a note if the project has skills to be approved."""
        given = schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint="arguments"))
        commands = [
            schema.AvailableCommand(
                name=name, description=text, input=None if name == "help" else given
            )
            for name, text in self._commands().items()
        ]
        await self.tell(helpers.update_available_commands(commands))
        if hint := self._skill_set.hint():
            await self._note(hint)

    def _commands(self) -> dict[str, str]:
        """Return all commands' descriptions: ragmem's, which take precedence, then the user's."""
        own = {name: each.description for name, each in self._skill_set.commands.items()}
        return {**_COMMANDS, **{name: text for name, text in own.items() if name not in _COMMANDS}}

    async def run_command(self, text: str) -> bool:
        """Run one of ragmem's own commands; return false if the text is none.

        Raises RagmemError if the command fails.
        """
        name, *rest = text[1:].split(maxsplit=1) or [""]
        if not text.startswith("/") or name not in _COMMANDS:
            return False
        words = "".join(rest).strip()
        match name:
            case "help":
                lines = [f"/{each}  {about}" for each, about in self._commands().items()]
            case "memory":
                lines = await self._memory_lines(words)
            case _:
                lines = await self._search_lines(words)
        await self._say(fenced(visible("\n".join(lines))))
        return True

    async def _memory_lines(self, words: str) -> list[str]:
        facts, project_id = facts_of(self._app.memory), self.session.project_id
        if words:
            found = await facts.search(words, project_id=project_id, limit=_MAX_HITS)
        else:
            recent = await facts.recent(project_id=project_id, limit=_MAX_LISTED)
            found = [FactHit(memory=memory, score=0) for memory in recent]
        if not found:
            return ["No matching memories." if words else "No memories in this project yet."]
        return [hits_text(found, utc_now(), width=_WIDTH)]

    async def _search_lines(self, words: str) -> list[str]:
        if not words:
            raise UsageError("Nothing to search for.", hint="Usage: /search TEXT")
        hits = await self._app.search(words, session=self.session, max_results=_MAX_HITS)
        return [hits_text(hits, utc_now(), width=_WIDTH) if hits else "No results."]

    async def answer(self, text: str) -> events.TurnFinished:
        """Run a turn, sending its events to the editor."""
        flow, streamed = VisibleFlow(), ""
        self._arguments.clear()
        self._with_diff.clear()
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
                # The answer was not streamed, for example because memory gave it.
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
        await self.tell(helpers.update_agent_message_text(text))

    async def _note(self, text: str) -> None:
        """Show a note of ragmem as a quotation, to set it apart from the model's answer."""
        quoted = re.sub(r"[\\<]", r"\\\g<0>", visible(text).strip()).replace("\n", "\n> ")
        await self._say(f"\n\n> ragmem: {quoted}\n\n")  # escaped, so that no HTML starts in it

    async def _show(self, event: events.Event) -> None:
        match event:
            case events.ReasoningDelta(text=text):
                await self.tell(helpers.update_agent_thought_text(visible(text)))
            case events.Notice(text=text):
                await self._note(text)
            case events.MemoryWritten():
                await self._note(event.line)
            case events.MessageFinished(tool_uses=uses):
                for tool_call_id, _, written in uses:
                    self._arguments[tool_call_id] = fields_in(written)
            case events.ToolStarted():
                arguments = self._arguments.get(event.tool_call_id, {})
                call = self._call_fields(event.name, event.title, arguments)
                if call["content"]:
                    self._with_diff.add(event.tool_call_id)
                call["status"] = "pending"
                await self.tell(helpers.start_tool_call(event.tool_call_id, **call))
            case events.ToolProgress(tail=tail):
                await self._update(event.tool_call_id, "in_progress", visible(tail))
            case events.ToolFinished():
                shows_diff = event.tool_call_id in self._with_diff and event.success
                shown = "" if shows_diff else clip_middle(visible(event.text), _MAX_RESULT_CHARS)
                status: schema.ToolCallStatus = "failed" if event.failed else "completed"
                await self._update(event.tool_call_id, status, shown)
                if event.name == PresentPlan.name and event.success:  # Plan mode has ended.
                    await self.tell(helpers.update_current_mode(self.agent.permission_mode))

    async def _update(self, tool_call_id: str, status: schema.ToolCallStatus, shown: str) -> None:
        content = [_fenced_block(shown)] if shown else None
        await self.tell(helpers.update_tool_call(tool_call_id, status=status, content=content))

    def _call_fields(
        self, name: str, title: str, arguments: dict[str, Json], recorded: str | None = None
    ) -> dict[str, Any]:
        """Return the fields by which the protocol describes a tool call.

        `recorded` is the path of a call that was made before, as it was given or is in the result.
        """
        file, path = None, arguments.get("path")
        if recorded:
            path = self.workspace.recorded_path(os.path.expanduser(recorded))
        with suppress(ToolFailure):
            file = self.workspace.resolve(path).real if isinstance(path, str) else None
        diff = _edit_texts(name, arguments, file) if file else None
        return {
            "title": visible(title),
            "kind": OWN_TOOLS[name].kind if name in OWN_TOOLS else "other",
            "locations": [schema.ToolCallLocation(path=str(file))] if file else [],
            "raw_input": arguments,
            "content": [helpers.tool_diff_content(str(file), *diff)] if diff else None,
        }

    async def approve(self, proposal: Proposal) -> Decision:
        """Ask the user in the editor whether a tool call may run."""
        use, title = proposal.use, proposal.title
        if use and title == use.name:
            title = self.agent.title(use)  # the proposal's title is only the tool's name
        call = self._call_fields(proposal.tool_name, title, fields_in(use.arguments) if use else {})
        options = [schema.PermissionOption(option_id="yes", name="Allow", kind="allow_once")]
        if proposal.always:
            always = f"Always: {visible(proposal.always)}"
            options.append(
                schema.PermissionOption(option_id="always", name=always, kind="allow_always")
            )
        options.append(schema.PermissionOption(option_id="no", name="Reject", kind="reject_once"))
        asked_for = schema.ToolCallUpdate(
            **{
                **call,
                "title": reveal(title),
                "tool_call_id": use.id if use else new_id(),
                "status": "pending",
                "content": self._proposal_content(proposal, call),
            }
        )
        try:
            answer = await self._client.request_permission(
                session_id=self.session.session_id, tool_call=asked_for, options=options
            )
        except (RequestError, ValueError) as error:
            why = one_line(str(error), 200)
            return Decision(False, reason=f"the editor could not show the question: {why}")
        if not isinstance(answer.outcome, schema.AllowedOutcome):
            self.agent.interrupt()
            return Decision(False, reason="the user stopped the turn")
        chosen = answer.outcome.option_id
        if chosen not in ("yes", "always"):
            return Decision(False, reason="the user refused")
        return Decision(True, remember=chosen == "always" and bool(proposal.always))

    def _proposal_content(self, proposal: Proposal, call: dict[str, Any]) -> list[Any]:
        """Return the proposal's content: the diff alone if it hides nothing, else the body too."""
        body, content = reveal(proposal.body), list(call["content"] or ())
        if not content or body != proposal.body or call["raw_input"].get("replace_all"):
            content.append(_fenced_block(body, "diff" if proposal.kind == "diff" else ""))
        return content + [_fenced_block(f"Warning: {reveal(each)}") for each in proposal.warnings]

    async def replay(self, turn: Turn) -> None:
        """Send a stored turn to the editor, in its original order."""
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

    async def _replay_call(self, call: ToolCall) -> None:
        use = ToolUse(call.tool_call_id, call.tool_name, call.arguments)
        if use.name in self.agent.tool_names:
            title = self.agent.title(use)
        else:  # a tool of an MCP server or of another agent
            title = one_line(f"{use.name} {use.arguments}", 200)
        path = field_of(call.result, "path") if use.name in OWN_TOOLS else None
        path = path or field_of(use.arguments, "path")
        told = self._call_fields(use.name, title, fields_in(use.arguments), path)
        if told["content"] is None or use.name == "write_file":  # the old content is unknown
            told["content"] = [
                _fenced_block(clip_middle(visible(result_text(call)), _MAX_RESULT_CHARS))
            ]
        told["status"] = "completed" if call.success else "failed"
        await self.tell(helpers.start_tool_call(call.tool_call_id, **told))


def _fenced_block(text: str, language: str = "") -> Any:
    """Return a content block with a fenced text, so that the editor does not render Markdown."""
    return helpers.tool_content(helpers.text_block(fenced(text, language)))


def _edit_texts(name: str, arguments: dict[str, Json], file: Path) -> tuple[str, str | None] | None:
    """Return the new and the old text of an edit; None if it can't be shown whole."""
    match name, arguments:
        case "edit_file", {"old": str(old), "new": str(new)}:
            return new, old
        case "create_file", {"content": str(new)}:
            return new, None
        case "write_file", {"content": str(new)}:
            with suppress(OSError, ValueError):
                if not file.exists():
                    return new, None
                if file.is_file() and file.stat().st_size <= _MAX_DIFF_BYTES:
                    return new, file.read_text("utf-8")
    return None


def _prompt_text(blocks: Sequence[Any], cwd: Path) -> str:
    """Convert a prompt to text: linked files become `@"path"`; embedded resources follow in a block
    like piped input, because the user did not type them.

    Raises UsageError if the prompt is empty or contains unsupported content.
    """
    said, quoted = "", list[str]()
    for block in blocks:
        match block.type:
            case "text":
                said += block.text
            case "resource_link":
                blank = "" if said[-1:].isspace() else " "
                said += f"{blank}{_file_mention(block.uri, cwd)} "
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


def _file_mention(uri: str, cwd: Path) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    shown = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    return f'@"{shown}"'  # quoted, so that following text is no part of the path


def _folder(cwd: str) -> Path:
    if not os.path.isabs(cwd) or not is_a_path(cwd) or not os.path.isdir(cwd):
        raise UsageError(f"{visible(cwd)} is not a folder.")
    return Path(cwd).resolve()


def _rpc_error(error: RagmemError) -> Exception:
    is_client_error = isinstance(error, UsageError | SessionNotFound | AmbiguousSession)
    code = _INVALID_PARAMS if is_client_error else _INTERNAL_ERROR
    hint = error.hint.replace("(-m)", "(ragmem acp -m)")
    return RequestError(code, visible(f"{error}\n{hint}".strip()))
