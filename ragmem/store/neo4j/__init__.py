"""The graph store: sessions, turns, tool calls, summaries and memories as nodes in Neo4j.

gateway.py     where a server is, the driver, bounded transactions, its errors in plain words
schema.py      constraints and indexes, made once and mended when missing
shapes.py      records to properties and back
store.py       the Store itself: its methods run the functions below in transactions
writes.py      each Write as Cypher, from one table of kinds
read.py        sessions, turns and summaries
search.py      the search, over entries.py (what is found by words) and vectors.py
pending.py     what is still to be done, leases, and vectors as they are stored
memories.py    memories, profiles, owners and insights, read and written
code.py        files, scopes and references, read and written
belonging.py   Projects and Owners, and what hangs on them
archive.py     everything, to be moved and looked through
properties.py  what each property holds, and what stands there otherwise
repair.py      a graph that breaks its promises, made whole again (mending.py: what is searched)
*.cypher       the statements
"""

from ragmem.store.neo4j.gateway import Connection
from ragmem.store.neo4j.store import Neo4jStore

__all__ = ["Connection", "Neo4jStore"]
