"""What `ask` leaves to be done: by a process of its own, before it ends, or not at all."""

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragmem.app import App
from ragmem.background import is_at_work, work_alone
from ragmem.config import find_paths, load_config
from ragmem.embedder.models import INFO
from ragmem.records import EmbedderMark
from tests.cli.process import COMMAND, Ragmem, until
from tests.fakes.llm_server import Answer, LLMServer, Received

KEY = "scripted-key"
DIGEST = json.dumps({"text": "They spoke of ports.", "key_findings": [], "topics": ["ports"]})
PROMPT, ANSWER = "Where does the staging database listen?", "It listens on port 5439."


class World:
    """A home, a project, and a model whose background answers can be slow or fail."""

    def __init__(self, folder: Path, server: LLMServer) -> None:
        self.server = server
        self.answers = threading.Event()
        """Cleared: background answers are held back."""
        self.answers.set()
        env = {**server.env, "RAGMEM_MODEL__SUMMARY": "openai/small"}
        env |= {"RAGMEM_MEMORY__WORKER": "detached", "RAGMEM_LLM__TIMEOUT_S": "600"}
        self.ragmem = Ragmem(folder, env)

    def ask(self, prompt: str = PROMPT, *flags: str, **env: str) -> str:
        return self.ragmem.session_of(prompt, *flags, env=env)

    def workers(self) -> list[int]:
        """Processes of this home that do background work."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                environ = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = f"RAGMEM_HOME={self.ragmem.home}".encode() in environ
            if folder.name.isdecimal() and ours and b"work" in words:
                found.append(int(folder.name))
        return found

    def asked_small(self) -> list[Received]:
        return [r for r in self.server.requests if r.body["model"] == "small"]

    def settle(self) -> None:
        """Until nobody is at work."""
        until(lambda: not self.workers())


@pytest.fixture
def slow() -> list[float]:
    """How long the summary model takes; the last one stays."""
    return [0.0]


@pytest.fixture
def world(tmp_path: Path, slow: list[float]) -> Iterator[World]:
    def answer(request: Received) -> Answer:
        if request.body["model"] != "small":
            return Answer(ANSWER)
        world.answers.wait(600)
        return Answer(DIGEST, delay_s=slow.pop(0) if len(slow) > 1 else slow[0])

    with LLMServer([answer], repeat=True) as server:
        world = World(tmp_path, server)
        yield world
        world.answers.set()
        for pid in world.workers():
            os.kill(pid, signal.SIGKILL)


NEVER_S = 3600.0
"""Of an answer that nobody can have waited for: `World.ask` gives up long before."""


def test_ask_leaves_its_work_to_a_process(world: World) -> None:
    """Vectors and summaries come after the answer; the process ends by itself.

    No key in its argv; in a session of its own; in no folder of the person's; silent."""
    world.answers.clear()
    world.ask(PROMPT, "-m", "openai/scripted")
    until(world.asked_small)
    [pid] = world.workers()
    proc = Path("/proc") / str(pid)
    argv = (proc / "cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    assert argv == [*COMMAND, "work", "-m", "openai/scripted"]
    assert KEY not in " ".join(argv)
    assert os.getsid(pid) == pid
    assert (proc / "cwd").readlink() == world.ragmem.home / "data"
    for number in (0, 1, 2):
        assert (proc / "fd" / str(number)).readlink() == Path(os.devnull)
    assert world.asked_small()[0].headers["authorization"] == f"Bearer {KEY}"
    world.answers.set()
    world.settle()
    stats = world.ragmem.read("stats")
    assert stats["pending"]["vectors"] == stats["pending"]["level1"] == 0
    # What the process did is in the numbers.
    assert stats["background_calls"] >= 1
    assert stats["tokens"]["embedded"] > 0
    hits = world.ragmem.read("search", "5439")
    assert {hit["type"] for hit in hits} == {"turn", "summary"}
    assert all(hit["similarity"] is not None for hit in hits)


async def test_a_search_leaves_embeddings_of_an_earlier_version_to_a_process(world: World) -> None:
    """It says that they are recomputed in the background."""
    world.ask(RAGMEM_MEMORY__WORKER="inline")
    paths = find_paths({"RAGMEM_HOME": str(world.ragmem.home)})
    async with App(load_config(paths.config_file, environ={}), paths, cwd=paths.data_dir) as app:
        await (await app.store()).use_embedder(EmbedderMark(INFO.replaces[0], INFO.dimension))
    assert "recomputed in the background" in world.ragmem.ok("search", "5439").err
    world.settle()
    done = world.ragmem.ok("search", "5439", "--format", "json")
    assert done.err == ""
    assert all(hit["similarity"] is not None for hit in done.json)


def test_one_process_at_most(world: World) -> None:
    """Whoever comes while one is at work leaves it to that; it does all of it."""
    world.answers.clear()
    world.ask("Question 0")
    # From then on it is at work: one that is about to begin would be found out a moment later.
    until(world.asked_small)
    [pid] = world.workers()
    for number in range(1, 4):
        world.ask(f"Question {number}")
        assert world.workers() == [pid]
    world.answers.set()
    while now := world.workers():
        assert now == [pid]
        time.sleep(0.02)
    # Each turn was summed up once, whoever did it.
    asked = [request.body["messages"] for request in world.asked_small()]
    sent = [messages[-1]["content"] for messages in asked if "Summarize" in messages[0]["content"]]
    for number in range(4):
        of_turns = [text for text in sent if f"Question {number}" in text]
        assert 1 <= len(of_turns) <= 2  # its turn's, and perhaps its session's
    assert world.ragmem.read("stats")["pending"]["vectors"] == 0


def test_when_none_is_started(world: World) -> None:
    """Never with --ephemeral, nor with memory or the worker off."""
    world.ask(PROMPT, "--ephemeral")
    world.ask(PROMPT, RAGMEM_MEMORY__ENABLED="false")
    world.ask(PROMPT, RAGMEM_MEMORY__WORKER="off")
    for _ in range(10):
        assert world.workers() == []
        time.sleep(0.05)
    assert not (world.ragmem.home / "data" / "locks" / "worker.lock").exists()
    assert world.asked_small() == []


def test_ephemeral_writes_nothing(world: World) -> None:
    """Neither session nor memory is written, nor what was measured."""
    session_id = world.ask()
    until(world.asked_small)
    world.settle()
    before = contents(world.ragmem.home)
    world.ask("What did I ask?", "--ephemeral")
    world.ask("What did I ask?", "--ephemeral", "-r", session_id)
    assert contents(world.ragmem.home) == before


def contents(home: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the memory holds, and every file but the database's own, which reading may touch.

    Nor the log: on a busy machine it says that the question was searched for by its words alone.
    """
    database = home / "data" / "memory.db"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in ("sessions", "turns", "tool_calls", "summaries")
        }
    # Of the projects that the store knows, the spool keeps a copy whenever they are read.
    left_out = ("memory.db", "sqlite-projects", "ragmem.log")
    files = {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.startswith(left_out)
    }
    return rows, files


def test_what_a_killed_one_left_the_next_one_does(world: World, slow: list[float]) -> None:
    """Kill -9 in the middle of the work; nothing is lost, nothing is said twice."""
    slow[:] = [NEVER_S, 0.0]
    first = world.ask()
    until(world.asked_small)
    [pid] = world.workers()
    os.kill(pid, signal.SIGKILL)
    world.settle()
    # Its lease would have gone on for half a minute; but who is dead has none.
    second = world.ask("And who may connect?")
    until(lambda: len(world.asked_small()) >= 3)
    world.settle()
    stats = world.ragmem.read("stats")
    assert stats["pending"]["vectors"] == stats["pending"]["level1"] == 0
    assert stats["counts"]["summaries"] == 2
    hits = world.ragmem.read("search", "ports", "--levels", "1")
    assert sorted(hit["session_id"] for hit in hits) == sorted([first, second])


@pytest.mark.xdist_group("litellm")
def test_what_goes_wrong_is_in_the_log(tmp_path: Path) -> None:
    """The process has no terminal: its words are in the log, without a key."""

    def answer(request: Received) -> Answer:
        if request.path.endswith("/embeddings"):
            return Answer(mode="500")
        return Answer(DIGEST if request.body["model"] == "small" else ANSWER)

    with LLMServer([answer], repeat=True) as server:
        world = World(tmp_path, server)
        world.ask(RAGMEM_MODEL__EMBEDDING="openai/embedder")
        until(lambda: [r for r in server.requests if r.path.endswith("/embeddings")])
        world.settle()
        logs = "".join(p.read_text() for p in (world.ragmem.home / "logs").iterdir())
        assert "background work: " in logs
        assert KEY not in logs
        # Summaries don't wait for vectors.
        assert len(world.ragmem.read("search", "ports", "--levels", "1")) == 1
        assert world.ragmem.read("stats")["pending"]["vectors"] >= 1


@pytest.mark.parametrize("times", [10, pytest.param(50, marks=pytest.mark.campaign)])
async def test_who_looks_keeps_nobody_from_work(tmp_path: Path, times: int) -> None:
    """`stats` and `doctor` look whether a process works while one begins."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path)}).make()
    config = load_config(paths.config_file, environ={})
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            is_at_work(paths)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        async with App(config, paths, cwd=paths.data_dir) as app:
            worked = [await work_alone(app.background, paths) for _ in range(times)]
    finally:
        enough.set()
        for looker in lookers:
            looker.join()
    assert worked == [True] * times
    assert not is_at_work(paths)


async def test_what_is_said_while_the_daily_copy_is_made_is_seen_to_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else begins as long as this process is at work, and it may be the day's last."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path)}).make()
    config = load_config(paths.config_file, environ={})
    async with App(config, paths, cwd=paths.data_dir) as app:
        session = await app.start_session()
        project = (await app.memory.project_of(paths.data_dir)).project
        copy = app.background.back_up

        async def said_meanwhile() -> None:
            await copy()
            recording = await app.memory.begin_turn(session, project, PROMPT, model="openai/other")
            await recording.finish("completed", ANSWER)

        monkeypatch.setattr(app.background, "back_up", said_meanwhile)
        assert await work_alone(app.background, paths)
        assert (await (await app.store()).count_pending())["vectors"] == 0
