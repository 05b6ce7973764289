"""What a session's background calls cost is known to every process that works for it."""

import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import ragmem
from ragmem.config import SummariesConfig
from ragmem.errors import ProviderUnavailable, StreamCut
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo, UsageChunk
from ragmem.memory.summaries import Ledger, Spending, Summarizer
from ragmem.memory.summaries import ledger as ledger_module
from ragmem.memory.summaries.ledger import day_spent_text
from ragmem.memory.worker import Worker
from ragmem.store.base import Store
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .builders import a_turn
from .working import DIGEST, a_session, no_wait

PRICED = ModelInfo(
    name="openai/priced",
    context_window=128_000,
    input_usd_per_token=1e-5,
    output_usd_per_token=1e-5,
)


async def one_process(
    store: Store, llm: ScriptedLLM, config: SummariesConfig, file: Path
) -> Summarizer:
    """Works until nothing is left to do; the next one knows no more than what is kept."""

    async def opened() -> Store:
        return store

    summarizer = Summarizer(llm, config, ledger=Ledger(file), sleep=no_wait)
    worker = Worker(opened, new_id(), embedder=None, summarizer=summarizer, config=config)
    assert await worker.drain()
    return summarizer


@pytest.mark.parametrize("answer", [Says("no JSON"), StreamCut("cut")])
async def test_a_model_that_fails_in_each_process(
    store: Store, tmp_path: Path, answer: Says | Exception
) -> None:
    """Calls that leave no summary count too, over all processes together."""
    session_id = await a_session(store, 3)
    config = SummariesConfig(max_calls_per_session=8)
    llm = ScriptedLLM([answer], repeat=True)
    for _ in range(4):
        last = await one_process(store, llm, config, tmp_path / "spending.jsonl")
    assert len(llm.requests) == 8
    assert last.spent(session_id).calls == 8
    # Every turn has its summary all the same.
    assert len(await store.summaries(session_id, level=1)) == 3


async def test_the_cost_is_that_of_all_processes(store: Store, tmp_path: Path) -> None:
    """A cent a session is a cent, however many processes spend it."""
    session_id = await a_session(store, 12, chars=60)
    another = await a_session(store, 1, chars=60, start_minute=100)
    config = SummariesConfig(max_cost_usd_per_session=0.03)
    usage = UsageChunk(input_tokens=600, output_tokens=100)
    asked = 0
    for _ in range(4):
        answer = Says(DIGEST.text, usage=usage)
        llm = ScriptedLLM([answer] * 2 + [ProviderUnavailable("gone")], info=PRICED, repeat=True)
        last = await one_process(store, llm, config, tmp_path / "spending.jsonl")
        asked += len(llm.requests)
    spent = last.spent(session_id)
    assert 0.01 < spent.cost_usd <= 0.03
    assert spent.calls + last.spent(another).calls == asked


def test_it_is_kept_for_the_next(tmp_path: Path) -> None:
    """Calls and their cost, of each session for itself; not why one failed, nor a session's id."""
    file = tmp_path / "spending.jsonl"
    first, second = Ledger(file), Ledger(file)
    session_id = new_id()
    used = Spending(calls=2, cost_usd=0.5, input_tokens=30, output_tokens=4, unpriced_calls=1)
    first.add(session_id, replace(used, problem="a secret?"))
    first.add("another", Spending(calls=1))
    first.add(session_id, Spending(summaries=1, extractive=1))
    assert second.spent(session_id) == used
    second.add(session_id, Spending(calls=1, cost_usd=0.25))
    both = first.spent(session_id)
    assert (both.calls, both.cost_usd, both.input_tokens, both.output_tokens) == (3, 0.75, 30, 4)
    assert (first.spent(session_id).summaries, first.spent(session_id).problem) == (1, "a secret?")
    assert second.own(session_id) == Spending(calls=1, cost_usd=0.25)
    assert first.spent("another").calls == second.spent("another").calls == 1
    text = file.read_text()
    assert session_id not in text
    assert "secret" not in text
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_torn_line_costs_that_line(tmp_path: Path) -> None:
    """A disk that was full in the middle of one."""
    file = tmp_path / "spending.jsonl"
    Ledger(file).add("s", Spending(calls=1))
    with file.open("a") as out:
        out.write('{"s":"cut')
    Ledger(file).add("s", Spending(calls=2))
    assert Ledger(file).spent("s").calls == 3


def test_where_nothing_can_be_kept(tmp_path: Path) -> None:
    """This process' own calls count."""
    ledger = Ledger(tmp_path / "no" / "such" / "folder")
    for _ in range(2):
        ledger.add("s", Spending(calls=1, cost_usd=0.1))
    assert ledger.spent("s") == Spending(calls=2, cost_usd=0.2)
    assert Ledger().spent("s") == Spending()


def test_it_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a session when it has grown; who had read the old one goes on with the new one."""
    monkeypatch.setattr(ledger_module, "_LARGEST_BYTES", 2_000)
    file = tmp_path / "spending.jsonl"
    first, second = Ledger(file), Ledger(file)
    for number in range(300):
        first.add(f"s{number % 3}", Spending(calls=1, cost_usd=0.5, input_tokens=7))
        assert second.spent("s0").calls == number // 3 + 1
    assert file.stat().st_size < 3_000
    assert [path.name for path in tmp_path.iterdir()] == ["spending.jsonl"]
    assert [second.spent(f"s{i}").cost_usd for i in range(3)] == [50.0] * 3
    assert [Ledger(file).spent(f"s{i}").input_tokens for i in range(3)] == [700] * 3


_CHILD = """
import sys
from pathlib import Path
from ragmem.memory.summaries import Ledger, Spending, ledger
ledger._LARGEST_BYTES = 1_000
# However busy the machine is: what is not written within that time is this process's alone.
ledger._PATIENCE_S = 60
book = Ledger(Path(sys.argv[1]))
for _ in range(200):
    book.add("s", Spending(calls=1, cost_usd=0.5))
"""


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    """Also while one of them adds the lines up."""
    file = tmp_path / "spending.jsonl"
    source = Path(ragmem.__file__).parents[1]
    children = [
        subprocess.Popen([sys.executable, "-c", _CHILD, str(file)], cwd=source) for _ in range(3)
    ]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert Ledger(file).spent("s") == Spending(calls=600, cost_usd=300.0)


# --- a day of all sessions ----------------------------------------------------------------


async def test_a_day_may_cost_so_much_over_all_sessions(store: Store, tmp_path: Path) -> None:
    """A hundred imported sessions, each within its own limit, add up."""
    sessions = [await a_session(store, 2, chars=60, start_minute=100 * n) for n in range(5)]
    config = SummariesConfig(max_cost_usd_per_day=0.03)
    usage = UsageChunk(input_tokens=600, output_tokens=100)
    llm = ScriptedLLM([Says(DIGEST.text, usage=usage)], info=PRICED, repeat=True)
    for _ in range(3):
        last = await one_process(store, llm, config, tmp_path / "spending.jsonl")
    assert 0.01 < sum(last.spent(each).cost_usd for each in sessions) <= 0.03
    made = [s for each in sessions for s in await store.summaries(each, level=1)]
    assert len(made) == 10
    assert any(s.extractive for s in made)
    assert not all(s.extractive for s in made)


async def test_it_is_said_once(tmp_path: Path) -> None:
    """A notice, when the first summary is cut for it; a free model knows no limit."""
    config = SummariesConfig(max_cost_usd_per_day=0.0)
    for info, times in ((PRICED, 1), (ModelInfo(name="ollama/mine", context_window=8_000), 0)):
        llm = ScriptedLLM([Says(DIGEST.text)], info=info, repeat=True)
        ledger = Ledger(tmp_path / info.name.replace("/", "-"))
        said: list[str] = []
        summarizer = Summarizer(llm, config, ledger=ledger, sleep=no_wait, say=said.append)
        for turn in (a_turn(1), a_turn(2)):
            await summarizer.summarize_turn(turn)
        assert len(said) == times
        assert len(llm.requests) == (0 if times else 2)
    assert "max_cost_usd_per_day" in day_spent_text(config)


def test_a_new_day_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was spent yesterday is no reason today, also after the lines were added up."""
    monkeypatch.setattr(ledger_module, "_LARGEST_BYTES", 2_000)
    file = tmp_path / "spending.jsonl"
    day = date(2026, 1, 14)

    def today() -> date:
        return day

    first, second = Ledger(file, today=today), Ledger(file, today=today)
    for number in range(60):
        first.add(f"s{number % 3}", Spending(calls=1, cost_usd=0.5, input_tokens=7))
    assert second.spent_today() == first.spent_today() == 30.0
    day += timedelta(days=1)
    assert second.spent_today() == 0.0
    second.add("s0", Spending(calls=1, cost_usd=0.25))
    assert first.spent_today() == Ledger(file, today=today).spent_today() == 0.25
    assert Ledger(file, today=today).spent("s0").cost_usd == 10.25
    assert Ledger(today=today).spent_today() == 0.0


def test_a_ledger_from_before_is_read(tmp_path: Path) -> None:
    """Lines without a day count for their session."""
    file = tmp_path / "spending.jsonl"
    Ledger(file).add("s", Spending(calls=2))
    file.write_text(file.read_text().replace("}", ',"usd":0.5}'))
    assert Ledger(file).spent("s").cost_usd == 0.5
    assert Ledger(file).spent_today() == 0.0
