"""Little patience with a Neo4j, only where it is not to answer: a busy one answers late."""

from collections.abc import Iterator
from contextlib import contextmanager

from ragmem.store.neo4j import Neo4jStore
from tests.fakes.neo4j import PATIENCE_S


def limit(store: Neo4jStore, seconds: float) -> None:
    """From now on each call takes so long at most, though it was opened with more patience."""
    store._gateway._timeout_s = seconds


@contextmanager
def hurried(store: Neo4jStore, seconds: float) -> Iterator[None]:
    """So little patience while this lasts, and that of the tests afterwards."""
    limit(store, seconds)
    try:
        yield
    finally:
        limit(store, PATIENCE_S)
