"""What a record is found by: its words, and the number of the document that has them.

A document's number is a sequence number, three bits of its level (7 for 7 and up) and
eight of its length, so that what a search reads of the index is all that it needs to
compute BM25.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import apsw
import msgspec

from ragmem.records import Summary, ToolCall, Turn
from ragmem.store.sqlite.rows import Row, call_fields, record, rows, turn_fields

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    D = TypeVar("D", int, NDArray[np.int64])

_LEVEL_BITS, _LENGTH_BITS = 3, 8
HIGHEST = (1 << _LEVEL_BITS) - 1
"""Of a level in a document's number: it stands for those above too."""
_STEPS = 16
"""Lengths told apart between one and its double."""
_BATCH = 200
_MOST_OF_A_TERM = 8
"""Times that a term is indexed for one record: BM25 hardly counts more, and each takes room."""


class Words(NamedTuple):
    """Index terms of a record, joined with spaces."""

    text: str
    length: int

    @property
    def digest(self) -> int:
        """Tells whether they are others: 63 bits."""
        hashed = hashlib.blake2b(self.text.encode(), digest_size=8).digest()
        return int.from_bytes(hashed, "big") >> 1


def words_of_turn(turn: Turn) -> Words:
    """What a turn is found by."""
    from ragmem.terms import turn_terms

    return _joined(turn_terms(turn))


def words_of_summary(summary: Summary) -> Words:
    """What a summary is found by: its text, findings, topics and files."""
    from ragmem.terms import summary_terms

    return _joined(summary_terms(summary))


def _joined(terms: Sequence[str]) -> Words:
    counted = Counter(terms)
    if max(counted.values(), default=0) > _MOST_OF_A_TERM:
        kept = (
            term for each, n in counted.items() for term in repeat(each, min(n, _MOST_OF_A_TERM))
        )
        return Words(" ".join(kept), len(terms))
    return Words(" ".join(terms), len(terms))


def level_of(document: "D") -> "D":
    """Of the record, at most `HIGHEST`; for an array of them too."""
    return document >> _LENGTH_BITS & HIGHEST


def length_of(documents: "NDArray[np.int64]") -> "NDArray[np.float64]":
    """Terms of each, within 3 %."""
    lengths: NDArray[np.float64] = 2.0 ** ((documents & (1 << _LENGTH_BITS) - 1) / _STEPS) - 1
    return lengths


def numbered(sequence: int, level: int, length: int) -> int:
    """The document's number."""
    code = min(round(_STEPS * math.log2(length + 1)), (1 << _LENGTH_BITS) - 1)
    return (sequence << _LEVEL_BITS | min(level, HIGHEST)) << _LENGTH_BITS | code


def sequence_of(document: int) -> int:
    """Grows with each new document."""
    return document >> _LEVEL_BITS + _LENGTH_BITS


# --- the records ---------------------------------------------------------------------


def turns(connection: apsw.Connection, turn_ids: Sequence[str]) -> Iterator[Turn]:
    """Those of them that exist, in this order, with their tool calls."""
    calls = calls_of(connection, turn_ids)
    for row in rows(
        connection,
        f"SELECT {turn_fields('t')} FROM json_each(:ids) AS chosen"
        " JOIN turns AS t ON t.turn_id = chosen.value"
        " ORDER BY chosen.key",
        {"ids": tuple(turn_ids)},
    ):
        held = tuple(calls.get(str(row["turn_id"]), ()))
        yield msgspec.structs.replace(record(Turn, row), tool_calls=held)


def calls_of(connection: apsw.Connection, turn_ids: Sequence[str]) -> dict[str, list[ToolCall]]:
    """The tool calls of these turns, in order, by turn."""
    calls: dict[str, list[ToolCall]] = {}
    for row in rows(
        connection,
        f"SELECT {call_fields()} FROM tool_calls"
        " WHERE turn_id IN (SELECT value FROM json_each(:ids))"
        ' ORDER BY turn_id, "order", tool_call_id',
        {"ids": tuple(turn_ids)},
    ):
        calls.setdefault(str(row["turn_id"]), []).append(record(ToolCall, row))
    return calls


def summary_rows(connection: apsw.Connection, summary_ids: Sequence[str]) -> Iterator[Row]:
    """Those of them that exist, in this order; without what they cover."""
    for ids in batches(summary_ids):
        for row in rows(
            connection,
            "SELECT s.* FROM json_each(:ids) AS chosen"
            " JOIN summaries AS s ON s.summary_id = chosen.value ORDER BY chosen.key",
            {"ids": ids},
        ):
            yield row | {"covers": "[]"}


def batches(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """As many at a time as memory holds with their texts."""
    for start in range(0, len(ids), _BATCH):
        yield tuple(ids[start : start + _BATCH])
