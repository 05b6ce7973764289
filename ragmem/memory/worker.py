"""Background work: vectors, summaries, memories, derived from what is stored.

There is no queue: the pending work is what `Store.pending` finds. Leases keep two processes from
doing the same work; work that is done twice all the same is stored once, since ids are derived from
the records covered.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Literal, Protocol

from ragmem.config import SummariesConfig
from ragmem.embedder import Embedder, embedding_hash, passages, turn_passages
from ragmem.errors import EmbedderUnavailable, RagmemError, SessionNotFound, StoreError
from ragmem.memory import summaries, titles
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.leases import leased
from ragmem.memory.recall import ComparableVectors, sessions_by_id
from ragmem.memory.recording import redacted
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.turns import locator
from ragmem.records import (
    MEMORY_LEVEL,
    SESSION_LEVEL,
    TURN_LEVEL,
    AddSummary,
    EmbedderMark,
    MemoryRecord,
    Pending,
    PutVectors,
    Session,
    Summary,
    Turn,
    TurnQuery,
    UpdateSession,
    Work,
    utc_now,
)
from ragmem.store import Store
from ragmem.text import one_line
from ragmem.usage import Metrics

_log = logging.getLogger("ragmem")

_LEASE_S = 30.0
"""Renewed during the work. On Neo4j, the work of a killed process waits until this has expired."""
_PAUSE_S = 0.01
"""Pause between two pieces of work, which lets the user interface respond."""
_RETRY_S = 30.0
"""Pause after a failure."""
_TOLD_CHARS = 300
_CUT_AT_ONCE = 64
"""Turns summarized in one batch when no model is used."""
_PAGE = 500
_LATEST = 8
"""Sessions, those with the latest activity, that are checked each time; all others only once."""
_BATCH = 16
"""Turns embedded in one batch: as much is done again if the process is killed."""
_MOST_STRIKES = 4
"""Failures of the embedder in a row after which it is not used for a while."""
_SUMMARIES = 1
_Record = Turn | Summary | MemoryRecord | Session
_RECORDS: dict[int, type[_Record]] = {
    TURN_LEVEL: Turn,
    _SUMMARIES: Summary,
    MEMORY_LEVEL: MemoryRecord,
    SESSION_LEVEL: Session,
}


class Embedding:
    """Makes vectors in batches; pauses for `rest_s` seconds if the embedder keeps failing."""

    def __init__(self, embedder: Embedder, metrics: Metrics, *, rest_s: float) -> None:
        self.vectors = ComparableVectors(embedder, metrics)
        self._embedder = embedder
        self._rest_s = rest_s
        self._metrics = metrics
        self.batch = _BATCH
        """Size of a batch: 1 while looking for a text that can't be embedded."""
        self._strikes = 0
        self._again_at = 0.0

    @property
    def rests(self) -> bool:
        """Whether the embedder is paused."""
        return time.monotonic() < self._again_at

    async def embed(
        self, store: Store, items: Sequence[Pending]
    ) -> tuple[frozenset[str], Exception | None]:
        """Make and store the vectors of these items. Raises StoreError.

        Returns the keys of items that can't be embedded or no longer exist, and the error if the
        embedder failed.
        """
        try:
            with self._metrics.time("worker.embed"):
                writes = await vectors_of(store, self._embedder, items)
        except StoreError:
            raise
        except Exception as error:
            return self._failed(items, error), error
        await store.apply(writes)
        self.batch, self._strikes = _BATCH, 0
        # Records deleted meanwhile have no vectors.
        made = {write.record_id for write in writes}
        return frozenset(item.key for item in items if item.record_id not in made), None

    def _failed(self, items: Sequence[Pending], error: Exception) -> frozenset[str]:
        """Count a failure; return the key of a text that can't be embedded, once it is found."""
        self._metrics.count("embedder.failures")
        self._strikes += 1
        if isinstance(error, EmbedderUnavailable) or self._strikes > _MOST_STRIKES:
            # Other work, such as summaries, goes on meanwhile.
            self._again_at = time.monotonic() + self._rest_s
            return frozenset()
        self.batch = 1
        return frozenset({items[0].key}) if len(items) == 1 else frozenset()


async def vectors_of(
    store: Store, embedder: Embedder, items: Sequence[Pending]
) -> list[PutVectors]:
    """Embed items in one batch, without deleted records. Raises EmbedderError, StoreError."""
    found = await _records(store, items)
    texts = await asyncio.to_thread(
        lambda: {record_id: _texts(embedder, record) for record_id, record in found.items()}
    )
    flat = [text for each in texts.values() for text in each]
    if not flat:
        return []
    rows = await embedder.embed(flat, "passage")
    info = embedder.info
    if await store.embedder() is None:
        # A provider's embedder knows its dimension only from its first answer.
        await store.use_embedder(EmbedderMark(info.model_id, int(rows.shape[1])))
    each = iter(rows)
    return [
        PutVectors(
            record_id=item.record_id,
            level=item.level,
            embedder=info.model_id,
            text_hash=embedding_hash(info.model_id, "passage", "\0".join(own)),
            vectors=tuple(row.astype("<f4").tobytes() for row in islice(each, len(own))),
        )
        for item in items
        if (own := texts.get(item.record_id, []))
    ]


async def _records(store: Store, items: Sequence[Pending]) -> dict[str, _Record]:
    """Return the records that exist, by id, in the order of the items."""
    found: dict[str, _Record] = {}
    for level, kind in _RECORDS.items():
        # Summaries of all levels are read in one query.
        ids = [item.record_id for item in items if min(item.level, _SUMMARIES) == level]
        found |= {each.uuid: each for each in await store.get(kind, ids)} if ids else {}
    return {item.record_id: found[item.record_id] for item in items if item.record_id in found}


def _texts(embedder: Embedder, record: _Record) -> list[str]:
    match record:
        case Turn():
            return turn_passages(record, embedder.count_tokens, embedder.info)
        case Summary():
            text = "\n".join([record.text, *record.key_findings])
            return passages(text, embedder.count_tokens, max_tokens=embedder.info.max_tokens)
        case MemoryRecord():
            return [record.content]
        case Session():
            return [record.summary] if record.summary else []


async def reembed(store: Store, embedder: Embedder, show: Callable[[int], None]) -> int:
    """Embed every record that has no vectors of this embedder, and return how many.

    `show` is called with the number of each batch. Raises EmbedderError and StoreError; vectors
    made until then are kept. Takes no leases, so that it can be restarted at once when killed;
    items that a worker has leased are left to it.
    """
    # A provider's model tells its dimension only after this.
    await embedder.prepare()
    await store.use_embedder(EmbedderMark(embedder.info.model_id, embedder.info.dimension))
    embedding = Embedding(embedder, Metrics(), rest_s=float("inf"))
    done, given_up = 0, set[str]()
    while True:
        found = await store.pending("vectors", limit=embedding.batch + len(given_up))
        items = [item for item in found if item.key not in given_up][: embedding.batch]
        if not items:
            return done
        left_out, error = await embedding.embed(store, items)
        if error and (embedding.rests or (done == 0 and len(items) == 1)):
            raise error
        given_up |= left_out
        if not error:
            done += len(items) - len(left_out)
            show(len(items) - len(left_out))


_Kind = Literal["summaries", "references", "memories"]


class Reader(Protocol):
    """Processes turns of the pending work."""

    async def look_through(
        self, store: Store, items: Sequence[Pending], owner_id: str
    ) -> frozenset[str]:
        """Process turns; return the keys of those done or not to be retried. Raises StoreError."""
        ...


class Worker:
    """Does the pending work piece by piece until there is none, then waits for `wake`."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        open_store: Callable[[], Awaitable[Store]],
        owner_id: str,
        *,
        embedder: Embedder | None,
        summarizer: Summarizer | None,
        extractor: Extractor | None = None,
        config: SummariesConfig,
        names_sessions: bool = False,
        linker: Reader | None = None,
        chores: Sequence[Callable[[Store], Awaitable[bool]]] = (),
        say: Callable[[str], None] = lambda _: None,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Create a worker; `start` runs it in the background, `drain` to the end.

        `names_sessions`: untitled sessions get a title. `linker` links turns with the code that
        they concern. `chores` run when nothing else is pending; each does a piece of work, and
        returns false if there was none. `say` is called with a message for failed work, once per
        type of error.
        """
        self._open_store = open_store
        self._metrics = metrics or Metrics()
        self._owner_id = owner_id
        self._embedding = Embedding(embedder, self._metrics, rest_s=_RETRY_S) if embedder else None
        self._summarizer = summarizer if config.enabled else None
        self._extractor = extractor
        self._config = config
        self._clock = clock
        self._told: set[type[Exception]] = set()
        self._tell = say
        self._linker = linker
        self._chores = (self._name, *chores) if names_sessions else tuple(chores)
        self._wake = asyncio.Event()
        self._stepping = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._passed: set[str] = set()
        """Keys of items with nothing to do, or nothing that this process could improve."""
        self._swept: set[Work] = set()
        """Kinds of work of which all items have been checked once."""
        self._kinds: list[_Kind] = ["summaries", "references", "memories"]
        """Kinds of work that read turns, the least recently done first."""
        self.doing = ""
        """The kind of work in progress, in a word; empty while waiting."""
        self._given_up: set[str] = set()
        """Keys of items that failed here, and are left to other processes."""
        self._renewed: set[str] = set()
        """Sessions where a model's summary replaced an extractive one: those above it are due."""
        self._idle_at: datetime | None = None
        """When the next session that its summary does not cover will have been idle for a while."""

    # --- running ----------------------------------------------------------------

    def start(self) -> None:
        """Work in the background from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Check for work now."""
        self._wake.set()

    async def drain(self, limit_s: float | None = None) -> bool:
        """Do all pending work in at most `limit_s` s; return whether none is left. StoreError."""
        try:
            async with asyncio.timeout(limit_s):
                while await self.step():
                    pass
        except TimeoutError:
            return False
        except RagmemError:
            raise
        except Exception as error:
            self._say(error)
            return False
        return not self._given_up and not self._rests

    async def aclose(self) -> None:
        """Stop; the remaining work is found by the next process."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def _rests(self) -> bool:
        return self._embedding is not None and self._embedding.rests

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                more = await self.step()
            except Exception as error:
                # Metrics and the log show it (`stats`, `doctor`); the next turn is not disturbed.
                self._say(error)
                await asyncio.sleep(_RETRY_S)
                continue
            if more:
                await asyncio.sleep(_PAUSE_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S if self._rests else self._until_idle()):
                    await self._wake.wait()

    def _until_idle(self) -> float | None:
        """Return the seconds until a session will have been idle for a while; None for none."""
        if self._idle_at is None:
            return None
        # At most as long as that takes: the clock may have been ahead.
        left = min(self._idle_at - self._clock(), summaries.IDLE)
        return max(0.0, left.total_seconds())

    def _say(self, error: Exception) -> None:
        is_bug = not isinstance(error, RagmemError)
        _log.warning("background work: %s", error, exc_info=is_bug)
        self._metrics.count("worker.failures")
        # A bug goes to the log only; an unavailable store is reported by those who record turns.
        if not is_bug and not isinstance(error, StoreError) and type(error) not in self._told:
            self._told.add(type(error))
            self._tell(f"Background work failed: {one_line(str(error), _TOLD_CHARS)}")

    # --- the next piece of work -----------------------------------------------------

    async def step(self) -> bool:
        """Do one piece of work, or one batch of vectors; false when nothing is pending.

        One at a time: `drain` may be called while the worker runs in the background.
        """
        async with self._stepping:
            try:
                return await self._step(await self._open_store())
            finally:
                self.doing = ""

    async def _step(self, store: Store) -> bool:
        self.doing = "indexing"
        if self._embedding and not self._rests and await self._embed(store, self._embedding):
            return True
        for kind in tuple(self._kinds):
            if await self._work_on(kind, store):
                # Round robin: else a kind with new work all the time would starve the others.
                self._kinds.remove(kind)
                self._kinds.append(kind)
                return True
        self.doing = "learning"
        if self._extractor:
            await self._extractor.tidy()
        for chore in self._chores:
            if await self._attempted([], partial(chore, store)):
                return True
        return False

    async def _work_on(self, kind: _Kind, store: Store) -> bool:
        if kind == "summaries":
            self.doing = "summaries"
            for sum_up in (self._level1, self._renew, self._roll_up, self._thread):
                if self._summarizer is not None and await sum_up(store, self._summarizer):
                    return True
            return False
        reader = self._linker if kind == "references" else self._extractor
        self.doing = "indexing" if kind == "references" else "learning"
        return reader is not None and await self._look_through(store, kind, reader)

    async def _name(self, store: Store) -> bool:
        known, now = self._passed, self._clock()
        return await titles.due(store, self._summarizer, self._owner_id, passed=known, now=now)

    async def _fresh(self, store: Store, work: Work, *, limit: int) -> list[Pending]:
        """Return unchecked pending items; when all were checked, new ones are among the first."""
        known = self._passed | self._given_up
        for most in (limit, limit + len(known)):
            found = await store.pending(work, limit=most)
            fresh = [item for item in found if item.key not in known]
            if fresh or len(found) < most or work in self._swept:
                return fresh[:limit]
        self._swept.add(work)
        return []

    async def _first_due(
        self, store: Store, work: Work, do: Callable[[Pending], Awaitable[bool]]
    ) -> bool:
        """Check pending items until `do` has done one; false if none was due."""
        looked_at = set(self._given_up)
        while True:
            limit = _PAGE + len(self._passed) + len(self._given_up)
            fresh = [
                item
                for place, item in enumerate(await store.pending(work, limit=limit))
                if item.key not in looked_at and (place < _LATEST or item.key not in self._passed)
            ]
            if not fresh:
                return False
            for item in fresh:
                looked_at.add(item.key)
                if await self._attempted([item], partial(do, item)):
                    return True
                self._passed.add(item.key)

    async def _attempted(self, items: Sequence[Pending], do: Callable[[], Awaitable[bool]]) -> bool:
        """Return what `do` returns; after an error the items are given up, so that others go on.

        Raises StoreError.
        """
        try:
            return await do()
        except SessionNotFound:
            return False
        except StoreError:
            raise
        except Exception as error:
            self._say(error)
            self._given_up.update(item.key for item in items)
            return True

    def _leased(self, store: Store, *keys: str) -> AbstractAsyncContextManager[frozenset[str]]:
        return leased(store, keys, self._owner_id, seconds=_LEASE_S)

    # --- vectors ------------------------------------------------------------------

    async def _embed(self, store: Store, embedding: Embedding) -> bool:
        if not await embedding.vectors.is_for(store, mark=True):
            return False
        items = await self._fresh(store, "vectors", limit=embedding.batch)
        if not items:
            return False
        async with self._leased(store, *(item.key for item in items)) as mine:
            own = [item for item in items if item.key in mine]
            left_out, error = await embedding.embed(store, own)
        self._given_up |= left_out
        if error is not None:
            self._say(error)
        return not embedding.rests

    # --- summaries ----------------------------------------------------------------

    async def _level1(self, store: Store, summarizer: Summarizer) -> bool:
        found = await self._fresh(store, "level1", limit=_PAGE)
        if not found:
            return False
        made = await summaries.level1_of(store, found)
        await summarizer.consider(store, (item.session_id for item in found))
        extractive = {turn_id for turn_id, summary in made.items() if summary.extractive}
        asks = {item.key for item in found if summarizer.uses_model(item.session_id)}
        # Without a model, this process can't improve an extractive summary.
        self._passed |= {i.key for i in found if i.record_id in extractive and i.key not in asks}
        todo = [item for item in found if item.key not in self._passed]
        todo.sort(key=lambda item: item.record_id in extractive)
        if not todo:
            return True
        without = [item for item in todo[:_CUT_AT_ONCE] if item.key not in asks]
        # A model takes its time: one by one, so that a killed process loses a single summary.
        items = without if todo[0] in without else todo[:1]
        return await self._attempted(items, partial(self._summarize, store, summarizer, items))

    async def _summarize(
        self, store: Store, summarizer: Summarizer, items: Sequence[Pending]
    ) -> bool:
        async with self._leased(store, *(item.key for item in items)) as mine:
            items = [item for item in items if item.key in mine]
            # The previous holder of the lease may have done it.
            made = await summaries.level1_of(store, items)
            turns = await store.get(Turn, [item.record_id for item in items])
            sessions = await sessions_by_id(store, {turn.session_id for turn in turns})
            writes = []
            for turn in turns:
                old = made.get(turn.turn_id)
                uses_model = summarizer.uses_model(turn.session_id)
                if turn.session_id not in sessions:
                    continue  # The session was deleted meanwhile.
                if old is None or (old.extractive and uses_model):
                    locate = locator(sessions[turn.session_id])
                    summary = await summarizer.summarize_turn(turn, locate=locate, instead_of=old)
                    if old is None or not summary.extractive:
                        writes.append(redacted(AddSummary(summary=summary)))
                    if old is not None and not summary.extractive:
                        self._renewed.add(turn.session_id)
                # Each turn takes a millisecond or two: let other tasks run.
                await asyncio.sleep(0)
            await store.apply(writes)
            self._passed.update(mine)
        return True

    async def _renew(self, store: Store, summarizer: Summarizer) -> bool:
        """Replace an extractive summary above those that were replaced, lowest level first."""
        for session_id in sorted(self._renewed):
            for old, below in await summaries.renewable(store, session_id):
                key = f"renew:{old.level}:{old.summary_id}"
                if key in self._passed or not summarizer.uses_model(session_id):
                    continue
                self._passed.add(key)
                async with self._leased(store, key) as mine:
                    # The previous holder of the lease may have done it.
                    if not mine or (old, below) not in await summaries.renewable(store, session_id):
                        continue
                    made = await summarizer.summarize_summaries(session_id, below, instead_of=old)
                    await store.apply([redacted(AddSummary(summary=made))])
                return True
            self._renewed.discard(session_id)
        return False

    async def _roll_up(self, store: Store, summarizer: Summarizer) -> bool:
        async def do(item: Pending) -> bool:
            chars = self._config.rollup_chars
            due = partial(summaries.due_roll_up, store, item.session_id, rollup_chars=chars)
            if not await due():
                return False
            await summarizer.consider(store, [item.session_id])
            async with self._leased(store, item.key, f"roll_up:{item.session_id}") as mine:
                # The previous holder of the lease may have done it.
                found = await due() if len(mine) == 2 else []
                if not found:
                    return False
                summary = await summarizer.summarize_summaries(item.session_id, found)
                await store.apply([redacted(AddSummary(summary=summary))])
            return True

        return await self._first_due(store, "roll_up", do)

    async def _thread(self, store: Store, summarizer: Summarizer) -> bool:
        is_due = partial(summaries.thread_summary_due, every=self._config.every_n_messages)
        self._idle_at = None

        async def do(item: Pending) -> bool:
            session = await store.session(item.session_id)
            if not is_due(session) and not summaries.is_idle(session, self._clock()):
                if idle_at := summaries.idle_at(session):
                    self._idle_at = min(idle_at, self._idle_at or idle_at)
                return False
            async with self._leased(store, item.key) as mine:
                session = await store.session(item.session_id)
                if mine and is_due(session):
                    await summarizer.consider(store, [item.session_id])
                    await self.summarize_thread(store, summarizer, session)
                    return True
                idle = summaries.is_idle(session, self._clock())
                return bool(mine and idle) and await self._summarize_idle(
                    store, summarizer, session
                )

        return await self._first_due(store, "thread", do)

    async def summarize_thread(self, store: Store, summarizer: Summarizer, session: Session) -> str:
        """Update a session's own summary from the turns since the last update; return it."""
        at = self._clock()
        since = await self._turns_since(store, session)
        are_known = bool(session.summary) and session.message_count <= session.summarized_count
        summary = await summarizer.thread_summary(session.summary, since, are_known=are_known)
        return await self._put_summary(store, session, summary, at)

    async def _summarize_idle(self, store: Store, summarizer: Summarizer, session: Session) -> bool:
        """Update an idle session's summary from its turns' summaries; false if some are missing."""
        since = await self._turns_since(store, session)
        ids = [summaries.summary_id(turn.session_id, 1, (turn.turn_id,)) for turn in since]
        made = {each.summary_id: each for each in await store.get(Summary, ids)}
        if not since or len(made) < len(ids):
            return False
        summary = summarizer.idle_summary(session.summary, [made[each] for each in ids])
        await self._put_summary(store, session, summary, self._clock())
        return True

    @staticmethod
    async def _turns_since(store: Store, session: Session) -> list[Turn]:
        count = (session.message_count - session.summarized_count) // 2
        query = TurnQuery(limit=max(1, count), statuses=("completed",))
        return await store.turns(session.session_id, query)

    @staticmethod
    async def _put_summary(store: Store, session: Session, summary: str, at: datetime) -> str:
        name, count = session.session_id, session.message_count
        renewed = UpdateSession(session_id=name, summary=summary, summarized_count=count, at=at)
        await store.apply([redacted(renewed)])
        return summary

    # --- references and memories ------------------------------------------------------

    async def _look_through(self, store: Store, work: Work, reader: Reader) -> bool:
        items = await self._fresh(store, work, limit=1)

        async def do() -> bool:
            for item in items if work == "memories" else ():
                if self._summarizer:
                    await self._summarizer.consider(store, [item.session_id])
            self._passed |= await reader.look_through(store, items, self._owner_id)
            return True

        return bool(items) and await self._attempted(items, do)
