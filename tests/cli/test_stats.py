"""What is measured is kept from run to run, and shown."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.cli.looking import stats_painted
from ragmem.cli.output import Paint
from ragmem.records import StoreInfo
from ragmem.statistics import stats_document, stats_text
from ragmem.usage import FILE, Measured, Metrics, Spending, measured
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
    metrics.took("store.turn", 1.0, 2.0, 3.0)
    metrics.took("summaries.turn", 1500.0)
    metrics.took("summaries.roll_up", 2500.0)
    metrics.took("recall.search", *map(float, range(1, searches + 1)))
    for name, count in {
        "recall.searches": searches,
        "recall.found": searches - 1,
        "files.reads": 12,
        "files.reads_again": 3,
        "turns.calls": 4,
        "turns.unpriced_calls": 1,
        "turns.input_tokens": 1000,
        "turns.output_tokens": 200,
        "turns.cached_tokens": 500,
        "turns.cost_usd": 0.25,
        "embedder.tokens": 77,
    }.items():
        metrics.count(name, count)
    return metrics


def days() -> list[Measured]:
    calls = Spending(3, 1, input_tokens=300, output_tokens=60, cost_usd=0.01)
    first = measured(some_metrics(), TODAY - timedelta(days=3))
    last = measured(some_metrics(30), TODAY)
    return [first + Measured(spent=calls), last + Measured(spent=calls)]


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

Measured since 2026-11-19, in 2 processes:

turns done Thu 19 Nov        3  ███████████████████████████████████████████████
           Fri 20 Nov        0  ···············································
           Sat 21 Nov        0  ···············································
           Sun 22 Nov        3  ███████████████████████████████████████████████

TIME (ms)       COUNT  MEAN     P50      P95      MAX
store a turn    6      2.0      2.1      3.0      3.0
make a summary  4      2,000.0  1,539.0  2,500.0  2,500.0
search          40     13.0     10.8     28.1     30.0

searches   40, 95% with results
reads      24 files read, 6 repeatedly although unchanged in the session
tokens     2,000 in, 1,000 of them cached, 400 out, 154 embedded
cost       $0.5200, and 2 calls of unknown price
background 6 calls, 2 failed, $0.0200, 600 tokens in, 120 out
pending    1,000+ without embeddings, 2 without a summary; a process is working
           on it
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

Nothing measured yet.

searches   none
reads      0 files read, 0 repeatedly although unchanged in the session
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
    assert "; $0.2500 of the daily limit of $5.00" in text
    nothing = stats_document(INFO, days(), pending={}, at_work=False, most_a_day_usd=5.0)
    assert "daily limit" not in stats_text(nothing, width=80, today=TODAY)


def test_stats_are_kept_across_runs(tmp_path: Path, server: LLMServer) -> None:
    """An `ask`, a search, and then the numbers of both; none of what is not remembered."""
    server.always(Answer("It listens on port 5439."))
    ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_MEMORY__WORKER": "inline"})
    ragmem.ok("ask", "Is it?", "--ephemeral")
    ragmem.ok("ask", "Is it?", env={"RAGMEM_MEMORY__ENABLED": "false"})
    assert not (ragmem.home / "data" / FILE).exists()
    for prompt in ("Where does the database listen?", "Is the database reachable there?"):
        ragmem.ok("ask", prompt)
    ragmem.ok("search", "database port")
    ragmem.ok("search", "zzzz qqqq", "--no-semantic")
    after = ragmem.read("stats")
    shown = ragmem.ok("stats")
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
    assert shown.err == ""
    assert "3, 67% with results" in shown.out


def test_tokens_of_each_day_with_the_share_of_background_work() -> None:
    used = [
        Measured(day=TODAY - timedelta(days=2), counts={"turns.input_tokens": 9_000.0}),
        Measured(
            day=TODAY,
            counts={"turns.input_tokens": 1_000.0, "turns.output_tokens": 500.0},
            spent=Spending(3, 1, input_tokens=1_200, output_tokens=300, cost_usd=0.0),
        ),
    ]
    document = stats_document(INFO, days(), pending={}, at_work=False)
    text = stats_text(document, width=60, today=TODAY, days=used)
    rows = text.splitlines()
    first = next(i for i, row in enumerate(rows) if row.startswith("tokens"))
    assert rows[first : first + 4] == snapshot(
        [
            "tokens     Fri 20 Nov       9k  ███████████████████████████",
            "           Sat 21 Nov        0  ···························",
            "           Sun 22 Nov       3k  █████▒▒▒▒··················",
            "           ▒ background work: 12%",
        ]
    )
    painted = stats_painted(text, Paint("color"))
    assert "\x1b[33m▒" in painted
    assert "\x1b[36m█" in painted
    assert stats_painted(text, Paint("none")) == text
