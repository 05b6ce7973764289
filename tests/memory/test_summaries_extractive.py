"""Summaries without a model."""

import json
import time

import msgspec
import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from ragmem.config import SummariesConfig
from ragmem.memory.summaries import summaries_digest, thread_text, turn_digest, turn_records
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.records import Summary

from .builders import T0, a_call, a_summary, a_turn
from .summary_turns import coding_turns, facts


def everything(summary: Summary) -> str:
    return "\n".join([summary.text, *summary.key_findings])


async def test_a_turn_speaks_for_itself() -> None:
    """What was asked, the answer's beginning, what was changed and run, findings by name."""
    summarizer = Summarizer(None, SummariesConfig(), clock=lambda: T0)
    summary = await summarizer.summarize_turn(coding_turns()[1])
    shown = {
        name: getattr(summary, name)
        for name in ("text", "key_findings", "files_mentioned", "tools_used")
    }
    assert summary.extractive
    assert shown == snapshot(
        {
            "text": "Fix the crash: sqlite3.OperationalError: database is locked, when two chats start. — Fixed. `SQLiteStore.open` in `ragmem/store/sqlite/store.py` set `busy_timeout` only after `PRAGMA journal_mode=WAL`, so the switch itself could fail. — ragmem/store/sqlite/store.py — `pytest -q tests/store/test_sqlite_processes.py`: Exit code 0 .............. 14 passed in 6.31s",  # noqa: E501
            "key_findings": (
                "I moved `busy_timeout=5000` to the first statement.",
                "`pytest tests/store/test_sqlite_processes.py` passes: 14 passed.",
            ),
            "files_mentioned": ("ragmem/store/sqlite/store.py",),
            "tools_used": ("read_file", "edit_file", "run_command"),
        }
    )


async def test_the_language_is_that_of_the_conversation() -> None:
    """French stays French."""
    summary = await Summarizer(None, SummariesConfig()).summarize_turn(coding_turns()[4])
    assert summary.text == snapshot(
        "Pourquoi le test test_reminder_sent_once échoue-t-il depuis hier ? — Le test échoue parce que `send_reminder` est appelé deux fois : le commit 4f2c91e a ajouté un appel dans `on_save()` sans enlever celui de `cron_reminders()`. — app/jobs/reminders.py — `git log -3 --oneline`: Exit code 0 4f2c91e on_save — `pytest -q`: Exit code 0 31 passed in 2.02s"  # noqa: E501
    )


async def test_what_matters_is_kept() -> None:
    """Of three facts a turn (names, numbers, outcomes) nine in ten are there."""
    summarizer = Summarizer(None, SummariesConfig())
    kept = total = 0
    for turn, wanted in zip(coding_turns(), facts(), strict=True):
        text = everything(await summarizer.summarize_turn(turn))
        total += len(wanted)
        kept += sum(fact in text for fact in wanted)
    assert total == 45
    assert kept >= 0.9 * total, f"{kept} of {total}"


async def test_roll_ups_keep_the_first_thing_of_each() -> None:
    """Each of the summaries below is heard; findings in turn; all files."""
    summarizer = Summarizer(None, SummariesConfig())
    below = [await summarizer.summarize_turn(turn) for turn in coding_turns()[:6]]
    above = await summarizer.summarize_summaries("s", below)
    assert (above.level, above.turn_count, above.extractive) == (2, 6, True)
    for turn in coding_turns()[:6]:
        assert turn.user_message[:30] in above.text
    assert set(above.files_mentioned) == {file for s in below for file in s.files_mentioned}
    assert len(above.key_findings) == 8
    assert above.char_count <= sum(s.char_count for s in below)


async def test_a_thousand_summaries_are_spread() -> None:
    """The first and the last are among those that are heard; it stays small."""
    below = [
        a_summary(
            i,
            f"t{i}",
            text=f"Number {i} was counted and noted in the book of numbers, on its own page.",
            topics=(f"number-{i}", "counting"),
        )
        for i in range(1_000)
    ]
    digest = summaries_digest(below, text_chars=1_500)
    assert digest.text.startswith("Number 0 was")
    assert "Number 999 was" in digest.text
    assert len(digest.text) <= 1_500
    assert digest.topics[0] == "counting"


def test_the_session_s_summary_tells_what_was_last() -> None:
    """Half of the room for what went before, the rest for the latest turns."""
    text = thread_text("They built the store. It is done.", coding_turns(), text_chars=600)
    assert text.startswith("They built the store. It is done. ")
    assert "parse_duration" in text
    assert len(text) <= 600


@pytest.mark.parametrize(
    ("asked", "answered", "text"),
    [
        ("hi", "Hello!", "hi — Hello!"),
        ("", "", "…"),
        ("", "Done.", "Done."),
        ("fix it", "", "fix it"),
        ("现在几点？你知道吗？", "三点了。吃饭吧。", "现在几点？ 你知道吗？ — 三点了。 吃饭吧。"),
        ("x", "```\ncode_block = 1\n```\n# Title\n- First point.\n- Second.", "x — Title First"),
        ("a\x1b[31mb", "c\u202ed", "a\\e[31mb — c\\u{202e}d"),
    ],
    ids=["small", "empty", "answer", "question", "chinese", "markdown", "controls"],
)
def test_odd_turns(asked: str, answered: str, text: str) -> None:
    """Never empty, in any script, without markup or code blocks."""
    assert turn_digest(a_turn(1, asked, answered), text_chars=800).text.startswith(text)


@given(
    st.text(max_size=300),
    st.text(max_size=900),
    st.lists(st.tuples(st.sampled_from(["run_command", "edit_file", "x"]), st.text(max_size=200))),
    st.integers(40, 400),
)
def test_it_is_bounded(asked: str, answered: str, calls: list[tuple[str, str]], limit: int) -> None:
    """Lengths, single lines, and no more than was there."""
    turn = a_turn(
        1,
        asked,
        answered,
        tuple(
            a_call(i, tool_name=name, text=text, arguments=json.dumps({"path": text}))
            for i, (name, text) in enumerate(calls)
        ),
    )
    digest = turn_digest(turn, text_chars=limit)
    assert 0 < len(digest.text) <= min(limit, max(200, len(turn_records(turn))))
    assert len(digest.key_findings) <= 8
    assert all(0 < len(f) <= 200 for f in digest.key_findings)
    assert all(t.isprintable() for t in (digest.text, *digest.key_findings))


@pytest.mark.parametrize(
    "text",
    [
        part * 50_000
        for part in [*"-/`.。{[( \na", "a_", "aB", "1.", "- ", '."', " 1\t", "a-", "```\n"]
    ],
    ids=lambda text: repr(text[:2]),
)
def test_no_text_makes_it_slow(text: str) -> None:
    """Linear time, whatever a person pastes or a tool prints."""
    call = a_call(0, tool_name="run_command", arguments=text, text=text)
    turn = a_turn(1, text, text, (call, msgspec.structs.replace(call, success=False, error=text)))
    started = time.perf_counter()
    turn_digest(turn, text_chars=800)
    turn_records(turn)
    assert time.perf_counter() - started < 10
