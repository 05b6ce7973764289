"""`ragmem ask` on a terminal: a person sees what runs, and is asked."""

import json
import threading

import pytest

from tests.cli.process import Ragmem, finish
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

EDIT = Call("create_file", {"path": "made.txt", "content": "one\ntwo \u202e evil\n"})


@pytest.fixture(autouse=True)
def terminal(ragmem: Ragmem) -> None:
    ragmem.env["TERM"] = "xterm"


@pytest.mark.parametrize(
    ("answer", "made"), [("y", True), ("", False), ("put it into docs instead", False)]
)
def test_an_edit_is_shown_whole_and_asked_for(
    ragmem: Ragmem, server: LLMServer, answer: str, made: bool
) -> None:
    """Hidden characters show in what is approved; a reason reaches the model."""
    server.extend(Answer(tools=[EDIT]))
    child = ragmem.on_terminal("ask", "Make a file")
    child.expect_exact("+one")
    child.expect_exact(r"+two \u{202e} evil")
    child.expect_exact("Allow? ")
    child.sendline(answer)
    child.expect_exact("The answer.")
    assert finish(child) == 0
    assert (ragmem.project / "made.txt").exists() is made
    assert answer in str(server.requests[1].body["messages"][-1]["content"]) or made


def test_what_was_typed_before_the_question_does_not_answer_it(
    ragmem: Ragmem, server: LLMServer
) -> None:
    is_up = threading.Event()

    def typed_early(_: Received) -> Answer:
        assert is_up.wait(60)
        child.sendline("y")
        return Answer(tools=[EDIT])

    server.extend(typed_early)
    child = ragmem.on_terminal("ask", "Make a file")
    is_up.set()
    child.expect_exact("Allow? ")
    child.sendline("n")
    child.expect_exact("The answer.")
    assert finish(child) == 0
    assert not (ragmem.project / "made.txt").exists()


def test_ctrl_c_at_the_question_ends_the_turn(ragmem: Ragmem, server: LLMServer) -> None:
    server.extend(Answer(tools=[EDIT]))
    child = ragmem.on_terminal("ask", "Make a file")
    child.expect_exact("Allow? ")
    child.send("\x03")
    assert finish(child) == 130
    assert not (ragmem.project / "made.txt").exists()
    (session,) = ragmem.sessions()
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert turn["status"] == "interrupted"


def test_r_without_a_value_lets_one_choose(ragmem: Ragmem, server: LLMServer) -> None:
    for prompt in ("First question", "Second question"):
        ragmem.ok("ask", prompt)
    child = ragmem.on_terminal("ask", "More", "-r")
    child.expect_exact("Second question")
    child.expect_exact("First question")
    child.expect_exact("Which session? [1-2] ")
    child.sendline("2")
    child.expect_exact("The answer.")
    assert finish(child) == 0
    assert "First question" in json.dumps(server.requests[2].body["messages"])


@pytest.mark.parametrize(
    ("variable", "value", "escape"), [("NO_COLOR", "1", "\x1b[3"), ("TERM", "dumb", "\x1b")]
)
def test_no_color_gets_no_colour_and_a_dumb_terminal_no_escapes(
    ragmem: Ragmem, variable: str, value: str, escape: str
) -> None:
    ragmem.env[variable] = value
    child = ragmem.on_terminal("ask", "Hello")
    child.expect_exact("The answer.")
    shown = child.before
    assert finish(child) == 0
    assert escape not in shown + child.before
