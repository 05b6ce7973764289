"""An open memory for programs: sessions, turns, summaries, search, context.

It consists of the same parts as the command line's: writes go through the spool, with secrets
redacted; the worker embeds and summarizes; the context is that of `ragmem context`.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from ragmem.app import App
from ragmem.background import INLINE_S, extractor, summary_model
from ragmem.config import MemoryConfig, ScopeName, environment
from ragmem.config.address import resolve
from ragmem.embedder import Embedder
from ragmem.errors import MemoryOff, StoreError, StoreUnavailable, UsageError
from ragmem.ids import new_id
from ragmem.interface import (
    GivenCall,
    calls_of,
    checked,
    checked_arguments,
    checked_strategy,
    clipped,
    found_session,
    local_time,
    place_of,
    scope_around,
    wanted_levels,
    writes_of,
)
from ragmem.llm.base import LLM, ModelInfo
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import FILES_CHARS, Newest, Strategy
from ragmem.memory.leases import leased
from ragmem.memory.memory import Memory, SessionTurns
from ragmem.memory.projects import folder_name, normalize_cwd, project_of_folder
from ragmem.memory.recall import Hit, Question
from ragmem.memory.recording import kept, redacted
from ragmem.memory.summaries import summary_id, to_roll_up
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.turns import locator
from ragmem.memory.worker import Worker
from ragmem.records import (
    AddSummary,
    Applied,
    FileAccess,
    Scope,
    Session,
    SessionQuery,
    Summary,
    Turn,
    TurnQuery,
    Write,
    utc_now,
)
from ragmem.text import clean

Folder = str | os.PathLike[str]
Where = ScopeName | Scope | Path
"""Where to search: a scope by name, relative to the session, a Scope, or a folder's project."""


@checked
@asynccontextmanager
async def open_memory(
    url: str | None = None, home: Folder | None = None
) -> AsyncIterator["OpenMemory"]:
    """Open the memory for a program: `async with open_memory() as memory`; see docs/python.md.

    `url` names a store, `sqlite:///path` or `bolt://…`, instead of the configured one; `home`
    is the folder of settings and data instead of RAGMEM_HOME. Raises a RagmemError if the memory
    can't be opened.
    """
    config, paths, where = resolve(url, home, environment())
    async with App(config, paths, cwd=paths.data_dir, address=where) as app, OpenMemory(app) as own:
        yield own


class Work:
    """A background worker that runs as `memory.worker` says."""

    def __init__(
        self,
        app: App,
        memory: Memory,
        summarizer: Summarizer | None,
        config: MemoryConfig,
        *,
        embedder: Embedder | None,
        learns: bool,
        names_sessions: bool = False,
    ) -> None:
        """With `learns` the model for summaries is asked for facts too."""
        asker = summarizer if learns else None
        self.worker = Worker(
            app.store,
            new_id(),
            embedder=embedder,
            summarizer=summarizer,
            extractor=extractor(memory.facts, asker, app.config, app.metrics)
            if memory.facts
            else None,
            config=config.summaries,
            names_sessions=names_sessions,
            metrics=app.metrics,
        )
        self._is_enabled = app.config.memory.worker != "off"
        self._inline = app.config.memory.worker == "inline"

    def wake(self) -> None:
        """Start pending work in the background, unless `memory.worker` is off."""
        self.begin()
        self.worker.wake()

    def begin(self) -> None:
        """Start the worker if it was never started: earlier processes may have left work."""
        if self._is_enabled:
            self.worker.start()

    async def finish(self) -> None:
        """Do the remaining work before the memory is closed, if `memory.worker` is inline."""
        if self._inline:
            with suppress(StoreError):
                await self.worker.drain(INLINE_S)

    async def aclose(self) -> None:
        """Stop; pending work is left to the next process that opens the memory."""
        self._is_enabled = False
        await self.worker.aclose()


_LEASE_S = 60.0
_RETRY_S = 0.2
_RECENT_TURNS, _RECENT_CHARS = 3, 5_000
"""The defaults of `get_recent_turns`, as in a context."""
_FINISHED = ("completed", "interrupted", "failed")
_NO_LIMIT = 1_000_000
_ANY_MODEL = ModelInfo(name="")


@checked_arguments
class OpenMemory:
    """An open memory, returned by `ragmem.open_memory`. All methods raise RagmemErrors."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._memory = app.memory
        self._llm: LLM | None = None
        self._own_work: Work | None = None
        self._agents_work: list[Work] = []
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._notices: list[str] = []
        self._locate = Newest[Callable[[str], str]]()
        """Cached for when the store is unavailable."""

    async def __aenter__(self) -> Self:
        """Open the store, so that errors are raised here rather than later."""
        if not self._memory.records:
            raise MemoryOff
        await (await self.app.store()).sessions(SessionQuery(limit=1))
        self._notices += filter(None, [await self.app.background.vectors_notice()])
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Stop all work; pending work is left to the next process that opens the memory."""
        async with AsyncExitStack() as stack:
            if self._llm:
                stack.push_async_callback(self._llm.aclose)
            if self._own_work:
                stack.push_async_callback(self._own_work.aclose)
                if kind is None:
                    stack.push_async_callback(self._own_work.finish)
            for close in self._closing:
                stack.push_async_callback(close)

    # --- sessions ---------------------------------------------------------------

    async def create_session(
        self,
        cwd: Folder,
        project_path: Folder | None = None,
        *,
        title: str = "",
        tags: Sequence[str] = (),
    ) -> str:
        """Create a session in a folder, store it at once, and return its id.

        Its project is the folder `project_path`, else the one that contains `cwd`.
        """
        session = await self.new_session(cwd, project_path, title=title, tags=tags)
        return session.session_id

    async def new_session(
        self,
        cwd: Folder,
        project_path: Folder | None = None,
        *,
        title: str = "",
        tags: Sequence[str] = (),
    ) -> Session:
        """Do the same as `create_session`, but return the session."""
        if project_path is None:
            project = (await self._memory.project_of(Path(cwd))).project
        else:
            known = await (await self.app.store()).projects()
            project = project_of_folder(normalize_cwd(Path(project_path)), known, now=utc_now())
        session = self._memory.new_session(Path(cwd), project, title=clean(title))
        words = tuple(dict.fromkeys(clean(tag) for tag in tags))
        session = msgspec.structs.replace(session, tags=words)
        await self._memory.create_session(session, project)
        self._locate[session.session_id] = locator(session)
        return session

    async def get_sessions_by_cwd(self, cwd: Folder) -> list[Session]:
        """Return the sessions that were started in a folder, newest activity first."""
        query = SessionQuery(cwd=folder_name(normalize_cwd(Path(cwd))), limit=_NO_LIMIT)
        return await self._memory.sessions(query)

    async def load_session(self, session_id: str) -> SessionTurns:
        """Return a session with all its turns and tool calls; raises SessionNotFound."""
        return await self._memory.load_session(clean(session_id))

    # --- turns ------------------------------------------------------------------

    async def store_turn(
        self,
        session_id: str,
        user_message: str,
        assistant_message: str,
        tool_calls: Iterable[GivenCall] = (),
        timestamp: datetime | None = None,
        *,
        reasoning: str | None = None,
        model: str | None = None,
    ) -> Turn:
        """Store a completed turn and its tool calls in one transaction; it is embedded later.

        `timestamp` is when it was completed, by default now; a naive one is local time. Returns
        the turn as stored, with secrets redacted. While the store is unavailable, the turn is
        spooled to this machine's disk, and its index is 0.
        """
        started = time.perf_counter()
        at = local_time(timestamp, utc_now())
        turn_id = new_id()
        turn = Turn(
            turn_id=turn_id,
            session_id=clean(session_id),
            user_message=clean(user_message),
            assistant_message=clean(assistant_message),
            reasoning=reasoning and clean(reasoning),
            model=model,
            status="completed",
            started_at=at,
            finished_at=at,
            tool_calls=calls_of(tool_calls, turn_id=turn_id, at=at),
        )
        locate = await self._locator_of(session_id) if turn.tool_calls else str
        applied = await self._write(writes_of(turn, locate), "turn")
        self.app.metrics.took("store.turn", (time.perf_counter() - started) * 1000)
        self._work.wake()
        index = applied.turn_indexes.get(turn.turn_id, 0)
        return redacted(msgspec.structs.replace(turn, turn_index=index))

    async def _locator_of(self, session_id: str) -> Callable[[str], str]:
        if session_id not in self._locate:
            self._locate[session_id] = locator(await self.session(session_id))
        return self._locate[session_id]

    async def get_recent_turns(
        self, session_id: str, *, max_chars: int | None = None, limit: int | None = None
    ) -> list[Turn]:
        """Return the newest turns, in order: at most `limit`, and `max_chars` characters.

        Without either, 3 turns and 5,000 characters. The newest is always returned, with its
        middle cut out if it alone is longer.
        """
        await self.session(session_id)
        if max_chars is None and limit is None:
            limit, max_chars = _RECENT_TURNS, _RECENT_CHARS
        query = TurnQuery(limit=limit, max_chars=max_chars, statuses=_FINISHED)
        turns = await (await self.app.store()).turns(session_id, query)
        if max_chars is not None and len(turns) == 1:
            return [clipped(turns[0], max_chars)]
        return turns

    async def get_raw_history_char_count(self, session_id: str) -> int:
        """Return the number of characters in completed turns without a level 1 summary."""
        await self.session(session_id)
        return await (await self.app.store()).raw_history_chars(session_id)

    async def get_recently_accessed_files(
        self, session_id: str, *, max_chars: int = FILES_CHARS
    ) -> list[FileAccess]:
        """Return the latest access to each file, the latest first.

        Looks at the latest turns within ten times `max_chars`, and returns at most one path
        per 50 characters.
        """
        return await self._memory.accessed_files(clean(session_id), max_chars=max_chars)

    # --- summaries --------------------------------------------------------------

    async def store_summary(
        self,
        session_id: str,
        summary: Summary | str,
        level: int | None = None,
        parent_ids: Sequence[str] = (),
    ) -> Summary:
        """Store a summary with links to the turns or summaries that it covers.

        `level` and `parent_ids` override those of a `Summary`, as from `summarize_turn`. It is
        embedded later.
        """
        await self.session(session_id)
        made = await self._checked(session_id, summary, level, tuple(parent_ids))
        return await self._store_summary(made)

    async def get_level1_summaries_not_summarized(
        self, session_id: str, *, limit: int | None = 10
    ) -> list[Summary]:
        """Return the level 1 summaries that no level 2 summary covers, newest first."""
        await self.session(session_id)
        store = await self.app.store()
        return await store.summaries(session_id, level=1, not_rolled_up=True, limit=limit)

    async def summarize_turn(self, turn: Turn) -> Summary:
        """Return a turn's level 1 summary without storing it; an excerpt if no model is set."""
        locate = await self._locator_of(turn.session_id)
        if turn.status != "completed":
            raise UsageError(
                f"The turn {turn.turn_id} is {turn.status}; only completed turns can be summarized."
            )
        await self._summarizer.consider(await self.app.store(), [turn.session_id])
        return await self._summarizer.summarize_turn(turn, locate=locate)

    async def summarize_summaries(self, session_id: str, level: int) -> Summary:
        """Summarize all pending summaries of a level as one of the next level, and store it."""
        await self.session(session_id)
        store, owner_id = await self.app.store(), new_id()
        await self._summarizer.consider(store, [session_id])
        while True:
            # Leased, so that no two processes do it at once.
            async with leased(store, [f"roll_up:{session_id}"], owner_id, seconds=_LEASE_S) as mine:
                if mine:
                    waiting = await to_roll_up(store, session_id, level) if level >= 1 else []
                    if not waiting:
                        raise UsageError(f"There are no summaries of level {level} to summarize.")
                    made = await self._summarizer.summarize_summaries(session_id, waiting)
                    return await self._store_summary(made)
            await asyncio.sleep(_RETRY_S)

    @cached_property
    def _summarizer(self) -> Summarizer:
        """Return the summarizer, which is created on first use."""
        app = self.app
        named = app.config.model.summary or app.config.model.main
        # An API key alone doesn't count: a model has to be set explicitly.
        self._llm = summary_model(app.config, app.paths) if named else None
        return Summarizer(
            self._llm,
            app.config.memory.summaries,
            usage=app.usage,
            open_attempts=app.store,
            is_chosen=bool(app.config.model.summary),
        )

    async def _checked(
        self, session_id: str, given: Summary | str, level: int | None, covers: tuple[str, ...]
    ) -> Summary:
        """Complete a program's summary; raises UsageError if what it covers doesn't exist."""
        told = given
        if isinstance(told, str):
            told = Summary(
                summary_id="",
                session_id="",
                text=clean(told),
                level=1,
                turn_count=0,
                created_at=utc_now(),
                covers=(),
            )
        made = msgspec.structs.replace(
            told,
            session_id=session_id,
            level=told.level if level is None else level,
            covers=covers or told.covers,
        )
        count = await self._count_turns(made)
        if made != given:
            own_id = summary_id(session_id, made.level, made.covers)
            made = msgspec.structs.replace(made, summary_id=own_id)
        return msgspec.structs.replace(made, turn_count=count)

    async def _count_turns(self, summary: Summary) -> int:
        """Return the number of turns that a summary covers; raises UsageError if one is missing."""
        if summary.level < 1:
            raise UsageError(f"A summary's level must be 1 or more, not {summary.level!r}.")
        if not summary.covers:
            raise UsageError(
                "A summary needs parent_ids.",
                hint="Give the ids of turns for level 1, of summaries one level below otherwise.",
            )
        store = await self.app.store()
        if summary.level == 1:
            counts = {turn.turn_id: 1 for turn in await store.get(Turn, summary.covers)}
            what = "turn"
        else:
            below = await store.get(Summary, summary.covers)
            counts = {s.summary_id: s.turn_count for s in below if s.level == summary.level - 1}
            what = f"summary of level {summary.level - 1}"
        if missing := [each for each in summary.covers if each not in counts]:
            raise UsageError(f"No {what} {missing[0]}.")
        return sum(counts.values())

    async def _store_summary(self, summary: Summary) -> Summary:
        """Store a summary; return it as stored, with secrets redacted."""
        write = AddSummary(summary=summary)
        await self._write([write], "summary")
        self._work.wake()
        return redacted(write).summary

    # --- recall -----------------------------------------------------------------

    async def search_conversation_history(
        self,
        session_id: str | None,
        query: str,
        *,
        semantic: bool = True,
        max_results: int = 5,
        include_turns: bool = True,
        levels: Iterable[int] | None = None,
        scope: Where | None = None,
        min_similarity: float | None = None,
    ) -> list[Hit]:
        """Find the turns and summaries most relevant to a text, best first.

        `scope` defaults to `memory.scope` if there is a session (itself, or also the others of its
        project), else to the whole store. With `semantic=False` only words are searched.
        """
        self._work.begin()
        session = await self.session(session_id) if session_id is not None else None
        wanted = wanted_levels(levels, include_turns=include_turns)
        if wanted is None:
            return []
        return await self._memory.search(
            Question(
                text=clean(query),
                scope=await self._scope(session, scope),
                session_id=session.session_id if session else "",
                semantic=semantic,
                max_results=max_results,
                levels=wanted,
                min_similarity=min_similarity,
            )
        )

    async def _scope(self, session: Session | None, scope: Where | None) -> Scope:
        if isinstance(scope, Path):
            project = (await self._memory.project_of(scope)).project
            return Scope(project_ids=(project.root_id,))
        return scope_around(session, scope, default=self.app.config.memory.scope)

    async def build_context(
        self, session_id: str, user_message: str, strategy: Strategy = "hybrid"
    ) -> Context:
        """Build the context that a message would be sent with; nothing is stored."""
        self._work.begin()
        session = await self.session(session_id)
        builder = ContextBuilder(self.app.config.memory, self._model_info())
        return await self._memory.build_context(
            session,
            clean(user_message),
            builder,
            place_of(session),
            strategy=checked_strategy(strategy),
        )

    def _model_info(self) -> ModelInfo:
        config = self.app.config
        if not config.model.main:
            return _ANY_MODEL
        from ragmem.llm.models import choose_model

        return choose_model(config, environment()).info

    # --- background -------------------------------------------------------------

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is pending: embeddings, and summaries if a model is set.

        Returns False if the time is over or something failed. Work that another process has
        leased is left to it.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        done = True
        for work in (*self._agents_work, self._work):
            done &= await work.worker.drain(until and until - time.monotonic())
        return done and not await self.app.background.foreign_vectors()

    @property
    def _work(self) -> Work:
        if self._own_work is None:
            # Background work uses only a model that was set explicitly.
            made = self._summarizer
            asker = made if self._llm else None
            self._own_work = Work(
                self.app,
                self._memory,
                asker,
                self.app.config.memory,
                embedder=self.app.embedder,
                learns=True,
            )
        return self._own_work

    def join(self, work: Work, close: Callable[[], Awaitable[None]]) -> None:
        """Register an agent's work: `drain` waits for it, and it is closed with the memory."""
        self._agents_work.append(work)
        self._closing.append(close)

    def leave(self, work: Work) -> None:
        """Unregister the work of a closed agent; this memory's worker does what it left."""
        self._agents_work = [other for other in self._agents_work if other is not work]

    def notices(self) -> list[str]:
        """Return new messages to show to the user, such as that the store was unavailable."""
        notices, self._notices = self._notices, []
        return [*notices, *self.app.notices()]

    # --- the store --------------------------------------------------------------

    async def session(self, session_id: str) -> Session:
        """Return the session with an id; raises SessionNotFound."""
        return await found_session(await self.app.store(), session_id)

    async def _write(self, writes: Sequence[Write], what: str) -> Applied:
        applied = await self._memory.record(writes)
        if applied is None or not kept(applied):
            raise StoreUnavailable(
                f"The store is unavailable and there is no space to queue the {what}; it was not "
                "stored.",
                hint="Free disk space or fix the store, then store it again.",
            )
        return applied
