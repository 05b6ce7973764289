"""What is on the page is what is in the store, on both stores under `--all`."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec

from ragmem.memory.graph import Graph, Wanted, collect
from ragmem.records import CreateSession, FileAccess, MemoryRecord, PutTurn
from ragmem.store import Store
from tests.graph.garden import PROJECT, START, fill, garden, requests
from tests.store.conftest import opens, store
from tests.store.samples import a_session, whole_turn

__all__ = ["store"]

open_store = opens("sqlite")
NOW = datetime(2026, 11, 24, tzinfo=UTC)
ALL = Wanted(title="All")


def kinds(graph: Graph) -> dict[str, int]:
    return dict(Counter(node.kind for node in graph.nodes))


async def shown(store: Store, wanted: Wanted = ALL) -> Graph:
    return await collect(store, wanted, now=NOW)


async def test_all_of_it_is_there_with_its_links(store: Store) -> None:
    await fill(store, garden(1))
    counts = (await store.info()).counts
    graph = await collect(store, ALL, now=NOW, sent=requests(rounds=1))
    assert kinds(graph) == {
        "session": counts["sessions"],
        "turn": counts["turns"],
        "file": counts["files"],
        "code": counts["scopes"],
        "memory": counts["memories"],
        "summary": counts["summaries"],
    }
    assert graph.left_out == ()
    known = {node.id: node for node in graph.nodes}
    links = Counter(edge.kind for edge in graph.edges)
    assert links["said in"] == counts["turns"] + counts["summaries"]
    assert links["defined in"] == counts["scopes"]
    assert links["supersedes"] == 1
    assert links["decided"] + links["remembered"] == counts["memories"]
    assert links["read"] > links["changed"] > 0
    calls = sum(len(node.facts["calls"]) for node in graph.nodes if node.kind == "turn")
    assert calls == counts["tool_calls"]
    failed = known["turn=turn-0-3"].facts
    assert failed["failed"] == 1
    assert "def plan(bed)" in failed["calls"][0]["result"]
    memory = known["memory=memory-0"].facts
    assert memory["evidence"][0]["turn"] == "turn=turn-0-0"
    assert known["memory=memory-old"].facts["superseded"]
    assert known["turn=turn-0-0"].facts["request"]["sections"][1]["name"] == "Rules"


async def test_a_folder_that_was_listed_is_no_file(store: Store) -> None:
    await fill(store, garden(1))
    files = kinds(await shown(store))["file"]
    turns = await store.turns("session-0")
    looked = FileAccess(path=".", tool_name="list_directory", access_type="list", accessed_at=START)
    call = msgspec.structs.replace(turns[0].tool_calls[0], tool_call_id="c", turn_id="t")
    index = turns[-1].turn_index + 1
    turn = msgspec.structs.replace(turns[0], turn_id="t", turn_index=index, tool_calls=(call,))
    await store.apply([PutTurn(turn=turn, accesses={"c": (looked,)})])
    graph = await shown(store)
    assert "turn=t" in {node.id for node in graph.nodes}
    assert kinds(graph)["file"] == files


async def test_one_project_session_file_or_memory(store: Store) -> None:
    await fill(store, garden(1))
    project = await shown(store, Wanted(title="", project=PROJECT))
    assert kinds(project)["turn"] == 40
    session = await store.session("session-2")
    alone = await shown(store, Wanted(title="", session=session))
    assert kinds(alone) == {
        "session": 1, "turn": 5, "file": 2, "code": 1, "memory": 2, "summary": 1,
    }  # fmt: skip
    path = "beds/watering.py"
    file = await shown(store, Wanted(title="", project=PROJECT, path=path))
    assert {node.session for node in file.nodes if node.kind == "turn"} == {"session=session-0"}
    [memory] = await store.get(MemoryRecord, ["memory-0"])
    chain = await shown(store, Wanted(title="", memory=memory))
    assert {node.id for node in chain.nodes if node.kind in ("turn", "memory")} == {
        "turn=turn-0-0",
        "memory=memory-0",
        "memory=memory-old",
    }


async def test_what_is_left_out_is_said(store: Store) -> None:
    await fill(store, garden(1))
    few = await shown(store, Wanted(title="", most=30))
    assert kinds(few)["session"] == 8
    assert 0 < kinds(few)["turn"] < 30
    assert "`ragmem graph -r ID`" in few.left_out[0]
    since = START + timedelta(days=4)
    late = await shown(store, Wanted(title="", since=since))
    assert all(node.at is None or node.at >= since for node in late.nodes)
    assert 0 < kinds(late)["turn"] < 40
    assert "2026-11-13" in late.left_out[0]


async def test_a_fork_shows_its_own_turns_and_where_it_comes_from(store: Store) -> None:
    await fill(store, garden(1))
    fork = a_session("fork", project_id="garden", parent_session_id="session-0", forked_at_index=2)
    await store.apply([CreateSession(session=fork), *whole_turn("fork", "own")])
    graph = await shown(store)
    assert [edge.target for edge in graph.edges if edge.source == "turn=own"] == ["session=fork"]
    assert ("session=fork", "session=session-0", "forked from") in {
        (edge.source, edge.target, edge.kind) for edge in graph.edges
    }
    assert kinds(graph)["turn"] == 41
