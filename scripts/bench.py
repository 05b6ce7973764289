"""How long a person waits: each promise of ragmem about time, measured.

    scripts/bench [--runs N] [--only NAME]... [--json]

Starts are timed against `python -c pass`, interleaved with it in the same run; the
column "over" is median less median. Steps of recording are timed inside one process.
The environment and the Neo4j are those of scripts/test.
Exits with 1 when a target is missed or a measurement could not be made.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pty
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec

from ragmem.config import find_paths, load_config
from ragmem.ids import new_id
from ragmem.records import (
    BeginTurn,
    CreateSession,
    FileAccess,
    FinishTurn,
    Project,
    RecordToolCall,
    RegisterProject,
    Session,
    ToolCall,
    Usage,
    Write,
    utc_now,
)
from ragmem.store.base import Store

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".test-env"
RAGMEM = ENVIRONMENT / "bin" / "ragmem"
SESSIONS = 1000
STEPS = ("turn begun", "tool call", "turn ended")


class CannotMeasure(Exception):
    """The program did not do what was to be timed; says what it did instead."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. Times in milliseconds; `target` is for `over` where that is given."""

    name: str
    runs: int = 0
    minimum: float | None = None
    median: float | None = None
    maximum: float | None = None
    over: float | None = None
    target: float | None = None
    problem: str = ""
    """Why it could not be measured."""

    @property
    def met(self) -> bool:
        """Whether it was measured, and keeps the target if there is one."""
        value = self.median if self.over is None else self.over
        return value is not None and (self.target is None or value <= self.target)


def result(
    name: str, samples: list[float], *, target: float | None, base: float | None = None
) -> Result:
    """Minimum, median and maximum of the samples."""
    median = statistics.median(samples)
    return Result(
        name=name,
        runs=len(samples),
        minimum=min(samples),
        median=median,
        maximum=max(samples),
        over=None if base is None else median - base,
        target=target,
    )


# --- starts of the program -----------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """A process that is timed from its start; `once` returns milliseconds."""

    name: str
    target: float | None
    once: Callable[[], float]


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of this shell's settings, keys or proxies."""
    kept = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TERM": "xterm-256color", "RAGMEM_HOME": str(home), **more}


def timed(arguments: list[str], *, cwd: Path, env: dict[str, str]) -> float:
    """Milliseconds until a command has ended; it must succeed."""
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
    """Milliseconds until `until(terminal)` returns; the process is ended afterwards."""
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
        # What it still prints must be read, or it could not end.
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
        os.waitpid(pid, 0)
        os.close(terminal)


def wait_for(terminal: int, text: bytes, *, seen: bytes = b"", timeout_s: float = 20) -> bytes:
    """Read until `text` was printed; what was printed until then."""
    deadline = time.monotonic() + timeout_s
    while text not in seen:
        if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            raise CannotMeasure(f"{text!r} did not appear on the terminal; there was {seen!r}")
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            raise CannotMeasure(f"it ended before {text!r} appeared; there was {seen!r}") from None
    return seen


def prompt_and_echo(terminal: int) -> None:
    """Until the prompt shows, and a typed character does."""
    wait_for(terminal, "›".encode())
    os.write(terminal, b"~")
    wait_for(terminal, b"~")


def full_editor(terminal: int) -> None:
    """Until the line editor has taken over: the first prompt leaves, the editor sets its own."""
    seen = wait_for(terminal, b"\x1b[?2004l")
    wait_for(terminal, b"\x1b[?2004h", seen=seen.partition(b"\x1b[?2004l")[2])


def starts(folder: Path, base_url: str, full_home: Path) -> list[Start]:
    """Every measurement of a process."""
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
        Start("ragmem --version", 100, lambda: run(fresh(), "--version")),
        Start(
            f"sessions list, {SESSIONS:,} sessions",
            200,
            lambda: run(full, "sessions", "list", "--all"),
        ),
        Start("ask, instant server, empty memory", 350, lambda: run(fresh(**server), "ask", "hi")),
        Start("chat, ready for typing", 350, lambda: chat(prompt_and_echo)),
        Start("chat, full editor", None, lambda: chat(full_editor)),
    ]


@contextlib.contextmanager
def instant_server(folder: Path) -> Iterator[str]:
    """An OpenAI-compatible server that answers at once; its URL."""
    script, port = folder / "answers.json", folder / "port"
    script.write_text('[{"text": "Hello."}]')
    server = subprocess.Popen(
        [
            *(sys.executable, "-P", ROOT / "tests" / "fakes" / "llm_server.py", "--repeat"),
            *("--script", script, "--port-file", port),
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 10
        while not (port.exists() and port.read_text().strip()):
            if server.poll() is not None or time.monotonic() > deadline:
                raise CannotMeasure("the scripted server did not start")
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port.read_text().strip()}/v1"
    finally:
        server.terminate()
        server.wait()


def measure_starts(folder: Path, runs: int, only: list[str]) -> list[Result]:
    """Each process `runs` times, in turn with `python -c pass`."""
    full_home = folder / "full"
    asyncio.run(fill(full_home, folder))
    bare = [sys.executable, "-c", "pass"]
    env = clean_environment(folder)
    with instant_server(folder) as url:
        chosen = [s for s in starts(folder, url, full_home) if wanted(s.name, only)]
        base: list[float] = []
        samples: dict[str, list[float]] = {start.name: [] for start in chosen}
        problems: dict[str, str] = {}
        for number in range(runs + 1):
            spent = timed(bare, cwd=folder, env=env)
            if number:  # The first round compiles, and warms the disk's cache.
                base.append(spent)
            for start in chosen:
                if start.name in problems:
                    continue
                try:
                    spent = start.once()
                except CannotMeasure as problem:
                    problems[start.name] = str(problem)
                    continue
                if number:
                    samples[start.name].append(spent)
    if not chosen:
        return []
    floor = statistics.median(base)
    return [
        result("python -c pass", base, target=None),
        *(
            Result(name=s.name, target=s.target, problem=problems[s.name])
            if s.name in problems
            else result(s.name, samples[s.name], target=s.target, base=floor)
            for s in chosen
        ),
    ]


# --- recording -------------------------------------------------------------------


def new_session(cwd: str, project: Project) -> Session:
    """A session of now."""
    now = utc_now()
    return Session(
        session_id=new_id(),
        cwd=cwd,
        project_id=project.project_id,
        project_path=project.path,
        started_at=now,
        updated_at=now,
        last_activity_at=now,
    )


def turn(session: Session, number: int) -> tuple[Write, Write, Write]:
    """The three writes of a turn with one tool call of 2,000 characters."""
    turn_id, now = new_id(), utc_now()
    call = ToolCall(
        tool_call_id=new_id(),
        turn_id=turn_id,
        order=0,
        tool_name="read_file",
        arguments='{"path": "src/main.py"}',
        result=json.dumps({"text": "x" * 2000, "path": "src/main.py"}),
        started_at=now,
        duration_ms=3,
    )
    access = FileAccess(
        path="src/main.py", tool_name="read_file", access_type="read", accessed_at=now
    )
    return (
        BeginTurn(
            turn_id=turn_id,
            session_id=session.session_id,
            user_message=f"Question {number}: what does src/main.py do?",
            started_at=now,
        ),
        RecordToolCall(session_id=session.session_id, call=call, accesses=(access,)),
        FinishTurn(
            turn_id=turn_id,
            session_id=session.session_id,
            status="completed",
            assistant_message="It prints a greeting. " * 20,
            usage=Usage(input_tokens=900, output_tokens=80, model_calls=2),
            finished_at=now,
        ),
    )


async def open_sqlite(home: Path) -> Store:
    """An embedded store in a folder."""
    from ragmem.store.sqlite import SQLiteStore

    paths = find_paths({"RAGMEM_HOME": str(home)}).make()
    return await SQLiteStore.open(paths.database, locks_dir=paths.locks_dir)


async def open_neo4j(env: dict[str, str]) -> Store:
    """The graph store on the local server of an environment."""
    from ragmem.store.neo4j import Neo4jStore
    from ragmem.store.neo4j_server import find_connection

    paths = find_paths(env)
    config = load_config(paths.config_file, environ=env)
    return await Neo4jStore.open(find_connection(config, paths, env))


@contextlib.contextmanager
def local_neo4j() -> Iterator[dict[str, str]]:
    """The server of scripts/test, up while this lasts; the environment in which it is found."""
    env = clean_environment(ENVIRONMENT / "home")
    subprocess.run([RAGMEM, "neo4j", "up"], env=env, check=True, stdout=sys.stderr)
    try:
        yield env
    finally:
        subprocess.run([RAGMEM, "neo4j", "down"], env=env, check=True, stdout=sys.stderr)


async def fill(home: Path, cwd: Path) -> None:
    """An embedded store with many sessions of one turn each."""
    store = await open_sqlite(home)
    project = Project(project_id=new_id(), path=str(cwd), created_at=utc_now())
    await store.apply([RegisterProject(project=project)])
    for number in range(SESSIONS):
        session = new_session(str(cwd), project)
        await store.apply([CreateSession(session=session), *turn(session, number)])
    await store.aclose()


async def time_steps(opening: Awaitable[Store], turns: int) -> dict[str, list[float]]:
    """Milliseconds of each step of recording."""
    store = await opening
    project = Project(project_id=new_id(), path=str(ROOT), created_at=utc_now())
    session = new_session(str(ROOT), project)
    await store.apply([RegisterProject(project=project), CreateSession(session=session)])
    spent: dict[str, list[float]] = {step: [] for step in STEPS}
    for number in range(turns + 5):
        for step, write in zip(STEPS, turn(session, number), strict=True):
            started = time.perf_counter()
            await store.apply([write])
            if number >= 5:  # The first ones compile statements and plans.
                spent[step].append((time.perf_counter() - started) * 1000)
    await store.aclose()
    return spent


def measure_recording(folder: Path, runs: int, only: list[str]) -> list[Result]:
    """Each step on each store, `runs` turns."""
    found: list[Result] = []

    def measure(kind: str, target: float, spent: dict[str, list[float]]) -> None:
        for step in STEPS:
            if wanted(f"recording on {kind}: {step}", only):
                found.append(result(f"recording on {kind}: {step}", spent[step], target=target))

    if any(wanted(f"recording on SQLite: {step}", only) for step in STEPS):
        measure("SQLite", 2, asyncio.run(time_steps(open_sqlite(folder / "recording"), runs)))
    if any(wanted(f"recording on Neo4j: {step}", only) for step in STEPS):
        with local_neo4j() as env:
            measure("Neo4j", 15, asyncio.run(time_steps(open_neo4j(env), runs)))
    return found


# --- report ------------------------------------------------------------------------


def wanted(name: str, only: list[str]) -> bool:
    """Whether `--only` lets it pass: any of its values is part of the name."""
    return not only or any(part.lower() in name.lower() for part in only)


def table(results: list[Result]) -> str:
    """The results as aligned text."""
    rows = [["milliseconds", "runs", "min", "median", "max", "over", "target", ""]]
    for r in results:
        digits = 0 if (r.median or 0) >= 20 else 2
        numbers = [r.minimum, r.median, r.maximum, r.over]
        cells = ["" if n is None else f"{n:.{digits}f}" for n in numbers]
        verdict = "" if r.target is None else ("ok" if r.met else "MISSED")
        verdict = "FAILED" if r.problem else verdict
        target = "" if r.target is None else f"{'+' if r.over is not None else ''}{r.target:g}"
        rows.append([r.name, str(r.runs), *cells, target, verdict])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and say by the exit code whether all targets are kept."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measure what ragmem promises about time."
    )
    parser.add_argument("--runs", type=int, default=15, help="of each start (15)")
    parser.add_argument("--turns", type=int, default=200, help="recorded in each store (200)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="part of a name"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="ragmem-bench-"))
    try:
        results = measure_starts(folder, options.runs, options.only)
        results += measure_recording(folder, options.turns, options.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not results:
        parser.error("no measurement bears that name")
    if options.json:
        print(json.dumps([{**msgspec.to_builtins(r), "met": r.met} for r in results], indent=2))
    else:
        print(table(results))
        for r in results:
            if r.problem:
                print(f"\n{r.name}: {r.problem.strip()}")
    return 0 if all(r.met for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
