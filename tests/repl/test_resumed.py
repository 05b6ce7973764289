"""What one is told who comes back to a session."""

from datetime import timedelta

import msgspec
from rich.console import Group

from ragmem.memory.last_time import SessionRecap
from ragmem.memory.turns import ONLY_ASKED
from ragmem.records import ToolCall, Turn
from ragmem.repl.output import paint
from ragmem.repl.recalled import call_rows, card, cut_off, folded_prompt, short_turns
from tests.repl.fake_app import EVIL, LONG_AGO, past_turn, session


def call(name: str, arguments: str, *, text: str = "", **fields: object) -> ToolCall:
    """One that answered with a text; without any it never came to its end."""
    given = {"success": True, **fields}
    return ToolCall(
        tool_call_id=name,
        turn_id="t14",
        order=1,
        tool_name=name,
        arguments=arguments,
        result=msgspec.json.encode({"text": text}).decode() if text else "",
        started_at=LONG_AGO,
        **given,  # type: ignore[arg-type]
    )


def interrupted(*calls: ToolCall) -> Turn:
    turn = past_turn(14, "look around", "")
    return msgspec.structs.replace(turn, status="interrupted", tool_calls=calls)


READ = call("read_file", '{"path": "a.py"}', text="1  import os\n2  import re")
GREP = call("grep_files", '{"pattern": "spool"}', text="3 matches")
RUNNING = call("run_command", '{"command": "pytest -q"}')
ASKED = call("edit_file", '{"path": "a.py"}', success=False, error=ONLY_ASKED)


def test_the_card_tells_what_was_done_cut_off_and_left_open() -> None:
    held = session(7, title="Spool is drained twice", turn_count=14)
    recap = SessionRecap(
        session=held,
        changed=("backlog.py", "store.py"),
        decided=("The spool is drained once.",),
        failed=("`pytest tests/test_outage.py` failed: exit code 1",),
        open=("“look around” (interrupted)", "the outage test"),
    )
    now = LONG_AGO + timedelta(minutes=20)
    shown = paint(card(held, recap, interrupted(READ, GREP), now), width=120, mode="none")
    assert shown == (
        "↩ Spool is drained twice · 14 turns · last used 20 minutes ago\n"
        "    decided: The spool is drained once.\n"
        "    changed: backlog.py, store.py\n"
        "    failed: `pytest tests/test_outage.py`: exit code 1\n"
        "    cut off: turn 14 was stopped after read_file, grep_files; no command was running\n"
        "    open: the outage test\n"
    )


def test_a_command_that_ran_when_the_turn_was_cut_off_is_named() -> None:
    assert cut_off(interrupted(READ, RUNNING)) == (
        "turn 14 was stopped after read_file; running then: `pytest -q`"
    )
    assert cut_off(interrupted(READ, ASKED)) == (
        "turn 14 was stopped after read_file; no command was running"
    )
    assert cut_off(interrupted()) == (
        "turn 14 was stopped before it had said or done anything; no command was running"
    )
    failed = msgspec.structs.replace(interrupted(READ), status="failed")
    assert cut_off(failed) == "turn 14 ended with an error after read_file; no command was running"
    assert cut_off(past_turn(1, "done", "yes")) == ""


def test_an_answer_that_was_cut_off_is_told_of() -> None:
    said = {"assistant_message": "The spool is"}
    begun, after = (msgspec.structs.replace(interrupted(*c), **said) for c in ((), (READ,)))
    assert cut_off(begun) == "turn 14 was stopped in the middle of its answer"
    assert cut_off(after) == "turn 14 was stopped in the middle of its answer, after read_file"


def test_earlier_turns_are_told_on_two_rows_each() -> None:
    own = call("run_command", '{"command": "ls"}', text="a.py\nb.py\n", origin="person")
    turns = [
        past_turn(8, "why?\nAnd how?", "# Because\n\n`a.py` **is** old. It is so.\n\n```\nx\n```"),
        past_turn(9, f"{EVIL} " * 9, "```\ncode\n```"),
        msgspec.structs.replace(past_turn(10, "!ls", ""), tool_calls=(own,)),
        msgspec.structs.replace(past_turn(11, "look", "I be"), status="interrupted"),
        msgspec.structs.replace(past_turn(12, "look", ""), status="failed"),
    ]
    shown = paint(Group(*short_turns(turns, before=7)), width=42, mode="none").split("\n")
    assert shown[:3] == [
        "  … 7 earlier turns · /expand shows all", "  › why? And how?",
        "    Because a.py is old. It is so. x",
    ]  # fmt: skip
    assert "\x1b" not in "".join(shown)
    assert all(len(row) <= 42 for row in shown)
    assert shown[4] == "    code"
    assert shown[5:] == [
        "  › !ls", "    b.py", "  › look", "    I be (was stopped)", "  › look",
        "    ended with an error", "",
    ]  # fmt: skip
    assert paint(*short_turns([], before=0), width=80, mode="none") == "  /expand shows all\n"


def test_the_calls_of_a_turn_that_was_cut_off_are_shown_on_a_row_each() -> None:
    evil = call("read_file", '{"path": "b.py"}', text=EVIL)
    shown = paint(Group(*call_rows(interrupted(READ, evil, RUNNING))), width=80, mode="none")
    assert shown == (
        "● read_file a.py  1 import os\n"
        "● read_file b.py  \\e]0;owned\\x07\\e[2J\\e[6n\\x9b31m\\x0dcarriage\\x08back\\u{202e}ri…\n"
        "● pytest -q  not finished\n"
    )
    assert call_rows(past_turn(1, "done", "yes")) == []
    told = msgspec.structs.replace(READ, preamble="I look at **a.py** first.\nThen I see.")
    shown = paint(Group(*call_rows(interrupted(told, ASKED))), width=80, mode="none")
    assert shown == (
        "  I look at a.py first. Then I see.\n"
        "● read_file a.py  1 import os\n"
        "✗ edit_file a.py  interrupted before the user had answered: nothing was done\n"
    )


def test_what_the_persons_own_command_printed_is_shown_again_by_its_end() -> None:
    lines = "\n".join(f"line {i}" for i in range(9))
    own = call("run_command", '{"command": "ls"}', text=lines, origin="person")
    turn = msgspec.structs.replace(past_turn(3, "!ls", ""), tool_calls=(own,))
    shown = paint(Group(*call_rows(turn)), width=80, mode="none")
    assert shown.split("\n")[0].strip() == "… 4 earlier lines"
    assert shown.endswith("  line 7\n  line 8\n")


def test_a_paste_is_never_shown_whole_again() -> None:
    paste = "look at this:\n" + "\n".join(f"line {i}" for i in range(300))
    assert folded_prompt(paste) == (
        "look at this:\nline 0\nline 1\nline 2\nline 3\n[296 more lines]"
    )
    assert folded_prompt("one\ntwo") == "one\ntwo"
    assert len(folded_prompt("x" * 50_000)) < 1_100
