"""Who the chat talks to: the app, the session and its agent, and how they are exchanged."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import SessionNotFound, StoreError, UsageError
from ragmem.events import TurnFinished
from ragmem.ids import short_id
from ragmem.memory.branching import fork_at, tag, with_tags
from ragmem.records import Session, Usage

if TYPE_CHECKING:
    from ragmem.agent import Agent
    from ragmem.app import App, Options
    from ragmem.tools.base import Approver


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Which session a chat begins with; by default a new one."""

    resume: str | None = None
    """An id, a tail of one, or a name; empty for a choice among this folder's sessions."""
    continue_last: bool = False
    """The newest session of this folder."""
    fork: bool = False
    """Go on in a copy."""
    title: str = ""
    """Name of the session."""


class Talk:
    """The current session and its agent."""

    def __init__(
        self, app: "App", options: "Options", approver: "Approver", session: Session, agent: "Agent"
    ) -> None:
        self.app = app
        self.options = options
        self.session = session
        self.agent = agent
        self.spent = Usage()
        """By this process, in all of its sessions."""
        self.turn_count = 0
        """Asked in this session by this process."""
        self.context_chars: int | None = None
        self._approver = approver

    @classmethod
    async def open(
        cls, app: "App", options: "Options", approver: "Approver", opening: Opening
    ) -> "Talk":
        """Begin; raises what `App` raises when a session or an agent can't be had."""
        session = await _first_session(app, opening)
        renames = opening.title and session.turn_count and session.title != opening.title
        if renames and app.memory.records:
            session = await app.memory.rename(session.session_id, opening.title)
        agent = await _agent(app, session, options, approver)
        return cls(app, options, approver, session, agent)

    async def new(self) -> None:
        """A new session."""
        await self._go_to(await self.app.start_session())

    async def resume(self, reference: str) -> None:
        """Another session; this one stays when it can't be found."""
        await self._go_to(await self.app.resume_session(reference))

    async def fork(self, turn_index: int | None = None, *, title: str = "") -> None:
        """A session that begins with this one's turns up to and with that one; all, if None."""
        if not self.can_be_resumed:
            raise UsageError("Nothing is stored of this session, so there is nothing to fork.")
        await self._go_to(await fork_at(self.app.memory, self.session, turn_index, title=title))

    async def rename(self, title: str) -> None:
        """The person's own name for the session, from its first prompt on if it has none yet."""
        if self.can_be_resumed:
            session = await self.app.memory.rename(self.session.session_id, title)
            self.session = self._with(title=session.title)
        else:
            await self._go_to(self._with(title=title))

    async def tag(self, add: Sequence[str], remove: Sequence[str] = ()) -> None:
        """Tags for the session, from its first prompt on if it has none yet."""
        if self.can_be_resumed:
            stored = await self._as_stored()
            self.session = self._with(tags=(await tag(self.app.memory, stored, add, remove)).tags)
        else:
            tags = with_tags(self.session.tags, add, remove)
            await self._go_to(self._with(tags=tags))

    def _with(self, **changes: object) -> Session:
        return msgspec.structs.replace(self.session, **changes)

    async def use_model(self, name: str) -> None:
        """Another model in the same session; this one stays when it can't be had."""
        options = msgspec.structs.replace(self.options, model=name)
        session = await self._as_stored()
        agent = await _agent(self.app, session, options, self._approver)
        await self.agent.aclose()
        self.agent, self.options, self.session = agent, options, session

    async def _go_to(self, session: Session) -> None:
        agent = await _agent(self.app, session, self.options, self._approver)
        await self.agent.aclose()
        self.agent, self.session = agent, session
        self.turn_count, self.context_chars = 0, None

    async def _as_stored(self) -> Session:
        if not self.turn_count:
            return self.session
        try:
            return (await self.app.memory.load_session(self.session.session_id)).session
        except (StoreError, SessionNotFound):  # away, or --ephemeral
            return self.session

    def finished(self, event: TurnFinished, context_chars: int | None) -> None:
        """Count a turn."""
        self.turn_count += 1
        self.context_chars = context_chars
        self.spent += event.usage

    @property
    def can_be_resumed(self) -> bool:
        """Whether anything was asked in this session, now or before, and is stored."""
        asked = self.turn_count or self.session.turn_count
        return bool(asked and self.app.memory.records)

    @property
    def short_id(self) -> str:
        """The session's id as it is shown."""
        return short_id(self.session.session_id)


async def _agent(app: "App", session: Session, options: "Options", approver: "Approver") -> "Agent":
    agent = await app.agent(session, options, approver)
    agent.prepare()
    return agent


async def _first_session(app: "App", opening: Opening) -> Session:
    session: Session | None = None
    if opening.resume:
        session = await app.resume_session(opening.resume)
    elif opening.continue_last:
        session = await app.continue_session()
    if session is None:
        return await app.start_session(title=opening.title)
    return await app.fork_session(session) if opening.fork else session
