"""Memory: the interface through which the packages above read and write sessions.

It works on any Store, and without one (`memory.enabled = false`, `--ephemeral`). Without a store,
and while one is unavailable, it remembers only the turns of this process.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.config import MemoryConfig
from ragmem.embedder import Embedder, thresholds
from ragmem.errors import MemoryOff, StoreError
from ragmem.ids import new_id
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import (
    Collector,
    ContextInput,
    FindCode,
    Newest,
    Place,
    Strategy,
    accesses_of,
)
from ragmem.memory.facts import Remembered
from ragmem.memory.facts.facts import Facts
from ragmem.memory.last_time import SessionRecap
from ragmem.memory.projects import Located, folder_name, locate, normalize_cwd, registrations
from ragmem.memory.recall import Hit, Question, Recall
from ragmem.memory.recording import (
    RequestLog,
    Tail,
    TurnRecording,
    in_time,
    kept,
    measure,
    redacted,
    sent,
    surely,
)
from ragmem.memory.sessions import find_session
from ragmem.memory.turns import turn_tag, window_limit
from ragmem.records import (
    ALL_TURNS,
    DEFAULT_TITLE,
    Applied,
    CreateSession,
    FileAccess,
    Project,
    RegisterProject,
    Session,
    SessionQuery,
    ToolCall,
    Turn,
    TurnQuery,
    UpdateSession,
    Write,
    utc_now,
)
from ragmem.service import Client
from ragmem.store import Store
from ragmem.text import clean
from ragmem.usage import Metrics

_FORK = re.compile(r" \(fork(?: (\d{1,4}))?\)$")
"""The suffix of a fork's title, with its number from the second fork on."""
_HEARTBEAT_S = 10.0
_PAGE = 500
"""Turns of a long session that are loaded at a time."""

OpenStore = Callable[[], Awaitable[Store]]


class Presence:
    """Keeps one process, `owner_id`, attached to the sessions it works in, by a heartbeat."""

    def __init__(self, open_store: OpenStore, owner_id: str) -> None:
        self._open_store = open_store
        self._owner_id = owner_id
        self._attached: set[str] = set()
        self._heartbeat: asyncio.Task[None] | None = None

    def is_in(self, session_id: str) -> bool:
        """Whether this process is attached to a session."""
        return session_id in self._attached

    async def attach(self, session_id: str) -> int:
        """Attach to a session; return how many other processes are. Raises StoreError."""
        if self._heartbeat is None:
            # Even if the store is unavailable: the heartbeat is how an idle process notices that.
            self._heartbeat = asyncio.create_task(self._beat())
        store = await self._open_store()
        others = await in_time(store.attach(session_id, self._owner_id))
        self._attached.add(session_id)
        return len(others)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            with suppress(StoreError):
                await (await self._open_store()).heartbeat(self._owner_id)

    async def aclose(self) -> None:
        """Stop the heartbeat and detach from all sessions."""
        if self._heartbeat:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
            self._heartbeat = None
        if self._attached:
            with suppress(StoreError):
                await (await self._open_store()).detach(self._owner_id)
            self._attached.clear()


_EVERY_FILE_CHARS = 10**9
"""More than a list of all files of a session has."""


class SessionTurns(msgspec.Struct, frozen=True):
    """A session with its turns."""

    session: Session
    turns: tuple[Turn, ...]


class Memory:
    """One process's memory; see the module's docstring. The store knows it by `owner_id`."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        open_store: OpenStore | None,
        config: MemoryConfig,
        *,
        records: bool = True,
        embedder: Embedder | None = None,
        service: Client | None = None,
        tail: Tail | None = None,
        requests: RequestLog | None = None,
        on_finished: Callable[[], None] = lambda: None,
        on_written: Callable[[Remembered], None] = lambda _: None,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Create a memory over a store, or without one.

        `service` may search in place of this process. `tail` keeps the newest sessions for when the
        store is unavailable, `requests` the sections of each turn's first request. `on_finished` is
        called when a turn has ended, since that leaves work for the background; `on_written` with
        each fact that was added or updated.
        """
        self.owner_id = new_id()
        self.records = records and open_store is not None and config.enabled
        self._open_store = open_store if config.enabled else None
        self._config = config
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._written: set[str] = set()
        self._presence = Presence(self._store, self.owner_id)
        # Without a store it is all that there is of a session.
        self._local: dict[str, list[Turn]] = Newest() if self.records else {}
        self._running: dict[str, TurnRecording] = {}
        self._recall = Recall(
            self._store, embedder, service=service, metrics=self._metrics, clock=clock
        )
        limits = thresholds(embedder.info, config.embeddings) if embedder else None
        self.floor = limits.history if limits else None
        facts = Facts(
            self._store,
            self.owner_id,
            embedder=embedder,
            limits=limits,
            config=config.facts,
            service=service,
            on_written=on_written,
            metrics=self._metrics,
            clock=clock,
        )
        known = facts if self._open_store and config.facts.enabled else None
        self.facts = known if self.records else None
        """None if nothing is recorded; existing facts are recalled all the same."""
        self._collector = Collector(
            self._store if self._open_store else None,
            self._recall,
            known,
            config,
            records=self.records,
            floor=self.floor,
            fitted=embedder.info.thresholds.history if embedder else None,
            metrics=self._metrics,
        )
        self.tail = tail
        self._requests = requests if self.records else None
        self._on_finished = on_finished

    @property
    def recalls(self) -> bool:
        """Whether there is a store to recall from, even if nothing is recorded in it."""
        return self._open_store is not None

    # --- sessions ---------------------------------------------------------------

    async def project_of(self, cwd: Path) -> Located:
        """Return the project of a folder; a new one is stored with its first session."""
        known = await in_time((await self._store()).projects()) if self._open_store else []
        return locate(normalize_cwd(cwd), known, now=self._clock())

    def new_session(self, cwd: Path, project: Project, *, title: str = "") -> Session:
        """Return a new session, which is stored with its first prompt."""
        now = self._clock()
        return Session(
            session_id=new_id(),
            cwd=folder_name(normalize_cwd(cwd)),
            project_id=project.root_id,
            project_path=project.path,
            title=clean(title) or DEFAULT_TITLE,
            started_at=now,
            updated_at=now,
            last_activity_at=now,
        )

    async def create_session(self, session: Session, project: Project) -> None:
        """Write a session and its project; calling it again changes nothing.

        If two processes start in a new folder at once, both use the project that was written first,
        so that a folder's memory is never split.
        """
        project = await self._first_written(project)
        session = msgspec.structs.replace(session, project_id=project.root_id)
        writes: list[Write] = [*registrations(project), CreateSession(session=session)]
        if kept(await self.record(writes)):
            self._written.add(session.session_id)

    async def _first_written(self, project: Project) -> Project:
        if self.records:
            with suppress(StoreError):
                for known in await in_time((await self._store()).projects()):
                    if known.path == project.path:
                        remote = project.remote or known.remote
                        return msgspec.structs.replace(known, remote=remote)
        return project

    async def join(self, project: Project, into: Project, *, chosen: bool) -> None:
        """Assign this project's present and future sessions to the project `into`.

        A project that the user has split off is joined only if they have `chosen` to. Raises
        StoreError.
        """
        joined = msgspec.structs.replace(project, joined_into=into.root_id)
        await surely(await self._store(), [RegisterProject(project=joined, chosen=chosen)])

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """Return the sessions that match, newest activity first."""
        return await (await self._store()).sessions(query)

    async def find_session(self, reference: str, *, mine: bool = False) -> Session:
        """Find a session by its id, the end of it, or its title; with `mine`, among the user's own.

        Raises SessionNotFound or AmbiguousSession.
        """
        return await find_session(await self._store(), reference, mine=mine)

    async def load_session(self, session_id: str, query: TurnQuery = ALL_TURNS) -> SessionTurns:
        """Return a session with its turns in order, all by default; SessionNotFound if unknown."""
        store = await self._store()
        session = await store.session(session_id)
        return SessionTurns(session, tuple(await store.turns(session_id, query)))

    async def turns_back(
        self, session_id: str, query: TurnQuery = ALL_TURNS
    ) -> AsyncGenerator[Turn, None]:
        """Yield a query's turns from the newest back, loading a page at a time."""
        store, page = await self._store(), msgspec.structs.replace(query, limit=_PAGE)
        while turns := await store.turns(session_id, page):
            for turn in reversed(turns):
                yield turn
            page = msgspec.structs.replace(page, before_index=turns[0].turn_index)

    async def turns_on(self, session_id: str, first: int = 1) -> AsyncGenerator[Turn, None]:
        """Yield a session's turns in order from index `first` on, loading a page at a time."""
        store = await self._store()
        last = (await store.session(session_id)).turn_count
        for end in range(first + _PAGE, last + 1 + _PAGE, _PAGE):
            for turn in await store.turns(session_id, TurnQuery(limit=_PAGE, before_index=end)):
                if turn.turn_index >= end - _PAGE:
                    yield turn

    async def recap(self, session: Session) -> SessionRecap:
        """Return a session's recap, for a user who returns to it. Raises StoreError."""
        from ragmem.memory.last_time import recaps

        [found] = await recaps(await self._store(), [session], now=self._clock().astimezone())
        return found

    async def rename(self, session_id: str, title: str) -> Session:
        """Set the title that the user gave a session, and return the session."""
        store = await self._store()
        await store.session(session_id)
        named = UpdateSession(session_id=session_id, title=clean(title), at=self._clock())
        await surely(store, [redacted(named)])
        renamed = await store.session(session_id)
        if self.tail and self.records:
            self.tail.keep(renamed, ())
        return renamed

    async def fork(self, session: Session, *, title: str = "") -> Session:
        """Create and return a fork of a session, which shares the turns so far by reference."""
        now = self._clock()
        copy = msgspec.structs.replace(
            session,
            session_id=new_id(),
            title=title or _fork_title(session.title),
            first_message=None,
            status="active",
            started_at=now,
            updated_at=now,
            last_activity_at=now,
            parent_session_id=session.session_id,
            forked_at_index=session.turn_count,
        )
        self.recollect(session)
        known = self._local.get(session.session_id, ())
        shared = [turn for turn in known if turn.turn_index <= session.turn_count]
        self._local[copy.session_id] = shared
        if kept(await self.record([CreateSession(session=copy)])) and self.records:
            self._written.add(copy.session_id)
            if self.tail:
                self.tail.keep(copy, shared)
        return copy

    async def attach(self, session: Session) -> int:
        """Attach this process to the session; return how many others are, 0 if it already was."""
        if not self.records or self._presence.is_in(session.session_id):
            return 0
        try:
            others = await self._presence.attach(session.session_id)
        except StoreError:
            self._metrics.count("store.failures")
            return 0
        self._written.add(session.session_id)
        return others

    # --- recording --------------------------------------------------------------

    async def begin_turn(
        self, session: Session, project: Project, prompt: str, *, model: str
    ) -> TurnRecording:
        """Record the user's prompt as a new turn; once this returns, it survives a crash."""
        if self.records and session.session_id not in self._written:
            await self.create_session(session, project)
        await self.attach(session)
        turn = Turn(
            turn_id=new_id(),
            session_id=session.session_id,
            user_message=clean(prompt),
            started_at=self._clock(),
            model=model,
            owner_id=self.owner_id,
        )
        recording = TurnRecording(session, turn, self.record, clock=self._clock)
        before = self._local.get(session.session_id) or []
        known = max(before[-1].turn_index if before else 0, session.turn_count)
        with self._metrics.time("store.turn_begin"):
            await recording.begin(next_index=known + 1)
        self._running[session.session_id] = recording
        return recording

    def finished(self, session: Session, turn: Turn) -> None:
        """Keep a finished turn in this process, and in the tail."""
        measure(turn, self._running.pop(session.session_id, None), self._metrics)
        known = [*self.local_turns(session.session_id), redacted(turn)]
        # The turns that a window is planned from; the store has the others, if any are recorded.
        count = window_limit(turn.turn_index) if self.records else len(known)
        self._local[session.session_id] = known[-count:]
        if self.tail and self.records:
            own = self.local_turns(session.session_id)
            self.tail.keep(session, self._collector.turns_at_hand(session.session_id, own))
        self._on_finished()

    def remember(self, session_id: str, turns: Sequence[Turn]) -> None:
        """Use these turns as a session's history while the store is unavailable."""
        if self.records:
            self._local[session_id] = list(turns)

    def local_turns(self, session_id: str) -> list[Turn]:
        """Return the turns of a session that this process knows without the store, in order."""
        return list(self._local.get(session_id, ()))

    def recollect(self, session: Session) -> Session:
        """Load a session's turns from the tail if this process knows none; return the session."""
        if self.tail and session.session_id not in self._local:
            self._local[session.session_id] = list(self.tail.turns(session.session_id))
        return session

    async def record(self, writes: Sequence[Write]) -> Applied | None:
        """Redact and apply writes, or spool them; None if nothing is recorded."""
        if not self.records:
            return None
        with self._metrics.time("store.apply"):
            return await (await self._store()).apply([redacted(write) for write in writes])

    # --- recall -----------------------------------------------------------------

    async def build_context(  # noqa: PLR0913 - all that a request is made of
        self,
        session: Session,
        prompt: str,
        builder: ContextBuilder,
        place: Place,
        *,
        turn: Turn | None = None,
        mentions: Sequence[ToolCall] = (),
        strategy: Strategy = "hybrid",
        changed: str = "",
        find_code: FindCode | None = None,
    ) -> Context:
        """Build the context that is sent to the model with `prompt`.

        Its history excludes `turn`, the one in progress. `changed` describes which files differ
        from what the agent has seen; `find_code` searches the project's code, if it is indexed.
        """
        request = ContextInput(
            prompt=prompt,
            place=place,
            tag=turn_tag(turn.turn_id if turn else new_id()),
            now=self._clock().astimezone(),
            mentions=mentions,
            strategy=strategy,
            changed=changed,
            session_id=session.session_id,
            session=session,
            builder=builder,
            before=turn.turn_index if turn else None,
            own=self.local_turns(session.session_id),
            in_store=self._in_store(session),
            find_code=find_code,
        )
        found = await self._collector.collect(request)
        try:
            built = builder.build(request, found)
        except Exception as error:
            self._collector.failed(error)
            built = builder.build(request, self._collector.at_hand(request))
        if turn and self._requests:
            self._requests.keep(sent(turn.turn_id, session.session_id, self._clock(), built))
        return built

    async def prepare(self) -> None:
        """Load the libraries and the model that the first search needs."""
        if self.recalls:
            await self._recall.prepare()

    async def search(self, question: Question) -> list[Hit]:
        """Find the turns and summaries that are relevant to a question, best first.

        If a decision of theirs was replaced, `Hit.since` says by what.
        """
        from ragmem.memory.since import replaced_in

        store = await self._store()
        hits = await self._recall.search(question)
        if self.facts is None:
            return hits
        replaced = await replaced_in(store, {hit.session_id for hit in hits})
        return [hit.judged(replaced) for hit in hits]

    async def accessed_files(
        self, session_id: str, *, max_chars: int = _EVERY_FILE_CHARS
    ) -> list[FileAccess]:
        """Return the latest access to each file, latest first, one path per 50 of `max_chars`."""
        store = await self._store()
        await store.session(session_id)
        return await accesses_of(store, session_id, max_chars=max_chars)

    async def find_tool_call(self, session: Session, reference: str) -> ToolCall | None:
        """Find a finished call by the end of its id, newest turn first; None if there is none."""
        tail = reference.replace("-", "")
        own = [turn.tool_calls for turn in self.local_turns(session.session_id)]
        if running := self._running.get(session.session_id):
            own.append(running.turn.tool_calls)
        for call in (call for calls in reversed(own) for call in calls if call.result):
            if call.tool_call_id.replace("-", "").endswith(tail):
                return call
        if not self._in_store(session):
            return None
        return await (await self._store()).find_tool_call(session.session_id, reference)

    def running_turn(self, session_id: str) -> Turn | None:
        """Return a session's turn in progress, as it is recorded so far."""
        running = self._running.get(session_id)
        return running.turn if running else None

    def _in_store(self, session: Session) -> bool:
        return self._open_store is not None and (
            session.session_id in self._written or session.turn_count > 0
        )

    # --- the store --------------------------------------------------------------

    async def _store(self) -> Store:
        if self._open_store is None:
            raise MemoryOff
        return await self._open_store()

    async def aclose(self) -> None:
        """Detach from all sessions, and finish writing the tail and the request log."""
        await self._presence.aclose()
        if self.tail:
            await self.tail.aclose()
        if self._requests:
            await self._requests.aclose()


def _fork_title(title: str) -> str:
    """Number the title as a fork's; an untitled fork is named after its own first turn."""
    if title == DEFAULT_TITLE:
        return title
    old = _FORK.search(title)
    return f"{title[: old.start()]} (fork {int(old[1] or 1) + 1})" if old else f"{title} (fork)"
