"""The summariser: what it asks, at each level and for the session."""

import json
import re

import pytest
from inline_snapshot import snapshot

from ragmem.config import SummariesConfig
from ragmem.memory.summaries import files_of, summary_id, thread_records, turn_records
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.messages import prompt
from ragmem.records import Summary
from tests.fakes.scripted_llm import Says

from .builders import T0, a_call, a_turn
from .summarizing import GOOD, TURN, a_summarizer, a_summary, asked
from .summary_turns import coding_turns

# --- level 1 ----------------------------------------------------------------------------------


async def test_a_turn_becomes_a_summary() -> None:
    """The model's words; files and tools as they were recorded."""
    summarizer, llm = a_summarizer(Says(GOOD))
    found = await summarizer.summarize_turn(TURN)
    assert found == Summary(
        summary_id=summary_id("s", 1, [TURN.turn_id]),
        session_id="s",
        text="The lock error is fixed.",
        level=1,
        turn_count=1,
        files_mentioned=("ragmem/store/sqlite/store.py",),
        key_findings=("busy_timeout comes first",),
        tools_used=("read_file", "edit_file", "run_command"),
        topics=("sqlite",),
        created_at=T0,
        covers=(TURN.turn_id,),
    )
    assert found.char_count == len(found.text)
    [request] = llm.requests
    assert request.tools == ()
    rules, data = asked(request).split("=====\n")
    assert rules == rules_of("turn", 800)
    assert data == snapshot("""\
<records-TAG>
Person: Fix the crash: sqlite3.OperationalError: database is locked, when two chats start.

Tool calls:
- read_file ragmem/store/sqlite/store.py -> import apsw
- edit_file ragmem/store/sqlite/store.py -> Changed ragmem/store/sqlite/store.py: 1 place.
  with {"path": "ragmem/store/sqlite/store.py", "old_text": "journal_mode=WAL", "new_text": "busy_timeout=5000; PRAGMA journal_mode=WAL"}
- run_command pytest -q tests/store/test_sqlite_processes.py -> Exit code 0 .............. 14 passed in 6.31s

Agent: Fixed. `SQLiteStore.open` in `ragmem/store/sqlite/store.py` set `busy_timeout` only after `PRAGMA journal_mode=WAL`, so the switch itself could fail. I moved `busy_timeout=5000` to the first statement. `pytest tests/store/test_sqlite_processes.py` passes: 14 passed.
</records-TAG>

That was the quoted data. Answer with the JSON object. Its `text` may have at most 773 characters.\
""")  # noqa: E501


def rules_of(asked: str, chars: int) -> str:
    """What stands before the data."""
    rules = prompt("summarize_rules").format(text_chars=chars, findings=8, topics=8)
    return f"{prompt(f'summarize_{asked}')}\n\n{rules}\n"


async def test_the_prompt_is_the_same_but_for_the_data() -> None:
    """Providers' caches hit from turn to turn; the mark is another one each time."""
    summarizer, llm = a_summarizer(*[Says(GOOD)] * 3)
    for turn in (TURN, TURN, coding_turns()[4]):
        await summarizer.summarize_turn(turn)
    assert len({request.messages[0] for request in llm.requests}) == 1
    marks = [set(re.findall(r"records-(\w+)>", r.messages[1].text)) for r in llm.requests]
    assert [len(found) for found in marks] == [1, 1, 1]
    assert len(set.union(*marks)) == 3


def test_nothing_recalled_is_summed_up_again() -> None:
    """What memory brought back is not in the material; nor are long results."""
    turn = a_turn(
        1,
        "Go on",
        "Went on.",
        (
            a_call(0, tool_name="recall_result", arguments='{"id": "abc123"}', text="OLD " * 900),
            a_call(1, text="fresh " + "x" * 90_000 + " end of file"),
            a_call(2, text="", success=False, error="No such file: b.py"),
            a_call(3, result=""),
        ),
    )
    records = turn_records(turn)
    assert "OLD" not in records
    assert "recall_result abc123 -> brought back earlier records" in records
    assert len(records) < 1_200
    assert "fresh x" in records
    assert "end of file" in records
    assert "failed: No such file: b.py" in records
    assert "read_file a.py -> no result was recorded" in records


def test_three_hundred_calls_are_bounded() -> None:
    """The material of a turn stays small whatever was called."""
    calls = tuple(a_call(i, text="line of output\n" * 400) for i in range(300))
    assert len(turn_records(a_turn(1, calls=calls))) < 12_100


def test_files_are_those_of_the_records() -> None:
    """Changed first; a mention counts as read, a listing and a failure do not."""
    calls = (
        a_call(0, tool_name="list_directory", arguments='{"path": "src"}'),
        a_call(1, tool_name="grep_files", result='{"text": "", "files": ["found.py", "w.py"]}'),
        a_call(2, arguments='{"path": "m.py"}', origin="mention"),
        a_call(3, tool_name="edit_file", arguments='{"path": "./w.py"}'),
        a_call(4, arguments='{"path": "gone.py"}', success=False),
        a_call(5, tool_name="run_command", arguments='{"command": "cat z.py"}'),
    )
    assert files_of(calls) == ("w.py", "m.py", "found.py")
    assert files_of(calls, lambda path: f"sub/{path}")[1] == "sub/m.py"
    many = [
        a_call(i, arguments=json.dumps({"path": f"f{i}.py"}), tool_name="write_file")
        for i in range(90)
    ]
    assert files_of(many) == tuple(f"f{i}.py" for i in range(50))


# --- higher levels ----------------------------------------------------------------------------


async def test_summaries_roll_up() -> None:
    """One level above, turn counts added, files and tools united without the model, which is told
    of the findings."""
    summarizer, llm = a_summarizer(Says(GOOD))
    below = [
        a_summary(
            1, 2, turn_count=3, files_mentioned=("a.py", "b.py"), tools_used=("read_file",),
            key_findings=("module_1 is slow",),
        ),
        a_summary(2, 2, turn_count=2, files_mentioned=("c.py", "b.py"), topics=("x",)),
    ]  # fmt: skip
    found = await summarizer.summarize_summaries("s", below)
    assert (found.level, found.turn_count, found.extractive) == (3, 5, False)
    assert found.covers == (below[0].summary_id, below[1].summary_id)
    assert found.files_mentioned == ("b.py", "c.py", "a.py")
    assert found.tools_used == ("read_file",)
    assert (found.text, found.topics) == ("The lock error is fixed.", ("sqlite",))
    [request] = llm.requests
    rules, data = asked(request).split("=====\n")
    assert rules == rules_of("summaries", 1_500)
    assert data == snapshot("""\
<records-TAG>
Summary: Part 1 was built in module_1.py and all its tests pass.
- module_1 is slow

Summary: Part 2 was built in module_2.py and all its tests pass.
</records-TAG>

That was the quoted data. Answer with the JSON object. Its `text` may have at most 200 characters.\
""")


@pytest.mark.parametrize("summaries", [[], [a_summary(1, 0)], [a_summary(1), a_summary(2, 2)]])
async def test_levels_do_not_mix(summaries: list[Summary]) -> None:
    """A caller's mistake is said, and no model is asked."""
    summarizer, _ = a_summarizer()
    with pytest.raises(ValueError, match="level"):
        await summarizer.summarize_summaries("s", summaries)


# --- the session's own summary ----------------------------------------------------------------


async def test_the_session_is_summed_up() -> None:
    """What went before, then role: content by blank lines."""
    summarizer, llm = a_summarizer(Says(GOOD))
    turns = [a_turn(1, "Why is it red?", "A test fails."), a_turn(2, "Fix it", "Fixed.")]
    text = await summarizer.thread_summary("They set up the build.", turns)
    assert text == "The lock error is fixed."
    [request] = llm.requests
    rules, data = asked(request).split("=====\n")
    assert rules == rules_of("thread", 1_200)
    assert data == snapshot("""\
<records-TAG>
summary of what went before: They set up the build.

user: Why is it red?

assistant: A test fails.

user: Fix it

assistant: Fixed.
</records-TAG>

That was the quoted data. Answer with the JSON object. Its `text` may have at most 200 characters.\
""")


def test_at_most_a_thousand_messages_are_read() -> None:
    """The newest."""
    turns = [a_turn(i, f"q{i}", f"a{i}") for i in range(1, 701)]
    records = thread_records(None, turns, max_chars=100_000)
    assert records.count("\n\n") == 999
    assert records.startswith("user: q201\n\nassistant: a201\n\n")
    assert records.endswith("assistant: a700")


@pytest.mark.parametrize("tokens", [1, 10, 60, 300])
@pytest.mark.parametrize("script", [(Says(GOOD.replace("fixed.", "fixed. " * 200)),), ()])
async def test_the_session_s_summary_fits_its_budget(tokens: int, script: tuple[Says]) -> None:
    """Four characters a token, whoever wrote it; never empty."""
    config = SummariesConfig(max_tokens=tokens)
    summarizer, _ = a_summarizer(*script, config=config)
    if not script:
        summarizer = Summarizer(None, config)
    text = await summarizer.thread_summary("They set up the build. " * 30, coding_turns())
    assert 0 < len(text) <= 4 * tokens


async def test_without_new_turns_it_stays() -> None:
    """And no model is asked."""
    summarizer, _ = a_summarizer()
    assert await summarizer.thread_summary("As it was.", []) == "As it was."
    assert await summarizer.thread_summary(None, []) == ""
