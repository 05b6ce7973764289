"""The graph store: sessions, turns, tool calls, summaries and memories as nodes in Neo4j.

gateway.py     where a server is, the driver, bounded transactions, its errors in plain words
schema.py      constraints and indexes, made once and mended when missing
shapes.py      how each kind of record stands in the graph: properties, and what is wrong of them
store.py       the Store itself: its methods run the functions below in transactions
writes.py      each Write as Cypher, from one table of kinds
read.py        sessions, turns and summaries, and everything, to be moved
search.py      the search, over entries.py (what is found by words) and vectors.py
vectors.py     vectors as they are stored and looked through, what is still to be done, leases
memories.py    memories, profiles and owners, read and written
code.py        files, scopes and references, read and written
belonging.py   Projects and Owners, and what hangs on them
repair.py      whether a graph keeps its promises, and one that does not made whole
*.cypher       the statements
"""

from ragmem.store.neo4j.gateway import Connection
from ragmem.store.neo4j.store import Neo4jStore

__all__ = ["Connection", "Neo4jStore"]
