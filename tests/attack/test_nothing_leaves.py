"""Whom ragmem's processes speak to, and what they write: the model, the store, their own folders.

Every Python process is watched by an audit hook, and the folders that a library may use are looked
at afterwards. Where strace is installed the system's calls are read as well, so that native code
can't pass unseen.
"""

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ragmem.store.neo4j import Connection
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.fakes.neo4j import ask
from tests.repl.pty_chat import ROOT, PtyChat

_WATCH = """
import json, os, sys
_NAMES = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_SOCKETS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
def _note(event, arguments):
    if event in _NAMES or event in _SOCKETS:
        whom = arguments[0] if event in _NAMES else arguments[1]
        if isinstance(whom, (str, bytes)) and event in _SOCKETS or whom is None:
            return  # A socket in the file system, or one that is connected already.
        whom = whom.decode() if isinstance(whom, bytes) else whom
        log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, (json.dumps([event, whom]) + "\\n").encode())
        os.close(log)
sys.addaudithook(_note)
"""
_RUN = """
import sys
from ragmem.cli.main import run
for command in sys.argv[1:]:
    assert run([word.replace("_", " ") for word in command.split()]) == 0, command
"""
_ADDRESS = re.compile(
    r"connect\(.*sin6?_port=htons\((\d+)\), .*?(?:inet_addr\(|inet_pton\(AF_INET6, )\"([^\"]+)"
)
_MADE = re.compile(
    r"(?:mkdir|mkdirat|creat|rename|renameat2?)\((?:AT_FDCWD, )?\"([^\"]+)\".*= 0"
    r"|open(?:at)?\((?:AT_FDCWD, )?\"([^\"]+)\", [^,]*O_CREAT[^)]*\) = [0-9]"
)

_OF_BUBBLEWRAP = ("newroot", "oldroot", "/newroot/")
"""Where the sandbox of commands is tried: on a file system in memory that no other process sees."""


class Watched:
    """A project, homes, and a model; each process that runs there is watched."""

    def __init__(self, folder: Path, server: LLMServer) -> None:
        self.server = server
        self.project, self.home = folder / "project", folder / "ragmem"
        self.outside = {name: folder / name for name in ("home", "tmp", "run")}
        self._log, self._trace = folder / "sockets", folder / "trace"
        hook = folder / "hook"
        for path in (self.project, hook, *self.outside.values()):
            path.mkdir()
        hook.joinpath("sitecustomize.py").write_text(f"LOG = {str(self._log)!r}\n{_WATCH}")
        (self.project / "water.py").write_text("def litres(plants):\n    return plants / 2\n")
        self.env = {
            **server.env,
            "PATH": os.environ["PATH"],
            "HOME": str(self.outside["home"]),
            "TMPDIR": str(self.outside["tmp"]),
            "XDG_RUNTIME_DIR": str(self.outside["run"]),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join([str(hook), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RAGMEM_HOME": str(self.home),
            "RAGMEM_MEMORY__WORKER": "inline",
        }

    def command(self, *program: str) -> list[str]:
        """How a Python program is started: traced, where that is possible."""
        trace = ["strace", "-f", "-qq", "-o", str(self._trace), "-A"]
        trace += ["-e", "trace=connect,sendto,openat,open,creat,mkdir,mkdirat,rename,renameat2"]
        traced = trace if shutil.which("strace") else []
        return [*traced, sys.executable, "-P", *program]

    def run(self, *commands: str) -> str:
        """Run them in one process to their ends, which are good ones; `_` stands for a blank."""
        done = subprocess.run(
            self.command("-c", _RUN, *commands),
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def spoken_to(self) -> set[tuple[str, int]]:
        """Each host and port that was connected to; a name that was looked up has port 0."""
        found: set[tuple[str, int]] = set()
        for line in self._log.read_text().splitlines():
            event, whom = json.loads(line)
            if isinstance(whom, list):
                found.add((whom[0], whom[1]))
            elif not _is_address(whom):
                found.add((f"{event} {whom}", 0))
        return found | {(host, int(port)) for port, host in _ADDRESS.findall(self._traced())}

    def strangers(self) -> set[tuple[str, int]]:
        """Those that are not the model."""
        port = urlsplit(self.server.url).port
        return {(host, to) for host, to in self.spoken_to() if (host, to) != ("127.0.0.1", port)}

    def written(self) -> list[str]:
        """Files and folders that were made outside of ragmem's own and the project."""
        found = [str(path) for folder in self.outside.values() for path in folder.rglob("*")]
        # Python tries whether the folder for temporary files can be written to.
        own = tuple(map(str, (self.home, self.project, self._log, self.outside["tmp"])))
        made = {first or second for first, second in _MADE.findall(self._traced())}
        not_here = (*own, "/dev/", *_OF_BUBBLEWRAP)
        return sorted({*found, *(path for path in made if not path.startswith(not_here))})

    def _traced(self) -> str:
        return self._trace.read_text(errors="replace") if self._trace.exists() else ""


def _is_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    reading = Answer(tools=[Call("read_file", {"path": "water.py"})])
    with LLMServer([reading, Answer("Half a litre a plant.")], repeat=True) as server:
        yield Watched(tmp_path, server)


def test_asking_indexing_and_the_background_speak_to_the_model_alone(watched: Watched) -> None:
    """With embedding, summing up and the code index; nothing is looked up, nothing left behind."""
    watched.run(
        "ask What_does_water.py_do?",
        "index",
        "search plants",
        "search --code litres_a_plant",
        "work",
    )
    stats = json.loads(watched.run("stats --format json"))
    assert stats["pending"]["vectors"] == 0  # the embedder has run
    assert stats["tokens"]["embedded"] > 0
    assert watched.spoken_to(), "the hook has seen nothing at all"
    assert watched.strangers() == set()
    assert watched.written() == []


@pytest.mark.campaign
def test_other_providers_client_speaks_to_the_model_alone(watched: Watched) -> None:
    """litellm has telemetry, a price map on the network and files of its own, all switched off."""
    watched.env["RAGMEM_LLM__CLIENT"] = "litellm"
    assert "Half a litre a plant." in watched.run("ask What_does_water.py_do?")
    assert watched.strangers() == set()
    assert watched.written() == []


async def test_the_graphs_server_does_not_report_its_use(neo4j_server: Connection) -> None:
    setting = "SHOW SETTINGS 'dbms.usage_report.enabled' YIELD value"
    assert await ask(neo4j_server, setting) == [{"value": "false"}]


def test_a_chat_speaks_to_the_model_alone(watched: Watched) -> None:
    with PtyChat(
        watched.command("-m", "ragmem", "chat"), cwd=watched.project, env=watched.env
    ) as chat:
        chat.wait_for_screen(r"openai/scripted")
        chat.send("What does water.py do?\r")
        chat.wait_for_turn(r"Half a litre a plant\.")
        chat.send("/search plants\r")
        chat.wait_for(r"found by")
        chat.leave()
    assert watched.spoken_to(), "the hook has seen nothing at all"
    assert watched.strangers() == set()
    assert watched.written() == []
