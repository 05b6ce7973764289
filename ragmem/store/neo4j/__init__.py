"""The graph store: sessions, turns, tool calls, summaries and memories as nodes in Neo4j.

connection.py   where a server is, and as whom to sign in
gateway.py      the driver: bounded transactions, and its errors in plain words
schema.py       constraints and indexes, made once and mended when missing
shapes.py       records to properties and back
writes.py       each Write as Cypher
remembering.py  memories, the profile and insights, written and forgotten
memories.py     the same, read
store.py        the Store itself
archive.py      everything, to be moved and looked through
repair.py       a graph that breaks its promises, made whole again
*.cypher        the statements
"""

from ragmem.store.neo4j.connection import Connection
from ragmem.store.neo4j.store import Neo4jStore

__all__ = ["Connection", "Neo4jStore"]
