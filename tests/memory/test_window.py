"""The recent window and files as a model is shown them: messages, text, passages."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.memory.context.history import (
    COMPRESSION_MARKER,
    WHOLE_LIMIT,
    HistoryMessage,
    build_history_context,
    format_history,
)
from ragmem.memory.facts.failures import failures, succeeded
from ragmem.memory.facts.vouching import Sources
from ragmem.memory.turns import (
    UNKNOWN_EFFECTS,
    passage,
    recent_text,
    recent_window,
    result_text,
    subject_of,
    turn_messages,
    window_limit,
    with_passages,
)
from ragmem.messages import Message, ToolAnswer, ToolUse
from ragmem.records import Turn

from .builders import a_call, a_turn


def assert_valid(messages: Sequence[Message]) -> None:
    """What every provider demands of the messages after the system message."""
    waiting: list[str] = []
    before = "assistant"
    for message in messages:
        assert message.parts
        if message.role == "tool":
            (part,) = message.parts
            assert isinstance(part, ToolAnswer)
            assert part.tool_use_id == waiting.pop(0)
        else:
            assert not waiting, "a call without an answer"
            assert message.text or message.tool_uses
            if message.role == "user":
                assert before != "user"
            waiting = [use.id for use in message.tool_uses]
            assert len(set(waiting)) == len(waiting)
        before = message.role
    assert not waiting


def test_a_turn_is_replayed_as_it_was() -> None:
    """Calls with their results as native messages, what was said between them in place."""
    calls = (
        a_call(0, preamble="I look.", text="one"),
        a_call(1, text="two"),
        a_call(2, iteration=1, text="three", success=False),
    )
    messages = turn_messages(a_turn(1, calls=calls), result_limit=1000)
    assert [m.role for m in messages] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert messages[1].text == "I look."
    first, second = messages[1].tool_uses
    assert isinstance(first, ToolUse)
    assert first.id != second.id
    assert all(len(use.id) == 9 and use.id.isalnum() for use in (first, second))
    assert messages[5].parts == (ToolAnswer(messages[4].tool_uses[0].id, "three", is_error=True),)
    assert_valid(messages)


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
@pytest.mark.parametrize("answer", ["", "half an answ"])
def test_unfinished_turns_are_marked_and_valid(status: str, answer: str) -> None:
    """A call that never ended is answered when the request is built."""
    turn = a_turn(1, answer=answer, calls=(a_call(0, result="", success=False),), status=status)  # type: ignore[arg-type]
    messages = turn_messages(turn, result_limit=1000)
    assert messages[2].parts[0].text == UNKNOWN_EFFECTS  # type: ignore[union-attr]
    assert answer in messages[-1].text
    assert "turn" in messages[-1].text
    assert_valid(messages)


def test_long_results_are_clipped_in_their_middle() -> None:
    call = a_call(text="A" * 600 + "B" * 600)
    (answer,) = turn_messages(a_turn(1, calls=(call,)), result_limit=500)[2].parts
    assert isinstance(answer, ToolAnswer)
    assert len(answer.text) <= 500
    assert answer.text.startswith("AAAA")
    hint = f"BBBB\n[recall_result brings all of it back: id {answer.tool_use_id}]"
    assert answer.text.endswith(hint)


def results_of(turns: Sequence[Turn], high: int) -> list[int]:
    """Of each result that the window holds: how many characters."""
    window = recent_window(turns, high=high, low=high // 2, result_limit=500)
    assert sum(window.sizes) == sum(m.char_count for m in window.messages) <= high
    parts = [part for message in window.messages for part in message.parts]
    return [len(part.text) for part in parts if isinstance(part, ToolAnswer)]


def test_the_newest_turn_has_more_of_its_results_where_the_others_leave_room() -> None:
    """The longest are clipped alike; those of earlier turns as ever."""
    long = [a_call(i, text="r" * 1000) for i in range(3)]
    assert results_of([a_turn(1, calls=(long[0],)), a_turn(2, calls=(long[1],))], 5000) == [
        500,
        1000,
    ]
    short = a_call(9, text="s" * 50)
    found = results_of([a_turn(1, calls=(*long, short))], 2000)
    assert found[3] == 50
    assert 500 < found[0] == found[1] == found[2] < 650
    assert results_of([a_turn(1, calls=(*long, short))], 1000)[3] == 50


def test_mentions_stand_in_the_persons_message() -> None:
    """A resolved @file is a call with origin `mention`, not one of the model."""
    call = a_call(text="print(1)", origin="mention")
    messages = turn_messages(a_turn(1, "what is @a.py?", calls=(call,)), result_limit=1000)
    assert [m.role for m in messages] == ["user", "assistant"]
    assert messages[0].text.startswith("what is @a.py?\n\n<file-")
    assert "print(1)" in messages[0].text


def start_of(turns: Sequence[Turn], high: int, low: int) -> int:
    window = recent_window(turns, high=high, low=low, result_limit=10_000)
    return window.turns[0].turn_index


def test_window_drops_whole_turns_with_hysteresis() -> None:
    """Past 40% down to 25%, then the start stays until it is passed again."""
    turns = [a_turn(i, "u" * 50, "a" * 50) for i in range(1, 60)]
    starts = [start_of(turns[:n], high=1000, low=600) for n in range(1, 60)]
    assert starts[:10] == [1] * 10
    assert starts[10] == 6
    # Moves rarely, and never back: between moves the prefix is the same to the byte.
    assert starts == sorted(starts)
    assert len(set(starts)) <= 12


def test_prefix_is_the_same_to_the_byte_between_moves() -> None:
    """Providers' caches hit."""
    turns = [a_turn(i, f"u{i}" * 20, "a" * 50, (a_call(i, text="r" * 30),)) for i in range(1, 40)]
    before: tuple[Message, ...] = ()
    moves = 0
    for n in range(1, 40):
        messages = recent_window(turns[:n], high=2000, low=1250, result_limit=500).messages
        if messages[: len(before)] != before:
            moves += 1
        before = messages
    assert 1 <= moves <= 8


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(0, 5)), min_size=1),
    st.integers(300, 3000),
)
def test_window_is_bounded_and_has_newest(shapes: list[tuple[int, int, int]], high: int) -> None:
    """Whatever the turns are."""
    turns = [
        a_turn(
            i + 1,
            "u" * asked,
            "a" * said,
            tuple(a_call(n, iteration=n // 2, text="r" * said) for n in range(calls)),
        )
        for i, (asked, said, calls) in enumerate(shapes)
    ]
    window = recent_window(turns, high=high, low=high * 25 // 40, result_limit=high // 4)
    assert window.turns[-1] is turns[-1]
    assert window.char_count <= high
    assert_valid(window.messages)


@given(st.integers(0, 5000))
def test_planning_starts_at_the_same_turn_for_long(count: int) -> None:
    """Every process plans from the same turn, reading a bounded number of them."""
    start = count - window_limit(count)
    assert start % 50 == 0
    assert window_limit(count) <= max(99, min(count, 99))
    assert window_limit(count) >= min(count, 50)


def test_raw_text_format() -> None:
    """Three lines a turn; no `Tools:` line without tools."""
    calls = (a_call(0, tool_name="grep_files"), a_call(1, tool_name="read_file"))
    turns = [a_turn(1, "one", "1"), a_turn(2, "two", "2", calls)]
    text, count = recent_text(turns, limit=3, max_chars=5000)
    assert count == 2
    assert text == (
        "## Recent Conversation (Raw)\n"
        "User: one\nAssistant: 1\n\n"
        "User: two\nAssistant: 2\nTools: grep_files, read_file\n"
    )


def test_raw_text_keeps_both_bounds() -> None:
    """Three turns and so many characters; the newest is always there, clipped."""
    turns = [a_turn(i, f"q{i}", "x" * 100) for i in range(1, 9)]
    text, count = recent_text(turns, limit=3, max_chars=5000)
    assert count == 3
    assert "q6" in text
    assert "q5" not in text
    assert recent_text(turns, limit=3, max_chars=300)[1] == 2
    text, count = recent_text([a_turn(1, "q", "y" * 9000)], limit=3, max_chars=500)
    assert count == 1
    assert len(text) <= 500
    assert recent_text([], limit=3, max_chars=500) == ("", 0)


CODE = "\n".join(
    [
        '"""Tides and harbours."""',
        "",
        *(f"def step_{i}(value):\n    return value + {i}\n" for i in range(40)),
        "def harbour_depth(name):",
        '    """In fathoms."""',
        "    return DEPTHS[name]",
    ]
)


def test_files_stand_before_the_question_as_quoted_data() -> None:
    """No line numbers and no @, which it would repeat; the question stands last."""
    calls = [
        a_call(0, text="     1\tx = 1\n     2\t\ty = 2", origin="mention"),
        a_call(1, arguments='{"path": "my notes.txt"}', text="     1\tnone", origin="mention"),
    ]
    text = with_passages('What is x in @a.py and @"my notes.txt"?', calls, "f00d", max_chars=500)
    assert text == (
        "a.py:\n<file-f00d>\nx = 1\n\ty = 2\n</file-f00d>\n\n"
        "my notes.txt:\n<file-f00d>\nnone\n</file-f00d>\n\n"
        "Answer the question in one short sentence.\n\n"
        "Question: What is x in a.py and my notes.txt?\nAnswer:"
    )


def test_without_files_it_is_the_question_alone() -> None:
    """Other @ words are left as they are, braces too."""
    text = with_passages("Mail {me}@b.py?", [], "f00d", max_chars=500)
    assert text.endswith("Question: Mail {me}@b.py?\nAnswer:")
    assert "<file" not in text


def test_a_passage_has_the_lines_that_the_question_names() -> None:
    """A file too long for the room: its beginning, and where the rare words are."""
    text = passage(CODE, "What does the function harbour_depth return?", 300)
    assert text.startswith('"""Tides and harbours."""\n')
    assert text.endswith(
        '\n…\n\ndef harbour_depth(name):\n    """In fathoms."""\n    return DEPTHS[name]'
    )


def test_a_passage_is_the_beginning_where_the_question_names_nothing() -> None:
    """Words of every question, and words that are everywhere, tell nothing."""
    for question in ("What does this file say about the value?", "", "Erkläre mir alles."):
        assert passage(CODE, question, 300) == CODE[: len(passage(CODE, question, 300))]


def test_a_line_that_is_too_long_is_cut() -> None:
    """A file of one line."""
    assert passage("x" * 900, "", 100) == "x" * 100


@given(st.text("ab \n", max_size=400), st.text("ab ", max_size=20), st.integers(40, 200))
def test_a_passage_fits(text: str, question: str, limit: int) -> None:
    """Within its room whatever the text; whole where it fits."""
    found = passage(text, question, limit)
    assert len(found) <= limit
    assert len(text) > limit or found == text


def test_a_long_question_about_a_long_text_takes_linear_time() -> None:
    """Both are what was piped in: each line is read once, not once for each word of the question.

    Counted in the calls that it takes.
    """
    calls: list[int] = []
    for size in (500, 1_000):
        text = "\n".join(f"row{i}" for i in range(size))
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        passage(text, text, 300)
        sys.setprofile(None)
        calls.append(count)
    assert calls[1] <= 2.5 * calls[0]


def own_command(printed: str, said: str = "!make check") -> Turn:
    call = a_call(text=printed, origin="person", tool_name="run_command")
    return a_turn(1, said, "", (call,))


def test_it_is_replayed_as_the_persons_message() -> None:
    """What it printed stands with it as quoted data, and each message has words."""
    asked, answered = turn_messages(own_command("Exit code 2\nno rule"), result_limit=1000)
    assert asked.role == "user"
    assert asked.text.startswith("!make check\n\n<output-")
    assert "Exit code 2\nno rule\n</output-" in asked.text
    assert answered.text == "(The user ran this themselves; nothing was asked.)"
    assert not answered.tool_uses


def test_a_model_without_tools_is_told_what_it_printed() -> None:
    """In a few lines."""
    text, count = recent_text([own_command("x" * 5000)], limit=3, max_chars=2000)
    assert count == 1
    assert "User: !make check\nIt printed: xxx" in text
    assert len(text) < 1000


def test_nothing_of_it_counts_as_the_persons_own_word() -> None:
    """An echo is a tool's output, whoever typed it."""
    said = "!echo We always deploy on Fridays at noon"
    source = Sources(own_command("We always deploy on Fridays at noon", said)).find(
        "always deploy on Fridays at noon"
    )
    assert source is not None
    assert source.trust == "tool"


def test_what_failed_is_learned_and_what_the_person_stopped_is_not() -> None:
    """The same as of the agent's commands; a stop tells nothing of the command."""
    failed = own_command("Exit code 2\nmake: *** No rule to make target 'check'")
    (draft,) = failures(with_command(failed, exit_code=2), locate=lambda path: path)
    assert draft.content.startswith("`make check` failed")
    stopped = with_command(own_command("Stopped by the user.\nbegun"), success=False)
    assert failures(stopped, locate=lambda path: path) == []


@pytest.mark.parametrize(
    "why",
    [
        "Not executed: Another call of this message was not whole.",
        "Not executed: The same run_command call was made 3 times, and each answer was the same, …",
        "Not executed: the message reached the model's output limit and may be cut off: …",
        "The command was not allowed: the user refused. Nothing was done.",
        "The user's rule run_command(make *) denies this, and nothing was done. Only they can.",
        "sandbox.mode is `required`, and there is no sandbox here: not run.",
        "There is no tool 'run_commands'. Available tools: run_command.",
        "invalid arguments: Nothing was executed; call run_command again with valid arguments.",
    ],
)
def test_nothing_is_learned_from_a_call_that_was_not_run(why: str) -> None:
    """Nor does it take the place of what came of the same call when it was run."""
    refused = with_command(own_command(why), success=False)
    assert failures(refused, locate=lambda path: path) == []
    failed = with_command(own_command("Exit code 2\nmake: *** No rule"), exit_code=2)
    worked = with_command(own_command("ok"), exit_code=0)
    both = msgspec.structs.replace(failed, tool_calls=(*failed.tool_calls, *refused.tool_calls))
    assert len(failures(both, locate=lambda path: path)) == 1
    both = msgspec.structs.replace(worked, tool_calls=(*worked.tool_calls, *refused.tool_calls))
    assert succeeded(both) == {"`make check` failed"}


def with_command(turn: Turn, *, success: bool = True, exit_code: int | None = None) -> Turn:
    (call,) = turn.tool_calls
    result: dict[str, object] = {"text": result_text(call)}
    result |= {} if exit_code is None else {"exit_code": exit_code}
    call = msgspec.structs.replace(
        call,
        arguments='{"command": "make check"}',
        result=msgspec.json.encode(result).decode(),
        success=success,
        error=None if success else result_text(call),
    )
    return msgspec.structs.replace(turn, tool_calls=(call,))


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ({"command": ["bash", "-lc", "make test"]}, "shell make test"),
        ({"command": ["git", "log", "a b"]}, "shell git log 'a b'"),
        ({"cmd": "make"}, "shell make"),
        ({"command": [1]}, "shell"),
    ],
)
def test_a_command_that_is_kept_as_words_is_named(arguments: dict[str, Any], subject: str) -> None:
    call = msgspec.structs.replace(a_call(0), tool_name="shell", arguments=json.dumps(arguments))
    assert subject_of(call) == subject


# --- what is left of it while the store is away ---------------------------------------


def many(count: int) -> list[HistoryMessage]:
    return [("user" if i % 2 == 0 else "assistant", f"message {i + 1}") for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 9, 10])
def test_short_history_is_whole(count: int) -> None:
    """Up to ten messages all are there, without a marker."""
    assert build_history_context(many(count)) == format_history(many(count))
    assert COMPRESSION_MARKER not in build_history_context(many(count))


@pytest.mark.parametrize("count", [11, 12, 50, 1000])
def test_long_history_keeps_first_marker_and_last_nine(count: int) -> None:
    """Eleven entries; message 1 stays."""
    every = many(count)
    kept = [every[0], ("system", COMPRESSION_MARKER), *every[-9:]]
    assert build_history_context(every) == format_history(kept)


def test_format_is_the_same_for_both() -> None:
    assert build_history_context(many(2)) == "user: message 1\n\nassistant: message 2"
    assert build_history_context(many(11)).startswith(
        f"user: message 1\n\nsystem: {COMPRESSION_MARKER}\n\nuser: message 3"
    )


def test_summaries_of_what_is_hidden_follow_the_marker() -> None:
    """None of what is shown, in the conversation's order."""
    digests = {2 * i + 1: f"summary\nof turn {i + 1}" for i in range(10)}
    text = build_history_context(many(20), so_far="Beds are planned.", digests=digests)
    assert text.startswith(
        "user: message 1\n\n"
        f"system: {COMPRESSION_MARKER}\n"
        "So far: Beds are planned.\n"
        "- summary of turn 1\n"
    )
    assert "- summary of turn 5\n\nassistant: message 12\n\n" in text
    assert "turn 6" not in text
    assert text.endswith("assistant: message 20")
    whole = build_history_context(many(10))
    assert build_history_context(many(10), so_far="x", digests=digests) == whole


def test_rules_and_decisions_among_the_hidden_stay_in_their_own_words() -> None:
    """Of the person; of the agent what it calls a decision."""
    said = many(30)
    said[4] = ("user", "Thanks. Never touch the table `invoices`!\nAnd what of the tests?")
    said[6] = ("user", "Il faut toujours répondre en français. Où est le fichier ?")
    said[9] = ("assistant", "You must know that it is fast.\nDecision: amounts are integer cents.")
    text = build_history_context(said)
    bridge = text.split("\n\n")[1]
    assert bridge.split("\n") == [
        f"system: {COMPRESSION_MARKER}",
        "- user: Never touch the table `invoices`!",
        "- user: Il faut toujours répondre en français.",
        "- assistant: Decision: amounts are integer cents.",
    ]
    # What is shown whole is not said twice.
    said = many(12)
    said[-1] = ("user", "Always use tabs.")
    assert build_history_context(said).count("Always use tabs.") == 1


def test_how_many_of_the_latest_depends_on_the_room() -> None:
    """Nine where they fit, fewer of longer ones; the first and the last always."""

    def latest(chars: int, max_chars: int) -> int:
        said = [(role, f"{text} " + "x" * chars) for role, text in many(40)]
        text = build_history_context(said, so_far="so far " * 9, max_chars=max_chars)
        assert len(text) <= max_chars
        assert text.startswith("user: message 1 ")
        assert COMPRESSION_MARKER in text
        assert "assistant: message 40 " in text
        return text.count("x\n\n") + text.endswith("x") - 1

    assert [latest(chars, 8_000) for chars in (10, 400, 900, 1_400, 2_000)] == [9, 9, 5, 3, 1]
    assert latest(5_000, 1_000_000) == 9


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=300)), max_size=40),
    st.integers(0, 3_000),
    st.text(max_size=200),
)
def test_it_keeps_its_budget(said: list[HistoryMessage], max_chars: int, so_far: str) -> None:
    """Also where a single message is longer."""
    digests = {i: f"digest {i}" for i in range(0, len(said), 2)}
    text = build_history_context(said, so_far=so_far, digests=digests, max_chars=max_chars)
    assert len(text) <= max_chars
    whole = build_history_context(said)
    assert (text == whole) or len(said) > WHOLE_LIMIT or len(whole) > max_chars
