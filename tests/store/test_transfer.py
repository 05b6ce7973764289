"""Moving what is stored: all of it, the same afterwards, from either store into either."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from ragmem.errors import SessionNotFound, StoreRefused, UsageError
from ragmem.records import PutTurn, Span, Usage
from ragmem.store import Archive
from ragmem.store.transfer import compare, copy, stream_of
from ragmem.store.transfer.document import decoded, document_of, encoded, import_document
from tests.fakes.neo4j import open_empty_neo4j_store
from tests.store.conftest import mostly
from tests.store.opening import sqlite
from tests.store.samples import (
    at,
    begun,
    created,
    finished,
    garden,
    known,
    remembered,
    said,
    whole_turn,
)
from tests.store.seen import seen

WAYS = ["sqlite-to-neo4j", "neo4j-to-sqlite", "sqlite-to-sqlite"]
EITHER_WAY = pytest.mark.parametrize("pair", WAYS, indirect=True)
INTO_A_GRAPH = pytest.mark.parametrize("pair", mostly(WAYS[::2], WAYS), indirect=True)
"""For tests of what a store makes of what comes."""
OF_A_GRAPH = pytest.mark.parametrize("pair", mostly(WAYS[1:], WAYS), indirect=True)
"""For tests of what a source does, without a target."""


@pytest.fixture(params=mostly(WAYS[2:], WAYS))
async def pair(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Archive, Archive]]:
    """Two empty stores, a source and a target: for what sees a store's protocol alone."""
    opened: list[Archive] = []
    for number, kind in enumerate(request.param.split("-to-")):
        if kind == "neo4j":
            opened.append(await open_empty_neo4j_store(request.getfixturevalue("neo4j_server")))
        else:
            opened.append(await sqlite(tmp_path / str(number)))
    yield opened[0], opened[1]
    for archive in opened:
        await archive.aclose()


@pytest.fixture
def source(pair: tuple[Archive, Archive]) -> Archive:
    return pair[0]


@pytest.fixture
def target(pair: tuple[Archive, Archive]) -> Archive:
    return pair[1]


async def moved(source: Archive, target: Archive) -> dict[str, int]:
    """Copy, compare, and see that it is equal; counts by kind."""
    done = {"copying": 0, "comparing": 0}

    def progress(phase: str, count: int) -> None:
        done[phase] += count

    await copy(stream_of(source, batch=3), target, progress)
    compared = await compare(stream_of(source, batch=3), target, progress)
    assert compared.differing == []
    assert compared.equal
    assert done["copying"] == done["comparing"]
    return {kind: counter.count for kind, counter in compared.source.items()}


HOSTILE = [
    "'; DROP TABLE turns; --",
    '") DETACH DELETE (n',
    "a.*b[",
    "%_",
    "../../etc",
    "\u202e",
    "é" * 400,
]


@pytest.mark.parametrize("kind", ["sqlite", "neo4j"])
async def test_hostile_ids_are_only_ids(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """An import with quotes, patterns and paths for ids; one that no index takes is refused."""
    origin = await sqlite(tmp_path / "origin")
    await origin.apply([created("s0"), *whole_turn("s0", "t0", "one")])
    text = encoded(await document_of(origin, "s0"))
    await origin.aclose()
    target = (
        await sqlite(tmp_path / "target")
        if kind == "sqlite"
        else await open_empty_neo4j_store(request.getfixturevalue("neo4j_server"))
    )
    for name in HOSTILE:
        given = text.replace(b'"s0"', msgspec.json.encode(f"s{name}"))
        given = given.replace(b'"t0"', msgspec.json.encode(f"t{name}"))
        session = await import_document(target, decoded(given), as_new=False)
        assert session.session_id == f"s{name}"
        assert [turn.turn_id for turn in await target.turns(f"s{name}")] == [f"t{name}"]
        assert [each.session_id for each in await target.find_sessions(f"s{name}")] == [f"s{name}"]
    for long in (text.replace(b'"t0"', b'"%s"' % (b"t" * 9_000)),
                 text.replace(b'"/home/ana/garden"', b'"/%s"' % (b"d" * 6_000))):  # fmt: skip
        with pytest.raises(UsageError, match="can't be imported"):
            decoded(long)
    assert len(await target.spans()) == len(HOSTILE)
    assert await target.check() == []
    await target.aclose()


@OF_A_GRAPH
async def test_a_turn_without_a_place_is_refused(source: Archive) -> None:
    """What went on in two ways is not mixed, and nothing of the batch is stored."""
    await source.apply(garden())
    (put,) = await source.own_turns([Span("root", 1, 1)])
    before = await seen(source)
    for changes in (
        {"turn_id": "other"},
        {"turn_index": 2},
        {"turn_id": "new", "turn_index": 9},
        {"session_id": "fork"},
    ):
        moved_turn = msgspec.structs.replace(put.turn, **changes)
        with pytest.raises(StoreRefused) as raised:
            await source.apply([created("another"), PutTurn(turn=moved_turn)])
        assert "--as-new" in raised.value.hint
        assert await seen(source) == before
    (call,) = (await source.own_turns([Span("root", 2, 2)]))[0].turn.tool_calls[:1]
    stolen = msgspec.structs.replace(
        put.turn, turn_id="new", turn_index=5, tool_calls=(msgspec.structs.replace(
            call, turn_id="new"),)
    )  # fmt: skip
    with pytest.raises(StoreRefused):
        await source.apply([PutTurn(turn=stolen)])
    assert await seen(source) == before


@OF_A_GRAPH
async def test_a_session_stays_if_what_has_to_go_first_can_not(source: Archive) -> None:
    """That is told the counts, and then the session is deleted."""
    await source.apply([*garden(), *known()])
    before, told = await seen(source), list[dict[str, int]]()

    def first(counts: dict[str, int]) -> None:
        told.append(dict(counts))
        if len(told) == 1:
            raise UsageError("A file is in the way.")

    with pytest.raises(UsageError, match="in the way"):
        await source.delete_session("deep", first=first)
    assert await seen(source) == before
    went = await source.delete_session("deep", first=first)
    assert told == [went, went]
    assert went["turns"] == 2


@OF_A_GRAPH
async def test_delete_removes_what_was_derived_and_no_more(source: Archive) -> None:
    """A session with turns, calls, summaries; not one whose turns a fork shares."""
    await source.apply([*garden(), *known()])
    with pytest.raises(StoreRefused, match="was forked from it"):
        await source.delete_session("root")
    await source.attach("deep", "me")
    with pytest.raises(StoreRefused, match="a process is using it"):
        await source.delete_session("deep")
    await source.detach("me")
    assert await source.delete_session("deep") == {
        "sessions": 1, "turns": 2, "tool_calls": 0, "summaries": 2, "memories": 1,
    }  # fmt: skip
    assert await source.check() == []
    assert await source.delete_session("fork") == {
        "sessions": 1, "turns": 1, "tool_calls": 0, "summaries": 0, "memories": 0,
    }  # fmt: skip
    assert await source.delete_session("root") == {
        "sessions": 1, "turns": 4, "tool_calls": 2, "summaries": 1, "memories": 2,
    }  # fmt: skip
    counts = (await source.info()).counts
    assert counts == {
        "sessions": 1, "turns": 0, "tool_calls": 0, "summaries": 0, "memories": 1, "files": 0,
        "projects": 1, "scopes": 0,
    }  # fmt: skip
    with pytest.raises(SessionNotFound):
        await source.delete_session("root")


async def test_a_fork_without_its_parent_stands_by_itself(source: Archive, target: Archive) -> None:
    """Nothing of what a fork sees is missing where only the fork is imported.

    Evidence in turns that it shared points to its own copies of them, and to their calls.
    """
    places = (said("root", "r1"), said("root", "r2", tool_call_id="c1"), said("deep", "d4"))
    both = remembered("both", created_at=at(30), evidence=places)
    await source.apply([*garden(), *known(), both])
    document = decoded(encoded(await document_of(source, "deep")))
    assert [turn.turn_id for turn in document.turns] == ["r1", "r2", "f3", "d4", "d5"]
    session = await import_document(target, document, as_new=False)
    assert (session.session_id, session.parent_session_id, session.turn_count) == ("deep", None, 5)
    first, second, third, *_, last = turns = await target.turns("deep")
    assert [turn.user_message for turn in turns] == [
        "one", "two", "three", "deepest", "still at it",
    ]  # fmt: skip
    assert last.status == "interrupted"
    kept = {summary.summary_id: summary.covers for summary in await target.summaries("deep")}
    assert kept == {"s2": (third.turn_id, "d4"), "s3": ("s2",)}
    [memory] = await target.find_memories("both")
    assert [(each.session_id, each.turn_id, each.tool_call_id) for each in memory.evidence] == [
        ("deep", first.turn_id, ""),
        ("deep", second.turn_id, second.tool_calls[0].tool_call_id),
        ("deep", "d4", ""),
    ]
    assert second.tool_calls[0].tool_call_id != "c1"
    assert await target.check() == []
    await import_document(target, await document_of(source, "root"), as_new=False)
    assert len(await target.turns("root")) == 4
    assert await target.check() == []


async def test_a_fork_beside_its_parent_stays_one(source: Archive, target: Archive) -> None:
    """Shared turns are shared again."""
    await source.apply(garden())
    for session_id in ("root", "fork"):
        document = decoded(encoded(await document_of(source, session_id)))
        await import_document(target, document, as_new=False)
        assert encoded(await document_of(target, session_id)).startswith(
            encoded(document).partition(b'"branches"')[0]
        )
    assert (await target.session("fork")).parent_session_id == "root"
    assert (await target.info()).counts["turns"] == 5
    assert await target.check() == []


@INTO_A_GRAPH
async def test_a_cost_that_is_no_number_is_moved(source: Archive, target: Archive) -> None:
    """It keeps nobody from moving."""
    await source.apply([created("s"), *whole_turn("s", "t0")])
    for cost in ("nan", "inf", "-inf"):
        usage = Usage(cost_usd=float(cost))
        await source.apply([begun("s", cost), finished("s", cost, usage=usage)])
    assert (await moved(source, target))["turns"] == 4
