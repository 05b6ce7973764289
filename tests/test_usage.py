"""What is used is kept from run to run, by all processes of a home, in a file that stays small."""

import subprocess
import sys
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import ragmem
from ragmem import usage
from ragmem.ids import new_id
from ragmem.usage import FILE, Measured, Metrics, Spending, UsageLog, measured

TODAY = date(2026, 11, 22)
NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
CALL = Spending(calls=1, cost_usd=0.5, input_tokens=7)


def some_metrics(*times: float) -> Metrics:
    metrics = Metrics()
    if times:
        metrics.took("x", *times)
        metrics.count("searches", len(times))
        metrics.count("nothing", 0)
    return metrics


def a_log(folder: Path, day: date = TODAY) -> UsageLog:
    return UsageLog(folder, today=lambda: day)


def keep(log: UsageLog, *times: float) -> None:
    """A process that ends."""
    log.metrics = some_metrics(*times)
    log.keep()


# --- what processes measure ---------------------------------------------------------------


def test_what_processes_measured_is_added_up(tmp_path: Path) -> None:
    """One sum a day; what has no times and no counts is no process."""
    yesterday = TODAY - timedelta(days=1)
    for day, times in ((yesterday, [1]), (TODAY, [2, 4]), (TODAY, [8]), (TODAY, [])):
        keep(a_log(tmp_path, day), *times)
    days = a_log(tmp_path).days()
    assert [(each.day, each.processes) for each in days] == [(yesterday, 1), (TODAY, 2)]
    whole = sum(days, Measured())
    assert (whole.day, whole.processes, whole.count("searches")) == (yesterday, 3, 4)
    assert (whole.timing("x", "y").count, whole.timing("x").total_ms) == (4, 15)
    assert whole.timing("x").max_ms == 8
    assert "nothing" not in whole.counts
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_what_a_process_has_measured_so_far_is_kept_once(tmp_path: Path) -> None:
    """By turns, as a chat does: it may last for days, or be killed. It stays one process."""
    log, other = a_log(tmp_path), a_log(tmp_path)
    for number in range(1, 4):
        log.metrics.took("x", 10 * number)
        log.metrics.count("searches")
        assert log.days(own=True)[0].count("searches") == number
        log.keep()
        log.keep()
        for days in (other.days(), log.days(own=True)):
            assert [(each.processes, each.count("searches")) for each in days] == [(1, number)]
            assert days[0].timing("x").count == number


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=200), st.sampled_from([1, 50, 95, 100]))
def test_a_percentile_is_a_tenth_too_high_at_worst(times: list[float], percent: int) -> None:
    """The numbers of `ragmem stats` against those of the times themselves."""
    exact = sorted(times)[max(0, -(-len(times) * percent // 100) - 1)]
    found = measured(some_metrics(*times), TODAY).timing("x").percentile_ms(percent)
    assert exact * 0.999 - 0.001 <= found <= exact * 1.101 + 0.001


@given(st.lists(st.lists(st.floats(0, 1e5), max_size=5), min_size=2, max_size=6))
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    """However processes share the work, the sum is the same."""
    sums = sum((measured(some_metrics(*times), TODAY) for times in parts), Measured())
    whole = measured(some_metrics(*(each for times in parts for each in times)), TODAY)
    assert sums.timing("x").bins == whole.timing("x").bins
    assert sums.timing("x").total_ms == pytest.approx(whole.timing("x").total_ms, abs=0.01)


def test_what_a_process_holds_does_not_grow_with_what_it_measures() -> None:
    """A chat of weeks keeps sums, not each time."""
    metrics = Metrics()
    tracemalloc.start()
    try:
        for number in range(20_000):
            metrics.took("x", number % 7 / 3)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert measured(metrics, TODAY).timing("x").count == 20_000
    assert held < 20_000


# --- what background calls cost -------------------------------------------------------------


def test_a_call_is_known_to_all_processes_at_once(tmp_path: Path) -> None:
    """Of each session for itself, with all of the day; nothing tells which session it is."""
    first, second = a_log(tmp_path), a_log(tmp_path)
    session_id = new_id()
    used = Spending(2, 1, input_tokens=30, output_tokens=4, cost_usd=0.5, unpriced_calls=1)
    first.add(session_id, used)
    first.add("another", CALL)
    assert second.spent(session_id) == used
    second.add(session_id, CALL)
    assert first.spent(session_id) == Spending(3, 1, 37, 4, 1.0, 1)
    assert first.spent("another") == second.spent("another") == CALL
    assert first.spent_today() == second.spent_today() == 1.5
    assert session_id not in (tmp_path / FILE).read_text()
    [day] = first.days()
    assert (day.count("background.calls"), day.count("background.failed_calls")) == (4, 1)


def test_a_new_day_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was spent yesterday is no reason today, also after the lines were added up."""
    monkeypatch.setattr(usage, "_LARGEST_BYTES", 2_000)
    first, second = a_log(tmp_path), a_log(tmp_path, TODAY + timedelta(days=1))
    for number in range(60):
        first.add(f"s{number % 3}", CALL)
    assert (first.spent_today(), second.spent_today()) == (30.0, 0.0)
    second.add("s0", CALL)
    assert (first.spent_today(), second.spent_today()) == (30.0, 0.5)
    assert second.spent("s0").cost_usd == 10.5


# --- models -------------------------------------------------------------------------------------


def test_the_use_of_a_paid_model_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one process of all, also after the lines were added up."""
    assert a_log(tmp_path).is_first_use("openai/a")
    assert not a_log(tmp_path).is_first_use("openai/a")
    monkeypatch.setattr(usage, "_LARGEST_BYTES", 0)
    assert a_log(tmp_path).is_first_use("openai/b")
    assert [a_log(tmp_path).is_first_use(f"openai/{x}") for x in "abc"] == [False, False, True]


def test_a_model_that_is_away_is_so_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure in a row doubles the pause, up to a day."""
    log = a_log(tmp_path)
    for tries, minutes in ((1, 0), (1, 0), (1, 2), (1, 4), (9, 128), (99, 24 * 60)):
        away = log.failed("m", NOW, "gone", tries=tries)
        assert away.until == NOW + timedelta(minutes=minutes)
    monkeypatch.setattr(usage, "_LARGEST_BYTES", 0)
    log.failed("other", NOW, "x" * 999, tries=3)
    other = a_log(tmp_path)
    assert other.away()["m"] == away
    assert len(other.away()["other"].problem) == 300
    assert [other.may_ask("m", each) for each in (NOW, away.until)] == [False, True]
    other.answered("m")
    assert list(log.away()) == ["other"]
    assert log.may_ask("m", NOW)


def test_a_pause_by_a_clock_that_was_ahead_is_none(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.failed("m", NOW + timedelta(days=365), "gone", tries=3)
    assert log.may_ask("m", NOW)


# --- the file -------------------------------------------------------------------------------------


def test_torn_and_foreign_lines_cost_no_others(tmp_path: Path) -> None:
    """A full disk tears a line; the next one stands by itself."""
    early = a_log(tmp_path)
    keep(early, 1)
    early.add("s", CALL)
    with (tmp_path / FILE).open("ab") as out:
        out.write(b'\xff\xfe\n5\n{"day":7}\n{"day":"2026-11-22","session":"cut')
    assert early.spent("s").calls == 1
    a_log(tmp_path).add("s", CALL)
    keep(a_log(tmp_path), 1)
    assert early.spent("s") == a_log(tmp_path).spent("s") == CALL + CALL
    [day] = early.days()
    assert (day.processes, day.count("background.calls")) == (2, 2)


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    """This process' own calls count; once they can be, all of them are written, and measurements
    as one sum."""
    folder = tmp_path / "missing"
    for log in (UsageLog(), a_log(folder)):
        keep(log, 1)
        for _ in range(2):
            log.add("s", CALL)
        assert (log.spent("s"), log.is_first_use("m")) == (CALL + CALL, True)
        assert not log.is_first_use("m")
        assert log.days() == []
        log.metrics.count("searches")
        log.keep()
    folder.mkdir()
    log.add("s", CALL)
    assert a_log(folder).spent("s").calls == log.spent("s").calls == 3
    log.keep()
    for days in (a_log(folder).days(), log.days(own=True)):
        assert [(each.processes, each.count("searches")) for each in days] == [(1, 2)]
    assert (folder / FILE).read_text().count("searches") == 1


def test_it_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added up when it has grown: nothing is lost, and who had read the old one goes on."""
    monkeypatch.setattr(usage, "_LARGEST_BYTES", 20_000)
    reader = a_log(tmp_path)
    for back in range(300, 0, -1):
        log = a_log(tmp_path, TODAY - timedelta(days=back))
        for number in range(4):
            keep(log, *range(1, 30))
            log.add(f"s{number}", CALL)
        assert reader.spent("s0").calls == 301 - back
        assert (tmp_path / FILE).stat().st_size < 20_000
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    days = reader.days()
    whole = sum(days, Measured())
    assert (whole.processes, whole.timing("x").count) == (300, 1200 * 29)
    assert whole.spent == Spending(1200, input_tokens=8400, cost_usd=600.0)
    assert (days[0].day, days[-1].day) == (TODAY - timedelta(days=300), TODAY - timedelta(days=1))
    assert 10 < len(days) < 93
    assert [reader.spent(f"s{n}").cost_usd for n in range(4)] == [150.0] * 4


def test_of_sessions_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_LARGEST_BYTES", 0)
    monkeypatch.setattr(usage, "_KEPT_SESSIONS", 3)
    log = a_log(tmp_path)
    for number in (0, 1, 2, 0, 3):
        log.add(f"s{number}", CALL)
    assert [log.spent(f"s{n}").calls for n in range(4)] == [2, 0, 1, 1]
    assert log.spent_today() == 2.5


_CHILD = """
import os, signal, sys
from pathlib import Path
from ragmem import usage
usage._LARGEST_BYTES = 1_000
# However busy the machine is: what is not written within that time is this process's alone.
usage._LOCK_TIMEOUT_S = 60
log = usage.UsageLog(Path(sys.argv[1]))
for _ in range(100):
    log.metrics.count("runs")
    log.add("s", usage.Spending(calls=1, cost_usd=0.5))
    log.keep()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    """Also while one of them adds the lines up, and though each is killed at last."""
    command = [sys.executable, "-c", _CHILD, str(tmp_path)]
    source = Path(ragmem.__file__).parents[1]
    children = [subprocess.Popen(command, cwd=source) for _ in range(3)]
    assert [child.wait() for child in children] == [-9, -9, -9]
    log = UsageLog(tmp_path)
    assert log.spent("s") == Spending(calls=300, cost_usd=150.0)
    whole = sum(log.days(), Measured())
    assert (whole.processes, whole.count("runs"), whole.spent.calls) == (3, 300, 300)
