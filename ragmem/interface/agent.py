"""Conversations with a model: ragmem's agent, over an open memory and any model and tools."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from ragmem.agent import Agent, Reply
from ragmem.agent.turn import Dependencies, Limits
from ragmem.config import SummariesConfig, ToolsConfig, environment
from ragmem.errors import LLMError, StoreError, UsageError
from ragmem.interface import checked_arguments, checked_strategy, place_of
from ragmem.interface.memory import Folder, OpenMemory, Work
from ragmem.llm.base import LLM, Chunk, Request
from ragmem.memory.context.builder import Context, ContextBuilder, Counts
from ragmem.memory.context.collect import Place, Strategy
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Instructions, Places
from ragmem.memory.recall import Hit, Question
from ragmem.memory.recording import redacted
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
        """Return the request as one text."""
        return self.request.text()


@checked_arguments
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
        """Return the conversation's id: that of the session."""
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
        """What this object knows without the store: it stands in while that is away."""
        return tuple(message for turn in self._cache for message in messages_of(turn, self.uuid))

    async def session(self) -> Session:
        """The session as it is stored now: title, tags, status, summary, counts."""
        return await self._owner.memory.session(self.uuid)

    async def fill_cache(self) -> None:
        """Read the latest turns, for when the store is away."""
        query = TurnQuery(limit=_CACHED_TURNS)
        self._cache = await (await self._owner.memory.app.store()).turns(self.uuid, query)
        self._owner.recorder.remember(self.uuid, self._cache)

    # --- talking ----------------------------------------------------------------

    async def send_message(self, text: str) -> Reply:
        """Store the message, build the context, ask the model with its tools, store the answer.

        Then, in the background, embed and sum up. LLMError when no answer came:
        what was said is stored all the same. Cancelling it ends the turn as interrupted.
        """
        async with self._busy:
            prompt = clean(text)
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
            turns = await (await self._owner.memory.app.store()).turns(
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
        """The newest so many that match, in order."""
        turns = await (await self._owner.memory.app.store()).turns(self.uuid)
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
        """What the model would be told with a message; nothing is sent or stored.

        Without a message what bears on the last one is recalled. Counts are within the
        context's budgets: without them the budgets alone count.
        """
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
            clean(user_message) or session.last_message or "",
            builder,
            owner.place(session),
            strategy=checked_strategy(strategy),
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
        """Return all of it as a value that JSON can hold; `import_conversation` takes it back."""
        return await self._owner.memory.app.export_session(self.uuid)

    async def branch(self, from_message_id: str, title: str = "") -> "Conversation":
        """A new conversation that begins with this one, up to and with a message and its answer."""
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

    async def aclose(self) -> None:
        """End the message that is being answered."""
        await self._agent.aclose()


def messages_of(turn: Turn, conversation_id: str) -> list[ConversationMessage]:
    """Return a turn as messages."""
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
    """How its conversations work."""

    max_context_messages: int = 20
    """The latest so many at most are replayed in a request, within the context's budget."""
    enable_summarization: bool = True
    summarize_every: int = SummariesConfig().every_n_messages
    """Messages; a turn has two."""
    embed_messages: bool = True
    """False: nothing is embedded, neither what is said nor what is asked; words are searched."""
    max_iterations: int = ToolsConfig().max_iterations
    """Calls of the model in one turn."""
    instructions: str = ""
    """Text for the model, behind the system prompt."""


@checked_arguments
class ConversationAgent:
    """Conversations with a model that remembers; closed with the memory, or before.

    Without `llm` it is the model that is configured (`ragmem models`); `summary_llm` sums up
    in the background instead of it. One that is handed in stays open.
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
        self._conversations: list[Conversation] = []
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
            on_finished=lambda: self.work.wake(),
            metrics=app.metrics,
        )
        self._places = Places(self.recorder, app.store, self._cwd)
        self._summarizer = Summarizer(
            summary_llm or self.llm,
            summaries,
            usage=app.usage,
            open_attempts=app.store,
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
        """Itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends what runs."""
        await self.aclose()

    async def aclose(self) -> None:
        """End what runs; what is pending is found by the next. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        conversations, self._conversations = self._conversations, []
        for conversation in conversations:
            await conversation.aclose()
        self.memory.leave(self.work)
        await self.work.finish()
        await self.work.aclose()
        await self.recorder.aclose()
        if self._owns_llm:
            await self.llm.aclose()

    # --- conversations ----------------------------------------------------------

    async def create_conversation(self, title: str = "", tags: Sequence[str] = ()) -> Conversation:
        """A new one, stored at once."""
        if not self.config.enable_summarization:
            # It holds for whoever works on what is pending in the store.
            tags = (*tags, UNSUMMARIZED)
        session = await self.memory.new_session(self._cwd, title=title, tags=tags)
        return await self.opened(session)

    async def load_conversation(self, uuid: str) -> Conversation:
        """Open one that there is; SessionNotFound `Conversation <uuid> not found`."""
        session = await self.memory.session(uuid)
        conversation = await self.opened(session)
        await conversation.fill_cache()
        return conversation

    async def list_conversations(
        self, limit: int = 50, status: str | None = None, tags: Sequence[str] = ()
    ) -> list[Session]:
        """The latest first; of these all that have the status and any of the tags."""
        query = SessionQuery(status=status, tags=tuple(tags), limit=limit)
        return await self.recorder.sessions(query)

    async def find_similar_conversations(self, query: str, limit: int = 5) -> list[SimilarSession]:
        """Find those whose summaries are like a text, nearest first.

        Strictly above the embedder's threshold. UsageError where nothing is embedded.
        """
        embedder, floor = self.memory.app.embedder, self.recorder.floor
        if embedder is None or floor is None:
            raise UsageError(
                "Can't compare: embeddings are turned off.",
                hint="Set embed_messages, and memory.embeddings.enabled in the settings.",
            )
        text = clean(query)
        return await similar_sessions(
            await self.memory.app.store(), embedder, text, floor=floor, limit=limit
        )

    async def import_conversation(
        self, exported: Mapping[str, Any], *, as_new: bool = False
    ) -> Conversation:
        """Store one that `Conversation.export` gave; `as_new` gives everything new ids."""
        data = redact(msgspec.json.encode(exported).decode()).encode()
        session = await self.memory.app.import_session(data, as_new=as_new)
        self.work.wake()
        return await self.load_conversation(session.session_id)

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until what is pending is embedded and summed up as this agent is told to."""
        return await self.work.drain(timeout_s)

    # --- for its conversations ----------------------------------------------------

    async def opened(self, session: Session) -> Conversation:
        """A conversation in a session that is stored."""
        agent = Agent(session, await self._dependencies(session))
        self._conversations.append(conversation := Conversation(self, session, agent))
        return conversation

    def builder(self, counts: Counts) -> ContextBuilder:
        """Return what shapes contexts for its model."""
        return ContextBuilder(self._settings, self.llm.info, counts)

    async def summarize(self, session: Session) -> str:
        """Renew a session's own summary now."""
        store = await self.memory.app.store()
        return redact(await self.work.worker.summarize_thread(store, self._summarizer, session))

    async def _dependencies(self, session: Session) -> Dependencies:
        tools = list(self._tools)
        if tools:
            # A model that has tools at all has those of the memory too.
            names = {tool.name for tool in tools}
            own = memory_tools(self.recorder, session, self._settings.scope)
            tools += [tool for tool in own if tool.name not in names]
        return Dependencies(
            llm=_Lent(self.llm),
            memory=self.recorder,
            toolset=Toolset(tools),
            builder=self.builder(Counts(at_most=self.config.max_context_messages)),
            place=msgspec.structs.replace(
                self.place(session),
                memory_tools=any(isinstance(tool, SearchMemories) for tool in tools),
            ),
            project=await self._places.project_of(session),
            limits=Limits(max_iterations=self.config.max_iterations),
            offers_tools=self.llm.info.supports_tools,
        )

    def place(self, session: Session) -> Place:
        """Return where a session's model believes to be: it is told only what the caller said."""
        return place_of(session, Instructions(self.config.instructions, ()))


class _Lent:
    """A model that others use too: not to be closed with one conversation."""

    def __init__(self, llm: LLM) -> None:
        self.info = llm.info
        self._llm = llm

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        return self._llm.stream(request)

    async def prepare(self) -> None:
        await self._llm.prepare()

    async def aclose(self) -> None:
        """Its owner does."""
