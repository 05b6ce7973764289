"""`scripts/bench`: what it fills is a whole memory, what it measures is shown and drawn."""

import json
from pathlib import Path
from typing import Any

import pytest
from benches.content import Content
from benches.growth import Place, fill
from benches.peer_client import messages

from ragmem.records import PutTurn, PutVectors, Turn
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.bench import SPREAD, bench, shown, texts_of
from tests.memory.builders import a_call, a_turn

pytestmark = pytest.mark.timeout(1200)


async def test_the_memory_that_is_measured_is_whole(tmp_path: Path) -> None:
    """So many turns, each with its two calls, in sessions of many lengths."""
    filled = await fill(Place(home=tmp_path), 350)
    assert (sum(filled.lengths.values()), len(filled.long_ids)) == (350, 1)
    data = tmp_path / "data"
    store = await SQLiteStore.open(data / "memory.db", locks_dir=tmp_path / "locks")
    assert await store.check() == []
    counts = (await store.info()).counts
    assert (counts["sessions"], counts["turns"]) == (len(filled.session_ids), 350)
    assert counts["tool_calls"] == 700
    await store.aclose()


def test_how_cost_grows_is_drawn(tmp_path: Path) -> None:
    """From measurements to charts that a reader of SVG takes, with every name in them."""
    names = ["append: turn begun", "append: tool call", "append: turn ended", "append: bare insert"]
    names += ["load the newest 30 turns", "load a session of 300", "list a folder"]
    names += ["list a project", "list everything, newest 50", "find by the tail of an id"]
    rows = [
        {
            "store": "sqlite", "turns": turns, "sessions": turns // 36 + 1,
            "fill_turns_per_s": 4000.0, "read_turns_per_s": 9000.0, "size_bytes": 5700 * turns,
            "fill_rss_bytes": 50_000_000, "work_rss_bytes": 60_000_000, "open_ms": 5.0,
            "check_ms": 0.01 * turns, "info_ms": 0.004 * turns,
            "steps": dict.fromkeys(names, SPREAD),
        }
        for turns in (1_000, 100_000)
    ]  # fmt: skip
    code, table, drawn = shown(tmp_path, {"type": "growth", "grown": rows})
    assert code == 0
    assert "sqlite 100,000" in table
    assert "2.00 (3.00)" in table
    assert sorted(drawn) == [f"growth-sqlite-{of}" for of in ("append", "read", "size", "whole")]
    texts = drawn["growth-sqlite-append"]
    assert any(text.startswith("bare insert") for text in texts)
    assert {"1,000", "100,000", "milliseconds"} <= set(texts)


async def test_a_project_is_the_same_alone_as_among_others() -> None:
    """A million turns in a thousand projects are compared with one of them alone."""

    async def kept(project: int | None) -> tuple[dict[str, Turn], dict[str, object]]:
        writes = [write async for batch in Content(500, 9).writes(project) for write in batch]
        turns = {w.turn.turn_id: w.turn for w in writes if isinstance(w, PutTurn)}
        vectors = {w.record_id: w.vectors for w in writes if isinstance(w, PutVectors)}
        assert list(turns) == list(vectors)
        return turns, vectors

    (many, vectors), (alone, own) = await kept(None), await kept(7)
    assert {turn_id: many[turn_id] for turn_id in alone} == alone
    assert {turn_id: vectors[turn_id] for turn_id in own} == own
    assert (len(many), len(alone)) == (500, 40)


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
    assert [k["size_bytes"] > 0 for k in found["memories"]] == [True] * 4
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


def test_recall_is_drawn_beside_what_it_is_compared_with(tmp_path: Path) -> None:
    """Bars of what was kept, by language too; and the peer as it does best."""
    groups = {"all": [0.5, 0.6, 0.7], "held out": [0.5, 0.6, 0.7], "in fr": [0.4, 0.5, 0.6]}
    names = ["BM25, plain words", "sqlite: words and meaning", "neo4j: words and meaning"]
    rows = [
        {"name": n, "groups": groups, "questions": dict.fromkeys(groups, 9), "spread": SPREAD}
        for n in names
    ]
    better = {**rows[1], "groups": {**groups, "all": [0.5, 0.9, 0.9]}}
    peer = {"peer": "a-peer==1.0", "appended": {"a turn each": [5.0, 9.0]}}
    for kind in (
        {"type": "recall", "turns": 9, "recalled": rows},
        {"type": "peer", "turns": 9, "recalled": [*rows, better], **peer},
    ):
        code, table, drawn = shown(tmp_path, kind)
        assert code == 0
        assert "0.500 0.600 0.700" in table
    assert sorted(drawn) == ["peer", "recall", "recall-languages"]
    assert {"SQLite: words and meaning", "among 5", ".60"} <= set(drawn["recall"])
    assert "fr" in drawn["recall-languages"]
    assert {"a-peer", ".90"} <= set(drawn["peer"])


def test_recall_of_one_set_is_shown_though_none_is_held_out(tmp_path: Path) -> None:
    row = {"name": "sqlite", "groups": {"all": [0.5, 0.6, 0.7]}, "questions": {"all": 9}}
    code, table, _ = shown(tmp_path, {"type": "recall", "turns": 9, "recalled": [row]})
    assert code == 0
    assert "0.500 0.600 0.700" in table


def test_the_peer_is_given_all_of_a_turn() -> None:
    """Nothing of a turn is kept from it, but where that is said."""
    turn = a_turn(1, calls=(a_call(),))
    ways = ("a message each", "talk alone", "a turn each")
    assert [[each["role"] for each in messages(turn, way)] for way in ways] == [
        ["user", "tool", "assistant"], ["user", "assistant"], ["user"],
    ]  # fmt: skip


def test_a_missed_target_is_told(tmp_path: Path) -> None:
    """Who runs the bench in a script learns it from the exit code."""
    row = {
        "turns": 600, "words": 100, "store_s": 1.0, "bare_s": 9.0, "cpu_s": 40.0, "cores": 2,
        "target_s": 20.0,
    }  # fmt: skip
    searched = {"store": "sqlite", "turns": 10_000, "projects": 1, "kind": "both", "first": 9.0}
    for late, code in ((True, 1), (False, 0)):
        drained = {**row, "drain_s": 30.0 if late else 9.0}
        spread = {**SPREAD, "p95": 21.0 if late else 19.0}
        for kind in (
            {"type": "drain", "drained": [drained]},
            {"type": "search", "searched": [{**searched, "spread": spread}]},
        ):
            told = shown(tmp_path, kind)
            assert (told.code, "MISSED" in told.text) == (code, bool(code))
