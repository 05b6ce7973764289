"""Memory goes and comes back while nobody does anything: it is said, and the draft stays."""

import asyncio
import re
import sqlite3
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragmem.store.neo4j import Connection
from tests.e2e.house import House
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.neo4j import ask, empty_neo4j
from tests.fakes.tcp_proxy import TcpProxy
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


def waits_for_a_prompt(chat: PtyChat) -> None:
    """The last row is the plain terminal's prompt, with nothing behind it."""
    chat.until(lambda: chat.text.endswith("\n›"), "the prompt")


def test_a_plain_terminal_is_told_too(house: House) -> None:
    """On a line of its own; what was typed is in the kernel's hands and stays there."""
    with house.chat("chat", env={"TERM": "dumb"}) as chat:
        waits_for_a_prompt(chat)
        chat.send("first\r")
        chat.wait_for(r"^The answer\.")
        waits_for_a_prompt(chat)
        with away(house, chat):
            waits_for_a_prompt(chat)
            chat.send("a dra")
        chat.wait_for(r"^.*Memory is back\. [0-9]+ writes that waited are stored\.")
        chat.send("ft\r")
        chat.until(lambda: len(house.server.requests) == 3)
        chat.leave()
    shown = chat.text
    assert re.search(r"› a dra\n+.*Memory is back", shown), shown
    (session,) = house.sessions()
    assert [turn["user_message"] for turn in session["turns"]] == ["first", "during", "a draft"]


async def test_memory_goes_and_comes_back_while_nobody_does_anything(
    tmp_path: Path, neo4j_server: Connection
) -> None:
    """The heartbeat finds it gone; both are said while the draft is being typed."""
    await empty_neo4j(neo4j_server)
    loop = asyncio.get_running_loop()
    async with TcpProxy(neo4j_server.url) as proxy:
        address = proxy.url

        def on_loop(work: Coroutine[Any, Any, object]) -> None:
            asyncio.run_coroutine_threadsafe(work, loop).result(60)

        def talk() -> None:
            with LLMServer([Answer("The answer.")], repeat=True) as server:
                house = House(tmp_path, server)
                house.env |= {
                    "RAGMEM_STORE": "neo4j",
                    "NEO4J_URI": address,
                    "NEO4J_PASSWORD": neo4j_server.password,
                }
                with house.chat("chat") as chat:
                    chat.wait_for_screen(r"openai/scripted · [0-9a-f]{8}")
                    chat.send("first\r")
                    chat.wait_for(r"^The answer\.")
                    on_loop(_stored(neo4j_server))
                    chat.send("a draft")
                    chat.wait_for_screen(r"^› a draft$")
                    # On a busy machine it may have been away, or be so just before it goes: what
                    # was said last counts, since it is not said to go twice.
                    chat.until(lambda: not is_away(chat), "back")
                    on_loop(proxy.stop_listening())
                    chat.until(lambda: is_away(chat), "away")
                    chat.wait_for_screen(r"^› a draft$")
                    on_loop(proxy.listen(int(address.rpartition(":")[2])))
                    chat.until(lambda: not is_away(chat), "back")
                    chat.wait_for_screen(r"^› a draft$")
                    chat.send("\r")
                    chat.until(lambda: len(server.requests) == 2)
                    chat.leave()

        await asyncio.to_thread(talk)


def is_away(chat: PtyChat) -> bool:
    """Whether memory was said to be away, and not to be back since."""
    text = chat.text
    return text.rfind("Memory is away: ") > text.rfind("Memory is back.")


async def _stored(server: Connection) -> None:
    """The turn is in the graph: on a busy machine it may have waited in the spool until now."""
    statement = "MATCH (t:ConversationTurn {status: 'completed'}) RETURN count(t) AS count"
    async with asyncio.timeout(60):
        while (await ask(server, statement))[0]["count"] == 0:
            await asyncio.sleep(0.2)
