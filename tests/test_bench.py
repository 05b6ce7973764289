"""`scripts/bench`: what it fills is a whole memory, what it measures is shown and drawn."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragmem.store.sqlite import SQLiteStore
from tests.fakes.bench import SPREAD, bench, shown, texts_of

pytestmark = pytest.mark.timeout(1200)
FILL = """
import asyncio, sys
from pathlib import Path
from benches.growth import Place, fill
filled = asyncio.run(fill(Place(home=Path(sys.argv[1])), 350))
print(len(filled.session_ids), sum(filled.lengths.values()), len(filled.long_ids))
"""


ALONE = """
import asyncio
from benches.content import Content
from ragmem.records import PutTurn, PutVectors

def kept(content, project):
    async def all():
        return [write async for batch in content.writes(project) for write in batch]
    writes = asyncio.run(all())
    turns = {w.turn.turn_id: w.turn for w in writes if isinstance(w, PutTurn)}
    vectors = {w.record_id: w.vectors for w in writes if isinstance(w, PutVectors)}
    assert list(turns) == list(vectors)
    return turns, vectors

many, vectors = kept(Content(500, 9), None)
alone, own = kept(Content(500, 9), 7)
assert {turn_id: many[turn_id] for turn_id in alone} == alone
assert {turn_id: vectors[turn_id] for turn_id in own} == own
print(len(many), len(alone), len({turn.session_id for turn in alone.values()}))
"""
PEER = """
import json
from benches.peer_client import messages
from tests.recall.labelled import labelled_sets
turn = next(t for s in labelled_sets() for t in s.turns if len(t.tool_calls) == 1)
ways = ("a message each", "talk alone", "a turn each")
print(json.dumps([[each["role"] for each in messages(turn, way)] for way in ways]))
"""


async def test_the_memory_that_is_measured_is_whole(tmp_path: Path) -> None:
    """So many turns, each with its two calls, in sessions of many lengths."""
    sessions, turns, long = map(int, bench("-c", FILL, str(tmp_path)).split())
    assert (turns, long) == (350, 1)
    data = tmp_path / "data"
    store = await SQLiteStore.open(data / "memory.db", locks_dir=tmp_path / "locks")
    assert await store.check() == []
    counts = (await store.info()).counts
    assert (counts["sessions"], counts["turns"]) == (sessions, 350)
    assert counts["tool_calls"] == 700
    await store.aclose()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is shown and drawn of measurements that were made before."""
    steps = ["append: turn begun", "append: tool call", "append: turn ended", "append: bare insert"]
    steps += ["load the newest 30 turns", "load a session of 300", "list a folder"]
    steps += ["list a project", "list everything, newest 50", "find by the tail of an id"]
    grown = [
        {
            "store": "sqlite", "turns": turns, "sessions": turns // 36 + 1,
            "fill_turns_per_s": 4000.0, "read_turns_per_s": 9000.0, "size_bytes": 5700 * turns,
            "fill_rss_bytes": 50_000_000, "work_rss_bytes": 60_000_000, "open_ms": 5.0,
            "check_ms": 0.01 * turns, "info_ms": 0.004 * turns,
            "steps": dict.fromkeys(steps, SPREAD),
        }
        for turns in (1_000, 100_000)
    ]  # fmt: skip
    groups = {"all": [0.5, 0.6, 0.7], "held out": [0.5, 0.6, 0.7], "in fr": [0.4, 0.5, 0.6]}
    names = ["BM25, plain words", "sqlite: words and meaning", "neo4j: words and meaning"]
    rows = [
        {"name": n, "groups": groups, "questions": dict.fromkeys(groups, 9), "spread": SPREAD}
        for n in names
    ]
    better = {**rows[1], "groups": {**groups, "all": [0.5, 0.9, 0.9]}}
    drained = {
        "turns": 600, "words": 100, "store_s": 1.0, "bare_s": 9.0, "cpu_s": 40.0, "cores": 2,
        "target_s": 20.0,
    }  # fmt: skip
    return shown(
        tmp_path_factory.mktemp("bench"),
        growth=grown,
        recall={"type": "recall", "turns": 9, "recalled": rows},
        peer={
            "type": "peer", "peer": "a-peer==1.0", "turns": 9, "recalled": [*rows, better],
            "appended": {"a turn each": [5.0, 9.0]},
        },
        slow={"type": "drain", "drained": [{**drained, "drain_s": 30.0}]},
        fast={"type": "drain", "drained": [{**drained, "drain_s": 9.0}]},
    )  # fmt: skip


def test_how_cost_grows_is_drawn(kept: dict[str, Any]) -> None:
    """From measurements to charts that a reader of SVG takes, with every name in them."""
    code, table, drawn = kept["growth"]
    assert code == 0
    assert "sqlite 100,000" in table
    assert "2.00 (3.00)" in table
    assert sorted(drawn) == [f"growth-sqlite-{of}" for of in ("append", "read", "size", "whole")]
    texts = drawn["growth-sqlite-append"]
    assert any(text.startswith("bare insert") for text in texts)
    assert {"1,000", "100,000", "milliseconds"} <= set(texts)


def test_a_project_is_the_same_alone_as_among_others() -> None:
    """A million turns in a thousand projects are compared with one of them alone."""
    assert bench("-c", ALONE).split() == ["500", "40", "1"]


def measured(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str, list[str]]:
    """What a part measured, its table, and the pictures drawn of what was kept."""
    kept = tmp_path / "kept.json"
    kept.write_text(bench("-m", "benches", "--folder", str(tmp_path), "--json", *arguments))
    shown = bench("-m", "benches", "--measured", str(kept), "--plot", str(tmp_path))
    drawn = sorted(file.stem for file in tmp_path.glob("*.svg"))
    return json.loads(kept.read_text()), shown, drawn


@pytest.mark.campaign
def test_searches_are_measured_and_drawn(tmp_path: Path) -> None:
    """Each way of searching, the engine alone, and one project of many alone."""
    found, shown, drawn = measured(
        tmp_path, "--only", "search", "--store", "sqlite", "--turns", "80,160,400/10"
    )
    rows = {(r["store"], r["turns"], r["kind"], r["asked"]): r for r in found["searched"]}
    # 4 rows for each memory, and for that of 10 projects those of one, among all and alone.
    assert len(rows) == 4 * (2 + 3)
    assert rows["sqlite", 400, "both", "one"]["spread"]["runs"] == 39
    assert all(r["recall"] == 1.0 for key, r in rows.items() if key[2] == "vector")
    assert all(r["spread"]["minimum"] > 0 for r in rows.values())
    assert [k["size_bytes"] > 0 for k in found["kept"]] == [True] * 4
    assert "sqlite: both, that project alone" in shown
    assert drawn == ["search-sqlite"]
    texts = texts_of(tmp_path / "search-sqlite.svg")
    assert any(text.startswith("FTS5 alone") for text in texts)


@pytest.mark.campaign
def test_contexts_are_measured_and_drawn(tmp_path: Path) -> None:
    """Time of building, sizes of requests, and what each shares with the one before."""
    found, shown, drawn = measured(
        tmp_path,
        *("--only", "context", "--store", "sqlite", "--turns", "40,80", "--conversation", "100"),
    )
    assert [row["turns"] for row in found["built"]] == [40] * 3 + [80] * 3
    assert [step["turn"] for step in found["steps"]] == [1, 50, 100]
    assert all(0 < step["chars"] <= step["max_chars"] for step in found["steps"])
    first, *others = found["steps"]
    assert first["shared_chars"] == 0
    assert all(step["shared_chars"] > 1000 for step in others)
    assert "sqlite: turn 100" in shown
    assert drawn == ["context", "conversation-size-sqlite", "conversation-time"]
    assert "turns of the conversation" in texts_of(tmp_path / "conversation-size-sqlite.svg")


def test_recall_is_drawn_beside_what_it_is_compared_with(kept: dict[str, Any]) -> None:
    """Bars of what was kept, by language too; and the peer as it does best."""
    for name in ("recall", "peer"):
        code, table, _ = kept[name]
        assert code == 0
        assert "0.500 0.600 0.700" in table
    drawn = kept["recall"][2] | kept["peer"][2]
    assert sorted(drawn) == ["peer", "recall", "recall-languages"]
    assert {"SQLite: words and meaning", "among 5", ".60"} <= set(drawn["recall"])
    assert "fr" in drawn["recall-languages"]
    assert {"a-peer", ".90"} <= set(drawn["peer"])


def test_the_peer_is_given_all_of_a_turn() -> None:
    """Nothing of a turn is kept from it, but where that is said."""
    assert json.loads(bench("-c", PEER)) == [["user", "tool", "assistant"], ["user", "assistant"],
                                             ["user"]]  # fmt: skip


def test_a_missed_target_is_told(kept: dict[str, Any]) -> None:
    """Who runs the bench in a script learns it from the exit code."""
    told = {name: (kept[name][0], "MISSED" in kept[name][1]) for name in ("slow", "fast")}
    assert told == {"slow": (1, True), "fast": (0, False)}
