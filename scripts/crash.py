"""Kill ragmem, on real stores, and look whether anything that was promised is broken.

A turn with five tool calls runs in real processes that are killed at random moments,
spread evenly over its length, some of them again while they recover, then once at
every failpoint. After each kill the next process has to go on, and tests/crash/check.py
to find nothing: what was shown as saved is there, no turn is half, no effect ran twice,
the next request is one that a provider takes, files are old or new. At the first
violation it ends with exit code 1, and says the seed and where everything is kept.
"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragmem.config import Config, find_paths
from ragmem.store.neo4j import Connection
from ragmem.store.neo4j_server import LocalNeo4j, start
from ragmem.store.neo4j_server.ways import Layout
from tests.crash.campaign import Campaign, Violation, campaign
from tests.fakes.neo4j import in_thread, jars, use_cached_jars


def main() -> int:
    """Run the command, and return its exit code."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="ragmem-crash-"))
    started = time.monotonic()
    violations = 0
    for kind in ("sqlite", "neo4j") if options.store == "both" else (options.store,):
        print(f"{kind}, seed {options.seed}", flush=True)
        try:
            with _server(kind, folder) as server:
                asyncio.run(_kill(folder / kind, options, server))
        except (Violation, TimeoutError) as violation:
            violations += 1
            print(f"VIOLATION, {violation}", flush=True)
    print(f"{violations} violations, {time.monotonic() - started:.0f} s")
    if not violations:
        shutil.rmtree(folder)
    return 1 if violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--times",
        type=int,
        default=1000,
        help="kills at random moments, and as many in the middle of a write (SQLite)",
    )
    parser.add_argument("--store", choices=("sqlite", "neo4j", "both"), default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--faults", action="store_true", help="let each access to a disk fail too, once and lasting"
    )
    parser.add_argument(
        "--slow", action="store_true", help="stop a process for longer than a lease too (35 s)"
    )
    return parser.parse_args()


async def _kill(folder: Path, options: argparse.Namespace, server: Connection | None) -> None:
    with campaign(folder, seed=options.seed, neo4j=server, real_share=0.05) as kills:
        print(f"  the scenario takes {1000 * await kills.measure():.0f} ms", flush=True)
        try:
            if server is None:
                tries = await kills.kills_while_storing(options.times, _told(options.times))
                print(f"\r  kills while something was stored: {options.times} of {tries} tries")
            await kills.random_kills(options.times, _told(options.times))
        finally:
            print(f"\r  random kills: {_counts(kills.phases)}", flush=True)
            print(f"  of them while recovering: {kills.recoveries}", flush=True)
        await _points(kills)
        if options.slow:
            await kills.stop_for(35)
            print("  stopped for 35 s in its turn, a process went on with it", flush=True)
        if options.faults:
            for action in ("eio", "enospc", "erofs"):
                for lasting in (False, True):
                    count = await kills.nth_failures(action, lasting=lasting)
                    how = "and all that follow" if lasting else "once"
                    print(f"  each of {count} accesses failed by {action}, {how}", flush=True)


def _told(times: int) -> Callable[[int], None]:
    """Return a function that shows progress on stderr, if that is a terminal."""

    def tell(number: int) -> None:
        if sys.stderr.isatty():
            print(f"\r  {number} of {times}", end="", file=sys.stderr, flush=True)

    return tell


async def _points(kills: Campaign) -> None:
    reached = await kills.every_point()
    missed = [point for point, count in reached.items() if not count]
    print(f"  kills at failpoints: {sum(reached.values())} at {len(reached) - len(missed)} points")
    print(f"  not passed by a turn: {', '.join(missed)}", flush=True)


def _counts(phases: Counter[str]) -> str:
    return ", ".join(f"{phase}: {count}" for phase, count in sorted(phases.items()))


@contextmanager
def _server(kind: str, folder: Path) -> Iterator[Connection | None]:
    """Start a Neo4j, or use the one at RAGMEM_TEST_NEO4J_URI, which will be emptied."""
    if kind == "sqlite":
        yield None
        return
    if url := os.environ.get("RAGMEM_TEST_NEO4J_URI"):
        yield Connection(url, password=os.environ.get("RAGMEM_TEST_NEO4J_PASSWORD", ""))
        return
    paths = find_paths({"RAGMEM_HOME": str(folder / "server")}).make()
    layout = Layout(paths.neo4j_dir)
    layout.make()
    try:
        yield Connection(in_thread(_started(layout)), password=layout.password())
    finally:
        in_thread(LocalNeo4j(paths, Config(), os.environ).down())


async def _started(layout: Layout) -> str:
    await use_cached_jars(layout)
    return (await start(jars(), layout, os.environ, lambda _: None)).url


if __name__ == "__main__":
    sys.exit(main())
