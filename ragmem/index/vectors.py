"""Vectors of scopes: the queue of texts to embed, the stored vectors, and a cache in memory.

Vectors are stored by the hash of the embedded text. So a scope that moves keeps its vector, and
one that returns when the branch is switched back has it at once.
"""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from ragmem.index.database import column, listed, rows
from ragmem.similarity import Similarities, VectorCache, Version, packed

if TYPE_CHECKING:
    from ragmem.similarity import Floats, Numbers


_MOST_UNUSED = 20_000
_SHARE_UNUSED = 0.2
_BATCH = 4096
_EXACT_COUNT = 5_000
"""The number of texts without a vector up to which those that no scope uses any more are left out
of their count; looking each of 250,000 up took half a second."""


_WAITING = """to_embed AS t WHERE waits
    AND EXISTS (SELECT 1 FROM scopes AS s WHERE s.embed_hash = t.embed_hash)"""


def embed_hash(text: str) -> str:
    """Return the hash that a text's vector is stored by; empty for an empty text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest() if text else ""


# --- texts to embed ---------------------------------------------------------------------


def want(connection: apsw.Connection, wanted: Sequence[tuple[str, str]]) -> None:
    """Store texts by their hashes, and queue those without a vector."""
    texts = {key: text for key, text in wanted if key}
    if not texts:
        return
    known = column(
        connection,
        "SELECT embed_hash FROM vectors WHERE embed_hash IN (SELECT value FROM json_each(?))",
        listed(texts),
    )
    connection.executemany(
        "INSERT INTO to_embed (embed_hash, text, waits) VALUES (?, ?, ?)"
        " ON CONFLICT (embed_hash) DO NOTHING",
        [(key, text, key not in known) for key, text in texts.items()],
    )


def has_texts(connection: apsw.Connection) -> bool:
    """Return whether any scope has a text to embed."""
    return connection.execute("SELECT 1 FROM to_embed LIMIT 1").get is not None


def waiting(connection: apsw.Connection, limit: int) -> list[tuple[str, str]]:
    """Return hashes and texts without a vector, those added last first."""
    newest = f"SELECT embed_hash, text FROM {_WAITING} ORDER BY place DESC LIMIT ?"
    return [(key, text) for key, text in rows(connection, newest, limit)]


def waiting_count(connection: apsw.Connection) -> int:
    """Return the number of texts without a vector; if they are few, only of those in use."""
    count = int(connection.execute("SELECT count(*) FROM to_embed WHERE waits").get)
    if count > _EXACT_COUNT:
        return count  # All but a handful: each refresh that finds changes prunes them.
    return int(connection.execute(f"SELECT count(*) FROM {_WAITING}").get)


# --- stored vectors -----------------------------------------------------------------------


def use_embedder(connection: apsw.Connection, model_id: str, dimension: int) -> None:
    """If the embedder has changed, delete all vectors and queue all texts again."""
    if _mark(connection) == (model_id, dimension):
        return
    connection.execute("DELETE FROM vectors")
    connection.execute("UPDATE to_embed SET waits = 1 WHERE NOT waits")
    connection.execute(
        "UPDATE state SET model_id = ?, dimension = ?, epoch = epoch + 1", (model_id, dimension)
    )


def put(
    connection: apsw.Connection, mark: tuple[str, int], made: Sequence[tuple[str, bytes]]
) -> None:
    """Store vectors (float32) by text hash, unless the index has another (model, dimension)."""
    sound = [(key, vector) for key, vector in made if key and len(vector) == 4 * mark[1]]
    if not sound or _mark(connection) != mark:
        return
    connection.executemany(
        "INSERT INTO vectors (embed_hash, packed) VALUES (?, ?)"
        " ON CONFLICT (embed_hash) DO NOTHING",
        [(key, packed([vector])) for key, vector in sound],
    )
    connection.execute(
        "UPDATE to_embed SET waits = 0 WHERE embed_hash IN (SELECT value FROM json_each(?))",
        (listed(key for key, _ in sound),),
    )
    connection.execute("UPDATE state SET epoch = epoch + 1")


def prune(connection: apsw.Connection) -> None:
    """Delete texts that no scope uses, and the oldest of their vectors if there are too many."""
    unused = "NOT EXISTS (SELECT 1 FROM scopes AS s WHERE s.embed_hash = v.embed_hash)"
    connection.execute(f"DELETE FROM to_embed AS v WHERE {unused}")
    held = connection.execute("SELECT count(*) FROM vectors").get
    count = connection.execute(f"SELECT count(*) FROM vectors AS v WHERE {unused}").get
    most = max(_MOST_UNUSED, int(_SHARE_UNUSED * held))
    connection.execute(
        "DELETE FROM vectors WHERE place IN"
        f" (SELECT place FROM vectors AS v WHERE {unused} ORDER BY place LIMIT ?)",
        (max(0, count - most),),
    )


def _mark(connection: apsw.Connection) -> tuple[str, int]:
    return connection.execute("SELECT model_id, dimension FROM state").get or ("", 0)


# --- in memory ------------------------------------------------------------------------------


class ScopeVectors:
    """The vectors of an index in memory, mapped to scopes as of the current epoch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache = VectorCache()
        self._epoch = -1
        self._scopes: Numbers
        self._places: Numbers
        """The row ids of those scopes' vectors."""

    def similarities(
        self, connection: apsw.Connection, vector: bytes, model_id: str
    ) -> "tuple[Numbers, Floats]":
        """Return scopes' row ids, sorted, and cosine similarities; none for another model."""
        import numpy as np

        known, dimension = _mark(connection)
        if not vector or known != model_id or len(vector) != 4 * dimension:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        born, epoch = connection.execute("SELECT born, epoch FROM state").get
        with self._lock:
            if epoch != self._epoch:
                self._scopes, self._places = _places(connection)
                self._epoch = epoch
            read = partial(_vectors_after, connection)
            parts = self._cache.similarities("", Version(known, dimension, born), vector, read)
            found = Similarities.joined(list(parts))
            return self._scopes, found.best[np.searchsorted(found.records, self._places)]


def _places(connection: apsw.Connection) -> "tuple[Numbers, Numbers]":
    """Return the row ids of scopes with a vector, sorted, and those of the vectors."""
    import numpy as np

    # Reading one string of numbers is far faster than reading as many rows.
    found = connection.execute(
        "SELECT group_concat(scope), group_concat(place) FROM"
        " (SELECT scope, place FROM scopes JOIN vectors USING (embed_hash) ORDER BY scope)"
    ).get
    scopes, places = (np.fromstring(joined or "", np.int64, sep=",") for joined in found)
    return scopes, places


def _vectors_after(
    connection: apsw.Connection, place: int
) -> Iterator[tuple[Sequence[int], Sequence[bytes], int]]:
    cursor = connection.execute(
        "SELECT place, packed FROM vectors WHERE place > ? ORDER BY place", (place,)
    )
    while found := list(islice(cursor, _BATCH)):
        places, packs = zip(*found, strict=True)
        yield places, packs, places[-1]
