"""Sessions like a text, by the vectors of their summaries, on each store."""

import pytest

from ragmem.errors import EmbedderError
from ragmem.memory.sessions import about, similar_sessions
from ragmem.records import SESSION_LEVEL, EmbedderMark, PutVectors, UpdateSession
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.store.samples import at, created, whole_turn

LOGIN = "refactoring authentication and login tokens"


async def summed(store: Store, session_id: str, summary: str, **fields: object) -> None:
    """A session with a summary."""
    await store.apply([created(session_id, **fields), *whole_turn(session_id)])
    await store.apply(
        [UpdateSession(session_id=session_id, summary=summary, summarized_count=2, at=at(3))]
    )


async def with_vector(store: Store, embedder: HashEmbedder, session_id: str, text: str) -> None:
    """The vector that the background makes of it."""
    info = embedder.info
    await store.use_embedder(EmbedderMark(info.model_id, info.dimension))
    [row] = await embedder.embed([text])
    write = PutVectors(
        record_id=session_id,
        level=SESSION_LEVEL,
        embedder=info.model_id,
        text_hash="x",
        vectors=(row.astype("<f4").tobytes(),),
    )
    await store.apply([write])
    embedder.seen.clear()


async def test_the_nearest_above_the_threshold_come_first(store: Store) -> None:
    """Only sessions with a summary; strictly above; at most so many."""
    embedder = HashEmbedder()
    await summed(store, "near", LOGIN)
    await summed(store, "nearer", "refactoring authentication")
    await summed(store, "far", "growing ferns in shade")
    await store.apply([created("bare"), *whole_turn("bare", user="refactoring authentication")])

    found = await similar_sessions(store, embedder, "refactoring authentication", floor=0.3)
    assert [each.uuid for each in found] == ["nearer", "near"]
    assert found[0].session.summary == "refactoring authentication"
    assert found[0].similarity == pytest.approx(1, abs=1e-3)
    exact = found[1].similarity
    again = await similar_sessions(store, embedder, "refactoring authentication", floor=exact)
    assert [each.uuid for each in again] == ["nearer"]
    text = "refactoring authentication"
    [first] = await similar_sessions(store, embedder, text, floor=0.3, limit=1)
    assert first.uuid == "nearer"


async def test_vectors_that_there_are_are_used(store: Store) -> None:
    """The summary is not embedded again: what the background made is compared."""
    embedder = HashEmbedder()
    await summed(store, "s", LOGIN)
    await with_vector(store, embedder, "s", "growing ferns")
    [found] = await similar_sessions(store, embedder, "growing ferns", floor=0.5)
    assert found.similarity == pytest.approx(1, abs=0.01)
    assert embedder.seen == [("query", "growing ferns")]


async def test_a_changed_summary_is_compared_anew(store: Store) -> None:
    """Its old vector went with it."""
    embedder = HashEmbedder()
    await summed(store, "s", "growing ferns")
    await with_vector(store, embedder, "s", "growing ferns")
    await store.apply([UpdateSession(session_id="s", summary=LOGIN, at=at(4))])
    assert await similar_sessions(store, embedder, "growing ferns", floor=0.5) == []
    [found] = await similar_sessions(store, embedder, LOGIN, floor=0.5)
    assert found.uuid == "s"


async def test_vectors_of_another_model_are_not_compared(store: Store) -> None:
    """Such a summary is embedded now, by the model that embeds the question."""
    await summed(store, "s", LOGIN)
    await with_vector(store, HashEmbedder(model_id="other"), "s", "growing ferns")
    mine = HashEmbedder()
    assert await similar_sessions(store, mine, "growing ferns", floor=0.3) == []
    assert ("passage", LOGIN) in mine.seen


async def test_only_so_many_summaries_are_embedded_while_somebody_waits(store: Store) -> None:
    embedder = HashEmbedder()
    for number in range(5):
        await summed(store, f"s{number}", LOGIN, started_at=at(number), last_activity_at=at(number))
    found = await similar_sessions(store, embedder, LOGIN, floor=0.3, embedded_now=2)
    assert len(found) == 2
    assert [kind for kind, _ in embedder.seen].count("passage") == 2


async def test_where_is_looked(store: Store) -> None:
    """These projects alone, and never the session that asks."""
    embedder = HashEmbedder()
    await summed(store, "mine", LOGIN, project_id="one")
    await summed(store, "own", LOGIN, project_id="one")
    await summed(store, "theirs", LOGIN, project_id="two")
    found = await similar_sessions(
        store, embedder, LOGIN, floor=0.3, project_ids=("one",), without=("own",)
    )
    assert [each.uuid for each in found] == ["mine"]


async def test_nothing_to_compare_costs_nothing(store: Store) -> None:
    embedder = HashEmbedder()
    assert await similar_sessions(store, embedder, LOGIN, floor=0.3) == []
    await summed(store, "s", LOGIN)
    assert await similar_sessions(store, embedder, "  ", floor=0.3) == []
    assert embedder.seen == []
    embedder.failing = True
    with pytest.raises(EmbedderError):
        await similar_sessions(store, embedder, LOGIN, floor=0.3)


async def test_what_a_session_is_about(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s", user="One?"), *whole_turn("s", user="Two?")])
    assert await about(store, await store.session("s")) == "One?\nTwo?"
    await store.apply([UpdateSession(session_id="s", summary=LOGIN, at=at(3))])
    assert await about(store, await store.session("s")) == LOGIN
