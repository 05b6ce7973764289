"""Moving and keeping what is stored.

stream.py     everything in a store, as batches of Writes, into another or a file; and compared
document.py   one session as a JSON document, and back
"""

from ragmem.store.transfer.stream import (
    Comparison,
    Counter,
    OnProgress,
    Stream,
    compare,
    copy,
    stream_of,
)

__all__ = [
    "Comparison",
    "Counter",
    "OnProgress",
    "Stream",
    "compare",
    "copy",
    "stream_of",
]
