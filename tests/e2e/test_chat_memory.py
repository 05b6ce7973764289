"""`/search`, `/summarize`, `/context` as a person meets them: the real command on a pty."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import House
from tests.fakes.llm_server import Answer, LLMServer, Received

READY = r"openai/scripted · [0-9a-f]{8}"


def answer(request: Received) -> Answer:
    if request.body["model"] == "small":
        return Answer(json.dumps({"text": "Ports were spoken of.", "topics": ["ports"]}))
    return Answer("It listens on port 5439.")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with LLMServer([answer], repeat=True) as server:
        house = House(tmp_path, server)
        house.env["RAGMEM_MODEL__SUMMARY"] = "openai/small"
        yield house


def test_search_and_summarize_in_a_chat(house: House) -> None:
    """Slash commands over the memory; `/summarize` renews the session's summary."""
    with house.chat("chat") as chat:
        chat.wait_for_screen(READY)
        chat.send("/search port\r")
        chat.wait_for(r"Nothing was found\.")
        chat.send("/summarize\r")
        chat.wait_for(r"There is nothing to sum up yet\.")
        chat.send("/search\r")
        chat.wait_for(r"Search for what\?")
        chat.send("Where does the database listen?\r")
        chat.wait_for_turn(r"^It listens on port 5439\.")
        chat.send("/search which port was it\r")
        chat.wait_for(r"Turn 1 · session [0-9a-f]{8} .*its words")
        chat.wait_for(r"> Where does the database listen\?")
        chat.send("/summarize\r")
        chat.wait_for(r"Ports were spoken of\.")
        chat.send("/context and now\r")
        chat.wait_for(r"^session so far +\d+  [█·]{16}$")
        chat.leave()
    (request,) = [r for r in house.server.requests if r.body["model"] == "small"]
    assert "Where does the database listen?" in request.body["messages"][-1]["content"]
    (session,) = house.sessions()
    assert [turn["user_message"] for turn in session["turns"]] == [
        "Where does the database listen?"
    ]
