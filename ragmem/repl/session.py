"""A chat's session and its agent: opening and replacing them, and what is printed at the start."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group

from ragmem import __version__
from ragmem.config import environment
from ragmem.errors import NoWeights, RagmemError, SessionNotFound, StoreError, UsageError
from ragmem.events import (
    ContextBuilt,
    Event,
    MessageFinished,
    ModelCallStarted,
    Recalled,
    TextDelta,
    TurnFinished,
)
from ragmem.ids import short_id
from ragmem.memory.projects import folder_of_git, has_remote, is_called_like, read_branch
from ragmem.memory.sessions import fork_at, similar_sessions, tag, with_part, with_tags
from ragmem.memory.turns import prompts_of
from ragmem.records import (
    ASKED,
    DEFAULT_TITLE,
    WITHOUT_CALLS,
    Session,
    SessionQuery,
    TurnQuery,
    Usage,
    as_shown,
)
from ragmem.repl.choices import session_question
from ragmem.repl.recalled import call_rows, card, folded_prompt, rule, short_turns
from ragmem.repl.terminal import YES_NO, ChatQuestion
from ragmem.text import ago, clip_middle, counted, folder_name, one_line, visible

if TYPE_CHECKING:
    from ragmem.agent import Agent, Options
    from ragmem.app import App
    from ragmem.config import PermissionMode
    from ragmem.memory.last_time import SessionRecap
    from ragmem.messages import Json
    from ragmem.repl.chat import Opening
    from ragmem.repl.output import ChatOutput
    from ragmem.tools.base import Approver
    from ragmem.tools.skills import OwnCommand

_WELCOME = (
    "Everything here is remembered, on this machine. @path mentions a file, !command runs a "
    "command, #text saves a memory, Shift-Tab switches what needs your approval."
)
_MAX_SESSIONS = 10_000
_MAX_ANSWER_CHARS, _MIN_ANSWER_CHARS = 4_000, 400
"""Limits on the characters shown of the last answer; within them, as many as half the screen."""
_SHORT_TURNS, _ROWS_PER_SHORT_TURN = 4, 7
"""Turns shown in short before the last one: at most this many, and one per this many rows."""
_PAST = TurnQuery(limit=_SHORT_TURNS + 1)
_MAX_SIMILAR = 3
_MAX_OPEN = 2
_EMBEDDED_NOW = 4
_TITLE_CHARS = 40


class ChatSession:
    """The current session, its agent, and the output that shows them."""

    def __init__(
        self,
        app: "App",
        options: "Options",
        approver: "Approver",
        output: "ChatOutput",
        session: Session,
        agent: "Agent",
    ) -> None:
        self.app = app
        self.options = options
        self.output = output
        self.session = session
        self.agent = agent
        self.spent = Usage()
        """Usage of this process, in all of its sessions."""
        self.turn_count = 0
        """Number of turns that this process has made in this session."""
        self.context_tokens = 0
        """Tokens of the last request and its answer; 0 before the first."""
        self.cost_usd: float | None = 0.0
        """Cost of the session's turns; None if the price of any is unknown."""
        self.recalled: Sequence[Recalled] | None = None
        """Items that memory added to the last request; None before the first."""
        self.without_code = ""
        """Why the last request has no code, if the search for it took too long."""
        self.tasks = ""
        """The agent's task list, one task a row; empty if there is none or all tasks are done."""
        self.branch = ""
        """The folder's git branch, as of the last `see_branch`."""
        self.commands: Mapping[str, OwnCommand] = {}
        """The user's and the project's custom commands, by name."""
        self._approver = approver
        self._is_fork_of_last = False
        """Whether the session is a fork of the one shown before it."""
        self._known_turns = session.turn_count
        """Number of the session's turns that this chat has shown or made."""

    @classmethod
    async def open(
        cls,
        app: "App",
        options: "Options",
        approver: "Approver",
        output: "ChatOutput",
        opening: "Opening",
    ) -> "ChatSession":
        """Open a chat; raises what `App` raises if a session or an agent can't be opened."""
        found: Session | None = None
        if opening.resume:
            found = await _named_session(app, opening.resume)
        elif opening.continue_last:
            found = await app.continue_session(chats=True)
        session = found or await app.start_session(title=opening.title)
        if found and opening.fork:
            session = await app.fork_session(found)
        renames = opening.title and session.turn_count and session.title != opening.title
        if renames and app.memory.records:
            session = await app.memory.rename(session.session_id, opening.title)
        skill_set = await app.skill_set(session)
        if skill_set.question:
            output.say(
                f"{skill_set.question}. They are instructions to the agent, by whoever wrote them."
            )
            answer = await output.terminal.ask(ChatQuestion("Use them?", YES_NO))
            if answer is not None:
                skill_set.answer(answer == "y")
        agent = await _agent(app, session, options, approver, output)
        chat = cls(app, options, approver, output, session, agent)
        chat.commands = skill_set.commands
        chat.see_branch()
        return chat

    async def new(self) -> None:
        """Switch to a new session."""
        await self._switch(await self.app.start_session())

    async def resume(self, reference: str) -> None:
        """Switch to another session; keep the current one if it can't be found."""
        await self._switch(await _named_session(self.app, reference))

    async def fork(self, turn_index: int | None = None, *, title: str = "") -> None:
        """Switch to a copy of this session with its turns up to `turn_index`, or all of them."""
        self.require_turns("it can't be copied")
        await self._switch(await fork_at(self.app.memory, self.session, turn_index, title=title))
        self._is_fork_of_last = True

    async def rename(self, title: str) -> None:
        """Name the session; before its first prompt, the name is stored with that prompt."""
        if self.can_be_resumed:
            session = await self.app.memory.rename(self.session.session_id, title)
            self.session = self._with(title=session.title)
        else:
            await self._replace(self._with(title=title), self.options)

    async def tag(self, add: Sequence[str], remove: Sequence[str] = ()) -> None:
        """Add and remove tags; before the first prompt, they are stored with that prompt."""
        if self.can_be_resumed:
            stored = await self._reload()
            self.session = self._with(tags=(await tag(self.app.memory, stored, add, remove)).tags)
        else:
            tags = with_tags(self.session.tags, add, remove)
            await self._replace(self._with(tags=tags), self.options)

    async def claim(self) -> None:
        """Turn a session that was started by a one-off question into a chat."""
        if ASKED in self.session.tags:
            with suppress(RagmemError):
                await self.tag((), [ASKED])

    def _with(self, **changes: object) -> Session:
        return msgspec.structs.replace(self.session, **changes)

    async def go_on_with(self, **changed: str) -> None:
        """Use another `model` or `effort` in the same session; on an error, nothing changes."""
        options = msgspec.structs.replace(self.options, **changed)
        await self._replace(await self._reload(), options)

    async def _switch(self, session: Session) -> None:
        await self._replace(session, self.options)
        self.turn_count, self.context_tokens, self.recalled = 0, 0, None
        self.cost_usd, self.tasks = 0.0, ""
        self._is_fork_of_last = False

    async def _replace(self, session: Session, options: "Options") -> None:
        same = session.session_id == self.session.session_id
        agent = await _agent(self.app, session, options, self._approver, self.output)
        if same:
            agent.rules.flags[:] = self.agent.rules.flags
            agent.rules.remembered |= self.agent.rules.remembered
        await self.agent.aclose()
        self.agent, self.options, self.session = agent, options, session
        self._known_turns = max(session.turn_count, self._known_turns if same else 0)

    async def _reload(self) -> Session:
        if not self.turn_count:
            return self.session
        try:
            return await self.app.memory.find_session(self.session.session_id)
        except (StoreError, SessionNotFound):  # store unavailable, or --ephemeral
            return self.session

    async def record(self, asked: str, tool_name: str, result: "Json") -> None:
        """Record an action of the user's own as a turn of the session."""
        await self.agent.record(asked, tool_name, result)
        self.turn_count += 1
        self._known_turns += 1

    def see(self, event: Event) -> None:
        """Update the chat's figures from an event of a turn."""
        match event:
            case ContextBuilt(recalled=recalled, without_code=without_code):
                self.recalled, self.without_code = recalled, without_code
            case ModelCallStarted(context_tokens=tokens) | MessageFinished(context_tokens=tokens):
                self.context_tokens = tokens or self.context_tokens
            case TurnFinished(usage=usage):
                self.turn_count += 1
                self._known_turns += 1
                self.spent += usage
                self.cost_usd = with_more(self.cost_usd, usage)

    @property
    def can_be_resumed(self) -> bool:
        """Return whether the session has turns, and they are stored."""
        asked = self.turn_count or self.session.turn_count
        return bool(asked and self.app.memory.records)

    def require_turns(self, so: str) -> None:
        """Raise UsageError, which says what follows, if the session has no stored turns."""
        if not self.can_be_resumed:
            why = "has no prompt yet" if self.app.memory.records else "is not stored"
            raise UsageError(f"This session {why}, so {so}.")

    @property
    def short_id(self) -> str:
        """Return the session's id in its short form, as shown to users."""
        return short_id(self.session.session_id)

    def see_branch(self) -> None:
        """Update `branch`, which git keeps in one small file."""
        self.branch = read_branch(folder_of_git(self.app.cwd))

    # --- what is printed about it -----------------------------------------------

    async def greet(self, opening: "Opening") -> None:
        """Print the folder, the app's notices, and how to continue the last session here."""
        room = max(20, self.output.width - 30)
        where = folder_name(str(self.app.cwd), environment().get("HOME") or "~", room)
        self.output.note(f"ragmem {__version__} · {where} · /help")
        self.tell_notices()
        if self.session.turn_count:
            await self._show_past()
        elif opening.continue_last:
            self.output.say("No session to continue in this folder; this is a new one.")
        elif hint := await self._last_session_hint():
            self.output.say(hint)

    async def introduce(self) -> None:
        """Print the beginning of a session that the chat has switched to.

        The turns of a fork of the previous session are left out: they are on the screen already.
        """
        self.tell_notices()
        if self.session.turn_count:
            await self._show_past(replays=not self._is_fork_of_last)
        else:
            self.output.say("A new session.")

    async def tell_of_others(self) -> bool:
        """Report turns that another process has added to this session; return whether any were."""
        if not self.can_be_resumed:
            return False
        try:
            stored = await self.app.memory.find_session(self.session.session_id)
        except (StoreError, SessionNotFound):
            return False
        added = stored.turn_count - self._known_turns
        if added <= 0:
            return False
        self._known_turns = stored.turn_count
        asked = one_line(stored.last_asked, _TITLE_CHARS)
        last = f", the latest: “{asked}”" if asked else ""
        turns = f"{counted(added, 'turn')} to this session{last}"
        self.output.say(
            f"Another process has added {turns}. The next answer takes that into account."
        )
        return True

    def tell_notices(self) -> bool:
        """Print the app's notices, each once; return whether there were any."""
        notices = dict.fromkeys(self.app.notices())
        for text in notices:
            self.output.say(text)
        return bool(notices)

    @property
    def is_named(self) -> bool:
        """Return whether the session has a name."""
        return self.session.title != DEFAULT_TITLE

    @property
    def called(self) -> str:
        """Return the session's name, or its short id if it has none."""
        return self.session.title if self.is_named else self.short_id

    def use_mode(self, mode: "PermissionMode") -> None:
        """Use another permission mode from the next tool call on, in later sessions too."""
        self.options = msgspec.structs.replace(self.options, permission_mode=mode)
        self.agent.use_mode(mode)

    def say_farewell(self) -> None:
        """Print the command that resumes this session, if it can be resumed."""
        if self.can_be_resumed:
            self.output.note(f"Resume with: ragmem chat -r {self.short_id}")

    async def _last_session_hint(self) -> str:
        try:
            last = await self.app.continue_session(chats=True, wait_s=0)
        except (StoreError, UsageError):
            return ""
        if last is None:
            return await self._welcome()
        when = ago(last.last_activity_at, datetime.now(UTC))
        recap = await self._recap(last)
        left = "; ".join(each.rstrip(".") for each in (recap.open if recap else ())[:_MAX_OPEN])
        return (
            f"The last session here, {when}: “{one_line(last.called, 60)}”."
            f"{f' Open: {left}.' if left else ''} `ragmem chat -c` or /resume continues it."
        )

    async def _welcome(self) -> str:
        """Return the welcome to a user's first chat, naming agents whose sessions can be imported.

        Empty if the user has stored sessions.
        """
        from ragmem.importers.importer import agents_here

        with suppress(StoreError):
            query = SessionQuery(mine=True, limit=1)
            if self.app.memory.records and not await self.app.memory.sessions(query):
                found = await asyncio.to_thread(agents_here, environment())
                *others, last = found or [""]
                names = f"{', '.join(others)} and {last}" if others else last
                also = (
                    f"\nSessions of {names} are on this machine too: `ragmem import` imports them."
                )
                return _WELCOME + (also if found else "")
        return ""

    async def _recap(self, session: Session) -> "SessionRecap | None":
        try:
            return await self.app.memory.recap(session)
        except RagmemError:
            return None

    async def _show_past(self, *, replays: bool = True) -> None:
        """Print the session's card and, with `replays`, its last turns.

        The last exchange is shown, and those before it in short: together about a screenful.
        """
        output, session, memory = self.output, self.session, self.app.memory
        turns = (await memory.load_session(session.session_id, _PAST)).turns
        async for turn in memory.turns_back(session.session_id, WITHOUT_CALLS):
            self.cost_usd = with_more(self.cost_usd, turn.usage)
        last = turns[-1] if turns else None
        output.show(card(session, await self._recap(session), last, datetime.now(UTC)))
        if last and replays:
            rows, columns = output.terminal.rows, output.width
            count = min(_SHORT_TURNS, rows // _ROWS_PER_SHORT_TURN, len(turns) - 1)
            if count > 0:
                before = turns[-1 - count].turn_index - 1
                short = short_turns(turns[-1 - count : -1], before=before)
                output.show(Group(*short))
            prompt, later = prompts_of(last)
            for words in (as_shown(prompt), *later.values()):
                output.prompt(folded_prompt(words))
            for row in call_rows(last):
                output.show(row, "tool")
            if last.assistant_message.strip() and not last.is_own_command:
                room = max(_MIN_ANSWER_CHARS, min(_MAX_ANSWER_CHARS, rows * columns // 2))
                output.answer(clip_middle(last.assistant_message, room))
            if last.status in ("interrupted", "failed"):
                output.warn("ended with an error" if last.status == "failed" else "interrupted")
        output.show(rule(output.width))


def with_more(cost_usd: float | None, usage: Usage) -> float | None:
    """Add the cost of one more turn; None from the first unknown price on."""
    if not usage.model_calls:
        return cost_usd
    return None if cost_usd is None or usage.cost_usd is None else cost_usd + usage.cost_usd


async def offer_to_join(app: "App", output: "ChatOutput") -> None:
    """Join a worktree to its repository; for a second clone, ask whether both are one project."""
    try:
        await app.join_worktree()
        if not await app.is_seen_first():
            return
        project, same, moved = await app.joinable_projects()
    except StoreError:
        return  # The chat itself reports that the store is unavailable.
    others = same if has_remote(project) and not project.joined_into else []
    before = [each for each in moved if is_called_like(project, each)]
    if before and not others:
        output.say(
            f"The folder {visible(before[0].path)} no longer exists. If this is where it moved, "
            "`ragmem sessions list --join` brings its memory here."
        )
    if not others:
        return
    output.say(
        f"This folder has the same remote as {visible(others[0].path)}. If you join them into "
        "one project, each recalls the other's sessions. `ragmem sessions split` undoes that; "
        "`ragmem sessions list --join` joins them later."
    )
    if await output.terminal.ask(ChatQuestion("Join them into one project?", YES_NO)) == "y":
        try:
            await app.memory.join(project, others[0], chosen=True)
        except StoreError as error:
            output.warn(f"They were not joined. {error}")


async def choose_opening(app: "App", opening: "Opening", output: "ChatOutput") -> "Opening | None":
    """Let the user choose a session if `-r` names none; return None if they choose none."""
    if opening.resume != "":
        return opening
    chosen = await output.terminal.pick(session_question(app))
    return msgspec.structs.replace(opening, resume=chosen) if chosen else None


async def _agent(
    app: "App", session: Session, options: "Options", approver: "Approver", output: "ChatOutput"
) -> "Agent":
    """Create the agent; download the weights of the small local model first, if the user agrees."""
    try:
        agent = await app.agent(session, options, approver)
    except NoWeights as lacking:
        from ragmem.llm.local import QUESTION, fetch

        output.say(str(lacking))
        if await output.terminal.ask(ChatQuestion(QUESTION, YES_NO)) != "y":
            raise
        # The download prints its progress on the terminal.
        got = fetch(app.paths)
        if not await output.terminal.lend(lambda: asyncio.run(got).is_file()):
            raise
        agent = await app.agent(session, options, approver)
    agent.prepare()
    return agent


async def _named_session(app: "App", reference: str) -> Session:
    """Return the session with an id or name, or the only one whose name contains the text."""
    try:
        return await app.resume_session(reference)
    except SessionNotFound:
        here = with_part(await app.sessions_here(_MAX_SESSIONS), reference)
        everywhere = SessionQuery(mine=True, limit=_MAX_SESSIONS)
        found = here or with_part(await app.memory.sessions(everywhere), reference)
        if found is None:
            raise
        return app.memory.recollect(found)


# --- sessions like this one ---------------------------------------------------


class Reminder:
    """Prints once, at the start of a session, that there were similar sessions.

    The search runs while the model thinks; recall has just embedded the prompt by then. Sessions
    that are not found before the answer begins are not reported, nor is any failure.
    """

    def __init__(self, chat: ChatSession, prompt: str) -> None:
        self._chat = chat
        self._prompt = prompt
        self._looking: asyncio.Task[None] | None = None
        begins = not chat.turn_count and not chat.session.turn_count
        self._wanted = begins and chat.app.memory.records and chat.app.embedder is not None

    def see(self, event: Event) -> None:
        """Start the search once the context is built; stop it when the answer begins."""
        if isinstance(event, ContextBuilt) and self._wanted:
            self._wanted = False
            self._looking = asyncio.create_task(self._look())
        elif isinstance(event, TextDelta):
            self.close()

    def close(self) -> None:
        """Cancel the search."""
        if self._looking:
            self._looking.cancel()

    async def _look(self) -> None:
        app, session = self._chat.app, self._chat.session
        if app.embedder is None or app.memory.floor is None:
            return
        everywhere = app.config.memory.scope == "all"
        with suppress(RagmemError):
            found = await similar_sessions(
                await app.store(),
                app.embedder,
                self._prompt,
                floor=app.memory.floor,
                limit=_MAX_SIMILAR,
                project_ids=() if everywhere else (session.project_id,),
                without=(session.session_id,),
                embedded_now=_EMBEDDED_NOW,
            )
            if found:
                self._chat.output.say(_reminder([each.session for each in found]))


def _reminder(found: Sequence[Session]) -> str:
    """Return the notice that names the similar sessions, the nearest first."""
    now = datetime.now(UTC)
    named = "; ".join(
        f"{one_line(each.called, _TITLE_CHARS)} ({short_id(each.session_id)}, "
        f"{ago(each.last_activity_at, now)})"
        for each in found
    )
    count = counted(len(found), "session")
    return f"You had {count} like this one: {named}. /resume continues one."
