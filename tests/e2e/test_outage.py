"""Outages and secrets as a person meets them: real processes, a real store that is not there."""

import asyncio
import json
import signal
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.errors import StoreUnavailable
from ragmem.memory.sessions import archive
from ragmem.store.neo4j import Connection
from ragmem.store.spool.files import SpoolFile, count_waiting
from tests.cli.process import Ragmem, until
from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.fakes.neo4j import empty_neo4j
from tests.fakes.tcp_proxy import TcpProxy
from tests.repl.pty_chat import LOADED

CANARY = "canary-Zx9-1234567890"
TOKEN = "ghp" + "_" + "Zx9" * 12


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    return Ragmem(tmp_path, {**server.env, "RAGMEM_API_KEY": CANARY})


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Another program keeps the database to itself."""
    database = home / "data" / "memory.db"
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def spool(ragmem: Ragmem, kind: str = "sqlite") -> Path:
    return ragmem.home / "data" / "spool" / kind


def test_an_answer_during_an_outage_is_remembered(ragmem: Ragmem) -> None:
    """Answered at once, kept on the disk, there when the lock is gone; of an ephemeral question
    nothing is kept."""
    ragmem.ok("ask", "Zeroth?", "--ephemeral")
    assert list(spool(ragmem).parent.glob("*-sessions.json")) == []
    first = ragmem.session_of("First?")
    with locked(ragmem.home):
        # The lock is kept until the answer is there: nothing waits for it.
        done = ragmem.run("ask", "During the outage?", "--output-format", "json")
        assert (done.code, done.json["result"]) == (0, "The answer.")
        assert count_waiting(spool(ragmem)) >= 3
        (file,) = spool(ragmem).iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (session,) = [s for s in ragmem.sessions() if s["session_id"] != first]
    assert session["session_id"] == done.json["session_id"]
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert (turn["turn_index"], turn["status"]) == (1, "completed")
    assert list(spool(ragmem).iterdir()) == []


def test_a_memory_added_during_an_outage_is_not_to_be_added_again(ragmem: Ragmem) -> None:
    ragmem.ok("memory", "add", "The valve was replaced by Ada")
    with locked(ragmem.home):
        said = ragmem.ok("memory", "add", "The pump is called Heron").err
    assert "everything is kept on this disk" in said
    assert "Try again" not in said
    contents = [each["content"] for each in ragmem.read("memory", "list")]
    assert contents == ["The pump is called Heron", "The valve was replaced by Ada"]


async def test_the_person_is_told_once(tmp_path: Path, neo4j_server: Connection) -> None:
    """A graph that is down at the start costs one line, and no answer; another one gets nothing."""
    await empty_neo4j(neo4j_server)
    async with TcpProxy(neo4j_server.url) as proxy:
        url = proxy.url
        port = await proxy.stop_listening()
        with LLMServer([Answer("The answer.")], repeat=True) as server:
            env = {
                **server.env,
                "RAGMEM_API_KEY": CANARY,
                "RAGMEM_STORE": "neo4j",
                "NEO4J_URI": url,
                "RAGMEM_STORE__TIMEOUT_S": "30",
                "NEO4J_PASSWORD": neo4j_server.password,
            }
            ragmem = Ragmem(tmp_path, env)
            await asyncio.to_thread(told_while_it_is_away, ragmem, neo4j_server.url)
            await proxy.listen(port)
            await asyncio.to_thread(told_when_it_is_back, ragmem)


def told_while_it_is_away(ragmem: Ragmem, elsewhere: str) -> None:
    done = ragmem.ok("ask", "What is this?")
    assert done.out == "The answer.\n"
    assert done.err.count("Memory is unavailable") == 1
    assert "writes wait on this disk" in ragmem.refused("store", "info", code=75)
    # What waits for one server is not written into that of another address.
    other = {"NEO4J_URI": elsewhere}
    assert ragmem.read("sessions", "list", "--all", env=other) == []
    assert "waiting" not in ragmem.run("store", "info", env=other).out
    assert "4 writes wait in" in ragmem.run("doctor", env=other).out


def told_when_it_is_back(ragmem: Ragmem) -> None:
    done = ragmem.ok("ask", "And this?", "-c")
    assert done.err.count("left by an earlier process are now stored") == 1
    assert [session["turn_count"] for session in ragmem.sessions()] == [2]
    assert "waiting" not in ragmem.run("store", "info").out
    assert "wait in" not in ragmem.run("doctor").out


def test_info_and_doctor_count_what_waits(ragmem: Ragmem) -> None:
    """A newer version's writes wait for that version; what stores the others is told, and nothing
    is copied from a store that has not got all."""
    ragmem.ok("ask", "First?")
    spool(ragmem).mkdir(mode=0o700, parents=True, exist_ok=True)
    (spool(ragmem) / "0190-left.jsonl").write_text('{"write":"hologram"}\n' * 3)
    assert ragmem.read("store", "info")["counts"]["waiting_writes"] == 3
    assert "waiting writes 3" in ragmem.ok("store", "info").out
    assert "3 writes wait in" in ragmem.run("doctor").out
    assert ragmem.refused("store", "migrate", "--to", "neo4j", code=75) == (
        "error: 3 writes still wait for sqlite.\n"
        "Run `ragmem sessions list` to store them, then run this again. "
        "`ragmem doctor` shows any that were rejected.\n"
    )


def test_a_process_killed_in_an_outage_loses_nothing_acknowledged(
    ragmem: Ragmem, server: LLMServer
) -> None:
    """Kill -9 in the middle of a turn; the next process finds it, interrupted."""
    ragmem.ok("ask", "First?")
    server.extend(Answer("I run it.", tools=[Call("run_command", {"command": "sleep 60"})]))
    with locked(ragmem.home):
        process = ragmem.start("ask", "Run it", "--allow", "run_command")
        until(lambda: b"sleep 60" in _spooled(ragmem))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (session,) = [s for s in ragmem.sessions() if s["last_message"] == "Run it"]
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert turn["status"] in ("running", "interrupted")
    (call,) = turn["tool_calls"]
    # What it did nobody knows.
    assert (call["tool_name"], call["success"]) == ("run_command", None)


@contextmanager
def lost(ragmem: Ragmem) -> Iterator[None]:
    """The database is on a disk that is not there."""
    database = ragmem.home / "data" / "memory.db"
    aside = database.with_name("unplugged")
    aside.mkdir()
    for file in [database, *database.parent.glob("memory.db-*")]:
        file.rename(aside / file.name)
    try:
        yield
    finally:
        for file in aside.iterdir():
            file.rename(database.parent / file.name)
        aside.rmdir()


def said(server: LLMServer) -> str:
    """All of the last request."""
    return json.dumps(server.requests[-1].body["messages"])


def test_a_session_goes_on_in_a_new_process_while_the_database_is_not_there(
    ragmem: Ragmem, server: LLMServer
) -> None:
    """By its id, and as the last one."""
    first = ragmem.session_of(f"Wombats, and {TOKEN}?")
    named = ("-r", first[-8:])
    with lost(ragmem):
        done = ragmem.ok("ask", "And then?", *named, "--output-format", "json")
        assert done.json["session_id"] == first
        assert done.err.count("Memory is unavailable") == 1
        assert "Wombats, and [redacted: GitHub token]?" in said(server)
        # The turn that only waits is known to the next process too.
        assert ragmem.session_of("At last?", "-c") == first
        assert "And then?" in said(server)
        (tail,) = spool(ragmem).parent.glob("*-sessions.json")
        assert stat.S_IMODE(tail.stat().st_mode) == 0o600
        assert TOKEN not in tail.read_text()
        tail.rename(tail.with_name("aside"))
        for asked in (named, ["-c"]):
            assert ragmem.run("ask", "Who?", *asked).code != 0
        tail.with_name("aside").rename(tail)
    turns = ragmem.shown(first)["turns"]
    assert [turn["user_message"][:8] for turn in turns] == ["Wombats,", "And then", "At last?"]
    # Deleted is deleted, there too; and nothing comes back from it.
    ragmem.ok("sessions", "delete", first, "--yes")
    assert "Wombats" not in tail.read_text()
    ragmem.refused("ask", "Anew?", "-c")
    assert ragmem.sessions() == []


def test_a_fork_that_nobody_was_in_yet_goes_on_while_the_database_is_not_there(
    ragmem: Ragmem, server: LLMServer
) -> None:
    first = ragmem.session_of("Wombats?")
    ragmem.session_of("Numbats?", "-c")
    ragmem.ok("sessions", "fork", first[-8:], "--at", "1", "-n", "burrow")
    with lost(ragmem):
        assert ragmem.session_of("And then?", "-r", "burrow") != first
        assert "Wombats?" in said(server)
        assert "Numbats?" not in said(server)


def left_in_an_outage(ragmem: Ragmem) -> tuple[str, SpoolFile]:
    """A question and its answer, which a living process has still to store: this one."""
    with locked(ragmem.home):
        asked = ragmem.session_of("Wombats?")
    (path,) = spool(ragmem).iterdir()
    held = SpoolFile.adopt(path)
    assert held
    return asked, held


def test_a_session_is_not_deleted_while_writes_of_it_wait(ragmem: Ragmem) -> None:
    """They could never be stored without it, and their text would stay on the disk for good."""
    first, other = ragmem.session_of("First?"), ragmem.session_of("Other?")
    with locked(ragmem.home):
        ragmem.ok("ask", "My diary?", "-r", first)
    (path,) = spool(ragmem).iterdir()
    held = SpoolFile.adopt(path)
    assert held
    assert "still wait" in ragmem.refused("sessions", "delete", first, "--yes", code=75)
    ragmem.ok("sessions", "delete", other, "--yes")
    held.close()
    ragmem.ok("sessions", "delete", first, "--yes")
    assert ragmem.sessions() == list(spool(ragmem).iterdir()) == []


@pytest.mark.parametrize("before", [True, False], ids=["an-older-one", "none"])
def test_going_on_waits_for_the_last_session_that_another_process_has_to_store(
    ragmem: Ragmem, server: LLMServer, *, before: bool
) -> None:
    """Neither an older session is gone on with, nor is it said that there is none."""
    ragmem.ok("ask", "Older?", cwd=ragmem.project if before else ragmem.project.parent)
    last, held = left_in_an_outage(ragmem)
    answered = len(server.requests)
    with ragmem.start("ask", "And then?", "-c", "--output-format", "json") as process:
        time.sleep(1)
        assert (process.poll(), len(server.requests)) == (None, answered)
        held.close()
        assert json.loads(process.stdout.read())["session_id"] == last
    assert "Wombats?" in said(server)
    assert [turn["turn_index"] for turn in ragmem.shown(last)["turns"]] == [1, 2]


async def test_what_is_not_stored_in_time_is_not_passed_over(ragmem: Ragmem) -> None:
    """Once it is stored, one that was put aside is not gone on with."""
    older = await asyncio.to_thread(ragmem.session_of, "Older?")
    _, held = await asyncio.to_thread(left_in_an_outage, ragmem)
    paths = find_paths({"RAGMEM_HOME": str(ragmem.home)})
    async with App(Config(), paths, cwd=ragmem.project) as app:
        with pytest.raises(StoreUnavailable, match="Another process is still storing"):
            await app.continue_session(wait_s=0)
        held.close()
        last = await app.continue_session()
        assert last
        assert last.session_id != older
        await archive(app.memory, last)
        last = await app.continue_session(wait_s=0)
        assert last
        assert last.session_id == older


def test_what_waits_for_a_damaged_database_reaches_the_repaired_one(ragmem: Ragmem) -> None:
    """It is a new file, and yet the same store."""
    ragmem.ok("ask", "First?")
    database = ragmem.home / "data" / "memory.db"
    with closing(sqlite3.connect(database)) as connection:
        root = "SELECT rootpage FROM sqlite_schema WHERE name = 'turns'"
        (page,) = connection.execute(root).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    ragmem.ok("ask", "Meanwhile?")
    # Its session may have come in before: no page of that is damaged.
    assert b"Meanwhile?" in _spooled(ragmem)
    ragmem.ok("store", "repair")
    assert "Meanwhile?" in [session["last_message"] for session in ragmem.sessions()]
    assert count_waiting(spool(ragmem)) == 0


def test_memory_is_back_while_one_types(house: House) -> None:
    """Said above the prompt, the draft untouched, and the next turn is as ever."""
    house.server.extend(*[Answer("The answer.")] * 3)
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("first\r", prints=r"^The answer\.")
        with locked(house.home):
            chat.send("during\r", prints=r"Memory is unavailable: ")
            chat.send("/status\r", prints=r"memory +unavailable\r?\n *store +unavailable: ")
            chat.send("a dra", shows=r"^› a dra$")
            assert "Memory is back" not in chat.text
        chat.wait_for(r"Memory is back\. [0-9]+ writes that waited are now stored\.")
        chat.wait_for_screen(r"^› a dra$")
        assert chat.text.index("Memory is back") < chat.text.rindex("a dra")
        chat.send("ft\r", until=lambda: len(house.server.requests) == 3)
        chat.leave()
    (session,) = house.sessions()
    assert [turn["user_message"] for turn in session["turns"]] == ["first", "during", "a draft"]


def _spooled(ragmem: Ragmem) -> bytes:
    folder = spool(ragmem)
    return b"".join(file.read_bytes() for file in folder.iterdir()) if folder.exists() else b""
