"""Facts: what is known beyond the conversations; told, found, changed and forgotten here.

A store keeps memories; what is like what, what takes whose place and what bears on a
question is decided here. All that is written goes through one door, `settle`: compared
with what is known, under a lease that all processes share, in one transaction.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ragmem.config import FactsConfig
from ragmem.embedder.base import Embedder, Thresholds
from ragmem.embedder.numbers import cosines
from ragmem.errors import (
    AmbiguousMemory,
    MemoryNotFound,
    StoreUnavailable,
    UsageError,
)
from ragmem.ids import short_id
from ragmem.memory.facts.cache import FactCache, FactVectors
from ragmem.memory.facts.values import Draft, FactHit, Remembered, expiry, past_their_time
from ragmem.memory.leases import leased
from ragmem.memory.recording import redacted
from ragmem.metrics import Metrics
from ragmem.records import (
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
from ragmem.store.base import Store
from ragmem.text import clean, one_line

if TYPE_CHECKING:
    from ragmem.memory.facts.cache import About, CachedFacts
    from ragmem.memory.facts.trust import Settlement


LEASE = "memories"
_LEASE_S = 10.0
_PATIENCE_S = 3.0
_PAUSE_S = 0.03


class FactLock:
    """Lets one through at a time."""

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self._own = asyncio.Lock()

    @asynccontextmanager
    async def alone(self, store: Store) -> AsyncIterator[None]:
        """Nobody else compares or writes meanwhile, in this process or in another.

        Who can't have that soon goes on all the same: a duplicate costs less than what is lost,
        and the next that is like both takes the place of both.
        """
        deadline = time.monotonic() + _PATIENCE_S
        async with self._own, AsyncExitStack() as stack:
            while True:
                lease = leased(store, [LEASE], self._owner_id, seconds=_LEASE_S)
                try:
                    mine = await stack.enter_async_context(lease)
                except StoreUnavailable:
                    # What is written while the store is away waits in the spool.
                    break
                if mine or time.monotonic() > deadline:
                    break
                await stack.aclose()
                await asyncio.sleep(_PAUSE_S)
            yield


_log = logging.getLogger("ragmem")

_ALREADY = 12
_KEY_CHARS = 80
_VALUE_CHARS = 400


class Facts:
    """See the module's text. One for each process; reached as `memory.facts`."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        owner_id: str,
        *,
        embedder: Embedder | None = None,
        limits: Thresholds | None = None,
        config: FactsConfig = FactsConfig(),  # noqa: B008 - frozen
        on_written: Callable[[Remembered], None] = lambda _: None,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`on_written` is called with each memory that was added or updated: a person sees it."""
        self._open_store = open_store
        self._thresholds = limits or (embedder.info.thresholds if embedder else Thresholds())
        self._config = config
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._lock = FactLock(owner_id)
        self._vectors = FactVectors(embedder, self._metrics)
        self._shelves = FactCache(self._vectors.model_id, clock)
        self._on_written = on_written

    @property
    def thresholds(self) -> Thresholds:
        """Of the embedder, or as the settings say."""
        return self._thresholds

    # --- telling ----------------------------------------------------------------

    async def remember(self, draft: Draft, project_id: str | None) -> Remembered:
        """Keep it: as new, in the place of what it says more of, or not at all. StoreError."""
        [remembered] = await self.settle([draft], project_id)
        return remembered

    async def settle(
        self, drafts: Sequence[Draft], project_id: str | None, *, beside: Sequence[Write] = ()
    ) -> list[Remembered]:
        """What becomes of each, all in one transaction with the writes `beside`. StoreError."""
        from ragmem.memory.facts.drafts import candidate, checked
        from ragmem.memory.facts.trust import Settlement

        now = self._clock()
        told = [checked(draft, project_id) for draft in drafts]
        store = await self._open_store()
        fresh = [candidate(draft, project_id, now) for draft, problem in told if not problem]
        vectors, model_id = await self._vectors.rows(store, [memory.content for memory, _ in fresh])
        async with self._lock.alone(store):
            desk = Settlement(duplicate=self._thresholds.duplicate, now=now)
            revision = await self._tell(desk, store, project_id) if fresh else None
            out: list[Remembered] = []
            at = 0
            for _draft, problem in told:
                if problem:
                    out.append(Remembered(action="refused", note=problem))
                    continue
                memory, note = fresh[at]
                vector = vectors[at] if vectors else b""
                at += 1
                out.append(desk.settle(memory, vector, note=note))
            writes: list[Write] = [redacted(write) for write in desk.writes]
            writes += self._vectors.puts(desk.vectors, model_id)
            if writes or beside:
                await store.apply([*writes, *beside])
                await self._shelves.wrote(store, [*writes, *beside], revision)
        for remembered in out:
            self._metrics.count(f"memories.{remembered.action}")
            if remembered.action in ("added", "updated"):
                self._on_written(remembered)
        return out

    async def _tell(self, desk: "Settlement", store: Store, project_id: str | None) -> int | None:
        """Tell what is known; the revision of that."""
        try:
            shelf = await self._shelves.of(store, project_id, surely=True)
        except StoreUnavailable:
            # Kept by the spool, uncompared: the next that is like it takes its place.
            return None
        desk.know(shelf.memories, shelf.rows, project_id)
        return shelf.revision

    async def supersede(self, new: MemoryRecord, old: MemoryRecord) -> bool:
        """Let one known memory take another's place; whether both were still there for it."""
        from ragmem.memory.facts.trust import carried_over, may_supersede

        store = await self._open_store()
        async with self._lock.alone(store):
            found = await store.memories_by_id([new.memory_id, old.memory_id])
            now = self._clock()
            if len(found) < 2 or not all(memory.is_current(now) for memory in found):
                return False
            new, old = found
            if not may_supersede(new, old):
                return False
            merged = carried_over(new, [old])
            merged = msgspec.structs.replace(merged, kind=new.kind, updated_at=now)
            put = redacted(PutMemory(memory=merged, supersedes=(old.memory_id,)))
            vector = await self._vectors.of(store, merged)
            revision = await self._shelves.before_writing(store)
            await store.apply([put, *vector])
            await self._shelves.wrote(store, [put], revision)
        self._metrics.count("memories.superseded")
        self._on_written(Remembered(action="updated", memory=merged, superseded=(old,)))
        return True

    # --- finding ----------------------------------------------------------------

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
        """What bears on a text, best first; those of the project and the person's.

        `floor`: only what is nearer than the embedder's `fact`, or shares a word, a subject or
        another name with the text; without it the best. `limit`: as many as the settings say.
        StoreError.
        """
        from ragmem.memory.facts.ranking import Asked, search

        limit = self._config.shown if limit is None else limit
        if limit < 1:
            return []
        store = await self._open_store()
        with self._metrics.time("facts.search"):
            shelf = await self._shelves.of(store, project_id)
            if not shelf.book.entries:
                return []
            asked = Asked(
                text=text,
                subjects=subjects,
                limit=limit,
                floor=self._thresholds.fact if floor else None,
                floored=floor,
            )
            near = await self._near(store, shelf, text, patience_s)
            # Thousands take a moment: whoever types comes first.
            found = await asyncio.to_thread(search, shelf.book, asked, near, self._clock())
        self._metrics.count("facts.searches")
        self._metrics.count("facts.found", 1 if found else 0)
        return found

    async def recent(self, *, project_id: str | None, limit: int) -> list[MemoryRecord]:
        """The latest, newest first."""
        store = await self._open_store()
        scope = (project_id,) if project_id else ()
        return await store.memories(
            MemoryQuery(project_ids=scope, alive_at=self._clock(), limit=max(0, limit))
        )

    async def pinned(self, project_id: str | None) -> list[MemoryRecord]:
        """Pinned ones and rules, oldest first: between turns their order stays."""
        store = await self._open_store()
        shelf = await self._shelves.of(store, project_id)
        now = self._clock()
        found = [
            entry.memory
            for entry in shelf.book.entries
            if entry.memory.stands_always and entry.memory.is_current(now)
        ]
        return sorted(found, key=lambda memory: (memory.created_at, memory.memory_id))

    async def about(self, text: str, project_id: str | None) -> "About":
        """What is known already of what a text is about, and how much."""
        from ragmem.memory.facts.cache import About

        hits = await self.search(text, project_id=project_id, limit=_ALREADY)
        shelf = await self._shelves.of(await self._open_store(), project_id)
        return About(tuple(hit.memory for hit in hits), shelf.counts())

    async def rivals(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """Older ones on the same subjects that it may have changed, nearest first.

        Nearer than what merely has to do with it.
        """
        from ragmem.memory.facts.trust import Known, rivals

        store = await self._open_store()
        shelf = await self._shelves.of(store, memory.project_id)
        now = self._clock()
        known = {
            one.memory_id: one
            for one in shelf.memories
            if one.scope == memory.scope and one.is_current(now)
        }
        rows = {name: row for name, row in shelf.rows.items() if name in known}
        if memory.memory_id not in rows:
            return []
        near = cosines(rows[memory.memory_id], rows)
        return rivals(memory, [Known(known[i], near[i]) for i in near], self._thresholds)

    async def current(self, project_id: str | None) -> list[MemoryRecord]:
        """All that hold in the project, and the person's own; newest first."""
        shelf = await self._shelves.of(await self._open_store(), project_id)
        now = self._clock()
        return [memory for memory in shelf.memories if memory.is_current(now)]

    async def find(self, reference: str) -> MemoryRecord:
        """By its id or an unambiguous end of it; MemoryNotFound, AmbiguousMemory."""
        wanted = clean(reference).strip().casefold().replace("-", "")
        found = await (await self._open_store()).find_memories(wanted) if wanted else []
        if not found:
            raise MemoryNotFound(
                f"Memory {one_line(reference, 80)!r} not found.",
                hint="`ragmem memory list` shows what is remembered.",
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
                hint="Name one by more of its id.",
            )
        return (exact or found)[0]

    async def history(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """What it took the place of, newest first."""
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
        """As the person wants it; what is None stays. An empty `ttl`: it lasts from now on.

        `project_id`: to which project it moves with `scope="project"`. UsageError, StoreError.
        """
        from ragmem.memory.facts.drafts import changed

        now = self._clock()
        expires_at, note = expiry(ttl, now)
        if note:
            raise UsageError(note)
        store = await self._open_store()
        async with self._lock.alone(store):
            # As it is by now: what others changed since stays.
            for current in await store.memories_by_id([memory.memory_id]):
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
                edited = msgspec.structs.replace(edited, updated_at=now)
                vector = await self._vectors.of(store, edited)
                put = redacted(PutMemory(memory=edited))
                revision = await self._shelves.before_writing(store)
                await store.apply([put, *vector])
                await self._shelves.wrote(store, [put], revision)
        return await self.find(memory.memory_id)

    async def forget(self, memory: MemoryRecord) -> int:
        """Remove it, with what it took the place of; how many went."""
        store = await self._open_store()
        count = await store.forget_memories([memory.memory_id])
        self._shelves.aged()
        _log.info("%d memories were forgotten on request", count)
        return count

    async def cleanup(self) -> int:
        """Remove those past their own time; how many. What lasts never goes with them."""
        store = await self._open_store()
        query = MemoryQuery(everywhere=True, with_superseded=True)
        gone = past_their_time(await store.memories(query), self._clock())
        count = await store.forget_memories(gone) if gone else 0
        if count:
            self._shelves.aged()
            _log.info("%d memories past their time were removed", count)
        return count

    # --- the profile ------------------------------------------------------------

    async def profile(self) -> Profile:
        """What the person has said of themselves."""
        return await (await self._open_store()).profile()

    async def set_profile(self, key: str, value: str | None) -> Profile:
        """Set one key, or remove it with None; UsageError, StoreError."""
        key = redact("_".join(clean(key).casefold().split()))
        value = value and one_line(redact(clean(value)), _VALUE_CHARS)
        if not key or len(key) > _KEY_CHARS or not key.isprintable() or set(key) & set("=;"):
            raise UsageError(
                f"{one_line(key, _KEY_CHARS)!r} is no name for a key of the profile.",
                hint="Take a short word, like name or language, without = and ;",
            )
        store = await self._open_store()
        put = PutProfile(key=key, value=value or None, at=self._clock())
        await store.apply([redacted(put)])
        try:
            return await store.profile()
        except StoreUnavailable:
            # It waits in the spool, and is all that can be said for sure.
            return Profile(values={key: value} if value else {}, updated_at=put.at)

    # --- what it stands on --------------------------------------------------------

    async def _near(
        self, store: Store, shelf: "CachedFacts", text: str, patience_s: float | None
    ) -> dict[int, float]:
        """Cosines of the text with what has a vector; none while it can't be compared."""
        if not shelf.has_vectors or not text.strip():
            return {}
        rows, _ = await self._vectors.rows(store, [text], query=True, patience_s=patience_s)
        return shelf.cosines(rows[0]) if rows else {}


def _owner(memory: MemoryRecord, scope: MemoryScope | None, project_id: str | None) -> str | None:
    if scope is None or scope == memory.scope:
        return memory.project_id
    if scope == "user":
        return None
    if project_id is None:
        raise UsageError("To which project it is to belong was not said.")
    return project_id
