"""Start-up times of the program, interleaved with `python -c pass`."""

import asyncio
import contextlib
import os
import pty
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benches.places import RAGMEM, clean_environment, open_sqlite
from benches.recording import new_session, turn
from benches.results import CannotMeasure, Result, result, wanted
from ragmem.ids import new_id
from ragmem.records import CreateSession, Project, RegisterProject, utc_now
from tests.fakes.llm_server import Answer, LLMServer

SESSIONS = 1000
_KEY = "ж".encode()
"""A key that nothing a chat prints contains, so that its appearance is its echo."""


class Start(msgspec.Struct, frozen=True):
    """A process to time from its start; `once` returns milliseconds."""

    name: str
    target: float | None
    once: Callable[[], float]


def children_ms() -> float:
    """Return the CPU milliseconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def timed(arguments: list[str], *, cwd: Path, env: dict[str, str]) -> float:
    """Return the milliseconds until a command has ended; it must succeed."""
    started = time.perf_counter()
    done = subprocess.run(
        arguments, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    spent = (time.perf_counter() - started) * 1000
    if done.returncode:
        raise CannotMeasure(f"{' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return spent


def in_a_terminal(
    arguments: list[str], *, cwd: Path, env: dict[str, str], until: Callable[[int], None]
) -> float:
    """Run a command on a pseudo-terminal; return the milliseconds until `until(terminal)` returns.

    The process is stopped afterwards.
    """
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(arguments[0], arguments, env)
    try:
        until(terminal)
        return (time.perf_counter() - started) * 1000
    finally:
        os.kill(pid, signal.SIGTERM)
        # The rest of its output must be read, or it would block.
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
        os.waitpid(pid, 0)
        os.close(terminal)


def wait_for(terminal: int, text: bytes, *, seen: bytes = b"", timeout_s: float = 20) -> bytes:
    """Read until `text` has been printed; return the output until then."""
    deadline = time.monotonic() + timeout_s
    while text not in seen:
        if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            raise CannotMeasure(f"{text!r} did not appear on the terminal; there was {seen!r}")
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            raise CannotMeasure(f"it ended before {text!r} appeared; there was {seen!r}") from None
    return seen


def first_prompt(terminal: int) -> None:
    """Wait for the first prompt, from which on typed keys are kept."""
    wait_for(terminal, "›".encode())


def first_echo(terminal: int) -> None:
    """Wait for the echo of a key typed at the first prompt, when the line editor has started."""
    first_prompt(terminal)
    os.write(terminal, _KEY)
    wait_for(terminal, _KEY)


def starts(folder: Path, base_url: str, full_home: Path) -> list[Start]:
    """Return the processes to measure."""
    server = {
        "RAGMEM_API_BASE": base_url,
        "RAGMEM_MODEL": "openai/scripted",
        "RAGMEM_API_KEY": "none",
    }
    project = folder / "project"
    project.mkdir()

    def fresh(**more: str) -> dict[str, str]:
        return clean_environment(Path(tempfile.mkdtemp(dir=folder)), **more)

    def run(env: dict[str, str], *arguments: str) -> float:
        return timed([str(RAGMEM), *arguments], cwd=project, env=env)

    def chat(until: Callable[[int], None]) -> float:
        return in_a_terminal([str(RAGMEM), "chat"], cwd=project, env=fresh(**server), until=until)

    full = clean_environment(full_home)
    return [
        Start("ragmem --version", 10, lambda: run(fresh(), "--version")),
        Start(
            f"sessions list, {SESSIONS:,} sessions",
            100,
            lambda: run(full, "sessions", "list", "--all"),
        ),
        Start("ask, instant server, empty memory", 350, lambda: run(fresh(**server), "ask", "hi")),
        Start("chat, ready for typing", 10, lambda: chat(first_prompt)),
        Start("chat, what was typed shows", 150, lambda: chat(first_echo)),
    ]


def instant_server() -> contextlib.AbstractContextManager[str]:
    """Run a server that answers at once, and yield its URL."""
    return LLMServer.spawn([Answer("Hello.")], repeat=True)


def measure_starts(folder: Path, runs: int, only: list[str]) -> list[Result]:
    """Measure each process `runs` times, interleaved with `python -c pass`."""
    full_home = folder / "full"
    asyncio.run(fill(full_home, folder))
    bare = [sys.executable, "-c", "pass"]
    env = clean_environment(folder)
    with instant_server() as url:
        chosen = [s for s in starts(folder, url, full_home) if wanted(s.name, only)]
        base: list[float] = []
        samples: dict[str, list[float]] = {start.name: [] for start in chosen}
        used: dict[str, list[float]] = {start.name: [] for start in chosen}
        problems: dict[str, str] = {}
        for number in range(runs + 1):
            spent = timed(bare, cwd=folder, env=env)
            if number:  # The first round compiles, and warms the disk's cache.
                base.append(spent)
            for start in chosen:
                if start.name in problems:
                    continue
                before = children_ms()
                try:
                    spent = start.once()
                except CannotMeasure as problem:
                    problems[start.name] = str(problem)
                    continue
                if number:
                    samples[start.name].append(spent)
                    used[start.name].append(children_ms() - before)
    if not chosen:
        return []
    floor = statistics.median(base)
    return [
        result("python -c pass", base, target=None),
        *(
            Result(name=s.name, target=s.target, problem=problems[s.name])
            if s.name in problems
            else result(s.name, samples[s.name], target=s.target, base=floor, used=used[s.name])
            for s in chosen
        ),
    ]


async def fill(home: Path, cwd: Path) -> None:
    """Fill a SQLite store with many sessions of one turn each."""
    store = await open_sqlite(home)
    project = Project(project_id=new_id(), path=str(cwd), created_at=utc_now())
    await store.apply([RegisterProject(project=project)])
    for number in range(SESSIONS):
        session = new_session(str(cwd), project)
        await store.apply([CreateSession(session=session), *turn(session, number)])
    await store.aclose()
