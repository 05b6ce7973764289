"""A person's work with five tool calls a turn, in real processes that may be killed at any time.

A `World` is a home, a project and a model that is scripted by what it is asked:
`Do job 7` is answered by reading, searching, an edit, a command whose effect can be
counted, and a new file; anything else by words.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ragmem.config import find_paths
from ragmem.store import Archive, home_owner
from ragmem.store.neo4j import Connection
from ragmem.store.sqlite import SQLiteStore
from tests.crash.runs import Run, start
from tests.fakes.forks import PATIENCE
from tests.fakes.llm_server import Answer, Call, LLMServer, Received
from tests.fakes.neo4j import ask, in_thread, neo4j_env

CALLS = ("read_file", "grep_files", "edit_file", "run_command", "create_file")
_NOTES_LINES = 2000


class Said(msgspec.Struct, frozen=True):
    """What a process has shown as saved, by its stream of events."""

    prompt: str
    turn_id: str = ""
    turn_index: int = 0
    calls: dict[str, str] = {}
    """Results that were shown, by the call's id."""
    result: str | None = None
    durable: bool = True
    """False once it said that the turn is not kept."""

    @property
    def phase(self) -> str:
        """How far it came, as far as can be seen from outside."""
        if self.result is not None:
            return "answered"
        if self.calls:
            return f"{len(self.calls)} of {len(CALLS)} calls done"
        return "turn begun" if self.turn_id else "before the turn"


def said_by(run: Run, prompt: str) -> Said:
    """What a process has said until now; a torn last line was not said."""
    said: dict[str, Any] = {"prompt": prompt, "calls": {}}
    for line in run.out.split("\n")[:-1]:
        event = json.loads(line)
        if event["type"] == "system" and event.get("subtype") == "init":
            said |= {"turn_id": event["turn_id"], "turn_index": event["turn_index"]}
        elif event["type"] == "user":
            for block in event["message"]["content"]:
                said["calls"][block["tool_use_id"]] = block["content"]
        elif event["type"] == "result" and event["subtype"] == "success":
            said["result"] = event["result"]
        elif event.get("subtype") == "notice" and "This turn was not stored" in event["text"]:
            said["durable"] = False
    if "This turn was not stored" in run.err:
        said["durable"] = False
    return Said(**said)


class World:
    """One home with its project: `work` and `recover` start processes in it."""

    def __init__(
        self,
        folder: Path,
        server: LLMServer,
        neo4j: Connection | None = None,
    ) -> None:
        self.folder = folder
        self.home, self.project = folder / "home", folder / "project"
        self.neo4j = neo4j
        self.jobs = 0
        self.said: list[Said] = []
        self.sessions = 0
        """How many were started, at most: a process may die before it says so."""
        self.has_session = False
        self.runs: list[Run] = []
        self.project.mkdir(parents=True)
        (self.project / "a.py").write_text("VALUE = 0\n")
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "nobody"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RAGMEM_HOME": str(self.home),
            "RAGMEM_LLM__RETRIES": "0",
            "RAGMEM_MEMORY__SUMMARIES__RETRY_PAUSE_S": "0",
            "RAGMEM_STORE": "neo4j" if neo4j else "sqlite",
            **server.env,
        }
        if neo4j:
            self.env |= neo4j_env(neo4j)
            # How long a turn waits is what crashes meet.
            del self.env[PATIENCE]

    def ragmem(
        self, *argv: str, failpoint: str = "", real: bool = False, env: dict[str, str] | None = None
    ) -> Run:
        """Start any command."""
        run = start(
            argv,
            env=self.env | (env or {}) | ({"RAGMEM_FAILPOINT": failpoint} if failpoint else {}),
            cwd=self.project,
            folder=self.folder / "runs" / str(len(self.runs)),
            real=real,
        )
        self.runs.append(run)
        return run

    def kill_all(self) -> None:
        """What a test has left: a stopped process holds its locks, in the graph too."""
        for run in self.runs:
            run.kill()

    def ask(self, prompt: str, *, failpoint: str = "", real: bool = False) -> Run:
        """Go on with the folder's session, once one is known to be there."""
        flags = ["--yolo", "--output-format", "stream-json"]
        if self.has_session:
            flags.append("-c")
        else:
            self.sessions += 1
        return self.ragmem("ask", *flags, prompt, failpoint=failpoint, real=real)

    def heard(self, run: Run, prompt: str) -> Said:
        """What a process has said by now."""
        said = said_by(run, prompt)
        self.has_session |= bool(said.turn_id) and said.durable
        self.said.append(said)
        return said

    def is_storing(self, run: Run) -> bool:
        """Whether a process, held still, has SQLite's lock for writing: byte 120 beside the log."""
        shared = self.home / "data" / "memory.db-shm"
        if not shared.exists():
            return False
        held = rf"POSIX +ADVISORY +WRITE {run.pid} [0-9a-f:]+:{shared.stat().st_ino} 120 "
        return re.search(held, Path("/proc/locks").read_text()) is not None

    def next_job(self) -> str:
        """The prompt of a job that nobody was asked for yet."""
        self.jobs += 1
        return f"Do job {self.jobs}"

    def left(self) -> set[str]:
        """Files in which writes wait for the store, of processes that have ended, say."""
        spool = self.home / "data" / "spool"
        return {file.name for file in spool.glob("*/*.jsonl") if file.stat().st_size}

    async def opened(self) -> Archive:
        """The store as it is, to be looked at."""
        if self.neo4j:
            from ragmem.store.neo4j import Neo4jStore

            return await Neo4jStore.open(self.neo4j, timeout_s=30)
        paths = find_paths({"RAGMEM_HOME": str(self.home)}).make()
        return await SQLiteStore.open(
            paths.database, locks_dir=paths.locks_dir, timeout_s=30, owner=home_owner(paths)
        )

    def end_leases(self) -> None:
        """As if half a minute had passed on the graph's server."""
        if self.neo4j:
            statement = (
                "MATCH (o:Process) SET o.leaseUntil = datetime.realtime() - duration({seconds: 1})"
            )
            in_thread(ask(self.neo4j, statement))


@contextmanager
def model() -> Iterator[LLMServer]:
    """The server that plays the model, whichever project it is asked about."""
    with LLMServer([answer], repeat=True) as server:
        yield server


def notes(job: int) -> str:
    """What a job writes into its new file."""
    return f"Notes of job {job}.\n" * _NOTES_LINES


def answer(request: Received) -> Answer:
    """The model: what it says depends on nothing but the request."""
    messages = request.body["messages"]
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    asked = re.search(r"Do job (\d+)\Z", _text(messages[last]))
    if asked is None:
        return Answer("I see.")
    job = int(asked[1])
    results = [_text(message) for message in messages[last + 1 :] if message["role"] == "tool"]
    match len(results):
        case 0:
            calls = [
                Call("read_file", {"path": "a.py"}),
                Call("grep_files", {"pattern": "VALUE"}),
            ]
            return Answer("First I look.", tools=calls)
        case 2:
            found = re.search(r"VALUE = \d+", "\n".join(results))
            old = found[0] if found else "VALUE = (could not be read)"
            change = {"path": "a.py", "old": old, "new": f"VALUE = {job}"}
            return Answer("Now the edit.", tools=[Call("edit_file", change)])
        case 3:
            command = {"command": f"echo {job} >> effects.txt"}
            return Answer("Now the command.", tools=[Call("run_command", command)])
        case 4:
            new = {"path": f"notes-{job}.txt", "content": notes(job)}
            return Answer("Now the notes.", tools=[Call("create_file", new)], **_LARGE)
        case _:
            return Answer(done(job))


_LARGE: dict[str, Any] = {"chunk_chars": 8000}


def done(job: int) -> str:
    """How a job's answer ends."""
    return f"Job {job} is done, and this is how the answer to it goes on for a while."


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or ())
