"""The embedded store: one SQLite file, no service."""

from ragmem.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
