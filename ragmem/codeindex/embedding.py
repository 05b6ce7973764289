"""Vectors made for the texts that wait for one."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import apsw

from ragmem.codeindex import vectors
from ragmem.codeindex.mirroring import Reader, Writer
from ragmem.embedder.base import Embedder

_AT_ONCE = 32


async def embed(
    embedder: Embedder,
    read: Reader,
    write: Writer,
    *,
    first: Sequence[str],
    limit_s: float | None,
    show: Callable[[int, int], None] | None,
    is_closing: Callable[[], bool],
) -> bool:
    """Those of the `first` scopes, then of the newest; whether none waits any more."""
    if not await read(_knows_texts, False):
        return True
    await embedder.prepare()
    info = embedder.info
    await write(partial(vectors.use_embedder, model_id=info.model_id, dimension=info.dimension))
    until = None if limit_s is None else time.monotonic() + limit_s
    of, done = await read(vectors.waiting_count, 0), 0
    while not is_closing():
        none: list[tuple[str, str]] = []
        texts = await read(partial(vectors.waiting, limit=_AT_ONCE, first=first), none)
        if not texts:
            return True
        made = await embedder.embed([text for _, text in texts])
        rows = [
            (key, row.astype("<f4").tobytes()) for (key, _), row in zip(texts, made, strict=True)
        ]
        await write(
            partial(vectors.put, model_id=info.model_id, dimension=info.dimension, rows=rows)
        )
        done += len(rows)
        if show is not None:
            show(done, max(of, done))
        if until is not None and time.monotonic() >= until:
            break
    return not await read(vectors.waiting_count, 0)


def _knows_texts(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM to_embed LIMIT 1").get is not None
