"""What every Store promises (see `ragmem.store`), on each implementation.

All-or-nothing transactions, and what is not there.
"""

import random
import re
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ragmem.errors import SessionNotFound
from ragmem.records import (
    Applied,
    DropCodeFiles,
    MarkExtracted,
    PutProfile,
    ToolCall,
    UpdateSession,
    Write,
    write_decoder,
)
from ragmem.store import Store
from tests.store.code_samples import GARDEN, a_scope, code_seen, put, refers
from tests.store.conftest import KINDS, OpenStore, mostly, opens
from tests.store.samples import (
    START,
    answered,
    at,
    begun,
    called,
    created,
    finished,
    insight,
    project,
    remembered,
    said,
    summed,
    whole_turn,
)
from tests.store.seen import seen
from tests.store.test_contract_recall import asking, found, waiting

open_store = opens("sqlite", "neo4j", "spooled-sqlite")
"""What the spool does with reads is in test_spool_forwards.py; these show its writes."""

# --- transactions -----------------------------------------------------------


def a_story() -> list[Write]:
    """Every kind of write, in a stream that could be an export."""
    one, two = summed("s", "t1", created_at=at(3)), summed("s", "t2", created_at=at(4))
    return [
        project("p"),
        created("s", title="First"),
        begun("s", "t1", "one", owner_id="o"),
        called("s", "t1", 0, "a.py", "b.py"),
        called("s", "t1", 1, "a.py", success=False, error="boom"),
        finished("s", "t1", "done"),
        UpdateSession(session_id="s", title="Renamed", tags=("x",), at=at(1)),
        begun("s", "t2", "two", started_at=at(2)),
        answered("s", "t2", "hal"),
        finished("s", "t2", "", "interrupted"),
        finished("s", "t2", "after all", finished_at=at(8)),
        one,
        two,
        summed("s", one.summary.summary_id, two.summary.summary_id, level=2, created_at=at(5)),
        UpdateSession(session_id="s", summary="All of it.", at=at(6)),
        created("f", parent_session_id="s", forked_at_index=1, started_at=at(7)),
        begun("f", "t3", "three", started_at=at(7)),
        finished("f", "t3", "", "failed", finished_at=at(8)),
        remembered("m1", created_at=at(9), evidence=(said("s", "t1"), said("s", "t2"))),
        remembered("m2", "Ferns hate shade.", created_at=at(10), supersedes=("m1",)),
        MarkExtracted(turn_ids=("t1", "t2")),
        PutProfile(key="name", value="Ana", at=at(11)),
        PutProfile(key="editor", value="vim", at=at(12)),
        PutProfile(key="editor", value=None, at=at(13)),
        insight("s", "Shade", created_at=at(14)),
        put("a.py", "one", "two", imports=("b.py", "c.py")),
        put("b.py", "three", hash="b1"),
        refers("t1", one="read", three="named"),
        put("a.py", a_scope("one", line=8), imports=("c.py",), hash="a2"),
        put("b.py", "two", a_scope("three", "four", 30), hash="b2"),
        refers("t1", three="edited"),
        DropCodeFiles(project_id=GARDEN, paths=("b.py", "none.py")),
        refers("t3", three="read", gone="read"),
    ]


async def told(store: Store) -> dict[str, object]:
    """All that the store says, by words too."""
    hits = await found(store, asking("one hal ferns"))
    return await seen(store) | {
        "code": await code_seen(store, "t1", "t2", "t3"),
        "hits": {name: (each.level, each.text) for name, each in hits.items()},
        "due": await waiting(store, "vectors"),
    }


@pytest.mark.parametrize("open_store", mostly(["sqlite", "spooled-sqlite"], KINDS), indirect=True)
async def test_each_write_twice_is_once(open_store: OpenStore) -> None:
    """A retry changes nothing, and is told the same; on a graph also when a cut line is the reason
    (test_cuts.py)."""
    store = await open_store()
    for write in a_story():
        applied = await store.apply([write])
        once = await told(store)
        assert await store.apply([write]) == applied
        await store.apply([write, write])
        assert await told(store) == once, write


async def test_the_whole_stream_twice_is_once(store: Store) -> None:
    """A replay after an outage, or an import of what is there, changes nothing."""
    story = a_story()
    applied = await store.apply(story)
    assert applied == Applied({"t1": 1, "t2": 2, "t3": 2})
    once = await told(store)
    assert await store.apply(story) == applied
    assert await told(store) == once
    for write in story:
        await store.apply([write])
    assert await told(store) == once


async def test_one_transaction_or_many_end_the_same(store: Store) -> None:
    """Writes are values: cut into batches anyhow, they come to the same."""
    story = a_story()
    renamed = [_in_another_world(write) for write in story]
    await store.apply(story)
    dice = random.Random(7)
    while renamed:
        cut = dice.randint(1, 4)
        await store.apply(renamed[:cut])
        del renamed[:cut]
    for session_id in ("s", "f"):
        turns = await store.turns(session_id)
        others = await store.turns(f"{session_id}'")
        assert [(t.turn_index, t.status, t.char_count) for t in turns] == [
            (t.turn_index, t.status, t.char_count) for t in others
        ]
        session, other = await store.session(session_id), await store.session(f"{session_id}'")
        assert (session.turn_count, session.message_count, session.updated_at) == (
            other.turn_count, other.message_count, other.updated_at,
        )  # fmt: skip


def _in_another_world(write: Write) -> Write:
    """The same write with every id primed."""

    def primed(value: object) -> object:
        if isinstance(value, dict):
            return {
                key: _prime(key, held) if not isinstance(held, dict | list) else primed(held)
                for key, held in value.items()
            }
        if isinstance(value, list):
            return [f"{each}'" if isinstance(each, str) else primed(each) for each in value]
        return value

    def _prime(key: str, held: object) -> object:
        return f"{held}'" if key.endswith("_id") and held is not None else held

    return write_decoder.decode(msgspec.json.encode(primed(msgspec.to_builtins(write))))


async def test_a_failing_write_undoes_all(store: Store) -> None:
    """One transaction: nothing of it stays, not even an index, wherever in it the write stands."""
    await store.apply([created("s"), *whole_turn("s", user="before")])
    before = await told(store)
    writes: list[Write] = [
        created("s2"),
        begun("s", "t2"),
        called("s", "t2", 0, "a.py"),
        finished("s", "t2"),
        UpdateSession(session_id="s", title="Changed", at=at(9)),
        remembered("m1", evidence=(said("s", "t2"),)),
        put("a.py", "three"),
    ]
    for position in (0, 2, 5):
        with pytest.raises(SessionNotFound):
            await store.apply([*writes[:position], begun("nowhere"), *writes[position:]])
        assert await told(store) == before, position
    assert (await store.apply([begun("s", "t2")])).turn_indexes == {"t2": 2}


async def test_nothing_to_apply(store: Store) -> None:
    assert await store.apply([]) == Applied()


# --- what is not there ------------------------------------------------------


READS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "session": lambda store: store.session("no"),
    "turns": lambda store: store.turns("no"),
    "file_accesses": lambda store: store.file_accesses("no", max_turn_chars=10),
    "summaries": lambda store: store.summaries("no"),
    "raw_history_chars": lambda store: store.raw_history_chars("no"),
    "attach": lambda store: store.attach("no", "me"),
}


WRITES = {
    "a session that is updated": UpdateSession(session_id="no", at=START),
    "the session of a turn": begun("no"),
    "the session of a call": called("no", "no"),
    "the turn of a call": called("s", "no"),
    "the session of an answer": answered("no", "no", "Half"),
    "the turn of an answer": answered("s", "no", "Half"),
    "the session of a turn that ends": finished("no", "no"),
    "a turn that ends": finished("s", "no"),
    "the session of a summary": summed("no", "t"),
    "a turn that is summed up": summed("s", "no"),
    "a summary that is summed up": summed("s", "no", level=2),
    "the parent of a fork": created("f", parent_session_id="no", forked_at_index=1),
}
"""By what is not there of each."""


async def said_of(work: Awaitable[object]) -> str:
    """The error that says that something is not there; empty where there is none."""
    try:
        await work
    except SessionNotFound as error:
        return str(error)
    return ""


async def test_reading_an_unknown_session(store: Store) -> None:
    """A clear error that names it."""
    said = {name: await said_of(read(store)) for name, read in READS.items()}
    assert {name: text for name, text in said.items() if not re.search(r"no\b", text)} == {}


async def test_writing_to_what_is_not_there(store: Store) -> None:
    """Refused, and nothing of it stays."""
    await store.apply([created("s"), *whole_turn("s", "t")])
    before = await seen(store)
    said = {name: await said_of(store.apply([write])) for name, write in WRITES.items()}
    assert {name: text for name, text in said.items() if not re.search(r"no\b", text)} == {}
    assert await seen(store) == before


# --- the store itself -------------------------------------------------------


async def test_info_counts_what_there_is(store: Store) -> None:
    empty = await store.info()
    assert set(empty.counts.values()) == {0}
    assert empty.summaries_per_level == {}
    await store.apply(a_story())
    info = await store.info()
    assert info.counts == {
        "sessions": 2, "turns": 3, "tool_calls": 2, "summaries": 3, "memories": 2, "files": 2,
        "projects": 1, "scopes": 2,
    }  # fmt: skip
    assert list(info.summaries_per_level.items()) == [(1, 2), (2, 1)]
    assert info.kind in ("sqlite", "neo4j")
    assert info.location
    assert info.version[0].isdigit()
    assert info.schema_version >= 1


async def test_what_one_handle_wrote_another_reads(open_store: OpenStore) -> None:
    """Also after the first is closed, which may be done twice."""
    first, second = await open_store(), await open_store()
    await first.apply(a_story())
    written = await seen(first)
    assert await seen(second) == written
    await first.aclose()
    await first.aclose()
    assert await seen(second) == written
    third = await open_store()
    assert await seen(third) == written


async def test_records_keep_their_own_times(store: Store) -> None:
    """To the microsecond, in UTC."""
    await store.apply([created("s"), begun("s", "t"), called("s", "t", 0, "a.py")])
    [turn] = await store.turns("s")
    call: ToolCall = turn.tool_calls[0]
    assert (turn.started_at, call.started_at) == (START, at(1))
    assert call.started_at.utcoffset() is not None
