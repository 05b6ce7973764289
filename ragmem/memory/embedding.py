"""The vectors of turns and summaries that have none."""

import asyncio
from collections.abc import Sequence

from ragmem.embedder.base import Embedder, embedding_hash
from ragmem.embedder.passages import passages, turn_passages
from ragmem.records import PutVectors, Summary, Turn
from ragmem.store.base import Store
from ragmem.store.recall import TURN_LEVEL, EmbedderMark, Pending


async def vectors_of(
    store: Store, embedder: Embedder, items: Sequence[Pending]
) -> list[PutVectors]:
    """In one batch; none for a record that is gone. Raises EmbedderError, StoreError."""
    turn_ids = [i.record_id for i in items if i.level == TURN_LEVEL]
    summary_ids = [i.record_id for i in items if i.level != TURN_LEVEL]
    turns = {turn.turn_id: turn for turn in await store.turns_by_id(turn_ids)}
    summaries = {s.summary_id: s for s in await store.summaries_by_id(summary_ids)}
    texts = await asyncio.to_thread(_texts, embedder, items, turns, summaries)
    flat = [text for each in texts.values() for text in each]
    if not flat:
        return []
    rows = await embedder.embed(flat, "passage")
    info = embedder.info
    if await store.embedder() is None:
        # Only now does the embedder know its dimension, where a provider says.
        await store.use_embedder(EmbedderMark(info.model_id, int(rows.shape[1])))
    writes = []
    start = 0
    for item in items:
        own = texts.get(item.record_id, [])
        vectors = rows[start : start + len(own)]
        start += len(own)
        if own:
            writes.append(
                PutVectors(
                    record_id=item.record_id,
                    level=item.level,
                    embedder=info.model_id,
                    text_hash=embedding_hash(info.model_id, "passage", "\0".join(own)),
                    vectors=tuple(row.astype("<f4").tobytes() for row in vectors),
                )
            )
    return writes


def _texts(
    embedder: Embedder,
    items: Sequence[Pending],
    turns: dict[str, Turn],
    summaries: dict[str, Summary],
) -> dict[str, list[str]]:
    """By record, in the order of the items: what is embedded of each."""
    texts: dict[str, list[str]] = {}
    for item in items:
        if turn := turns.get(item.record_id):
            texts[item.record_id] = turn_passages(turn, embedder.count_tokens, embedder.info)
        elif summary := summaries.get(item.record_id):
            texts[item.record_id] = passages(
                "\n".join([summary.text, *summary.key_findings]),
                embedder.count_tokens,
                max_tokens=embedder.info.max_tokens,
            )
    return texts
