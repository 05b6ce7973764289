"""Moving and keeping what is stored.

stream.py     everything in a store, as batches of Writes
copying.py    a stream of Writes into a store, and the comparison afterwards
lines.py      a stream of Writes in a file, one a line
document.py   one session as a JSON document, and back
memories.py   the memories of such a document
markdown.py   one session for people to read
"""

from ragmem.store.transfer.copying import (
    Comparison,
    Counter,
    Kind,
    OnProgress,
    compare,
    copy,
)
from ragmem.store.transfer.stream import Stream, stream_of

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
