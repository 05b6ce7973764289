"""All vectors anew, while somebody waits for it: when another embedder is set."""

from collections.abc import Callable

from ragmem.embedder.base import Embedder
from ragmem.errors import EmbedderError, EmbedderUnavailable
from ragmem.memory.embedding import vectors_of
from ragmem.store.base import Store
from ragmem.store.recall import EmbedderMark

_BATCH = 32
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
    done, batch = 0, _BATCH
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
            batch = min(_BATCH, 2 * batch)
