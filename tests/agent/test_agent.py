"""The loop, on a real store: recording, tools, limits, faults."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import ProviderUnavailable, StoreUnavailable, StreamCut
from ragmem.events import (
    ContextBuilt,
    MessageFinished,
    ModelCallStarted,
    Notice,
    RetryWaiting,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from ragmem.failpoints import hits
from ragmem.llm.base import Chunk, EndChunk, ModelInfo, Request, TextChunk, UsageChunk
from ragmem.memory.files import rewind_to
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Instructions
from ragmem.memory.turns import ONLY_ASKED, UNKNOWN_EFFECTS, result_text
from ragmem.messages import ToolUse
from ragmem.records import Applied, Turn
from ragmem.redact import know
from ragmem.store import Room
from ragmem.tools.base import Decision, Proposal, ToolOutput, Toolset, answer_to
from ragmem.tools.shell import Commands, Jobs
from tests.agent.conftest import Bench, Events, PathParams, Touch, asked, calls, reads, touches, use
from tests.fakes.patience import held_at, until
from tests.fakes.scripted_llm import Says
from tests.memory.test_window import assert_valid

USED = UsageChunk(input_tokens=100, output_tokens=20)


def request_text(request: Request) -> str:
    return "\n".join(p.text for m in request.messages for p in m.parts if hasattr(p, "text"))


async def test_one_turn_with_tools(bench: Bench) -> None:
    """Events, record and reply; the call with its arguments, its result and its time."""
    looks = reads("a.py", text="I look.", reasoning="hm")
    agent, llm = await bench.agent([looks, Says("It prints.")])
    events = await asked(agent, "What does a.py do?")
    kinds = [type(event) for event in events]
    assert kinds[0] is TurnStarted
    assert kinds[1] is ContextBuilt
    assert kinds[-1] is TurnFinished
    assert kinds.index(ToolStarted) < kinds.index(ToolFinished)
    sizes = [e.context_tokens for e in events.of(ModelCallStarted)]
    assert 0 < sizes[0] < sizes[1]
    # As reported: what was read and what was written.
    said = [(m.text, len(m.tool_uses), m.context_tokens) for m in events.of(MessageFinished)]
    assert said == [("I look.", 1, 120), ("It prints.", 0, 120)]
    assert "".join(e.text for e in events.of(TextDelta)) == "I look.It prints."
    finished = events.end
    assert (finished.subtype, finished.result, finished.exit_code) == ("success", "It prints.", 0)
    assert (finished.usage.model_calls, finished.usage.input_tokens) == (2, 200)

    turn = await bench.turn(agent)
    assert (turn.turn_id, turn.turn_index, turn.status) == (finished.turn_id, 1, "completed")
    assert (turn.user_message, turn.assistant_message) == ("What does a.py do?", "It prints.")
    assert turn.char_count == len("What does a.py do?") + len("It prints.")
    assert turn.reasoning == "hm"
    (call,) = turn.tool_calls
    assert (call.tool_name, call.order, call.iteration, call.success) == ("read_file", 0, 0, True)
    assert json.loads(call.arguments) == {"path": "a.py"}
    assert json.loads(call.result)["text"] == "print('hello')\n"
    assert call.preamble == "I look."
    assert (call.turn_id, len(call.tool_call_id), call.error) == (turn.turn_id, 36, None)
    assert call.duration_ms >= 5
    assert turn.finished_at
    assert turn.started_at <= call.started_at <= turn.finished_at
    assert len(llm.requests) == 2
    assert_valid(llm.requests[1].messages[1:])


async def test_next_turn_starts_from_what_was_recorded(bench: Bench) -> None:
    """A file read in turn 1 is still there in turn 2; nothing twice."""
    agent, llm = await bench.agent([reads("a.py"), Says("It prints."), Says("Hello.")])
    await agent.send("What does a.py do?")
    await agent.send("And what would it print?")
    request = llm.requests[-1]
    assert_valid(request.messages[1:])
    text = request_text(request)
    assert text.count("print('hello')") == 1
    assert text.count("And what would it print?") == 1
    assert text.count("What does a.py do?") == 1
    assert "## Recently Accessed Files" in text
    assert "- a.py (via read_file, Turn 1)" in text
    # The earlier turn is replayed without its memory block, and the prefix stays the same.
    assert text.count("<memory-") == 1
    assert request.messages[0] == llm.requests[0].messages[0]


async def test_read_only_calls_run_at_once_and_effects_in_order(bench: Bench) -> None:
    """Read-only calls of one message run in parallel; recorded in call order."""
    calls = (
        use("read_file", path="a.py"),
        use("read_file", path="b.py"),
        use("run_command", path="c"),
        use("read_file", path="c"),
    )
    agent, _ = await bench.agent([Says(tools=calls), Says("ok")])
    bench.read_file.company = 2
    await agent.send("go")
    assert bench.read_file.most_at_once == 2
    turn = await bench.turn(agent)
    assert [(c.order, json.loads(c.arguments)["path"]) for c in turn.tool_calls] == [
        (0, "a.py"), (1, "b.py"), (2, "c"), (3, "c"),
    ]  # fmt: skip
    assert all(c.success for c in turn.tool_calls)


async def test_every_one_of_many_calls_at_once_is_recorded(bench: Bench) -> None:
    """Calls that end at the same time don't cost each other's record."""
    paths = [f"{number}.txt" for number in range(60)]
    for path in paths:
        (bench.folder / path).write_text("x")
    agent, _ = await bench.agent([reads(*paths), Says("ok")])
    await agent.send("go")
    turn = await bench.turn(agent)
    assert [json.loads(call.arguments)["path"] for call in turn.tool_calls] == paths
    assert all(call.success for call in turn.tool_calls)


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "a', "", "[1]", '{"path": "a", "path": "b"}', '{"path": NaN}', "[" * 100_000, "{}",
     pytest.param('{"path": ' + "[" * 470 + "]" * 470 + "}", id="deep"),
     pytest.param('{"path": ' + "[" * 900 + "]" * 900 + "}", id="deeper"),
     pytest.param('{"file": ' + "[" * 900 + "]" * 900 + "}", id="renamed"),
     '{"path": 3}', '{"path": "x"} {"path": "y"}', '{"n": ' + "9" * 5000 + "}"],
)  # fmt: skip
async def test_a_broken_call_is_not_run_those_beside_it_are(bench: Bench, arguments: str) -> None:
    """Each is answered at its place."""
    broken = ToolUse("b", "run_command", arguments)
    around = use("run_command", path="made"), use("run_command", path="too")
    agent, llm = await bench.agent([Says(tools=(around[0], broken, around[1])), Says("Sorry.")])
    reply = await agent.send("go")
    assert bench.touch.runs == 2
    assert reply.finished.subtype == "success"
    assert [c.success for c in reply.tool_calls] == [True, False, True]
    assert_valid(llm.requests[1].messages[1:])
    for call in reply.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)


async def test_arguments_that_are_cut_keep_no_part_of_a_secret(bench: Bench) -> None:
    secret = "correct-horse-battery-staple-tango-7731"
    know({"DB_PASSWORD": secret})
    broken = ToolUse("b", "run_command", '{"content": "'.ljust(1_970, "x") + secret)
    agent, _ = await bench.agent([Says(tools=(broken,)), Says("Sorry.")])
    await agent.send("go")
    (call,) = (await bench.turn(agent)).tool_calls
    assert "xxx" in call.arguments
    assert "horse" not in call.arguments


async def test_a_call_by_another_agents_names_is_recorded_and_sent_by_our_own(bench: Bench) -> None:
    agent, llm = await bench.agent([calls("Bash", file_path="made"), Says("ok")])
    events = await asked(agent, "go")
    assert bench.touch.runs == 1
    (started,) = events.of(ToolStarted)
    assert (started.name, started.title) == ("run_command", "run_command run_command made")
    (call,) = (await bench.turn(agent)).tool_calls
    assert (call.tool_name, call.arguments) == ("run_command", '{"path": "made"}')
    (sent,) = llm.requests[1].messages[-2].tool_uses
    assert (sent.name, sent.arguments) == (call.tool_name, call.arguments)


async def test_a_model_that_forms_no_call_rightly_is_stopped(bench: Bench) -> None:
    """One right call in a message is work."""
    wrong, right = use("read_file", file=3), [use("read_file", path=f"{n}.py") for n in range(4)]
    at_work = [Says(tools=(wrong, each)) for each in right]
    agent, _ = await bench.agent([*at_work, *[Says(tools=(wrong, wrong))] * 3, Says("I give up.")])
    reply = await agent.send("go")
    assert (reply.content, reply.finished.subtype) == ("I give up.", "error_max_turns")
    assert len(reply.tool_calls) == 2 * (4 + 3)


@pytest.mark.parametrize("end", ["length", "content_filter", "abort", "Error"])
async def test_calls_of_a_message_that_was_ended_are_not_run(bench: Bench, end: str) -> None:
    """Whole arguments prove nothing where a limit, a filter or a fault made the end."""
    agent, llm = await bench.agent([touches("made", text="So", finish=end), Says("Shorter.")])
    reply = await agent.send("go")
    assert bench.touch.runs == 0
    assert (reply.finished.subtype, [c.success for c in reply.tool_calls]) == ("success", [False])
    assert "Not executed: the message" in request_text(llm.requests[1])


@pytest.mark.parametrize("end", ["error", "pause_turn", "insufficient_system_resource"])
async def test_an_answer_that_was_ended_is_not_taken_for_whole(bench: Bench, end: str) -> None:
    agent, _ = await bench.agent([Says("Well, ", finish=end), Says("Yes.", finish="EOS")])
    told = f"The provider ended the answer with {end!r}; it may be cut short."
    assert (await asked(agent, "go")).notices == [told]
    assert (await asked(agent, "on")).notices == []


async def test_calls_of_a_message_that_stopped_are_run(bench: Bench) -> None:
    """Some servers end with a stop where others name the call."""
    for number, end in enumerate(("stop", "tool_use", "STOP")):
        agent, _ = await bench.agent([touches(f"made{number}", finish=end), Says("ok")])
        assert (await agent.send("go")).tool_calls[0].success


async def test_unknown_tool_is_an_answer(bench: Bench) -> None:
    """A clear error result, recorded; the turn goes on."""
    agent, llm = await bench.agent([calls("rm\x1b[2J_all", path="x"), Says("ok")])
    reply = await agent.send("go")
    assert reply.content == "ok"
    (call,) = reply.tool_calls
    assert not call.success
    assert "There is no tool" in (call.error or "")
    assert "\x1b" not in (call.error or "")
    assert_valid(llm.requests[1].messages[1:])


@pytest.mark.parametrize(
    ("steps", "succeeded"),
    [("aaaaa", [1, 1, 0, 0, 0]), ("ababa", [1, 1, 1, 1, 0]), ("aBaCaDa", [1] * 7)],
    ids=["one call", "two in turn", "with an effect in between"],
)
async def test_a_third_same_call_is_not_run(bench: Bench, steps: str, succeeded: list[int]) -> None:
    """A model that goes on is asked for an end; reading again after an effect is work."""
    does = [reads(f"{name}.py") if name.islower() else touches(name) for name in steps]
    agent, llm = await bench.agent([*does, Says("I give up.")])
    reply = await agent.send("go")
    assert [c.success for c in reply.tool_calls] == succeeded
    assert reply.content == "I give up."
    is_stuck = succeeded.count(0) == 3
    assert (llm.requests[-1].tools == ()) == is_stuck
    assert reply.finished.subtype == ("error_max_turns" if is_stuck else "success")
    assert reply.finished.error == ("The model kept repeating itself." if is_stuck else "")


async def test_the_same_call_whose_answer_changes_waits_for_something(bench: Bench) -> None:
    """It is run as often as that; then it is a repetition like any other."""

    def after(line: str) -> Says:
        (bench.folder / "log").write_text(line)
        return reads("log")

    lines = ["1", "2", "3", "4", "done", "done", "done"]
    steps = [lambda request, line=line: after(line) for line in lines]
    agent, _ = await bench.agent([*steps, Says("It is done.")])
    reply = await agent.send("go")
    assert [c.success for c in reply.tool_calls] == [True] * 6 + [False]


async def test_a_command_whose_answer_is_the_same_is_run_ten_times(bench: Bench) -> None:
    """What it tells of may change at any time; from the fifth time on its answer bears a note."""
    agent, llm = await bench.agent([*[touches("state")] * 10, Says("It is not there yet.")])
    reply = await agent.send("wait for the deploy")
    assert [c.success for c in reply.tool_calls] == [True] * bench.touch.runs == [True] * 10
    noted = [result_text(c) for c in reply.tool_calls]
    assert noted[:4] == ["made"] * 4
    assert noted[4].startswith("made\n\n[The same call has had the same answer 5 times.")
    assert "same answer 8 times" in request_text(llm.requests[8])
    assert reply.finished.error == "The model kept repeating itself."
    assert (reply.content, llm.requests[-1].tools) == ("It is not there yet.", ())


async def test_a_command_not_allowed_is_not_asked_about_again_and_again(bench: Bench) -> None:
    asked_about: list[Proposal] = []

    async def refuse(proposal: Proposal) -> Decision:
        asked_about.append(proposal)
        return Decision(False, reason="the user refused")

    script = [*[calls("run_command", command="make deploy")] * 3, Says("So be it.")]
    agent, _ = await bench.agent(script, toolset=bench.standard(approver=refuse))
    reply = await agent.send("deploy")
    assert (len(asked_about), reply.content) == (2, "So be it.")
    told = [result_text(c) for c in reply.tool_calls][-1]
    assert told.startswith("Not executed: The same run_command call was made 3 times")


async def test_limit_of_model_calls(bench: Bench) -> None:
    """At the limit one last answer without tools; error_max_turns, exit 1."""
    paths = iter("abcdefgh")
    agent, llm = await bench.agent(
        [lambda request: reads(next(paths)) if request.tools else Says("Cut short.")] * 4,
        max_iterations=3,
    )
    reply = await agent.send("go")
    finished = reply.finished
    assert (finished.subtype, finished.exit_code) == ("error_max_turns", 1)
    assert finished.usage.model_calls == 4
    assert llm.requests[-1].tools == ()
    assert (reply.content, finished.hint) == (
        "Cut short.", "Ask it to continue (-c), or raise the limit (--max-turns).",
    )  # fmt: skip
    turn = await bench.turn(agent)
    told = "Cut short.\n\n[This turn ended before it was finished: "
    assert turn.assistant_message == f"{told}The limit of 3 model calls was reached.]"
    assert turn.status == "completed"


async def test_going_on_after_the_limit_begins_with_all_that_was_done(bench: Bench) -> None:
    """In another process too: what was read, and that the turn was ended by the limit."""
    looks = [reads("a.py", text="First a."), reads("b.py", text="Then b."), Says("c is left.")]
    agent, _ = await bench.agent(looks, max_iterations=2)
    await agent.send("read them")
    again, llm = await bench.agent(
        [Says("Done.")], session=agent.session, memory=bench.new_memory()
    )
    await again.send("go on")
    text = request_text(llm.requests[0])
    for known in (
        "First a.",
        "print('hello')",
        "x = 1",
        "c is left.",
        "The limit of 2 model calls",
    ):
        assert text.count(known) == 1, known


@pytest.mark.parametrize(
    ("usage", "limit", "why"), [(USED, 1.0, "is spent"), (None, 1000.0, "no usage")]
)
async def test_budget_ends_the_turn(
    bench: Bench, usage: UsageChunk | None, limit: float, why: str
) -> None:
    """Error_max_budget_usd, exit 1; what is not known is not taken for nothing."""
    info = ModelInfo(name="x/y", input_usd_per_token=0.01, output_usd_per_token=0.01)
    first = reads("a.py", text="Hm.", usage=usage)
    script = [first, Says("never asked")]
    agent, llm = await bench.agent(script, info=info, max_budget_usd=limit)
    reply = await agent.send("go")
    assert (reply.finished.subtype, reply.content) == ("error_max_budget_usd", "Hm.")
    assert why in reply.finished.error
    assert usage is None or reply.finished.usage.cost_usd == pytest.approx(1.2)
    assert llm.left == 1


async def test_failed_call_of_the_model(bench: Bench) -> None:
    """Recorded as failed with the person's words; exit code 75; no traceback."""
    agent, _ = await bench.agent([ProviderUnavailable("It is busy.", hint="Wait."), Says("ok")])
    reply = await agent.send("first")
    assert reply.finished.subtype == "error_during_execution"
    assert (reply.finished.error, reply.finished.hint) == ("It is busy.", "Wait.")
    assert reply.finished.exit_code == 75
    assert reply.finished.usage.model_calls == 0, "what gave nothing counts for nothing"
    await agent.send("second")
    first, second = await bench.store.turns(agent.session.session_id)
    assert (first.status, first.user_message) == ("failed", "first")
    assert (second.status, second.turn_index) == ("completed", 2)


async def test_cut_answer_keeps_what_came(bench: Bench) -> None:
    """Half an answer is kept and marked, never taken for a whole one."""
    agent, llm = await bench.agent([Says("Half an", cut=True), Says("Yes.")], retries=0)
    reply = await agent.send("first")
    assert (reply.finished.exit_code, reply.finished.hint) == (
        75,
        "Ask it to continue, or ask again.",
    )
    turn = await bench.turn(agent)
    assert (turn.status, turn.assistant_message) == ("failed", "Half an")
    await agent.send("go on")
    assert "[This turn failed" in request_text(llm.requests[-1])


async def test_cut_before_the_first_word_is_asked_again(bench: Bench) -> None:
    cut = touches("never", cut=True)
    script = [cut, StreamCut("cut"), touches("made"), Says("ok")]
    agent, _ = await bench.agent(script, retries=2)
    events = await asked(agent, "go")
    waited = [(e.reason, e.attempt, e.most) for e in events.of(RetryWaiting)]
    assert waited == [("the answer broke off", 2, 3), ("the answer broke off", 3, 3)]
    assert (events.notices, events.end.result) == ([], "ok")
    assert not (bench.folder / "never").exists()
    assert bench.touch.runs == 1
    agent, _ = await bench.agent([StreamCut("cut")] * 3, retries=2)
    assert (await agent.send("go")).finished.exit_code == 75


async def test_an_answer_that_broke_off_in_its_midst_is_asked_for_again(bench: Bench) -> None:
    """In the same words; the whole one is the answer, and the half is kept beside it."""
    half = touches("never", text="Now I make", cut=True)
    script = [reads("a.py"), half, touches("made", text="Now I make it."), Says("Made.")]
    agent, llm = await bench.agent([*script, Says("Hello.")])
    events = await asked(agent, "go")
    said = "".join(e.text for e in events.of(TextDelta, Notice))
    assert said == "Now I makeThe answer broke off here; asking for it again.Now I make it.Made."
    assert [e.reason for e in events.of(RetryWaiting)] == ["asking again"]
    assert llm.requests[2] == llm.requests[1]
    assert not (bench.folder / "never").exists()
    turn = await bench.turn(agent)
    assert (turn.status, turn.assistant_message) == ("completed", "Made.")
    assert [call.preamble for call in turn.tool_calls] == ["", "Now I make it."]
    assert turn.reasoning == "[An answer that broke off:]\nNow I make"
    assert turn.usage.model_calls == 4
    await agent.send("And now?")
    assert request_text(llm.requests[-1]).count("Now I make") == 1


async def test_the_half_stays_the_answer_while_no_other_word_comes(bench: Bench) -> None:
    """However the turn ends then: by the person, or since the model is away."""
    away = ProviderUnavailable("It is away.")
    agent, _ = await bench.agent([Says("Half an", cut=True), StreamCut("cut"), away])
    reply = await agent.send("go")
    assert (reply.finished.error, reply.content) == ("It is away.", "Half an")
    agent, _ = await bench.agent([Says("Half an", cut=True)])
    async for event in agent.ask("go"):
        if isinstance(event, RetryWaiting):
            agent.interrupt()
    turn = await bench.turn(agent)
    assert (turn.status, turn.assistant_message) == ("interrupted", "Half an")
    assert not turn.reasoning


async def test_no_answer_is_asked_for_again_once_the_budget_is_spent(bench: Bench) -> None:
    info = ModelInfo(name="x/y", input_usd_per_token=0.01, output_usd_per_token=0.01)
    script = [Says("Half", cut=True, usage=USED), Says("never asked")]
    agent, llm = await bench.agent(script, info=info, max_budget_usd=1.0)
    reply = await agent.send("go")
    assert (reply.finished.exit_code, reply.content, llm.left) == (75, "Half", 1)


async def test_an_answer_that_broke_off_costs_what_was_sent_and_what_came(bench: Bench) -> None:
    """By estimate, where its usage did not come."""
    info = ModelInfo(name="x/y", input_usd_per_token=0.01, output_usd_per_token=0.01)
    half = Says("Half" * 1000, cut=True, usage=None)
    agent, llm = await bench.agent([half, Says("ok", usage=USED)], info=info)
    usage = (await agent.send("go")).finished.usage
    assert usage.model_calls == 2
    assert usage.cost_usd is not None
    assert usage.cost_usd > 10 + 1.2
    agent, llm = await bench.agent([half, Says("never asked")], info=info, max_budget_usd=10)
    reply = await agent.send("go")
    assert (reply.finished.exit_code, llm.left) == (75, 1)


async def test_interrupt_keeps_what_came(bench: Bench) -> None:
    """Esc and Ctrl-C; the turn is recorded as interrupted, with its text."""
    gate = asyncio.Event()
    agent, _ = await bench.agent([Says("Some words", gate=gate), Says("ok")])
    events = Events()
    async for event in agent.ask("go"):
        events.append(event)
        if isinstance(event, TextDelta) and event.text.startswith("words"):
            agent.interrupt()
    assert (events.end.subtype, events.end.exit_code) == ("interrupted", 130)
    turn = await bench.turn(agent)
    assert (turn.status, turn.assistant_message) == ("interrupted", "Some words")
    assert (await agent.send("again")).content == "ok"


async def test_closing_the_iterator_interrupts(bench: Bench) -> None:
    """An interface that goes away leaves a recorded turn."""
    agent, _ = await bench.agent([Says("Some words", gate=asyncio.Event())])
    events = agent.ask("go")
    async for event in events:
        if isinstance(event, TextDelta):
            break
    await events.aclose()  # type: ignore[attr-defined]
    turn = await bench.turn(agent)
    assert turn.status == "interrupted"


@pytest.mark.parametrize("tool", ["read_file", "run_command"])
async def test_stopping_at_one_of_several_questions_asks_no_other(bench: Bench, tool: str) -> None:
    """The one that was left is recorded as refused, and nothing of the others is done."""
    asked = []

    async def leave(proposal: Proposal) -> Decision:
        asked.append(proposal)
        await asyncio.sleep(0.01)  # the others ask meanwhile
        agent.interrupt()
        return Decision(False, reason="the user refused")

    toolset = bench.standard(approver=leave)
    name = "path" if tool == "read_file" else "command"
    paths = ("/etc/hostname", "/etc/hosts", "/etc/passwd")
    uses = tuple(use(tool, **{name: path}) for path in paths)
    agent, llm = await bench.agent([Says(tools=uses), Says("ok")], toolset=toolset)
    finished = (await agent.send("go")).finished
    assert (finished.subtype, len(asked), len(llm.requests)) == ("interrupted", 1, 1)
    turn = await bench.turn(agent)
    (refused,) = [c for c in turn.tool_calls if c.result]
    assert "the user refused. Nothing was done." in (refused.error or "")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("create_file", {"path": "c.py", "content": "x"}), ("run_command", {"command": "true"})],
)
async def test_a_turn_that_is_stopped_while_the_person_is_asked_has_done_nothing(
    bench: Bench, tool: str, arguments: dict[str, str]
) -> None:
    """However it is stopped: nothing of it is unknown, to the agent, /diff or /undo."""

    async def never(_: Proposal) -> Decision:
        agent.interrupt()
        return await asyncio.Future()

    script = [calls(tool, **arguments), Says("ok")]
    agent, llm = await bench.agent(script, toolset=bench.standard(approver=never))
    assert (await agent.send("go")).finished.subtype == "interrupted"
    turn = await bench.turn(agent)
    (call,) = turn.tool_calls
    assert "Nothing was done." in call.result
    rewind = rewind_to([turn], 0)
    assert (rewind.changes, rewind.command_count, rewind.other_count) == ((), 0, 0)
    await agent.send("what happened?")
    assert UNKNOWN_EFFECTS not in request_text(llm.requests[-1])


@pytest.mark.parametrize("tool", ["edit_file", "run_command"])
async def test_a_killed_process_leaves_word_whether_it_only_asked(bench: Bench, tool: str) -> None:
    """At the question nothing was done; of what was allowed and has no result nothing is known."""
    left: list[Turn] = []

    async def approve(_: Proposal) -> Decision:
        left.append(await bench.turn(agent))
        return Decision(True)

    class Asking(Touch):
        name = tool

        async def run(self, params: PathParams) -> ToolOutput:
            await answer_to(Proposal(tool_name=tool, title="", kind="diff", body=""), approve)
            left.append(await bench.turn(agent))
            return await super().run(params)

    toolset = Toolset([Asking(bench.folder)])
    agent, _ = await bench.agent([calls(tool, path="made"), Says("ok")], toolset=toolset)
    await agent.send("go")
    left.append(await bench.turn(agent))
    asked, allowed, done = left
    results = [result_text(call) for turn in left for call in turn.tool_calls]
    assert results == [ONLY_ASKED, UNKNOWN_EFFECTS, "made"]
    assert done.tool_calls[0].error is None
    back = rewind_to([asked], 0)
    assert (back.changes, back.command_count, back.other_count) == ((), 0, 0)
    assert rewind_to([allowed], 0) != back


async def test_where_the_person_can_not_be_asked_the_file_is_not_blamed(bench: Bench) -> None:
    """A terminal that is gone fails as a disk would."""

    async def gone(_: Proposal) -> Decision:
        raise OSError(5, "Input/output error")

    script = [calls("create_file", path="c.py", content="x"), Says("ok")]
    agent, _ = await bench.agent(script, toolset=bench.standard(approver=gone))
    await agent.send("go")
    (call,) = (await bench.turn(agent)).tool_calls
    assert call.error == "The user could not be asked: Input/output error. Nothing was done."


async def test_interrupted_effect_is_known_and_not_repeated(bench: Bench) -> None:
    """Recorded before its effect; later it is told as unknown."""
    bench.touch.gate = asyncio.Event()
    agent, llm = await bench.agent([touches("made"), Says("I see.")])
    async for event in agent.ask("go"):
        if isinstance(event, ToolStarted):
            await until(lambda: bench.touch.runs)
            agent.interrupt()
    turn = await bench.turn(agent)
    (call,) = turn.tool_calls
    assert (call.result, call.success) == ("", False)
    await agent.send("what happened?")
    assert UNKNOWN_EFFECTS in request_text(llm.requests[-1])
    assert_valid(llm.requests[-1].messages[1:])
    assert bench.touch.runs == 1


async def test_a_begun_job_is_known_however_soon_a_turn_stops(bench: Bench, tmp_path: Path) -> None:
    """The model hears of what runs, and can read it and end it, when the person goes on."""
    jobs = Jobs(tmp_path / "outputs")
    toolset = bench.standard(mode="bypassPermissions", commands=Commands(jobs=jobs))
    begins = use("run_command", command="touch begun; sleep 600", background=True)
    agent, _ = await bench.agent([Says(tools=(begins,))], toolset=toolset)
    turn = asyncio.create_task(asked(agent, "Start the server"))
    await until((bench.folder / "begun").exists)
    agent.interrupt()
    assert (await turn).end.subtype == "interrupted"
    (call,) = (await bench.turn(agent)).tool_calls
    assert call.success
    assert "Job 1: touch begun; sleep 600" in json.loads(call.result)["text"]
    assert [job.number for job in jobs.running] == [1]
    await jobs.stop(*jobs.running)


async def test_a_written_change_is_known_though_the_turn_is_stopped_just_then(bench: Bench) -> None:
    """So /undo takes it back, and the next edit is not refused as if others had changed it."""
    toolset = bench.standard(mode="bypassPermissions")
    edits = calls("edit_file", path="b.py", old="x = 1", new="x = 2")
    agent, _ = await bench.agent([reads("b.py"), edits], toolset=toolset)
    with held_at("file.named") as goes_on:
        turn = asyncio.create_task(asked(agent, "Make it two"))
        await until(lambda: hits("file.named"))
        agent.interrupt()
        await asyncio.sleep(0)
        goes_on.set()
        assert (await turn).end.subtype == "interrupted"
    _, edit = (await bench.turn(agent)).tool_calls
    assert (bench.folder / "b.py").read_text() == "x = 2\n"
    assert edit.success
    assert json.loads(edit.result)["changed"] == [[1, 1]]
    again = calls("edit_file", path="b.py", old="x = 2", new="x = 3")
    agent, _ = await bench.agent([again, Says("Three.")], toolset=toolset)
    assert (await agent.send("Three, rather")).tool_calls[0].success


async def test_a_turn_that_is_stopped_before_it_has_begun_is_recorded(bench: Bench) -> None:
    """A key that comes with the prompt: what the person said lasts, and the turn has its end."""
    agent, llm = await bench.agent([])
    turn = asyncio.create_task(asked(agent, "go"))
    asyncio.get_running_loop().call_soon(agent.interrupt)
    assert (await turn).end.subtype == "interrupted"
    assert ((await bench.turn(agent)).user_message, llm.requests) == ("go", [])


async def test_bug_in_the_loop_is_recorded_and_raised(bench: Bench) -> None:
    """Never a turn that looks as if it still ran."""
    agent, _ = await bench.agent([ZeroDivisionError("a bug")])
    with pytest.raises(ZeroDivisionError):
        await agent.send("go")
    turn = await bench.turn(agent)
    assert turn.status == "failed"


async def test_mentioned_files_are_read_first(bench: Bench) -> None:
    """A resolved @file is a recorded read_file call with origin mention."""
    agent, llm = await bench.agent([Says("It prints."), Says("ok")])
    events = await asked(agent, "What is @a.py, and mail me@b.py? @nothing.py")
    assert events.notices == ["There is no file nothing.py here."]
    turn = await bench.turn(agent)
    (call,) = turn.tool_calls
    assert (call.tool_name, call.origin) == ("read_file", "mention")
    assert request_text(llm.requests[0]).count("print('hello')") == 1
    await agent.send("next")
    text = request_text(llm.requests[1])
    assert text.count("print('hello')") == 1
    assert "- a.py (via read_file, Turn 1)" in text


async def test_a_preview_has_the_mentioned_files_too(bench: Bench) -> None:
    """What would be sent, without being asked for more; nothing counts as read by it."""
    toolset = bench.standard()
    agent, llm = await bench.agent([Says("It prints.")], toolset=toolset)
    shown = await agent.context("What is @a.py, next to @/etc/hosts?")
    assert "localhost" not in shown.text()
    edit = use("edit_file", path="a.py", old="hello", new="bye")
    assert "has not been read" in (await toolset.call(edit)).text
    shown = await agent.context("What is @a.py?")
    await agent.send("What is @a.py?")
    sent = llm.requests[0].messages[-1].text
    assert "print('hello')" in sent
    assert _without_marks(shown.messages[-1].text) == _without_marks(sent)


def _without_marks(text: str) -> str:
    return re.sub(r"(?<=-)[0-9a-f]{10}(?=>)", "", text)


async def test_a_file_outside_is_not_read_because_a_prompt_names_it(bench: Bench) -> None:
    """Where nobody is there to allow it, that is told and reported."""
    agent, llm = await bench.agent([Says("I can't.")], toolset=bench.standard())
    events = await asked(agent, "Compare @/etc/hosts")
    [warned] = events.notices
    assert warned.startswith("@/etc/hosts was not read: /etc/hosts is outside ")
    [denied] = events.end.permission_denials
    assert (denied.tool_name, json.loads(denied.arguments)) == ("read_file", {"path": "/etc/hosts"})
    assert "localhost" not in request_text(llm.requests[0])


async def test_model_without_tools(bench: Bench) -> None:
    """No tools are offered, the recent window is text, orphan calls can't arise."""
    info = ModelInfo(name="local/small", context_window=1200, supports_tools=False)
    agent, llm = await bench.agent([Says("First answer."), Says("ok")], info=info)
    await agent.send("First question?")
    await agent.send("Second?")
    request = llm.requests[-1]
    assert request.tools == ()
    assert [m.role for m in request.messages] == ["system", "user"]
    text = request_text(request)
    assert "## Recent Conversation (Raw)\nUser: First question?\nAssistant: First answer." in text
    assert len(text) <= 2400


async def test_what_exceeds_a_limit_is_said_once(bench: Bench) -> None:
    """Not above each answer: a session has hundreds."""
    rules = Instructions("rule " * 30_000, ())
    agent, _ = await bench.agent([Says("one"), Says("two")], instructions=rules)
    said = [[e.text async for e in agent.ask(f"{i}?") if isinstance(e, Notice)] for i in range(2)]
    (first,), second = said
    assert "over the limit" in first
    assert second == []


async def test_store_that_goes_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruned history meanwhile; nothing is lost when it is back."""
    agent, llm = await bench.agent([Says(f"answer {i}") for i in range(9)])
    await agent.send("the goal of it all")
    apply = bench.store.apply

    async def fails(writes: Any) -> Applied:
        raise StoreUnavailable("The database is locked.")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "apply", fails)
        events = [await asked(agent, f"question {i}") for i in range(7)]
        assert [text for each in events for text in each.notices] == [
            "Memory is unavailable: The database is locked. Meanwhile, everything is kept on this "
            "disk."
        ]
        text = request_text(llm.requests[-1])
        assert "user: the goal of it all" in text
        assert "... [Intermediate memory compressed] ..." in text
        assert "answer 5" in text
        assert "user: question 6" not in text
    assert bench.store.apply == apply

    # It is tried again now and then: what waited is stored before anybody asks.
    async def is_back() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return bool(await bench.spooled.turns(agent.session.session_id))
        return False

    await until(is_back)
    back = (await asked(agent, "back again")).notices
    assert back == ["Memory is back. 14 writes that waited are now stored."]
    turns = await bench.store.turns(agent.session.session_id)
    assert [t.turn_index for t in turns] == list(range(1, 10))
    assert [t.user_message for t in turns][1:8] == [f"question {i}" for i in range(7)]
    assert all(t.status == "completed" for t in turns)


async def test_memory_switched_off(bench: Bench) -> None:
    """No store is touched, the agent still answers and knows this conversation."""

    async def never() -> Any:
        raise AssertionError("the store was opened")

    memory = Memory(never, MemoryConfig(enabled=False))
    agent, llm = await bench.agent([Says("one"), Says("two")], memory=memory)
    await agent.send("first words")
    assert (await agent.send("second")).content == "two"
    assert "first words" in request_text(llm.requests[-1])


async def test_text_is_cleaned_at_the_doors(bench: Bench) -> None:
    """Lone surrogates and NULs neither brick the session nor the request."""
    agent, llm = await bench.agent([Says("bad \ud83d half\0"), Says("ok")])
    await agent.send("in \ud800 put\0")
    await agent.send("next")
    request_text(llm.requests[-1]).encode()
    (first, _) = await bench.store.turns(agent.session.session_id)
    assert (first.user_message, first.assistant_message) == ("in \ufffd put", "bad \ufffd half")


async def test_a_stop_is_heard_however_fast_the_words_come(bench: Bench) -> None:
    """They are shown as they come, and none after the stop."""

    async def torrent(request: Request) -> AsyncIterator[Chunk]:
        for _ in range(20_000):
            yield TextChunk("word ")
        yield EndChunk("stop")

    agent, llm = await bench.agent([])
    llm.stream = torrent  # type: ignore[method-assign]
    shown = 0
    async for each in agent.ask("go"):
        if isinstance(each, TextDelta):
            shown += 1
            agent.interrupt()
        elif isinstance(each, TurnFinished):
            assert each.error == "interrupted"
    assert 0 < shown < 100


async def test_what_a_turn_stores_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model hears a result whole; so much over all calls and the answer is kept, marked."""
    most = 1 << 18
    monkeypatch.setattr("ragmem.memory.recording.Room", partial(Room, most))
    (bench.folder / "large.txt").write_text("0123456789" * 10_000)
    both = tuple(use("read_file", path="large.txt") for _ in range(2))
    agent, llm = await bench.agent(
        [Says("Now.", tools=both), Says("z" * 200_000, reasoning="y" * 20_000)],
        info=ModelInfo(name="m", context_window=8_000_000),
    )
    await agent.send("x" * 200_000)
    answers = [m.parts[0] for m in llm.requests[1].messages if m.role == "tool"]
    assert [len(answer.text) for answer in answers] == [100_000] * 2  # type: ignore[union-attr]
    turn = await bench.turn(agent)
    texts = [turn.user_message, turn.assistant_message, turn.reasoning or ""]
    results = [call.result for call in turn.tool_calls]
    assert all("left out" in text for text in [*texts, *results])
    assert most * 7 // 8 < sum(map(len, [*texts, *results])) <= most
    assert all(json.loads(result)["path"] == "large.txt" for result in results)
