"""Events become text, one JSON object, or a stream of them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from rich.console import Group

from ragmem.cli.ask import (
    JsonOutput,
    Progress,
    StreamJsonOutput,
    TextOutput,
    VisibleFlow,
    say_denials,
)
from ragmem.cli.output import Paint
from ragmem.events import (
    ContextBuilt,
    Event,
    MemoryWritten,
    MessageFinished,
    ModelCallStarted,
    Notice,
    PermissionDenial,
    ReasoningDelta,
    Recalled,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from ragmem.records import Usage
from ragmem.repl.output import paint
from ragmem.repl.turn import TurnView
from ragmem.text import visible
from ragmem.tools.permissions import PermissionRules

SESSION = "01900000-0000-7000-8000-0000000000aa"
TURN = "01900000-0000-7000-8000-0000000000bb"

FINISHED = TurnFinished(
    session_id=SESSION,
    turn_id=TURN,
    subtype="success",
    result="It prints hello.",
    model="openai/scripted",
    usage=Usage(
        input_tokens=1200,
        output_tokens=34,
        cached_tokens=0,
        cost_usd=0.0021,
        model_calls=2,
        api_ms=80,
    ),
    duration_ms=1500,
    context={"System": 900, "Recent window": 120},
)
EVENTS: tuple[Event, ...] = (
    TurnStarted(session_id=SESSION, turn_id=TURN, turn_index=3, model="openai/scripted"),
    ContextBuilt(
        sections={"System": 900, "Recent window": 120},
        recalled=(Recalled(id="t-1", section="Relevant Turns", score=1.5, why="its words"),),
    ),
    ModelCallStarted(number=1),
    ReasoningDelta(text="hm"),
    TextDelta(text="Let me "),
    TextDelta(text="look."),
    MessageFinished(text="Let me look.", tool_uses=(("call_1", "read_file", '{"path": "a.py"}'),)),
    ToolStarted(tool_call_id="call_1", name="read_file", title="read_file a.py"),
    ToolFinished(
        tool_call_id="call_1",
        name="read_file",
        success=True,
        text="1\tprint('hello')",
        display="1 line",
        duration_ms=2,
    ),
    Notice(level="warning", text="The same call again."),
    ModelCallStarted(number=2),
    TextDelta(text="It prints"),
    TextDelta(text=" hello."),
    MessageFinished(text="It prints hello."),
    FINISHED,
)
QUIET = Progress(live=False, paint=Paint("none"))


def ended(subtype: Any, **fields: Any) -> TurnFinished:
    """A turn of ten milliseconds of which nothing else is known."""
    given = {"result": "", "model": "openai/scripted", "usage": Usage(), "duration_ms": 10}
    return TurnFinished(session_id=SESSION, turn_id=TURN, subtype=subtype, **(given | fields))


def show(output: TextOutput | JsonOutput | StreamJsonOutput, events: Sequence[Event]) -> None:
    for event in events:
        output.show(event)


def test_text_in_a_pipe_is_the_answer_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where it did not stream, and of answers that are checked only the one that fits."""
    said = FINISHED.result + "\n"
    show(TextOutput(QUIET, live=False), EVENTS)
    assert capfd.readouterr() == (said, "warning: The same call again.\n")
    show(TextOutput(QUIET, live=True), [FINISHED])
    assert capfd.readouterr().out == said
    tried = (TextDelta(text="nope\n"), MessageFinished(text="nope\n"))
    show(TextOutput(QUIET, live=True, checked=True), [*tried, FINISHED])
    assert capfd.readouterr().out == said
    misfit = ended("error_during_execution", result="nope", error="It does not fit.", exit_code=1)
    show(TextOutput(QUIET, live=False, checked=True), [*tried, misfit])
    assert capfd.readouterr().out == ""


def test_text_on_a_terminal_streams_and_tells_what_runs(capfd: pytest.CaptureFixture[str]) -> None:
    show(TextOutput(Progress(live=True, paint=Paint("none")), live=True), EVENTS)
    out, err = capfd.readouterr()
    assert out == "Let me look.\nIt prints hello.\n"
    assert [line.rpartition("\r")[2] for line in err.split("\n")[:-1]] == snapshot(
        [
            "● read_file a.py (2 ms)",
            "warning: The same call again.",
            "session 000000aa · openai/scripted · 1,200 tokens in, 34 out · $0.0021 · 1.5 s",
        ]
    )


def test_what_is_told_amid_an_answer_begins_on_a_line_of_its_own(
    capfd: pytest.CaptureFixture[str],
) -> None:
    told = Notice(level="warning", text="The answer broke off here; asking for it again.")
    half, whole = TextDelta(text="It prints "), TextDelta(text=FINISHED.result)
    events = [half, TextDelta(text="hel"), told, whole, MessageFinished(text=whole.text), FINISHED]
    show(TextOutput(Progress(live=True, paint=Paint("none")), live=True), events)
    assert capfd.readouterr().out == f"It prints hel\n{FINISHED.result}\n"


def test_terminal_never_gets_a_raw_escape(capfd: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;title\x07 \x9b2J \x1b[6n"
    told = {"text": evil, "display": evil, "duration_ms": 1}
    error = {"result": evil, "error": evil, "hint": evil, "exit_code": 1, "model": evil}
    show(
        TextOutput(Progress(live=True, paint=Paint("none")), live=True),
        (
            TextDelta(text=evil),
            MessageFinished(text=evil),
            ToolStarted(tool_call_id="1", name=evil, title=evil),
            ToolFinished(tool_call_id="1", name=evil, success=False, **told),
            Notice(level="error", text=evil),
            ended("error_during_execution", **error),
        ),
    )
    for text in capfd.readouterr():
        assert "\\e]0;title" in text
        assert not {"\x1b", "\x9b", "\x07"} & set(text)


def test_json_is_one_result_object(capfd: pytest.CaptureFixture[str]) -> None:
    show(JsonOutput(QUIET), EVENTS)
    out, err = capfd.readouterr()
    assert json.loads(out) == {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": SESSION,
        "turn_id": TURN,
        "num_turns": 2,
        "duration_ms": 1500,
        "duration_api_ms": 80,
        "result": "It prints hello.",
        "error": None,
        "model": "openai/scripted",
        "usage": {"input_tokens": 1200, "output_tokens": 34, "cached_tokens": 0},
        "total_cost_usd": 0.0021,
        "permission_denials": [],
        "structured_output": None,
        "is_cut": False,
        "context": {"System": 900, "Recent window": 120},
    }
    assert err == "warning: The same call again.\n"


def test_json_of_a_turn_that_was_interrupted(capfd: pytest.CaptureFixture[str]) -> None:
    denied = PermissionDenial("run_command", "call_1", '{"command": "ls"}')
    show(JsonOutput(QUIET), [ended("interrupted", result="It pri", permission_denials=(denied,))])
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert (told["subtype"], told["is_error"]) == ("error_during_execution", True)
    assert (told["result"], told["error"]) == ("It pri", "interrupted")
    assert told["permission_denials"] == [
        {"tool_name": "run_command", "tool_use_id": "call_1", "tool_input": {"command": "ls"}}
    ]
    assert err == "interrupted\n"


def stream(capfd: pytest.CaptureFixture[str], *, include_partial: bool) -> list[Any]:
    show(
        StreamJsonOutput(
            SESSION, cwd="/project", permission_mode="plan", include_partial=include_partial
        ),
        EVENTS,
    )
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_stream_json_is_one_event_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    def said(kind: str, role: str, *content: dict[str, Any]) -> dict[str, Any]:
        return {"type": kind, "message": {"role": role, "content": list(content)}}

    lines = stream(capfd, include_partial=False)
    assert {line.pop("session_id") for line in lines} == {SESSION}
    *events, result = lines
    assert events == [
        {
            "type": "system",
            "subtype": "init",
            "turn_id": TURN,
            "turn_index": 3,
            "cwd": "/project",
            "model": "openai/scripted",
            "permission_mode": "plan",
        },
        {
            "type": "system",
            "subtype": "memory_recall",
            "sections": {"System": 900, "Recent window": 120},
            "fallback": False,
            "recalled": [
                {"id": "t-1", "section": "Relevant Turns", "score": 1.5, "why": "its words"}
            ],
        },
        said(
            "assistant",
            "assistant",
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "a.py"}},
        ),
        said(
            "user",
            "user",
            {
                "type": "tool_result",
                "tool_use_id": "call_1",
                "content": "1\tprint('hello')",
                "is_error": False,
            },
        ),
        {"type": "system", "subtype": "notice", "level": "warning", "text": "The same call again."},
        said("assistant", "assistant", {"type": "text", "text": "It prints hello."}),
    ]
    assert (result["type"], result["subtype"]) == ("result", "success")


def test_partial_messages_are_stream_events(capfd: pytest.CaptureFixture[str]) -> None:
    lines = stream(capfd, include_partial=True)
    events = [line["event"] for line in lines if "event" in line]
    assert {event["type"] for event in events} == {"content_block_delta"}
    assert [event["delta"] for event in events] == [
        {"type": "thinking_delta", "thinking": "hm"},
        *(
            {"type": "text_delta", "text": text}
            for text in ("Let me ", "look.", "It prints", " hello.")
        ),
    ]


def test_json_survives_what_is_not_unicode(capfd: pytest.CaptureFixture[str]) -> None:
    show(StreamJsonOutput(SESSION, cwd="/\udcff", permission_mode="plan"), EVENTS[:1])
    assert json.loads(capfd.readouterr().out)["cwd"] == "/\ufffd"


def test_denials_are_told_with_the_way_to_allow_them(capfd: pytest.CaptureFixture[str]) -> None:
    edit = PermissionDenial("edit_file", "1", "{}")
    commands = (
        '{"command": "git status | tee x"}',
        '{"command": "ls > x"}',
        '{"command": "ls", "outside_sandbox": "It has to."}',
    )
    denied = (PermissionDenial("run_command", str(n), each) for n, each in enumerate(commands))
    rules = PermissionRules(["run_command(ls)"])
    say_denials(ended("success", permission_denials=(edit, *denied, edit)), rules)
    assert capfd.readouterr().err == snapshot(
        "warning: not allowed: edit_file, run_command `git status | tee x`, run_command `ls > x`, "
        "run_command `ls`. Use --allow edit_file --allow 'run_command(git status)' "
        "--allow 'run_command(tee x)' --allow 'outside_sandbox(ls)', or --permission-mode. "
        "No narrower rule matches run_command `ls > x`; only --allow run_command does.\n"
    )


def test_what_no_option_allows_is_told_without_one(capfd: pytest.CaptureFixture[str]) -> None:
    why = "The user's rule read_file(.env) denies this, and nothing was done."
    denied = PermissionDenial("read_file", "1", "{}", final=True, reason=why)
    say_denials(ended("success", permission_denials=(denied, denied)), PermissionRules())
    assert capfd.readouterr().err == snapshot(
        "warning: not allowed: read_file. The user's rule read_file(.env) denies this, and "
        "nothing was done.\n"
    )


def test_what_is_allowed_already_is_no_way_to_allow_the_rest(
    capfd: pytest.CaptureFixture[str],
) -> None:
    command = '{"command": "git status && make all | tee x"}'
    denied = PermissionDenial("run_command", "1", command)
    rules = PermissionRules(["run_command(git *)"], flags=["run_command(tee x)", "edit_file"])
    say_denials(ended("success", permission_denials=(denied,)), rules)
    assert "x`. Use --allow 'run_command(make all)', or --perm" in capfd.readouterr().err


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_words_in_pieces_show_as_the_whole_would(size: int) -> None:
    text = (
        "a family \U0001f468\u200d\U0001f469\u200d\U0001f467 here\r\nnext \x1b[31m line "
        + "x" * 500
    )
    flow = VisibleFlow()
    shown = [flow.feed(text[i : i + size]) for i in range(0, len(text), size)]
    assert "".join([*shown, flow.flush()]) == visible(text)


# --- what was remembered: one dim line, one event -------------------------------

ID = "01900000-0000-7000-8000-0000deadbeef"
WRITTEN = MemoryWritten(
    action="updated",
    kind="decision",
    content="The login uses JWT\x1b[2J\nand more " + "words " * 40,
    id=ID,
    trust="tool",
    superseded=("01900000-0000-7000-8000-0000000000bb",),
)


@pytest.mark.parametrize("live", [True, False])
def test_ask_says_it_on_stderr(capfd: pytest.CaptureFixture[str], live: bool) -> None:
    """One dim line, also where nobody watches; stdout is the answer's alone."""
    TextOutput(Progress(live=live, paint=Paint("color")), live=False).show(WRITTEN)
    out, err = capfd.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith(
        "\x1b[2mremembered decision deadbeef anew: The login uses JWT\\e[2J and more words"
    )
    assert line.endswith("\x1b[0m")
    assert "\x1b[2J" not in err


def test_stream_json_has_it_whole(capfd: pytest.CaptureFixture[str]) -> None:
    StreamJsonOutput("sess", cwd="/p", permission_mode="default").show(WRITTEN)
    out, err = capfd.readouterr()
    assert json.loads(out) == {
        "type": "system",
        "subtype": "memory_write",
        "session_id": "sess",
        "action": "updated",
        "kind": "decision",
        "content": WRITTEN.content,
        "id": ID,
        "trust": "tool",
        "superseded": ["01900000-0000-7000-8000-0000000000bb"],
    }
    assert err == ""


@pytest.mark.parametrize("width", [30, 60, 200])
def test_the_chat_says_it_on_one_line(width: int) -> None:
    wide = MemoryWritten(action="added", kind="fact", content="記憶" * 200, id=ID)
    for event in (WRITTEN, wide):
        (part,) = TurnView().show(event)
        text = paint(Group(part[1]), width=width, mode="none")
        assert text.count("\n") == 1
        assert text.startswith("· remembered ")
        assert "\x1b" not in text
        assert text.endswith("…\n")
    assert "\x1b[2m" in paint(part[1], width=width, mode="mono")
