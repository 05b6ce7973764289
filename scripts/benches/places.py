"""The folders, environments and stores of measurements."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benches.results import CannotMeasure
from ragmem.config import find_paths, load_config
from ragmem.store.neo4j import Neo4jStore
from ragmem.store.sqlite import SQLiteStore

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".test-env"
RAGMEM = ENVIRONMENT / "bin" / "ragmem"
_READY_S = 300.0


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """Return environment variables without this shell's settings, keys and proxies."""
    kept = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TERM": "xterm-256color", "RAGMEM_HOME": str(home), **more}


@contextlib.contextmanager
def staying(place: Path, env: dict[str, str]) -> Iterator[None]:
    """Run the background process of the home in a folder; enter once its work is done."""
    given = {**clean_environment(place / "home"), **env}
    said = place / "work.txt"
    with said.open("wb") as out:
        work = subprocess.Popen([RAGMEM, "work"], env=given, cwd=place, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + _READY_S
        while not (place / "home" / "data" / "embedder.sock").exists():
            if work.poll() is not None or time.monotonic() > deadline:
                raise CannotMeasure(f"the background process did not stay: {said.read_text()}")
            time.sleep(0.1)
        yield
    finally:
        work.kill()
        work.wait()


async def open_sqlite(home: Path) -> SQLiteStore:
    """Open the SQLite store in a folder."""
    paths = find_paths({"RAGMEM_HOME": str(home)}).make()
    return await SQLiteStore.open(paths.database, locks_dir=paths.locks_dir)


async def open_neo4j(env: dict[str, str]) -> Neo4jStore:
    """Open the Neo4j store that the environment variables name."""
    from ragmem.store.neo4j_server import LocalNeo4j

    paths = find_paths(env)
    config = load_config(paths.config_file, environ=env)
    return await Neo4jStore.open(LocalNeo4j(paths, config, env).connection())


@contextlib.contextmanager
def local_neo4j() -> Iterator[dict[str, str]]:
    """Run the Neo4j of scripts/test, and yield the environment variables for it."""
    env = clean_environment(ENVIRONMENT / "home")
    subprocess.run([RAGMEM, "neo4j", "up"], env=env, check=True, stdout=sys.stderr)
    try:
        yield env
    finally:
        subprocess.run([RAGMEM, "neo4j", "down"], env=env, check=True, stdout=sys.stderr)
