"""ConversationAgent: section B's agent, over an open memory and any model and tools."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from ragmem.agent import Agent, Dependencies, Limits
from ragmem.background import extractor
from ragmem.config import environment
from ragmem.errors import StoreError, UsageError
from ragmem.ids import new_id
from ragmem.interface import shapes
from ragmem.interface.conversation import Conversation
from ragmem.interface.memory import OpenMemory
from ragmem.interface.values import Folder, Work
from ragmem.llm.base import LLM, Chunk, Request
from ragmem.memory.context import ContextBuilder, Counts, Place
from ragmem.memory.files import shown_path
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Instructions
from ragmem.memory.recall import SimilarSession, similar_sessions
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.worker import Worker
from ragmem.records import UNSUMMARIZED, Project, Session, SessionQuery
from ragmem.redact import redact
from ragmem.tools.base import Tool, Toolset
from ragmem.tools.memory import SearchMemories, memory_tools


class ConversationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How its conversations work."""

    max_context_messages: int = 20
    """The latest so many at most are replayed in a request, within the context's budget."""
    enable_summarization: bool = True
    summarize_every: int = 10
    """Messages; a turn has two."""
    embed_messages: bool = True
    """False: nothing is embedded, neither what is said nor what is asked; words are searched."""
    max_iterations: int = 25
    """Calls of the model in one turn."""
    instructions: str = ""
    """Text for the model, behind the system prompt."""

    def __post_init__(self) -> None:
        """Counts are of something."""
        for name in ("max_context_messages", "summarize_every", "max_iterations"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it is 1 or more.")


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
        parts = memory.parts
        self.memory = memory
        self.config = config
        self._own_llm = None if llm else _configured_llm(memory)
        self.llm: LLM = llm or cast(LLM, self._own_llm)
        self._tools = tuple(tools)
        self._cwd = Path(cwd) if cwd is not None else Path.cwd()
        self._conversations: list[Conversation] = []
        self._closed = False
        summaries = msgspec.structs.replace(
            parts.config.memory.summaries,
            enabled=config.enable_summarization,
            every_n_messages=config.summarize_every,
        )
        self._settings = msgspec.structs.replace(parts.config.memory, summaries=summaries)
        embedder = parts.embedder if config.embed_messages else None
        self.recorder = Memory(
            parts.open_store,
            self._settings,
            embedder=embedder,
            on_finished=lambda: self.work.wake(),
            metrics=parts.metrics,
        )
        self._summarizer = Summarizer(
            summary_llm or self.llm,
            summaries,
            usage=parts.usage,
            open_attempts=parts.open_store,
        )
        self._worker = Worker(
            parts.open_store,
            new_id(),
            embedder=embedder,
            summarizer=self._summarizer,
            extractor=extractor(
                self.recorder.facts,
                self._summarizer if config.enable_summarization else None,
                parts.config,
                parts.metrics,
            )
            if self.recorder.facts
            else None,
            config=summaries,
            names_sessions=True,
            metrics=parts.metrics,
        )
        self.work = Work(self._worker, runs=parts.config.memory.worker != "off")
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
        await self.memory.finish(self.work)
        await self.work.aclose()
        await self.recorder.aclose()
        if self._own_llm:
            await self._own_llm.aclose()

    # --- conversations ----------------------------------------------------------

    async def create_conversation(self, title: str = "", tags: Sequence[str] = ()) -> Conversation:
        """A new one, stored at once."""
        if not self.config.enable_summarization:
            # It holds for whoever works on what is pending in the store.
            tags = (*tags, UNSUMMARIZED)
        session = await self.memory.new_session(self._cwd, title=title, tags=tags)
        return await self._opened(session)

    async def load_conversation(self, uuid: str) -> Conversation:
        """One that there is; SessionNotFound `Conversation <uuid> not found`."""
        session = await self.memory.session(uuid)
        conversation = await self._opened(session)
        await conversation.fill_cache()
        return conversation

    async def list_conversations(
        self, limit: int = 50, status: str | None = None, tags: Sequence[str] = ()
    ) -> list[Session]:
        """The latest first; of these all that have the status and any of the tags."""
        query = SessionQuery(status=status, tags=tuple(tags), limit=limit)
        return await self.recorder.sessions(query)

    async def find_similar_conversations(self, query: str, limit: int = 5) -> list[SimilarSession]:
        """Those whose summaries are like a text, nearest first.

        Strictly above the embedder's threshold. UsageError where nothing is embedded.
        """
        embedder, floor = self.memory.parts.embedder, self.recorder.floor
        if embedder is None or floor is None:
            raise UsageError(
                "Nothing is embedded here, so nothing can be compared.",
                hint="Set embed_messages, and memory.embeddings.enabled in the settings.",
            )
        text = shapes.text(query, "query")
        return await similar_sessions(
            await self.memory.parts.open_store(), embedder, text, floor=floor, limit=limit
        )

    async def import_conversation(
        self, exported: Mapping[str, Any] | str | bytes, *, as_new: bool = False
    ) -> Conversation:
        """One that `Conversation.export` gave; `as_new` gives everything new ids."""
        if isinstance(exported, Mapping):
            exported = msgspec.json.encode(exported)
        text = exported if isinstance(exported, str) else exported.decode("utf-8", "replace")
        data = redact(text).encode("utf-8", "surrogateescape")
        session = await self.memory.parts.take_in(data, as_new=as_new)
        self.work.wake()
        return await self.load_conversation(session.session_id)

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until what is pending is embedded and summed up as this agent is told to."""
        return await self.work.drain(timeout_s)

    # --- for its conversations ----------------------------------------------------

    async def opened(self, session: Session) -> Conversation:
        """A conversation in a session that is stored."""
        return await self._opened(session)

    def builder(self, counts: Counts) -> ContextBuilder:
        """Shapes contexts for its model."""
        return ContextBuilder(self._settings, self.llm.info, counts)

    async def summarize(self, session: Session) -> str:
        """Renew a session's own summary now."""
        store = await self.memory.parts.open_store()
        return redact(await self._worker.summarize_thread(store, self._summarizer, session))

    async def _opened(self, session: Session) -> Conversation:
        project = await self._project_of(session)
        conversation = Conversation(
            self, session, Agent(session, self._dependencies(session, project))
        )
        self._conversations.append(conversation)
        return conversation

    async def _project_of(self, session: Session) -> Project:
        with suppress(StoreError):
            for project in await (await self.memory.parts.open_store()).projects():
                if project.root_id == session.project_id and project.path == session.project_path:
                    return project
        return Project(
            project_id=session.project_id,
            path=session.project_path or session.cwd,
            created_at=session.started_at,
        )

    def _dependencies(self, session: Session, project: Project) -> Dependencies:
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
            project=project,
            limits=Limits(max_iterations=self.config.max_iterations),
            offers_tools=self.llm.info.supports_tools,
        )

    def place(self, session: Session) -> Place:
        """Where a session's model believes to be; it is told nothing that the caller did not."""
        cwd = Path(session.cwd)
        top = Path(session.project_path or session.cwd)
        return Place(
            cwd=cwd,
            project=top,
            instructions=Instructions(self.config.instructions, ()),
            session_id=session.session_id,
            show_path=partial(shown_path, cwd=cwd, project=top),
        )


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


def _configured_llm(memory: OpenMemory) -> LLM:
    from ragmem.llm.models import choose_model, open_llm

    parts, environ = memory.parts, environment()
    return open_llm(choose_model(parts.config, environ), parts.config, parts.paths, environ)
