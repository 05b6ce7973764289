"""Facts on each real store."""

from tests.store.conftest import open_store, store

__all__ = ["open_store", "store"]
