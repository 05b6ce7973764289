"""The session of a chat and its agent: how they are exchanged, and what is said at their beginning.

Nothing heavy is imported before a session is opened.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

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
from ragmem.repl.terminal import YES_NO, ChatQuestion
from ragmem.text import ago, clip_middle, counted, folder_name, one_line, visible

if TYPE_CHECKING:
    from ragmem.agent import Agent, Options
    from ragmem.app import App
    from ragmem.config import PermissionMode
    from ragmem.memory.last_time import SessionRecap
    from ragmem.messages import Json
    from ragmem.repl.output import ChatOutput
    from ragmem.tools.base import Approver
    from ragmem.tools.skills import OwnCommand

_WELCOME = (
    "Everything here is remembered, on this machine. @path mentions a file, !command runs a "
    "command, #text saves a memory, Shift-Tab switches what needs your approval."
)
_SEARCHED = 10_000
_SHOWN_CHARS, _LEAST_SHOWN_CHARS = 4_000, 400
"""Of the last answer, at most and at least: between them as much as half of the screen has."""
_SHORT_TURNS, _ROWS_OF_A_SHORT_TURN = 4, 7
"""So many turns before the last are told in short, of as many rows of the screen one."""
_PAST = TurnQuery(limit=_SHORT_TURNS + 1)
_MOST_SIMILAR = 3
_MOST_OPEN = 2
_EMBEDDED_NOW = 4
_TITLE_CHARS = 40


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Which session a chat begins with; by default a new one."""

    resume: str | None = None
    """An id, a tail of one, or a name; empty for a choice among this folder's sessions."""
    continue_last: bool = False
    """The newest chat of this folder; where there is none, the newest session."""
    fork: bool = False
    """Go on in a copy."""
    title: str = ""
    """Name of the session."""
    prompt: str = ""
    """What is asked first; nothing waits for the person to type it."""


class ChatSession:
    """The current session, its agent, and where they are seen."""

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
        """By this process, in all of its sessions."""
        self.turn_count = 0
        """Asked in this session by this process."""
        self.context_tokens = 0
        """Of the last request and its answer; 0 before the first."""
        self.cost_usd: float | None = 0.0
        """Of the session's turns; None where the price of one is not known."""
        self.always_count = 0
        """Things that the person has allowed always, of this agent."""
        self.recalled: Sequence[Recalled] | None = None
        """What memory put into the last request; None before the first."""
        self.without_code = ""
        """Why the last request has no code, where looking for it took too long."""
        self.tasks = ""
        """What is left of the agent's list of tasks, a row each."""
        self.branch = ""
        """That the folder is on, as it was after the last thing that was done here."""
        self.commands: Mapping[str, OwnCommand] = {}
        """The person's own, and the project's, by their names."""
        self._approver = approver
        self._is_own_fork = False
        """Made of the session that was shown before it."""
        self._turns_known = session.turn_count
        """Turns of the session that this chat has shown or made."""

    @classmethod
    async def open(
        cls,
        app: "App",
        options: "Options",
        approver: "Approver",
        output: "ChatOutput",
        opening: Opening,
    ) -> "ChatSession":
        """Begin; raises what `App` raises when a session or an agent can't be had."""
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
        """Go to a new session."""
        await self._go_to(await self.app.start_session())

    async def resume(self, reference: str) -> None:
        """Go to another session; this one stays when it can't be found."""
        await self._go_to(await _named_session(self.app, reference))

    async def fork(self, turn_index: int | None = None, *, title: str = "") -> None:
        """Go to a session that begins with this one's turns up to and with that one, or all."""
        from ragmem.memory.sessions import fork_at

        if not self.can_be_resumed:
            raise UsageError("This session is not stored, so it can't be copied.")
        await self._go_to(await fork_at(self.app.memory, self.session, turn_index, title=title))
        self._is_own_fork = True

    async def rename(self, title: str) -> None:
        """Give the session a name, from its first prompt on if it has none yet."""
        if self.can_be_resumed:
            session = await self.app.memory.rename(self.session.session_id, title)
            self.session = self._with(title=session.title)
        else:
            await self._exchange(self._with(title=title), self.options)

    async def tag(self, add: Sequence[str], remove: Sequence[str] = ()) -> None:
        """Add and remove tags, from the session's first prompt on if it has none yet."""
        from ragmem.memory.sessions import tag, with_tags

        if self.can_be_resumed:
            stored = await self._as_stored()
            self.session = self._with(tags=(await tag(self.app.memory, stored, add, remove)).tags)
        else:
            tags = with_tags(self.session.tags, add, remove)
            await self._exchange(self._with(tags=tags), self.options)

    async def claim(self) -> None:
        """Make a chat of a session that was begun for a one-off question, where it was."""
        if ASKED in self.session.tags:
            with suppress(RagmemError):
                await self.tag((), [ASKED])

    def _with(self, **changes: object) -> Session:
        return msgspec.structs.replace(self.session, **changes)

    async def go_on_with(self, **changed: str) -> None:
        """Another `model` or `effort` in the same session; all stays when it can't be had."""
        options = msgspec.structs.replace(self.options, **changed)
        await self._exchange(await self._as_stored(), options)

    async def _go_to(self, session: Session) -> None:
        await self._exchange(session, self.options)
        self.turn_count, self.context_tokens, self.recalled = 0, 0, None
        self.cost_usd, self.tasks = 0.0, ""
        self._is_own_fork = False

    async def _exchange(self, session: Session, options: "Options") -> None:
        same = session.session_id == self.session.session_id
        agent = await _agent(self.app, session, options, self._approver, self.output)
        await self.agent.aclose()
        self.agent, self.options, self.session = agent, options, session
        self._turns_known = max(session.turn_count, self._turns_known if same else 0)
        self.always_count = 0

    async def _as_stored(self) -> Session:
        if not self.turn_count:
            return self.session
        try:
            return await self.app.memory.find_session(self.session.session_id)
        except (StoreError, SessionNotFound):  # away, or --ephemeral
            return self.session

    async def record(self, said: str, tool_name: str, result: "Json") -> None:
        """Record what the person has done by themself as a turn of the session."""
        await self.agent.record(said, tool_name, result)
        self.turn_count += 1
        self._turns_known += 1

    def see(self, event: Event) -> None:
        """Follow a turn."""
        match event:
            case ContextBuilt(recalled=recalled, without_code=without_code):
                self.recalled, self.without_code = recalled, without_code
            case ModelCallStarted(context_tokens=tokens) | MessageFinished(context_tokens=tokens):
                self.context_tokens = tokens or self.context_tokens
            case TurnFinished(usage=usage):
                self.turn_count += 1
                self._turns_known += 1
                self.spent += usage
                self.cost_usd = with_more(self.cost_usd, usage)

    @property
    def can_be_resumed(self) -> bool:
        """Return whether anything was asked in this session, now or before, and is stored."""
        asked = self.turn_count or self.session.turn_count
        return bool(asked and self.app.memory.records)

    @property
    def short_id(self) -> str:
        """Return the session's id as it is shown."""
        return short_id(self.session.session_id)

    def see_branch(self) -> None:
        """Read which branch the folder is on; what git keeps of it is one small file."""
        from ragmem.memory.projects import folder_of_git, read_branch

        self.branch = read_branch(folder_of_git(self.app.cwd))

    # --- what is said of it -----------------------------------------------------

    async def greet(self, opening: Opening) -> None:
        """Say where we are, how to go on with what was last done here, and what the app has."""
        room = max(20, self.output.width - 30)
        where = folder_name(str(self.app.cwd), environment().get("HOME") or "~", room)
        self.output.note(f"ragmem {__version__} · {where} · /help")
        self.tell_notices()
        if self.session.turn_count:
            await self._show_past()
        elif opening.continue_last:
            self.output.say("No session to continue in this folder; this is a new one.")
        elif hint := await self._last_session():
            self.output.say(hint)

    async def introduce(self) -> None:
        """Show the session that the chat has gone to; of a fork all is on the screen already."""
        self.tell_notices()
        if self.session.turn_count:
            await self._show_past(replays=not self._is_own_fork)
        else:
            self.output.say("A new session.")

    async def tell_of_others(self) -> bool:
        """Say that another process has added turns to this session; whether anything was said."""
        if not self.can_be_resumed:
            return False
        try:
            stored = await self.app.memory.find_session(self.session.session_id)
        except (StoreError, SessionNotFound):
            return False
        added = stored.turn_count - self._turns_known
        if added <= 0:
            return False
        self._turns_known = stored.turn_count
        asked = one_line(stored.last_asked, _TITLE_CHARS)
        last = f", the latest: “{asked}”" if asked else ""
        turns = f"{counted(added, 'turn')} to this session{last}"
        self.output.say(
            f"Another process has added {turns}. The next answer takes that into account."
        )
        return True

    def tell_notices(self) -> bool:
        """Say what the app wants to have said; whether anything was."""
        told = dict.fromkeys(self.app.notices())
        for text in told:
            self.output.say(text)
        return bool(told)

    @property
    def is_named(self) -> bool:
        """Return whether the session has a name."""
        return self.session.title != DEFAULT_TITLE

    @property
    def called(self) -> str:
        """Return the session's name, or its short id where it has none."""
        return self.session.title if self.is_named else self.short_id

    def use_mode(self, mode: "PermissionMode") -> None:
        """Let another mode hold from the next tool call on, also in the sessions that follow."""
        self.options = msgspec.structs.replace(self.options, permission_mode=mode)
        self.agent.use_mode(mode)

    def say_farewell(self) -> None:
        """Show the command that goes on with this session, if there is anything to go on with."""
        if self.can_be_resumed:
            self.output.note(f"Resume with: ragmem chat -r {self.short_id}")

    async def _last_session(self) -> str:
        try:
            last = await self.app.continue_session(chats=True, wait_s=0)
        except (StoreError, UsageError):
            return ""
        if last is None:
            return await self._welcome()
        when = ago(last.last_activity_at, datetime.now(UTC))
        recap = await self._recap(last)
        left = "; ".join(each.rstrip(".") for each in (recap.open if recap else ())[:_MOST_OPEN])
        return (
            f"The last session here, {when}: “{one_line(last.called, 60)}”."
            f"{f' Open: {left}.' if left else ''} `ragmem chat -c` or /resume goes on with it."
        )

    async def _welcome(self) -> str:
        """What a person's first chat begins with, and where there is more to remember."""
        from ragmem.importers.importer import agents_here

        with suppress(StoreError):
            query = SessionQuery(mine=True, limit=1)
            if self.app.memory.records and not await self.app.memory.sessions(query):
                found = await asyncio.to_thread(agents_here, environment())
                *others, last = found or [""]
                names = f"{', '.join(others)} and {last}" if others else last
                also = f"\nSessions of {names} are here too: `ragmem import` brings them."
                return _WELCOME + (also if found else "")
        return ""

    async def _recap(self, session: Session) -> "SessionRecap | None":
        try:
            return await self.app.memory.recap(session)
        except RagmemError:
            return None

    async def _show_past(self, *, replays: bool = True) -> None:
        """Tell what the session came to and, unless it is on the screen, its last turns.

        The last exchange is shown, those before it in short: together about as much as the screen
        holds.
        """
        from rich.console import Group

        from ragmem.memory.turns import prompts_of
        from ragmem.repl.recalled import call_rows, card, folded_prompt, rule, short_turns

        output, session, memory = self.output, self.session, self.app.memory
        turns = (await memory.load_session(session.session_id, _PAST)).turns
        async for turn in memory.turns_back(session.session_id, WITHOUT_CALLS):
            self.cost_usd = with_more(self.cost_usd, turn.usage)
        last = turns[-1] if turns else None
        output.show(card(session, await self._recap(session), last, datetime.now(UTC)))
        if last and replays:
            rows, columns = output.terminal.rows, output.width
            count = min(_SHORT_TURNS, rows // _ROWS_OF_A_SHORT_TURN, len(turns) - 1)
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
                room = max(_LEAST_SHOWN_CHARS, min(_SHOWN_CHARS, rows * columns // 2))
                output.answer(clip_middle(last.assistant_message, room))
            if last.status in ("interrupted", "failed"):
                output.warn("ended with an error" if last.status == "failed" else "interrupted")
        output.show(rule(output.width))


def with_more(cost_usd: float | None, usage: Usage) -> float | None:
    """What it comes to with one more turn; None for good once a price was not known."""
    if not usage.model_calls:
        return cost_usd
    return None if cost_usd is None or usage.cost_usd is None else cost_usd + usage.cost_usd


async def offer_to_join(app: "App", output: "ChatOutput") -> None:
    """Join a worktree to its repository; of a second clone ask whether both are one project."""
    from ragmem.memory.projects import has_remote, is_called_like

    try:
        await app.join_worktree()
        if not await app.is_seen_first():
            return
        project, same, moved = await app.joinable_projects()
    except StoreError:
        return  # That it is away is told by the chat itself.
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


async def choose_opening(app: "App", opening: Opening, output: "ChatOutput") -> Opening | None:
    """Let the person choose where `-r` names no session; None when they choose none."""
    if opening.resume != "":
        return opening
    from ragmem.repl.choices import session_question

    chosen = await output.terminal.pick(session_question(app))
    return msgspec.structs.replace(opening, resume=chosen) if chosen else None


async def _agent(
    app: "App", session: Session, options: "Options", approver: "Approver", output: "ChatOutput"
) -> "Agent":
    """Make the agent; of the small local model, get the weights first if the person says so."""
    try:
        agent = await app.agent(session, options, approver)
    except NoWeights as lacking:
        from ragmem.llm.local import QUESTION, fetch

        output.say(str(lacking))
        if await output.terminal.ask(ChatQuestion(QUESTION, YES_NO)) != "y":
            raise
        # What gets them shows on the terminal how far it is.
        got = fetch(app.paths)
        if not await output.terminal.lend(lambda: asyncio.run(got).is_file()):
            raise
        agent = await app.agent(session, options, approver)
    agent.prepare()
    return agent


async def _named_session(app: "App", reference: str) -> Session:
    """Find a session by its id or name, or by a part of a name that only one has."""
    try:
        return await app.resume_session(reference)
    except SessionNotFound:
        from ragmem.memory.sessions import with_part

        here = with_part(await app.sessions_here(_SEARCHED), reference)
        everywhere = SessionQuery(mine=True, limit=_SEARCHED)
        found = here or with_part(await app.memory.sessions(everywhere), reference)
        if found is None:
            raise
        return app.memory.recollect(found)


# --- sessions like this one ---------------------------------------------------


class Reminder:
    """Tells once, at the start of a session, that there were sessions like it.

    It looks for them while the model thinks: the question's vector is at hand by then, since
    recall has just made it. What is not found before the answer begins stays unsaid, and so does
    every failure.
    """

    def __init__(self, chat: ChatSession, prompt: str) -> None:
        self._chat = chat
        self._prompt = prompt
        self._looking: asyncio.Task[None] | None = None
        begins = not chat.turn_count and not chat.session.turn_count
        self._wanted = begins and chat.app.memory.records and chat.app.embedder is not None

    def see(self, event: Event) -> None:
        """Follow the turn."""
        if isinstance(event, ContextBuilt) and self._wanted:
            self._wanted = False
            self._looking = asyncio.create_task(self._look())
        elif isinstance(event, TextDelta):
            self.close()

    def close(self) -> None:
        """Stop looking."""
        if self._looking:
            self._looking.cancel()

    async def _look(self) -> None:
        from ragmem.memory.sessions import similar_sessions

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
                limit=_MOST_SIMILAR,
                project_ids=() if everywhere else (session.project_id,),
                without=(session.session_id,),
                embedded_now=_EMBEDDED_NOW,
            )
            if found:
                self._chat.output.say(_reminder([each.session for each in found]))


def _reminder(found: Sequence[Session]) -> str:
    """Name the sessions, the nearest first."""
    now = datetime.now(UTC)
    named = "; ".join(
        f"{one_line(each.called, _TITLE_CHARS)} ({short_id(each.session_id)}, "
        f"{ago(each.last_activity_at, now)})"
        for each in found
    )
    count = counted(len(found), "session")
    return f"You had {count} like this one: {named}. /resume continues one."
