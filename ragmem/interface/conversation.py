"""A conversation: section B's view of a session."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ragmem.agent import Agent, Reply
from ragmem.errors import LLMError, StoreError, UsageError
from ragmem.interface import shapes
from ragmem.interface.shapes import checked_strategy
from ragmem.memory.context import Context, Counts, Strategy
from ragmem.memory.found import Question
from ragmem.memory.hits import Hit
from ragmem.memory.recording import redacted
from ragmem.memory.sessions import fork_at
from ragmem.records import Scope, Session, ToolCall, Turn, TurnQuery

if TYPE_CHECKING:
    from ragmem.interface.agent import ConversationAgent

_USER, _ASSISTANT = "user", "assistant"
_CACHED_TURNS = 50


class ConversationMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message: a turn has the person's and, unless it broke off, the model's."""

    uuid: str
    """The turn's id and the role, with a colon between them."""
    conversation_id: str
    role: Literal["user", "assistant"]
    content: str
    reasoning: str | None = None
    timestamp: datetime
    tool_calls: tuple[ToolCall, ...] = ()
    token_count: int | None = None
    """As the provider reported it."""


class ConversationContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is told of the conversation, whichever strategy chose it."""

    strategy: Strategy
    summary: str | None
    recent_messages: tuple[ConversationMessage, ...]
    """Those that are replayed, in order."""
    message_count: int
    """Of the whole conversation."""
    request: Context
    """The request itself: its sections, sizes and messages."""

    def text(self) -> str:
        """The request as one text."""
        return self.request.text()


class Conversation:
    """See the module's text; made by a ConversationAgent. One message is answered at a time."""

    def __init__(self, owner: "ConversationAgent", session: Session, agent: Agent) -> None:
        self._owner = owner
        self._session = session
        self._agent = agent
        self._busy = asyncio.Lock()
        self._cache: list[Turn] = []

    @property
    def uuid(self) -> str:
        """Its id: that of the session."""
        return self._session.session_id

    @property
    def title(self) -> str:
        """As it was when the conversation was opened."""
        return self._session.title

    @property
    def tags(self) -> tuple[str, ...]:
        """As they were when the conversation was opened."""
        return self._session.tags

    @property
    def message_cache(self) -> tuple[ConversationMessage, ...]:
        """What this object knows without the store: it stands in while that is away."""
        return tuple(message for turn in self._cache for message in messages_of(turn, self.uuid))

    async def session(self) -> Session:
        """The session as it is stored now: title, tags, status, summary, counts."""
        return await self._owner.memory.session(self.uuid)

    async def fill_cache(self) -> None:
        """Read the latest turns, for when the store is away."""
        query = TurnQuery(limit=_CACHED_TURNS)
        self._cache = await (await self._owner.memory.parts.open_store()).turns(self.uuid, query)
        self._owner.recorder.remember(self.uuid, self._cache)

    # --- talking ----------------------------------------------------------------

    async def send_message(self, text: str) -> Reply:
        """Store the message, build the context, ask the model with its tools, store the answer.

        Then, in the background, embed and sum up. LLMError when no answer came:
        what was said is stored all the same. Cancelling it ends the turn as interrupted.
        """
        async with self._busy:
            prompt = shapes.text(text, "text")
            reply = await self._agent.send(prompt)
            self._remember(reply)
        if reply.finished.subtype == "error_during_execution":
            raise LLMError(reply.finished.error, hint=reply.finished.hint)
        return reply

    def _remember(self, reply: Reply) -> None:
        last = self._agent.turn
        if last is not None and last.turn_id == reply.finished.turn_id:
            self._cache = [*self._cache, redacted(last)][-_CACHED_TURNS:]

    # --- looking back -----------------------------------------------------------

    async def get_history(
        self, limit: int = 100, *, include_tool_calls: bool = True, include_reasoning: bool = True
    ) -> list[ConversationMessage]:
        """The newest so many messages, in order; from the cache without the store."""
        if limit < 1:
            return []
        try:
            turns = await (await self._owner.memory.parts.open_store()).turns(
                self.uuid, TurnQuery(limit=limit)
            )
        except StoreError:
            turns = list(self._cache)
        found = [
            msgspec.structs.replace(
                message,
                tool_calls=message.tool_calls if include_tool_calls else (),
                reasoning=message.reasoning if include_reasoning else None,
            )
            for turn in turns
            for message in messages_of(turn, self.uuid)
        ]
        return found[-limit:]

    async def search_history(self, query: str, limit: int = 10) -> list[Hit]:
        """What was said here that bears on a text, best first.

        It holds words of the text, or is nearer than the embedder's threshold, strictly.
        """
        return await self._owner.recorder.search(
            Question(
                text=shapes.text(query, "query"),
                scope=Scope(session_ids=(self.uuid,)),
                session_id=self.uuid,
                levels=(0,),
                max_results=limit,
                min_similarity=self._owner.recorder.floor,
            )
        )

    async def get_tool_calls(
        self, tool_name: str | None = None, success: bool | None = None, limit: int = 100
    ) -> list[ToolCall]:
        """The newest so many that match, in order."""
        turns = await (await self._owner.memory.parts.open_store()).turns(self.uuid)
        found = [
            call
            for turn in turns
            for call in turn.tool_calls
            if tool_name in (None, call.tool_name) and success in (None, call.success)
        ]
        return found[-limit:] if limit > 0 else []

    async def get_summary(self) -> str | None:
        """The conversation's own summary; None before there is one."""
        return (await self.session()).summary

    async def summarize(self) -> str:
        """Renew that summary now, and store it; also where it is not made by itself.

        UsageError while nothing was said.
        """
        session = await self.session()
        if not session.message_count:
            raise UsageError("There is nothing to sum up yet.")
        return await self._owner.summarize(session)

    async def build_context(
        self,
        user_message: str = "",
        *,
        strategy: Strategy = "hybrid",
        recent_messages: int | None = None,
        relevant_messages: int | None = None,
        include_summary: bool = True,
    ) -> ConversationContext:
        """What the model would be told with a message; nothing is sent or stored.

        Without a message what bears on the last one is recalled. Counts are within the
        context's budgets: without them the budgets alone count.
        """
        checked_strategy(strategy)
        counts = (recent_messages, relevant_messages)
        if any(count is not None and count < 0 for count in counts):
            raise UsageError("recent_messages and relevant_messages are 0 or more.")
        session = await self._known()
        owner = self._owner
        builder = owner.builder(
            Counts(
                at_most=owner.config.max_context_messages,
                recent_messages=recent_messages,
                relevant_messages=relevant_messages,
                includes_summary=include_summary,
            )
        )
        request = await owner.recorder.build_context(
            session,
            shapes.text(user_message, "user_message") or session.last_message or "",
            builder,
            owner.place(session),
            strategy=strategy,
        )
        return ConversationContext(
            strategy=strategy,
            summary=session.summary if include_summary else None,
            recent_messages=tuple(
                m for turn in request.turns for m in messages_of(turn, self.uuid)
            ),
            message_count=session.message_count,
            request=request,
        )

    async def _known(self) -> Session:
        with suppress(StoreError):
            self._session = await self.session()
        return self._session

    # --- moving -----------------------------------------------------------------

    async def export(self) -> dict[str, Any]:
        """All of it as a value that JSON can hold; `import_conversation` takes it back."""
        return await self._owner.memory.parts.export(self.uuid)

    async def branch(self, from_message_id: str, title: str = "") -> "Conversation":
        """A new conversation that begins with this one, up to and with a message and its answer."""
        turn_id, _, role = from_message_id.partition(":")
        store = await self._owner.memory.parts.open_store()
        session = await self.session()
        own = await store.turns(self.uuid, TurnQuery(with_tool_calls=False))
        turns = [turn for turn in own if turn.turn_id == turn_id]
        if role not in ("", _ASSISTANT, _USER) or not turns:
            raise UsageError(
                f"{from_message_id!r} is no message of this conversation.",
                hint="Branch from the uuid of a message in get_history().",
            )
        fork = await fork_at(
            self._owner.recorder, session, turns[0].turn_index, title=shapes.text(title, "title")
        )
        branch = await self._owner.opened(fork)
        await branch.fill_cache()
        return branch

    async def aclose(self) -> None:
        """End the message that is being answered."""
        await self._agent.aclose()


def messages_of(turn: Turn, conversation_id: str) -> list[ConversationMessage]:
    """A turn as messages."""
    asked = ConversationMessage(
        uuid=f"{turn.turn_id}:{_USER}",
        conversation_id=conversation_id,
        role="user",
        content=turn.user_message,
        timestamp=turn.started_at,
    )
    if turn.status == "running" or not (turn.assistant_message or turn.tool_calls):
        return [asked]
    answer = ConversationMessage(
        uuid=f"{turn.turn_id}:{_ASSISTANT}",
        conversation_id=conversation_id,
        role="assistant",
        content=turn.assistant_message,
        reasoning=turn.reasoning,
        timestamp=turn.timestamp,
        tool_calls=tuple(call for call in turn.tool_calls if call.tool_name),
        token_count=turn.usage.output_tokens,
    )
    return [asked, answer]
