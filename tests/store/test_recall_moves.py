"""Vectors on their way: dropped while the store is away, moved with what they are of."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ragmem.errors import StoreUnavailable
from ragmem.memory.recording import redacted
from ragmem.records import PutVectors, Write
from ragmem.store.base import Archive
from ragmem.store.recall import EmbedderMark, SearchQuery
from ragmem.store.spool import count_waiting
from ragmem.store.transfer import compare, copy, stream_of
from ragmem.store.transfer.document import document_of, encoded
from ragmem.store.transfer.lines import stream_of_lines, write_lines
from tests.store.samples import created, whole_turn
from tests.store.test_contract_recall import EAST, MARK, NORTH, UP, asking, embedded, found, waiting
from tests.store.test_spool import Home, home, settled
from tests.store.test_transfer import garden, moved, pair, source, sqlite, target

__all__ = ["home", "pair", "source", "target"]


def quietly(phase: str, count: int) -> None:
    """Progress that nobody looks at."""


async def held(store: Archive) -> list[PutVectors]:
    return [
        write
        async for batch in stream_of(store)()
        for write in batch
        if isinstance(write, PutVectors)
    ]


# --- the spool ------------------------------------------------------------------------


async def test_vectors_never_wait(home: Home) -> None:
    """They are made again from what is stored; what they are of does wait."""
    store = home.open()
    await store.apply([created("s"), *whole_turn("s", "t")])
    await store.use_embedder(MARK)
    await store.aclose()
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    await store.apply([embedded("t", EAST)])
    assert count_waiting(home.spool) == 0
    await store.apply([*whole_turn("s", "u"), embedded("u", EAST)])
    assert count_waiting(home.spool) == 2
    home.error = None
    await settled(store, home.spool)
    assert await waiting(store, "vectors") == ["u", "t"]
    await store.apply([embedded("u", EAST), embedded("t", EAST)])
    assert await waiting(store, "vectors") == []


async def test_what_needs_an_answer_fails_plainly(home: Home) -> None:
    """Nobody leases work, or finds anything, while the store is away."""
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    ask: list[Callable[[], object]] = [
        lambda: store.search(SearchQuery()),
        lambda: store.embedder(),
        lambda: store.use_embedder(MARK),
        lambda: store.pending("vectors", limit=1),
        lambda: store.count_pending(),
        lambda: store.claim(["key"], "me", seconds=1),
        lambda: store.release(["key"], "me"),
        lambda: store.turns_by_id(["t"]),
        lambda: store.summaries_by_id(["s"]),
    ]
    for each in ask:
        with pytest.raises(StoreUnavailable, match="away"):
            await each()  # type: ignore[misc]


# --- moving ---------------------------------------------------------------------------


async def filled(store: Archive) -> None:
    await store.apply(garden())
    await store.use_embedder(MARK)
    await store.apply(
        [
            embedded("r1", EAST, NORTH, text_hash="one"),
            embedded("d4", UP),
            embedded("s1", NORTH, level=1),
            embedded("f3"),
        ]
    )


async def test_vectors_are_moved_with_their_records(source: Archive, target: Archive) -> None:
    """Counted and compared; what is found is the same, and nothing waits anew."""
    await filled(source)
    counts = await moved(source, target)
    assert counts["vectors"] == 4
    assert await target.embedder() == MARK
    for query in (asking("one", EAST), asking(vector=NORTH), asking(vector=UP)):
        ours, theirs = await found(source, query), await found(target, query)
        assert ours.keys() == theirs.keys()
        for record_id, candidate in ours.items():
            assert theirs[record_id].similarity == pytest.approx(candidate.similarity, abs=0.01)
    assert set(await waiting(target, "vectors")) == set(await waiting(source, "vectors"))
    assert await target.check() == []
    again = await moved(source, target)
    assert again == counts


async def test_there_and_back_they_are_the_same(
    source: Archive, target: Archive, tmp_path: Path
) -> None:
    """Whatever form a store keeps them in."""
    await filled(source)
    await moved(source, target)
    third = await sqlite(tmp_path / "third")
    await moved(target, third)
    compared = await compare(stream_of(source), third, quietly)
    assert compared.equal
    assert compared.source["vectors"].count == 4
    await third.aclose()


async def test_a_target_with_another_embedder_keeps_it(source: Archive, target: Archive) -> None:
    """Vectors of two models are never mixed; the others are moved, and wait to be made."""
    await filled(source)
    other = EmbedderMark("model-b", 4)
    await target.use_embedder(other)
    assert (await moved_without_vectors(source, target))["vectors"] == 0
    assert await target.embedder() == other
    assert await held(target) == []
    assert "r1" in await waiting(target, "vectors")


async def moved_without_vectors(source: Archive, target: Archive) -> dict[str, int]:
    await copy(stream_of(source), target, quietly)
    compared = await compare(stream_of(source), target, quietly)
    assert compared.equal
    return {kind: counter.count for kind, counter in compared.source.items()}


async def test_a_vector_that_is_missing_is_told(source: Archive, target: Archive) -> None:
    """The comparison looks at every one."""
    await filled(source)
    await moved(source, target)
    await target.apply([embedded("r1", UP), embedded("d4", UP, text_hash="other")])
    compared = await compare(stream_of(source), target, quietly)
    told = ["vectors of d4 is different", "vectors of r1 is different"]
    assert sorted(compared.differing) == told
    assert compared.differing_count == 2


async def test_a_backup_holds_them(tmp_path: Path) -> None:
    """As lines; and another store takes them from there."""
    store = await sqlite(tmp_path / "one")
    await filled(store)
    file = tmp_path / "backup.jsonl"
    with file.open("wb") as out:
        await write_lines(stream_of(store), out, quietly)
    other = await sqlite(tmp_path / "two")
    await copy(stream_of_lines(file), other, quietly)
    assert await held(other) == await held(store) != []
    await store.aclose()
    await other.aclose()


async def test_a_sessions_document_has_none(tmp_path: Path) -> None:
    """It is for people, and for other versions: they are made anew."""
    store = await sqlite(tmp_path)
    await filled(store)
    assert b"vector" not in encoded(await document_of(store, "root"))
    await store.aclose()


def test_there_is_no_secret_in_a_vector() -> None:
    """It passes as it is."""
    write: Write = embedded("t", EAST)
    assert redacted(write) is write
    assert msgspec.json.decode(msgspec.json.encode(write), type=Write) == write
