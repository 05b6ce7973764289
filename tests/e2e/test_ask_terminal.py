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


def test_words_and_tools_are_shown_as_they_come(tmp_path: Path) -> None:
    with terminal(
        tmp_path,
        Answer("I look.", tools=[Call("list_directory", {"path": "."})]),
        Answer("Nothing here."),
    ) as (ragmem, _):
        child = ragmem.on_terminal("ask", "What is here?")
        child.expect_exact("waiting for the model …")
        child.expect_exact("I look.\r\n")
        child.expect(r"● list_directory .*\([\d.]+ m?s\)")
        child.expect_exact("Nothing here.\r\n")
        child.expect(r"session [0-9a-f]{8} · openai/scripted")
        assert finish(child) == 0


@pytest.mark.parametrize(("answer", "made"), [("y", True), ("n", False), ("", False)])
def test_an_edit_is_shown_whole_and_asked_for(tmp_path: Path, answer: str, made: bool) -> None:
    """Hidden characters show in what is approved."""
    with terminal(tmp_path, Answer(tools=[EDIT]), Answer("Done.")) as (ragmem, _):
        child = ragmem.on_terminal("ask", "Make a file")
        child.expect_exact("+one")
        child.expect_exact(r"+two \u{202e} evil")
        child.expect_exact("Allow? ")
        child.sendline(answer)
        child.expect_exact("Done.")
        assert finish(child) == 0
        assert (ragmem.project / "made.txt").exists() is made


def test_a_reason_reaches_the_model(tmp_path: Path) -> None:
    with terminal(tmp_path, Answer(tools=[EDIT]), Answer("Then not.")) as (ragmem, server):
        child = ragmem.on_terminal("ask", "Make a file")
        child.expect_exact("Allow? ")
        child.sendline("put it into docs instead")
        child.expect_exact("Then not.")
        assert finish(child) == 0
        assert "put it into docs instead" in json.dumps(server.requests[1].body["messages"])


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


def test_nothing_of_the_model_steers_the_terminal(tmp_path: Path) -> None:
    """Escapes in words are shown, never sent."""
    evil = "before \x1b]0;owned\x07 \x1b[2J \x9b6n after"
    with terminal(tmp_path, Answer(evil)) as (ragmem, _):
        child = ragmem.on_terminal("ask", "Hello", "--color", "never")
        child.expect(r"before \\e\]0;owned\\x07 \\e\[2J \\x9b6n after")
        assert "\x1b" not in child.before + child.after
        assert finish(child) == 0


def test_r_without_a_value_lets_one_choose(tmp_path: Path) -> None:
    with terminal(tmp_path, Answer("One."), Answer("Two."), Answer("Three.")) as (ragmem, server):
        for prompt in ("First question", "Second question"):
            assert ragmem.run("ask", prompt).code == 0
        child = ragmem.on_terminal("ask", "More", "-r")
        child.expect_exact("Second question")
        child.expect_exact("First question")
        child.expect_exact("Which one? [1-2] ")
        child.sendline("2")
        child.expect_exact("Three.")
        assert finish(child) == 0
        assert "First question" in json.dumps(server.requests[2].body["messages"])


def test_ask_without_a_prompt_says_so_at_once(tmp_path: Path) -> None:
    with terminal(tmp_path) as (ragmem, _):
        child = ragmem.on_terminal("ask")
        child.expect_exact("error: There is no prompt.")
        assert finish(child) == 2


def test_no_color_and_dumb_terminals_get_no_escapes(tmp_path: Path) -> None:
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        folder = tmp_path / next(iter(variables))
        with terminal(folder, Answer("Plain.")) as (ragmem, _):
            ragmem.env.update(variables)
            child = ragmem.on_terminal("ask", "Hello")
            child.expect_exact("Plain.")
            shown = child.before
            assert finish(child) == 0
            assert "\x1b" not in shown + child.before
