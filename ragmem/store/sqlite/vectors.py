"""Vectors in the database, and those of a project in memory while it is searched."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from ragmem.records import PutVectors
from ragmem.store import vectors
from ragmem.store.recall import TURN_LEVEL, EmbedderMark
from ragmem.store.sqlite import small_vectors
from ragmem.store.sqlite.documents import PLACE_BITS, remove_vectors
from ragmem.store.sqlite.rows import value
from ragmem.store.sqlite.writes import Step

if TYPE_CHECKING:
    from ragmem.store.vectors import Floats, Numbers

MOST_BYTES = 256 << 20
"""Of vectors that stay in memory; what is beyond is read for each search."""
_BATCH = 4096


def embedder(connection: apsw.Connection) -> EmbedderMark | None:
    """Of which the vectors are."""
    held = connection.execute("SELECT model_id, dimension FROM recall_state").fetchone()
    return None if held is None or held[0] is None else EmbedderMark(held[0], held[1])


def use_embedder(connection: apsw.Connection, mark: EmbedderMark) -> None:
    """Drop the vectors of another one, and let all be made anew."""
    if embedder(connection) == mark:
        return
    connection.execute("DELETE FROM vectors")
    small_vectors.drop_all(connection)
    connection.execute("UPDATE project_numbers SET epoch = epoch + 1")
    connection.execute(
        """
        UPDATE documents SET to_embed = 1 WHERE NOT to_embed AND (
            level > 0 OR record_id IN (SELECT turn_id FROM turns WHERE status = 'completed')
        )
        """
    )
    connection.execute(
        "UPDATE recall_state SET model_id = ?, dimension = ?", (mark.model_id, mark.dimension)
    )


def put_vectors(write: PutVectors) -> Step:
    """A record's vectors are written; left out when they are not the embedder's, or of nothing."""
    sizes = {len(vector) for vector in write.vectors}
    whole = len(sizes) == 1 and not sum(sizes) % 4
    packed = vectors.packed(write.vectors) if whole else b""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        mark = embedder(connection)
        if mark is None or mark.model_id != write.embedder or sizes - {4 * mark.dimension}:
            return
        if write.level < TURN_LEVEL:
            small_vectors.put(connection, write)
            return
        held = connection.execute(
            """
            SELECT document, number FROM documents AS d WHERE record_id = :record_id AND (
                level > 0 OR EXISTS (
                    SELECT 1 FROM turns WHERE turn_id = :record_id AND status = 'completed'
                )
            )
            """,
            {"record_id": write.record_id},
        ).fetchone()
        if held is None:
            return
        document, number = held
        same = connection.execute(
            "SELECT 1 FROM vectors WHERE document = ? AND text_hash = ? AND packed = ?",
            (document, write.text_hash, packed),
        ).get
        if same is not None:
            return
        remove_vectors(connection, document)
        first, last = _places(number)
        newest: int | None = connection.execute(
            "SELECT max(place) FROM vectors WHERE place BETWEEN ? AND ?", (first, last)
        ).get
        connection.execute(
            "INSERT INTO vectors (place, document, text_hash, packed) VALUES (?, ?, ?, ?)",
            (first if newest is None else newest + 1, document, write.text_hash, packed),
        )
        connection.execute("UPDATE documents SET to_embed = 0 WHERE document = ?", (document,))

    return step


def vectors_of(connection: apsw.Connection, record_ids: Sequence[str]) -> list[PutVectors]:
    """The vectors of those that have some, in this order."""
    mark = embedder(connection)
    if mark is None:
        return []
    ids = value(tuple(record_ids))
    found = connection.execute(
        """
        SELECT chosen.key, d.record_id, d.level, v.text_hash, v.packed
        FROM json_each(?) AS chosen
        JOIN documents AS d ON d.record_id = chosen.value
        JOIN vectors AS v ON v.document = d.document
        """,
        (ids,),
    )
    held = [
        (place, record_id, level, text_hash, vectors.unpacked(packed, mark.dimension))
        for place, record_id, level, text_hash, packed in found
    ]
    small = connection.execute(
        """
        SELECT chosen.key, v.record_id, v.level, v.text_hash, v.vector
        FROM json_each(?) AS chosen JOIN small_vectors AS v ON v.record_id = chosen.value
        WHERE v.level IN (-1, -2)
        """,
        (ids,),
    )
    held += [(*which, (vector,) if vector else ()) for *which, vector in small]
    held.sort(key=lambda each: each[0])
    return [
        PutVectors(
            record_id=record_id,
            level=level,
            embedder=mark.model_id,
            text_hash=text_hash,
            vectors=given,
        )
        for _, record_id, level, text_hash, given in held
    ]


def small_vectors_of(
    connection: apsw.Connection, record_ids: Sequence[str], level: int, model_id: str
) -> dict[str, bytes]:
    """Vectors of memories or sessions, of those that have one of this embedder."""
    mark = embedder(connection)
    if mark is None or mark.model_id != model_id:
        return {}
    return small_vectors.of(connection, record_ids, level)


def _places(number: int) -> tuple[int, int]:
    """The first and the last that a project can have."""
    return number << PLACE_BITS, (number + 1 << PLACE_BITS) - 1


class _Held:
    """A project's vectors, as they were up to a place."""

    def __init__(self, dimension: int, epoch: int, number: int) -> None:
        self.epoch = epoch
        self.matrix = vectors.Matrix(dimension)
        self.place = _places(number)[0] - 1
        """The last that was read."""


class Resident:
    """The vectors that a process has searched, by project; the least used are let go."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[int, _Held] = {}
        """The one that was used last is last."""
        self._mark: EmbedderMark | None = None

    def similarities(
        self, connection: apsw.Connection, number: int, vector: bytes, mark: EmbedderMark
    ) -> "Iterator[tuple[Numbers, Floats]]":
        """Documents of a project, and their cosines with a vector; in parts."""
        if mark != self._mark:
            self._held, self._mark = {}, mark
        epoch = connection.execute(
            "SELECT epoch FROM project_numbers WHERE number = ?", (number,)
        ).get
        held = self._held.pop(number, None)
        if held is None or held.epoch != epoch:
            held = _Held(mark.dimension, epoch, number)
        for documents, packs, place in _after(connection, held.place, _places(number)[1]):
            held.matrix.add(documents, packs)
            held.place = place
            if held.matrix.size_bytes > self._most_bytes:
                # More than may stay: this part is compared, and let go.
                yield held.matrix.similarities(vector)
                place = held.place
                held = _Held(mark.dimension, -1, number)
                held.place = place
        yield held.matrix.similarities(vector)
        if held.epoch == epoch:
            self._held[number] = held
            self._make_room()

    def _make_room(self) -> None:
        size = sum(held.matrix.size_bytes for held in self._held.values())
        while size > self._most_bytes:
            size -= self._held.pop(next(iter(self._held))).matrix.size_bytes


def _after(
    connection: apsw.Connection, place: int, last: int
) -> Iterator[tuple[list[int], list[bytes], int]]:
    cursor = connection.execute(
        "SELECT place, document, packed FROM vectors WHERE place > ? AND place <= ? ORDER BY place",
        (place, last),
    )
    while rows := list(islice(cursor, _BATCH)):
        places, documents, packs = zip(*rows, strict=True)
        yield list(documents), list(packs), places[-1]
