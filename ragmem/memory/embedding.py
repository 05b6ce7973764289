"""Vectors of turns, summaries, memories and sessions that have none."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from ragmem.embedder import Embedder, embedding_hash, passages, turn_passages
from ragmem.errors import (
    EmbedderError,
    EmbedderUnavailable,
    StoreError,
)
from ragmem.memory import sessions_by_id
from ragmem.records import (
    MEMORY_LEVEL,
    SESSION_LEVEL,
    TURN_LEVEL,
    EmbedderMark,
    MemoryRecord,
    Pending,
    PutVectors,
    Session,
    Summary,
    Turn,
)
from ragmem.store import Store
from ragmem.usage import Metrics

_BATCH = 16
"""Turns embedded in one go: what a process that is killed does again."""
_MOST_STRIKES = 4
"""So often in a row the embedder may fail at some text before it is left to rest."""
_SUMMARIES = 1
_Record = Turn | Summary | MemoryRecord | Session
_log = logging.getLogger("ragmem")


class Embedded(msgspec.Struct, frozen=True):
    """What became of a batch."""

    given_up: frozenset[str] = frozenset()
    """Keys of what can't be embedded, or is not there any more."""
    error: Exception | None = None


class Embedding:
    """Makes vectors batch by batch; an embedder that fails again and again is left to rest."""

    def __init__(self, embedder: Embedder, metrics: Metrics, *, rest_s: float) -> None:
        self._embedder = embedder
        self._rest_s = rest_s
        self._metrics = metrics
        self.batch = _BATCH
        """How many are embedded in one go: one, while a text that can't be is looked for."""
        self._strikes = 0
        self._again_at = 0.0

    @property
    def rests(self) -> bool:
        """Whether it is not to be asked for a while."""
        return time.monotonic() < self._again_at

    async def is_for(self, store: Store) -> bool:
        """Whether the store's vectors are this embedder's; of a store without any they will be."""
        info, mark = self._embedder.info, await store.embedder()
        if mark is None and info.dimension:
            await store.use_embedder(EmbedderMark(info.model_id, info.dimension))
        return mark is None or mark.model_id == info.model_id

    async def embed(self, store: Store, items: Sequence[Pending]) -> Embedded:
        """Make and store the vectors of these. StoreError."""
        try:
            with self._metrics.time("worker.embed"):
                writes = await vectors_of(store, self._embedder, items)
        except StoreError:
            raise
        except Exception as error:
            return Embedded(self._failed(items, error), error)
        await store.apply(writes)
        self.batch, self._strikes = _BATCH, 0
        # What was deleted meanwhile has none.
        made = {write.record_id for write in writes}
        return Embedded(frozenset(item.key for item in items if item.record_id not in made))

    def _failed(self, items: Sequence[Pending], error: Exception) -> frozenset[str]:
        """What to give up: one text that can't be embedded is found, and left out."""
        self._metrics.count("embedder.failures")
        self._strikes += 1
        if isinstance(error, EmbedderUnavailable) or self._strikes > _MOST_STRIKES:
            # Summaries don't wait for it.
            self._again_at = time.monotonic() + self._rest_s
            return frozenset()
        self.batch = 1
        return frozenset({items[0].key}) if len(items) == 1 else frozenset()


async def vectors_of(
    store: Store, embedder: Embedder, items: Sequence[Pending]
) -> list[PutVectors]:
    """In one batch; none for a record that is gone. Raises EmbedderError, StoreError."""
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
        # Only now does the embedder know its dimension, where a provider says.
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
    """By id, in the order of the items; those that exist."""
    ids: dict[int, list[str]] = {}
    for item in items:
        # Summaries of all levels are asked for together.
        ids.setdefault(min(item.level, _SUMMARIES), []).append(item.record_id)
    found: dict[str, _Record] = {}
    found |= {turn.uuid: turn for turn in await store.get(Turn, ids.get(TURN_LEVEL, ()))}
    found |= {each.uuid: each for each in await store.get(Summary, ids.get(_SUMMARIES, ()))}
    found |= {each.uuid: each for each in await store.get(MemoryRecord, ids.get(MEMORY_LEVEL, ()))}
    found |= await sessions_by_id(store, ids.get(SESSION_LEVEL, ()))
    return {item.record_id: found[item.record_id] for item in items if item.record_id in found}


def _texts(embedder: Embedder, record: _Record) -> list[str]:
    """What is embedded of it; a memory's and a session's is one text."""
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


_WAITED_BATCH = 32
"""Done again where it was stopped."""


async def reembed(store: Store, embedder: Embedder, show: Callable[[int], None]) -> int:
    """Give every turn and summary vectors of this embedder; those that have some keep them.

    `show` is told how many more are done; the answer is how many it were in all.
    Raises EmbedderError and StoreError; what was made until then is kept. Nothing is
    leased: one that is killed can be run again at once. What a worker has leased is its own.
    """
    # A provider's model tells its dimension only now.
    await embedder.prepare()
    await store.use_embedder(EmbedderMark(embedder.info.model_id, embedder.info.dimension))
    done, batch = 0, _WAITED_BATCH
    given_up: set[str] = set()
    while True:
        found = await store.pending("vectors", limit=batch + len(given_up))
        items = [item for item in found if item.key not in given_up][:batch]
        if not items:
            return done
        try:
            writes = await vectors_of(store, embedder, items)
        except EmbedderUnavailable:
            raise
        except EmbedderError:
            if done == 0 and batch == 1:
                raise
            # One text that can't be embedded is found, and left out.
            given_up.update(item.key for item in items if batch == 1)
            batch = 1
        else:
            await store.apply(writes)
            made = {write.record_id for write in writes}
            given_up.update(item.key for item in items if item.record_id not in made)
            done += len(writes)
            show(len(writes))
            batch = min(_WAITED_BATCH, 2 * batch)
