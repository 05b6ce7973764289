"""Conversations with a model: ragmem's agent with an open memory, and any model and tools."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakSet

import msgspec

from ragmem.agent import Agent, Reply
from ragmem.agent.turn import Dependencies
from ragmem.config import SummariesConfig, ToolsConfig, environment
from ragmem.errors import LLMError, StoreError, UsageError
from ragmem.interface import checked_arguments, checked_strategy, place_of
from ragmem.interface.memory import Folder, OpenMemory, Work
from ragmem.llm.base import LLM
from ragmem.memory.context.builder import Context, ContextBuilder, Counts
from ragmem.memory.context.collect import Place, Strategy
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Instructions, Places
from ragmem.memory.recall import Hit, Question
from ragmem.memory.sessions import SimilarSession, fork_at, similar_sessions
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.records import UNSUMMARIZED, Scope, Session, SessionQuery, ToolCall, Turn, TurnQuery
from ragmem.redact import redact
from ragmem.text import clean
from ragmem.tools.base import Tool, Toolset
from ragmem.tools.memory import SearchMemories, memory_tools

_USER, _ASSISTANT = "user", "assistant"
_CACHED_TURNS = 50


class ConversationMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message: a turn has one of the user and, unless it broke off, one of the model."""

    uuid: str
    """The turn's id and the role, joined with a colon."""
    conversation_id: str
    role: Literal["user", "assistant"]
    content: str
    reasoning: str | None = None
    timestamp: datetime
    tool_calls: tuple[ToolCall, ...] = ()
    token_count: int | None = None
    """The output tokens that the provider reported."""


class ConversationContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a request in a conversation, as chosen by a strategy."""

    strategy: Strategy
    summary: str | None
    recent_messages: tuple[ConversationMessage, ...]
    """The messages that are replayed, in order."""
    message_count: int
    """The number of messages in the whole conversation."""
    request: Context
    """The request itself: its sections, sizes and messages."""

    def text(self) -> str:
        """Return the request as one text."""
        return self.request.text()


@checked_arguments
class Conversation:
    """A conversation, opened by a ConversationAgent. It answers one message at a time."""

    def __init__(self, owner: "ConversationAgent", session: Session, agent: Agent) -> None:
        self._owner = owner
        self._session = session
        self._agent = agent
        self._busy = asyncio.Lock()

    @property
    def uuid(self) -> str:
        """Return the conversation's id, which is that of its session."""
        return self._session.session_id

    @property
    def title(self) -> str:
        """Return the title that it had when it was opened."""
        return self._session.title

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags that it had when it was opened."""
        return self._session.tags

    @property
    def message_cache(self) -> tuple[ConversationMessage, ...]:
        """Return the cached messages, which are used while the store is unavailable."""
        own = self._owner.recorder.local_turns(self.uuid)
        return tuple(message for turn in own for message in messages_of(turn, self.uuid))

    async def session(self) -> Session:
        """Read the session from the store: title, tags, status, summary, counts."""
        return await self._owner.memory.session(self.uuid)

    async def fill_cache(self) -> None:
        """Cache the latest turns, in case the store becomes unavailable."""
        store, query = await self._owner.memory.app.store(), TurnQuery(limit=_CACHED_TURNS)
        self._owner.recorder.remember(self.uuid, await store.turns(self.uuid, query))

    # --- talking ----------------------------------------------------------------

    async def send_message(self, text: str) -> Reply:
        """Store the message, build the context, ask the model with its tools, store the answer.

        Afterwards the turn is embedded and summarized in the background. Raises LLMError if there
        was no answer; the message is stored all the same. Cancelling interrupts the turn.
        """
        async with self._busy:
            reply = await self._agent.send(clean(text))
        if reply.finished.subtype == "error_during_execution":
            raise LLMError(reply.finished.error, hint=reply.finished.hint)
        return reply

    # --- looking back -----------------------------------------------------------

    async def get_history(
        self, limit: int = 100, *, include_tool_calls: bool = True, include_reasoning: bool = True
    ) -> list[ConversationMessage]:
        """Return the newest messages, in order; from the cache if the store is unavailable."""
        if limit < 1:
            return []
        try:
            turns = await (await self._owner.memory.app.store()).turns(
                self.uuid, TurnQuery(limit=limit)
            )
        except StoreError:
            turns = self._owner.recorder.local_turns(self.uuid)
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
        """Find the turns of this conversation that are relevant to a text, best first.

        They contain words of it, or are strictly above the embedder's similarity threshold.
        """
        return await self._owner.recorder.search(
            Question(
                text=clean(query),
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
        """Return the newest matching tool calls, in order."""
        turns = await (await self._owner.memory.app.store()).turns(self.uuid)
        found = [
            call
            for turn in turns
            for call in turn.tool_calls
            if tool_name in (None, call.tool_name) and success in (None, call.success)
        ]
        return found[-limit:] if limit > 0 else []

    async def get_summary(self) -> str | None:
        """Return the conversation's summary; None before there is one."""
        return (await self.session()).summary

    async def summarize(self) -> str:
        """Update the conversation's summary now and store it, also if summarization is disabled.

        Raises UsageError if there are no messages.
        """
        session = await self.session()
        if not session.message_count:
            raise UsageError("There are no turns to summarize yet.")
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
        """Build the context that a message would be sent with; nothing is sent or stored.

        Without a message, the last one is used for recall. The counts only lower what the
        context's budgets allow.
        """
        with suppress(StoreError):
            self._session = await self.session()
        session, owner = self._session, self._owner
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
            clean(user_message) or session.last_message or "",
            builder,
            owner.place(session),
            strategy=checked_strategy(strategy),
        )
        return ConversationContext(
            strategy=strategy,
            summary=session.summary if include_summary else None,
            recent_messages=tuple(m for t in request.turns for m in messages_of(t, self.uuid)),
            message_count=session.message_count,
            request=request,
        )

    # --- moving -----------------------------------------------------------------

    async def export(self) -> dict[str, Any]:
        """Return the conversation as a JSON-compatible value, for `import_conversation`."""
        return await self._owner.memory.app.export_session(self.uuid)

    async def branch(self, from_message_id: str, title: str = "") -> "Conversation":
        """Start a new conversation with a copy of this one up to a message and its answer."""
        turn_id, _, role = from_message_id.partition(":")
        store = await self._owner.memory.app.store()
        session = await self.session()
        own = await store.turns(self.uuid, TurnQuery(with_tool_calls=False))
        turns = [turn for turn in own if turn.turn_id == turn_id]
        if role not in ("", _ASSISTANT, _USER) or not turns:
            raise UsageError(
                f"{from_message_id!r} is not a message of this conversation.",
                hint="Use the uuid of a message from get_history().",
            )
        fork = await fork_at(self._owner.recorder, session, turns[0].turn_index, title=clean(title))
        branch = await self._owner.opened(fork)
        await branch.fill_cache()
        return branch


def messages_of(turn: Turn, conversation_id: str) -> list[ConversationMessage]:
    """Return a turn as one or two messages."""
    asked = ConversationMessage(
        uuid=f"{turn.turn_id}:{_USER}",
        conversation_id=conversation_id,
        role="user",
        content=turn.prompt,
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


class ConversationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an agent's conversations."""

    max_context_messages: int = 20
    """The most messages that are replayed in a request, within the context's budget."""
    enable_summarization: bool = True
    summarize_every: int = SummariesConfig().every_n_messages
    """The interval in messages, of which a turn has two."""
    embed_messages: bool = True
    """False to embed neither messages nor queries, and search by words only."""
    max_iterations: int = ToolsConfig().max_iterations
    """The most requests to the model in one turn."""
    instructions: str = ""
    """Text that is appended to the system prompt."""


@checked_arguments
class ConversationAgent:
    """Opens conversations with a model over a memory; closed with the memory, or earlier.

    Without `llm` the configured model is used (`ragmem models`). `summary_llm` replaces it for
    summaries in the background. Models that are passed in are not closed.
    """

    def __init__(
        self,
        memory: OpenMemory,
        llm: LLM | None = None,
        tools: Sequence[Tool] = (),
        config: ConversationConfig = ConversationConfig(),  # noqa: B008
        *,
        cwd: Folder | None = None,
        summary_llm: LLM | None = None,
    ) -> None:
        app = memory.app
        self.memory = memory
        self.config = config
        self._owns_llm = llm is None
        if llm is None:
            from ragmem.llm.models import choose_model, open_llm

            environ = environment()
            llm = open_llm(choose_model(app.config, environ), app.config, app.paths, environ)
        self.llm: LLM = llm
        self._tools = tuple(tools)
        self._cwd = Path(cwd) if cwd is not None else Path.cwd()
        self._agents = WeakSet[Agent]()
        self._closed = False
        summaries = msgspec.structs.replace(
            app.config.memory.summaries,
            enabled=config.enable_summarization,
            every_n_messages=config.summarize_every,
        )
        self._settings = msgspec.structs.replace(app.config.memory, summaries=summaries)
        embedder = app.embedder if config.embed_messages else None
        self.recorder = Memory(
            app.store,
            self._settings,
            embedder=embedder,
            on_finished=self._turn_finished,
            metrics=app.metrics,
        )
        self._places = Places(self.recorder, app.store, self._cwd)
        self._summarizer = Summarizer(
            summary_llm or self.llm,
            summaries,
            usage=app.usage,
            open_attempts=app.store,
            is_chosen=summary_llm is not None,
        )
        self.work = Work(
            app,
            self.recorder,
            self._summarizer,
            self._settings,
            embedder=embedder,
            learns=config.enable_summarization,
            names_sessions=True,
        )
        memory.join(self.work, self.aclose)

    async def __aenter__(self) -> Self:
        """Return the agent itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the agent."""
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all work; pending work is left to the next process. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        for agent in list(self._agents):
            await agent.aclose()
        self.memory.leave(self.work)
        await self.work.finish()
        await self.work.aclose()
        await self.recorder.aclose()
        if self._owns_llm:
            await self.llm.aclose()

    def _turn_finished(self) -> None:
        self.work.wake()
        self.memory.app.background.keep_usage()

    # --- conversations ----------------------------------------------------------

    async def create_conversation(self, title: str = "", tags: Sequence[str] = ()) -> Conversation:
        """Create a conversation and store it at once."""
        if not self.config.enable_summarization:
            # Stored as a tag, since it applies to every process that works on this store.
            tags = (*tags, UNSUMMARIZED)
        session = await self.memory.new_session(self._cwd, title=title, tags=tags)
        return await self.opened(session)

    async def load_conversation(self, uuid: str) -> Conversation:
        """Open a stored conversation; raises SessionNotFound `Conversation <uuid> not found`."""
        session = await self.memory.session(uuid)
        conversation = await self.opened(session)
        await conversation.fill_cache()
        return conversation

    async def list_conversations(
        self, limit: int = 50, status: str | None = None, tags: Sequence[str] = ()
    ) -> list[Session]:
        """Return the conversations with the status and any of the tags, the latest first."""
        query = SessionQuery(status=status, tags=tuple(tags), limit=limit)
        return await self.recorder.sessions(query)

    async def find_similar_conversations(self, query: str, limit: int = 5) -> list[SimilarSession]:
        """Find conversations whose summaries are similar to a text, nearest first.

        Strictly above the embedder's threshold. Raises UsageError if embeddings are disabled.
        """
        embedder, floor = self.memory.app.embedder, self.recorder.floor
        if embedder is None or floor is None:
            raise UsageError(
                "Can't compare: embeddings are turned off.",
                hint="Set embed_messages, and memory.embeddings.enabled in the settings.",
            )
        store = await self.memory.app.store()
        return await similar_sessions(store, embedder, clean(query), floor=floor, limit=limit)

    async def import_conversation(
        self, exported: Mapping[str, Any], *, as_new: bool = False
    ) -> Conversation:
        """Store a conversation from `Conversation.export`, with all ids renewed if `as_new`."""
        data = redact(msgspec.json.encode(exported).decode()).encode()
        session = await self.memory.app.import_session(data, as_new=as_new)
        self.work.wake()
        return await self.load_conversation(session.session_id)

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Embed and summarize all pending work as configured; return whether none is left."""
        return await self.work.worker.drain(timeout_s)

    # --- used by conversations ----------------------------------------------------

    async def opened(self, session: Session) -> Conversation:
        """Return a conversation in a stored session."""
        agent = Agent(session, await self._dependencies(session))
        self._agents.add(agent)
        return Conversation(self, session, agent)

    def builder(self, counts: Counts) -> ContextBuilder:
        """Return a builder of contexts for this agent's model."""
        return ContextBuilder(self._settings, self.llm.info, counts)

    async def summarize(self, session: Session) -> str:
        """Update a session's summary now and return it."""
        store = await self.memory.app.store()
        return redact(await self.work.worker.summarize_thread(store, self._summarizer, session))

    async def _dependencies(self, session: Session) -> Dependencies:
        tools = list(self._tools)
        if tools:
            # A model with tools also gets those for the memory.
            names = {tool.name for tool in tools}
            own = memory_tools(self.recorder, session, self._settings.scope)
            tools += [tool for tool in own if tool.name not in names]
        return Dependencies(
            llm=self.llm,
            owns_llm=False,
            memory=self.recorder,
            toolset=Toolset(tools),
            builder=self.builder(Counts(at_most=self.config.max_context_messages)),
            place=msgspec.structs.replace(
                self.place(session),
                memory_tools=any(isinstance(tool, SearchMemories) for tool in tools),
            ),
            project=await self._places.project_of(session),
            max_iterations=self.config.max_iterations,
            offers_tools=self.llm.info.supports_tools,
        )

    def place(self, session: Session) -> Place:
        """Return the place that a session's model is told, with the caller's instructions only."""
        return place_of(session, Instructions(self.config.instructions, ()))
