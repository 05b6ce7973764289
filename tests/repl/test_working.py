"""What may be done, what runs beside the chat, what is to be done: real processes on a pty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragmem.tools import subprocess_guard
from tests.e2e.test_chat_pty import House, loaded
from tests.fakes.llm_server import Answer, Call, LLMServer


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with LLMServer() as server:
        yield House(tmp_path, server)


def run(command: str, **more: object) -> Answer:
    return Answer(tools=[Call("run_command", {"command": command, **more})])


def test_what_is_allowed_for_good_is_asked_for_no_more(house: House, tmp_path: Path) -> None:
    house.server.extend(
        run("echo one && echo two"),
        Answer("Once."),
        run("echo three"),
        run("echo four > file"),
        Answer("Twice."),
        run("echo five"),
        Answer("Thrice."),
    )
    with house.chat("chat", columns=110) as chat:
        loaded(chat)
        chat.send("first\r")
        chat.wait_for_screen(r"p permanently")
        chat.send("p")
        chat.wait_for_screen(r"1 run_command\(echo one\) \+ run_command\(echo two\)")
        chat.send("2")
        chat.wait_for(r"Allowed from now on, in every folder: run_command\(echo \*\)")
        chat.wait_for_turn(r"^Once\.")
        chat.send("again\r")
        # What writes a file does more than the rule allows, and none can be offered for it.
        chat.wait_for_screen(r"echo four > file[\s\S]*y yes  n no  a always[^\n]*\n?[^\n]*r reason")
        assert "p permanently" not in chat.screen
        chat.send("y")
        chat.wait_for_turn(r"^Twice\.")
        assert "three" in chat.text
        chat.send("/permissions deny run_command(echo f*)\r")
        chat.wait_for(r"Denied from now on, in every folder: run_command\(echo f\*\)")
        chat.send("third\r")
        chat.wait_for_turn(r"^Thrice\.")
        chat.wait_for(r"rule run_command\(echo f\*\) denies this")
        chat.send("/permissions\r")
        chat.wait_for(r"allowed for good\s+run_command\(echo \*\)\s+denied for good\s+run_command")
        chat.send("/permissions remove run_command(echo f*)\r")
        chat.wait_for(r"No rule any more: run_command\(echo f\*\)")
        chat.send("/permissions allow run_comand\r")
        chat.wait_for(r"There is no tool 'run_comand'")
    settings = (tmp_path / "home" / "ragmem.toml").read_text()
    assert 'allow = ["run_command(echo *)"]' in settings
    assert "deny = []" in settings


def test_a_server_runs_beside_the_chat_and_ends_with_it(house: House) -> None:
    read = Answer(tools=[Call("read_job", {"job": 1})])
    house.server.extend(
        run("echo ready; echo $$ > pid; exec sleep 300", background=True),
        read,
        read,
        read,
        read,
        Answer("It is up."),
    )
    with house.chat("chat", "--yolo", columns=110) as chat:
        loaded(chat)
        chat.send("serve\r")
        chat.wait_for_turn(r"^● run_command echo ready[\s\S]*^It is up\.")
        chat.wait_for_screen(r"· 1 job\b")
        # How it does may be asked as often as one likes.
        assert "not run again" not in house.last_prompt()
        chat.send("/jobs\r")
        chat.wait_for(r"^● job 1: echo ready; .* runs for .*, 1 line")
        chat.send("/jobs 1\r")
        chat.wait_for(r"^ready\n")
        pid = int((house.project / "pid").read_text())
        chat.send("/exit\r")
        assert chat.exit_code() == 0
    assert subprocess_guard.look_at(pid)[0] in ("", "Z", "X")
