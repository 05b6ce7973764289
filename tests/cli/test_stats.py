"""What is measured is kept from run to run, in a file that stays small, and shown."""

import json
import multiprocessing
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from ragmem.cli.stats import stats_document, stats_text
from ragmem.metrics import Metrics
from ragmem.metrics.kept import FILE, Measured, keep, measured, read, total
from ragmem.records import StoreInfo
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer

TODAY = date(2026, 11, 22)
INFO = StoreInfo(
    kind="sqlite",
    location="/home/a/memory.db",
    version="3.50",
    schema_version=3,
    counts={
        "sessions": 12,
        "turns": 1234,
        "tool_calls": 5000,
        "summaries": 330,
        "files": 77,
        "projects": 2,
    },
    summaries_per_level={1: 300, 2: 29, 10: 1},
    size_bytes=12_345_678,
)


def some_metrics(searches: int = 10) -> Metrics:
    metrics = Metrics()
    metrics.timings_ms["store.turn"] += [1.0, 2.0, 3.0]
    metrics.timings_ms["summaries.turn"] += [1500.0]
    metrics.timings_ms["summaries.roll_up"] += [2500.0]
    metrics.timings_ms["recall.search"] += [float(n) for n in range(1, searches + 1)]
    metrics.count("recall.searches", searches)
    metrics.count("recall.found", searches - 1)
    metrics.count("files.reads", 12)
    metrics.count("files.reads_again", 3)
    metrics.count("turns.calls", 4)
    metrics.count("turns.unpriced_calls", 1)
    metrics.count("turns.input_tokens", 1000)
    metrics.count("turns.output_tokens", 200)
    metrics.count("turns.cached_tokens", 500)
    metrics.count("turns.cost_usd", 0.25)
    metrics.count("background.calls", 3)
    metrics.count("background.failed_calls", 1)
    metrics.count("background.input_tokens", 300)
    metrics.count("background.output_tokens", 60)
    metrics.count("background.cost_usd", 0.01)
    metrics.count("embedder.tokens", 77)
    return metrics


def test_what_processes_measured_is_added_up(tmp_path: Path) -> None:
    keep(tmp_path, some_metrics(), TODAY - timedelta(days=1))
    keep(tmp_path, some_metrics(20), TODAY)
    keep(tmp_path, some_metrics(), TODAY)
    days = read(tmp_path)
    assert [(each.day, each.processes) for each in days] == [
        (TODAY - timedelta(days=1), 1),
        (TODAY, 2),
    ]
    whole = total(days)
    assert whole is not None
    assert whole.count("recall.searches") == 40
    assert whole.timing("recall.search").count == 40
    assert whole.timing("summaries.turn", "summaries.roll_up").total_ms == 3 * 4000
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=200), st.sampled_from([1, 50, 95, 100]))
def test_a_percentile_is_a_tenth_too_high_at_worst(times: list[float], percent: int) -> None:
    """The numbers of `ragmem stats` against those of the times themselves."""
    metrics = Metrics()
    metrics.timings_ms["x"] += times
    ranked = sorted(times)
    exact = ranked[max(0, -(-len(times) * percent // 100) - 1)]
    found = measured(metrics, TODAY).timing("x").percentile_ms(percent)
    assert exact * 0.999 - 0.001 <= found <= exact * 1.101 + 0.001


@given(st.lists(st.lists(st.floats(0, 1e5), max_size=5), min_size=2, max_size=6))
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    alone = []
    for times in parts:
        metrics = Metrics()
        metrics.timings_ms["x"] += times
        alone.append(measured(metrics, TODAY))
    together = Metrics()
    together.timings_ms["x"] += [each for times in parts for each in times]
    sums = total(alone)
    assert sums is not None
    whole = measured(together, TODAY)
    assert sums.timing("x").bins == whole.timing("x").bins
    assert sums.timing("x").total_ms == pytest.approx(whole.timing("x").total_ms, abs=0.01)


def test_torn_and_foreign_lines_cost_no_others(tmp_path: Path) -> None:
    keep(tmp_path, some_metrics(), TODAY)
    file = tmp_path / FILE
    with file.open("ab") as out:
        out.write(b'\xff\xfe\n{"day": "2026-01-01", "proc')
    keep(tmp_path, some_metrics(), TODAY)
    (found,) = read(tmp_path)
    assert found.processes == 2


def test_the_file_stays_small(tmp_path: Path) -> None:
    """Bounded whatever happens: added up by day when it has grown, and nothing is lost by that."""
    for back in range(800, 0, -1):
        for _ in range(4):
            keep(tmp_path, some_metrics(50), TODAY - timedelta(days=back))
    assert (tmp_path / FILE).stat().st_size <= 1_000_000
    whole = total(read(tmp_path))
    assert whole is not None
    assert whole.processes == 3200
    assert whole.timing("recall.search").count == 3200 * 50
    assert len(read(tmp_path)) < 800
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, f"{FILE}.lock"]


def _keep_many(folder: Path) -> None:
    for _ in range(50):
        keep(folder, some_metrics(), TODAY)


def test_processes_that_end_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_keep_many, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
        assert process.exitcode == 0
    whole = total(read(tmp_path))
    assert whole is not None
    assert whole.processes == 150


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    keep(tmp_path / "missing", some_metrics(), TODAY)
    keep(tmp_path, Metrics(), TODAY)
    assert read(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def days() -> list[Measured]:
    return [measured(some_metrics(), TODAY - timedelta(days=3)), measured(some_metrics(30), TODAY)]


def test_stats_for_people() -> None:
    pending = {"vectors": 1000, "level1": 2, "roll_up": 0, "thread": 7}
    document = stats_document(INFO, days(), pending=pending, at_work=True)
    assert stats_text(document, width=80, today=TODAY) == snapshot("""\
memory     sqlite /home/a/memory.db, 12.3 MB
           12 sessions, 1,234 turns, 5,000 tool calls, 330 summaries, 0
           memories, 77 files
summaries  level 1       300  █████████████████████████████████████████████████
           level 2        29  █████············································
           level 10        1  █················································
turns      Thu 19 Nov        3  ███████████████████████████████████████████████
           Fri 20 Nov        0  ···············································
           Sat 21 Nov        0  ···············································
           Sun 22 Nov        3  ███████████████████████████████████████████████

Measured since 2026-11-19, in 2 processes:

TIME (ms)       COUNT  MEAN     P50      P95      MAX
store a turn    6      2.0      2.1      3.0      3.0
make a summary  4      2,000.0  1,539.0  2,500.0  2,500.0
search          40     13.0     10.8     28.1     30.0

searches   40, 95% found something
reads      24 files read, 6 of them again in the same session and unchanged
tokens     2,000 in, 1,000 of them cached, 400 out, 154 embedded
cost       $0.5200, and 2 calls whose price is not known
background 6 calls, 2 failed, $0.0200, 600 tokens in, 120 out
pending    1,000+ without vectors, 2 not summed up by a model; a process is at
           work on it
""")
    for width in (10, 40, 60, 200):
        lines = stats_text(document, width=width, today=TODAY).splitlines()
        assert all(len(line) <= max(width, 50) for line in lines)


def test_stats_of_an_empty_memory() -> None:
    info = StoreInfo(kind="sqlite", location="/m.db", version="", schema_version=3, counts={})
    document = stats_document(info, [], pending={}, at_work=False)
    assert (document["since"], document["semantic_search_success_rate"]) == (None, None)
    assert stats_text(document, width=80, today=TODAY) == snapshot("""\
memory     sqlite /m.db
           0 sessions, 0 turns, 0 tool calls, 0 summaries, 0 memories, 0 files

Nothing was measured yet.

searches   none
reads      0 files read, 0 of them again in the same session and unchanged
tokens     0 in, 0 of them cached, 0 out, 0 embedded
cost       $0.0000
background 0 calls, $0.0000, 0 tokens in, 0 out
pending    nothing
""")


def test_stats_as_json() -> None:
    """The numbers of the table by name, and cost_usd, tokens, background_calls, pending."""
    document = stats_document(INFO, days(), pending={"vectors": 3}, at_work=False)
    assert document["summaries_per_level"] == {"1": 300, "2": 29, "10": 1}
    assert list(document["summaries_per_level"]) == ["1", "2", "10"]
    assert document["semantic_search_success_rate"] == 38 / 40
    assert document["store_turn"]["count"] == 6
    assert document["generate_summary"]["mean_ms"] == 2000
    assert document["semantic_search"]["max_ms"] == 30
    assert document["cost_usd"] == pytest.approx(0.52)
    assert (document["background_calls"], document["tokens"]["input"]) == (6, 2000)
    assert document["counts"]["turns"] == 1234


def test_what_a_day_may_cost_is_shown() -> None:
    document = stats_document(
        INFO, days(), pending={}, at_work=False, spent_today_usd=0.25, most_a_day_usd=5.0
    )
    assert (document["background_cost_usd_today"], document["max_cost_usd_per_day"]) == (0.25, 5.0)
    text = " ".join(stats_text(document, width=80, today=TODAY).split())
    assert "; $0.2500 of $5.00 that a day may cost" in text
    nothing = stats_document(INFO, days(), pending={}, at_work=False, most_a_day_usd=5.0)
    assert "a day may cost" not in stats_text(nothing, width=80, today=TODAY)


def test_stats_are_kept_across_runs(tmp_path: Path) -> None:
    """In real processes: an `ask`, a search, and then the numbers of both."""
    with LLMServer([Answer("It listens on port 5439.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_MEMORY__WORKER": "inline"})
        before = ragmem.run("stats", "--format", "json").json
        assert (before["store_turn"]["count"], before["searches"]) == (0, 0)
        for prompt in ("Where does the database listen?", "Is the database reachable there?"):
            assert ragmem.run("ask", prompt).code == 0
        assert ragmem.run("search", "database port").code == 0
        assert ragmem.run("search", "zzzz qqqq", "--no-semantic").code == 0
        after = ragmem.run("stats", "--format", "json").json
        shown = ragmem.run("stats")
    assert after["store_turn"]["count"] == 2
    assert 0 < after["store_turn"]["p95_ms"] < 60_000
    assert after["generate_summary"]["count"] >= 2
    assert after["semantic_search"]["count"] == after["searches"] == 3
    assert after["semantic_search_success_rate"] == 2 / 3
    assert after["tokens"]["input"] == 200
    assert after["tokens"]["embedded"] > 0
    assert after["background_calls"] >= 2
    assert after["database_size_bytes"] > 0
    assert after["summaries_per_level"] == {"1": 2}
    assert after["pending"]["vectors"] == 0
    assert after["background_process"] is False
    assert (shown.code, shown.err) == (0, "")
    assert "3, 67% found something" in shown.out


def test_nothing_is_kept_of_what_is_not_remembered(tmp_path: Path) -> None:
    with LLMServer([Answer("Yes.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path, server.env)
        assert ragmem.run("ask", "Is it?", "--ephemeral").code == 0
        assert ragmem.run("ask", "Is it?", env={"RAGMEM_MEMORY__ENABLED": "false"}).code == 0
    assert not (ragmem.home / "data" / FILE).exists()


def test_stats_when_the_store_is_away(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path, {"RAGMEM_STORE": "neo4j", "NEO4J_URI": "bolt://127.0.0.1:9"})
    done = ragmem.run("stats", "--format", "json")
    assert (done.code, done.out) == (75, "")
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(done.out)
