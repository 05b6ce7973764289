"""Moving and keeping what is stored.

stream.py     everything in a store, as batches of Writes; the same in a file, one a line
copying.py    a stream of Writes into a store, and the comparison afterwards
document.py   one session as a JSON document, and back
"""

from ragmem.store.transfer.copying import (
    Comparison,
    Counter,
    Kind,
    compare,
    copy,
)
from ragmem.store.transfer.stream import OnProgress, Stream, stream_of

__all__ = [
    "Comparison",
    "Counter",
    "Kind",
    "OnProgress",
    "Stream",
    "compare",
    "copy",
    "stream_of",
]
