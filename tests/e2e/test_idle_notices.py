"""Memory goes and comes back while nobody does anything: it is said, and the draft stays."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.house import House
from tests.fakes.llm_server import Answer, LLMServer
from tests.repl.pty_chat import PtyChat


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with LLMServer([Answer("The answer.")], repeat=True) as server:
        yield House(tmp_path, server)


@contextmanager
def away(house: House, chat: PtyChat) -> Iterator[None]:
    """Another program locks the database, and a turn meets that."""
    home = Path(house.env["RAGMEM_HOME"])
    database = home / "data" / "memory.db"
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("BEGIN IMMEDIATE")
    try:
        chat.send("during\r")
        chat.wait_for(r"Memory is away: ")
        yield
    finally:
        connection.close()


def test_memory_is_back_while_one_types(house: House) -> None:
    """Said above the prompt, the draft untouched, and the next turn is as ever."""
    with house.chat("chat") as chat:
        chat.wait_for_screen(r"openai/scripted · [0-9a-f]{8}")
        chat.send("first\r")
        chat.wait_for(r"^The answer\.")
        with away(house, chat):
            chat.send("a dra")
            chat.wait_for_screen(r"^› a dra$")
            assert "Memory is back" not in chat.text
        chat.wait_for(r"Memory is back\. [0-9]+ writes that waited are stored\.")
        chat.wait_for_screen(r"^› a dra$")
        assert chat.text.index("Memory is back") < chat.text.rindex("a dra")
        chat.send("ft\r")
        chat.until(lambda: len(house.server.requests) == 3)
        chat.leave()
    (session,) = house.sessions()
    assert [turn["user_message"] for turn in session["turns"]] == ["first", "during", "a draft"]
