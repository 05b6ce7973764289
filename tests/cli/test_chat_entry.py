"""How a chat is entered from the command line; the chat itself is tested in tests/repl."""

from collections.abc import Iterator
from pathlib import Path

import pexpect
import pyte
import pytest

from tests.cli.process import Ragmem, finish
from tests.fakes.llm_server import Answer, LLMServer


@pytest.fixture
def ragmem(tmp_path: Path) -> Iterator[Ragmem]:
    with LLMServer([Answer("The answer.")], repeat=True) as server:
        yield Ragmem(tmp_path, {**server.env, "TERM": "xterm"})


@pytest.mark.parametrize("arguments", [[], ["chat"], ["-n", "The name"]], ids=" ".join)
def test_ragmem_alone_is_chat(ragmem: Ragmem, arguments: list[str]) -> None:
    child = ragmem.on_terminal(*arguments)
    child.expect_exact("› ")
    child.send("Hello\r")
    child.expect_exact("The answer.")
    child.send("/exit\r")
    child.expect(r"ragmem chat -r ([0-9a-f]{8})")
    assert finish(child) == 0
    (session,) = ragmem.sessions()
    assert session["last_message"] == "Hello"
    assert session["title"] == ("The name" if arguments[:1] == ["-n"] else "New Conversation")


@pytest.mark.parametrize(
    "arguments", [["-c"], ["chat", "-r", "{id}"], ["sessions", "resume", "{id}"]]
)
def test_a_session_goes_on(ragmem: Ragmem, arguments: list[str]) -> None:
    session_id = ragmem.run("ask", "First", "--output-format", "json").json["session_id"]
    child = ragmem.on_terminal(*[word.format(id=session_id) for word in arguments])
    child.expect_exact("› ")
    child.send("Second\r")
    child.expect_exact("The answer.")
    child.send("/exit\r")
    assert finish(child) == 0
    (session,) = ragmem.sessions()
    assert (session["session_id"], session["turn_count"]) == (session_id, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chat", "--bogus"], "error: No such option: --bogus"),
        (["-c", "-r", "x"], "error: -c and -r exclude each other."),
        (["chat", "-r", "nosuch"], "error: "),
        (["chat", "-m", "openai/gpt-5"], "OPENAI_API_KEY is not set"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_stands_on_a_clean_line(
    ragmem: Ragmem, arguments: list[str], message: str
) -> None:
    """The prompt that was shown early is gone before the message, and the terminal is as it was."""
    if "-m" in arguments:
        del ragmem.env["RAGMEM_API_BASE"]
    child = ragmem.on_terminal(*arguments)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2
    screen = pyte.Screen(100, 24)
    pyte.Stream(screen).feed(child.before)
    lines = [line.rstrip() for line in screen.display if line.strip()]
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert "›" not in "".join(lines)
    assert not screen.cursor.hidden
