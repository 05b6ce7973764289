"""Times: written and read in one form, whatever form they came in."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from ragmem.records import (
    ALL_TURNS,
    AddSummary,
    Interval,
    MemoryQuery,
    Scope,
    SearchQuery,
    SessionQuery,
    WeightedTerm,
    Write,
)
from ragmem.store import Archive
from ragmem.store.sqlite import SQLiteStore
from ragmem.store.transfer import stream_of
from tests.fakes.neo4j import open_empty_neo4j_store
from tests.store.fixtures.make import content
from tests.store.samples import at

OpenEmpty = Callable[[], Awaitable[Archive]]
NAMED_ZONE = """
    CALL () {
      MATCH (n)
      WHERE NOT (n:Process OR n:Lease)
      RETURN n AS holder
      UNION ALL
      MATCH ()-[r]->()
      RETURN r AS holder
    }
    UNWIND [key IN keys(holder) WHERE holder[key] IS :: ZONED DATETIME NOT NULL] AS key
    SET holder[key] = datetime({datetime: holder[key], timezone: 'UTC'})
    RETURN count(*) AS times
"""
OTHER_FORMS = """
    CALL () {
      MATCH (n) WHERE NOT (n:Process OR n:Lease)
      RETURN n AS holder
      UNION ALL
      MATCH ()-[r]->()
      RETURN r AS holder
    }
    UNWIND keys(holder) AS key
    WITH holder, key
    WHERE holder[key] IS :: ZONED DATETIME NOT NULL AND NOT toString(holder[key]) ENDS WITH 'Z'
    RETURN collect(labels(holder)[0] + '.' + key) AS found
"""


@pytest.fixture(params=["sqlite", "neo4j"])
async def open_empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenEmpty]:
    """Opens an empty store; of Neo4j always the same one, emptied."""
    opened: list[Archive] = []

    async def open_one() -> Archive:
        if request.param == "neo4j":
            opened.append(await open_empty_neo4j_store(request.getfixturevalue("neo4j_server")))
        else:
            home = tmp_path / str(len(opened))
            opened.append(await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks"))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.aclose()


async def everything(store: Archive) -> list[Write]:
    """All of it by the two ways in which a store is read: for a move, and for a turn."""
    moved = [write async for batch in stream_of(store)() for write in batch]
    read: list[object] = list(await store.projects())
    for session in await store.sessions(SessionQuery(limit=99)):
        read += [session, *await store.turns(session.session_id, ALL_TURNS)]
        read += await store.summaries(session.session_id)
        read += await store.file_accesses(session.session_id, max_turn_chars=10_000)
    read += await store.memories(MemoryQuery(everywhere=True, with_superseded=True))
    read.append(await store.profile())
    # Another zone is equal to Python, and written otherwise.
    assert all(text.endswith(b"Z") for text in _times(msgspec.json.encode([moved, read])))
    return moved


def _times(text: bytes) -> list[bytes]:
    return re.findall(rb'"(\d{4}-\d\d-\d\dT[^"]*)"', text)


async def found(store: Archive) -> set[tuple[str, datetime]]:
    """What a search gives, by words, by time, in the whole store and in a project, and when."""
    words = ("plants", "three", "shade", "deepest")
    terms = tuple(WeightedTerm(each) for each in words)
    queries = [
        SearchQuery(terms=terms),
        SearchQuery(intervals=(Interval(start_at=at(0), end_at=at(99)),)),
        SearchQuery(terms=terms, scope=Scope(project_ids=("project-garden",))),
    ]
    return {(each.record_id, each.at) for query in queries for each in await store.search(query)}


async def test_what_was_read_is_written_again_and_found(open_empty: OpenEmpty) -> None:
    """Every kind of record, twice through the store: nothing changes, and all is searched."""
    store = await open_empty()
    await store.apply(content())
    first, hits = await everything(store), await found(store)
    assert {name for name, _ in hits} >= {"r2", "d4", "s1", "s3"}
    again = await open_empty()
    await again.apply(first)
    assert await everything(again) == first
    assert await found(again) == hits
    # Over what is there, as a summary is that is made anew.
    for session_id in ("root", "deep"):
        held = await again.summaries(session_id)
        await again.apply([AddSummary(summary=each) for each in held])
    assert await everything(again) == first
    assert await found(again) == hits
    assert await again.check() == []
