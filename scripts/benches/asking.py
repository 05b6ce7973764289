"""One-shot commands on a memory of a given size, interleaved with `python -c pass`.

The background process has finished its work and keeps running, as after a user's first question;
"alone" is the same without it.
"""

import asyncio
import contextlib
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from benches.content import Content
from benches.neo4j_server import server
from benches.places import RAGMEM, ROOT, clean_environment, open_sqlite, staying
from benches.results import CannotMeasure, Result, result
from benches.starts import children_ms, instant_server, timed
from ragmem.embedder.models import INFO
from ragmem.records import EmbedderMark
from ragmem.store import Archive
from ragmem.store.neo4j import Neo4jStore

TURNS = {"sqlite": 1_000, "neo4j": 10_000}
_PATIENT_S = 120.0
"""A timeout in seconds: a thousand writes at once may take long."""
_PROMPT = "Where did we settle the retry limit of the importer?"
_ANTHROPIC, _GEMINI = "anthropic/claude-sonnet-5-5", "gemini/gemini-3.8-flash"


class Once(Protocol):
    """A function that runs a command to its end, and returns its time or memory."""

    def __call__(self, arguments: list[str], *, cwd: Path, env: dict[str, str]) -> float: ...


class Way(msgspec.Struct, frozen=True):
    """A command that is measured; `once` returns milliseconds, or `absolute` megabytes."""

    name: str
    target: float | None
    once: Callable[[], float]
    absolute: bool = False


def measure_asking(folder: Path, runs: int, stores: str, turns: int = 0) -> list[Result]:
    """Measure each command `runs` times on each store, with `turns` turns in the memory."""
    found: list[Result] = []
    for store in stores.split(","):
        place = folder / store
        place.mkdir()
        count = turns or TURNS[store]
        content = Content(
            count, 1, top=str(place), mark=EmbedderMark(INFO.model_id, INFO.dimension)
        )
        shutil.copytree(ROOT / "ragmem", place / "p0", ignore=shutil.ignore_patterns("__pycache__"))
        with _filled(store, place, content) as env, instant_server() as url:
            ways = _ways(store, place, {**env, **_model(url)})
            with staying(place, {**env, **_model(url)}):
                found += _measured(f"{store}, {count:,} turns: ", ways, place, runs)
    return found


@contextlib.contextmanager
def _filled(store: str, place: Path, content: Content) -> Iterator[dict[str, str]]:
    """Provide a filled memory, and yield the environment variables for it."""
    home = place / "home"
    if store == "sqlite":
        asyncio.run(_fill(lambda: open_sqlite(home), content))
        yield {"RAGMEM_HOME": str(home)}
        return
    with server(place / "server") as running:
        asyncio.run(
            _fill(lambda: Neo4jStore.open(running.connection, timeout_s=_PATIENT_S), content)
        )
        yield {
            "RAGMEM_HOME": str(home),
            "RAGMEM_STORE__KIND": "neo4j",
            "NEO4J_URI": running.connection.url,
            "NEO4J_PASSWORD": running.connection.password,
        }


async def _fill(opened: Callable[[], Awaitable[Archive]], content: Content) -> None:
    store = await opened()
    await store.use_embedder(content.mark)
    async for batch in content.writes():
        await store.apply(batch)
    await store.aclose()


def _model(url: str) -> dict[str, str]:
    bare = url.removesuffix("/v1")
    return {
        "RAGMEM_API_BASE": url,
        "RAGMEM_MODEL": "openai/scripted",
        "RAGMEM_API_KEY": "none",
        # The stored turns have no summaries, and must not get any now.
        "RAGMEM_MEMORY__SUMMARIES__ENABLED": "false",
        "RAGMEM_MEMORY__FACTS__EXTRACT": "false",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": bare,
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": bare,
    }


def _ways(store: str, place: Path, env: Mapping[str, str]) -> list[Way]:
    project = place / "p0"

    def run(
        *arguments: str, more: Mapping[str, str] | None = None, how: Once = timed
    ) -> Callable[[], float]:
        given = {**clean_environment(place / "home"), **env, **(more or {})}
        return lambda: how([str(RAGMEM), *arguments], cwd=project, env=given)

    alone = {"RAGMEM_MEMORY__EMBEDDINGS__IDLE_S": "0"}
    bare = {"RAGMEM_MODEL": "", "RAGMEM_API_BASE": ""}
    if store == "neo4j":
        return [
            Way("ask", 500, run("ask", _PROMPT)),
            Way("ask, alone", None, run("ask", _PROMPT, more=alone)),
            Way("search", 400, run("search", _PROMPT)),
            Way("search, alone", None, run("search", _PROMPT, more=alone)),
            Way("sessions list", 250, run("sessions", "list")),
        ]
    given = {**clean_environment(place / "home"), **env}
    return [
        Way("ask, until the request is sent", 220, lambda: _sent(project, given)),
        Way("ask", 300, run("ask", _PROMPT)),
        Way("ask, resident MB", 90, run("ask", _PROMPT, how=_resident), absolute=True),
        Way("ask, alone", None, run("ask", _PROMPT, more=alone)),
        Way("ask -m anthropic/…", 320, run("ask", "-m", _ANTHROPIC, _PROMPT, more=bare)),
        Way("ask -m gemini/…", 320, run("ask", "-m", _GEMINI, _PROMPT, more=bare)),
        Way("ask --ephemeral", 180, run("ask", "--ephemeral", _PROMPT)),
        Way("search", None, run("search", _PROMPT)),
    ]


def _measured(name: str, ways: list[Way], place: Path, runs: int) -> list[Result]:
    env = clean_environment(place)
    base: list[float] = []
    samples: dict[str, list[float]] = {way.name: [] for way in ways}
    used: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(runs + 1):
        spent = timed([sys.executable, "-c", "pass"], cwd=place, env=env)
        base += [spent] if number else []  # The first round compiles, and warms the disk's cache.
        for way in ways:
            before = children_ms()
            once = way.once()
            samples[way.name] += [once] if number else []
            used[way.name] += [children_ms() - before] if number else []
    floor = statistics.median(base)
    found = [result(f"{name}python -c pass", base, target=None)]
    for way in ways:
        base_ms, cpu = (None, None) if way.absolute else (floor, used[way.name])
        found.append(
            result(name + way.name, samples[way.name], target=way.target, base=base_ms, used=cpu)
        )
    return found


# The system's peak size of a child includes that of its parent, which is therefore a small one.
_LAUNCHER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdin=-3, stdout=-3, stderr=-3)
print(os.wait4(process.pid, 0)[2].ru_maxrss)
"""


def _resident(arguments: list[str], *, cwd: Path, env: dict[str, str]) -> float:
    """Return a command's peak resident size in megabytes."""
    launcher = [sys.executable, "-S", "-c", _LAUNCHER, *arguments]
    return int(subprocess.check_output(launcher, cwd=cwd, env=env)) / 1024


def _sent(cwd: Path, env: dict[str, str]) -> float:
    """Return the milliseconds until a server receives the first byte of the request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        started = time.perf_counter()
        process = subprocess.Popen(
            [RAGMEM, "ask", "--ephemeral", _PROMPT],
            cwd=cwd,
            env={**env, "RAGMEM_API_BASE": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                return (time.perf_counter() - started) * 1000
        except TimeoutError:
            raise CannotMeasure("no request came") from None
        finally:
            process.kill()
            process.wait()
