"""What is learned during a chat, as a person sees it: the real command on a pty."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

READY = r"openai/scripted · [0-9a-f]{8}"


def answer(request: Received) -> Answer:
    last = request.body["messages"][-1]
    if last["role"] == "user" and "my cat" in str(last["content"]):
        told = {"content": "The cat is called Leo", "subjects": ["leo"], "reason": "asked"}
        return Answer(tools=[Call("remember", told)])
    return Answer("So be it.")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with LLMServer([answer], repeat=True) as server:
        yield House(tmp_path, server)


def test_each_write_is_a_line(house: House) -> None:
    """What a tool remembers, and what the background learns, each in one line."""
    with house.chat("chat", env={"RAGMEM_MEMORY__WORKER": "inline"}) as chat:
        chat.wait_for_screen(READY)
        chat.send("Do you know my cat Leo? It has a name.\r")
        chat.wait_for(r"^· remembered fact [0-9a-f]{8}: The cat is called Leo$")
        chat.wait_for(r"^So be it\.")
        chat.send("I prefer tabs over spaces.\r")
        chat.wait_for(r"^· remembered preference [0-9a-f]{8}: I prefer tabs over spaces")
        # Where the conversation says it anyway, it is not told a second time.
        chat.send("/context Which tabs do I prefer?\r", prints=r"^headings")
        assert not re.search(r"^(memories|your preferences) ", chat.text, re.MULTILINE)
        chat.send("/new\r")
        chat.send("/context all Which tabs do I prefer?\r")
        chat.wait_for(r"^your preferences +\d+  █·+  I prefer tabs")
        chat.wait_for(r"I prefer tabs over spaces\. \(a preference of the person")
        chat.leave()
