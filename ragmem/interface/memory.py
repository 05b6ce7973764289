"""An open memory, as a program uses it: sessions, turns, summaries, search, context.

The same parts as the product's: writes go through its spool and without secrets, what is
embedded and summed up is done by its worker, and the context is that of `ragmem context`.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ragmem.app import App
from ragmem.background import INLINE_S, extractor, summary_model
from ragmem.config import MemoryConfig, ScopeName, environment
from ragmem.config.address import resolve
from ragmem.embedder import Embedder
from ragmem.errors import StoreError, StoreUnavailable, UsageError
from ragmem.ids import new_id
from ragmem.interface import (
    GivenCall,
    checked,
    checked_arguments,
    checked_calls,
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
from ragmem.memory.context.collect import Strategy
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
"""Where to search: around the session (by name), a scope, or the project of a folder."""


@checked
@asynccontextmanager
async def open_memory(
    url: str | None = None, home: Folder | None = None
) -> AsyncIterator["OpenMemory"]:
    """The memory, for a program: `async with open_memory() as memory`; see docs/python.md.

    `url` names a store, `sqlite:///path` or `bolt://…`, instead of the configured one; `home`
    is the folder of settings and data instead of RAGMEM_HOME. Raises a RagmemError, at once,
    when the memory can't be opened.
    """
    config, paths, where = resolve(url, home, environment())
    async with App(config, paths, cwd=paths.data_dir, address=where) as app, OpenMemory(app) as own:
        yield own


class Work:
    """One worker; while `drain` waits for it, nothing else runs it."""

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
        """`learns`: the model of the summaries is asked for facts too."""
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
        self._runs = app.config.memory.worker != "off"
        self._inline = app.config.memory.worker == "inline"
        self._drain = asyncio.Lock()
        self._started = False

    def wake(self) -> None:
        """Begin what there is to do, in the background, where that is wanted."""
        self._started = self._runs
        if self._runs and not self._drain.locked():
            self.worker.start()
            self.worker.wake()

    def begin(self) -> None:
        """What others left may be done meanwhile."""
        if not self._started:
            self.wake()

    async def drain(self, limit_s: float | None) -> bool:
        """Do all that is pending, for at most so long; whether nothing is left. StoreError."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                await self._drain.acquire()
        except TimeoutError:
            return False
        try:
            await self.worker.aclose()
            left_s = None if limit_s is None else limit_s - (time.monotonic() - started)
            return await self.worker.drain(left_s)
        finally:
            self._drain.release()
            if self._started:
                self.worker.start()

    async def finish(self) -> None:
        """What is left, before the memory is closed, if it is to be done then."""
        if self._inline:
            with suppress(StoreError):
                await self.drain(INLINE_S)

    async def aclose(self) -> None:
        """Stop; what is left is done by the next who opens the memory."""
        self._runs = self._started = False
        await self.worker.aclose()


_LEASE_S = 60.0
_AGAIN_S = 0.2
_RECENT_TURNS, _RECENT_CHARS = 3, 5_000
"""What a context shows of recent turns."""
_FINISHED = ("completed", "interrupted", "failed")
_NO_LIMIT = 1_000_000
_ANY_MODEL = ModelInfo(name="")


@checked_arguments
class OpenMemory:
    """See the module's text; made by `ragmem.open_memory`. Each method raises RagmemErrors."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._memory = app.memory
        self._llm: LLM | None = None
        self._made: Summarizer | None = None
        self._own: Work | None = None
        self._others: list[Work] = []
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._notices: list[str] = []
        self._foreign = ""
        self._locate: dict[str, Callable[[str], str]] = {}
        """By the session's id: while the store is away it can't be asked."""

    async def __aenter__(self) -> Self:
        """Opens the store: what is wrong with it is said here, not later."""
        if not self._memory.records:
            raise StoreError(
                "Memory is turned off.",
                hint="Set memory.enabled = true, or unset RAGMEM_MEMORY__ENABLED.",
            )
        await (await self.app.store()).sessions(SessionQuery(limit=1))
        self._foreign = await self.app.background.vectors_notice()
        self._notices += [self._foreign] if self._foreign else []
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the work; what is left of it is found by the next who opens the memory."""
        async with AsyncExitStack() as stack:
            if self._llm:
                stack.push_async_callback(self._llm.aclose)
            if self._own:
                stack.push_async_callback(self._own.aclose)
                if kind is None:
                    stack.push_async_callback(self._own.finish)
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
        """A new session in a folder, stored at once; its id.

        Its project is the folder `project_path`, else that which holds `cwd`.
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
        """`create_session` for who wants the whole of it."""
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
        """Return those that were started in a folder, newest activity first."""
        query = SessionQuery(cwd=folder_name(normalize_cwd(Path(cwd))), limit=_NO_LIMIT)
        return await self._memory.sessions(query)

    async def load_session(self, session_id: str) -> SessionTurns:
        """A session with all of its turns and their tool calls; SessionNotFound."""
        return await self._memory.load_session(session_id)

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
        """Store a completed turn and its tool calls, all or nothing; its vector follows.

        `timestamp` is when it was complete: now, if none is given; without a time zone it is
        this machine's local time. The answer is the turn as it is stored, without secrets.
        While the store is away the turn is kept on this disk, and its index is 0.
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
            tool_calls=checked_calls(tool_calls, turn_id=turn_id, at=at),
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
        """The newest turns, in order: at most so many, and of so many characters.

        With neither: 3 turns and 5,000 characters. The newest comes in any case, clipped in
        its middle if it alone is longer.
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
        """Characters of completed turns that no level 1 summary covers."""
        await self.session(session_id)
        return await (await self.app.store()).raw_history_chars(session_id)

    async def get_recently_accessed_files(self, session_id: str) -> list[FileAccess]:
        """Return one entry a path, latest first."""
        return await self._memory.recently_accessed_files(session_id)

    # --- summaries --------------------------------------------------------------

    async def store_summary(
        self,
        session_id: str,
        summary: Summary | str,
        level: int | None = None,
        parent_ids: Sequence[str] = (),
    ) -> Summary:
        """Store a summary with its links to the turns or summaries that it covers.

        Of a `Summary`, such as `summarize_turn` makes, level and parents are its own unless
        others are given. Its vector follows.
        """
        await self.session(session_id)
        made = await self._checked(session_id, summary, level, tuple(parent_ids))
        return await self._store_summary(made)

    async def get_level1_summaries_not_summarized(
        self, session_id: str, *, limit: int | None = 10
    ) -> list[Summary]:
        """Level 1 summaries that no level 2 summary covers, newest first."""
        await self.session(session_id)
        store = await self.app.store()
        return await store.summaries(session_id, level=1, not_rolled_up=True, limit=limit)

    async def summarize_turn(self, turn: Turn) -> Summary:
        """Return a turn's level 1 summary, not stored; cut from it where no model is named."""
        locate = await self._locator_of(turn.session_id)
        if turn.status != "completed":
            raise UsageError(
                f"The turn {turn.turn_id} is {turn.status}; only completed turns can be summarized."
            )
        return await self._summarizer.summarize_turn(turn, locate=locate)

    async def summarize_summaries(self, session_id: str, level: int) -> Summary:
        """Sum up all of a level that wait, as one of the next level, and store it."""
        await self.session(session_id)
        store, owner_id = await self.app.store(), new_id()
        while True:
            # No two processes at once.
            async with leased(store, [f"roll_up:{session_id}"], owner_id, seconds=_LEASE_S) as mine:
                if mine:
                    waiting = await to_roll_up(store, session_id, level) if level >= 1 else []
                    if not waiting:
                        raise UsageError(f"There are no summaries of level {level} to summarize.")
                    made = await self._summarizer.summarize_summaries(session_id, waiting)
                    return await self._store_summary(made)
            await asyncio.sleep(_AGAIN_S)

    @property
    def _summarizer(self) -> Summarizer:
        """Made when it is first needed."""
        if self._made is None:
            app = self.app
            named = app.config.model.summary or app.config.model.main
            # A key alone names no model.
            self._llm = summary_model(app.config, app.paths) if named else None
            summaries = app.config.memory.summaries
            self._made = Summarizer(self._llm, summaries, usage=app.usage, open_attempts=app.store)
        return self._made

    async def _checked(
        self, session_id: str, given: Summary | str, level: int | None, covers: tuple[str, ...]
    ) -> Summary:
        """A whole summary of what a program gives; UsageError for one that hangs in the air."""
        if isinstance(given, str):
            bare = Summary(
                summary_id="",
                session_id=session_id,
                text=clean(given),
                level=1 if level is None else level,
                turn_count=0,
                created_at=utc_now(),
                covers=covers,
            )
        else:
            bare = msgspec.structs.replace(
                given,
                level=given.level if level is None else level,
                covers=covers or given.covers,
            )
        own_id = isinstance(given, Summary) and bare == given and given.session_id == session_id
        return msgspec.structs.replace(
            bare,
            session_id=session_id,
            turn_count=await self._count_turns(bare),
            summary_id=bare.summary_id
            if own_id
            else summary_id(session_id, bare.level, bare.covers),
        )

    async def _count_turns(self, summary: Summary) -> int:
        """Turns behind it; UsageError where something that it covers is not there."""
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
        """Write it, without secrets; what is stored."""
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
        """Turns and summaries that bear on a text, best first.

        With a session: it and, as `memory.scope` says, the others of its project; `scope` says
        otherwise. Without: `scope`, else the whole store. `semantic=False`: by words alone.
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
        """What would go to a model with this message, in this session; nothing is stored."""
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
        from ragmem.config import environment
        from ragmem.llm.models import choose_model

        return choose_model(config, environment()).info

    # --- background -------------------------------------------------------------

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is pending: vectors, and summaries where a model is named.

        True when all is done; false when the time was over, or something could not be done.
        What another process has just taken on is left to it.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        done = not self._foreign
        for work in (*self._others, self._work):
            done &= await work.drain(until and until - time.monotonic())
        return done

    @property
    def _work(self) -> Work:
        if self._own is None:
            # A model that nobody has named is not asked for what nobody asked for.
            made = self._summarizer
            asker = made if self._llm else None
            self._own = Work(
                self.app,
                self._memory,
                asker,
                self.app.config.memory,
                embedder=self.app.embedder,
                learns=True,
            )
        return self._own

    def join(self, work: Work, close: Callable[[], Awaitable[None]]) -> None:
        """Somebody else's work: waited for by `drain`, and closed with the memory."""
        self._others.append(work)
        self._closing.append(close)

    def leave(self, work: Work) -> None:
        """Let go of an agent that is closed: what it left is this memory's own."""
        self._others = [other for other in self._others if other is not work]

    def notices(self) -> list[str]:
        """What a person should be told, each once: that the store was away, that it is back."""
        notices, self._notices = self._notices, []
        return [*notices, *self.app.notices()]

    # --- the store --------------------------------------------------------------

    async def session(self, session_id: str) -> Session:
        """The session of an id; SessionNotFound where there is none."""
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
