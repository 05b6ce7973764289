"""A key that everything knows is, after every error, in no file of ragmem's and not shown."""

import os
import re
import signal
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ragmem.redact import passwords_in
from tests.cli.process import COMMAND, Done, Ragmem, until
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.repl.pty_chat import PtyChat

CANARY = "canary-Qx7-0987654321-Zw"
LOUD = {"LITELLM_LOG": "DEBUG", "HTTPX_LOG_LEVEL": "trace", "NEO4J_LOG": "DEBUG"}
"""Whatever makes a library talk; ragmem itself has no level above the one that it writes."""
LOUDER = {"PYTHONASYNCIODEBUG": "1"}
"""What no fork takes along: a process is started from nothing."""
KEYS = {
    "RAGMEM_API_KEY": CANARY,
    "OPENAI_API_KEY": CANARY,
    "ANTHROPIC_API_KEY": CANARY,
    "NEO4J_PASSWORD": CANARY,
    "MY_SECRET": CANARY,
}


class House:
    """A project and a home in which everything that may hold the canary does."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.ragmem = Ragmem(folder, {**env, **KEYS, **LOUD})
        self.home = self.ragmem.home
        (self.ragmem.project / ".env").write_text(f"TOKEN={CANARY}\n")
        (self.ragmem.project / "AGENTS.md").write_text("Be brief.\n")

    def run(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        """Run; its output holds no canary, whatever happens."""
        done = self.ragmem.run(*arguments, stdin=stdin.encode(), env=env)
        assert CANARY not in done.err, done.err
        assert CANARY not in done.out, done.out
        return done

    def clean(self) -> None:
        found = [
            str(path.relative_to(self.home))
            for path in self.home.rglob("*")
            if path.is_file()
            if any(form in path.read_bytes() for form in FORMS) or CANARY in str(path)
        ]
        assert found == []


TOKEN = "ghp" + "_" + "Zx9" * 12
FORMS = (
    TOKEN.encode(), CANARY.encode(), CANARY.encode("utf-16-le"), CANARY.encode().hex().encode(),
    CANARY.replace("-", "%2D").encode(),
)  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with LLMServer([Answer("Fine.")], repeat=True) as server:
        made = House(tmp_path, server.env)
        yield made
        made.clean()


# --- providers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "modes"),
    [
        (
            "openai",
            ["401", "429", "500", "html", "badjson", "cut_rst", "cut_clean", "stall", "silent"],
        ),
        # litellm takes seconds to load: the kinds of faults that tell what a server has sent.
        ("litellm", ["401"]),
        pytest.param("litellm", ["html"], marks=pytest.mark.campaign),
    ],
)
def test_what_providers_do(tmp_path: Path, client: str, modes: list[Any]) -> None:
    """Each refuses, repeats the key, breaks off or is silent, while the prompt holds it too."""
    said = f"Incorrect API key provided: {CANARY}"
    env = {"RAGMEM_LLM__CLIENT": client, "RAGMEM_LLM__TIMEOUT_S": "1"}
    for mode in modes:
        with LLMServer([Answer("I say so.", mode=mode, message=said)], repeat=True) as server:
            house = House(tmp_path / mode, server.env)
            forms = ("text", "json", "stream-json") if modes[1:] and mode == "401" else ("text",)
            for form in forms:
                louder = LOUDER if form == "json" or client == "litellm" else {}
                arguments = ("ask", "--output-format", form)
                done = house.run(*arguments, stdin=f"My key is {CANARY}", env=env | louder)
                assert done.code in (1, 75), (mode, done)
                assert done.err or form != "text"
                assert "Traceback" not in done.err
            house.clean()


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_a_provider_that_is_not_there(house: House, client: str) -> None:
    for user in (f"me:{CANARY}", CANARY):
        env = {"RAGMEM_API_BASE": f"http://{user}@127.0.0.1:9/v1"}
        done = house.run("ask", stdin="Hello?", env={**env, "RAGMEM_LLM__CLIENT": client})
        assert done.code == 75
        for command in ("models", "doctor"):
            house.run(command, env=env)


# --- tools -------------------------------------------------------------------------------


def test_what_tools_meet(tmp_path: Path) -> None:
    """In arguments and results, of those that work and of those that fail."""
    calls = [
        Call("read_file", {"path": ".env"}),
        Call("read_file", {"path": f"{CANARY}.txt"}),
        Call("grep_files", {"pattern": f"({CANARY}"}),
        Call("list_directory", {"path": CANARY}),
        Call("edit_file", {"path": ".env", "old": f"no {CANARY}", "new": "x"}),
        Call("edit_file", {"path": ".env", "old": "TOKEN", "new": "token"}),
        Call("run_command", {"command": f"echo {CANARY} >&2; exit 3"}),
        Call("run_command", {"command": "env; cat .env; sleep 60", "timeout": 1}),
        Call("run_command", {"command": f"no-such-{CANARY}"}),
        Call(CANARY, {"path": "x"}),
        Call("read_file", {CANARY: CANARY}),
        Call("run_command", {"command": f"yes '{CANARY} {TOKEN}' | head -40000"}),
    ]
    made = Call("create_file", {"path": "new.txt", "content": f"{CANARY} {TOKEN}"})
    said = Answer(f"I say {TOKEN}", reasoning=f"I think {TOKEN}", tools=[made])
    with LLMServer([*(Answer(tools=[call]) for call in calls), said, Answer("Done.")]) as server:
        house = House(tmp_path, server.env)
        arguments = ("ask", "--yolo", "--output-format", "json", "Look: @.env")
        done = house.ragmem.run(*arguments, stdin=f"and {TOKEN}".encode())
        assert (done.code, done.json["result"]) == (0, "Done."), done.err
    # The model sees what the turn is about; what lasts does not hold it.
    assert TOKEN in str([request.body["messages"] for request in server.requests])
    assert (house.ragmem.project / "new.txt").read_text() == f"{CANARY} {TOKEN}"
    (output,) = (house.home / "data" / "outputs").iterdir()
    (line,) = set(output.read_text().splitlines())
    assert re.fullmatch(r"\[redacted: [A-Z_]+\] \[redacted: GitHub token\]", line)
    house.clean()
    assert "[redacted: " in house.run("sessions", "show", done.json["session_id"]).out
    for command in (("sessions", "export", "-o"), ("store", "backup")):
        assert house.run(*command, str(house.home / command[1])).code == 0
    house.clean()


def test_no_command_line_holds_it(tmp_path: Path) -> None:
    """`/proc/PID/cmdline` is everybody's to read: neither ours nor a child's has the key."""
    answers = [Answer(tools=[Call("run_command", {"command": "sleep 30; true"})]), Answer("Done.")]
    with LLMServer(answers) as server:
        house = House(tmp_path, server.env)
        process = house.ragmem.start_fresh("ask", "Go", "--yolo")
        try:
            until(lambda: any(b"sleep" in x for x in _command_lines(process.pid).values()), 30)
            lines = _command_lines(process.pid).values()
            assert not any(CANARY.encode() in line for line in lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    house.clean()


def _command_lines(pid: int) -> dict[str, bytes]:
    lines: dict[str, bytes] = {}
    pids = [str(pid)]
    while pids:
        each = pids.pop()
        try:
            lines[each] = Path("/proc", each, "cmdline").read_bytes()
            for task in os.listdir(f"/proc/{each}/task"):
                pids += Path("/proc", each, "task", task, "children").read_text().split()
        except OSError:
            continue
    return lines


# --- the store ---------------------------------------------------------------------------


def test_what_stores_do(house: House) -> None:
    """Locked, damaged, lost, refused, not there; what waits is as clean as what is stored."""
    assert house.run("ask", stdin=f"My key is {CANARY}").code == 0
    database = house.home / "data" / "memory.db"
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert house.run("ask", stdin=f"While it is locked: {CANARY}").code == 0
    house.clean()
    connection.close()
    assert house.run("sessions", "list", "--all").code == 0
    # A host's name is no secret, and has to be named when it is not found.
    graph = {"RAGMEM_STORE": "neo4j", "NEO4J_URI": f"bolt://{CANARY}:9"}
    assert house.ragmem.run("ask", stdin=CANARY.encode(), env=graph).code == 0
    graph["NEO4J_URI"] = f"bolt://neo4j:{CANARY}@127.0.0.1:9"
    for arguments in (["ask"], ["sessions", "list"], ["store", "info"], ["doctor"]):
        house.run(*arguments, stdin=f"Without a graph: {CANARY}", env=graph)
    house.clean()
    database.write_bytes(b"\0" * 5000)
    for arguments in (["ask"], ["sessions", "list"], ["store", "check"], ["store", "repair"]):
        house.run(*arguments, stdin=f"Damaged: {CANARY}")
    house.clean()


# --- settings, imports, crashes, chats -----------------------------------------------------


def test_what_settings_hold(house: House) -> None:
    """Where a person puts a key by mistake it stays in that file alone, and is not repeated."""
    file = house.home / "ragmem.toml"
    file.parent.mkdir(mode=0o700)
    for text in (
        f'[llm]\napi_base = "http://me:{CANARY}@127.0.0.1:9/v1"\n',
        f'[store]\nkind = "neo4j"\nurl = "bolt://neo4j:{CANARY}@127.0.0.1:9"\n',
        f'[llm]\napi_key = "{CANARY}"\n',
        f'[model]\nmain = ["{CANARY}"]\n',
        f"[llm]\ntimeout_s = {CANARY}\n",
        f'"{CANARY}" = 1\n',
        f'[store]\nkind = "{CANARY}"\n',
    ):
        file.write_text(text)
        env = {"RAGMEM_API_BASE": ""} if "api_base" in text else {}
        for arguments in (["ask"], ["doctor"], ["config", "show"]):
            done = house.run(*arguments, stdin="Hello?", env=env)
            assert "Traceback" not in done.err, text
        file.unlink()
        house.clean()


def test_what_is_imported(house: House) -> None:
    assert house.run("ask", stdin="Hello?").code == 0
    exported = house.run("sessions", "export").out
    files = {
        "broken": f'{{"format": "{CANARY}',
        "other": f'{{"format":"{CANARY}","version":1}}',
        "whole": exported.replace("Hello?", f"My key is {CANARY}"),
    }
    for name, text in files.items():
        file = house.ragmem.project / f"{name}.json"
        file.write_text(text)
        done = house.run("sessions", "import", "--as-new", str(file))
        assert done.code == (0 if name == "whole" else 2), done
    assert house.run("sessions", "export", "-o", "/proc/nowhere.json").code == 2
    assert (
        "[redacted: " in house.run("sessions", "show", house.ragmem.sessions()[0]["session_id"]).out
    )


def test_what_a_crash_tells(house: House) -> None:
    """A bug's traceback is logged without it, and the line for the person has none either."""
    script = (
        "import sys\n"
        "import ragmem.app\n"
        "from ragmem.cli.main import run\n"
        f"async def broken(*_, **__): raise ValueError('with {CANARY}')\n"
        "ragmem.app.App.start_session = broken\n"
        f"sys.exit(run(['ask', 'Key: {CANARY}']))\n"
    )
    done = house.ragmem.execute(sys.executable, "-P", "-c", script)
    assert done.code == 1
    assert "This is a bug in ragmem. The traceback is in " in done.err
    assert CANARY not in done.err
    (log,) = (house.home / "logs").glob("crash-*.log")
    assert "[redacted: " in log.read_text()


def test_what_is_typed_in_a_chat(house: House) -> None:
    """The history of prompts too, though the prompt was sent before all was loaded."""
    env = {**house.ragmem.env, "TERM": "xterm-256color"}
    with PtyChat([*COMMAND, "chat"], cwd=house.ragmem.project, env=env) as chat:
        chat.wait_for_screen(r"^›")
        chat.send(f"My key is {CANARY}\r", prints=r"^Fine\.")
        chat.send(f"/rename {CANARY}\r")
        chat.send(f"!echo {CANARY}\r")
        chat.leave()
        house.clean()


def test_passwords_in_addresses() -> None:
    found = passwords_in(
        {
            "HTTPS_PROXY": "http://me:pass%20word-1@proxy:80",
            "NEO4J_URI": "bolt://neo4j:secret-12@host:7687",
            "TOKEN_URL": "https://token-12345678@host/x",
            "PLAIN": "https://example.org/a:b@c",
            "MAIL": "me@example.org",
        }
    )
    assert found == {
        "HTTPS_PROXY": "pass%20word-1", "NEO4J_URI": "secret-12", "TOKEN_URL": "token-12345678",
    }  # fmt: skip
