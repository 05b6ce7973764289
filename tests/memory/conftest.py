"""Memory on a real store: SQLite, which stands for all that keep the contract of tests/store."""

from tests.store.conftest import opens, store

__all__ = ["open_store", "store"]

open_store = opens("sqlite")
