"""`ragmem ask` on a terminal: a person sees what runs, and is asked."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.process import Ragmem, finish
from tests.fakes.llm_server import Answer, Call, LLMServer

EDIT = Call("create_file", {"path": "made.txt", "content": "one\ntwo \u202e evil\n"})


@contextmanager
def terminal(tmp_path: Path, *answers: Answer) -> Iterator[tuple[Ragmem, LLMServer]]:
    with LLMServer(answers) as server:
        yield Ragmem(tmp_path, {**server.env, "TERM": "xterm"}), server


@pytest.mark.parametrize(
    ("answer", "made"), [("y", True), ("", False), ("put it into docs instead", False)]
)
def test_an_edit_is_shown_whole_and_asked_for(tmp_path: Path, answer: str, made: bool) -> None:
    """Hidden characters show in what is approved; a reason reaches the model."""
    with terminal(tmp_path, Answer(tools=[EDIT]), Answer("Done.")) as (ragmem, server):
        child = ragmem.on_terminal("ask", "Make a file")
        child.expect_exact("+one")
        child.expect_exact(r"+two \u{202e} evil")
        child.expect_exact("Allow? ")
        child.sendline(answer)
        child.expect_exact("Done.")
        assert finish(child) == 0
        assert (ragmem.project / "made.txt").exists() is made
        assert answer in str(server.requests[1].body["messages"][-1]["content"]) or made


def test_ctrl_c_at_the_question_ends_the_turn(tmp_path: Path) -> None:
    with terminal(tmp_path, Answer(tools=[EDIT])) as (ragmem, _):
        child = ragmem.on_terminal("ask", "Make a file")
        child.expect_exact("Allow? ")
        child.send("\x03")
        assert finish(child) == 130
        assert not (ragmem.project / "made.txt").exists()
        (session,) = ragmem.sessions()
        (turn,) = ragmem.shown(session["session_id"])["turns"]
        assert turn["status"] == "interrupted"


def test_r_without_a_value_lets_one_choose(tmp_path: Path) -> None:
    with terminal(tmp_path, Answer("One."), Answer("Two."), Answer("Three.")) as (ragmem, server):
        for prompt in ("First question", "Second question"):
            assert ragmem.run("ask", prompt).code == 0
        child = ragmem.on_terminal("ask", "More", "-r")
        child.expect_exact("Second question")
        child.expect_exact("First question")
        child.expect_exact("Which session? [1-2] ")
        child.sendline("2")
        child.expect_exact("Three.")
        assert finish(child) == 0
        assert "First question" in json.dumps(server.requests[2].body["messages"])


def test_no_color_gets_no_colour_and_a_dumb_terminal_no_escapes(tmp_path: Path) -> None:
    for variables, escape in (({"NO_COLOR": "1"}, "\x1b[3"), ({"TERM": "dumb"}, "\x1b")):
        folder = tmp_path / next(iter(variables))
        with terminal(folder, Answer("Plain.")) as (ragmem, _):
            ragmem.env.update(variables)
            child = ragmem.on_terminal("ask", "Hello")
            child.expect_exact("Plain.")
            shown = child.before
            assert finish(child) == 0
            assert escape not in shown + child.before
