"""Disks that take nothing: what was not kept is said, with its true cause, and no exit is 0."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragmem.errors import lacking
from ragmem.store.neo4j import Connection
from tests.cli.process import COMMAND, Done, Ragmem
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.neo4j import neo4j_env
from tests.repl.pty_chat import PtyChat
from tests.store.conftest import mostly

ANSWER = "The answer."
CAUSES = {
    "enospc": "is full",
    "eio": "Input/output error",
    "erofs": "Read-only file system",
    "eacces": "Permission denied",
    "emfile": "Too many open files",
    "enomem": "Cannot allocate memory",
}
_FULL = 'mount -t tmpfs -o size=2m none "$1" && cp -a "$2/." "$1" && { cat /dev/zero > "$1/x"; '
_FULL += "shift 2; "


@pytest.fixture
def ragmem(tmp_path: Path) -> Iterator[Ragmem]:
    """A memory with a turn and a fact in it."""
    with LLMServer([Answer(ANSWER)], repeat=True) as server:
        ragmem = Ragmem(tmp_path, server.env)
        assert ragmem.run("ask", "First?").code == 0
        assert ragmem.run("memory", "add", "The cellar key hangs behind the door.").code == 0
        yield ragmem


def failing(action: str) -> dict[str, str]:
    """Neither the store nor the spool can be written."""
    return {"RAGMEM_FAILPOINT": f"sqlite.begun:{action},spool.create:{action}"}


@pytest.mark.parametrize("action", CAUSES)
def test_what_is_not_kept_is_told_by_its_cause(ragmem: Ragmem, action: str) -> None:
    env, cause = failing(action), CAUSES[action]
    for command, out in (
        (("memory", "add", "We use tabs."), ""),
        (("ask", "Second?", "-c"), f"{ANSWER}\n"),
    ):
        done = ragmem.run(*command, env=env)
        assert (done.code in (1, 75), done.out) == (True, out)
        assert cause in done.err
        assert "another process" not in done.err
        assert "This is a bug" not in done.err
    (session,) = ragmem.sessions()
    if action == "eio":
        assert ragmem.run("sessions", "rename", session["session_id"], "Cellar", env=env).code
        reading(ragmem.run("sessions", "list", env=env), ragmem.run("memory", "list", env=env))
    assert session["last_message"] == "First?"
    assert "tabs" not in ragmem.ok("memory", "list").out


def reading(sessions: Done, memories: Done) -> None:
    """What was stored can be read."""
    assert (sessions.code, "First?" in sessions.out) == (0, True), sessions.err
    assert (memories.code, "The cellar key" in memories.out) == (0, True), memories.err


def _started(ragmem: Ragmem, *command: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that starts ragmem, run to its end."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=ragmem.env,
        cwd=ragmem.project,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def on_a_full_disk(ragmem: Ragmem, *arguments: str) -> Done:
    """Where mounting is allowed, a file system without a free byte; else each write fails."""
    kept = ragmem.home.with_name("kept")
    if not kept.exists():
        ragmem.home.rename(kept)
        ragmem.home.mkdir(mode=0o700)
    script = f'{_FULL} exec "$@"; }}'
    through = ["unshare", "-rm", "sh", "-c", script, "sh", str(ragmem.home), str(kept)]
    if subprocess.run([*through, "true"], capture_output=True, check=False).returncode:
        return ragmem.run(*arguments, env={**failing("enospc"), "RAGMEM_HOME": str(kept)})
    done = _started(ragmem, *through, *COMMAND, *arguments)
    return Done(done.returncode, done.stdout, done.stderr.replace(f"{through[5]}: ", ""))


def test_on_a_full_disk_reading_goes_on_and_nothing_else_is_said_to_be_done(ragmem: Ragmem) -> None:
    for arguments, out in (
        (["memory", "add", "We use tabs."], ""),
        (["ask", "Second?"], f"{ANSWER}\n"),
        (["ask", "Third?", "-c"], f"{ANSWER}\n"),
    ):
        done = on_a_full_disk(ragmem, *arguments)
        assert (done.code, done.out) == (75, out), done.err
        assert "is full" in done.err
        assert "another process" not in done.err
        assert "kept on this disk" not in done.err
    reading(on_a_full_disk(ragmem, "sessions", "list"), on_a_full_disk(ragmem, "memory", "list"))
    assert "The answer." in on_a_full_disk(ragmem, "sessions", "export").out


def test_a_full_disk_at_home_costs_nothing_that_goes_into_a_graph_elsewhere(
    tmp_path: Path, neo4j_server: Connection
) -> None:
    with LLMServer([Answer(ANSWER)], repeat=True) as server:
        ragmem = Ragmem(tmp_path, {**server.env, **neo4j_env(neo4j_server)})
        assert ragmem.run("ask", "First?").code == 0
        for arguments in (["memory", "add", "We use tabs."], ["ask", "Second?", "-c"]):
            done = on_a_full_disk(ragmem, *arguments)
            # On a busy machine the graph may answer later than anyone waits, and that is told.
            for _ in range(9):
                if done.code == 75 and "Memory is unavailable" in done.err:
                    done = on_a_full_disk(ragmem, *arguments)
            assert done.code == 0, done.err
            assert "internal error" not in done.err
        ragmem.home.rmdir()
        ragmem.home.with_name("kept").rename(ragmem.home)
        assert "We use tabs." in ragmem.run("memory", "list").out
        (session,) = ragmem.sessions()
        shown = ragmem.shown(session["session_id"])
        assert [turn["user_message"] for turn in shown["turns"]] == ["First?", "Second?"]


def test_a_chat_goes_on_where_nothing_can_be_kept_and_its_end_says_so(ragmem: Ragmem) -> None:
    env = {**ragmem.env, **failing("enospc")}
    with PtyChat([*COMMAND, "chat"], cwd=ragmem.project, env=env, columns=120) as chat:
        chat.wait_for_screen(r"openai/scripted")
        chat.send("question\r")
        chat.wait_for(r"The answer")
        chat.wait_for(r"is full")
        chat.send("/exit\r")
        assert chat.exit_code() == 75
        assert "Not all of this was stored" in chat.text
        assert "Traceback" not in chat.text


# Where the memory ends within a thread that Python is just starting, Python waits for it for ever:
# a limit is taken at which none is started.
@pytest.mark.parametrize(
    "limit", mostly(["-n 10", "-v 200000"], ["-n 8", "-n 10", "-v 45000", "-v 200000"])
)
def test_few_descriptors_or_little_memory_are_told(ragmem: Ragmem, limit: str) -> None:
    limited = ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh")
    done = _started(ragmem, *limited, *COMMAND, "ask", "Again?")
    for word in ("This is a bug", "internal error", "Traceback", "another process"):
        assert word not in done.stderr
    told = ("Too many open", "new thread", "Cannot allocate memory")
    assert done.returncode == 0 or any(words in done.stderr for words in told)
    assert ragmem.sessions()[-1]["last_message"] == "First?"


@pytest.mark.parametrize(
    "words",
    [
        "error return without exception set",
        "<function f> returned NULL without setting an exception",
        "<class 'X'> returned a result with an exception set",
    ],
)
def test_how_python_fails_without_memory_is_told_from_a_bug(words: str) -> None:
    """It has no room to say more; what returns both is a fault of a program."""
    is_bug = "with an" in words
    assert lacking(SystemError(words)) == ("" if is_bug else "Cannot allocate memory")
