"""Facts, memories that outlive their conversations: adding, searching, editing, removing them.

A store only keeps memories; which are the same, which supersede others and which are relevant to a
question is decided here. New memories all go through `settle`: compared with the known ones, under
a lease that all processes share, in one transaction.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ragmem.config import FactsConfig
from ragmem.embedder import Embedder, Thresholds, cosines
from ragmem.errors import AmbiguousMemory, MemoryNotFound, StoreUnavailable, UsageError
from ragmem.ids import beginning_hint, short_id
from ragmem.memory.facts import (
    Draft,
    FactHit,
    FactQuestion,
    Remembered,
    candidate,
    changed,
    checked,
    expiry,
    past_their_time,
)
from ragmem.memory.leases import leased
from ragmem.memory.recall import ComparableVectors
from ragmem.memory.recording import redacted, surely
from ragmem.records import (
    MEMORY_LEVEL,
    Evidence,
    MarkExtracted,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    Profile,
    PutMemory,
    PutProfile,
    Write,
    utc_now,
)
from ragmem.redact import redact
from ragmem.service import SEARCH_S, Client
from ragmem.store import Store
from ragmem.text import clean, one_line
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.memory.facts.ranking import Book


LEASE = "memories"
_LEASE_S = 10.0
_PATIENCE_S = 3.0
_PAUSE_S = 0.03


_log = logging.getLogger("ragmem")

_KNOWN_LIMIT = 12
_EMBEDDING_S = 5.0
"""The timeout for embedding a new memory; after it, the worker makes its vector later."""
_KEY_CHARS = 80
_VALUE_CHARS = 400


FRESH_S = 1.0
"""How long the cache is used without asking the store: a turn searches several times."""


class CachedFacts(msgspec.Struct, frozen=True):
    """The memories of a project and the user, as read at one moment; immutable."""

    memories: Sequence[MemoryRecord]
    """All of them, newest first."""
    rows: dict[str, bytes]
    """The vectors, by memory id."""
    revision: int
    """The revision of the store's memories; the content is at least as new."""
    read_at: float
    """The time on the monotonic clock."""


class FactCache:
    """A cache of memories with their vectors and search index, by project.

    `model_id` is the id of the embedder whose vectors are cached; empty for none.
    """

    def __init__(self, model_id: str, clock: Callable[[], datetime]) -> None:
        self._model_id = model_id
        self._clock = clock
        self._cached: dict[str | None, CachedFacts] = {}
        self._books: dict[str | None, Book] = {}

    async def of(
        self, store: Store, project_id: str | None, *, surely: bool = False
    ) -> CachedFacts:
        """Return the memories of a project and the user; `surely` checks the store in any case."""
        held = self._cached.get(project_id)
        now = time.monotonic()
        if held is not None and not surely and now - held.read_at < FRESH_S:
            return held
        # Read first, so that the memories read next are at least as new.
        revision = await store.memories_revision()
        held = self._cached.get(project_id)
        if held is not None and held.revision == revision:
            renewed = msgspec.structs.replace(held, read_at=now)
        else:
            scope = (project_id,) if project_id else ()
            found = await store.memories(MemoryQuery(project_ids=scope, alive_at=self._clock()))
            renewed = await self._with_rows(store, held, found, revision, now)
        if self._cached.get(project_id) is held:
            self._cached[project_id] = renewed
        return renewed

    async def write(self, store: Store, writes: Sequence[Write]) -> None:
        """Apply the writes, and update the cache, or mark it stale if others wrote meanwhile."""
        before: int | None = None
        with suppress(StoreUnavailable):
            before = await store.memories_revision() if self._cached else None
        await surely(store, writes)
        self.mark_stale()
        puts = [write for write in writes if isinstance(write, PutMemory)]
        ids = {each for put in puts for each in (put.memory.memory_id, *put.supersedes)}
        standing = {name: one for name, one in self._cached.items() if one.revision == before}
        if before is None or not ids or not standing:
            return
        with suppress(StoreUnavailable):
            # The stored form, which may differ from what was written.
            found = await store.get(MemoryRecord, list(ids))
            if await store.memories_revision() != before + 1:
                return
            now = self._clock()
            for project_id, held in standing.items():
                own = [m for m in found if m.project_id in (None, project_id)]
                if project_id and len(own) < len(found):
                    # Another project: this one may have been joined to it. Read again when needed.
                    continue
                known = [memory for memory in held.memories if memory.memory_id not in ids]
                known += [memory for memory in own if memory.is_current(now)]
                known.sort(key=lambda memory: (memory.created_at, memory.memory_id), reverse=True)
                read_at = time.monotonic()
                revision = held.revision + 1
                renewed = await self._with_rows(store, held, known, revision, read_at)
                if self._cached.get(project_id) is held:
                    self._cached[project_id] = renewed

    def mark_stale(self) -> None:
        """Mark the cache as old, so that the next use checks the store's revision."""
        self._cached = {
            name: msgspec.structs.replace(held, read_at=float("-inf"))
            for name, held in self._cached.items()
        }

    async def book(self, project_id: str | None, held: CachedFacts) -> "Book":
        """Return the search index of cached memories, made when it is first asked for."""
        from ragmem.memory.facts.ranking import book_of

        # In a thread: thousands of new ones would block the event loop.
        book = await asyncio.to_thread(book_of, held.memories, self._books.get(project_id))
        self._books[project_id] = book
        return book

    async def _with_rows(
        self,
        store: Store,
        held: CachedFacts | None,
        found: Sequence[MemoryRecord],
        revision: int,
        read_at: float,
    ) -> CachedFacts:
        """Return memories with their vectors, from the cache for those that say the same still."""
        before = {memory.memory_id: memory.content for memory in held.memories} if held else {}
        rows = {
            memory.memory_id: held.rows[memory.memory_id]
            for memory in found
            if held and memory.memory_id in held.rows and before[memory.memory_id] == memory.content
        }
        missing = [memory.memory_id for memory in found if memory.memory_id not in rows]
        if missing and self._model_id:
            rows |= await store.small_vectors(missing, MEMORY_LEVEL, self._model_id)
        # Always in the same order, which makes the last digit of a cosine reproducible.
        rows = {m.memory_id: rows[m.memory_id] for m in found if m.memory_id in rows}
        return CachedFacts(found, rows, revision, read_at)


FACTS = "facts"
"""The name of the service's search, which takes a `FactQuestion` and returns `FactHit`s."""


class Facts:
    """Adds, searches, edits and removes memories. One per process, available as `memory.facts`."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        open_store: Callable[[], Awaitable[Store]],
        owner_id: str,
        *,
        embedder: Embedder | None = None,
        limits: Thresholds | None = None,
        config: FactsConfig = FactsConfig(),  # noqa: B008 - frozen
        service: Client | None = None,
        on_written: Callable[[Remembered], None] = lambda _: None,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Searches ask `service` first, and fall back to this process.

        `on_written` is called for each memory added or updated, so that the user sees it.
        """
        self._open_store = open_store
        self._service = service
        self._thresholds = limits or (embedder.info.thresholds if embedder else Thresholds())
        self._config = config
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._owner_id = owner_id
        self._lock = asyncio.Lock()
        self._vectors = ComparableVectors(embedder, self._metrics)
        self._cache = FactCache(self._vectors.model_id, clock)
        self._on_written = on_written

    # --- adding -----------------------------------------------------------------

    async def remember(self, draft: Draft, project_id: str | None) -> Remembered:
        """Store a draft as new or in place of others, unless it is known or refused.

        Raises StoreError.
        """
        [remembered] = await self.settle([draft], project_id)
        return remembered

    async def settle(
        self, drafts: Sequence[Draft], project_id: str | None, *, beside: Sequence[Write] = ()
    ) -> list[Remembered]:
        """Compare and store drafts in one transaction with the writes `beside`; return the outcome
        of each. Raises StoreError."""
        from ragmem.memory.facts.trust import Settlement

        now = self._clock()
        told = [checked(draft, project_id) for draft in drafts]
        store = await self._open_store()
        fresh = [candidate(draft, project_id, now) for draft, problem in told if not problem]
        texts = [memory.content for memory, _ in fresh]
        vectors = await self._vectors.rows(store, texts, patience_s=_EMBEDDING_S)
        async with self._alone(store):
            settlement = Settlement(duplicate=self._thresholds.duplicate, now=now)
            if fresh:
                # Without the store they are spooled uncompared; a later similar one replaces them.
                with suppress(StoreUnavailable):
                    known = await self._cache.of(store, project_id, surely=True)
                    settlement.know(known.memories, known.rows, project_id)
            kept = iter(
                msgspec.structs.replace(settlement.settle(memory, row), note=note)
                for (memory, note), row in zip(fresh, vectors or [b""] * len(fresh), strict=True)
            )
            out = [
                Remembered(action="refused", note=problem) if problem else next(kept)
                for _, problem in told
            ]
            out = list(map(settlement.final_outcome, out))
            puts = [redacted(put) for put, _ in settlement.puts]
            rows = [row for _, row in settlement.puts]
            writes = [*puts, *self._vectors.writes([put.memory for put in puts], rows), *beside]
            if writes:
                await self._cache.write(store, writes)
        for remembered in out:
            self._metrics.count(f"memories.{remembered.action}")
            if remembered.action in ("added", "updated"):
                self._on_written(remembered)
        return out

    @asynccontextmanager
    async def _alone(self, store: Store) -> AsyncIterator[None]:
        """Let no other task or process compare or write memories meanwhile.

        After a few seconds without the lease, continue anyway: a duplicate costs less than a lost
        memory, and the next similar memory replaces both.
        """
        deadline = time.monotonic() + _PATIENCE_S
        async with self._lock, AsyncExitStack() as stack:
            # While the store is unavailable, writes wait in the spool.
            with suppress(StoreUnavailable):
                while True:
                    lease = leased(store, [LEASE], self._owner_id, seconds=_LEASE_S)
                    if await stack.enter_async_context(lease) or time.monotonic() > deadline:
                        break
                    await stack.aclose()
                    await asyncio.sleep(_PAUSE_S)
            yield

    async def _put(self, store: Store, memory: MemoryRecord, *gone: str) -> None:
        """Write a memory with its vector; it supersedes those with the ids `gone`."""
        put = redacted(PutMemory(memory=memory, supersedes=gone))
        rows = await self._vectors.rows(store, [memory.content], patience_s=_EMBEDDING_S)
        await self._cache.write(store, [put, *self._vectors.writes([memory], rows)])

    async def supersede(
        self, new: MemoryRecord, old: MemoryRecord, *, says_the_same: bool = False
    ) -> bool:
        """Let a known memory supersede another, and other wordings of that from the same turn.

        If it says the same, it also gets the other's evidence. Return False if one of them is no
        longer current, or the source of the new one is not trusted enough.
        """
        from ragmem.memory.facts.trust import carried_over, in_other_words, may_supersede

        store = await self._open_store()
        async with self._alone(store):
            found = await store.get(MemoryRecord, [new.memory_id, old.memory_id])
            now = self._clock()
            if len(found) < 2 or not all(memory.is_current(now) for memory in found):
                return False
            new, old = found
            if not may_supersede(new, old):
                return False
            merged = carried_over(new, [old], sources=[old] if says_the_same else ())
            merged = msgspec.structs.replace(merged, kind=new.kind, updated_at=now)
            twins = in_other_words(old, await self.current(old.project_id or new.project_id))
            gone = [old, *(twin for twin in twins if twin != new and may_supersede(new, twin))]
            await self._put(store, merged, *(each.memory_id for each in gone))
        self._metrics.count("memories.superseded")
        self._on_written(Remembered(action="updated", memory=merged, superseded=tuple(gone)))
        return True

    # --- searching --------------------------------------------------------------

    async def search(
        self,
        text: str,
        *,
        project_id: str | None,
        limit: int | None = None,
        subjects: tuple[str, ...] = (),
        floor: bool = True,
        patience_s: float | None = None,
    ) -> list[FactHit]:
        """Return the memories of the project and the user that are relevant to a text, best first.

        With `floor`, only those more similar than the embedder's `fact` threshold, or that share a
        word, a subject or an alias with the text; otherwise the best there are. `limit` defaults to
        the setting `memory.facts.shown`. Raises StoreError.
        """
        limit = self._config.shown if limit is None else limit
        if limit < 1:
            return []
        asked = FactQuestion(text, project_id, limit, subjects, floor)
        found = None
        with self._metrics.time("facts.search"):
            if self._service:
                found = await self._service.ask(FACTS, asked, list[FactHit], within_s=SEARCH_S)
            if found is None:
                found = await self._searched(asked, patience_s)
        self._metrics.count("facts.searches")
        self._metrics.count("facts.found", 1 if found else 0)
        return found

    async def _searched(self, asked: FactQuestion, patience_s: float | None) -> list[FactHit]:
        from ragmem.memory.facts.ranking import search

        store = await self._open_store()
        held = await self._cache.of(store, asked.project_id)
        if not held.memories:
            return []
        near = await self._similarities(store, held, asked.text, patience_s)
        book = await self._cache.book(asked.project_id, held)
        # In a thread: scoring thousands would block the event loop.
        least, now = self._thresholds.fact, self._clock()
        return await asyncio.to_thread(search, book, asked, near, now, least=least)

    async def recent(self, *, project_id: str | None, limit: int) -> list[MemoryRecord]:
        """Return the latest memories, newest first."""
        store = await self._open_store()
        scope = (project_id,) if project_id else ()
        return await store.memories(
            MemoryQuery(project_ids=scope, alive_at=self._clock(), limit=max(0, limit))
        )

    async def pinned(self, project_id: str | None) -> list[MemoryRecord]:
        """Return pinned memories and rules, oldest first, so that their order is stable."""
        found = [each for each in await self.current(project_id) if each.stands_always]
        return sorted(found, key=lambda memory: (memory.created_at, memory.memory_id))

    async def preferences(self, project_id: str | None) -> list[MemoryRecord]:
        """Return preferences that the user stated, except pinned ones: the project's own first,
        then those stated most often, then the newest."""
        found = [
            each
            for each in await self.current(project_id)
            if each.kind == "preference" and each.trust == "person" and not each.stands_always
        ]
        return sorted(found, key=lambda each: (each.project_id is None, -len(each.evidence)))

    async def about(
        self, text: str, project_id: str | None
    ) -> tuple[list[MemoryRecord], dict[str, int]]:
        """Return the memories relevant to a text, and the number of memories about each subject."""
        hits = await self.search(text, project_id=project_id, limit=_KNOWN_LIMIT)
        held = await self._cache.of(await self._open_store(), project_id)
        counts = Counter(subject for each in held.memories for subject in each.subjects)
        return [hit.memory for hit in hits], counts

    async def rivals(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """Return older memories on the same subjects that it may have updated, most similar first.

        Their similarity must exceed the `fact` threshold.
        """
        from ragmem.memory.facts.trust import rivals

        held = await self._cache.of(await self._open_store(), memory.project_id)
        row = held.rows.get(memory.memory_id)
        if row is None:
            return []
        here = [m for m in await self.current(memory.project_id) if m.scope == memory.scope]
        near = cosines(row, {m.memory_id: held.rows.get(m.memory_id, b"") for m in here})
        return rivals(memory, here, near, self._thresholds)

    async def current(self, project_id: str | None) -> list[MemoryRecord]:
        """Return all current memories of the project and the user, newest first."""
        held = await self._cache.of(await self._open_store(), project_id)
        now = self._clock()
        return [memory for memory in held.memories if memory.is_current(now)]

    async def find(self, reference: str) -> MemoryRecord:
        """Find a memory by its id or an unambiguous end of it.

        Raises MemoryNotFound, AmbiguousMemory and StoreError.
        """
        wanted = clean(reference).strip().casefold().replace("-", "")
        found = await (await self._open_store()).find_memories(wanted) if wanted else []
        if not found:
            raise MemoryNotFound(
                f"Memory {one_line(reference, 80)} not found.",
                hint="`ragmem memory list` shows what is remembered." + beginning_hint(wanted),
            )
        exact = [memory for memory in found if memory.memory_id.replace("-", "") == wanted]
        if len(found) > 1 and not exact:
            lines = "\n".join(
                f"  {short_id(memory.memory_id)}  {one_line(memory.content, 80)}"
                for memory in found
            )
            raise AmbiguousMemory(
                f"{len(found)} memories match {one_line(reference, 80)!r}:\n{lines}",
                candidates=tuple(memory.memory_id for memory in found),
                hint="Give more of its id.",
            )
        return (exact or found)[0]

    async def history(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """Return the memories that it superseded, newest first."""
        return await (await self._open_store()).superseded_by(memory.memory_id)

    # --- changing ---------------------------------------------------------------

    async def edit(
        self,
        memory: MemoryRecord,
        *,
        content: str | None = None,
        subjects: Sequence[str] | None = None,
        kind: MemoryKind | None = None,
        ttl: str | None = None,
        pinned: bool | None = None,
        scope: MemoryScope | None = None,
        project_id: str | None = None,
    ) -> MemoryRecord:
        """Apply the user's edits to a memory; None leaves a field as it is.

        An empty `ttl` removes the expiry. With `scope="project"` it moves to `project_id`. Raises
        UsageError and StoreError.
        """
        from ragmem.memory.facts.trust import joined

        now = self._clock()
        expires_at, note = expiry(ttl, now)
        if note:
            raise UsageError(note)
        store = await self._open_store()
        async with self._alone(store):
            # Read again, to keep what others have changed since.
            for current in await store.get(MemoryRecord, [memory.memory_id]):
                edited = changed(
                    current,
                    content=content,
                    subjects=subjects,
                    kind=kind,
                    pinned=pinned,
                    owner=_owner(current, scope, project_id),
                )
                if ttl is not None:
                    edited = msgspec.structs.replace(edited, expires_at=expires_at)
                if edited == current:
                    return current
                if edited.content != current.content:
                    said = Evidence(quote=edited.content, at=now)
                    sources = joined([*edited.evidence, said])
                    edited = msgspec.structs.replace(edited, evidence=sources)
                await self._put(store, msgspec.structs.replace(edited, updated_at=now))
        return await self.find(memory.memory_id)

    async def forget(self, memory: MemoryRecord) -> dict[str, int]:
        """Remove a memory and those that it superseded; see `Store.forget_memories`.

        Nothing more is learned from the turns that they are from, or they would come back.
        """
        store = await self._open_store()
        # Another task or process that is changing it would write it anew.
        async with self._alone(store):
            every = (memory, *await self.history(memory))
            turns = {place.turn_id for each in every for place in each.evidence if place.turn_id}
            await store.apply([MarkExtracted(turn_ids=tuple(turns))])
            gone = await store.forget_memories([memory.memory_id])
        self._cache.mark_stale()
        _log.info("%d memories were forgotten on request", gone["memories"])
        return gone

    async def cleanup(self) -> int:
        """Remove expired memories, and nothing that has not expired; return how many.

        Daily copies of the store stay: one that is older has them as well.
        """
        store = await self._open_store()
        query = MemoryQuery(everywhere=True, with_superseded=True)
        gone = past_their_time(await store.memories(query), self._clock())
        count = (await store.forget_memories(gone, erase=False))["memories"] if gone else 0
        if count:
            self._cache.mark_stale()
            _log.info("%d memories past their time were removed", count)
        return count

    # --- the profile ------------------------------------------------------------

    async def profile(self) -> Profile:
        """Return what the user has said about themselves."""
        return await (await self._open_store()).profile()

    async def set_profile(self, key: str, value: str | None) -> Profile:
        """Set a key of the profile, or remove it with None. Raises UsageError and StoreError."""
        key = redact("_".join(clean(key).casefold().split()))
        value = value and one_line(redact(clean(value)), _VALUE_CHARS)
        if not key or len(key) > _KEY_CHARS or not key.isprintable() or set(key) & set("=;"):
            raise UsageError(
                f"{one_line(key, _KEY_CHARS)!r} is not a valid profile key.",
                hint="Use a short word, like name or language, without = and ;",
            )
        store = await self._open_store()
        put = PutProfile(key=key, value=value or None, at=self._clock())
        await surely(store, [redacted(put)])
        try:
            return await store.profile()
        except StoreUnavailable:
            # The write waits in the spool; the rest of the profile is unknown.
            return Profile(values={key: value} if value else {}, updated_at=put.at)

    # --- similarity ---------------------------------------------------------------

    async def _similarities(
        self, store: Store, held: CachedFacts, text: str, patience_s: float | None
    ) -> dict[int, float]:
        """Return the text's cosines by position in the book; empty if it can't be compared."""
        if not held.rows:
            return {}
        rows = await self._vectors.rows(store, [text], query=True, patience_s=patience_s)
        near = cosines(rows[0], held.rows) if rows else {}
        places = enumerate(memory.memory_id for memory in held.memories)
        return {place: near[memory_id] for place, memory_id in places if memory_id in near}


def _owner(memory: MemoryRecord, scope: MemoryScope | None, project_id: str | None) -> str | None:
    if scope is None or scope == memory.scope:
        return memory.project_id
    if scope == "user":
        return None
    if project_id is None:
        raise UsageError("Say which project it should belong to.")
    return project_id
