"""What a cluster asks of a client, seen on a single server; and that listing scales."""

import logging
import re
from collections.abc import AsyncIterator

import pytest

from ragmem.errors import StoreError
from ragmem.records import SessionQuery, UpdateSession
from ragmem.store.neo4j import Connection, Neo4jStore
from tests.fakes.neo4j import open_empty_neo4j_store
from tests.store.samples import at, created, whole_turn


@pytest.fixture
async def store(neo4j_server: Connection) -> AsyncIterator[Neo4jStore]:
    store = await open_empty_neo4j_store(neo4j_server)
    yield store
    await store.aclose()


def bookmarks_sent(caplog: pytest.LogCaptureFixture) -> list[set[str]]:
    """The bookmarks of each statement that was read with, as the driver sent them."""
    read = [each for each in caplog.messages if "C: RUN" in each]
    return [set(re.findall(r"'(FB:[^']+)'", each)) for each in read]


async def test_a_read_waits_for_what_was_written(
    store: Neo4jStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each statement carries the bookmark of the last write, so that any member
    of a cluster answers from a state that has it: one reads what one wrote."""
    caplog.set_level(logging.DEBUG, logger="neo4j.io")
    await store.apply([created("s")])
    after_first = set(await store._gateway._bookmarks.get_bookmarks())
    assert after_first
    caplog.clear()
    await store.turns("s")
    assert bookmarks_sent(caplog) == [after_first]

    await store.apply([*whole_turn("s")])
    after_second = set(await store._gateway._bookmarks.get_bookmarks())
    assert after_second
    assert after_second != after_first
    caplog.clear()
    await store.sessions(SessionQuery(cwd="/home/ana/garden"))
    assert bookmarks_sent(caplog) == [after_second]


async def test_a_bookmark_that_is_not_known_is_no_stale_answer(store: Neo4jStore) -> None:
    """The server looks at the bookmark: one that it can't place is an error, in words."""
    await store.apply([created("s")])
    kept = await store._gateway._bookmarks.get_bookmarks()
    await store._gateway._bookmarks.update_bookmarks(kept, ["FB:unheard-of"])
    with pytest.raises(StoreError):
        await store.session("s")


async def test_listing_goes_over_what_a_wrong_clock_has_put_ahead(store: Neo4jStore) -> None:
    """Sessions of the future come last, and all are there, none twice."""
    for number in range(6):
        await store.apply([created(f"s{number}", started_at=at(number), updated_at=at(number))])
    await store.apply([UpdateSession(session_id="s3", title="x", at=at(3))])
    server_side = "MATCH (s:ConversationSession {sessionId: 's2'}) SET s.lastActivity = $at"
    await store._gateway.write(lambda tx: tx.run(server_side, at=at(10**7)))
    for limit in (1, 3, 5, 6, 9):
        listed = await store.sessions(SessionQuery(limit=limit))
        wanted = ["s5", "s4", "s3", "s1", "s0", "s2"]
        assert [each.session_id for each in listed] == wanted[:limit]
