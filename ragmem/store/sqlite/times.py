"""Turns of a time that a question names, by one range of an index for each project."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ragmem.store.recall import LOOKED_THROUGH, Interval
from ragmem.store.sqlite.rows import iso

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_CHOSEN = "level = 0 AND at >= ? AND at < ? ORDER BY at DESC, document DESC LIMIT ?"
OF_PROJECT = f"SELECT at, document FROM documents WHERE number = ? AND {_CHOSEN}"


def documents_of(
    connection: apsw.Connection,
    interval: Interval,
    whole: Sequence[int],
    parts: "Mapping[int, Numbers]",
) -> "Numbers":
    """The newest of the interval, newest first: of whole projects, and of parts of others."""
    import numpy as np

    span = (iso(interval.start_at), iso(interval.end_at), LOOKED_THROUGH)
    found: list[tuple[Any, ...]] = []
    for number in whole:
        found += connection.execute(OF_PROJECT, (number, *span)).fetchall()
    for part in parts.values():
        found += connection.execute(
            "SELECT at, document FROM json_each(?) AS chosen"
            f" CROSS JOIN documents ON document = chosen.value WHERE {_CHOSEN}",
            (msgspec.json.encode(part.tolist()).decode(), *span),
        ).fetchall()
    found.sort(reverse=True)
    return np.array([document for _, document in found[:LOOKED_THROUGH]], np.int64)
