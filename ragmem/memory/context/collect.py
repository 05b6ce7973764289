"""Collects what a request is made of; shaping it is the context builder's work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ragmem.config import MemoryConfig
from ragmem.errors import RagmemError, StoreError
from ragmem.memory.context import CodePassage, Context, ContextBuilder, Material, Place, Strategy
from ragmem.memory.context.history import messages_of
from ragmem.memory.facts.values import FactHit
from ragmem.memory.files import recently_accessed
from ragmem.memory.hits import BY_TIME, THREAD_LEVEL, Hit
from ragmem.memory.leases import in_time
from ragmem.memory.recall import Found, Question, Recall, scope_of
from ragmem.memory.window import window_limit
from ragmem.metrics import Metrics
from ragmem.records import DEFAULT_TITLE, FileAccess, MemoryRecord, Profile, Session, Summary, Turn
from ragmem.store.base import SessionQuery, Store, TurnQuery

if TYPE_CHECKING:
    from ragmem.memory.facts.facts import Facts


FINISHED = ("completed", "interrupted", "failed")
_FILES_CHARS = 5_000
_FILES_LOOKBACK = 10
"""Accessed files come from turns of so many times the section's characters."""
_OLDER_QUERIES = 50
_LEVEL1_LIMIT = 200
"""Of which the builder shows ten that the window does not."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a session itself holds before the turn that is asked for."""

    turns: tuple[Turn, ...] = ()
    older: tuple[Turn, ...] = ()
    accesses: tuple[FileAccess, ...] = ()
    level1: tuple[Summary, ...] = ()
    thread_summary: str = ""


NO_PAST = Past()


class Gathering:
    """Remembers the files of a session between turns; all else is read each time.

    What was read last is kept for when the store can't be asked.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, list[FileAccess]]] = {}
        self._last: dict[str, Past] = {}

    def forget(self) -> None:
        """Something was written."""
        self._files.clear()

    async def past(
        self,
        store: Store,
        session_id: str,
        builder: ContextBuilder,
        *,
        before: int | None,
        own: Sequence[Turn] = (),
    ) -> Past:
        """`before`: index of the turn in flight. `own`: turns that are in this process alone."""
        session = await store.session(session_id)
        count = (before or session.turn_count + 1) - 1
        turns, accesses, level1 = await asyncio.gather(
            self._window(store, session_id, count=count, before=before),
            self.accesses(store, session_id, before or count),
            store.summaries(session_id, level=1, not_rolled_up=True, limit=_LEVEL1_LIMIT),
        )
        stored = {turn.turn_id for turn in turns}
        turns += [turn for turn in own if turn.turn_id not in stored]
        past = self._last[session_id] = Past(
            turns=tuple(turns),
            older=tuple(await self._older(store, session_id, builder, turns)),
            accesses=tuple(accesses),
            level1=_latest_first(level1, turns),
            thread_summary=session.summary or "",
        )
        return past

    def remembered(self, session_id: str, own: Sequence[Turn]) -> Material:
        """What is known without the store: what was read last, and this process' own turns."""
        past = self._last.get(session_id, NO_PAST)
        known = {turn.turn_id: turn for turn in [*past.older, *past.turns, *own]}
        turns = tuple(sorted(known.values(), key=lambda turn: turn.turn_index))
        return Material(
            turns=turns,
            history=tuple(messages_of(turns)),
            level1=past.level1,
            thread_summary=past.thread_summary,
        )

    @staticmethod
    async def _window(
        store: Store, session_id: str, *, count: int, before: int | None
    ) -> list[Turn]:
        limit = window_limit(count)
        query = TurnQuery(limit=limit, before_index=before, statuses=FINISHED)
        # Fewer of them may be finished than counted: the start of planning must not shift.
        found = await store.turns(session_id, query)
        return [turn for turn in found if turn.turn_index > count - limit]

    @staticmethod
    async def _older(
        store: Store, session_id: str, builder: ContextBuilder, turns: Sequence[Turn]
    ) -> list[Turn]:
        """Those just before the window, for their queries."""
        first = (builder.window(turns).turns or turns or (None,))[0]
        if first is None or first.turn_index <= 1:
            return []
        query = TurnQuery(
            limit=_OLDER_QUERIES,
            before_index=first.turn_index,
            statuses=FINISHED,
            with_tool_calls=False,
        )
        return await store.turns(session_id, query)

    async def accesses(self, store: Store, session_id: str, turn_count: int) -> list[FileAccess]:
        """Computed once, until a turn comes in or this process writes."""
        known_at, files = self._files.get(session_id, (-1, []))
        if known_at != turn_count:
            found = await store.file_accesses(
                session_id, max_turn_chars=_FILES_CHARS * _FILES_LOOKBACK
            )
            files = recently_accessed(found, max_chars=_FILES_CHARS)
            self._files[session_id] = (turn_count, files)
        return files


def _latest_first(level1: Sequence[Summary], turns: Sequence[Turn]) -> tuple[Summary, ...]:
    """By the turns that they are of: work that was left is done latest turn first."""
    places = {turn.turn_id: turn.turn_index for turn in turns}
    return tuple(
        sorted(level1, key=lambda s: -max((places.get(i, 0) for i in s.covers), default=0))
    )


def material(past: Past, hits: Sequence[Hit], builder: ContextBuilder) -> Material:
    """All that the builder shapes."""
    window = builder.window(past.turns)
    first = (window.turns or past.turns or (None,))[0]
    return Material(
        turns=past.turns,
        window=window,
        older=past.older,
        older_count=first.turn_index - 1 if first else 0,
        accesses=past.accesses,
        hits=tuple(hits),
        level1=past.level1,
        thread_summary=past.thread_summary,
    )


_log = logging.getLogger("ragmem")
T = TypeVar("T")

_CONTEXT_HITS = 16
"""Of which a request shows the best five that it does not show already."""
_LATEST = 5
"""Conversations that are told where a question names nothing to look for."""
_MORE_TRIES = 2
_SPARE_FACTS = 8
"""So many more than are shown are looked for: some stand in the request anyway."""


PINNED_UNKNOWN = (
    "The memory did not answer in time: rules and pinned memories, if there are any, are missing "
    "from this request."
)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beyond the conversations."""

    pinned: tuple[MemoryRecord, ...] = ()
    profile: Profile = Profile()
    facts: tuple[FactHit, ...] = ()

    def added_to(self, material: Material) -> Material:
        """The material of a request, with it."""
        return msgspec.structs.replace(
            material, pinned=self.pinned, profile=self.profile, facts=self.facts
        )


class Recalling:
    """Asks recall and the facts for one request. `open_store` is None where there is no store."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]] | None,
        recall: Recall,
        facts: "Facts | None",
        config: MemoryConfig,
        *,
        floor: float | None,
        metrics: Metrics,
    ) -> None:
        self._open_store = open_store
        self._recall = recall
        self._facts = facts
        self._config = config
        self._floor = floor
        self._metrics = metrics
        self._last_pinned: dict[str, tuple[MemoryRecord, ...]] = {}
        self._has_facts = False

    async def prepare(self) -> None:
        """Load what the first search needs, if there is anything to be found."""
        if self._open_store is not None:
            await self._recall.prepare()

    # --- turns and summaries ------------------------------------------------------

    async def relevant(self, session: Session, prompt: str, strategy: Strategy) -> Found | None:
        """What bears on the prompt; None where that can't be found out in time."""
        if self._open_store is None or strategy == "recent":
            return None
        question = Question(
            text=prompt,
            scope=scope_of(session, self._config.scope),
            session_id=session.session_id,
            max_results=_CONTEXT_HITS,
            min_similarity=self._floor,
            patience_s=self._patience_s,
        )
        return await self._tried(self._found(question), beside_s=self._patience_s)

    async def _found(self, question: Question) -> Found | None:
        store = await self._open()
        latest = await store.sessions(SessionQuery(limit=2))
        if all(s.session_id == question.session_id and s.turn_count <= 1 for s in latest):
            # Nothing was said before: what a search needs is not even loaded.
            return None
        return await self._recall.find(question)

    async def hits(self, found: Found | None, shown: Sequence[Turn]) -> list[Hit]:
        """Those that the recent window does not show, nor are summaries of what it shows."""
        if found is None:
            return []
        from ragmem.memory.summaries import summary_id

        hidden = {turn.turn_id for turn in shown}
        hidden |= {summary_id(turn.session_id, 1, (turn.turn_id,)) for turn in shown}
        return await self._tried(self._recall.hits(found, hidden=hidden)) or []

    async def latest(self, session: Session, prompt: str, strategy: Strategy) -> list[Hit]:
        """The last conversations, for a question that names nothing to look for.

        "What did we talk about before?" is like none of them: their own summaries answer it.
        """
        if self._open_store is None or strategy == "recent" or self._config.scope == "session":
            return []
        from ragmem.memory.facts.ranking import is_generic

        if not is_generic(prompt):
            return []
        project_ids = (session.project_id,) if self._config.scope == "project" else ()
        query = SessionQuery(project_ids=project_ids, limit=_LATEST + 1)
        sessions = await self._tried(self._sessions(query)) or []
        # Neither a fork nor its parent is told what the other went on with.
        own = {session.session_id, session.parent_session_id}
        others = [
            s
            for s in sessions
            if s.turn_count and not own & {s.session_id, s.parent_session_id} - {None}
        ]
        return [_conversation(other) for other in others[:_LATEST]]

    async def _sessions(self, query: SessionQuery) -> list[Session]:
        return await (await self._open()).sessions(query)

    async def _open(self) -> Store:
        assert self._open_store is not None
        return await self._open_store()

    # --- code ---------------------------------------------------------------------

    async def code(self, place: Place, prompt: str, strategy: Strategy) -> tuple[CodePassage, ...]:
        """What of the project's code bears on the prompt; none where that can't be had."""
        if place.find_code is None or strategy == "recent":
            return ()
        try:
            with self._metrics.time("code.context"):
                return tuple(await place.find_code(prompt))
        except Exception as error:
            known = isinstance(error, RagmemError)
            _log.warning("Code was not looked for: %s", error, exc_info=not known)
            self._metrics.count("code.failures")
            return ()

    # --- facts --------------------------------------------------------------------

    async def known(self, session: Session, prompt: str, strategy: Strategy) -> Known:
        """Pinned memories always; the profile and facts as the strategy has them."""
        facts = self._facts
        if facts is None:
            return Known()
        profile, found = await asyncio.gather(
            self._tried(facts.profile()) if strategy != "relevant" else _nothing(),
            self._memories(facts, session.project_id, prompt, strategy),
        )
        return Known(pinned=self.pinned(session), profile=profile or Profile(), facts=found)

    async def _memories(
        self, facts: "Facts", project_id: str, prompt: str, strategy: Strategy
    ) -> tuple[FactHit, ...]:
        """Those that bear on the prompt; the pinned ones are kept for `pinned`."""
        if not self._has_facts:
            # Where nothing was ever remembered, what a search needs is not even loaded.
            any_at_all = partial(facts.recent, project_id=project_id, limit=1)
            found_any = await self._read(any_at_all, project_id)
            self._has_facts = bool(found_any)
            if found_any == []:
                self._last_pinned[project_id] = ()
        if not self._has_facts:
            return ()
        # One after the other: the second finds what the first has read.
        pinned = await self._read(partial(facts.pinned, project_id), project_id)
        if pinned is not None:
            self._last_pinned[project_id] = tuple(pinned)
        if strategy == "recent" or pinned is None:
            return ()
        found = await self._tried(
            facts.search(
                prompt,
                project_id=project_id,
                limit=self._config.facts.shown + _SPARE_FACTS,
                patience_s=self._patience_s,
            ),
            beside_s=self._patience_s,
        )
        return tuple(found or ())

    def pinned(self, session: Session) -> tuple[MemoryRecord, ...]:
        """As they were read last: a store that is away takes no rule out of the request."""
        return self._last_pinned.get(session.project_id, ())

    def told(self, session: Session, context: Context) -> Context:
        """The context, with what the person is to know: that nobody knows what is pinned."""
        if self._facts is None or session.project_id in self._last_pinned:
            return context
        return msgspec.structs.replace(context, notices=(*context.notices, PINNED_UNKNOWN))

    async def _read(self, ask: Callable[[], Awaitable[T]], project_id: str) -> T | None:
        """Asked more than once while no rule of the project is known: a store that is just being
        opened by a busy machine must not cost the first request its rules."""
        found = await self._tried(ask())
        for _ in range(0 if project_id in self._last_pinned else _MORE_TRIES):
            if found is not None:
                break
            found = await self._tried(ask())
        return found

    async def _tried(self, work: Awaitable[T], *, beside_s: float = 0.0) -> T | None:
        """What it gives; None, with a word in the log, when it fails or takes too long."""
        try:
            return await in_time(work, beside_s=beside_s)
        except StoreError:
            self._metrics.count("store.failures")
        except Exception as error:
            known = isinstance(error, RagmemError)
            _log.warning("Something was not recalled: %s", error, exc_info=not known)
            self._metrics.count("recall.failures")
        return None

    @property
    def _patience_s(self) -> float:
        return self._config.embeddings.timeout_s


def _conversation(session: Session) -> Hit:
    text = session.summary or f"Asked last: {session.last_message or session.title}"
    return Hit(
        type="summary",
        summary=Summary(
            summary_id=session.session_id,
            session_id=session.session_id,
            text=text,
            level=THREAD_LEVEL,
            turn_count=session.turn_count,
            created_at=session.last_activity_at,
            covers=(),
        ),
        score=0.0,
        session_id=session.session_id,
        session_title="" if session.title == DEFAULT_TITLE else session.title,
        at=session.last_activity_at,
        why=BY_TIME,
    )


async def _nothing() -> None:
    return None
